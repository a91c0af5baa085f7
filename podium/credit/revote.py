"""What a voter did to the consensus, exactly, by counting the votes again without it."""

from __future__ import annotations

from typing import Literal

import numpy as np

from podium.credit.credit import BadCredit, Credit
from podium.graph import units
from podium.graph.grouping import any_by, first_by, numbered_together
from podium.registry import register
from podium.rewards.votes import difference, votes

__all__: list[str] = []


@register("step")
def revote(credit: Credit, channel: str = "correct", by: Literal["majority", "weighted"] = "majority") -> Credit:
    """Difference reward of a voter, without another run: the consensus, less that without its votes.

        D_u = Σ_aggregates ( C - C_{-u} ),    C = how right the answer with most votes is

    An answer is as right as its votes' sources are (`channel`); ties count by their mean, no votes as 0.
    pays: the credit's own unit (agents, messages, turns, roles); 0 for who did not vote.   needs: a run with votes,
    their sources and their correctness, else NaN.   from: Learning to Deliberate (MPDF); Wolpert & Tumer 2002.
    """
    trace = credit.trace
    if credit.unit in ("team", "token"):
        raise BadCredit(f"voters are agents, roles, messages or turns, not {credit.unit}; move credit with `to`")
    if by not in ("majority", "weighted"):
        raise BadCredit(f"votes are counted by majority or weighted, got {by!r}")
    if channel not in trace.reward_e:
        raise BadCredit(f"needs how right each vote's source is, the channel {channel!r} on events")
    cast = votes(trace, channel, by == "weighted")
    voter_v = units.place(trace, credit.unit)[cast.source]
    pair = numbered_together(cast.aggregate, voter_v)
    gain = difference(cast, pair)
    voter = voter_v[first_by(pair, pair >= 0, len(gain))]
    paid = np.bincount(voter, gain, minlength=len(credit.value)).astype(np.float64)
    tells_n = any_by(trace.rollout_e[cast.aggregate], ~np.isnan(cast.right[cast.answer]), len(trace))
    return credit.of(np.where(tells_n[credit.rollout] & ~np.isnan(credit.value), paid, np.nan))
