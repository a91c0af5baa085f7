"""R1, the shared outcome: what the team earned together, and what it spent.

Prices are weights: `outcome - 1e-6 * spent("tokens") - 0.01 * spent("tool_calls")`.
"""

from __future__ import annotations

from math import comb

import numpy as np

from podium.graph.grouping import any_by, count_by, count_of, total_by
from podium.graph.spans import wall_clock
from podium.graph.units import rows
from podium.registry import register
from podium.rewards.ledger import BadReward
from podium.trace.columns import B, F, I, Trace
from podium.trace.vocabulary import event

__all__ = ["COSTS", "channel_of_rollouts", "pass_at", "spent", "spent_by_events", "total_over"]

CALL, MESSAGE = event("tool_call"), event("message")
COSTS = ("tokens", "tokens_in", "tokens_out", "cost", "wall_clock_s", "tool_calls", "messages")


@register("score", unit="team", families=("R1", "E1"), better="higher", needs="the reward channel on the trace")
def outcome(trace: Trace, channel: str = "team") -> F:
    """What the run was worth, as its trace states it.

        r_n = reward_n[channel];   of the team, where the rest of the task was estimated: earned_n + value_n

    pays: the team.   needs: the channel among the trace's rewards, else NaN.   from: MAGRPO, Dr. MAS, Agent
    Lightning.
    """
    stated = channel_of_rollouts(trace, channel)
    if channel != "team":
        return stated
    return np.where(np.isnan(trace.value_n), stated, trace.earned_n + trace.value_n)


@register("score", unit="team", families=("R1", "E1"), better="higher", needs="the reward channel on the trace")
def solved(trace: Trace, channel: str = "team", least: float = 1.0) -> F:
    """Whether the run was worth at least so much.

        r_n = 1[reward_n[channel] ≥ least]

    pays: the team.   needs: that channel among the trace's rewards, else NaN.   from: the survey's E1.
    """
    r_n = channel_of_rollouts(trace, channel)
    return np.where(np.isnan(r_n), np.nan, r_n >= least)


@register(
    "score", unit="team", families=("R1", "E4"), better="lower", needs="the cost on the trace, or on its events"
)
def spent(trace: Trace, what: str = "tokens") -> F:
    """How much the run spent of one thing, as its trace states it, else as its events add up.

        c_n = cost_n[what],  else Σ_e (tokens in + out),  Σ_e cost,  max end - min t,  number of calls or messages

    pays: the team.   needs: the cost on the trace, or the figures on its events, else NaN.   from: the survey.
    """
    counted = _counted(trace, what)
    stated = trace.cost_n.get(what)
    return counted if stated is None else np.where(np.isnan(stated), counted, stated)


def _counted(trace: Trace, what: str) -> F:
    match what:
        case "tokens" | "tokens_in" | "tokens_out" | "cost":
            return total_over(trace.rollout_e, spent_by_events(trace, what), len(trace))
        case "tool_calls" | "messages":
            kind = CALL if what == "tool_calls" else MESSAGE
            count_n = count_by(trace.rollout_e, trace.type_e == kind, len(trace))
            return np.where(rows(trace, "team") >= 0, count_n, np.nan)
        case "wall_clock_s":
            ends_n = any_by(trace.rollout_e, ~np.isnan(trace.end_e), len(trace))
            return np.where(ends_n, wall_clock(trace), np.nan)
    if what in trace.cost_n:
        return np.full(len(trace), np.nan)
    raise BadReward(f"no cost called {what!r}; there are {', '.join(dict.fromkeys([*COSTS, *trace.cost_n]))}")


def spent_by_events(trace: Trace, what: str) -> tuple[F, B]:
    """What each event spent, and whether it says: one kind of tokens alone does not say how many in all."""
    columns = {
        "tokens": (trace.tokens_in_e, trace.tokens_out_e),
        "tokens_in": (trace.tokens_in_e,),
        "tokens_out": (trace.tokens_out_e,),
        "cost": (trace.cost_e,),
    }[what]
    total_e = sum(columns, np.zeros(trace.n_events))
    return total_e, ~np.all([np.isnan(c) for c in columns], axis=0)


def total_over(group: I, spent_e: tuple[F, B], n: int) -> F:
    """The sum over each group of what its events spent; NaN where none says, or one says only part."""
    total_e, says_e = spent_e
    group = np.where(says_e, group, -1)
    return np.where(any_by(group, says_e, n), total_by(group, total_e, n), np.nan)


def channel_of_rollouts(trace: Trace, channel: str) -> F:
    return trace.reward_n.get(channel, np.full(len(trace), np.nan))


def pass_at(solved_n: F, group_n: I, k: int) -> F:
    """For each group of runs, the chance that one of k of them, drawn without replacement, solves the task.

        p_g = 1 - C(n - c, k) / C(n, k),     n runs of which c are solved

    NaN for a group of fewer than k scored runs.   from: Chen et al. 2021.

    >>> pass_at(np.array([1.0, 0.0, 0.0, np.nan]), np.array([0, 0, 0, 0]), 2).tolist()
    [0.666...]
    """
    known = ~np.isnan(solved_n)
    groups = count_of(group_n)
    runs_g, right_g = (count_by(group_n, which, groups) for which in (known, solved_n > 0))
    kinds, which = np.unique(np.stack([runs_g, right_g]), axis=1, return_inverse=True)
    chance = [1 - comb(n - c, k) / comb(n, k) if n >= k else np.nan for n, c in kinds.T.tolist()]
    return np.array(chance, np.float64)[which.reshape(-1)]
