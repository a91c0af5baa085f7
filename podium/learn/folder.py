"""A training run on disk: what was asked, what every iteration did, where it stands, and how it plays.

`asked.json`, `iterations.jsonl` (one line an iteration), `learner.npz` (all that the next iteration depends on),
`seconds.jsonl` (what it took, the only file that differs between two runs of one seed) and, at the end,
`before.jsonl`, `after.jsonl` (traces of a few episodes) and `judged.json`. A run that was ended at any moment goes
on from its last checkpoint to the same files.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile

import msgspec
import numpy as np

from podium.envs.conformance import random_policy
from podium.envs.draws import seeds
from podium.envs.world import World, play, worlds
from podium.errors import WrongUse
from podium.learn import checkpoint
from podium.learn.collect import capped, greedy
from podium.learn.evaluate import DICE, Judged, judged
from podium.learn.loop import TRIES, Iteration, learn
from podium.learn.params import held_out, trainable, training
from podium.learn.policy import Net
from podium.learn.regimes import network, roles_of, started, wrong
from podium.learn.requirements import cannot
from podium.learn.source import OURS, Mapped, iterations
from podium.learn.stored import StoredRuns, keep_runs, sample_runs
from podium.learn.train import Learner, NetPolicy, Recipe, begin, one_thread, players
from podium.methods import METHODS
from podium.methods.update import BadUpdate
from podium.registry import alternatives
from podium.trace import files
from podium.trace.columns import Trace
from podium.trace.store import locked

__all__ = [
    "EVERY",
    "Asked",
    "BadRecipe",
    "Folder",
    "Run",
    "TrainingRun",
    "check_least",
    "check_method",
    "check_names",
    "converted",
    "read_recipe",
    "summary",
    "table_of",
]

T = TypeVar("T")
EVERY = 5  # iterations between looks at the regret, and between checkpoints; the first few are all looked at
WATCHED, WATCHED_WORLDS = 1_000, 2  # episodes of such a look in each of so many worlds


class BadRecipe(WrongUse, ValueError):
    """A recipe that cannot be followed; says what was expected and what came."""


@dataclass(frozen=True)
class Asked:
    """A recipe: the world, the method that pays, the seed, when to give up, and how to learn."""

    world: str
    method: str = OURS
    seed: int = 0
    patience: int = 0  # looks at the regret without a better one, after which it ends; 0: never
    start: str = ""  # the folder of another run, or its checkpoint, whose parameters this one starts with
    recipe: Recipe = field(default_factory=Recipe)


def table_of(recipe: str | Mapping[str, Any], where: str) -> dict[str, Any]:
    """The settings of a recipe: TOML, or a table already. Raises BadRecipe."""
    try:
        return tomllib.loads(recipe) if isinstance(recipe, str) else dict(recipe)
    except tomllib.TOMLDecodeError as error:
        raise BadRecipe(f'{where}: expected TOML such as world = "scouts" or team = "office": {error}') from None


def read_recipe(recipe: str | Mapping[str, Any], where: str) -> Asked:
    """A recipe, TOML or a table: `world`, and whatever of the rest is not as it is by default. Raises BadRecipe.

    >>> read_recipe('world = "scouts"\\niterations = 10', "a recipe").recipe.iterations
    10
    """
    table = table_of(recipe, where)
    table.pop("lm", None)  # how language models learn, which is read where they do (`podium.learn.lm`)
    own = {f.name for f in fields(Asked)} - {"recipe"}
    check_names(table, sorted(own | {f.name for f in fields(Recipe)}), where)
    if "world" not in table:
        raise BadRecipe(f"{where}: no world; there are {', '.join(trainable())}")
    how = converted({k: v for k, v in table.items() if k not in own}, Recipe, where)
    asked_for = {k: v for k, v in table.items() if k in own} | {"recipe": asdict(how)}
    return checked(converted(asked_for, Asked, where), where)


def check_names(table: Mapping[str, Any], known: Sequence[str], where: str, of: str = "") -> None:
    """Raises BadRecipe for a setting that is not known."""
    if unknown := [key for key in table if key not in known]:
        raise BadRecipe(f"{where}: no setting {unknown[0]!r}{of}; {alternatives(unknown[0], known)}")


def check_least(settings: Any, least: Mapping[str, int], where: str, inside: str = "") -> None:
    """Raises BadRecipe for a setting that is below what it must be."""
    for name, low in least.items():
        if (value := getattr(settings, name)) < low:
            raise BadRecipe(f"{where}: {inside}{name} must be {low} or more, got {value}")


def check_method(name: str, where: str) -> None:
    """Raises BadRecipe for a method that is not there, or that nothing can be learned by."""
    if name not in METHODS:
        raise BadRecipe(f"{where}: no method called {name!r}; {alternatives(name, sorted(METHODS), 'method')}")
    if why := cannot(METHODS[name]):
        raise BadRecipe(f"{where}: {why}")


def converted(table: Mapping[str, Any], kind: type[T], where: str, inside: str = "") -> T:
    """A table as a dataclass. Raises BadRecipe."""
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        why = f"{str(error)[0].lower()}{str(error)[1:]}".replace(" - at `$.", f" in `{inside}")
        raise BadRecipe(f"{where}: {why}") from None


def checked(asked: Asked, where: str) -> Asked:
    """The recipe, if the world is there, can be trained in and gives the method what it needs."""
    if asked.world not in trainable():
        there = "cannot be trained in" if asked.world in worlds() else "is not there"
        raise BadRecipe(
            f"{where}: world {asked.world!r} {there}; {alternatives(asked.world, trainable(), 'world')}"
        )
    how = asked.recipe
    check_method(asked.method, where)
    least = dict.fromkeys(("iterations", "rows", "worlds", "most", "epochs", "parts"), 1)
    check_least(how, {**least, "tries": 2, "episodes": 2 * how.worlds}, where)
    plan = how.scheduled(METHODS[asked.method])
    if why := wrong(plan, roles_of(training(asked.world, asked.seed, 0, 0))):
        raise BadRecipe(f"{where}: {asked.world}: {why}")
    try:
        how.rule(METHODS[asked.method])
    except BadUpdate as error:
        raise BadRecipe(f"{where}: {error}") from None
    if asked.method != OURS:
        _try(asked, where)
    return asked


def _try(asked: Asked, where: str) -> None:
    """A tiny iteration, or a few until a decision is paid: a method that needs what the world cannot give says
    so before anything runs."""
    world = training(asked.world, asked.seed, 0, 0)
    net = Net(world)
    small = Recipe(iterations=TRIES, worlds=1, episodes=64, rows=64, epochs=1, parts=1)
    policy = NetPolicy(net, small, begin(net, asked.seed))
    try:
        for done in iterations(policy, lambda i, k: world, asked.method):
            if done.change.paid:
                break
    except ValueError as error:
        raise BadRecipe(f"{where}: {asked.method} cannot be paid in {asked.world}: {error}") from None


class Folder:
    """A run's folder: what was asked, and a line for each iteration. It holds one run, begun or gone on with."""

    def __init__(self, path: Path, asked: Any) -> None:
        self.path = path
        text = msgspec.json.format(msgspec.json.encode(asked), indent=1) + b"\n"
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadRecipe(f"{path} cannot be a run's folder: {error}") from None
        if (path / "asked.json").exists():
            if (path / "asked.json").read_bytes() != text:
                raise BadRecipe(f"{path} holds another run; expected a new folder, or the recipe in its asked.json")
        elif any(path.iterdir()):
            raise BadRecipe(f"{path} is not empty and holds no run; expected a new folder")
        else:
            files.write_whole(path / "asked.json", text)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What every iteration did."""
        path = self.path / "iterations.jsonl"
        return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    def cut(self, iteration: int) -> None:
        """Lines of iterations after the last checkpoint go: they are made again."""
        for name in ("iterations.jsonl", "seconds.jsonl"):
            path = self.path / name
            if path.exists():
                lines = path.read_bytes().split(b"\n")[:iteration]
                files.write_whole(path, b"".join(line + b"\n" for line in lines))

    def follow(
        self,
        first: int,
        last: int,
        patience: int,
        step: Callable[[], dict[str, Any]],
        look: Callable[[], float],
        save: Callable[[], None],
    ) -> Iterator[dict[str, Any]]:
        """Goes on from one iteration to the last, or until nothing gets better; tells of every one. Now and then
        looks at the regret, and saves. Nobody else may do so in the same folder meanwhile."""
        with locked(self.path, wait=False):
            self.cut(first)
            before = self.lines
            looks, done = [line["regret"] for line in before if line["regret"] is not None], len(before)
            with (
                (self.path / "iterations.jsonl").open("ab") as out,
                (self.path / "seconds.jsonl").open("ab") as took,
            ):
                while done < last and not _given_up(looks, patience):
                    change = step()
                    done += 1
                    regret = look() if done == last or done < EVERY or not done % EVERY else None
                    line = {k: v for k, v in change.items() if k != "seconds"} | {"regret": regret}
                    out.write(msgspec.json.encode(line) + b"\n")
                    took.write(msgspec.json.encode(change["seconds"]) + b"\n")
                    if regret is not None:
                        looks.append(regret)
                        for file in (out, took):  # on disk before the checkpoint that goes on from there
                            file.flush()
                            os.fsync(file.fileno())
                        save()
                    yield line | {"seconds": change["seconds"]}


class TrainingRun:
    """A training run in a folder, whoever acts: begun, or gone on with where it was."""

    asked: Any
    folder: Path
    stored: Any  # the runs that another run kept, where these are learned from again; else None
    files: Folder
    wanted: int  # iterations

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What every iteration did."""
        return self.files.lines

    @property
    def last(self) -> int:
        """The iterations that the recipe asks for, or that were kept."""
        return self.wanted if self.stored is None else min(self.wanted, self.stored.iterations)

    def told(self) -> dict[str, Any]:
        """What there is to say of the run in the end."""
        return summary(self, self.judged())  # type: ignore[attr-defined]

    def _judged(self, judgements: list[Judged]) -> list[Judged]:
        """Judgements, also kept as judged.json."""
        rows = [j._asdict() | {"regret": j.regret, "share": j.share} for j in judgements]
        files.write_whole(self.folder / "judged.json", msgspec.json.encode(rows) + b"\n")
        return judgements

    def _sampled(self, before: Trace, after: Trace, most: int) -> tuple[Trace, Trace]:
        """Runs before and after; a few of each are kept as traces."""
        for name, trace in (("before", before), ("after", after)):
            files.save(trace[:most], self.folder / f"{name}.jsonl")
        return before, after


