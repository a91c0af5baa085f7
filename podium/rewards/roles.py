"""R3, role tables: each role is paid by a formula of its own.

    for_role(0.9 * outcome + 0.1 * individual("format"), "main") + for_role(individual("expert"), "sub")

The tables of published methods are rewards with a name: `m_grpo`, `matpo`, `wideseek`, `mae`.
"""

from __future__ import annotations

import numpy as np

from podium.graph import units
from podium.graph.grouping import any_by, count_by, ratio, take, total_by
from podium.graph.steps import IS_STEP
from podium.registry import register
from podium.rewards.individual import channel_of_events, individual, total_of
from podium.rewards.ledger import BadReward, Channel, Now, copied
from podium.trace.columns import B, F, Trace

__all__: list[str] = []


@register("score", unit="role", families=("R3",), better="higher", needs="roles, and the reward channel on events")
def role_score(trace: Trace, channel: str = "role") -> F:
    """What the events of a role earned, all together.

        r_ρ = Σ_{e of ρ} reward_e[channel]

    pays: roles.   needs: an event of the role that states the channel, else NaN.   from: MALT, LAMO, DEPART.
    """
    return total_of(trace, "role", channel_of_events(trace, channel))


@register("score", unit="team", families=("R3",), better="higher", needs="roles, and the reward channel on events")
def of_role(trace: Trace, role: str = "worker", channel: str = "agent", if_none: float = np.nan) -> F:
    """How well those who play a role did on average, for others to be paid by.

        r_n = mean( Σ_{e of a} reward_e[channel] : a plays the role in n )

    pays: the team.   needs: the channel on every agent of that role, else NaN; `if_none` where nobody plays it and
    the run records roles.   from: MATPO, MAE.
    """
    plays_a = _plays(trace, "agent", role)
    n = len(trace)
    r_a = individual(trace, channel)
    total_n = total_by(np.where(plays_a, trace.rollout_a, -1), r_a, n)
    count_n = count_by(trace.rollout_a, plays_a, n)
    known_n = any_by(trace.rollout_e, trace.role_e.codes >= 0, n)
    return np.where((count_n == 0) & known_n, if_none, ratio(total_n, count_n))


@register("score", unit="team", families=("R3",), better="neither", needs="a run with events")
def one(trace: Trace) -> F:
    """One for every run, so that a formula can say `one - of_role("solver", "score")`.

        r_n = 1

    pays: the team.   needs: a run with events, else NaN.   from: MAE, SAGE.
    """
    return np.where(units.rows(trace, "team") >= 0, 1.0, np.nan)


@register("shape")
def for_role(trace: Trace, now: Now, parts: list[Channel], role: str) -> list[Channel]:
    """Pays only those who play a role; what is the team's goes to each agent that does.

        r'_u = r_u if role(u) = role, else 0

    NaN where a unit of somebody who takes steps has no role on record. Tools, humans and agents that do nothing
    play none. A turn that opens with a tool's result is played in the caller's role.
    """
    if not isinstance(role, str):
        raise BadReward(f"for_role needs the name of a role, got {role!r}")
    moved = [copied(trace, p, "agent") if p.unit == "team" else p for p in parts]
    return [
        Channel(p.name, p.unit, np.where(_plays(trace, p.unit, role), p.paid, 0.0) + _unknown(trace, p.unit))
        for p in moved
    ]


def _plays(trace: Trace, unit: str, role: str) -> B:
    plays: B = units.roles(trace, unit) == trace.role_e.code(role)
    return plays


def _unknown(trace: Trace, unit: str) -> F:
    """NaN for a unit of somebody who takes steps and whose role is not on record, else 0."""
    works_u = take(any_by(trace.agent_e, IS_STEP[trace.type_e], trace.n_agents), units.agents(trace, unit))
    return np.where(works_u & (units.roles(trace, unit) < 0), np.nan, 0.0)


# tables that have a name


@register("reward")
def m_grpo(main: str = "main", sub: str = "sub", expert: str = "expert", form: str = "format") -> str:
    """The role table of M-GRPO: by format and outcome, for a sub-agent also by a judge of its own task.

        R_M = 0 if format is bad else 0.1 format + 0.9 outcome
        R_S = 0 if format is bad else 0.1 format + 0.4 outcome + 0.5 expert

    paid to turns, of a sub-agent for their invocation (`invoked`).   from: M-GRPO's text; its code has no expert
    term.
    """
    mine, its = f"individual({form!r})", f"invoked({form!r})"
    main_pay = f"gate(at(0.1 * {mine} + 0.9 * outcome, 'turn'), {mine})"
    sub_pay = f"gate(at(0.1 * {its} + 0.4 * outcome + 0.5 * invoked({expert!r}), 'turn'), {its})"
    return f"for_role({main_pay}, {main!r}) + for_role({sub_pay}, {sub!r})"


@register("reward")
def matpo(planner: str = "planner", worker: str = "worker", form: str = "format", alone: float = 0.0) -> str:
    """The reward of MATPO: the outcome, and the format of the planner and of its workers on average.

        R = 0.9 outcome + 0.1 · ½ (planner format + mean worker format)

    `alone` is the workers' part where there are none, which the paper does not state.   from: MATPO.

    >>> matpo()
    "0.9 * outcome + 0.05 * of_role('planner', 'format') + 0.05 * of_role('worker', 'format', 0.0)"
    """
    forms = f"0.05 * of_role({planner!r}, {form!r}) + 0.05 * of_role({worker!r}, {form!r}, {alone!r})"
    return f"0.9 * outcome + {forms}"


@register("reward")
def wideseek(tool: str = "access", form: str = "format") -> str:
    """The reward of WideSeek-R1: the outcome, form, opening a page at all, and against length.

        R = 0 if format is bad, else
            outcome + 0.1 format + 0.05 [a page was opened] - 0.1 clip((longest - 3000) / 2000, 0, 1)

    from: WideSeek-R1.
    """
    change = f"0.1 * outcome({form!r}) + 0.05 * used_tool({tool!r}) - 0.1 * overlong(3000.0, 2000.0)"
    return f"gate(outcome + {change}, outcome({form!r}))"


@register("reward")
def mae(proposer: str = "proposer", solver: str = "solver", judge: str = "judge") -> str:
    """The role table of Multi-Agent Evolve; hard questions pay the proposer only where they are good.

        proposer: (judge + (1 - mean solver) [judge ≥ .7] + format) / 3,  solver: (judge + format) / 2,  judge: it

    with the channels `score` (what the judge gave) and `format` on each agent.   from: MAE.
    """
    hard = f"gate(at(one / 3 - of_role({solver!r}, 'score') / 3, 'agent'), individual('score'), 0.7)"
    pays = {
        proposer: f"individual('score') / 3 + {hard} + individual('format') / 3",
        solver: "individual('score') / 2 + individual('format') / 2",
        judge: "individual('format')",
    }
    return " + ".join(f"for_role({pay}, {role!r})" for role, pay in pays.items())
