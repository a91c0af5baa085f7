"""Whether Shapley values and partitions are exact: `python -m bench.shapley [--full] [--json]`.

Every figure is a worst error: over random games against the average over all orders, over games with a closed form, over coalitions
that were played as masked runs, and over random traces whose reward was split.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations
from math import comb

import numpy as np

from bench.table import Row, at_most, command, fact
from podium.credit.partition import Claim, Partition, partition
from podium.credit.shapley import antithetic_orders, sampled_values, shapley_values, spawn_shapley_values
from podium.graph import units
from podium.trace.columns import F, Text, Trace
from podium.trace.vocabulary import DECISIONS, EDGE_TYPES, EVENT_TYPES

__all__ = [
    "all_orders",
    "closed_forms",
    "glove",
    "measure",
    "orders_error",
    "partition_error",
    "random_traces",
    "sampling_error",
    "spawn_orders_error",
]


def measure(full: bool) -> list[Row]:
    games, traces = (40, 10_000) if full else (2, 200)
    exact = "worst error of exact Shapley values"
    rows = [
        at_most(
            "5.3.orders",
            f"{exact} against all orders, {games} games of each size to 7",
            orders_error(games),
            1e-9,
            "exact",
        ),
        at_most(
            "5.3.spawn-orders",
            f"{exact} where agents create agents against all orders, {games} games of each size to 7",
            spawn_orders_error(games),
            1e-9,
            "exact",
        ),
    ]
    rows += [
        at_most(
            f"5.3.{name}", f"{exact} of {name} games to 12 agents against the closed form", error, 1e-9, "exact"
        )
        for name, error in closed_forms(12).items()
    ]
    plain, paired = sampling_error(4000 if full else 20)
    rows += [
        at_most(
            "5.3.partition",
            f"worst gap of {traces:,} random traces split over units and channels",
            partition_error(traces),
            1e-9,
            "exact",
        ),
        fact(
            "5.3.sampled.rms", "root mean square error of 64 random orders, 8 agents, majority with a leader", plain
        ),
        fact("5.3.antithetic.rms", "the same with 32 antithetic pairs", paired),
    ]
    return rows


def all_orders(worth: F, spawner: tuple[int, ...] | None = None) -> F:
    """The mean of what each player adds, over all orders in which nobody comes before their spawner, one by one."""
    n = worth.shape[-1].bit_length() - 1
    by = spawner or (-1,) * n
    total, count = np.zeros(n), 0
    for order in permutations(range(n)):
        if any(by[a] >= 0 and order.index(by[a]) > order.index(a) for a in range(n)):
            continue
        inside = 0
        for a in order:
            total[a] += worth[inside | 1 << a] - worth[inside]
            inside |= 1 << a
        count += 1
    return total / count


def orders_error(games: int, most: int = 7) -> float:
    """The worst error over random games of each size."""
    dice, worst = np.random.default_rng(0), 0.0
    for n in range(1, most + 1):
        worth = dice.normal(size=(games, 1 << n))
        exact = shapley_values(worth)
        worst = max(worst, *(float(np.abs(e - all_orders(w)).max()) for w, e in zip(worth, exact, strict=True)))
    return worst


def spawn_orders_error(games: int, most: int = 7) -> float:
    """The same over random trees of spawns; what cannot be, a child without its spawner, is NaN and must not be read."""
    dice, worst = np.random.default_rng(1), 0.0
    for n in range(1, most + 1):
        for _ in range(games):
            label = dice.permutation(n)
            spawner = np.full(n, -1)
            for k in range(n):
                spawner[label[k]] = -1 if k == 0 or dice.random() < 0.25 else label[dice.integers(k)]
            by = tuple(int(b) for b in spawner)
            worth = dice.normal(size=1 << n)
            for s in range(1 << n):
                if any(s >> a & 1 and by[a] >= 0 and not s >> by[a] & 1 for a in range(n)):
                    worth[s] = np.nan
            worst = max(worst, float(np.abs(spawn_shapley_values(worth, by) - all_orders(worth, by)).max()))
    return worst


def closed_forms(most: int) -> dict[str, float]:
    """The worst error of each kind of game with a closed form, over all sizes."""
    worst = dict.fromkeys(("additive", "majority", "glove", "spawn-chain"), 0.0)
    dice = np.random.default_rng(2)
    for n in range(1, most + 1):
        bit = (np.arange(1 << n)[:, None] >> np.arange(n)) & 1
        size = bit.sum(axis=1)
        own, steps = dice.normal(size=n), dice.normal(size=n)
        reached = np.concatenate([[0.0], np.cumsum(steps)])[
            np.cumprod(bit, axis=1).sum(axis=1)
        ]  # by the chain from the first on
        below = np.cumsum((steps / np.arange(1, n + 1))[::-1])[::-1]  # a step is shared by all that it needs
        chain = tuple(range(-1, n - 1))
        errors = {
            "additive": [shapley_values(bit @ own) - own],
            "majority": [shapley_values((2 * size > n).astype(float)) - 1 / n],
            "glove": [shapley_values(_gloves(bit, left)) - glove(n, left) for left in range(n + 1)],
            "spawn-chain": [shapley_values(reached) - below, spawn_shapley_values(reached, chain) - steps],
        }
        worst = {k: max(w, *(float(np.abs(e).max()) for e in errors[k])) for k, w in worst.items()}
    return worst


def _gloves(bit: F, left: int) -> F:
    """A pair is worth 1: the first `left` players have a left glove each, the others a right one."""
    pairs: F = np.minimum(bit[:, :left].sum(axis=1), bit[:, left:].sum(axis=1)).astype(np.float64)
    return pairs


def glove(n: int, left: int) -> F:
    """The closed form: a player makes a pair if among those before it the other side is ahead of its own.

    φ = 1/n Σ_s P( own < other among s drawn from the rest ),   hypergeometric, in fractions

    >>> [str(Fraction(x).limit_denominator(99)) for x in glove(3, 1)]
    ['2/3', '1/6', '1/6']
    """

    def one(own: int, other: int) -> float:
        ahead = (
            Fraction(comb(own - 1, a) * comb(other, b), comb(n - 1, a + b))
            for a in range(own)
            for b in range(a + 1, other + 1)
        )
        return float(sum(ahead, Fraction(0)) / n)

    right = n - left
    return np.array([one(left, right)] * left + [one(right, left)] * right)


def sampling_error(repeats: int) -> tuple[float, float]:
    """Root mean square errors of 64 orders, drawn one by one and in antithetic pairs, in a game with a veto."""
    n, many = 8, 64
    bit = (np.arange(1 << n)[:, None] >> np.arange(n)) & 1
    worth = ((bit.sum(axis=1) > n / 2) & (bit[:, 0] > 0)).astype(np.float64) + 0.1 * bit.sum(axis=1)
    exact, sets = shapley_values(worth), np.arange(1 << n)
    dice = np.random.default_rng(3)
    plain, paired = [], []
    for r in range(repeats):
        orders = np.argsort(dice.random((many, n)), axis=1)
        plain.append(sampled_values(sets, worth, orders) - exact)
        paired.append(sampled_values(sets, worth, antithetic_orders(n, many, r)) - exact)
    return float(np.sqrt(np.mean(np.square(plain)))), float(np.sqrt(np.mean(np.square(paired))))


def random_traces(n: int, seed: int = 0, most: int = 24) -> Trace:
    """Runs of random events, agents, roles, edges and tokens: anything that columns can hold."""
    dice = np.random.default_rng(seed)
    crew, length = dice.integers(1, 6, n), dice.integers(1, most + 1, n)
    run_a, run_e = np.repeat(np.arange(n), crew), np.repeat(np.arange(n), length)
    first_a, first_e = np.cumsum(crew) - crew, np.cumsum(length) - length
    events = len(run_e)
    local = np.arange(events) - first_e[run_e]
    kind = dice.integers(0, len(EVENT_TYPES), events)
    edges = np.flatnonzero((local > 0) & (dice.random(events) < 0.8))
    tokens = np.repeat(np.arange(events), dice.choice([0, 0, 3], events))
    return Trace.of(
        trace_id_n=Text.of(f"run {i}" for i in range(n)),
        task_id_n=Text.constant("task", n),
        rollout_a=run_a,
        name_a=Text((np.arange(len(run_a)) - first_a[run_a]).astype(np.int32), [f"agent {i}" for i in range(5)]),
        rollout_e=run_e,
        t_e=local.astype(np.float64),
        type_e=kind,
        agent_e=first_a[run_e] + dice.integers(0, 1 << 30, events) % crew[run_e],
        role_e=Text(dice.integers(-1, 3, events), ("lead", "worker", "critic")),
        decision_e=np.where(kind == 0, dice.integers(0, len(DECISIONS), events), -1),
        tokens_out_e=dice.integers(0, 50, events).astype(np.float64),
        src_x=first_e[run_e[edges]] + dice.integers(0, 1 << 30, len(edges)) % local[edges],
        dst_x=edges,
        type_x=dice.integers(0, len(EDGE_TYPES), len(edges)),
        owner_k=tokens,
        token_k=dice.integers(0, 1000, len(tokens)),
        reward_n={"team": dice.normal(size=n)},
    )


def partition_error(traces: int, seed: int = 0) -> float:
    """The worst gap between a team reward and its parts: added up run by run, and moved to agents first where all parts have one.

    Of each thousand traces every kind of unit is claimed by up to two channels, some inclusive, some with holes.
    """
    worst = 0.0
    for start in range(0, traces, 1000):
        trace = random_traces(min(1000, traces - start), seed + start)
        dice = np.random.default_rng([seed, start])
        every = [claim for unit in units.UNITS for claim in _claims(trace, unit, dice)]
        fine = [claim for claim in every if claim.unit in ("team", "agent") or units.finer(claim.unit, "agent")]
        whole = trace.reward_n["team"]
        worst = max(worst, float(np.abs(_added(partition(trace, whole, every)) - whole).max()))
        at_agents = partition(trace, whole, fine).at("agent")
        worst = max(worst, float(np.abs(np.bincount(trace.rollout_a, at_agents) - whole).max()))
    return worst


def _claims(trace: Trace, unit: str, dice: np.random.Generator) -> list[Claim]:
    claims = []
    for k in range(int(dice.integers(0, 3))):
        value = dice.normal(size=len(units.rows(trace, unit))) * 10.0 ** dice.integers(-2, 3)
        value[dice.random(len(value)) < 0.2] = np.nan
        claims.append(Claim(f"{unit} {k}", unit, value, bool(dice.random() < 0.5)))
    return claims


def _added(split: Partition) -> F:
    """All parts of each run, one after the other."""
    total = np.zeros(len(split.trace))
    for part in split.parts:
        np.add.at(total, units.rollouts(split.trace, part.unit), part.paid)
    return total


if __name__ == "__main__":
    command(measure, __doc__)
