"""Where credit goes: between units, along spawns, to some units only, and how much each counts in a loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from podium.credit.credit import BadCredit, Credit
from podium.credit.keys import By, groups
from podium.credit.orders import timeline
from podium.graph import lead, units
from podium.graph import work as work_of
from podium.graph.grouping import any_by, changes, count_by, count_of, group_totals, mean_by, ratio, take, total_by
from podium.graph.steps import spawned, spawns
from podium.registry import find, register
from podium.trace.columns import B, F, Trace
from podium.trace.vocabulary import DECISIONS, event

__all__ = ["broadcast", "down", "resample", "to", "up"]

DECISION = event("orchestrator_decision")
Share = Literal["equal", "tokens", "time"]
U = NDArray[np.uint64]


def up(trace: Trace, value: F, unit: str, coarser: str) -> F:
    """The credit of all units inside each coarser one; 0 where there are none, NaN where one or the run has none.

    V_c = Σ v_u : u inside c
    """
    inside = units.within(trace, unit, coarser)
    if (lost := (inside < 0) & (np.nan_to_num(value) != 0.0)).any():
        raise BadCredit(
            f"{int(lost.sum())} of the {unit} units with credit belong to no {coarser}, where it would be lost"
        )
    total = total_by(inside, value, len(units.rows(trace, coarser)))
    known_n = any_by(units.rollouts(trace, unit), ~np.isnan(value), len(trace))
    return np.where(known_n[units.rollouts(trace, coarser)], total, np.nan)


def down(trace: Trace, value: F, unit: str, finer: str, by: Share = "equal") -> F:
    """Each unit's credit shared among the finer ones inside it, in proportion to a stated column; up gives it back.

        v_f = V_u(f) · w_f / Σ w : inside u(f)

    Where nothing inside a unit has a weight, shares are equal. NaN for a finer unit that is inside none.
    """
    inside = units.within(trace, finer, unit)
    weight, n = _weights(trace, finer, by), len(value)
    total, many = total_by(inside, weight, n), total_by(inside, np.ones(len(weight)), n)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(take(total, inside) > 0, weight / take(total, inside), 1.0 / take(many, inside))
    shared: F = take(value, inside) * share
    return shared


def _weights(trace: Trace, unit: str, by: Share) -> F:
    """What each unit is as large as: 1, the tokens its events wrote, or the seconds they took."""
    n = len(units.rows(trace, unit))
    if by == "equal" or unit == "token":
        return np.ones(n)
    if by not in ("tokens", "time"):
        raise BadCredit(f"by must be equal, tokens or time, got {by!r}")
    size_e = np.nan_to_num(trace.tokens_out_e if by == "tokens" else work_of(trace))
    return total_by(units.place(trace, unit), size_e, n)


def broadcast(credit: Credit, unit: str) -> Credit:
    """The same credit for every finer unit inside a unit, as trainers have advantages; NaN for one inside none.

    A_f = A_u(f),    w_f = w_u(f) / |{f in u}|
    """
    inside = units.within(credit.trace, unit, credit.unit)
    weight = None if credit.weight is None else down(credit.trace, credit.weight, credit.unit, unit)
    return Credit(credit.trace, unit, take(credit.value, inside), weight)


@register("step")
def to(
    credit: Credit, unit: str, how: Literal["copy", "share", "sum", "mean"] = "copy", by: Share = "equal"
) -> Credit:
    """Moves credit to another unit: a copy or a share to every finer unit, the sum or the mean into coarser ones.

    Advantages are broadcast going down (copy). A share, which conserves the sum, is for rewards.
    """
    if unit not in units.UNITS:
        raise BadCredit(f"no unit called {unit!r}; there are {', '.join(units.UNITS)}")
    trace = credit.trace
    if how == "copy":
        value = take(credit.value, units.within(trace, unit, credit.unit))
    elif how == "share":
        value = down(trace, credit.value, credit.unit, unit, by)
    elif how == "sum":
        value = up(trace, credit.value, credit.unit, unit)
    elif how == "mean":
        inside = units.within(trace, credit.unit, unit)
        many = count_by(inside, inside >= 0, len(units.rows(trace, unit)))
        value = ratio(up(trace, credit.value, credit.unit, unit), many)
    else:
        raise BadCredit(f"how must be copy, share, sum or mean, got {how!r}")
    return Credit(trace, unit, value)


@register("step")
def only(credit: Credit, what: str, value: str | tuple[str, ...] | None = None) -> Credit:
    """Credit for some units, none (NaN) for the rest.

    "lead": what the lead does; "spawned": what spawned agents do; "orchestrator": decisions; "role" and "agent": of
    this name or one of these; "decision": of this kind; "failed": with an invalid event; "last": the last of its
    run.
    """
    return credit.of(np.where(_chosen(credit, what, value), credit.value, np.nan))


def _chosen(credit: Credit, what: str, value: str | tuple[str, ...] | None) -> B:
    trace, rows, agents = credit.trace, credit.rows, units.agents(credit.trace, credit.unit)
    named = value if isinstance(value, tuple) else (str(value),)
    match what:
        case "lead":
            chosen: B = agents == lead(trace)[credit.rollout]
        case "spawned":
            chosen = take(spawned(trace), agents)
        case "orchestrator":
            chosen = take(trace.type_e == DECISION, rows)
        case "role":
            chosen = np.isin(find("key", "role")(trace, credit.unit), [trace.role_e.code(name) for name in named])
        case "agent":
            chosen = np.isin(find("key", "agent")(trace, credit.unit), [trace.name_a.code(name) for name in named])
        case "decision":
            chosen = take(trace.decision_e, rows) == (DECISIONS.index(str(value)) if value in DECISIONS else -2)
        case "failed":
            chosen = any_by(units.place(trace, credit.unit), trace.valid_e == 0, len(credit.value))
        case "last":
            line = timeline(credit, "rollout")
            chosen = take(line.last, line.at)
        case _:
            raise BadCredit(
                f"only takes lead, spawned, orchestrator, role, agent, decision, failed or last, got {what!r}"
            )
    return chosen


@register("step")
def along_spawns(credit: Credit) -> Credit:
    """Every agent gets the credit of the agent at the root of those who spawned it, as if it had earned it.

    pays: agents.   from: MATPO, where a worker's trajectory inherits its planner's advantage.
    """
    if credit.unit != "agent":
        raise BadCredit(f"along_spawns pays agents, not {credit.unit}; move credit there with `to`")
    trace = credit.trace
    by_a = take(trace.agent_e, spawns(trace))
    root_a = np.where(by_a >= 0, by_a, np.arange(trace.n_agents))
    for _ in range(trace.n_agents.bit_length()):  # twice as far up in every round
        root_a = root_a[root_a]
    return credit.of(credit.value[root_a])


@register("step")
def weigh(credit: Credit, by: str, longest: float | None = None) -> Credit:
    """How much each unit counts in a loss; the credit stays. A batch sums to 1, except for "constant" and "root".

    "token" every unit alike; "sequence" every agent of every run alike; "agent" every run alike and in it every
    agent (WideSeek-R1); "rollout" every run alike; "root" sums in a run, divided by the number of runs (MATPO);
    "constant" 1 / longest (Dr. GRPO).
    """
    trace, there, run = credit.trace, ~np.isnan(credit.value), credit.rollout
    batch_n = find("key", "batch")(trace, "team")
    size_n = count_by(run, there, len(trace))
    runs_n = group_totals(batch_n, size_n > 0)  # of the batch, that have credit
    match by:
        case "token":
            whole = group_totals(batch_n, size_n)[run]
        case "sequence" | "agent":
            agent = units.agents(trace, credit.unit)
            held_a = count_by(agent, there, trace.n_agents)
            team_n = count_by(trace.rollout_a, held_a > 0, len(trace))
            whole = take(held_a, agent) * (team_n * runs_n if by == "agent" else group_totals(batch_n, team_n))[run]
        case "rollout":
            whole = (size_n * runs_n)[run]
        case "root":
            whole = runs_n[run]
        case "constant" if longest:
            whole = np.full(len(there), longest)
        case _:
            raise BadCredit(
                f"weigh takes token, sequence, agent, rollout, root or constant (with longest), got {by!r}"
            )
    return replace(credit, weight=ratio(there, np.where(there, whole, 0)))


def _hashed(state: U, part: Any) -> U:
    """splitmix64 of a state and one more part of an address."""
    with np.errstate(over="ignore"):
        x = state ^ (np.asarray(part, np.uint64) + np.uint64(0x9E3779B97F4A7C15))
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: U = x ^ (x >> np.uint64(31))
    return mixed


def _run_addresses(credit: Credit, seed: int) -> U:
    """A number for each run: of the seed, its task, its own seed, and its place among its batch's runs of it."""
    trace, n = credit.trace, len(credit.trace)
    state = np.full(n, np.uint64(seed % 2**64))
    for column in (trace.group_n, trace.task_id_n, trace.seed_n):
        codes = np.array([*(crc32(word.encode()) for word in column.words), 0], np.uint64)
        state = _hashed(state, codes[column.codes])
    team = Credit(trace, "team", np.zeros(n))
    group = groups(team, "task")
    order = np.argsort(group, kind="stable")
    before = np.zeros(n, np.int64)
    before[order] = np.arange(n) - np.searchsorted(group[order], group[order])
    return _hashed(state, np.where(group >= 0, before, 0))


