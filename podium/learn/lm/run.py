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
from typing import Any, get_args

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
from podium.learn.folder import BadRecipe, Folder, TrainingRun, check_least, check_names
from podium.learn.lm import optimiser
from podium.learn.lm.losses import schedule_of, update_of
from podium.learn.lm.policy import LmPolicy, own_weights
from podium.learn.lm.settings import Settings, generating, prepared
from podium.learn.lm.stored import TRACES, StoredRuns
from podium.learn.lm.text_world import PlaySettings, TextWorlds, record_in_parts, scores
from podium.learn.loop import Iteration, Rollouts, Source, learn
from podium.learn.params import held_out, training
from podium.learn.regimes import agents_of
from podium.methods import METHODS, Method
from podium.methods.update import Term
from podium.trace import files
from podium.trace.columns import Trace

__all__ = [
    "LmRun",
    "ModelRun",
    "WorldRecipe",
    "connect",
    "read_world_recipe",
    "settings_of",
]

BY_STATE = ("budget", "heat", "lean", "learned", "part", "practice", "rehearsed", "stages", "tries", "wander")
WEIGHTS = ("model", "share", "lora", "frozen", "regime")  # settings that say which weights a checkpoint has
LEARNER = "learner.safetensors"
NUMBERS = ("iteration", "updates", "most_tokens")  # of a policy that are in its checkpoint


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


def read_world_recipe(recipe: str | Mapping[str, Any], where: str, model: str | None = None) -> WorldRecipe:
    """A recipe as TOML or as a table: as for a structured policy, and a table `[lm]`. Raises BadRecipe.

    >>> recipe = read_world_recipe('world = "sprt"\\niterations = 9\\n[lm]\\nrate = 1e-4', "a recipe")
    >>> recipe.iterations, recipe.lm.rate, recipe.lm.model
    (9, 0.0001, 'tiny')
    """
    base = folder.read_recipe(recipe, where)
    settings = settings_of(folder.table_of(recipe, where).get("lm", {}), base.method, where, model)
    if settings.params:
        make(base.world.split("/")[0], **settings.params)
    how = base.recipe
    iterations, most = settings.iterations or how.iterations, settings.most or how.most
    return WorldRecipe(base.world, base.method, base.seed, base.patience, iterations, most, settings)


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
    check_names(table, sorted(known), where, " in [lm]")
    settings = folder.converted(table, Settings, where, "lm.")
    return _checked(settings if model is None else replace(settings, model=model), method, where)


def _checked(how: Settings, method: str, where: str) -> Settings:
    least = {"episodes": 2, "worlds": 1, "longest": 1, "epochs": 1, "parts": 1, "most_tokens": 1, "threads": 1}
    least |= {"rows": 1, "width": 2, "watched": 1, "judged": 1, "lora": 0, "keep": 0}
    check_least(how, least, where, "lm.")
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
    if how.share == "one" and schedule.name in ("alternate", "round_robin", "frozen"):
        why = 'takes share = "role" or "agent"; or say another schedule, such as schedule = "joint" in [lm]'
        raise BadRecipe(f"{where}: the schedule {how.schedule or METHODS[method].schedule!r} {why}")
    return how


def schedule_for(settings: Settings, method: Method) -> Term:
    """Who learns when: what the settings say, or the method."""
    return schedule_of(settings.schedule or method.schedule)


def _team_of(asked: dict[str, Any]) -> dict[str, Any]:
    """What of a recipe says which weights the team has, and which of them are in a checkpoint."""
    settings = msgspec.to_builtins(Settings()) | asked.get("lm", {})
    team = {name: asked.get(name) for name in ("world", "team")}
    partly = settings["lora"] or settings["frozen"] or settings["regime"] == "A"
    seed = {"seed": asked.get("seed")} if partly else {}  # what is not in it is drawn by the seed
    return team | {f"lm.{name}": settings[name] for name in WEIGHTS} | seed


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


