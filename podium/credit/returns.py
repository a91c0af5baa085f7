"""What a unit led to: steps that bring later reward back."""

from __future__ import annotations

from typing import Literal

import numpy as np

from podium.credit.credit import BadCredit, Credit
from podium.credit.forest import nodes
from podium.credit.keys import groups, numbered_together
from podium.credit.orders import Timeline, backward, mean_at, sum_at, timeline
from podium.graph.grouping import count_of, mean_by, take
from podium.registry import register
from podium.trace.columns import F, Trace

__all__ = ["advantages", "column", "togo"]


def column(credit: Credit, name: str) -> F:
    """A column of the trace by this name: a reward channel of runs, or of the rows that stand for units."""
    trace = credit.trace
    channels = trace.reward_n if credit.unit == "team" else trace.reward_e
    if name not in channels:
        raise BadCredit(
            f"needs the column {name!r} at unit {credit.unit}; the trace has {', '.join(channels) or 'none there'}"
        )
    return channels[name] if credit.unit == "team" else take(channels[name], credit.rows)


@register("step")
def togo(credit: Credit, along: str = "rollout", gamma: float = 1.0) -> Credit:
    """Reward to go: a unit's own and what came after it, discounted by how many moments later.

        G_u = v_u + Σ_{m later} γ^(m - m_u) Σ v : at m

    Along "edges" what an event led to pays its causes, each an equal share: G_j pays γ G_j / causes(j) to each.
    """
    if along == "edges":
        return credit.of(_along_edges(credit.trace, credit, gamma))
    line = timeline(credit, along)
    paid = sum_at(line, credit.value)
    after = backward(paid, np.where(line.last, 0.0, gamma)) - paid
    return credit.of(credit.value + take(after, line.at))


def _along_edges(trace: Trace, credit: Credit, gamma: float) -> F:
    rows = credit.rows
    if credit.unit in ("team", "token") or (rows < 0).any():
        raise BadCredit(f"edges join events; there is no way along them at unit {credit.unit}")
    worth_e = np.zeros(trace.n_events)
    worth_e[rows] = credit.value
    share_x = gamma / np.bincount(trace.dst_x, minlength=trace.n_events)[trace.dst_x]
    back, src, dst, share = worth_e.data, trace.src_x.tolist(), trace.dst_x.tolist(), share_x.tolist()
    for x in range(len(src) - 1, -1, -1):  # an effect is final before it pays its causes
        back[src[x]] += share[x] * back[dst[x]]
    return worth_e[rows]


@register("step")
def decay(credit: Credit, along: str = "rollout", gamma: float = 1.0) -> Credit:
    """Discounts by the moments that are left: v γ^(last - m).

    from: SPIRAL.
    """
    line = timeline(credit, along)
    left = backward(np.where(line.last, 0.0, 1.0), np.where(line.last, 0.0, 1.0))
    return credit.of(credit.value * gamma ** take(left, line.at))


@register("step")
def gae(credit: Credit, value: str, along: str = "rollout", gamma: float = 1.0, lam: float = 1.0) -> Credit:
    """Generalised advantage over any order, against a value that the trace carries.

        δ_u = r_u + γ V' - V_u,    A_u = δ_u + γ λ A',    ' the mean over the next moment, 0 after the last

    needs: the column.   from: Schulman et al. 2016; MARFT, through the chain of agents.
    """
    return credit.of(advantages(timeline(credit, along), credit.value, column(credit, value), gamma, lam))


def advantages(line: Timeline, reward: F, value: F, gamma: float, lam: float) -> F:
    """The recursion of `gae`, for units in chains of moments."""
    then = mean_at(line, value)
    follows = np.where(line.last, 0.0, np.append(then[1:], 0.0)[: len(then)])
    delta = reward + gamma * take(follows, line.at) - value
    mean = mean_at(line, delta)
    after = backward(mean, np.where(line.last, 0.0, gamma * lam)) - mean
    advantage: F = delta + take(after, line.at)
    return advantage


@register("step")
def td(credit: Credit, value: str, along: str = "rollout", gamma: float = 1.0) -> Credit:
    """One step ahead of a value: δ_u = r_u + γ V' - V_u."""
    return gae(credit, value, along, gamma, 0.0)


@register("step")
def subtree_mean(credit: Credit) -> Credit:
    """A node is worth the mean of all runs that pass through it.

        Q(node) = mean v : runs that hold the node

    needs: runs that branched from each other; without, it is the value itself.   from: C3, MALT.
    """
    node = numbered_together(groups(credit, "batch"), nodes(credit.trace, credit.acts))
    return credit.where_known(take(mean_by(node, credit.value, count_of(node)), node))


@register("step")
def peers_ahead(credit: Credit, gamma: float = 0.3, who: Literal["all", "own", "last"] = "all") -> Credit:
    """What a message is worth now and in what everyone says after it, as an average over rounds.

        r_{i,t} = ( v_{i,t} + Σ_{t'>t} γ^(t'-t) mean_j v_{j,t'} ) / Σ_{t'>=t} γ^(t'-t)

    "own" takes the agent's own later values in place of the mean, "last" the mean of the last round alone.   needs:
    rounds (`stage`).   from: MAPoRL.
    """
    if who == "own":
        one = credit.of(np.ones(len(credit.value)))
        return credit.of(togo(credit, "agent", gamma).value / togo(one, "agent", gamma).value)
    if who not in ("all", "last"):
        raise BadCredit(f"who must be all, own or last, got {who!r}")
    line = timeline(credit, "round")
    mean = mean_at(line, credit.value)
    goes_on = np.where(line.last, 0.0, 1.0)
    if who == "last":
        final = backward(np.where(line.last, mean, 0.0), goes_on)
        return credit.where_known(take(final, line.at))
    later = backward(mean, gamma * goes_on) - mean
    weight = take(backward(np.ones(len(mean)), gamma * goes_on), line.at)
    return credit.of((credit.value + take(later, line.at)) / weight)
