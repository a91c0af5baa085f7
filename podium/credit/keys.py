"""What rows are compared with: keys, and the groups that a tuple of keys makes.

A key is a registered function from a trace and a unit to a whole number for each unit, -1 where it has no such
thing. Units are in one group if they agree in all keys and in their batch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from podium.credit.credit import BadCredit, Credit
from podium.credit.forest import contexts, nodes, roots
from podium.graph import units
from podium.graph.grouping import any_by, changes, count_of, numbered_together, rows_by, take
from podium.registry import alternatives, facts, find, kind_of, names, register
from podium.trace import sweep
from podium.trace.columns import I, Text, Trace
from podium.trace.vocabulary import edge

__all__ = ["By", "groups", "numbered_together"]

By = str | tuple[str, ...]
TEMPORAL = edge("temporal")


def groups(credit: Credit, by: By) -> NDArray[np.int64]:
    """The group of each unit, numbered from 0; -1 for a unit that lacks a key."""
    words = (by,) if isinstance(by, str) else tuple(by)
    for word in words:
        if kind_of(word, "key") is None:
            raise BadCredit(f"no key called {word!r}; {alternatives(word, names('key'))}")
    every = dict.fromkeys(("batch", *words))
    of_runs = [find("key", word)(credit.trace, "team") for word in every if facts("key", word).get("of") == "run"]
    of_units = [
        find("key", word)(credit.trace, credit.unit) for word in every if facts("key", word).get("of") != "run"
    ]
    runs = numbered_together(*of_runs)[credit.rollout]  # numbered run by run: there are fewer of them
    return numbered_together(runs, *of_units) if of_units else runs


@register("key", of="run")
def batch(trace: Trace, unit: str) -> I:
    """The batch it was collected in; runs that name none are of one batch."""
    return np.maximum(trace.batch_n, -1)[units.rollouts(trace, unit)] + 1


@register("key", of="run")
def task(trace: Trace, unit: str) -> I:
    """The runs it is compared with: its group where one is recorded, else its task."""
    code_n = np.where(
        trace.group_n.codes >= 0, trace.group_n.codes + len(trace.task_id_n.words), trace.task_id_n.codes
    )
    return code_n[units.rollouts(trace, unit)]


@register("key", of="run")
def rollout(trace: Trace, unit: str) -> I:
    """The run."""
    return units.rollouts(trace, unit)


@register("key")
def agent(trace: Trace, unit: str) -> I:
    """The name of the agent, the same in all runs."""
    return take(trace.name_a.codes, units.agents(trace, unit))


@register("key")
def role(trace: Trace, unit: str) -> I:
    """The role, the same in all runs: the first that the unit states, else the first that its agent does."""
    return units.roles(trace, unit)


@register("key")
def player(trace: Trace, unit: str) -> I:
    """The side it plays: the label `player` where it is recorded, else the agent."""
    code = _label(trace, unit, "player")
    return np.where(code >= 0, code + len(trace.name_a.words), agent(trace, unit))


@register("key")
def model(trace: Trace, unit: str) -> I:
    """The model that generated it: the first that its own agent's events state."""
    return units.first_stated(trace, unit, trace.model_e.codes)


@register("key")
def anchor(trace: Trace, unit: str) -> I:
    """The state it was in: the label `anchor`, equal where states are the same."""
    return _label(trace, unit, "anchor")


@register("key")
def decision(trace: Trace, unit: str) -> I:
    """The kind of decision it is."""
    return take(trace.decision_e, units.rows(trace, unit)).astype(np.int64)


def _label(trace: Trace, unit: str, name: str) -> I:
    """The label of each unit; of a turn that opens with a call's result, the first of the caller's own events."""
    codes = trace.extra_e.get(name, Text.constant(None, trace.n_events)).codes
    at_row = take(codes, units.rows(trace, unit))
    return np.where(at_row >= 0, at_row, units.first_stated(trace, unit, codes)) if unit == "turn" else at_row


@register("key")
def turn(trace: Trace, unit: str) -> I:
    """How many turns its agent had before this one."""
    who = units.agents(trace, "turn")
    order = rows_by(who)
    first = np.searchsorted(who[order], who[order])
    nth = np.empty(len(who), np.int64)
    nth[order] = np.arange(len(order)) - first
    return take(nth, units.within(trace, unit, "turn"))


@register("key")
def context(trace: Trace, unit: str) -> I:
    """The history it was decided in: the same for all branches that left there, and for the run they left."""
    return contexts(trace, units.rows(trace, unit))


@register("key")
def invocation(trace: Trace, unit: str) -> I:
    """The task that its agent was working on, from being given it by another agent to being given the next."""
    return take(units.invocation(trace), units.rows(trace, unit))


@register("key", of="run")
def tree(trace: Trace, unit: str) -> I:
    """The run at the root of all its branches."""
    return roots(trace)[units.rollouts(trace, unit)]


@register("key")
def upstream(trace: Trace, unit: str) -> I:
    """What other agents told its agent last, the same in all branches; or only the task."""
    who = units.actor(trace)  # the result of its own tool call is no other agent's, whoever recorded it
    crosses = (who[trace.src_x] != who[trace.dst_x]) & (trace.type_x != TEMPORAL)
    own = who[trace.src_x] == who[trace.dst_x]
    hears = any_by(trace.dst_x, crosses, trace.n_events)
    last = sweep.latest(hears, trace.src_x[own], trace.dst_x[own])
    inputs = _sets(trace.dst_x[crosses], nodes(trace, trace.src_x[crosses]), trace.n_events)
    number: I = np.append(inputs, 0)[take(last, units.rows(trace, unit))]
    return number


def _sets(of: I, member: I, n: int) -> I:
    """For each of n sets a number that it shares with the sets of the same members; 0 for the empty one.

    >>> _sets(np.array([0, 0, 1, 2, 2]), np.array([7, 8, 7, 8, 7]), 4).tolist()
    [2, 1, 2, 0]
    """
    order = np.lexsort((member, of))
    new = changes(of[order]) | changes(member[order])
    of, member = of[order[new]], member[order[new]]
    nth = np.arange(len(of)) - np.searchsorted(of, of)
    by_place = np.argsort(nth, kind="stable")
    number = np.zeros(n, np.int64)
    ends = np.flatnonzero(np.diff(nth[by_place])) + 1
    for rank in np.split(by_place, ends):  # the first member of each set, then the second, ...
        number[of[rank]] = numbered_together(number[of[rank]], member[rank]) + count_of(number)
    return number
