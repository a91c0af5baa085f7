"""What is made of branches, against formulas written once more as plain loops, on forests by dice of which some runs were not scored."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import permutations
from math import isnan, nan, sqrt

import numpy as np
import pytest
from grown import decides, on, run, runs
from teams import acts, forest

from podium.credit import Credit, apply
from podium.credit.branches import alternatives, chance
from podium.credit.forest import contexts, copies, nodes, parents, roots
from podium.credit.masks import mask_runs
from podium.graph import units
from podium.interval import student
from podium.metrics.effects import effects
from podium.trace.columns import Text, Trace

Options = dict[int, dict[str, list[int]]]


def outcome(kind: str, option: str, dice: np.random.Generator) -> float:
    """Two values that are 0 and 1, two others, one value for an option, one for all, or any."""
    if kind == "same":
        return 0.5
    if kind == "steady" and option == "x":
        return 0.25
    if kind in ("binary", "two"):
        return float(dice.random() < 0.5) * (1.0 if kind == "binary" else 0.75) + (kind == "two") * 0.125
    return float(dice.normal())


def tree(
    name: str, kind: str, paired: bool, batch: int, dice: np.random.Generator
) -> tuple[list[Trace], list[str | None]]:
    """A run of three decisions, branches of it, and branches of those; `paired` ones come in sets of one seed."""
    many = int(dice.integers(2, 5))
    options, task = "xyzw"[:many], (None, "q", "r")[int(dice.integers(3))]
    parts: list[Trace] = []
    seeds: list[str | None] = []

    def add(taken: str, at: int, above: str | None, seed: str | None) -> str:
        odds = dice.random(many).round(2)
        events = [decides(o, options, pi=(odds / odds.sum()).tolist()) for o in taken]
        do = None if above is None else {"what": "choose", "value": taken[at]}
        score = nan if above and not paired and dice.random() < 0.12 else outcome(kind, taken[max(at, 0)], dice)
        own = f"{name}{len(parts)}"
        parts.append(run(*events, name=own, task=task, batch=batch, parent=above, branch=at, do=do, team=score))  # type: ignore[arg-type]
        seeds.append(seed)
        return own

    def drawn(n: int) -> str:
        return "".join(options[i] for i in dice.integers(many, size=n))

    root = drawn(3)
    first = add(root, -1, None, None if dice.random() < 0.5 else "s0")
    for s in range(int(dice.integers(2, 4)) if paired else 0):
        for o in options:
            add(o + drawn(2), 0, first, f"s{s + 1}")
    for _ in range(0 if paired else 9):
        at = int(dice.integers(2))
        taken = root[:at] + drawn(3 - at)
        second = add(taken, at, first, None if dice.random() < 0.5 else f"s{dice.integers(3)}")
        if dice.random() < 0.3:
            add(taken[:2] + drawn(1), 2, second, None)
    return parts, seeds


@cache
def grove(seed: int) -> Trace:
    dice = np.random.default_rng(seed)
    kinds = [(k, p) for k in ("same", "steady", "binary", "two", "any") for p in (False, True)]
    grown = [tree("abcdefghij"[i], k, p, i % 2, dice) for i, (k, p) in enumerate(kinds)]
    trace = runs(*(part for parts, _ in grown for part in parts))
    trace = replace(trace, seed_n=Text.of(s for _, seeds in grown for s in seeds))
    return trace if seed % 2 else trace[dice.permutation(len(trace))]  # a branch may come before what it left


def start(trace: Trace) -> Credit:
    return Credit(trace, "orchestrator", trace.reward_n["team"][trace.rollout_e])


def place(trace: Trace, row: int, beyond: int) -> tuple[int, int]:
    """The first run that has a row, up the branches, and the row's place there; with 1 beyond, that has what came before it."""
    at = int(trace.rollout_e[row])
    local = row - int(trace.first_of("e")[at])
    names = trace.trace_id_n.strings()
    while (above := trace.parent_n.strings()[at]) is not None and local < trace.branch_n[at] + beyond:
        at = names.index(above)
    return at, local