class ModelRun(TrainingRun, ABC):
    """A training run of language models in a folder. Who acts and where runs come from, a kind of run says."""

    look_at_roles = False

    def __init__(self, recipe: Any, path: Path, keep: bool = False, source: Path | None = None) -> None:
        """Ready to begin; nothing is written until it is opened. `keep` and `source` are those of `folder.Run`."""
        self.asked, self.folder, self.keep, self.wanted = recipe, path, keep, recipe.iterations
        self.stored = None if source is None else StoredRuns(source)
        self.settings, self.method = recipe.lm, METHODS[recipe.method]
        self.update = update_of(recipe.lm.update or self.method.update)
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
        if self.stored is not None:
            self._start_of(self.stored)
        self.files = Folder(self.folder, self.asked)
        if (self.folder / LEARNER).exists():
            self._resume(self.folder / LEARNER)

    @abstractmethod
    def _agents(self) -> Sequence[str]:
        """Who acts."""

    @property
    def source(self) -> Source:
        """Where runs come from."""
        return self.stored or self.acting

    @property
    @abstractmethod
    def acting(self) -> Source:
        """Runs in which the policy acts."""

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
            share=how.share,
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

    def _start_of(self, stored: StoredRuns) -> None:
        """The learner before the first update by stored runs, if they are of such a team. Raises BadRecipe."""
        theirs, own = (_team_of(asked) for asked in (stored.recipe(), msgspec.to_builtins(self.asked)))
        if other := [name for name in theirs if theirs[name] != own.get(name)]:
            raise BadRecipe(
                f"{stored.folder} holds runs of another team: expected {other[0]} = {theirs[other[0]]!r}, "
                f"got {own.get(other[0])!r}"
            )
        self._resume(stored.learner())
        with torch.no_grad():
            for name, w in own_weights(self.learner.team).items():
                if name in self.learner.reference:
                    self.learner.reference[name].copy_(w)

    def _resume(self, path: Path) -> None:
        weights = own_weights(self.learner.team)
        try:
            tables, numbers = optimiser.load_tables(path)
            shapes = {k: tuple(w.shape) for k, w in tables["w"].items()}
            if shapes != {k: tuple(w.shape) for k, w in weights.items()}:
                raise BadRecipe(f"{path} is of another model; expected the checkpoint of this run")
            with torch.no_grad():
                for table, tensors in (("w", weights), ("m", self.learner.m), ("v", self.learner.v)):
                    for name, w in tensors.items():
                        w.copy_(tables[table][name])
            for name in NUMBERS:
                setattr(self.learner, name, numbers[name])
            self.learner.seed = numbers.get("seed", self.learner.seed)  # older files do not have it
        except (OSError, KeyError, ValueError) as error:
            if isinstance(error, BadRecipe):
                raise
            raise BadRecipe(f"{path} cannot be read ({error}); expected the checkpoint of this run") from None

    def _save(self, path: Path | None = None) -> None:
        policy = self.learner
        tables = {"w": own_weights(policy.team), "m": policy.m, "v": policy.v}
        numbers = {name: getattr(policy, name) for name in (*NUMBERS, "seed")}
        optimiser.save_tables(path or self.folder / LEARNER, tables, numbers)

    def iterations(self) -> Iterator[dict[str, Any]]:
        """Goes on to the end of the recipe, or until nothing gets better; says of every iteration what it did."""
        with self._threads():
            steps, at = self.learned(), (self.learner.iteration, self.last, self.asked.patience)
            yield from self.files.follow(*at, lambda: next(steps).line(), self._look, self._save)

    def learned(self) -> Iterator[Iteration]:
        """The iterations that are left, by the one loop."""
        return learn(self.source, self.learner, self.method, self.update, self.wanted, self._keep, self.last)

    def _keep(self, iteration: int, rollouts: Sequence[Rollouts], credit: Sequence[Credit]) -> None:
        """The traces of every so many iterations stay in the folder, as credit and update read them."""
        if self.keep or (self.settings.keep and not iteration % self.settings.keep):
            (self.folder / TRACES).mkdir(exist_ok=True)
            for number, one in enumerate(rollouts):
                files.save(one.trace, self.folder / TRACES / f"{iteration}.{number}.jsonl")
        if self.keep:
            self._save(self.folder / TRACES / f"{iteration}.safetensors")


class LmRun(ModelRun):
    """A training run of language models in the text face of a world."""

    asked: WorldRecipe

    def __init__(self, recipe: WorldRecipe, path: Path, keep: bool = False, source: Path | None = None) -> None:
        how = recipe.lm
        self.play = PlaySettings(
            free=how.free, longest=how.longest, digits=how.digits, most=recipe.most, rows=how.rows, width=how.width
        )
        super().__init__(recipe, path, keep, source)
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
    def acting(self) -> Source:
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
        return self._judged(judgements) if of is None else judgements

    def played(self, episodes: int = 100, most: int = 3) -> tuple[Trace, Trace]:
        """Episodes before training, as the model speaks then, and after, its likeliest answers; a few of each are
        kept as traces."""
        world, dice, how = self._tests(1)[0], seeds(DICE, episodes), self.play
        team, version = self.learner.team, str(self.learner.iteration)
        with self._threads(), generating(self.settings):
            before = record_in_parts(world, self.fresh(), dice, how, version="0", task=world.name)
            after = record_in_parts(world, team, dice, how, version=version, task=world.name, greedy=True)
        return self._sampled(before, after, most)