@register("step")
def resample(credit: Credit, by: By, d: int, seed: int = 0) -> Credit:
    """Groups made equally large: d places, filled at random from the group, everyone once before anyone twice.

    The weight of a unit is how many places it fills; the credit stays. The draw depends on the seed and the unit's
    address (its task, its run's seed and place in the task, its place in the group), so it is the same in any
    batch. Units of a run that begin at once with the same credit share theirs.   from: M-GRPO's alignment.
    """
    if d < 1:
        raise BadCredit(f"resample needs d of 1 or more, got {d!r}")
    group = groups(credit, by)
    scored = np.flatnonzero((group >= 0) & ~np.isnan(credit.value))
    keys = credit.value[scored], timeline(credit, "rollout").at[scored], credit.rollout[scored], group[scored]
    order = scored[np.lexsort(keys)]  # no row decides, so how a log interleaves does not matter
    of = group[order]
    nth, size = np.arange(len(order)) - np.searchsorted(of, of), np.bincount(of)[of]
    luck = _hashed(_hashed(_run_addresses(credit, seed)[credit.rollout[order]], d), nth)
    ranked = np.lexsort((luck, of))
    place = np.empty(len(order), np.int64)
    place[ranked] = nth  # of each unit how many of its group were luckier
    places = (d // size + (place < d % size)).astype(np.float64)
    like = np.cumsum(np.any([changes(key[np.lexsort(keys)]) for key in keys], axis=0)) - 1
    weight = np.full(len(group), np.nan)
    weight[order] = mean_by(like, places, count_of(like))[like]
    return replace(credit, weight=weight)
