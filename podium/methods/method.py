"""What a method is: a reward expression, a credit expression, an update, a schedule, its needs and its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from podium import rewards
from podium.credit import BadCredit, Credit, apply
from podium.credit.credit import read_credit
from podium.expression import Call
from podium.methods.update import read_schedule, read_update
from podium.outside import use
from podium.registry import alternatives, entries, find, kind_of, register
from podium.rewards.ledger import Now, read_reward
from podium.trace.columns import Trace
from podium.trace.forest import Forest

__all__ = [
    "METHODS",
    "Known",
    "Method",
    "Methods",
    "Needs",
    "add",
    "credit_of",
    "named",
    "reads_forest",
    "scored",
    "use_method",
]

Known = Literal["formula", "partial", "abstract"]
Needs = Literal[
    "group",
    "branches",
    "critic",
    "votes",
    "roles",
    "tokens",
    "labels",
    "greedy",
    "history",
    "masks",
    "spawns",
    "judge",
]


@dataclass(frozen=True)
class Method:
    """A row of the table. Without `credit` it is a card: it says what is known, and refuses to run."""

    name: str
    reward: str = "outcome"  # an expression over scores
    credit: str = ""  # an expression over steps; empty: nothing of it can be computed from a trace
    unit: str = "team"  # the unit that the reward is read at and the first step receives
    pays: str = ""  # the unit that gets the credit; the same, unless given
    update: str = "clip(token)"  # what the credit is used in, an expression (`podium.methods.update`)
    schedule: str = "joint"  # who learns when, an expression too
    needs: tuple[Needs, ...] = ()  # beyond a scored trace
    source: str = ""
    known: Known = "formula"  # how far its public description goes
    unknown: str = ""  # what of it is not public or is not credit, and is refused
    conflicts: str = ""  # where paper and code disagree, and the side we took
    counts: str = "rollouts"  # what it weighs equally: rollouts, agents, rows or tokens
    scales: bool = True  # twice the reward is twice the credit, or leaves it as it is

    def __post_init__(self) -> None:
        if not self.pays:
            object.__setattr__(self, "pays", self.unit)


class Methods(Mapping[str, Method]):
    """The methods of the registry by name: ours, then those of installed packages and of files that were loaded."""

    def __getitem__(self, name: str) -> Method:
        if name not in self:
            raise KeyError(name)
        method: Method = find("method", name)
        return method

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and kind_of(name, "method") is not None

    def __iter__(self) -> Iterator[str]:
        return iter(entries("method"))

    def __len__(self) -> int:
        return len(entries("method"))


METHODS = Methods()


def add(method: Method) -> Method:
    """Puts a method into the registry, after checking that its expressions can be read."""
    if not isinstance(method, Method):
        raise BadCredit(f"expected a Method, got {type(method).__name__}")
    if method.credit:
        read_reward(method.reward)
        read_credit(method.credit)
    read_update(method.update)
    read_schedule(method.schedule)
    return register("method", method.name)(method)


def named(name: str) -> Method:
    """The method of that name. Raises BadCredit."""
    if name not in METHODS:
        raise BadCredit(f"no method called {name!r}; {alternatives(name, sorted(METHODS), 'method')}")
    return METHODS[name]


def use_method(spec: str) -> Method:
    """The method that a user names: a name, or FILE.py:NAME, which is loaded. Never for what a record names."""
    return named(use("method", spec, add))


def credit_of(trace: Trace | Forest, method: Method | str, now: Now = Now()) -> Credit:  # noqa: B008 (immutable)
    """The credit that a method gives to every unit it pays; of a forest, if it can read it, of its own rows."""
    row = named(method) if isinstance(method, str) else method
    return apply(scored(trace, row, now), row.credit)


def reads_forest(method: Method) -> bool:
    """Whether a method's credit is the same on the own rows of a forest: it compares branches by outcome alone.

    >>> reads_forest(named("branching_policy")), reads_forest(named("grpo"))
    (True, False)
    """
    tree = read_credit(method.credit) if method.credit else None
    return (
        method.unit == "orchestrator"
        and method.reward == "outcome"
        and isinstance(tree, Call)
        and tree.name == "same_prefix"
        and dict(tree.options).get("same") == "option"
    )


def scored(trace: Trace | Forest, method: Method, now: Now = Now()) -> Credit:  # noqa: B008 (immutable)
    """What a method's credit starts from: the reward of every unit it pays."""
    if not method.credit:
        raise BadCredit(f"{method.name} is a card: {method.unknown}")
    packed = trace if isinstance(trace, Forest) and reads_forest(method) else None
    if isinstance(trace, Forest):
        trace = trace.whole() if packed is None else packed.rows
    return Credit(trace, method.unit, rewards.score(trace, method.reward, method.unit, now), packed=packed)
