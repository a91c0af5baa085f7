"""Steps against their formulas, written once more as plain loops over units, on teams by dice of which some units were not scored."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from statistics import NormalDist

import numpy as np
import pytest
from teams import acts, forest, plain

from podium.credit import Credit, apply
from podium.credit.groups import counts, moments
from podium.credit.keys import groups
from podium.credit.partition import closed
from podium.graph import units
from podium.registry import find
from podium.trace.columns import Trace

NAN = float("nan")
BYS: tuple[tuple[str, ...], ...] = (("task",), ("task", "agent"), ("rollout",), ("batch",))


@cache
def teams() -> tuple[Trace, ...]:
    """Runs with all times, runs of which some state none, and runs that branched."""
    silent = plain(1, n=4, length=18)
    t_e = np.where(silent.rollout_e % 2 == 0, np.nan, silent.t_e)
    return plain(0, n=4, length=18), replace(silent, t_e=t_e), forest(10)[:9]


def starts(unit: str = "turn", coarse: bool = False) -> Iterable[Credit]:
    """Values by dice, some absent; coarse ones have ties."""
    for i, trace in enumerate(teams()):
        dice = np.random.default_rng(i)
        n = len(units.rows(trace, unit))
        value = dice.integers(0, 3, n).astype(float) if coarse else dice.normal(size=n)
        yield Credit(trace, unit, np.where(dice.random(n) < 0.15, np.nan, value))


def same(got: np.ndarray, want: Sequence[float], rtol: float = 1e-9) -> None:
    np.testing.assert_allclose(got, np.array(want, float), rtol=rtol, atol=1e-9)


def members(credit: Credit, by: tuple[str, ...]) -> tuple[np.ndarray, dict[int, list[int]]]:
    """The group of each unit, and the scored units of each group."""
    group = groups(credit, by)
    held: dict[int, list[int]] = defaultdict(list)
    for u, g in enumerate(group.tolist()):
        if g >= 0 and credit.value[u] == credit.value[u]:
            held[g].append(u)
    return group, held


def by_group(
    credit: Credit, by: tuple[str, ...], of: Callable[[int, list[int]], float], least: int = 2
) -> list[float]:
    """What a formula gives each unit that is scored, in a group of as many as it needs."""
    group, held = members(credit, by)
    result = [NAN] * len(credit.value)
    for g, us in held.items():
        for u in us if len(us) >= least else ():
            assert group[u] == g
            result[u] = of(u, us)
    return result


def mean(v: np.ndarray, us: list[int]) -> float:
    return float(sum(v[u] for u in us) / len(us))


def variance(v: np.ndarray, us: list[int]) -> float:
    return float(sum((v[u] - mean(v, us)) ** 2 for u in us) / (len(us) - 1))


@pytest.mark.parametrize("by", BYS, ids=",".join)
def test_center(by: tuple[str, ...]) -> None:
    for credit in starts():
        v = credit.value
        same(apply(credit, f"center(by={by!r})").value, by_group(credit, by, lambda u, us, v=v: v[u] - mean(v, us)))


@pytest.mark.parametrize("by", BYS, ids=",".join)
def test_zscore_and_whiten(by: tuple[str, ...]) -> None:
    for credit in starts(coarse=True):
        v = credit.value

        def z(u: int, us: list[int], v: np.ndarray = v) -> float:
            return float((v[u] - mean(v, us)) / (variance(v, us) ** 0.5 + 1e-6))

        def white(u: int, us: list[int], v: np.ndarray = v) -> float:
            return float((v[u] - mean(v, us)) / (variance(v, us) + 1e-8) ** 0.5)

        same(apply(credit, f"zscore(by={by!r})").value, by_group(credit, by, z))
        same(apply(credit, f"whiten(by={by!r})").value, by_group(credit, by, white))
        shifted = by_group(credit, by, lambda u, us, v=v, white=white: white(u, us) + mean(v, us))
        same(apply(credit, f"whiten(by={by!r}, shift=False)").value, shifted)


@pytest.mark.parametrize("by", BYS, ids=",".join)
def test_leave_one_out(by: tuple[str, ...]) -> None:
    for credit in starts():
        v, w = credit.value, np.append(credit.trace.reward_e["weight"], np.nan)[credit.rows]

        def others(u: int, us: list[int], v: np.ndarray = v, w: np.ndarray = w) -> float:
            return float(v[u] - sum(w[i] * v[i] for i in us if i != u) / sum(w[i] for i in us if i != u))

        plainly = by_group(credit, by, lambda u, us, v=v: v[u] - mean(v, [i for i in us if i != u]))
        same(apply(credit, f"leave_one_out(by={by!r})").value, plainly)
        same(apply(credit, f'leave_one_out(by={by!r}, weight="weight")').value, by_group(credit, by, others))


@pytest.mark.parametrize("by", BYS, ids=",".join)
def test_the_best_and_the_rest(by: tuple[str, ...]) -> None:
    for credit in (*starts(), *starts(coarse=True)):
        v = credit.value

        def lead(u: int, us: list[int], v: np.ndarray = v) -> float:
            first, second = sorted((v[i] for i in us), reverse=True)[:2]
            return float(first - second) if v[u] == first else 0.0

        def scaled(u: int, us: list[int], v: np.ndarray = v, lead: Callable[..., float] = lead) -> float:
            return lead(u, us) / (variance(v, us) ** 0.5 + 1e-6)

        below = by_group(credit, by, lambda u, us, v=v: v[u] - max(v[i] for i in us))
        same(apply(credit, f"below_best(by={by!r})").value, below)
        same(apply(credit, f"best_only(by={by!r})").value, by_group(credit, by, lead))
        same(apply(credit, f"best_only(by={by!r}, std=True)").value, by_group(credit, by, scaled))


def test_a_baseline_in_which_long_units_weigh_more() -> None:
    """Units of which no event says how much it wrote are no part of the baseline, and get no credit."""
    for credit in starts():
        trace = credit.trace
        dice = np.random.default_rng(3)
        trace = replace(trace, tokens_out_e=np.where(dice.random(trace.n_events) < 0.4, np.nan, trace.tokens_out_e))
        credit = replace(credit, trace=trace)
        wrote = [NAN] * len(credit.value)
        for e, place in enumerate(units.place(trace, "turn").tolist()):
            if place >= 0 and trace.tokens_out_e[e] == trace.tokens_out_e[e]:
                wrote[place] = (0.0 if wrote[place] != wrote[place] else wrote[place]) + trace.tokens_out_e[e]
        assert np.isnan(wrote).any()
        there = credit.of(np.where(np.isnan(wrote), np.nan, credit.value))
        v = credit.value

        def heavy(u: int, us: list[int], v: np.ndarray = v, size: list[float] = wrote) -> float:
            total = sum(size[i] for i in us)
            return float(v[u] - sum(size[i] * v[i] for i in us) / total) if total else NAN

        same(apply(credit, "length_weighted()").value, by_group(there, ("task",), heavy))


@pytest.mark.parametrize("tau", [None, 0.5])
def test_quantiles_of_ranks(tau: float | None) -> None:
    normal = NormalDist()
    for credit in (*starts(), *starts(coarse=True)):
        v = credit.value

        def rank(u: int, us: list[int], v: np.ndarray = v) -> float:
            if tau is None:
                return sum(v[i] < v[u] for i in us) + (sum(v[i] == v[u] for i in us) + 1) / 2
            return 0.5 + sum(1 / (1 + float(np.exp((v[i] - v[u]) / tau))) for i in us)

        @cache
        def quantiles(us: tuple[int, ...], rank: Callable[..., float] = rank) -> dict[int, float]:
            normals = {u: normal.inv_cdf((rank(u, list(us)) - 0.5) / len(us)) for u in us}
            middle = sum(normals.values()) / len(us)
            return {u: x - middle for u, x in normals.items()}

        def centred(u: int, us: list[int], quantiles: Callable[..., dict[int, float]] = quantiles) -> float:
            return quantiles(tuple(us))[u]

        for by in (("task",), ("task", "agent")):
            step = f"rank_gaussian(by={by!r}, tau={tau!r})"
            same(apply(credit, step).value, by_group(credit, by, centred))


def moments_of(credit: Credit, along: str) -> list[list[list[int]]]:
    """The units of each chain, moment after moment."""
    chain = credit.rollout.tolist()
    if along == "agent":
        chain = list(zip(chain, find("key", "agent")(credit.trace, credit.unit).tolist(), strict=True))
    chains: dict[object, list[int]] = defaultdict(list)
    for u, c in enumerate(chain):
        chains[c].append(u)
    result = []
    for us in chains.values():
        when = np.append(credit.trace.t_e, np.nan)[credit.rows[us]]
        if np.isnan(when).any():
            when = credit.rows[us].astype(float)
        result.append([[u for u, t in zip(us, when, strict=True) if t == at] for at in sorted(set(when.tolist()))])
    return result


@pytest.mark.parametrize("along", ["rollout", "agent"])
def test_reward_to_go_and_what_is_left(along: str) -> None:
    for start in starts():
        credit = start.of(np.nan_to_num(start.value))
        v, togo, left = credit.value, [NAN] * len(credit.value), [NAN] * len(credit.value)
        for chain in moments_of(credit, along):
            for m, here in enumerate(chain):
                ahead = sum(0.9 ** (k - m) * sum(v[u] for u in later) for k, later in enumerate(chain) if k > m)
                for u in here:
                    togo[u] = v[u] + ahead
                    left[u] = v[u] * 0.9 ** (len(chain) - 1 - m)
        same(apply(credit, f'togo("{along}", 0.9)').value, togo)
        same(apply(credit, f'decay("{along}", 0.9)').value, left)


@pytest.mark.parametrize("along", ["rollout", "agent"])
def test_generalised_advantages(along: str) -> None:
    for credit in starts():
        r, value = np.nan_to_num(credit.value), np.append(credit.trace.reward_e["value"], np.nan)[credit.rows]
        credit = credit.of(r)
        want, ahead = [NAN] * len(r), [NAN] * len(r)
        for chain in moments_of(credit, along):
            after, then = 0.0, 0.0
            for here in reversed(chain):
                delta = {u: r[u] + 0.9 * then - value[u] for u in here}
                for u in here:
                    ahead[u], want[u] = delta[u], delta[u] + 0.9 * 0.8 * after
                after = sum(want[u] for u in here) / len(here)
                then = sum(value[u] for u in here) / len(here)
        same(apply(credit, f'gae("value", "{along}", 0.9, 0.8)').value, want)
        same(apply(credit, f'td("value", "{along}", 0.9)').value, ahead)


def test_what_a_unit_adds_to_those_before_it() -> None:
    for credit in starts():
        v = credit.value
        history, parent = [NAN] * len(v), [NAN] * len(v)
        for chain in moments_of(credit, "agent"):
            for m, here in enumerate(chain):
                past = [v[u] for earlier in chain[:m] for u in earlier if v[u] == v[u]]
                for u in here:
                    history[u] = v[u] - sum(past) / len(past) if past else v[u]
        for chain in moments_of(credit, "rollout"):
            for m, here in enumerate(chain):
                for u in here:
                    parent[u] = v[u] - (0.5 * sum(v[i] for i in chain[m - 1]) / len(chain[m - 1]) if m else 0.0)
        same(apply(credit, "minus_parent(0.5)").value, parent)
        if not np.isnan(credit.trace.t_e).any():  # else the chains of one run may go by rows or by times
            same(apply(credit, "minus_history()").value, history)


def rounds_of(credit: Credit) -> list[list[list[int]]]:
    stage = np.append(credit.trace.stage_e, -1)[credit.rows].tolist()
    return [
        [[u for u in us if stage[u] == s] for s in sorted({stage[u] for u in us} - {-1})]
        for us in (
            [u for u, n in enumerate(credit.rollout.tolist()) if n == run] for run in range(len(credit.trace))
        )
    ]


def test_what_everyone_says_later() -> None:
    for credit in starts():
        v = np.nan_to_num(credit.value)
        credit = credit.of(v)
        every, last = [NAN] * len(v), [NAN] * len(v)
        for chain in rounds_of(credit):
            for m, here in enumerate(chain):
                odds = [0.3 ** (k - m) for k in range(m, len(chain))]
                later = sum(p * mean(v, us) for p, us in zip(odds[1:], chain[m + 1 :], strict=True))
                for u in here:
                    every[u] = (v[u] + later) / sum(odds)
                    last[u] = mean(v, chain[-1])
        same(apply(credit, "peers_ahead()").value, every)
        same(apply(credit, 'peers_ahead(who="last")').value, last)


def loss_weights(credit: Credit) -> dict[str, list[float]]:
    """For each way to weigh, one over how many share with a unit what it is to share."""
    n, batch = len(credit.value), find("key", "batch")(credit.trace, "turn").tolist()
    run, who = credit.rollout.tolist(), units.agents(credit.trace, "turn").tolist()
    there = [u for u in range(n) if credit.value[u] == credit.value[u]]
    weights: dict[str, list[float]] = {by: [NAN] * n for by in ("token", "rollout", "root", "sequence", "agent")}
    for u in there:
        peers = [i for i in there if batch[i] == batch[u]]
        runs, agents = len({run[i] for i in peers}), len({who[i] for i in peers})
        own_run, own = sum(run[i] == run[u] for i in peers), sum(who[i] == who[u] for i in peers)
        team = len({who[i] for i in peers if run[i] == run[u]})
        weights["token"][u] = 1 / len(peers)
        weights["rollout"][u] = 1 / own_run / runs
        weights["root"][u] = 1 / runs
        weights["sequence"][u] = 1 / own / agents
        weights["agent"][u] = 1 / own / team / runs
    return weights


def test_how_much_each_unit_counts_in_a_loss() -> None:
    for credit in starts():
        for by, want in loss_weights(credit).items():
            weighed = apply(credit, f'weigh("{by}")')
            assert weighed.weight is not None
            same(weighed.weight, want)
            same(weighed.value, credit.value)


@pytest.mark.parametrize("d", [1, 4, 7])
def test_resampling_fills_d_places_and_nobody_twice_before_everyone_once(d: int) -> None:
    for credit in starts():
        drawn = apply(credit, f'resample(by=("task", "role"), d={d})')
        assert drawn.weight is not None
        _, held = members(credit, ("task", "role"))
        for us in held.values():
            places = [drawn.weight[u] for u in us]
            assert sum(places) == pytest.approx(d)
            assert min(places) >= d // len(us)
            assert max(places) <= -(-d // len(us))
        assert np.isnan(drawn.weight[np.isnan(credit.value)]).all()


def origin(trace: Trace, row: int) -> tuple[int, int]:
    """The first run that has a row, up the branches, and the row's place there."""
    run = int(trace.rollout_e[row])
    local = row - int(trace.first_of("e")[run])
    while (parent := trace.parent_n.strings()[run]) is not None and local < trace.branch_n[run]:
        run = trace.trace_id_n.strings().index(parent)
    return run, local


