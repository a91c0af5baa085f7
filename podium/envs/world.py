"""The contract of a world: a dynamic Dec-POMDP, simulated for many episodes at once, whose best score is known.

A world has parameters (prices, sizes, rosters). `start` begins episodes, `view` says what whoever must decide sees
and may do, `act` does it, until no episode is open; then `score` is what each earned. Distributions are fixed in a
world and hidden; a view never holds a distribution, an index, a threshold, a posterior or the optimum.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from podium import registry
from podium.envs.draws import U, seeds
from podium.envs.log import Log, Spelled
from podium.errors import WrongUse
from podium.outside import use
from podium.trace.columns import B, F, I, Text, Trace
from podium.trace.vocabulary import TOPOLOGIES, Decision

__all__ = [
    "BadParameter",
    "Mask",
    "Params",
    "Played",
    "Policy",
    "State",
    "View",
    "World",
    "answer_of",
    "checked",
    "episodes",
    "log_uniform",
    "make",
    "offer",
    "param",
    "play",
    "register",
    "use_world",
    "worlds",
]

LEAD = "lead"


class BadParameter(WrongUse, ValueError):
    """A parameter, a policy's choice or an action's text that is not allowed; says which, what came, what is."""


def log_uniform(dice: np.random.Generator, low: float, high: float) -> float:
    """A price between two, its logarithm uniform."""
    return float(np.exp(dice.uniform(np.log(low), np.log(high))))


def param(default: Any, allowed: str, check: Callable[[Any], bool]) -> Any:
    """A parameter of a world: its default, what is allowed in words, and the check of it."""
    return field(default=default, metadata={"allowed": allowed, "check": check})


@dataclass(frozen=True)
class Params:
    """Parameters of a world; a subclass lists them with `param`."""

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            try:
                fine = bool(f.metadata["check"](value)) and value == value and not isinstance(value, bool)
            except (TypeError, ValueError, OverflowError):
                fine = False
            if not fine:
                raise BadParameter(f"{f.name} must be {f.metadata['allowed']}, got {value!r}")


@dataclass
class State:
    """Episodes under way; a world adds columns of its own, one row an episode."""

    seed: U  # what an episode draws from now on
    open: B  # who has not ended
    score: F  # what each has earned so far
    log: Log | None  # where events go, if anybody wants them
    logp: F  # of the choices about to be made, if the policy told


@dataclass
class View:
    """What those who must decide see, one row an open episode.

    `facts` are figures of the episode (names: the world's `facts`). `items()` is the record: one row a thing that
    is there or happened, in order (names: the world's `items`), and the row of the view it belongs to. `allowed`
    says which of the world's `options` may be chosen; `about[i, k]` is the item of row i, counted from its first,
    that option k is about, -1 if none. `new` counts the items at the end of each row's record that came since its
    last decision: 0 unless told.
    """

    row: NDArray[np.int64]  # rows of the state
    kind: Decision
    agent: str  # who decides
    facts: F
    allowed: B
    items: Callable[[], tuple[F, NDArray[np.int64]]]
    about: I | None = None
    new: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.row)

    def take(self, index: NDArray[np.int64]) -> View:
        """Some rows of a view, in ascending order."""

        def items() -> tuple[F, NDArray[np.int64]]:
            values, owner = self.items()
            place = np.full(len(self), -1)
            place[index] = np.arange(len(index))
            stays = place[owner] >= 0
            return values[stays], place[owner[stays]]

        about, new = (None if column is None else column[index] for column in (self.about, self.new))
        return View(
            self.row[index], self.kind, self.agent, self.facts[index], self.allowed[index], items, about, new
        )


Policy = Callable[
    [View], Any
]  # choices, one option a row; or (choices, log-probabilities[, those of all options allowed])


class Mask(NamedTuple):
    """Who does nothing in an episode, from the row of its trace at which they are silent; and what is drawn from
    there on."""

    agents: tuple[str, ...]
    row: int
    seed: int  # of the episode ...
    fresh: int | None = None  # ... and from that row on, where it is another


class Played(NamedTuple):
    """Episodes that were played to the end."""

    score: F
    decisions: int
    state: State


class World(ABC):
    """A world with its parameters. A subclass is registered by its `name` and says what its views hold."""

    name: ClassVar[str]
    topology: ClassVar[str] = "centralized"
    Params: ClassVar[type[Params]]
    decides: ClassVar[tuple[Decision, ...]]  # the kinds of decision there are
    lockstep: ClassVar[bool] = False  # whether the episodes of a state must all be at the same decision
    promise: ClassVar[Mapping[str, Any]] = {}  # parameters fit for a promise, where the defaults are not
    roots: ClassVar[tuple[str, ...]] = (LEAD,)  # agents that are there without being spawned

    def __init__(self, params: Any) -> None:
        self.params = params

    # what a view holds
    facts: tuple[str, ...]
    items: tuple[str, ...]
    options: tuple[str, ...]

    @abstractmethod
    def start(self, seed: U, log: Log | None = None) -> Any:
        """Episodes that begin, one a seed."""

    def start_masked(self, masks: Sequence[Mask], log: Log) -> Any:
        """Episodes that begin, one a mask: its agents do nothing from its row on."""
        raise BadParameter(f"{self.name} cannot mask an agent")

    @abstractmethod
    def view(self, state: Any) -> View | None:
        """What the next who decide see; all rows of a view decide the same kind of thing. None when all have
        ended."""

    @abstractmethod
    def act(self, state: Any, view: View, choice: NDArray[np.int64]) -> None:
        """Carries choices out, and whatever follows until the next decision."""

    def stretch(self, state: Any) -> tuple[NDArray[np.int64], F]:
        """Of each episode the stretch of its task that it is at, counted from 0, and what it has earned so far.
        Unless a world says otherwise, a task is one."""
        return np.zeros(len(state.seed), np.int64), state.score

    @property
    def stretches(self) -> bool:
        """Whether a task is paid stretch by stretch, not as a whole."""
        return type(self).stretch is not World.stretch

    @abstractmethod
    def optimum(self) -> float:
        """The expected score of optimal play, computed, not simulated."""

    @abstractmethod
    def optimal(self) -> Policy:
        """A policy that reaches it, from what a view shows and the world's own distributions."""

    def lost(self, view: View, chosen: NDArray[np.int64]) -> F:
        """What each choice is worth less than the best one, if play is optimal after it; NaN where the world cannot
        tell.

        V* - V^π = E_π[Σ_t max_k Q*(s_t, k) - Q*(s_t, a_t)],
        the performance-difference lemma (Kakade & Langford 2002)
        """
        return np.full(len(view), np.nan)

    @abstractmethod
    def trivial(self) -> dict[str, Policy]:
        """Policies that ignore what happens in the episode, their constants tuned on this world."""

    @classmethod
    @abstractmethod
    def held_out(cls, dice: np.random.Generator) -> Mapping[str, Any]:
        """Parameters for a world that nobody was trained on."""

    @classmethod
    def training(cls, dice: np.random.Generator) -> Mapping[str, Any]:
        """Parameters for a world to train in, from ranges that hold those of `held_out`."""
        raise BadParameter(f"{cls.name} says nothing of parameters to train with: it has no `training(dice)`")

    def trace(self, state: State) -> Trace:
        """The episodes as traces; they must have been started with a log."""
        if state.log is None:
            raise ValueError("these episodes were started without a log")
        return state.log.trace(**self.columns_of_runs(state.seed, state.score))

    def columns_of_runs(self, seed: U, score: F) -> dict[str, Any]:
        """What a trace holds of runs of these seeds that earned so much."""
        n = len(seed)
        params = msgspec.json.encode(dataclasses.asdict(self.params)).decode()
        different, which = np.unique(seed, return_inverse=True)
        return {
            "trace_id_n": Text(which, Spelled(self.name + "-{:016x}", different)),
            "task_id_n": Text.constant(self.name, n),
            "env_n": Text.constant(self.name, n),
            "params_n": Text.constant(params, n),
            "seed_n": Text(which, Spelled("{!r}", different)),
            "topology_n": np.full(n, TOPOLOGIES.index(self.topology)),
            "reward_n": {"team": score},
        }


def play(world: World, policy: Policy, seed: U, *, log: bool = False) -> Played:
    """Plays episodes to their end."""
    state = world.start(seed, Log(len(seed)) if log else None)
    decisions = 0
    while (view := world.view(state)) is not None:
        answer = policy(view)
        chosen, logp, logp_o = answer_of(answer)
        chosen = checked(world, view, chosen)
        state.logp[view.row] = logp
        decisions += len(view)
        world.act(state, view, chosen)
        if logp_o is not None and state.log is not None:
            offer(state.log, view, logp_o)
    return Played(state.score, decisions, state)


def answer_of(answer: Any) -> tuple[Any, Any, F | None]:
    """What a policy said: its choices, their log-probabilities (NaN unless told), and those of all options that
    were allowed."""
    if not isinstance(answer, tuple):
        return answer, np.nan, None
    return answer if len(answer) == 3 else (*answer, None)


def offer(log: Log, view: View, logp_o: F) -> None:
    """Writes down what the policy made of the options that these decisions had, one entry an option that was
    allowed."""
    row, number = np.nonzero(view.allowed)
    item = None if view.about is None else view.about[row, number]
    log.offer(view.row, np.bincount(row, minlength=len(view)), number, np.asarray(logp_o, np.float64), item)


def checked(world: World, view: View, choices: Any) -> NDArray[np.int64]:
    """The choices as option numbers, or what is wrong with them."""
    chosen: NDArray[Any] = np.asarray(choices)
    if chosen.shape != (len(view),) or chosen.dtype.kind not in "iu":
        raise BadParameter(f"expected {len(view)} option numbers, got {chosen.dtype} of shape {chosen.shape}")
    inside = (chosen >= 0) & (chosen < len(world.options))
    if not inside.all() or not view.allowed[np.arange(len(view)), chosen].all():
        i = int(np.argmax(~inside | ~view.allowed[np.arange(len(view)), np.where(inside, chosen, 0)]))
        allowed = ", ".join(o for o, ok in zip(world.options, view.allowed[i], strict=True) if ok)
        raise BadParameter(f"row {i} may choose {allowed}; got option {chosen[i]}")
    numbers: NDArray[np.int64] = chosen.astype(np.int64)
    return numbers


def register(world: type[World]) -> type[World]:
    """Puts a world among those that `make` knows."""
    if not (isinstance(world, type) and issubclass(world, World)):
        raise BadParameter(f"expected a subclass of World, got {world!r}")
    return registry.register("world", world.name)(world)


def worlds() -> dict[str, type[World]]:
    """The worlds of the registry by name: ours, those of installed packages and of files that were loaded."""
    return dict(sorted(registry.entries("world").items()))


def use_world(spec: str) -> str:
    """The world that a user names: a name, or FILE.py:NAME, which is loaded. Never for what a record names."""
    return use("world", spec, register)


def make(name: str, **params: Any) -> World:
    """A world by its name and parameters; those left out have their defaults."""
    if registry.kind_of(name, "world") is None:
        raise BadParameter(f"no world called {name!r}; {registry.alternatives(name, worlds(), 'world')}")
    kind: type[World] = registry.find("world", name)
    known = {f.name: f for f in dataclasses.fields(kind.Params)}
    if "lambda" in params and "lam" in known:  # a word that Python keeps for itself
        params["lam"] = params.pop("lambda")
    for given in params:
        if given not in known:
            raise BadParameter(f"{name} has no parameter {given!r}; {registry.alternatives(given, known)}")
    return kind(kind.Params(**{k: _tuples(v) for k, v in params.items()}))


def _tuples(value: Any) -> Any:
    """Lists, as JSON has them, as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def episodes(world: World, policy: Policy, n: int, seed: int = 0, batch: int = 1 << 16) -> F:
    """The scores of n episodes, a batch at a time."""
    parts = [play(world, policy, seeds(seed, min(batch, n - i), i)).score for i in range(0, n, batch)]
    return np.concatenate(parts)