class Run(TrainingRun):
    """A training run of a small network."""

    def __init__(
        self, asked: Asked, folder: Path, cores: int = 1, keep: bool = False, source: Path | None = None
    ) -> None:
        """With `keep` the runs of every iteration are kept; with `source` they are those that are kept there."""
        self.asked, self.folder, self.cores, self.keep = asked, folder, cores, keep
        self.wanted = asked.recipe.iterations
        self.stored = None if source is None else StoredRuns(source)
        self.net = network(self._drawn(0, 0), asked.recipe)
        self.files = Folder(folder, asked)
        self.learner = self._resumed(folder / "learner.npz")

    def _drawn(self, iteration: int, number: int) -> World:
        """A world by address: those of iteration 0 are never trained on."""
        return training(self.asked.world, self.asked.seed, iteration, number)

    def _stored_start(self) -> Learner:
        assert self.stored is not None
        learner: Learner = self.stored.learner()
        new = begin(self.net, self.asked.seed)
        if {k: x.shape for k, x in learner.w.items()} != {k: x.shape for k, x in new.w.items()}:
            raise BadRecipe(
                f"{self.stored.folder} holds runs of another network; expected those of this recipe's world"
            )
        return learner

    def _resumed(self, path: Path) -> Learner:
        new = begin(self.net, self.asked.seed) if self.stored is None else self._stored_start()
        if self.asked.start and not path.exists():
            source = Path(self.asked.start)
            source = source / "learner.npz" if source.is_dir() else source
            try:
                return replace(new, w=started(new.w, _loaded(source).w))
            except ValueError as error:
                raise BadRecipe(f"start: {source}: {error}") from None
        if not path.exists():
            return new
        old = _loaded(path)
        if {k: x.shape for k, x in old.w.items()} != {k: x.shape for k, x in new.w.items()}:
            raise BadRecipe(f"{path} is of another network; expected the checkpoint of this run")
        return old

    held_out = True  # judged in worlds that it did not learn in

    @property
    def kind(self) -> dict[str, Any]:
        """What there is to say of the policy."""
        return {}

    def iterations(self) -> Iterator[dict[str, Any]]:
        """Goes on to the end of the recipe, or until nothing gets better; tells of every iteration."""
        recipe, watched = (
            self.asked.recipe.scheduled(METHODS[self.asked.method]),
            [self._drawn(0, 1 + k) for k in range(WATCHED_WORLDS)],
        )
        policy = NetPolicy(self.net, recipe, self.learner)

        def step() -> dict[str, Any]:
            line = next(steps).line()
            self.learner = policy.learner
            return line

        def look() -> float:
            looks = [judged(w, self.net, self.learner.w, WATCHED, most=recipe.most, batch=WATCHED) for w in watched]
            return sum(j.regret for j in looks) / len(looks)

        def save() -> None:
            checkpoint.save_learner(self.learner, self.folder / "learner.npz")

        with one_thread(), players(self.cores) as mapped:
            steps = self._steps(policy, mapped)
            yield from self.files.follow(self.learner.iteration, self.last, self.asked.patience, step, look, save)

    def _steps(self, policy: NetPolicy, mapped: Mapped) -> Iterator[Iteration]:
        method = METHODS[self.asked.method]
        keep = keep_runs(self.folder, policy) if self.keep else sample_runs(self.folder)
        if self.stored is not None:
            return learn(self.stored, policy, method, policy.recipe.rule(method), self.wanted, keep, self.last)
        return iterations(policy, lambda i, k: self._drawn(i + 1, k), method, mapped=mapped, keep=keep)

    def judged(self, tests: int = 4, episodes: int = 20_000) -> list[Judged]:
        """The policy on held-out worlds; also kept as judged.json."""
        worlds, most = (held_out(self.asked.world, number) for number in range(tests)), self.asked.recipe.most
        with one_thread():
            judgements = [judged(world, self.net, self.learner.w, episodes, most=most) for world in worlds]
        return self._judged(judgements)

    def played(self, episodes: int = 200, kept: int = 3) -> tuple[Trace, Trace]:
        """Episodes of a held-out world before training, at random, and after; a few of each are kept as traces."""
        world = held_out(self.asked.world, 0)
        learned = capped(world, greedy(self.net, self.learner.w, world), episodes, self.asked.recipe.most)
        policies = random_policy(self.asked.seed), learned
        traces = [world.trace(play(world, p, seeds(DICE, episodes), log=True).state) for p in policies]
        return self._sampled(traces[0], traces[1], kept)


def summary(run: Any, found: Sequence[Judged]) -> dict[str, Any]:
    """What a run was asked, and the means of its judgements beside optimum and the best trivial policy."""

    def mean(name: str) -> float:
        return float(np.mean([getattr(one, name) for one in found]))

    return {
        "world": run.asked.world,
        "method": run.asked.method,
        "seed": run.asked.seed,
        "iterations": run.learner.iteration,
        **run.kind,
        "judged_in": f"{len(found)} held-out worlds" if run.held_out else "the world that it learned in",
        **{name: mean(name) for name in ("value", "optimum", "trivial", "regret")},
        "share_of_gap": mean("share"),
        "folder": str(run.folder),
    }


def _loaded(path: Path) -> Learner:
    try:
        return checkpoint.load_learner(path)
    except (OSError, ValueError, TypeError, KeyError, EOFError, BadZipFile) as error:
        raise BadRecipe(f"{path} cannot be read ({error}); expected the checkpoint of a run") from None


def _given_up(looks: list[float], patience: int) -> bool:
    return bool(patience) and len(looks) > patience and min(looks[-patience:]) >= min(looks[:-patience])
