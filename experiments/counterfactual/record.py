"""From a recorded forest to what the estimator is asked, and from its answer to a column that credit steps read."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from experiments.counterfactual.fitted import Fit
from experiments.counterfactual.work import Asked, Work
from podium.credit import BadCredit, Credit
from podium.credit.branches import alternatives
from podium.credit.forest import contexts
from podium.credit.keys import numbered_together
from podium.credit.options import option_probability
from podium.rewards import score
from podium.trace.columns import F, I, Text, Trace
from podium.trace.vocabulary import EDGE_TYPES, EVENT_TYPES

__all__ = ["asked_of", "stamped"]

V = NDArray[np.int64]
STEP, VALUE = "row", "value"  # labels: which step of the work an event is, and what came of it


def stamped(trace: Trace, fit: Fit, name: str = "counterfactual", reward: str = "outcome") -> Trace:
    """The trace with what the fit says of the decisions of its runs; branches tell, and are paid nothing.

    The column `name` of events is their credit, for `plugged`; the label `{name}_q` the worth of each option, for
    `own_action`; the label `{name}_fit` the id of the fit. Runs of one world with the same parameters are one team;
    teams tell nothing of each other.
    """
    team_n = numbered_together(trace.batch_n + 1, trace.env_n.codes + 1, trace.params_n.codes + 1)
    credit_e = np.full(trace.n_events, np.nan)
    q: list[str | None] = [None] * trace.n_events
    for team in np.unique(team_n):
        inside = np.flatnonzero(np.isin(trace.rollout_e, np.flatnonzero(team_n == team)))
        asked, rows = asked_of(trace[np.flatnonzero(team_n == team)], reward)
        credit_e[inside[rows]] = fit.credit(asked)
        for row, worth in zip(inside[rows].tolist(), fit.worth(asked), strict=True):
            q[row] = msgspec.json.encode(worth[~np.isnan(worth)].tolist()).decode()
    paid = Text(np.where(np.isnan(credit_e), -1, 0), (fit.id,))
    return replace(
        trace,
        reward_e={**trace.reward_e, name: credit_e},
        extra_e={**trace.extra_e, f"{name}_q": Text.of(q), f"{name}_fit": paid},
    )


def asked_of(trace: Trace, reward: str = "outcome") -> tuple[Asked, I]:
    """The decisions of the runs of one team that branched from none, and their rows; what was tried at them are
    branches and the runs themselves.

    Tries that share a seed share their luck; without seeds the first tries of all options are taken together, and
    so on.
    """
    for label in (STEP, VALUE):
        if label not in trace.extra_e:
            raise BadCredit(
                f"the learned counterfactual needs the label {label!r}; there are "
                f"{', '.join(trace.extra_e) or 'none'}"
            )
    work, values = _work(trace)
    credit = Credit(trace, "orchestrator", score(trace, reward, "orchestrator"))
    rows, run = credit.rows, credit.rollout
    step = _numbers(trace.extra_e[STEP])[rows]
    pi_o, (first, many) = option_probability(trace), trace.options_of(rows)
    known = (many > 0) & ~np.isnan(np.append(pi_o, np.nan)[np.where(many > 0, first, -1)])
    own = np.flatnonzero((trace.parent_n.codes[run] < 0) & (step >= 0) & known)
    offered = [trace.options(row) for row in rows[own].tolist()]
    pi = np.zeros((len(own), max(map(len, offered), default=0)))
    for line, at, n in zip(pi, first[own].tolist(), many[own].tolist(), strict=True):
        line[:n] = pi_o[at : at + n]
    taken = [o.index(str(c)) for o, c in zip(offered, trace.chosen_e.take(rows[own]).strings(), strict=True)]
    earned = _earned(credit, own, offered)
    return Asked(work, step[own], np.array(taken, np.int64), pi, values[run[own]], earned), rows[own]


def _earned(credit: Credit, own: V, offered: list[list[str]]) -> F:
    """(decisions, options, tries)"""
    trace, alts = credit.trace, alternatives(credit, "option")
    context = contexts(trace, credit.rows)
    place = {int(c): i for i, c in enumerate(context[own])}
    counted = np.flatnonzero(alts.counts_u & (alts.of_u >= 0) & np.isin(context, context[own]))
    at = np.array([place[int(c)] for c in context[counted]], np.int64)
    words = trace.chosen_e.take(credit.rows[counted]).strings()
    option = np.array([offered[d].index(str(w)) for d, w in zip(at.tolist(), words, strict=True)], np.int64)
    seed = trace.seed_n.codes[credit.rollout[counted]].astype(np.int64)
    luck = np.where(seed >= 0, seed, len(trace.seed_n.words) + _turn(at * (1 << 20) + option))
    first = np.unique(at * (1 << 40) + luck, return_index=True)[1]
    number = np.full(len(counted), -1)
    number[np.sort(first)] = _turn(at[np.sort(first)])
    turn = number[first][np.unique(at * (1 << 40) + luck, return_inverse=True)[1].ravel()]
    earned = np.full((len(own), max(map(len, offered), default=0), int(turn.max(initial=-1)) + 1), np.nan)
    earned[at, option, turn] = credit.value[counted]
    return earned


def _turn(key: V) -> V:
    """How many-th of its key each entry is, from 0."""
    order = np.argsort(key, kind="stable")
    _, first, many = np.unique(key[order], return_index=True, return_counts=True)
    turn = np.empty(len(key), np.int64)
    turn[order] = np.arange(len(key)) - np.repeat(first, many)
    return turn


def _numbers(label: Text) -> V:
    """The whole number that each row is labelled with, -1 if none."""
    labels: V = np.array([*(int(w) for w in label.words), -1], np.int64)[label.codes]
    return labels


def _work(trace: Trace) -> tuple[Work, V]:
    """The steps of the work as all runs show them, and the value of each step in each run, 0 where it was not
    done."""
    step_e, value_e = _numbers(trace.extra_e[STEP]), _numbers(trace.extra_e[VALUE])
    n, told = int(step_e.max(initial=-1)) + 1, np.flatnonzero(step_e >= 0)
    agent_e = np.append(trace.name_a.codes, -1)[trace.agent_e]
    type_s, kind_s, agent_s = (np.full(n, -1) for _ in range(3))
    for column, of in ((type_s, trace.type_e), (kind_s, trace.decision_e), (agent_s, agent_e)):
        column[step_e[told]] = of[told]
    numbers: dict[int, int] = {}
    agent_s = np.array([numbers.setdefault(a, len(numbers)) for a in agent_s.tolist()], np.int64)
    src, dst = step_e[trace.src_x], step_e[trace.dst_x]
    causal = (src >= 0) & (src < dst) & (trace.type_x != EDGE_TYPES.index("temporal"))
    causes: list[list[int]] = [[] for _ in range(n)]
    for a, b in np.unique(np.column_stack([src, dst])[causal], axis=0).tolist():
        causes[b].append(a)
    ends = tuple(np.flatnonzero(type_s == EVENT_TYPES.index("aggregate")).tolist())
    values = np.zeros((len(trace), n), np.int64)
    values[trace.rollout_e[told], step_e[told]] = np.maximum(value_e[told], 0)
    return Work(type_s, kind_s, agent_s, tuple(map(tuple, causes)), ends), values
