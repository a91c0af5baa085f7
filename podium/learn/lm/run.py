"""A training run of language models on disk: the same folder as that of a small network (`podium.learn.folder`),
with weights in `learner.safetensors`.

A run that was ended at any moment goes on from its last checkpoint to the same files, to the bit on one machine
with the same number of threads.
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

from podium.credit import Credit
from podium.engine.endpoint import BadEndpoint, EndpointEngine
from podium.engine.models import PolicyTeam, Share, policy_team
from podium.envs.draws import seeds
from podium.envs.world import LEAD, World, make
from podium.learn import folder
from podium.learn.evaluate import DICE, Judged, beside
from podium.learn.folder import BadRecipe, Folder, summary
from podium.learn.lm import optimiser
from podium.learn.lm.losses import schedule_of, update_of
from podium.learn.lm.policy import LmPolicy, own_weights
from podium.learn.lm.settings import Settings, generating, prepared
from podium.learn.lm.text_world import PlaySettings, TextWorlds, record_in_parts, scores
from podium.learn.loop import Iteration, Rollouts, Source, learn
from podium.learn.params import held_out, training
from podium.learn.regimes import agents_of
from podium.methods import METHODS, Method
from podium.methods.update import Schedule
from podium.registry import alternatives
from podium.trace import files
from podium.trace.columns import Trace

__all__ = ["LmRecipe", "LmRun", "ModelRun", "WorldRecipe", "connect", "converted", "read", "settings_of"]

T = TypeVar("T")
R = TypeVar("R", bound="LmRecipe")
BY_STATE = ("budget", "heat", "lean", "learned", "part", "practice", "rehearsed", "stages", "tries", "wander")
NUMBERS = ("iteration", "updates", "most_tokens")  # of a policy that are in its checkpoint


class LmRecipe(Protocol):
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
class WorldRecipe:
    """A recipe for language models: as that of a structured policy, and how language models learn."""

    world: str
    method: str
    seed: int
    patience: int
    iterations: int
    most: int
    lm: Settings = field(default_factory=Settings)


def read(recipe: str | Mapping[str, Any], where: str, model: str | None = None) -> WorldRecipe:
    """A recipe as TOML or as a table: as for a structured policy, and a table `[lm]`. Raises BadRecipe.

    >>> recipe = read('world = "sprt"\\niterations = 9\\n[lm]\\nrate = 1e-4', "a recipe")
    >>> recipe.iterations, recipe.lm.rate, recipe.lm.model
    (9, 0.0001, 'tiny')
    """
    base = folder.read(recipe, where)
    settings = settings_of(folder.table_of(recipe, where).get("lm", {}), base.method, where, model)
    if settings.params:
        make(base.world.split("/")[0], **settings.params)
    how = base.recipe
    return WorldRecipe(
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
    if by_state := [key for key in table if key in BY_STATE]:
        raise BadRecipe(
            f"{where}: lm.{by_state[0]} is of learning by the state, which keeps no trace and is an experiment: "
            "python -m bench.lm_results worlds"
        )
    if unknown := [key for key in table if key not in known]:
        raise BadRecipe(f"{where}: no setting {unknown[0]!r} in [lm]; {alternatives(unknown[0], sorted(known))}")
    settings = converted(table, Settings, where, "lm.")
    return _checked(settings if model is None else replace(settings, model=model), method, where)


def converted(table: dict[str, Any], kind: type[T], where: str, inside: str = "") -> T:
    """A table as a dataclass. Raises BadRecipe."""
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        why = f"{str(error)[0].lower()}{str(error)[1:]}".replace(" - at `$.", f" in `{inside}")
        raise BadRecipe(f"{where}: {why}") from None


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
            f"{where}: {method} pays by the probabilities of options, and free text has none; expected another "
            'method, such as method = "branching"'
        )
    update, schedule = update_of(how.update or METHODS[method].update), schedule_for(how, METHODS[method])
    if free and any(term.name == "entropy" for term in update.penalties):
        raise BadRecipe(f"{where}: the entropy bonus is of options, and free text has none (in {update.text!r})")
    if how.share == "one" and schedule.stages[0].name in ("alternate", "round_robin", "frozen"):
        why = 'takes share = "role" or "agent"; or say another schedule, such as schedule = "joint" in [lm]'
        raise BadRecipe(f"{where}: the schedule {schedule.text!r} {why}")
    return how


def schedule_for(settings: Settings, method: Method) -> Schedule:
    """Who learns when: what the settings say, or the method."""
    return schedule_of(settings.schedule or method.schedule)


def connect(team: PolicyTeam, settings: Settings) -> None:
    """Policies of a team speak through the endpoint of the settings: all, or those named, each through its own."""
    given = settings.endpoint
    places = dict.fromkeys(team.policies, given) if isinstance(given, str) else given
    for name, url in places.items():
        if name not in team.policies:
            raise BadEndpoint(
                f"no policy {name!r} to speak through an endpoint; there are {', '.join(team.policies)}"
            )
        how = {"served": settings.served, "key_from": settings.key_from, "seconds": settings.seconds}
        policy = team.policies[name]
        policy.endpoint = EndpointEngine(url, policy.model, at_once=settings.rows, **how)  # type: ignore[arg-type]


class ModelRun(ABC, Generic[R]):
    """A training run of language models in a folder. Who acts and where runs come from, a kind of run says."""

    look_at_roles = False

    def __init__(self, recipe: R, path: Path) -> None:
        """Ready to begin; nothing is written until it is opened."""
        self.asked, self.folder = recipe, path
        self.settings, self.method = recipe.lm, METHODS[recipe.method]
        self.update = update_of(recipe.lm.update or self.method.update)
        self.files: Folder | None = None
        with self._threads():
            schedule = schedule_for(self.settings, self.method)
            team, seed = self.fresh(), recipe.seed
            self.learner = LmPolicy(
                team, seed, self.settings, recipe.iterations, self.update, schedule, self.look_at_roles
            )
            for policy in team.policies.values():
                if policy.endpoint is not None:
                    frame, ids = policy.model.frame, policy.model.ids("ready?")
                    policy.endpoint.prove((*frame.open, *ids, *frame.ask))

    def _open(self) -> None:
        """Begins, or goes on where it was."""
        self.files = Folder(self.folder, self.asked)
        self._resume(self.folder / "learner.safetensors")

    @abstractmethod
    def _agents(self) -> Sequence[str]:
        """Who acts."""

    @property
    @abstractmethod
    def source(self) -> Source:
        """Where runs come from."""

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

    def fresh(self) -> PolicyTeam:
        """The team before it has learned anything."""
        how = self.settings
        team = policy_team(
            how.model,
            self._agents(),
            share=how.share,  # type: ignore[arg-type]
            lora=how.lora,
            frozen=how.frozen,
            seed=self.asked.seed,
            device=how.device,
        )
        prepared(team, self.settings)
        if how.endpoint:
            connect(team, how)
        if how.regime == "A":
            for policy in team.policies.values():
                policy.frozen = policy.name != team.of(LEAD)
        return team

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
                for table, tensors in (("w", weights), ("m", self.learner.m), ("v", self.learner.v)):
                    for name, w in tensors.items():
                        w.copy_(tables[table][name])
            for name in NUMBERS:
                setattr(self.learner, name, numbers[name])
        except (OSError, KeyError, ValueError) as error:
            if isinstance(error, BadRecipe):
                raise
            raise BadRecipe(f"{path} cannot be read ({error}); expected the checkpoint of this run") from None

    def _save(self) -> None:
        policy = self.learner
        tables = {"w": own_weights(policy.team), "m": policy.m, "v": policy.v}
        numbers = {name: getattr(policy, name) for name in NUMBERS}
        optimiser.save(self.folder / "learner.safetensors", tables, numbers)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What every iteration did."""
        return self.files.lines if self.files else []

    @property
    def last(self) -> int:
        """The iterations that the recipe asks for."""
        return self.asked.iterations

    def iterations(self) -> Iterator[dict[str, Any]]:
        """Goes on to the end of the recipe, or until nothing gets better; says of every iteration what it did."""
        assert self.files is not None
        with self._threads():
            steps, at = self.learned(), (self.learner.iteration, self.last, self.asked.patience)
            yield from self.files.follow(*at, lambda: next(steps).line(), self._look, self._save)

    def learned(self) -> Iterator[Iteration]:
        """The iterations that are left, by the one loop."""
        return learn(self.source, self.learner, self.method, self.update, self.last, self._keep)

    def _keep(self, iteration: int, rollouts: Sequence[Rollouts], credit: Sequence[Credit]) -> None:
        """The traces of every so many iterations stay in the folder, as credit and update read them."""
        if self.settings.keep and not iteration % self.settings.keep:
            (self.folder / "traces").mkdir(exist_ok=True)
            for number, one in enumerate(rollouts):
                files.save(one.trace, self.folder / "traces" / f"{iteration}.{number}.jsonl")

    def _sampled(self, before: Trace, after: Trace, most: int) -> tuple[Trace, Trace]:
        """Runs before and after; a few of each are kept as traces."""
        for name, trace in (("before", before), ("after", after)):
            files.save(trace[:most], self.folder / f"{name}.jsonl")
        return before, after