def test_a_node_is_worth_the_mean_of_the_runs_that_hold_it() -> None:
    trace = forest(10)
    dice = np.random.default_rng(4)
    for unit in ("turn", "message"):
        n = len(units.rows(trace, unit))
        credit = Credit(trace, unit, np.where(dice.random(n) < 0.2, np.nan, dice.normal(size=n)))
        node = [origin(trace, row) for row in acts(trace, unit)]
        held: dict[object, list[float]] = defaultdict(list)
        for u, key in enumerate(node):
            if credit.value[u] == credit.value[u]:
                held[key].append(credit.value[u])
        want = [sum(held[k]) / len(held[k]) if v == v else NAN for k, v in zip(node, credit.value, strict=True)]
        same(apply(credit, "subtree_mean()").value, want)


def inside_of(trace: Trace, finer: str, coarser: str) -> dict[int, list[int]]:
    """The finer units inside each coarser one."""
    held: dict[int, list[int]] = defaultdict(list)
    for u, c in enumerate(units.within(trace, finer, coarser).tolist()):
        held[c].append(u)
    return held


def sizes(trace: Trace, unit: str, by: str) -> list[float]:
    """How much each unit weighs: alike, by the tokens that its events wrote, or by the time they took."""
    n = len(units.rows(trace, unit))
    if by == "equal" or unit == "token":
        return [1.0] * n
    column = trace.tokens_out_e if by == "tokens" else np.maximum(0.0, trace.end_e - trace.t_e)
    total = [0.0] * n
    for e, p in enumerate(units.place(trace, unit).tolist()):
        if p >= 0 and column[e] == column[e]:
            total[p] += float(column[e])
    return total


