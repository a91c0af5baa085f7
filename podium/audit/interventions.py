"""When a person steps in: which earlier decision is responsible, and which later events are invalid because of it.

Who is responsible is read off the record by the first of these rules that gives an answer, and the answer names its
rule:

    cause      the latest orchestrator decision that led to the intervention, along edges other than temporal
    addressee  the latest earlier decision of the agent it is addressed to
    above      the latest decision that led to that agent's latest earlier event, along all edges
    order      the latest orchestrator decision that comes before it along all edges

Only `cause` is recorded; the others are what is most likely where nothing says what the person reacted to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium.graph.grouping import changes, rows_by
from podium.trace import sweep
from podium.trace.columns import B, I, Trace
from podium.trace.vocabulary import edge, event

__all__ = ["RULES", "Interventions", "interventions", "invalidated"]

DECISION, HUMAN, TEMPORAL = event("orchestrator_decision"), event("human_intervention"), edge("temporal")
RULES = ("cause", "addressee", "above", "order")


@dataclass(frozen=True)
class Interventions:
    """One entry an intervention: its row, the row of the decision that is responsible, and by which of RULES."""

    row: I
    decision: I  # -1 where no earlier decision is known
    rule: I  # -1 there

    def __len__(self) -> int:
        return len(self.row)


def interventions(trace: Trace) -> Interventions:
    """Every human intervention and who is responsible for what it corrects."""
    rows = np.flatnonzero(trace.type_e == HUMAN)
    decision_e = trace.type_e == DECISION
    caused_x = trace.type_x != TEMPORAL
    cause_e = sweep.latest(decision_e, trace.src_x[caused_x], trace.dst_x[caused_x])
    order_e = sweep.latest(decision_e, trace.src_x, trace.dst_x)
    to = trace.to_e[rows]
    latest_act = _before(rows, to, np.arange(trace.n_events), trace)
    candidates = (
        cause_e[rows],
        _before(rows, to, np.flatnonzero(decision_e), trace),
        np.append(order_e, -1)[latest_act],
        order_e[rows],
    )
    found, rule = np.full(len(rows), -1), np.full(len(rows), -1)
    for number, candidate in enumerate(candidates):
        open_ = (found < 0) & (candidate >= 0)
        found[open_], rule[open_] = candidate[open_], number
    return Interventions(rows, found, rule)


def _before(rows: I, agent: I, among: I, trace: Trace) -> NDArray[np.int64]:
    """For each row and agent the latest of that agent's events, of those that count, before the row; -1 if none."""
    n = np.int64(trace.n_events + 1)
    by_agent = among[rows_by(trace.agent_e[among])]
    key = trace.agent_e[by_agent] * n + by_agent
    at = np.searchsorted(key, agent * n + rows) - 1
    cause = np.append(by_agent, -1)[at]
    there = (at >= 0) & (agent >= 0) & (np.append(trace.agent_e, -1)[cause] == agent)
    return np.where(there, cause, -1)


def invalidated(trace: Trace, found: Interventions, most: int = 8) -> tuple[I, I, B]:
    """The events that no longer count, the intervention that each is invalid by, and which interventions were
    looked at.

        invalid(h) = descendants of the responsible decision, along edges other than temporal, that are neither
                     the intervention h nor its descendants along any edge

    What follows the intervention took it into account. An event can be invalid by several. One sweep answers one
    intervention of every run, so of each run only the first `most` are looked at.
    """
    run = trace.rollout_e[found.row]
    nth = np.arange(len(run)) - np.maximum.accumulate(np.where(changes(run), np.arange(len(run)), 0))
    looked = nth < most
    rows, of = [], []
    caused_x = trace.type_x != TEMPORAL
    caused, every = (trace.src_x[caused_x], trace.dst_x[caused_x]), (trace.src_x, trace.dst_x)
    place_n = np.full(len(trace), -1)
    for turn in range(int(nth[looked].max(initial=-1)) + 1):
        at = np.flatnonzero((nth == turn) & (found.decision >= 0))
        derived_e = _beyond(*caused, found.decision[at], trace.n_events)
        invalid = np.flatnonzero(derived_e & ~_beyond(*every, found.row[at], trace.n_events))
        place_n[run[at]] = at
        by = place_n[trace.rollout_e[invalid]]
        keep = (invalid != found.row[by]) & (invalid != found.decision[by])
        rows.append(invalid[keep])
        of.append(by[keep])
    nothing = np.zeros(0, np.int64)
    return np.concatenate([nothing, *rows]), np.concatenate([nothing, *of]), looked


def _beyond(src_x: I, dst_x: I, rows: I, n: int) -> B:
    """These rows and what they led to. Edges into what came before them lead nowhere, so they are left out."""
    seed_e = np.zeros(n, np.bool_)
    seed_e[rows] = True
    later = np.searchsorted(dst_x, rows.min(initial=n).astype(dst_x.dtype))
    return sweep.reach(seed_e, src_x[later:], dst_x[later:])
