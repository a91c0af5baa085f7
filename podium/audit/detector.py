"""What a detector is: a formula over columns with a stated threshold, and the rows that are its evidence.

A detector is registered with facts, ours by a row of `detectors.toml`: `group` (hacking, failure, waste, safety,
record), `threshold`, `finds` (one sentence), `saw` (what it saw of one suspect, with its {figure}), `needs`, `todo`
(what a lead engineer does about it) and `severity` (3 stop and look, 2 fix, 1 worth knowing). It receives the
trace, a `Second` source and its threshold, and returns `Suspects`. Where the record lacks what it needs it cannot
tell, and says so: never "clean".

Further facts say what a suspect is and how sure it is: `level` is `finding`, unless told, if the evidence shows a
fault, and `observation` if it shows something worth knowing. `confidence` is `likely`, unless told: a statistic
over its threshold. It is `certain` where the claim follows from the record and from what was declared, but `likely`
in a run with inferred edges where the claim rests on edges (`by="edges"`). A suspect that is `open` is an
observation and only `possible`; `settles` says what would settle it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from podium.errors import WrongUse
from podium.graph.grouping import rows_by
from podium.registry import alternatives, facts, find, names, register
from podium.trace.columns import B, F, I, Trace
from podium.trace.vocabulary import edge

__all__ = ["Answer", "BadAudit", "Second", "Suspects", "audit", "detector", "detectors"]

GROUPS = ("hacking", "failure", "waste", "safety", "record")
LEVELS = ("finding", "observation")
CONFIDENCE = ("possible", "likely", "certain")
LIKELY, TEMPORAL = CONFIDENCE.index("likely"), edge("temporal")


Detects = TypeVar("Detects", bound=Callable[..., Any])
ROWS = tomllib.loads((Path(__file__).parent / "detectors.toml").read_text(encoding="utf-8"))


def detector(formula: Detects) -> Detects:
    """Registers a detector of ours, with the facts of its row."""
    return register("detector", **ROWS[formula.__name__])(formula)


class BadAudit(WrongUse, ValueError):
    """An audit that cannot be made as it was asked for: what came, and what there is."""


@dataclass(frozen=True)
class Second:
    """What the trace under audit cannot say of itself. All of it is optional; a detector that needs it says so."""

    trained: Trace | None = None  # runs the team was trained on
    truth: str | None = None  # the reward channel of a verifier that the team cannot reach ...
    judge: str | None = None  # ... and that of the judge which paid it
    allowed: Mapping[str, frozenset[str]] = field(
        default_factory=dict
    )  # agent or role name, or "*" -> tools, or "*"
    privileged: frozenset[str] = frozenset()  # tools whose calls act on the world outside
    writers: Mapping[str, str] = field(default_factory=dict)  # tool or pattern -> who writes what it returns


@dataclass(frozen=True)
class Suspects:
    """What a detector found, as columns: one entry a suspect, and the rows that are evidence for it."""

    rollout: I
    figure: F  # what was measured for it; at least the threshold
    agent: I  # -1 where it is about the whole run
    row: I  # evidence, ...
    of: I  # ... and the suspect that each row is evidence for
    tells_n: B  # rollouts in which it could tell
    open: B | None = None  # suspects that the evidence leaves open; None: none of them

    @staticmethod
    def of_rollouts(figure_n: F, threshold: float, evidence_e: B, rollout_e: I) -> Suspects:
        """Rollouts whose figure reaches the threshold. NaN: cannot tell. Evidence: the marked rows of those
        rollouts.
        """
        suspect = np.flatnonzero(figure_n >= threshold)
        place_n = np.full(len(figure_n), -1)
        place_n[suspect] = np.arange(len(suspect))
        row = np.flatnonzero(evidence_e & (place_n[rollout_e] >= 0))
        nobody = np.full(len(suspect), -1)
        return Suspects(suspect, figure_n[suspect], nobody, row, place_n[rollout_e[row]], ~np.isnan(figure_n))

    @staticmethod
    def of_rows(figure_e: F, threshold: float, trace: Trace, tells_n: B) -> Suspects:
        """Events whose figure reaches the threshold, each its own suspect and its own evidence."""
        suspect = np.flatnonzero(figure_e >= threshold)
        each = np.arange(len(suspect))
        return Suspects(trace.rollout_e[suspect], figure_e[suspect], trace.agent_e[suspect], suspect, each, tells_n)

    @staticmethod
    def of_counts(row: I, about: I, threshold: float, trace: Trace, tells_n: B) -> Suspects:
        """Agents that enough rows are about: the figure is how many. Evidence: those rows, whoever's they are."""
        row, about = row[about >= 0], about[about >= 0]
        count_a = np.bincount(about, minlength=trace.n_agents)
        suspect = np.flatnonzero(count_a >= max(threshold, 1))
        place_a = np.full(trace.n_agents, -1)
        place_a[suspect] = np.arange(len(suspect))
        keep = place_a[about] >= 0
        figure = count_a[suspect].astype(np.float64)
        return Suspects(trace.rollout_a[suspect], figure, suspect, row[keep], place_a[about[keep]], tells_n)

    def __len__(self) -> int:
        return len(self.figure)

    def worst(self) -> I:
        """The suspects, those with the highest figure first."""
        return np.argsort(-self.figure, kind="stable")

    def evidence(self) -> list[I]:
        """For each suspect its rows."""
        order = rows_by(self.of)
        return (
            np.split(self.row[order], np.searchsorted(self.of[order], np.arange(1, len(self)))) if len(self) else []
        )


