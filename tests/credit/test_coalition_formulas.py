"""Shapley values where agents spawn agents over several levels, and what a place tells of options that were tried once, as plain loops."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from itertools import combinations, permutations
from math import isnan, nan

import numpy as np
import pytest
from grown import decides, on, run, runs

from podium.credit import Credit, apply
from podium.credit.forest import contexts
from podium.credit.shapley import antithetic_orders, ask_coalitions
from podium.trace.columns import Trace, concat

SEEDS = range(4)
CAST = ("a", "b", "c", "d")


@cache
def chained(seed: int, missing: float = 0.0) -> tuple[Trace, list[dict[str, str]], list[list[str]]]:
    """Runs of four of whom each may be spawned by one before it, and all coalitions of those who are ever masked; with who spawned whom."""
    dice = np.random.default_rng(seed)
    parts: list[Trace] = []
    spawners: list[dict[str, str]] = []
    players: list[list[str]] = []
    for i in range(6):
        by = {c: CAST[int(dice.integers(k))] for k, c in enumerate(CAST) if k and dice.random() < 0.8}
        masked = sorted(dice.choice(CAST, size=int(dice.integers(1, 5)), replace=False).tolist())
        events = [on(f"spawn {up}>{low}") for low, up in by.items()]
        events += [
            on(f"spawn {dice.choice([c for c in CAST if c != low])}>{low}") for low in by
        ]  # only the first counts
        parts.append(run(*events, *(on(f"say {c}") for c in CAST), name=f"t{i}", team=float(dice.normal())))
        for n in range(len(masked) + 1):
            for gone in combinations(masked, n):
                for again in range(0 if n and dice.random() < missing else 1 + (seed % 2)):
                    there = [on(f"say {c}") for c in CAST if c not in gone]
                    do = {"what": "mask", "value": list(gone)}
                    own = f"t{i}-{''.join(gone)}-{again}"
                    parts.append(run(*there, name=own, parent=f"t{i}", branch=0, do=do, team=float(dice.normal())))
        spawners.append(by)
        players.append(masked)
    return runs(*parts), spawners, players


def tree(trace: Trace, n: int) -> int:
    return int(str(trace.trace_id_n[n])[1])


def above(by: dict[str, str], players: list[str], name: str) -> str | None:
    """The nearest player above one, if there is one."""
    up = by.get(name)
    while up is not None and up not in players:
        up = by.get(up)
    return up


def games(
    trace: Trace, spawners: list[dict[str, str]], players: list[list[str]], spawning: bool
) -> dict[int, dict[frozenset[str], float]]:
    """What each coalition of each tree earned on average: who is masked takes with it all that it would have spawned."""
    held: dict[int, dict[frozenset[str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for n in range(len(trace)):
        i = tree(trace, n)
        gone = set(json.loads(str(trace.do_n[n]))["value"]) if trace.do_n[n] else set()
        for _ in CAST if spawning else ():
            gone |= {p for p in players[i] if above(spawners[i], players[i], p) in gone}
        held[i][frozenset(players[i]) - gone].append(float(trace.reward_n["team"][n]))
    return {i: {c: sum(v) / len(v) for c, v in worths.items()} for i, worths in held.items()}


@pytest.mark.parametrize("spawning", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_values_over_all_orders_that_can_be(seed: int, spawning: bool) -> None:
    trace, spawners, players = chained(seed)
    worth = games(trace, spawners, players, spawning)
    want = []
    for a, n in enumerate(trace.rollout_a.tolist()):
        i, name = tree(trace, n), str(trace.name_a[a])
        if name not in players[i] or (trace.do_n[n] and json.loads(str(trace.do_n[n]))["value"]):
            want.append(nan)
            continue
        ups = {p: above(spawners[i], players[i], p) for p in players[i]} if spawning else {}
        orders = [
            o
            for o in permutations(players[i])
            if all(up is None or o.index(up) < o.index(p) for p, up in ups.items())
        ]
        before = [frozenset(o[: o.index(name)]) for o in orders]
        want.append(sum(worth[i][s | {name}] - worth[i][s] for s in before) / len(orders))
    got = apply(Credit(trace, "team", trace.reward_n["team"]), "spawn_shapley()" if spawning else "shapley()")
    np.testing.assert_allclose(got.value, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("spawning", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_values_over_some_orders_as_far_as_coalitions_were_played(seed: int, spawning: bool) -> None:
    trace, spawners, players = chained(seed, 0.4)
    worth = games(trace, spawners, players, spawning)
    want = []
    for a, n in enumerate(trace.rollout_a.tolist()):
        i, name = tree(trace, n), str(trace.name_a[a])
        mine = [p for p in players[i] if any(p not in c for c in worth[i])]  # whom no run masks is no player
        record = [
            w for w, m in zip(trace.name_a.strings(), trace.rollout_a.tolist(), strict=True) if tree(trace, m) == i
        ]
        cast = [p for p in dict.fromkeys(map(str, record)) if p in mine]
        if name not in mine or (trace.do_n[n] and json.loads(str(trace.do_n[n]))["value"]):
            want.append(nan)
            continue
        ups = [above(spawners[i], cast, p) if spawning else None for p in cast]
        spawner = tuple(-1 if up is None else cast.index(up) for up in ups)
        added = []
        for order in antithetic_orders(len(cast), 3, 7, spawner).tolist():
            names = [cast[k] for k in order]
            s = frozenset(names[: names.index(name)])
            held = {frozenset(c) & frozenset(cast): v for c, v in worth[i].items()}
            added.append(held.get(s | {name}, nan) - held.get(s, nan))
        known = [x for x in added if not isnan(x)]
        want.append(sum(known) / len(known) if known else nan)
    step = f"{'spawn_' if spawning else ''}shapley(permutations=3, seed=7)"
    got = apply(Credit(trace, "team", trace.reward_n["team"]), step)
    np.testing.assert_allclose(got.value, want, rtol=1e-9, atol=1e-9)


def test_the_coalitions_that_are_asked_for() -> None:
    trace = runs(
        run("say a", "say b", "say c"),
        run("say a", parent="run0", branch=0, do={"what": "mask", "value": ["b", "c"]}),
    )
    asked = ask_coalitions(concat([trace, runs(run("say c"))]), ("a", "b", "c"))
    masks = [set(names) for n in (3, 2, 1) for names in combinations("abc", n)]
    assert len(asked) == 2 * len(masks)
    for row in (0, 4):
        assert sorted(sorted(d.value) for d in asked if d.row == row) == sorted(map(sorted, masks))
    some = ask_coalitions(trace, ("a", "b", "c"), permutations=1, seed=3)
    order = antithetic_orders(3, 1, 3)[0].tolist()
    assert sorted(tuple(d.value) for d in some) == sorted(
        tuple("abc"[k] for k in range(3) if k not in order[:m]) for m in range(3)
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_where_no_option_was_tried_twice_the_place_tells_what_outcomes_vary_by(seed: int) -> None:
    dice, parts, task = np.random.default_rng(seed), [], []
    for i in range(8):
        options = "xyz"[: int(dice.integers(2, 4))]
        task.append(str(dice.choice(["q", "r"])))
        for k, o in enumerate(options):
            more = {"parent": f"t{i}", "branch": 0, "do": {"what": "choose", "value": o}} if k else {}
            parts.append(
                run(
                    decides(o, options),
                    name=f"t{i}" if not k else f"t{i}{o}",
                    task=task[-1],
                    team=float(dice.normal()),
                    **more,
                )
            )  # type: ignore[arg-type]
    trace = runs(*parts)
    credit = Credit(trace, "orchestrator", trace.reward_n["team"])
    assert len(set(contexts(trace, credit.rows).tolist())) == 8
    value, top = credit.value.tolist(), [tree(trace, m) for m in range(len(trace))]
    option, n = [str(o) for o in trace.chosen_e.strings()], len(value)
    own = []
    for u in range(n):
        mine = [value[v] for v in range(n) if top[v] == top[u]]
        own.append(value[u] - sum(mine) / len(mine))
    want = []
    for u in range(n):
        place = [v for v in range(n) if task[top[v]] == task[top[u]]]
        middle = sum(value[v] for v in place) / len(place)
        one = sum((value[v] - middle) ** 2 for v in place) / len(place)
        peers = {v: [w for w in place if option[w] == option[v]] for v in place}
        mean = {v: sum(own[w] for w in peers[v]) / len(peers[v]) for v in place}
        size = {v: sum(top[w] == top[v] for w in place) for v in place}
        noise = {v: one * ((1 - 1 / size[v]) ** 2 + (size[v] - 1) / size[v] ** 2) for v in place}
        free = sum(1 - 1 / len(peers[v]) for v in place)
        excess = sum((own[v] - mean[v]) ** 2 - noise[v] * (1 - 1 / len(peers[v])) for v in place)
        tau = max(excess / free, 0.0) if free else 0.0
        keep = tau / (tau + noise[u])
        want.append(mean[u] + (own[u] - mean[u]) * keep if len(peers[u]) > 1 else own[u])
    got = apply(credit, 'pooled_prefix(by="task", baseline="mean")').value
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
