"""An agent's own thread through a tree of runs: what it did before, what followed, each node counted once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from podium.credit.credit import BadCredit, Credit, Step
from podium.credit.forest import nodes
from podium.credit.keys import groups, numbered_together
from podium.credit.orders import mean_at, previous, timeline
from podium.graph import units
from podium.graph.grouping import changes, count_of, first_by, take, total_by, unset
from podium.registry import find, register
from podium.trace.columns import F, I, Trace

__all__ = ["backed_up"]


@register("key")
def parent(trace: Trace, unit: str) -> I:
    """The node of what its agent did before it; the task, for the first thing that an agent does."""
    credit = Credit(trace, unit, np.zeros(len(units.rows(trace, unit))))
    line = timeline(credit, "agent")
    before = previous(line)
    task = find("key", "task")(trace, unit)
    node = nodes(trace, take(credit.acts, before)) + count_of(task)
    return np.where(line.at < 0, -1, np.where(before >= 0, node, task))


@register("step")
def own_backup(credit: Credit, gamma: float = 1.0) -> Credit:
    """A node is worth its own reward and the mean of what followed for its agent, over all branches.

        R(node) = r(node) + γ mean R(child),    child: what the same agent did next, in any run that holds the node

    from: MAGRPO (CoMLRL).
    """
    return _returned(credit, "agent", gamma)


@register("step")
def tree_backup(credit: Credit, gamma: float = 1.0) -> Credit:
    """A node is worth its own reward and the mean of what followed in its runs, over all branches.

        R(node) = r(node) + γ mean R(child),    child: what anyone did next, in any run that holds the node

    from: MALT; MAGRPO with agents in turn.
    """
    return _returned(credit, "rollout", gamma)


def _returned(credit: Credit, along: str, gamma: float) -> Credit:
    """Moments form a tree, as runs that share the last unit of one share all before: backed up, read by units."""
    node, line = _nodes(credit), timeline(credit, along)
    units_ = np.flatnonzero(line.at >= 0)
    units_ = units_[np.argsort(credit.rows[units_], kind="stable")]
    last = unset(len(line.last))
    last[line.at[units_]] = node[units_]  # the highest row is written last, so it stays
    moment = numbered_together(last)
    n = count_of(moment)
    above, reward = unset(n), np.full(n, np.nan)
    mean, opens = mean_at(line, credit.value), changes(line.chain)
    scored = (moment >= 0) & ~np.isnan(mean)
    reward[moment[scored]] = mean[scored]
    above[moment[moment >= 0]] = np.where(opens, -1, np.append(-1, moment[:-1])[: len(moment)])[moment >= 0]
    worth = backed_up(reward, above, gamma)
    child = take(np.where(line.last, -1, np.append(moment[1:], -1)[: len(moment)]), line.at)
    after = _mean_of_children(credit.trace, node, child, worth)
    return credit.of(credit.value + gamma * after if gamma else credit.value)


def _mean_of_children(trace: Trace, node: I, child: I, worth: F) -> F:
    """For each unit the mean worth of what follows its node, each different child once; 0 where nothing does."""
    pairs = np.flatnonzero((node >= 0) & (child >= 0))
    if (trace.parent_n.codes >= 0).any():
        same = numbered_together(node[pairs], child[pairs])
        pairs = pairs[np.unique(same, return_index=True)[1]]
    n = count_of(node)
    total, many = total_by(node[pairs], worth[child[pairs]], n), np.bincount(node[pairs], minlength=n)
    mean: F = np.append(total / np.maximum(many, 1), 0.0)[node]
    return mean


def backed_up(reward: F, above: I, gamma: float) -> F:
    """y_i = r_i + γ mean(y_j : above_j = i), all i at once: twice as far down the tree in every round.

    >>> backed_up(np.array([1.0, 2.0, 4.0]), np.array([-1, 0, 0]), 0.5).tolist()
    [2.5, 2.0, 4.0]
    """
    y, up, n = reward.astype(np.float64), above, len(reward)
    ways = np.append(np.bincount(up[up >= 0], minlength=n), 1)
    share = np.where(up >= 0, gamma / ways[up], 0.0)
    while len(below := np.flatnonzero(up >= 0)):
        paid = np.where(share[below] != 0.0, share[below] * y[below], 0.0)
        y = y + np.bincount(up[below], paid, minlength=n)
        share, up = share * np.append(share, 0.0)[up], take(up, up)
    return y


@register("step")
def once(credit: Credit, inner: Step) -> Credit:
    """Another step or expression, in which a node counts once however many runs repeat it; they all get the same.

    from: C3 and MAGRPO, whose groups are of nodes.
    """
    if not callable(inner):
        raise BadCredit(f"once takes a step, such as once(center(by='task')), got {inner!r}")
    node = _nodes(credit)
    first = first_by(node, ~np.isnan(credit.value), count_of(node))
    stands = np.isin(np.arange(len(node)), first)
    result = inner(credit.of(np.where(stands, credit.value, np.nan)))
    if result.unit != credit.unit:
        raise BadCredit(f"once must stay at unit {credit.unit}, not go to {result.unit}")
    return credit.where_known(take(result.value, take(first, node)))


def _nodes(credit: Credit) -> NDArray[np.int64]:
    """The node of each unit, numbered from 0 inside all batches together; -1 for a unit without a row."""
    return numbered_together(groups(credit, "batch"), nodes(credit.trace, credit.acts))
