"""R2, individual scores: what the record says each agent, message, call or decision earned on its own account.

A unit is paid the sum over its events of one reward channel; it is not scored where none of them states it.
"""

from __future__ import annotations

import numpy as np

from podium.graph import units
from podium.graph.grouping import count_of, last_by, sum_by, take
from podium.registry import register
from podium.trace.columns import F, Trace
from podium.trace.vocabulary import event

__all__ = ["channel_of_events", "individual", "total_of"]

RESULT = event("tool_result")
NEEDS = "the reward channel on events"


@register("score", unit="agent", families=("R2",), better="higher", needs=NEEDS)
def individual(trace: Trace, channel: str = "agent") -> F:
    """What an agent's own events earned, all together.

        r_a = Σ_{e of a} reward_e[channel]

    pays: agents.   needs: an event of the agent that states the channel, else NaN.   from: MARFT, SPIRAL.
    """
    return total_of(trace, "agent", channel_of_events(trace, channel))


@register("score", unit="agent", families=("R2",), better="higher", needs=NEEDS)
def agent_outcome(trace: Trace, channel: str = "agent") -> F:
    """How an agent ended: the last reward that its events state.

        r_a = reward_e[channel] at the last event of a, tool results aside, that states it

    pays: agents.   needs: an event of the agent that states the channel, else NaN.   from: the survey's R2.
    """
    r_e = channel_of_events(trace, channel)
    own_e = trace.type_e != RESULT  # results come in no order of their own
    return take(r_e, last_by(trace.agent_e, ~np.isnan(r_e) & own_e, trace.n_agents))


@register("score", unit="turn", families=("R2", "R3"), better="higher", needs=NEEDS)
def invoked(trace: Trace, channel: str = "agent") -> F:
    """What an agent earned with the task it was given: for each turn the sum over the invocation it belongs to.

        r_t = Σ_{e of the invocation of t} reward_e[channel]

    pays: turns.   needs: an event of the invocation that states the channel, else NaN.   from: M-GRPO.
    """
    of_e = units.invocation(trace)
    total = sum_by(of_e, channel_of_events(trace, channel), count_of(of_e))[0]
    return take(total, of_e[units.rows(trace, "turn")])


@register("score", unit="message", families=("R2", "R6"), better="higher", needs=NEEDS)
def said(trace: Trace, channel: str = "message") -> F:
    """What a message earned: it and the generation that wrote it.

        r_m = Σ_{e of m} reward_e[channel]

    pays: messages.   needs: the channel on the message or its generation, else NaN.   from: CoMAS.
    """
    return total_of(trace, "message", channel_of_events(trace, channel))


@register("score", unit="tool_call", families=("R2", "R5"), better="higher", needs=NEEDS)
def called(trace: Trace, channel: str = "tool") -> F:
    """What a tool call earned: it and its results.

        r_c = Σ_{e of c} reward_e[channel]

    pays: tool calls.   needs: the channel on the call or a result of it, else NaN.   from: Agent Lightning.
    """
    return total_of(trace, "tool_call", channel_of_events(trace, channel))


@register("score", unit="orchestrator", families=("R2", "R7"), better="higher", needs=NEEDS)
def decided(trace: Trace, channel: str = "decision") -> F:
    """What a decision itself earned, without the events that it led to.

        r_d = reward_e[channel] at d

    pays: decisions.   needs: the channel on the decision, else NaN.   from: Puppeteer.
    """
    return channel_of_events(trace, channel)[units.rows(trace, "orchestrator")]


def channel_of_events(trace: Trace, channel: str) -> F:
    return trace.reward_e.get(channel, np.full(trace.n_events, np.nan))


def total_of(trace: Trace, unit: str, values_e: F) -> F:
    """The sum over each unit's events of the numbers that are there; NaN where there is none."""
    return sum_by(units.place(trace, unit), values_e, len(units.rows(trace, unit)))[0]