class LmRun(ModelRun[WorldRecipe]):
    """A training run of language models in the text face of a world."""

    def __init__(self, recipe: WorldRecipe, path: Path) -> None:
        how = recipe.lm
        self.play = PlaySettings(
            free=how.free, longest=how.longest, digits=how.digits, most=recipe.most, rows=how.rows, width=how.width
        )
        super().__init__(recipe, path)
        self._open()

    def _agents(self) -> Sequence[str]:
        return agents_of(self._drawn(0, 0))

    def _drawn(self, iteration: int, number: int) -> World:
        """The world to train in: that of the recipe, or one drawn by address."""
        recipe = self.asked
        if recipe.lm.params:
            return make(recipe.world.split("/")[0], **recipe.lm.params)
        return training(recipe.world, recipe.seed, iteration, number)

    @property
    def source(self) -> Source:
        """Episodes of worlds; what is trained speaks through its endpoint too."""
        play = replace(self.play, remote=True)
        worlds = lambda iteration, number: self._drawn(iteration + 1, number)  # noqa: E731
        return TextWorlds(self.settings, play, worlds, self.method, self.asked.seed)

    @property
    def held_out(self) -> bool:
        """Whether it is judged in worlds that it did not learn in."""
        return not self.settings.params

    @property
    def kind(self) -> dict[str, Any]:
        """What there is to say of the policy: its model, and what it was worth before it learned, its likeliest
        answers too."""
        before = self.judged(of=self.fresh())
        return {"model": self.settings.model, "before": float(np.mean([j.value for j in before]))}

    @cached_property
    def _watched(self) -> list[World]:
        """Where the regret is watched: worlds drawn as those to train on are, and never trained on."""
        return [self._drawn(0, 1 + k) for k in range(1 if self.settings.params else folder.WATCHED_WORLDS)]

    def _look(self) -> float:
        looks = [self._judge(w, self.learner.team, self.settings.watched) for w in self._watched]
        return float(np.mean([j.regret for j in looks]))

    def _judge(self, world: World, of: PolicyTeam, episodes: int) -> Judged:
        with generating(self.settings):
            return beside(world, lambda dice: scores(world, of, dice, self.play), episodes)

    def _tests(self, tests: int) -> list[World]:
        if self.settings.params:
            return [self._drawn(0, 0)]
        return [held_out(self.asked.world, number) for number in range(tests)]

    def judged(self, tests: int = 2, episodes: int = 0, of: PolicyTeam | None = None) -> list[Judged]:
        """The likeliest answers, in the world of the recipe or in held-out ones; also kept as judged.json."""
        episodes = episodes or self.settings.judged
        with self._threads():
            judgements = [self._judge(world, of or self.learner.team, episodes) for world in self._tests(tests)]
        if of is None:
            rows = [j._asdict() | {"regret": j.regret, "share": j.share} for j in judgements]
            files.write_whole(self.folder / "judged.json", msgspec.json.encode(rows) + b"\n")
        return judgements

    def told(self) -> dict[str, Any]:
        """What there is to say of the run in the end."""
        return summary(self, self.judged())

    def played(self, episodes: int = 100, most: int = 3) -> tuple[Trace, Trace]:
        """Episodes before training, as the model speaks then, and after, its likeliest answers; a few of each are
        kept as traces."""
        world, dice, how = self._tests(1)[0], seeds(DICE, episodes), self.play
        team, version = self.learner.team, str(self.learner.iteration)
        with self._threads(), generating(self.settings):
            before = record_in_parts(world, self.fresh(), dice, how, version="0", task=world.name)
            after = record_in_parts(world, team, dice, how, version=version, task=world.name, greedy=True)
        return self._sampled(before, after, most)
