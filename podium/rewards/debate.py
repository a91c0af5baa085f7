"""R6, debate and verifiers: zero-sum pairs, pay for settling a question and not for talking, panels.

Correctness of answers and verdicts on others are reward channels on events (`correct`, `verdict`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from podium.graph import units
from podium.graph.grouping import any_by, changes, count_by, mean_by, take, total_by
from podium.registry import register
from podium.rewards.individual import channel_of_events, individual
from podium.rewards.ledger import BadReward
from podium.rewards.process import answers
from podium.rewards.votes import difference, votes
from podium.trace.columns import B, F, I, Trace
from podium.trace.vocabulary import edge, event

__all__ = ["joined"]

R6: dict[str, Any] = {"families": ("R6",), "better": "higher"}

MESSAGE, RESULT, TEMPORAL = event("message"), event("tool_result"), edge("temporal")
GRAIN = 2.0**30  # pay in whole parts of this adds up without rounding


@register(
    "score", unit="agent", families=("R6", "R2"), better="higher", needs="the reward channel on two agents' events"
)
def zero_sum(trace: Trace, channel: str = "agent") -> F:
    """Two rivals: one's gain is the other's loss.

        r_a = x_a - x_b,   r_b = -r_a,     x = Σ_{e of the agent} reward_e[channel]

    pays: agents; 0 to who is no party.   needs: exactly two agents that state the channel, else NaN.   from:
    SPIRAL, MAGIC.
    """
    x_a = individual(trace, channel)
    party = np.flatnonzero(~np.isnan(x_a))
    parties_n = count_by(trace.rollout_a, ~np.isnan(x_a), len(trace))
    party = party[parties_n[trace.rollout_a[party]] == 2].reshape(-1, 2)
    r_a = np.where(parties_n[trace.rollout_a] == 2, 0.0, np.nan)
    gain = x_a[party[:, 0]] - x_a[party[:, 1]]
    r_a[party[:, 0]], r_a[party[:, 1]] = gain, -gain
    return r_a


@register("score", **R6, unit="message", needs="verdicts on critiques, and edges from solutions to them")
def critique(trace: Trace, channel: str = "verdict") -> F:
    """A solution and each critique of it split one verdict: what the one gains the other loses.

        r_s = Σ_j (v_j - 1/2),   r_j = Σ_s (1/2 - v_j),     v_j = reward_e[channel]: how well s stands in critique j

    A critique is a message with a verdict, of the messages of others that an edge joins to it. Verdicts count to
    the nearest 2^-30, so that a run sums to 0 exactly.
    pays: messages.   needs: a run that states verdicts, else NaN.   from: CoMAS, up to a constant.
    """
    v_e = channel_of_events(trace, channel)
    says_e = (trace.type_e == MESSAGE) & ~np.isnan(v_e)
    solution, critic = joined(trace, (trace.type_e == MESSAGE)[trace.src_x] & says_e[trace.dst_x])
    gain = np.round((v_e[critic] - 0.5) * GRAIN) / GRAIN
    r_e = total_by(solution, gain, trace.n_events) - total_by(critic, gain, trace.n_events)
    return _in_runs_with(trace, says_e, r_e, "message")


def joined(trace: Trace, keep_x: B) -> tuple[I, I]:
    """The pairs of events of two agents that these edges join, each pair once, temporal edges left out."""
    keep_x = keep_x & (trace.type_x != TEMPORAL) & (trace.agent_e[trace.src_x] != trace.agent_e[trace.dst_x])
    key = np.unique(trace.dst_x[keep_x].astype(np.int64) * trace.n_events + trace.src_x[keep_x])
    return key % trace.n_events, key // trace.n_events


def _in_runs_with(trace: Trace, says_e: B, r_e: F, unit: str) -> F:
    """Pay at the rows that stand for units; NaN in runs where nothing says."""
    rows, tells_n = units.rows(trace, unit), any_by(trace.rollout_e, says_e, len(trace))
    return np.where(tells_n[trace.rollout_e[rows]], r_e[rows], np.nan)


@register(
    "score",
    **R6,
    unit="message",
    needs="the correctness of stated answers, a reward channel on events, and edges from messages to those who "
    "heard them",
)
def resolution(trace: Trace, channel: str = "correct") -> F:
    """Pays whoever moved others to the right answer, and fines whoever moved them away; words pay nothing.

        r_m = Σ_k (c_k - c_{k-1}) / (|S_k| n_k(m))

    over the answers k of other agents that m was heard before: S_k are the speakers heard since answer k - 1,
    n_k(m) the messages of m's sender among them. Moves that nobody was heard before are the mover's own
    (`correctness_delta`).
    pays: messages.   needs: a run that states correctness, else NaN; NaN where an answer was not checked.   from:
    the survey's remedy for communication padding; MAPoRL's influence, with the signs as its text has them.
    """
    rows, right = answers(trace, channel)
    who = trace.agent_e[rows]
    delta = np.where(changes(who), 0.0, right - np.append(np.nan, right)[:-1])
    hears_e = (trace.agent_e >= 0) & (trace.type_e != RESULT)
    message, heard = joined(trace, (trace.type_e == MESSAGE)[trace.src_x] & hears_e[trace.dst_x])
    span, agents = trace.n_events, trace.n_agents + 1
    k = np.searchsorted(who.astype(np.int64) * span + rows, trace.agent_e[heard].astype(np.int64) * span + heard)
    answered = take(who, k) == trace.agent_e[heard]
    pair = np.unique(k[answered] * span + message[answered])  # a message counts once in each answer
    k, message = pair // span, pair % span
    speaker, by = np.unique(k * agents + trace.agent_e[message] + 1, return_inverse=True)
    speakers_k, n_km = np.bincount(speaker // agents), np.bincount(by)[by]
    r_e = total_by(message, delta[k] / (speakers_k[k] * n_km), trace.n_events)
    says_e = ~np.isnan(channel_of_events(trace, channel))
    return _in_runs_with(trace, says_e, r_e, "message")


@register(
    "score",
    unit="turn",
    families=("R6", "R3"),
    better="higher",
    needs="verdicts, the correctness of what they are about, and edges from it to them",
)
def verdict_agreement(trace: Trace, verdict: str = "verdict", channel: str = "correct") -> F:
    """A verifier is paid for being right about the answer before it, not for what comes of it.

        r_t = mean( 1[v ≥ 1/2] = 1[c ≥ 1/2] : verdicts in t, answers of others that an edge joins to them )

    pays: turns.   needs: a verdict in the turn and the correctness of its subject, else NaN.   from: MarsRL, MARTI.
    """
    v_e, c_e = channel_of_events(trace, verdict), channel_of_events(trace, channel)
    about, says = joined(trace, ~np.isnan(c_e)[trace.src_x] & ~np.isnan(v_e)[trace.dst_x])
    turn, n = units.place(trace, "turn")[says], len(units.rows(trace, "turn"))
    agrees = ((v_e[says] >= 0.5) == (c_e[about] >= 0.5)).astype(np.float64)
    return mean_by(turn, agrees, n)


@register("score", **R6, unit="team", needs="votes that are numbers, or true/false, yes/no, pass/fail")
def panel(trace: Trace, by: str = "majority") -> F:
    """The verdict of a panel: 1 or 0, nothing in between.

        r_n = 1[Σ_v w_v p_v > ½ Σ_v w_v],   p_v = 1[the vote is at least ½, or true, yes, pass],   w 1 or its weight

    A tie does not pass, "unanimous" needs every vote, and all panels of a run must pass.
    pays: the team.   needs: a verdict, and with by="weighted" a weight on each, else NaN.   from: Debate-as-Reward.
    """
    if by not in ("majority", "weighted", "unanimous"):
        raise BadReward(f"a panel decides by majority, weighted or unanimous, got {by!r}")
    words = np.array([*map(_verdict, trace.value_v.words), np.nan])
    p_v = words[trace.value_v.codes]
    ballots = np.flatnonzero(~np.isnan(p_v))
    event_g, group = np.unique(trace.event_v[ballots], return_inverse=True)
    w_v = trace.weight_v[ballots] if by == "weighted" else np.ones(len(ballots))
    total_g, for_g = (total_by(group, w, len(event_g)) for w in (w_v, w_v * p_v[ballots]))
    passed_g = for_g == total_g if by == "unanimous" else np.round(2 * for_g - total_g, 9) > 0
    known_g, of_g = total_g > 0, trace.rollout_e[event_g]
    known_n, unknown_n, fails_n = (any_by(of_g, g, len(trace)) for g in (known_g, ~known_g, ~passed_g))
    return np.where(known_n & ~unknown_n, ~fails_n, np.nan)


def _verdict(word: str) -> float:
    """1 for a vote in favour, 0 for one against, NaN for what is no verdict.

    >>> [_verdict(w) for w in ("yes", "0.2", "1", "Paris")]
    [1.0, 0.0, 1.0, nan]
    """
    known = {"true": 1.0, "yes": 1.0, "pass": 1.0, "false": 0.0, "no": 0.0, "fail": 0.0}.get(word.strip().lower())
    if known is not None:
        return known
    try:
        value = float(word)
    except ValueError:
        return np.nan
    return np.nan if np.isnan(value) else float(value >= 0.5)


@register(
    "score",
    unit="agent",
    families=("R6", "R2"),
    better="higher",
    needs="votes with their sources, and the correctness of those, a reward channel on events",
)
def pivotal(trace: Trace, channel: str = "correct", by: str = "majority") -> F:
    """What an agent's vote did to the consensus, by counting again without it.

        r_a = Σ_votes of a ( C - C_{-v} ),     C = how right the value with most votes is

    Ties count by their mean, no votes as 0 (`rewards.votes.difference`).
    pays: agents; 0 to who does not vote.   needs: votes and their correctness in the run, else NaN.   from: MPDF.
    """
    if by not in ("majority", "weighted"):
        raise BadReward(f"votes are counted by majority or weighted, got {by!r}")
    cast = votes(trace, channel, by == "weighted")
    gain, who = difference(cast, np.arange(len(cast.answer))), trace.agent_e[cast.source]
    r_a = total_by(who, gain, trace.n_agents)
    tells_n = any_by(trace.rollout_e[cast.aggregate], ~np.isnan(cast.right[cast.answer]), len(trace))
    return np.where(tells_n[trace.rollout_a], r_a, np.nan)
