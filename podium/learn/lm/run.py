"""A training run of language models on disk: the same folder as that of a structured policy (`podium.learn.folder`), with weights in `learner.safetensors`.

A run that was ended at any moment goes on from its last checkpoint to the same files, to the bit on one machine with the same number of threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, get_args

import msgspec
import numpy as np
import torch

from podium.envs.draws import seeds
from podium.envs.world import LEAD, World, make
from podium.learn import folder
from podium.learn.evaluate import DICE, Judged, beside
from podium.learn.folder import BadRecipe, Folder, summary
from podium.learn.lm import optimiser
from podium.learn.lm.endpoint import connect
from podium.learn.lm.losses import named
from podium.learn.lm.models import Share, Team, team
from podium.learn.lm.play import Manner, likeliest_of, recorded_in_parts, scores
from podium.learn.lm.train import Settings, begin, own_weights, speaking, step, voiced
from podium.learn.params import held_out, training
from podium.learn.regimes import agents_of
from podium.methods import METHODS
from podium.registry import alternatives
from podium.trace import files
from podium.trace.columns import Trace

__all__ = ["Asked", "LmRun", "ModelRun", "Recipe", "converted", "read", "settings_of"]

T = TypeVar("T")
R = TypeVar("R", bound="Recipe")


class Recipe(Protocol):
    """What any training run of language models is asked."""

    @property
    def method(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def patience(self) -> int: ...
    @property
    def iterations(self) -> int: ...
    @property
    def lm(self) -> Settings: ...


@dataclass(frozen=True)
class Asked:
    """A recipe for language models: as that of a structured policy, and how language models learn."""

    world: str
    method: str
    seed: int
    patience: int
    iterations: int
    most: int
    lm: Settings = field(default_factory=Settings)


def read(recipe: str | Mapping[str, Any], where: str, model: str | None = None) -> Asked:
    """A recipe as TOML or as a table: as for a structured policy, and a table `[lm]`. Raises BadRecipe.

    >>> asked = read('world = "sprt"\\niterations = 9\\n[lm]\\nrate = 1e-4', "a recipe")
    >>> asked.iterations, asked.lm.rate, asked.lm.model
    (9, 0.0001, 'tiny')
    """
    base = folder.read(recipe, where)
    settings = settings_of(folder.table_of(recipe, where).get("lm", {}), base.method, where, model)
    if settings.params:
        make(base.world.split("/")[0], **settings.params)
    how = base.recipe
    return Asked(
        base.world,
        base.method,
        base.seed,
        base.patience,
        settings.iterations or how.iterations,
        settings.most or how.most,
        settings,
    )


def settings_of(table: Any, method: str, where: str, model: str | None = None) -> Settings:
    """The table `[lm]` of a recipe, if a method of the table can learn by it. Raises BadRecipe."""
    if not isinstance(table, dict):
        raise BadRecipe(f"{where}: lm must be a table, [lm], got {table!r}")
    known = {f.name for f in fields(Settings)}
    if unknown := [key for key in table if key not in known]:
        raise BadRecipe(f"{where}: no setting {unknown[0]!r} in [lm]; {alternatives(unknown[0], sorted(known))}")
    settings = converted(table, Settings, where, "lm.")
    return _checked(settings if model is None else replace(settings, model=model), method, where)


def converted(table: dict[str, Any], kind: type[T], where: str, inside: str = "") -> T:
    """A table as a dataclass. Raises BadRecipe."""
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        said = f"{str(error)[0].lower()}{str(error)[1:]}".replace(" - at `$.", f" in `{inside}")
        raise BadRecipe(f"{where}: {said}") from None


def _checked(how: Settings, method: str, where: str) -> Settings:
    least = {"episodes": 2, "worlds": 1, "longest": 1, "epochs": 1, "parts": 1, "most_tokens": 1, "threads": 1}
    for name, low in (least | {"rows": 1, "width": 2, "watched": 1, "judged": 1, "lora": 0, "keep": 0}).items():
        if getattr(how, name) < low:
            raise BadRecipe(f"{where}: lm.{name} must be {low} or more, got {getattr(how, name)}")
    if how.seconds <= 0:
        raise BadRecipe(f"{where}: lm.seconds must be above 0, got {how.seconds}")
    words = {"share": get_args(Share), "regime": ("A", "B", "C"), "dtype": ("float32", "bfloat16")}
    for name, allowed in (words | {"spoken": ("", *words["dtype"])}).items():
        if getattr(how, name) not in allowed:
            raise BadRecipe(f"{where}: lm.{name} must be one of {', '.join(allowed)}, got {getattr(how, name)!r}")
    if how.regime == "A" and how.share == "one":
        raise BadRecipe(f'{where}: in regime A only the lead learns, which takes share = "role" or "agent"')
    free = how.free or (isinstance(how.endpoint, str) and bool(how.endpoint))
    if free and '"policy"' in str(METHODS[method].credit):
        raise BadRecipe(
            f'{where}: {method} pays by the probabilities of options, and free text has none; expected another method, such as method = "branching"'
        )
    named(how.update or METHODS[method].update)
    return how


class ModelRun(ABC, Generic[R]):
    """A training run of language models in a folder. Who acts and what an iteration is, a kind of run says."""

    def __init__(self, asked: R, path: Path) -> None:
        """Ready to begin; nothing is written until it is opened."""
        self.asked, self.folder = asked, path
        self.settings, self.method = asked.lm, METHODS[asked.method]
        self.update = named(asked.lm.update or self.method.update)
        self.held: Folder | None = None
        with self._threads():
            self.learner = begin(self.fresh(), asked.seed, self.settings, self.update)
            for mind in self.learner.team.minds.values():
                if mind.voice is not None:
                    mind.voice.proven(mind.model)

    def _open(self) -> None:
        """Begins, or goes on where it was."""
        self.held = Folder(self.folder, self.asked)
        self._resume(self.folder / "learner.safetensors")
        self.held.cut(self.learner.iteration)

    @abstractmethod
    def _agents(self) -> Sequence[str]:
        """Who acts."""

    @abstractmethod
    def _once(self) -> dict[str, Any]:
        """One iteration: what it told."""

    @abstractmethod
    def _look(self) -> float:
        """The regret of the likeliest answers, where it is watched."""

    @contextmanager
    def _threads(self) -> Iterator[None]:
        before = torch.get_num_threads()
        torch.set_num_threads(self.settings.threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def fresh(self) -> Team:
        """The team before it has learned anything."""
        how = self.settings
        made = team(
            how.model,
            self._agents(),
            share=how.share,  # type: ignore[arg-type]
            lora=how.lora,
            frozen=how.frozen,
            seed=self.asked.seed,
            device=how.device,
        )
        voiced(made, self.settings)
        if how.endpoint:
            connect(made, how.endpoint, served=how.served, key_from=how.key_from, seconds=how.seconds)
        if how.regime == "A":
            for mind in made.minds.values():
                mind.frozen = mind.name != made.of(LEAD)
        return made

    def _resume(self, path: Path) -> None:
        if not path.exists():
            return
        weights = own_weights(self.learner.team)
        try:
            tables, numbers = optimiser.load(path)
            shapes = {k: tuple(w.shape) for k, w in tables["w"].items()}
            if shapes != {k: tuple(w.shape) for k, w in weights.items()}:
                raise BadRecipe(f"{path} is of another model; expected the checkpoint of this run")
            with torch.no_grad():
                for table, held in (("w", weights), ("m", self.learner.m), ("v", self.learner.v)):
                    for name, w in held.items():
                        w.copy_(tables[table][name])
            for name in ("iteration", "updates", "most_tokens"):
                setattr(self.learner, name, numbers[name])
        except (OSError, KeyError, ValueError) as error:
            if isinstance(error, BadRecipe):
                raise
            raise BadRecipe(f"{path} cannot be read ({error}); expected the checkpoint of this run") from None

    def _save(self) -> None:
        learner = self.learner
        tables = {"w": own_weights(learner.team), "m": learner.m, "v": learner.v}
        numbers = {name: getattr(learner, name) for name in ("iteration", "updates", "most_tokens")}
        optimiser.save(self.folder / "learner.safetensors", tables, numbers)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What every iteration did."""
        return self.held.lines if self.held else []

    @property
    def last(self) -> int:
        """The iterations that the recipe asks for."""
        return self.asked.iterations

    def iterations(self) -> Iterator[dict[str, Any]]:
        """Goes on to the end of the recipe, or until nothing gets better; tells of every iteration."""
        assert self.held is not None
        with self._threads():
            yield from self.held.follow(self.last, self.asked.patience, self._once, self._look, self._save)

    def _kept(self, trace: Trace) -> None:
        """Traces of every so many iterations stay in the folder."""
        if self.settings.keep and not self.learner.iteration % self.settings.keep:
            (self.folder / "traces").mkdir(exist_ok=True)
            name = str(trace.task_id_n[0]).split(" ")[-1]
            files.save(trace, self.folder / "traces" / f"{name}.jsonl")

    def _sampled(self, before: Trace, after: Trace, kept: int) -> tuple[Trace, Trace]:
        """Runs before and after; a few of each are kept as traces."""
        for name, trace in (("before", before), ("after", after)):
            files.save(trace[:kept], self.folder / f"{name}.jsonl")
        return before, after


