"""The record of an expedition: episodes under way, and what they write down, in many of them at once.

A step of a scout's time is so many seconds that scouts take as long as the sub-agents of real runs on average;
launch stagger and tokens are drawn from the figures of those runs. None of it changes a score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.envs.calibration import FIGURES, stagger, tokens
from podium.envs.expedition_optimum import Rules
from podium.envs.log import Log
from podium.envs.world import LEAD, State
from podium.trace.columns import B, F
from podium.trace.vocabulary import Decision, EdgeType

__all__ = [
    "AGGREGATE",
    "BRIEF",
    "DELEGATE",
    "INTRUDER",
    "PHASES",
    "SPAWN",
    "STOP",
    "Journal",
    "Rows",
    "Travelling",
    "ragged",
]

PHASES: tuple[Decision, ...] = ("stop", "spawn", "delegate", "communicate", "aggregate")
STOP, SPAWN, DELEGATE, BRIEF, AGGREGATE = range(5)
INTRUDER = "intruder"
LAUNCH, READ, WROTE, LEAD_READ, LEAD_WROTE = range(100, 105)  # draws

Rows = NDArray[np.int64]
Causes = list[tuple[EdgeType, Rows]]


@dataclass
class Travelling(State):
    """One row an episode; one column a leg or a scout, -1 where there is none yet."""

    phase: Rows
    leg: Rows
    used: Rows  # scouts spawned so far
    earned: F  # known only at the end
    kind: Rows  # [n, legs] from here
    context: Rows
    stake: Rows
    hard: Rows
    width: Rows
    worker: Rows
    brief: Rows
    how: Rows
    answer: Rows
    of: Rows  # [n, pool] from here: the leg of a scout
    source: Rows
    vote: Rows
    took: Rows
    meant: Rows  # the vote without attacks
    spared: Rows  # [n, legs]: the answer that these decisions would have had without attacks
    truth: Rows  # of the leg under way
    clock: F  # seconds, if there is a log
    last: Rows  # handle of the lead's latest event
    orders: Rows  # [n, 2]: handles of what was decided on width and worker
    returns: Rows  # [n, widest]: handles of the returns of this leg
    bad: B  # [n, widest]: that return is not to be trusted
    note: Rows  # handle of the intruder's write


def ragged(width: Rows) -> tuple[Rows, Rows]:
    """Rows 0, 1, ... each as often as its width, and the place within the row.

    >>> [part.tolist() for part in ragged(np.array([2, 0, 1]))]
    [[0, 0, 2], [0, 1, 0]]
    """
    i = np.repeat(np.arange(len(width)), width)
    return i, np.arange(len(i)) - np.repeat(np.cumsum(width) - width, width)


class Journal:
    """Writes into the log of a state; does nothing where there is none."""

    def __init__(
        self, rules: Rules, calls: int, workers: tuple[str, ...], menu: tuple[tuple[str, ...], ...]
    ) -> None:
        self.rules, self.calls, self.menu = rules, calls, menu
        self.second = FIGURES.durations.mean * rules.finish  # seconds in a step
        self.workers = np.array(workers, object)
        self.names = np.array([f"scout {i}" for i in range(1, rules.pool + 1)], object)
        self.sources = np.array([f"source {i}" for i in range(rules.sources)], object)

    def decided(self, state: Travelling, row: Rows, phase: int, pick: Rows) -> None:
        """A decision of the lead in each of these episodes."""
        log, menu = state.log, self.menu[phase]
        if log is None:
            return
        words = np.array(menu, object)[pick]
        open_to = np.full(len(row), len(menu))
        if phase == SPAWN:
            open_to = np.minimum(self.rules.pool - state.used[row], len(menu))
        causes: Causes = [("temporal", state.last[row])]
        if phase == AGGREGATE:
            causes += self._returns(state, row)
        cost = np.where((phase == STOP) & (pick == 1), self.rules.leg_price, 0.0)
        place = state.seed[row], state.leg[row], phase
        read = tokens(place[0], LEAD_READ, *place[1:], of=FIGURES.lead_read)
        wrote = tokens(place[0], LEAD_WROTE, *place[1:], of=FIGURES.lead_wrote)
        event = np.empty(len(row), np.int64)
        for options in np.unique(open_to).tolist():
            at = np.flatnonzero(open_to == options)
            event[at] = log.decide(
                row[at],
                PHASES[phase],
                LEAD,
                state.clock[row[at]],
                menu[:options],
                words[at],
                state.logp[row[at]],
                [(kind, handles[at]) for kind, handles in causes],
                role="lead",
                cost=cost[at],
                tokens_in=read[at],
                tokens_out=wrote[at],
            )
        state.last[row] = event
        if phase in (SPAWN, DELEGATE):
            state.orders[row, phase - SPAWN] = event

    def _returns(self, state: Travelling, row: Rows) -> Causes:
        most = int(state.width[row, state.leg[row]].max())
        told, bad = state.returns[row, :most], state.bad[row, :most]
        causes: Causes = [("return", told[:, j]) for j in range(most)]
        return causes + [
            ("safety_flow", np.where(bad[:, j], told[:, j], -1)) for j in np.flatnonzero(bad.any(axis=0)).tolist()
        ]

    def scouted(self, state: Travelling, row: Rows, caught: B, lies: B) -> None:
        """The scouts of this leg go out and come back: who met an instruction (by scout), who lies (by episode)."""
        if state.log is not None:
            _Leg(self, state, state.log, row).write(caught, lies)

    def answered(self, state: Travelling, row: Rows, check: B) -> None:
        log, t, cause = state.log, state.clock[row], state.last[row]
        if log is None:
            return
        asks: Causes = [("tool_dependency", cause[check])]
        call = log.add(row[check], "tool_call", LEAD, t[check], asks, tool="check", cost=self.rules.check_price)
        cause[check] = log.add(row[check], "tool_result", "check", t[check], [("return", call)], tool="check")
        state.last[row] = log.add(row, "aggregate", LEAD, t, [("aggregate", cause)], role="lead")

    def ended(self, state: Travelling, row: Rows) -> None:
        if state.log is not None and len(row):
            state.log.add(row, "aggregate", LEAD, state.clock[row], [("aggregate", state.last[row])], role="lead")


class _Leg:
    """One leg; arrays have one entry a scout unless they are said to be by episode."""

    def __init__(self, journal: Journal, state: Travelling, log: Log, row: Rows) -> None:
        self.journal, self.state, self.log, self.row = journal, state, log, row
        self.leg = state.leg[row]  # by episode
        width = state.width[row, self.leg]
        self.i, self.j = ragged(width)
        self.at = row[self.i]
        scout = (state.used[row] - width)[self.i] + self.j
        self.name = journal.names[scout]
        self.source, self.vote = state.source[self.at, scout], state.vote[self.at, scout]
        self.brief, self.worker = (c[row, self.leg][self.i] for c in (state.brief, state.worker))
        self.role = journal.workers[self.worker]
        self.place = state.seed[self.at], self.leg[self.i], self.j
        self.poisoned = journal.rules.poisoned(journal.rules.legs - self.leg)[self.i] > 0
        self.start = state.clock[self.at] + self._launches(width)
        self.time = state.took[self.at, scout] * journal.second

    def _launches(self, width: Rows) -> F:
        """Seconds from the first launch of the leg."""
        apart = np.zeros((len(width), int(width.max())))
        apart[self.i, self.j] = np.where(self.j > 0, stagger(self.place[0], LAUNCH, *self.place[1:]), 0.0)
        since: F = np.cumsum(apart, axis=1)[
            self.i, self.j
        ]  # an episode at a time: sums must not know their neighbours
        return since

    def _tokens(self, purpose: int, of: Any) -> Any:
        return tokens(self.place[0], purpose, *self.place[1:], of=of)

    def write(self, caught: B, lies: B) -> None:
        state, n = self.state, len(self.i)
        came: Causes = [("spawn", state.orders[self.at, 0]), ("causal", state.orders[self.at, 1])]
        price = self.journal.rules.prices[self.worker]
        last = self.log.add(self.at, "spawn", LEAD, self.start, came, to=self.name, role=self.role, cost=price)
        last, tainted = self._briefed(last)
        for nth in range(1, self.journal.calls + 1):
            final = nth == self.journal.calls
            tool = self.journal.sources[self.source] if final else "search"
            untrusted = caught if final else np.zeros(n, np.bool_)
            last = self._call(np.arange(n), tool, nth, last, untrusted)
            tainted = np.where(untrusted, last, tainted)
        bad = (tainted >= 0) | lies[self.i] | caught
        gave = self.log.add(
            self.at,
            "return",
            self.name,
            self.start + self.time,
            [("causal", last), ("safety_flow", tainted)],
            to=LEAD,
            role=self.role,
            trusted=np.where(bad, 0, -1),
            value=self.vote,
            tokens_in=self._tokens(READ, FIGURES.read),
            tokens_out=self._tokens(WROTE, FIGURES.answer),
        )
        state.returns[self.row], state.bad[self.row] = -1, False
        state.returns[self.at, self.j], state.bad[self.at, self.j] = gave, bad
        self.log.add(self.at, "despawn", LEAD, self.start + self.time, [("causal", gave)], to=self.name)
        np.maximum.at(state.clock, self.at, self.start + self.time)

    def _briefed(self, born: Rows) -> tuple[Rows, Rows]:
        """The lead keeps a note and sends messages; a scout reads the note. Gives each scout's latest event, and
        what it read if that is poisoned."""
        self._poison()
        state, last, tainted = self.state, born.copy(), np.full(len(born), -1)
        writes = self.row[state.brief[self.row, self.leg] > 0]
        wrote = np.full(len(state.seed), -1)
        wrote[writes] = self._write(writes, LEAD, [("tool_dependency", state.last[writes])])
        some = np.flatnonzero(self.brief > 0)
        at = self.at[some]
        sent = self.log.add(
            at,
            "message",
            LEAD,
            self.start[some],
            [("message", state.last[at]), ("causal", born[some])],
            to=self.name[some],
            cost=self.journal.rules.messages[self.brief[some]],
        )
        poisoned = self.poisoned[some]
        note: Causes = [("causal", wrote[at]), ("safety_flow", np.where(poisoned, state.note[at], -1))]
        last[some] = self._call(some, "notes.read", 0, sent, poisoned, note)
        tainted[some] = np.where(poisoned, last[some], -1)
        return last, tainted

    def _poison(self) -> None:
        hit = self.row[self.leg + 1 == self.journal.rules.poison]
        if len(hit):
            self.state.note[hit] = self._write(hit, INTRUDER, [], trusted=0)

    def _write(self, row: Rows, who: str, after: Causes, **marks: Any) -> Rows:
        """A write into the shared note, by episode."""
        t = self.state.clock[row]
        call = self.log.add(row, "tool_call", who, t, after, tool="notes.write", **marks)
        flows: Causes = [("return", call), ("safety_flow", call)] if marks else [("return", call)]
        return self.log.add(row, "tool_result", "notes", t, flows, tool="notes.write", **marks)

    def _call(self, of: Rows, tool: Any, nth: int, after: Rows, untrusted: B, more: Causes | None = None) -> Rows:
        """A tool call of these scouts and its result, evenly spread over their time."""
        step = self.time[of] / (2.0 * self.journal.calls + 3.0)
        t = self.start[of] + (2 * nth + 1) * step
        call = self.log.add(self.at[of], "tool_call", self.name[of], t, [("tool_dependency", after)], tool=tool)
        causes: Causes = [("return", call), *(more or [])]
        server = "notes" if more else tool
        marks = np.where(untrusted, 0, -1)
        return self.log.add(self.at[of], "tool_result", server, t + step, causes, tool=tool, trusted=marks)
