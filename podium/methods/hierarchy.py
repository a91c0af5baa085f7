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
from podium.registry import find, register
from podium.rewards.outcome import channel_of_rollouts
from podium.rewards.tools import tool_validity
from podium.trace.columns import B, F, I
from podium.trace.vocabulary import event

__all__: list[str] = []

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

    In a run of good form (its channel `form` is at least ½) all turns in which nothing failed. In another the
    lead's failed turns, else the turns that hit a limit (the label `limit`), else the lead's last. NaN where the
    form is not known.   from: WideSeek-R1.
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
    role. c is how many of d places it fills when those of its run are repeated or dropped at random (`resample`), 1
    in any other role. It is the weight too, shared among the sample's units.   from: M-GRPO.
    """
    is_it = find("key", "role")(credit.trace, credit.unit) == credit.trace.role_e.code(role)
    first = _first_of_samples(credit, is_it)
    single = np.full(len(first), np.nan)
    single[first[first >= 0]] = credit.value[first[first >= 0]]
    single_credit = _aligned(credit.of(single), is_it, (by, d, seed, eps, alone))
    assert single_credit.weight is not None
    at = np.where(np.isnan(credit.value), -1, first)
    many = count_by(at, at >= 0, len(at))[at]
    return replace(credit, value=take(single_credit.value, at), weight=take(single_credit.weight, at) / many)


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