class LmRun(ModelRun[Asked]):
    """A training run of language models in the text face of a world."""

    def __init__(self, asked: Asked, path: Path) -> None:
        self.manner = Manner(
            free=asked.lm.free,
            longest=asked.lm.longest,
            digits=asked.lm.digits,
            most=asked.most,
            rows=asked.lm.rows,
            width=asked.lm.width,
        )
        super().__init__(asked, path)
        self._open()

    def _agents(self) -> Sequence[str]:
        return agents_of(self._drawn(0, 0))

    def _drawn(self, iteration: int, number: int) -> World:
        """The world to train in: that of the recipe, or one drawn by address."""
        asked = self.asked
        if asked.lm.params:
            return make(asked.world.split("/")[0], **asked.lm.params)
        return training(asked.world, asked.seed, iteration, number)

    @property
    def held_out(self) -> bool:
        """Whether it is judged in worlds that it did not learn in."""
        return not self.settings.params

    @property
    def kind(self) -> dict[str, Any]:
        """What there is to say of the policy: its model, and what it was worth before it learned, its likeliest answers too."""
        before = self.judged(of=self.fresh())
        return {"model": self.settings.model, "before": float(np.mean([j.value for j in before]))}

    @cached_property
    def _watched(self) -> list[World]:
        """Where the regret is watched: worlds drawn as those to train on are, and never trained on."""
        return [self._drawn(0, 1 + k) for k in range(1 if self.settings.params else folder.WATCHED_WORLDS)]

    def _once(self) -> dict[str, Any]:
        return step(
            self.learner,
            self.settings,
            replace(self.manner, remote=True),
            lambda iteration, number: self._drawn(iteration + 1, number),
            self.method,
            self.update,
            self.last,
            self._kept,
        )._asdict()

    def _look(self) -> float:
        seen = [self._judged(w, self.learner.team, self.settings.watched) for w in self._watched]
        return float(np.mean([j.regret for j in seen]))

    def _judged(self, world: World, of: Team, episodes: int) -> Judged:
        with speaking(self.settings):
            return beside(world, lambda dice: scores(world, of, dice, self.manner), episodes)

    def _tests(self, tests: int) -> list[World]:
        if self.settings.params:
            return [self._drawn(0, 0)]
        return [held_out(self.asked.world, number) for number in range(tests)]

    def judged(self, tests: int = 2, episodes: int = 0, of: Team | None = None) -> list[Judged]:
        """The likeliest answers, in the world of the recipe or in held-out ones; also kept as judged.json."""
        episodes = episodes or self.settings.judged
        with self._threads():
            found = [self._judged(world, of or self.learner.team, episodes) for world in self._tests(tests)]
        if of is None:
            rows = [j._asdict() | {"regret": j.regret, "share": j.share} for j in found]
            files.write_whole(self.folder / "judged.json", msgspec.json.encode(rows) + b"\n")
        return found

    def told(self) -> dict[str, Any]:
        """What there is to say of the run in the end."""
        return summary(self, self.judged())

    def played(self, episodes: int = 100, kept: int = 3) -> tuple[Trace, Trace]:
        """Episodes before training, as the model speaks then, and after, its likeliest answers; a few of each are kept as traces."""
        world, dice = self._tests(1)[0], seeds(DICE, episodes)
        with self._threads(), speaking(self.settings):
            before = recorded_in_parts(world, self.fresh(), dice, self.manner, version="0", task=world.name)
            after = recorded_in_parts(
                world,
                self.learner.team,
                dice,
                self.manner,
                version=str(self.learner.iteration),
                task=world.name,
                pick=likeliest_of,
            )
        return self._sampled(before, after, kept)
