"""The loop: whatever learns, from whatever source of runs, learns here.

    while not done:
        trace  = source.rollouts(policy)               # a world, a text world, a live team, stored runs
        credit = credit_of(trace, method, now)         # the reward expression, then the credit expression
        policy.update(trace, credit, update)           # a small network, language models

A *source* lets a policy act and returns the record (`Source`). A *policy* acts and learns (`Policy`). Between the
two stand only columns: what a policy learns from is a trace and one number of credit for each unit of it, so that a
run which was kept can be paid and learned from again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from podium.credit import BadCredit, Credit
from podium.learn.mix import Tally, shares
from podium.learn.unpaid import unpaid
from podium.methods import Method, credit_of
from podium.methods.update import Update
from podium.rewards.ledger import Now
from podium.trace.columns import F

__all__ = ["TRIES", "Change", "Iteration", "Keep", "Policy", "Rollouts", "Source", "Stopwatch", "learn"]

TRIES = 3  # iterations without a paid decision, before any update, after which a method is refused


class Rollouts(NamedTuple):
    """Runs of one task (one set of parameters of a world, one task of a team) by the policy."""

    trace: Any  # the record: a `Trace`, or where runs branched the `Forest` that stands for it
    observations: Any  # what the policy saw at its decisions, in its own form; None: it reads all from the trace
    score: F  # of the runs that went as the policy wanted, one each; those that explored are left out
    decisions: int  # that the policy made, branches counted by what they add
    mix: Tally  # what it chose, by kind of decision and word
    rows: Any = None  # the events of its decisions, of which the share that is paid is reported


class Source(Protocol):
    """Where runs come from."""

    def rollouts(self, policy: Any) -> list[Rollouts]:
        """The runs of the next iteration (`policy.iteration`), as many as the recipe allows; the policy acts.

        All randomness comes from the seed, the iteration and an address, so that the same call gives the same runs.
        """


class Policy(Protocol):
    """What acts and learns. It holds all that the next iteration depends on, and can be saved between two."""

    @property
    def iteration(self) -> int:
        """Iterations done."""

    @property
    def updates(self) -> int:
        """Optimizer steps made so far."""

    def fit(self, rollouts: Sequence[Rollouts], method: Method) -> list[Rollouts]:
        """The same runs with what credit needs fitted (critics, values of what was cut off) as columns."""

    def update(self, rollouts: Sequence[Rollouts], credit: Sequence[Credit], update: Update) -> Change:
        """Learns from runs and their credit, and counts the iteration.

        Decisions without credit (NaN) are left out of the update; they are never 0. Only here are parameters
        changed.
        """


class Change(NamedTuple):
    """What an update did."""

    rows: int  # decisions that it learned from
    entropy: float | None  # of a decision, on average
    gradient: float  # mean length of the gradients ...
    gradients: dict[str, float]  # ... and of each role's
    paid: float | None  # the share of the policy's decisions that got credit
    credit: float | None  # root mean square of that credit; None where nothing was paid
    more: Mapping[str, Any] = {}  # what else a policy has to say


class Iteration(NamedTuple):
    """What an iteration did: the rollouts, the update, and how long each took."""

    iteration: int
    score: float
    decisions: int
    mix: dict[str, dict[str, Any]]
    change: Change
    seconds: dict[str, float]

    def line(self) -> dict[str, Any]:
        """As a line of `iterations.jsonl`."""
        own = {k: v for k, v in self._asdict().items() if k != "change"}
        change = {k: v for k, v in self.change._asdict().items() if k != "more"}
        return own | change | dict(self.change.more)


class Stopwatch:
    """Seconds by stage: `lap` adds those since the lap before."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(("rollout", "graph", "reward", "credit", "update"), 0.0)
        self._since = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] += now - self._since
        self._since = now


Keep = Callable[[int, Sequence[Rollouts], Sequence[Credit]], None]


def learn(
    source: Source,
    policy: Policy,
    method: Method,
    update: Update,
    iterations: int,
    keep: Keep | None = None,
    last: int | None = None,
) -> Iterator[Iteration]:
    """Yields what each iteration did, from where the policy is to the end of training, or until `last` are done.

    `keep` is given the runs and their credit before the policy learns from them. Raises BadCredit, with the reason,
    if the method has paid no decision in its first iterations.
    """
    while policy.iteration < (iterations if last is None else min(last, iterations)):
        watch, number = Stopwatch(), policy.iteration
        now = Now(number / iterations, ())
        rollouts = source.rollouts(policy)
        watch.lap("rollout")
        rollouts = policy.fit(rollouts, method)
        credit = [credit_of(one.trace, method, now) for one in rollouts]
        watch.lap("credit")
        if keep is not None:
            keep(number, rollouts, credit)
        change = policy.update(rollouts, credit, update)
        if change.paid == 0 and not policy.updates and policy.iteration >= min(TRIES, iterations):
            why = unpaid(credit[0].trace, method, rollouts[0].rows, now)
            raise BadCredit(f"no decision of the policy is paid: {why}")
        watch.lap("update")
        scores = [float(one.score.mean()) for one in rollouts if len(one.score)]
        yield Iteration(
            number,
            float(np.mean(scores)) if scores else np.nan,
            sum(one.decisions for one in rollouts),
            shares(item for one in rollouts for item in one.mix.items()),
            change,
            watch.seconds,
        )