class Told:
    """The decisions of each context that tell what their option is worth, by option."""

    def __init__(self, credit: Credit):
        trace, self.value = credit.trace, credit.value.tolist()
        self.run = trace.rollout_e.tolist()
        self.context = [place(trace, row, 1) for row in range(trace.n_events)]
        self.chosen = [str(c) for c in trace.chosen_e.strings()]
        self.options: dict[tuple[int, int], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for row, at in enumerate(self.context):
            n = self.run[row]
            copied = trace.parent_n.codes[n] >= 0 and row - trace.first_of("e")[n] < trace.branch_n[n]
            if not copied and not isnan(self.value[row]):
                self.options[at][self.chosen[row]].append(row)

    def mean(self, rows: list[int]) -> float:
        return sum(self.value[r] for r in rows) / len(rows)


def same(got: np.ndarray, want: list[float]) -> None:
    np.testing.assert_allclose(got, np.array(want, float), rtol=1e-9, atol=1e-9)


def partition(numbers: list[object]) -> list[list[int]]:
    alike: dict[object, list[int]] = defaultdict(list)
    for i, n in enumerate(numbers):
        alike[n].append(i)
    return sorted(alike.values())


SEEDS = range(4)


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_of_one_event_and_of_one_context(seed: int) -> None:
    trace = grove(seed)
    rows = np.arange(trace.n_events)
    assert partition(nodes(trace, rows).tolist()) == partition([place(trace, r, 0) for r in rows.tolist()])
    assert partition(contexts(trace, rows).tolist()) == partition([place(trace, r, 1) for r in rows.tolist()])
    names = trace.trace_id_n.strings()
    above = [-1 if p is None else names.index(p) for p in trace.parent_n.strings()]
    assert parents(trace).tolist() == above
    top = list(range(len(trace)))
    while any(above[n] >= 0 for n in top):
        top = [n if above[n] < 0 else above[n] for n in top]
    assert roots(trace).tolist() == top
    local = rows - trace.first_of("e")[trace.rollout_e]
    held = [above[n] >= 0 and local[r] < trace.branch_n[n] for r, n in enumerate(trace.rollout_e.tolist())]
    assert copies(trace, rows).tolist() == held


@pytest.mark.parametrize("seed", SEEDS)
def test_what_each_option_earned_and_what_beats_the_others(seed: int) -> None:
    credit = start(grove(seed))
    told, trace = Told(credit), credit.trace
    odds = [
        dict(zip(trace.options(row), json.loads(p), strict=True))
        for row, p in enumerate(trace.extra_e["pi"].strings())
    ]
    first = {at: min(r for r, c in enumerate(told.context) if c == at) for at in set(told.context)}
    want: dict[str, list[float]] = defaultdict(list)
    for row, at in enumerate(told.context):
        options = told.options[at]
        q = {o: told.mean(rows) for o, rows in options.items()}
        own = told.chosen[row]
        want["n"].append(len(options.get(own, [])))
        want["mean"].append(q.get(own, nan))
        paid = own in q and len(q) > 1 and not isnan(told.value[row])
        others = [q[o] for o in q if o != own]
        pi = {o: odds[first[at]][o] for o in q}
        want["loo"].append(q[own] - sum(others) / len(others) if paid else nan)
        want["average"].append(q[own] - sum(q.values()) / len(q) if paid else nan)
        want["policy"].append(q[own] - sum(pi[o] * q[o] for o in q) / sum(pi.values()) if paid else nan)
    alts = alternatives(credit, "option")
    same(alts.n[alts.of_u], want["n"])
    same(alts.mean[alts.of_u], want["mean"])
    same(apply(credit, 'same_prefix("loo", same="option")').value, want["loo"])
    same(apply(credit, 'same_prefix("mean", same="option")').value, want["average"])
    same(apply(credit, 'same_prefix("policy", same="option")').value, want["policy"])


def ends(
    told: Told, at: tuple[int, int], by_task: dict[object, list[float]], task: Callable[[int], object]
) -> tuple[float, float, bool]:
    """The lowest and the highest outcome of a context, and whether there are only these two."""
    rows = [r for held in told.options[at].values() for r in held]
    values = [told.value[r] for r in rows]
    different = set(values)
    if different <= {0.0, 1.0}:
        return 0.0, 1.0, True
    wide = sorted(different) if len(different) > 1 else sorted(set(by_task[task(rows[0])]))
    low, high = (wide[0], wide[-1]) if len(wide) > 1 else (nan, nan)
    return low, high, len(different) <= 2 and len(values) > len(different)


def sets_of(told: Told, at: tuple[int, int], trace: Trace) -> list[dict[str, int]]:
    """The sets of one seed, a run an option, if all branches of the context are in such; else none."""
    by_seed: dict[str, list[int]] = defaultdict(list)
    options = told.options[at]
    for r in (r for held in options.values() for r in held):
        if (seed := trace.seed_n.strings()[told.run[r]]) is not None:
            by_seed[seed].append(r)
    whole = [rows for rows in by_seed.values() if sorted(told.chosen[r] for r in rows) == sorted(options)]
    inside = {r for rows in whole for r in rows}
    left_out = [
        r for held in options.values() for r in held if r not in inside and trace.parent_n.codes[told.run[r]] >= 0
    ]
    return (
        []
        if left_out or len(whole) < 2 or len(options) < 2
        else [{told.chosen[r]: r for r in rows} for rows in whole]
    )


def apart(
    told: Told, options: dict[str, list[int]], own: str, low: float, high: float, only: bool
) -> tuple[float, float]:
    """Welch's interval, with runs at both ends for options whose runs all earned the same."""
    k, centre, noise, spread = len(options), {}, {}, {}
    for o, rows in options.items():
        v, n = [told.value[r] for r in rows], len(rows)
        q = sum(v) / n
        if only or (n > 1 and len(set(v)) == 1):
            m = n + 4 / k
            centre[o] = c = (sum(v) + 2 / k * (low + high)) / m
            noise[o] = (sum((x - c) ** 2 for x in v) + 2 / k * ((low - c) ** 2 + (high - c) ** 2)) / m**2
            spread[o] = 0.0
        else:
            centre[o], noise[o] = q, sum((x - q) ** 2 for x in v) / (n - 1) / n if n > 1 else nan
            spread[o] = noise[o] ** 2 / max(n - 1, 1)
    rest = [o for o in options if o != own]
    variance = noise[own] + sum(noise[o] for o in rest) / (k - 1) ** 2
    below = spread[own] + sum(spread[o] for o in rest) / (k - 1) ** 4
    freedom = int(max(variance**2 / below, 1)) if below > 0 else 100_000
    off = centre[own] - sum(centre[o] for o in rest) / (k - 1)
    half = student(freedom) * sqrt(variance) if variance == variance else nan
    return off - half, off + half


def together(
    told: Told, sets: list[dict[str, int]], own: str, low: float, high: float, only: bool
) -> tuple[float, float, float]:
    """The mean of differences inside sets, and its interval."""
    off = []
    for one in sets:
        others = [told.value[r] for o, r in one.items() if o != own]
        off.append(told.value[one[own]] - sum(others) / len(others))
    n, mean = len(off), sum(off) / len(off)
    if only or max(off) - min(off) < 1e-12:
        centre = sum(off) / (n + 2)
        squares = sum((x - centre) ** 2 for x in [*off, high - low, low - high])
        half = student(100_000) * sqrt(squares) / (n + 2)
        return mean, centre - half, centre + half
    half = student(n - 1) * sqrt(sum((x - mean) ** 2 for x in off) / (n - 1) / n)
    return mean, mean - half, mean + half


@pytest.mark.parametrize("seed", SEEDS)
def test_intervals_of_effects(seed: int) -> None:
    credit = start(grove(seed))
    told, trace = Told(credit), credit.trace
    names = trace.task_id_n.strings()

    def task(row: int) -> object:  # runs that name no task are of one
        n = told.run[row]
        return (int(trace.batch_n[n]), names[n]) if names[n] else None

    by_task: dict[object, list[float]] = defaultdict(list)
    for options in told.options.values():
        for r in (r for held in options.values() for r in held):
            by_task[task(r)].append(told.value[r])
    want: list[list[float]] = []
    kinds = set()
    for row, at in enumerate(told.context):
        options, own = {o: rows for o, rows in told.options[at].items() if rows}, told.chosen[row]
        total = float(sum(len(rows) for rows in options.values()))
        if own not in options or len(options) < 2:
            want.append([nan, nan, nan, total])
            continue
        low, high, only = ends(told, at, by_task, task)
        if sets := sets_of(told, at, trace):
            want.append([*together(told, sets, own, low, high, only), float(len(sets) * len(options))])
        else:
            raw = told.mean(options[own]) - sum(told.mean(options[o]) for o in options if o != own) / (
                len(options) - 1
            )
            want.append([raw, *apart(told, options, own, low, high, only), total])
        kinds.add((bool(sets), only, len(options) > 2))
    assert len(kinds) >= 6
    got = effects(credit)
    for mine, theirs in zip(got, zip(*want, strict=True), strict=True):
        same(mine, list(theirs))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_chance_does_to_an_option(seed: int) -> None:
    """Runs of one seed are taken less their mean, and the square made up for it; each kind of run of an option loses one freedom."""
    credit = start(grove(seed))
    told, trace, alts = Told(credit), credit.trace, alternatives(credit, "option")
    square, freedom = chance(credit, alts)
    for at, options in told.options.items():
        rows = [r for held in options.values() for r in held]
        seeds = {r: trace.seed_n.strings()[told.run[r]] or r for r in rows}
        peers = {r: [i for i in rows if seeds[i] == seeds[r]] for r in rows}
        x = {r: told.value[r] - (told.mean(peers[r]) if len(peers[r]) > 1 else 0.0) for r in rows}
        kind: dict[object, list[int]] = defaultdict(list)
        for r in rows:
            kind[told.chosen[r], len(peers[r]) > 1].append(r)
        total = 0.0
        for alike in kind.values():
            middle = sum(x[r] for r in alike) / len(alike)
            for r in alike:
                size = len(peers[r])
                total += (x[r] - middle) ** 2 * (size / (size - 1) if size > 1 else 1.0)
        where = alts.context[alts.of_u[told.context.index(at)]]
        assert square[where] == pytest.approx(total)
        assert freedom[where] == len(rows) - len(kind)


@pytest.mark.parametrize("baseline", ["mean", "policy"])
@pytest.mark.parametrize("seed", SEEDS)
def test_contrasts_drawn_towards_the_mean_of_their_option_at_a_place(seed: int, baseline: str) -> None:
    credit = start(grove(seed))
    told, trace = Told(credit), credit.trace
    tasks = trace.task_id_n.strings()
    told_of = alternatives(credit, "option")
    squares, frees = chance(credit, told_of)
    own: dict[tuple[tuple[int, int], str], float] = {}
    weight: dict[tuple[tuple[int, int], str], float] = {}
    spot: dict[tuple[int, int], object] = {}
    chances: dict[tuple[int, int], tuple[float, float]] = {}
    for at, every in told.options.items():
        options = {o: rows for o, rows in every.items() if rows}
        first = told.context.index(at)
        n = told.run[first]
        if len(options) < 2:
            continue
        odds = dict(zip(trace.options(first), json.loads(str(trace.extra_e["pi"][first])), strict=True))
        share = {o: odds[o] if baseline == "policy" else 1.0 for o in options}
        q = {o: told.mean(rows) for o, rows in options.items()}
        # there is one agent and one kind of decision; a run without a task is in no place, and its credit is not drawn
        spot[at] = at if tasks[n] is None else (int(trace.batch_n[n]), tasks[n])
        where = told_of.context[told_of.of_u[first]]
        chances[at] = float(squares[where]), float(frees[where])
        for o in options:
            weight[at, o] = share[o] / sum(share.values())
            own[at, o] = q[o] - sum(share[p] * q[p] for p in q) / sum(share.values())
    noise = {}
    for at, o in own:
        here = [c for c in spot if spot[c] == spot[at]]
        square, free = (sum(chances[c][i] for c in here) for i in (0, 1))
        values = [told.value[r] for c in here for rows in told.options[c].values() for r in rows]
        middle = sum(values) / len(values)
        pooled = square / free if free else sum((v - middle) ** 2 for v in values) / len(values)
        one = (chances[at][0] + 4 * pooled) / (chances[at][1] + 4)
        each = {p: one / len(told.options[at][p]) for c, p in own if c == at}
        noise[at, o] = (1 - weight[at, o]) ** 2 * each[o] + sum(
            weight[at, p] ** 2 * each[p] for p in each if p != o
        )
    drawn = {}
    for at, o in own:
        place_of = [key for key in own if spot[key[0]] == spot[at]]
        peers = {p: [own[key] for key in place_of if key[1] == p] for _, p in place_of}
        mean = {p: sum(v) / len(v) for p, v in peers.items()}
        free = sum(1 - 1 / len(peers[p]) for _, p in place_of)
        excess = sum((own[key] - mean[key[1]]) ** 2 - noise[key] * (1 - 1 / len(peers[key[1]])) for key in place_of)
        tau = max(excess / free, 0.0) if free else 0.0
        keep = tau / (tau + noise[at, o]) if noise[at, o] > 0 else 1.0
        drawn[at, o] = mean[o] + (own[at, o] - mean[o]) * keep if len(peers[o]) > 1 else own[at, o]
    want = [
        nan if isnan(told.value[r]) else drawn.get((at, told.chosen[r]), nan) for r, at in enumerate(told.context)
    ]
    got = apply(credit, f'pooled_prefix(baseline="{baseline}")').value
    same(got, want)


# runs in which someone is masked, or something removed


@cache
def masked_runs(seed: int, batches: int = 2) -> Trace:
    """Runs of three or four, of whom some spawn others, and the same without some of them; a mask that came too late does not count."""
    dice = np.random.default_rng(seed)
    parts: list[Trace] = []
    for i in range(8):
        cast = [f"a{k}" for k in range(int(dice.integers(2, 5)))]
        first = [on(f"spawn {cast[0]}>{cast[1]}"), *(on(f"say {a}") for a in dice.permutation(cast))]
        name, batch = f"t{i}", i % batches
        parts.append(run(*first, name=name, batch=batch, team=float(dice.normal())))
        for k in range(1 << len(cast)):
            absent = [a for j, a in enumerate(cast) if k >> j & 1]
            for again in range(int(dice.integers(0, 3)) if i % 4 else 1 + (k == 0)):
                there = [a for a in cast if a not in absent]
                late = dice.random() < 0.1 and bool(absent) and bool(i % 4)
                events = [on(f"say {a}") for a in (cast if late else there)]
                score = nan if dice.random() < 0.1 and i % 4 else float(dice.normal())
                value: object = (
                    absent[0]
                    if len(absent) == 1 and again
                    else [*absent, *(["nobody"] if dice.random() < 0.05 and i % 4 else [])]
                )
                do = {"what": "mask", "value": value}
                parts.append(
                    run(*events, name=f"{name}-{k}-{again}", batch=batch, parent=name, branch=0, do=do, team=score)
                )
        for again in range(3):
            row = int(dice.integers(len(first)))
            kept = [e for j, e in enumerate(first) if j != row]
            do = {"what": "remove", "value": None}
            parts.append(
                run(
                    *kept,
                    name=f"{name}+{again}",
                    batch=batch,
                    parent=name,
                    branch=row,
                    do=do,
                    team=float(dice.normal()),
                )
            )
    order = dice.permutation(len(parts))
    return runs(*(parts[i] for i in order))


def absentees(trace: Trace) -> dict[int, list[str]]:
    """Who is masked in each run that a mask made, those runs left out in which one of them acts."""
    result = {}
    for n, word in enumerate(trace.do_n.strings()):
        do = json.loads(word) if word else {}
        if do.get("what") == "mask":
            names = [do["value"]] if isinstance(do["value"], str) else do["value"]
            acts = {trace.name_a[a] for a in trace.agent_e[trace.rollout_e == n].tolist()}
            if not acts & set(names):
                result[n] = names
    return result


def scored_mean(trace: Trace, runs_: list[int]) -> float:
    values = [v for v in trace.reward_n["team"][runs_].tolist() if not isnan(v)]
    return sum(values) / len(values) if values else nan


@pytest.mark.parametrize("seed", SEEDS)
def test_who_is_masked_where(seed: int) -> None:
    trace = masked_runs(seed)
    masks, want = mask_runs(trace), absentees(trace)
    assert np.flatnonzero(masks.made_n).tolist() == sorted(want)
    got = defaultdict(list)
    for n, word in zip(masks.run.tolist(), masks.name.tolist(), strict=True):
        got[n].append(masks.words[word])
    assert got == {n: names for n, names in want.items() if names}


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_team_earns_without_someone_or_something(seed: int) -> None:
    trace, gone = masked_runs(seed), absentees(masked_runs(seed))
    credit, up = Credit(trace, "team", trace.reward_n["team"]), parents(trace).tolist()
    want = []
    for a, n in enumerate(trace.rollout_a.tolist()):
        without = [m for m, names in gone.items() if up[m] == n and names == [trace.name_a[a]]]
        want.append(trace.reward_n["team"][n] - scored_mean(trace, without))
    same(apply(credit, "masked()").value, want)
    removed = [m for m, word in enumerate(trace.do_n.strings()) if word and json.loads(word)["what"] == "remove"]
    messages = np.flatnonzero(trace.type_e == trace.type_e[trace.first_of("e")[1] - 1]).tolist()
    first = trace.first_of("e")
    want = []
    for r in messages:
        n = int(trace.rollout_e[r])
        without = [m for m in removed if up[m] == n and trace.branch_n[m] == r - first[n]]
        want.append(trace.reward_n["team"][n] - scored_mean(trace, without))
    same(apply(credit, 'masked("message")').value, want)


def orders_of(players: list[str], above: dict[str, str]) -> list[tuple[str, ...]]:
    """All orders in which nobody comes before whoever spawned them."""
    return [o for o in permutations(players) if all(o.index(up) < o.index(a) for a, up in above.items())]


@pytest.mark.parametrize("spawns", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_shapley_values_are_means_over_all_orders(seed: int, spawns: bool) -> None:
    trace, gone = masked_runs(seed), absentees(masked_runs(seed))
    top, value = roots(trace).tolist(), trace.reward_n["team"]
    whole = {n for n in range(len(trace)) if trace.do_n[n] is None}
    want = []
    for a, n in enumerate(trace.rollout_a.tolist()):
        game = [m for m in range(len(trace)) if top[m] == top[n] and (m in whole or m in gone)]
        players = sorted({name for m in game for name in gone.get(m, [])})
        name = str(trace.name_a[a])
        if n not in game or gone.get(n) or isnan(value[n]) or name not in players:
            want.append(nan)
            continue
        above = {"a1": "a0"} if spawns and {"a0", "a1"} <= set(players) else {}

        def worth(
            there: tuple[str, ...],
            game: list[int] = game,
            players: list[str] = players,
            above: dict[str, str] = above,
        ) -> float:
            def absent(m: int) -> set[str]:
                names = set(gone.get(m, []))
                return names | {low for low, up in above.items() if up in names}

            return scored_mean(trace, [m for m in game if absent(m) == set(players) - set(there)])

        added = [worth(o[: o.index(name) + 1]) - worth(o[: o.index(name)]) for o in orders_of(players, above)]
        want.append(sum(added) / len(added))
    assert sum(not isnan(v) for v in want) >= 6
    credit = Credit(trace, "team", value)
    same(apply(credit, "spawn_shapley()" if spawns else "shapley()").value, want)


@pytest.mark.parametrize("along", ["agent", "rollout"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_is_worth_its_own_reward_and_the_mean_of_what_follows(seed: int, along: str) -> None:
    """Of what several do at one moment the last row names the moment; a node that was not scored makes all before it unknown."""
    trace = forest(seed)
    dice = np.random.default_rng(seed)
    node = [place(trace, row, 0) for row in acts(trace, "turn")]
    reward = {k: nan if dice.random() < 0.03 else float(dice.normal()) for k in dict.fromkeys(node)}
    credit = Credit(trace, "turn", np.array([reward[k] for k in node]))
    begins, who = trace.t_e[credit.rows], units.agents(trace, "turn").tolist()
    chains: dict[object, list[int]] = defaultdict(list)
    for u, n in enumerate(credit.rollout.tolist()):
        chains[n, who[u] if along == "agent" else 0].append(u)
    own: dict[object, float] = {}
    below: dict[object, set[object]] = defaultdict(set)
    follows: dict[object, set[object]] = defaultdict(set)
    for us in chains.values():
        moments = [[u for u in us if begins[u] == t] for t in sorted({float(begins[u]) for u in us})]
        names = [node[max(here, key=lambda u: credit.rows[u])] for here in moments]
        for k, here in enumerate(moments):
            own[names[k]] = float(sum(credit.value[u] for u in here) / len(here))
            if k + 1 < len(moments):
                below[names[k]].add(names[k + 1])
                for u in here:
                    follows[node[u]].add(names[k + 1])

    @cache
    def worth(name: object) -> float:
        return own[name] + 0.9 * (sum(map(worth, below[name])) / len(below[name]) if below[name] else 0.0)

    want = []
    for u, k in enumerate(node):
        after = sum(map(worth, follows[k])) / len(follows[k]) if follows[k] else 0.0
        want.append(float(credit.value[u]) + 0.9 * after)
    same(apply(credit, "own_backup(0.9)" if along == "agent" else "tree_backup(0.9)").value, want)