@dataclass(frozen=True)
class Answer:
    """One detector's answer on a trace."""

    name: str
    facts: Mapping[str, Any]
    suspects: Suspects

    @property
    def finding(self) -> B:
        """The suspects whose evidence shows a fault; the others are observations."""
        shown = np.full(len(self.suspects), self.facts.get("level", "finding") == "finding")
        return shown if self.suspects.open is None else shown & ~self.suspects.open

    def confidence(self, trace: Trace) -> list[str]:
        """How sure each suspect is: certain, likely or possible."""
        guessed_x = (trace.inferred_x == 1) & (trace.type_x != TEMPORAL)
        guessed_n = np.bincount(trace.rollout_e[trace.dst_x[guessed_x]], minlength=len(trace)) > 0
        stated = CONFIDENCE.index(self.facts.get("confidence", "likely"))
        most = np.full(len(self.suspects), stated)
        if self.facts.get("by") == "edges":
            most = np.where(guessed_n[self.suspects.rollout], np.minimum(most, LIKELY), most)
        if self.suspects.open is not None:
            most = np.where(self.suspects.open, 0, most)
        return [CONFIDENCE[i] for i in most.tolist()]

    def rows(self, suspect: int) -> I:
        """The evidence for one suspect."""
        rows: I = self.suspects.row[self.suspects.of == suspect]
        return rows


def detectors() -> list[str]:
    """The names of all detectors, group by group, the worst of a group first."""

    def place(name: str) -> tuple[int, int, str]:
        entry = facts("detector", name)
        group = GROUPS.index(entry["group"]) if entry["group"] in GROUPS else len(GROUPS)  # an outsider's own
        return group, -entry["severity"], name

    return sorted(names("detector"), key=place)


def audit(trace: Trace, second: Second = Second(), only: Sequence[str] | None = None) -> list[Answer]:
    """The answers of all detectors, or of those named, worst first: findings before observations, then by severity,
    then by the runs concerned.
    """
    known = detectors()
    if unknown := [name for name in only or () if name not in known]:
        raise BadAudit(
            f"no detector called {', '.join(map(repr, unknown))}; {alternatives(unknown[0], known, 'detector')}"
        )
    answers = []
    for name in dict.fromkeys(only or known):
        entry = facts("detector", name)
        answers.append(Answer(name, entry, find("detector", name)(trace, second, entry["threshold"])))

    def badness(answer: Answer) -> tuple[bool, int, int]:
        runs = len(np.unique(answer.suspects.rollout))
        return not answer.finding.any(), -answer.facts["severity"] * (runs > 0), -runs

    return sorted(answers, key=badness)
