"""Methods for teams with a lead and workers, and the steps that are theirs alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from podium.credit.baselines import tokens_written
from podium.credit.credit import BadCredit, Credit
from podium.credit.groups import Alone, lonely
from podium.credit.keys import By, groups, numbered_together
from podium.credit.orders import timeline
from podium.credit.routing import resample
from podium.graph import lead, units
from podium.graph.grouping import any_by, count_by, count_of, first_by, group_totals, last_by, take, total_by
from podium.graph.labels import label
from podium.methods.method import Method, add
from podium.registry import find, register
from podium.rewards.outcome import channel_of_rollouts
from podium.rewards.tools import tool_validity
from podium.trace.columns import B, F, I
from podium.trace.vocabulary import event

__all__ = [
    "aligned_zscore",
    "at_end",
    "minus_length",
    "plus_tools",
    "trainable",
    "weigh_tokens",
]

CALL = event("tool_call")


@register("step")
def weigh_tokens(credit: Credit, by: Literal["agent", "rollout"] = "rollout") -> Credit:
    """How much each unit counts in a loss that is a mean over tokens; the credit stays. A batch sums to 1.

        w_u = len_u / Σ_run len / runs,     or with "agent":  len_u / Σ_agent len / agents of the run / runs

    needs: tokens out on the events of a unit, else its weight is NaN.   from: Agent Lightning ("rollout"),
    WideSeek-R1 ("agent").
    """
    if by not in ("agent", "rollout"):
        raise BadCredit(f"weigh_tokens takes agent or rollout, got {by!r}")
    length = credit.where_known(tokens_written(credit)).value
    there = length > 0
    run = np.where(there, credit.rollout, -1)
    line = np.where(there, units.agents(credit.trace, credit.unit), -1) if by == "agent" else run
    batch = np.where(there, groups(credit, "batch"), -1)
    weight = length / group_totals(line, length) / _different(line, run) / _different(run, batch)
    return replace(credit, weight=np.where(there, weight, length))


def _different(finer: I, coarser: I) -> F:
    """For each unit how many different finer groups its coarser group holds."""
    pair = numbered_together(coarser, finer)
    first = first_by(pair, pair >= 0, count_of(pair))
    return take(total_by(coarser[first], np.ones(len(first)), count_of(coarser)), coarser)


@register("step")
def trainable(credit: Credit, form: str = "format", limit: str = "limit") -> Credit:
    """The turns that a run is to learn from; none (NaN) for the rest.

    In a run of good form (the channel `form` of the run is at least ½) all turns in which nothing failed. In
    another, the lead's failed turns; if there are none the turns that say, by the label `limit`, that they hit a
    limit; if there are none the lead's last. NaN where the form is not known.   from: WideSeek-R1.
    """
    if credit.unit != "turn":
        raise BadCredit(f"trainable chooses turns, not {credit.unit}")
    trace, run = credit.trace, credit.rollout
    place, turns, n = units.place(trace, "turn"), len(run), len(trace)
    failed, limited = (any_by(place, e, turns) for e in (trace.valid_e == 0, label(trace, limit) == 1))
    leads = units.agents(trace, "turn") == lead(trace)[run]
    last = np.isin(np.arange(turns), last_by(run, leads, n))
    form_t = channel_of_rollouts(trace, form)[run]
    chosen = leads & failed
    for instead in (limited, last):
        chosen = chosen | (instead & ~any_by(run, chosen, n)[run])
    chosen = np.where(form_t >= 0.5, ~failed, chosen)
    return credit.of(np.where(chosen & ~np.isnan(form_t), credit.value, np.nan))


@register("step")
def aligned_zscore(
    credit: Credit,
    by: By = ("task", "role"),
    role: str = "sub",
    d: int = 8,
    seed: int = 0,
    eps: float = 1e-6,
    alone: Alone = "nan",
) -> Credit:
    """A z-score in which every run counts as often, however many invocations of a role it has.

        A = (v - mean) / (std + eps),    mean = Σ c v / Σ c,   std² = Σ c (v - mean)² / Σ c

    A sample is an invocation of an agent of the role (key `invocation`), and all that an agent does in any other
    role; its units have one value and get the same. c is how many of d places an invocation fills when those of its
    run are repeated or dropped at random (`resample`), and 1 in any other role. It is the weight too, shared among
    the units of the sample: what was dropped counts 0.   from: M-GRPO.
    """
    is_it = find("key", "role")(credit.trace, credit.unit) == credit.trace.role_e.code(role)
    first = _first_of_samples(credit, is_it)
    single = np.full(len(first), np.nan)
    single[first[first >= 0]] = credit.value[first[first >= 0]]
    made = _aligned(credit.of(single), is_it, (by, d, seed, eps, alone))
    assert made.weight is not None
    at = np.where(np.isnan(credit.value), -1, first)
    many = count_by(at, at >= 0, len(at))[at]
    return replace(credit, value=take(made.value, at), weight=take(made.weight, at) / many)


def _first_of_samples(credit: Credit, is_it: B) -> I:
    """For each unit the first with a value of its sample, -1 for none: its invocation, else all its agent does."""
    agent = units.agents(credit.trace, credit.unit)
    sample = numbered_together(np.where(is_it, find("key", "invocation")(credit.trace, credit.unit), 0), agent)
    return take(first_by(sample, ~np.isnan(credit.value), count_of(sample)), sample)


def _aligned(credit: Credit, is_it: B, told: tuple[By, int, int, float, Alone]) -> Credit:
    """The z-score of samples, of which each has one unit with a value."""
    by, d, seed, eps, alone = told
    filled = resample(credit, ("rollout", "role"), d, seed).weight
    assert filled is not None
    group = groups(credit, by)
    known = ~np.isnan(credit.value) & (group >= 0)
    count = np.where(known, np.where(is_it, filled, 1.0), 0.0)
    value, group = np.where(known, credit.value, 0.0), np.where(known, group, -1)
    with np.errstate(divide="ignore", invalid="ignore"):
        total = group_totals(group, count)
        mean = group_totals(group, count * value) / total
        deviation = np.sqrt(group_totals(group, count * (value - mean) ** 2) / total)
        scaled = (credit.value - mean) / (deviation + eps)
    single = ~known | (group_totals(group, (count > 0).astype(np.float64)) < 2)
    return replace(lonely(credit, scaled, single, alone, group), weight=np.where(known, count, np.nan))


@register("step")
def minus_length(credit: Credit, phi: float = 0.1, longest: float = 1024.0) -> Credit:
    """Words cost: A = v - φ len / L_max.

    needs: tokens out on an event of the unit, else NaN.   from: LAMO.
    """
    return credit.of(credit.value - phi * tokens_written(credit) / longest)


@register("step")
def plus_tools(credit: Credit, weight: float = 1.0) -> Credit:
    """A bonus for valid calls: v + w · the share of its calls that were valid, 0 for an agent without calls.

    pays: agents.   needs: the validity of a call of an agent that calls, else NaN.   from: SHARP.
    """
    if credit.unit != "agent":
        raise BadCredit(f"plus_tools pays agents, not {credit.unit}")
    calls_a = any_by(credit.trace.agent_e, credit.trace.type_e == CALL, credit.trace.n_agents)
    return credit.of(credit.value + weight * np.where(calls_a, tool_validity(credit.trace), 0.0))


@register("step")
def at_end(credit: Credit) -> Credit:
    """The value at the end of a run, 0 before, so that a backup finds it at the leaves alone."""
    line = timeline(credit, "rollout")
    return credit.where_known(np.where(np.append(line.last, True)[line.at], credit.value, 0.0))


TABLE = (
    Method(
        name="rema",
        credit='zscore(by="task") >> to("turn")',
        pays="turn",
        update="cap_log_ratio(3) >> dual_clip(turn, most=3)",
        schedule="alternate(lead, others, every=10)",
        needs=("group",),
        source="ReMA, NeurIPS 2025",
        conflicts="with its option mask_unfinished a run in which an agent did not finish scores 0: gate(outcome, "
        'outcome("finished")); off here',
    ),
    Method(
        name="agent_lightning",
        credit='zscore(by="task") >> to("turn") >> weigh_tokens("rollout")',
        pays="turn",
        update="mean_over(run) >> clip(token)",
        needs=("group",),
        source="Agent Lightning (LightningRL), arXiv 2508.03680, with per_rollout_mean as in its code",
        conflicts="any group estimator may stand in for the z-score; GRPO's is taken",
    ),
    Method(
        name="matpo",
        reward="matpo",
        credit='zscore(by="task") >> to("agent") >> only("lead") >> along_spawns() >> weigh("root")',
        pays="agent",
        update="mean_over(planner) >> clip(token)",
        needs=("group", "roles", "spawns"),
        source="MATPO, arXiv 2510.04678",
    ),
    Method(
        name="wideseek_r1",
        reward="wideseek",
        credit='zscore(by="task") >> to("turn") >> trainable() >> weigh_tokens("agent")',
        pays="turn",
        update="clip(token) + kl(0.001)",
        needs=("group",),
        source="WideSeek-R1, arXiv 2602.04634, its trajectory mode (the default)",
        unknown="its turn mode, a z-score across turns",
    ),
    Method(
        name="m_grpo",
        reward="m_grpo",
        credit='only("role", ("main", "sub")) >> aligned_zscore(by=("task", "role"), role="sub", d=8)',
        unit="turn",
        update="clip(sequence, 0.2, 0.28)",
        schedule="decoupled",
        needs=("group", "roles", "judge"),
        source="M-GRPO, arXiv 2511.13288, (a1, a2) = (0.1, 0.9), (b1, b2, b3) = (0.1, 0.4, 0.5), population "
        "deviation; a sample is an invocation of a sub-agent, and all turns of the main one",
        conflicts="the released sub-agent reward has no expert term (0, 0.1 or 1) and its groups are neighbours "
        "in a queue, not runs of one query; the paper's side is taken",
        counts="rows",
    ),
    Method(
        name="marsrl",
        reward='for_role(step("correct"), "solver") + for_role(step("correct"), "corrector") + '
        'for_role(verdict_agreement, "verifier")',
        credit='only("role", ("solver", "corrector", "verifier")) >> once(zscore(by=("task", "upstream", "role")))',
        unit="turn",
        schedule="pipeline(prefer=wrong_solutions)",
        needs=("group", "roles"),
        source="MarsRL, arXiv 2511.11373",
        conflicts="its text calls the solver's reward positive or negative, its formula 1 or 0, which is taken (a "
        "z-score gives the same)",
        counts="rows",
    ),
    Method(
        name="fold_grpo",
        reward="fold_grpo",
        credit='zscore_against("outcome", by="task", count="rollout")',
        unit="turn",
        update="clip(token, 0.2, 0.28)",
        needs=("group", "roles", "judge"),
        source="Context-Folding (FoldGRPO), arXiv 2510.11967; ddof and eps as in verl",
        conflicts="the code adds +0.2 for branches in scope, -1 to a main thread that never branched and a fine "
        "for other scripts, and loses the 0.2 in a cast to int8; the paper's side is taken",
        scales=False,
    ),
    Method(
        name="depart",
        reward='outcome + role_score("role")',
        credit='zscore(by=("task", "role"))',
        unit="role",
        schedule="alternate(planner, executor)",
        needs=("group", "roles"),
        source="DEPART, OpenReview Q4Nk6PlZYH",
        known="partial",
        unknown="the weights of task and role rewards (1 and 1 here), the formulas of the role rewards (a channel "
        "here), HIMPO's two rounds",
    ),
    Method(
        name="lamo",
        reward='role_score("role")',
        credit='minus_length() >> zscore(by=("task", "role"))',
        unit="role",
        schedule="supervised(on=examples) >> joint",
        needs=("group", "roles"),
        source="LAMO, arXiv 2604.13488, stage 2",
        known="partial",
        unknown="phi and L_max (0.1 and 1024 here), the similarities that pay each role (a channel here), stage 1 "
        "(SFT weighted by perplexity)",
        scales=False,
    ),
    Method(
        name="sharp",
        credit='to("agent") + masked("agent") >> plus_tools() >> zscore(by=("task", "agent"))',
        pays="agent",
        needs=("group", "masks"),
        source="SHARP, arXiv 2602.08335",
        known="partial",
        unknown="the coefficients of the marginal and of the tool reward (1 and 1 here)",
        conflicts="the paper's target is the Shapley value, what it computes is one marginal a unit by masking, "
        "which is taken; the whole value is `shapley`",
        counts="agents",
        scales=False,
    ),
    Method(
        name="malt",
        credit="at_end() >> tree_backup() >> threshold(0.5)",
        unit="turn",
        update="dpo(pairs=siblings)",
        schedule="offline",
        needs=("branches",),
        source="MALT, arXiv 2412.01928",
        unknown="the update is offline: pairs for DPO are a choice of data, not credit",
        counts="rows",
        scales=False,
    ),
    Method(
        name="sirius",
        credit='threshold(0.5) >> to("turn")',
        pays="turn",
        update="sft(on=turns)",
        schedule="offline(rounds=3)",
        source="SiriuS, NeurIPS 2025",
        known="partial",
        unknown="the threshold of each task (0.5 here); feedback to a failed agent and its second try, which the "
        "harness's branches can make and this filter then keeps; the fine-tuning",
        scales=False,
    ),
    Method(
        name="owl",
        credit='threshold(0.5) >> to("role") >> only("role", "planner")',
        pays="role",
        update="dpo(pairs=planner)",
        schedule="offline(learns=planner)",
        needs=("roles",),
        source="OWL (Workforce), NeurIPS 2025",
        known="partial",
        unknown="how trajectories are filtered beyond task success, and the pairs for DPO",
        scales=False,
    ),
    Method(
        name="collabuiagents",
        reward='step("critic")',
        credit="threshold(0.5)",
        unit="turn",
        update="dpo(pairs=adversarial)",
        schedule="offline(graph=random)",
        needs=("judge",),
        source="CollabUIAgents, COLM 2025",
        unknown="the language-model critic (a column here), adversarial samples and DPO, which is offline and not "
        "credit",
        counts="rows",
        scales=False,
    ),
)

for _row in TABLE:
    add(_row)