@pytest.mark.parametrize("by", ["equal", "tokens", "time"])
@pytest.mark.parametrize(
    ("coarser", "finer"), [("team", "turn"), ("agent", "turn"), ("team", "agent"), ("agent", "message")]
)
def test_credit_that_goes_down_and_up(coarser: str, finer: str, by: str) -> None:
    for credit in starts(coarser):
        trace, v = credit.trace, credit.value
        held, size = inside_of(trace, finer, coarser), sizes(trace, finer, by)
        copied, shared = ([NAN] * len(units.rows(trace, finer)) for _ in range(2))
        for c, us in held.items():
            for u in us if c >= 0 else ():
                whole = sum(size[i] for i in us)
                copied[u] = v[c]
                shared[u] = v[c] * (size[u] / whole if whole > 0 else 1 / len(us))
        same(apply(credit, f'to("{finer}")').value, copied)
        same(apply(credit, f'to("{finer}", "share", "{by}")').value, shared)
    for credit in starts(finer):
        trace, v = credit.trace, np.nan_to_num(credit.value)
        if (units.within(trace, finer, coarser) < 0).any():
            continue
        held, n = inside_of(trace, finer, coarser), len(units.rows(trace, coarser))
        known = {int(r) for r in credit.rollout}
        run = units.rollouts(trace, coarser).tolist()
        total = [sum(v[u] for u in held[c]) if run[c] in known else NAN for c in range(n)]
        same(apply(credit.of(v), f'to("{coarser}", "sum")').value, total)
        mean_ = [t / len(held[c]) if held[c] else NAN for c, t in enumerate(total)]
        same(apply(credit.of(v), f'to("{coarser}", "mean")').value, mean_)


@pytest.mark.parametrize("by", ["equal", "tokens"])
def test_a_credit_that_is_made_to_add_up(by: str) -> None:
    for given in starts("turn"):
        trace = given.trace
        dice = np.random.default_rng(5)
        whole = dice.normal(size=len(trace))
        size, v = sizes(trace, "turn", by), given.value
        want = [NAN] * len(v)
        for n in range(len(trace)):
            us = [u for u, m in enumerate(given.rollout.tolist()) if m == n and v[u] == v[u]]
            left, weight = whole[n] - sum(v[u] for u in us), sum(size[u] for u in us)
            for u in us:
                want[u] = v[u] + left * (size[u] / weight if weight > 0 else 1 / len(us))
        made = closed(Credit(trace, "team", whole), lambda _, given=given: given, by)  # type: ignore[arg-type, misc]
        same(made.value, want)


def test_how_often_units_count() -> None:
    """Every unit once, every run once, or every different value once."""
    for credit in starts(coarse=True):
        group, held = members(credit, ("task",))
        for count in ("row", "rollout", "unique"):
            share = [0.0] * len(group)
            for us in held.values():
                for u in us:
                    alike = credit.rollout if count == "rollout" else credit.value
                    share[u] = 1.0 if count == "row" else 1 / sum(alike[i] == alike[u] for i in us)
            same(counts(credit, group, count), share)  # type: ignore[arg-type]
            made = moments(credit, "task", count, 1)  # type: ignore[arg-type]
            for g, us in held.items():
                n = sum(share[u] for u in us)
                middle = sum(share[u] * credit.value[u] for u in us) / n
                off = sum(share[u] * (credit.value[u] - middle) ** 2 for u in us)
                assert made.mean[g] == pytest.approx(middle)
                assert made.variance[g] == pytest.approx(off / (n - 1) if n > 1 + 1e-9 else 0.0, abs=1e-12)
                assert made.alone[g] == ((len(us) if count == "unique" else round(n, 9)) < 2)


def test_generalised_advantages_from_token_to_token() -> None:
    """Tokens that were given to the policy are passed over; of generations that began at once the mean comes next."""
    for trace in teams():
        dice = np.random.default_rng(6)
        n = len(trace.owner_k)
        given = dice.random(n) < 0.2
        trace = replace(trace, mask_k=np.where(given, 0, 1))
        v = np.concatenate([np.array(json.loads(w or "[]")) for w in trace.extra_e["values"].strings()])
        credit = Credit(trace, "token", dice.normal(size=n))
        want = [NAN] * n
        for run in range(len(trace)):
            rows = [e for e in np.unique(trace.owner_k).tolist() if trace.rollout_e[e] == run]
            timed = not any(np.isnan(trace.t_e[rows]))
            places = [
                (float(trace.t_e[e]) if timed else float(e), k, u)
                for e in rows
                for k, u in enumerate(np.flatnonzero(trace.owner_k == e).tolist())
            ]
            places = [p for p in places if not given[p[2]]]
            moments_ = [[u for t, k, u in places if (t, k) == at] for at in sorted({(t, k) for t, k, _ in places})]
            after, then = 0.0, 0.0
            for here in reversed(moments_):
                for u in here:
                    want[u] = float(credit.value[u] + 0.9 * then - v[u] + 0.9 * 0.8 * after)
                after, then = sum(want[u] for u in here) / len(here), float(sum(v[u] for u in here) / len(here))
        same(apply(credit, 'token_gae("values", 0.9, 0.8)').value, want)


def test_groups_that_teach_nothing_and_what_was_written_alike() -> None:
    for credit in starts("turn"):
        trace = credit.trace
        even = replace(trace, reward_n={**trace.reward_n, "flag": (np.arange(len(trace)) % 2 == 0) * 1.0})
        credit = replace(credit, trace=even)
        group = groups(credit, "task").tolist()
        x = even.reward_n["flag"][credit.rollout]
        varied = {g for g in group if g >= 0 and len({float(x[u]) for u in range(len(group)) if group[u] == g}) > 1}
        want = [v if group[u] in varied else NAN for u, v in enumerate(credit.value)]
        same(apply(credit, "drop_even(reward=\"outcome('flag')\")").value, want)
        wrote = [
            (g, trace.content_ref_e[r] or trace.chosen_e[r])
            for g, r in zip(groups(credit, ("task", "agent", "turn")).tolist(), credit.rows.tolist(), strict=True)
        ]
        for how in ("sum", "mean"):
            paid = []
            for u, v in enumerate(credit.value):
                alike = [
                    credit.value[i]
                    for i in range(len(wrote))
                    if wrote[i] == wrote[u] and credit.value[i] == credit.value[i]
                ]
                told = wrote[u][0] >= 0 and wrote[u][1] is not None and v == v
                paid.append(sum(alike) / (len(alike) if how == "mean" else 1) if told else NAN)
            same(apply(credit, f'cross_marginal("{how}")').value, paid)
