"""Shapley values: what an agent adds to a team, averaged over the orders in which the team could come together.

A coalition is a bit mask over n players, a game a table of 2^n worths, from runs in which the others were masked
(`masks`). Where agents create agents, only orders and coalitions count in which nobody is there without their
spawner.
"""

from __future__ import annotations

from math import comb, factorial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.credit.credit import BadCredit, Credit
from podium.credit.keys import By, groups, numbered_together
from podium.credit.masks import mask_runs, team_value
from podium.graph.grouping import count_of, mean_by, take
from podium.graph.steps import spawns
from podium.registry import register
from podium.trace.columns import F, I, Trace
from podium.trace.do import Do

__all__ = ["antithetic_orders", "ask_coalitions", "sampled_values", "shapley_values", "spawn_shapley_values"]

MOST_EXACT, MOST = 16, 62  # players: of a whole table, and of a coalition in 64 bits


def shapley_values(worth: F) -> F:
    """Exact Shapley values of games, in one pass over their coalitions. `worth` is (..., 2^n), the result (..., n).

        φ_i = Σ_{S∌i} w(|S|) (v(S ∪ i) - v(S)),   w(s) = s! (n-s-1)! / n!
            = Σ_{S∋i} (w(|S|-1) + w(|S|)) v(S) - Σ_S w(|S|) v(S),   w(n) = w(-1) = 0

    >>> shapley_values(np.array([0.0, 1.0, 2.0, 4.0])).tolist()
    [1.5, 2.5]
    """
    n = worth.shape[-1].bit_length() - 1
    w = np.array([1.0 / (n * comb(n - 1, s)) for s in range(n)] + [0.0])
    bit, size = _members(n)
    inside = np.append(0.0, w[:-1])[size] + w[size]
    values: F = (worth * inside) @ bit - ((worth * w[size]).sum(axis=-1))[..., None]
    return values


def _members(n: int) -> tuple[F, NDArray[np.int64]]:
    """Who is in each of the 2^n coalitions, (2^n, n), and how many they are."""
    bit = ((np.arange(1 << n)[:, None] >> np.arange(n)) & 1).astype(np.float64)
    return bit, bit.sum(axis=1).astype(np.int64)


def spawn_shapley_values(worth: F, spawner: tuple[int, ...]) -> F:
    """Exact values over the orders in which no player comes before its spawner (-1: it is there without one).

        φ_a = Σ_S e(S) r(S ∪ a) / e(all) · (v(S ∪ a) - v(S)),   S that hold the spawner of each member and of a
        e(S) = |S|! / Π_{b∈S} |S ∩ below(b)|,   r(T) = (n-|T|)! / Π_{b∉T} |below(b)|   count orders of S and rest

    below(b) are b and all that it spawned, directly or not. Worths of other coalitions are never read.   from:
    Faigle & Kern 1992.

    >>> spawn_shapley_values(np.array([0.0, 1.0, np.nan, 4.0]), (-1, 0)).tolist()
    [1.0, 3.0]
    """
    n = len(spawner)
    below = _below(spawner)
    bit, size = _members(n)
    sets, inside = np.arange(1 << n), bit > 0
    closed = np.ones(1 << n, np.bool_)
    own, rest = np.ones(1 << n), np.ones(1 << n)
    for a, by in enumerate(spawner):
        closed &= ~inside[:, a] | (by < 0 or inside[:, by])
        under = [b for b in range(n) if below[a] >> b & 1]
        own *= np.where(inside[:, a], bit[:, under].sum(axis=1), 1.0)
        rest *= np.where(inside[:, a], 1.0, len(under))
    fact = np.array([float(factorial(k)) for k in range(n + 1)])
    before, after = fact[size] / own, fact[n - size] / rest
    values = np.empty((*worth.shape[:-1], n))
    for a in range(n):
        s = sets[closed & ~inside[:, a] & closed[sets | 1 << a]]
        weight = before[s] * after[s | 1 << a] / before[-1]
        values[..., a] = ((worth[..., s | 1 << a] - worth[..., s]) * weight).sum(axis=-1)
    return values


def _below(spawner: tuple[int, ...]) -> list[int]:
    """For each player the bits of itself and of all below it."""
    below = [1 << a for a in range(len(spawner))]
    for a in range(len(spawner)):
        up, met = spawner[a], {a}
        while up >= 0:
            if up in met:
                raise BadCredit(f"player {a} is its own ancestor")
            below[up] |= 1 << a
            met.add(up)
            up = spawner[up]
    return below


def antithetic_orders(
    n: int, permutations: int, seed: int = 0, spawner: tuple[int, ...] | None = None
) -> NDArray[np.int64]:
    """Random orders of n players, in pairs that lean opposite ways, each order as likely as any other.

    Without spawners the second of a pair is the first reversed. With them the next is drawn among those whose
    spawner is there, by how many players each has below it, and the second of a pair takes 1 - u where the first
    took u.

    >>> antithetic_orders(3, 2).tolist()
    [[2, 1, 0], [0, 1, 2]]
    """
    dice, pairs = np.random.default_rng([seed, n]), (permutations + 1) // 2
    if spawner is None or max(spawner, default=-1) < 0:
        order = np.argsort(dice.random((pairs, n)), axis=1)
        both = np.stack([order, order[:, ::-1]], axis=1)
    else:
        u = dice.random((pairs, n))
        both = np.stack([_grown(u, spawner), _grown(1.0 - u, spawner)], axis=1)
    orders: NDArray[np.int64] = both.reshape(-1, n)[:permutations]
    return orders


def _grown(u: F, spawner: tuple[int, ...]) -> NDArray[np.int64]:
    """One order a row of u, each as likely: the next is one whose spawner is there, by how many it has below it."""
    n, rows = len(spawner), np.arange(len(u))
    size = np.array([bits.bit_count() for bits in _below(spawner)], np.float64)
    by, there = np.array(spawner), np.zeros((len(u), n + 1), np.bool_)
    there[:, n] = True  # whom those are there without need of: the last column serves -1
    order = np.empty(u.shape, np.int64)
    for k in range(n):
        weight = np.where(there[:, by] & ~there[:, :n], size, 0.0)
        edge = np.cumsum(weight, axis=1)
        picked = (edge <= (u[:, k] * edge[:, -1])[:, None]).sum(axis=1)
        picked = np.minimum(picked, n - 1 - np.argmax(weight[:, ::-1] > 0, axis=1))  # u = 1 takes the last that may
        order[:, k] = picked
        there[rows, picked] = True
    return order


def sampled_values(known: NDArray[np.int64], worth: F, orders: NDArray[np.int64]) -> F:
    """The mean of what each player adds, over given orders. `known` are the coalitions with a worth, ascending.

    φ_i = mean_o ( v(before_o(i) ∪ i) - v(before_o(i)) ),   over the orders in which both are known, else NaN
    """
    many, n = orders.shape
    grown = np.concatenate([np.zeros((many, 1), np.int64), np.cumsum(np.int64(1) << orders, axis=1)], axis=1)
    at = np.searchsorted(known, grown)
    v = take(worth, np.where(take(known, at) == grown, at, -1))
    added = np.diff(v, axis=1).ravel()
    return mean_by(orders.ravel(), added, n)


class _Games(NamedTuple):
    """Games that runs tell of: a group of runs each, its players those who are masked in any of them."""

    value_n: F
    game_n: I  # of the runs that count, -1 for the others
    masked_n: NDArray[np.int64]  # bits of who is masked
    many: I  # players of each game
    player_a: I  # each agent's number among the players of its game, -1 if it is none


def _games(credit: Credit, by: By) -> _Games:
    trace, value_n, masks = credit.trace, team_value(credit), mask_runs(credit.trace)
    counts_n = masks.made_n | ((trace.parent_n.codes < 0) & (trace.do_n.codes < 0))
    group = np.where(counts_n, groups(Credit(trace, "team", value_n), by), -1)
    names = len(masks.words)
    masked = group[masks.run] >= 0
    run, name = masks.run[masked], masks.name[masked]
    game_n = _looked_up(played := np.unique(group[run]), np.arange(len(played)), group)
    game_a = game_n[trace.rollout_a]
    key_a = np.where(game_a >= 0, game_a.astype(np.int64) * names + trace.name_a.codes, -1)
    key = np.unique(game_n[run].astype(np.int64) * names + name)
    senior = _looked_up(*np.unique(key_a, return_index=True), key, trace.n_agents)  # who comes first in the record
    of = key // names
    nth = np.empty(len(key), np.int64)
    nth[np.lexsort((senior, of))] = np.arange(len(key)) - np.searchsorted(of, of)
    many = np.bincount(of)
    if int(many.max(initial=0)) > MOST:
        raise BadCredit(f"{many.max()} agents are masked in one group of runs; at most {MOST} can be told apart")
    masked_n = np.zeros(len(trace), np.int64)
    bit = _looked_up(key, nth, game_n[run].astype(np.int64) * names + name)
    np.bitwise_or.at(masked_n, run, np.int64(1) << bit)
    return _Games(value_n, game_n, masked_n, many, np.where(game_a >= 0, _looked_up(key, nth, key_a), -1))


def _looked_up(
    known: NDArray[Any], values: NDArray[Any], wanted: NDArray[Any], absent: int = -1
) -> NDArray[np.int64]:
    """The value beside each wanted key; `known` is ascending."""
    at = np.searchsorted(known, wanted)
    return np.where(take(known, at) == wanted, take(values, at), absent).astype(np.int64)


@register("step")
def shapley(credit: Credit, permutations: int | None = None, seed: int = 0, by: By = "tree") -> Credit:
    """What an agent adds to the team, averaged over all orders in which the team could have come together.

        φ_i = Σ_S |S|! (n-|S|-1)! / n! (v(S ∪ i) - v(S)),   v(S) = mean R : runs that mask just those outside S

    Players are the agents masked in some run of a group (a tree of branches, unless given); who is paid are the
    agents of the runs in which nobody is masked, v(all). Without `permutations` exact, and NaN if a coalition has
    no run; else the mean over so many random orders in antithetic pairs, as far as the coalitions that they pass
    through have runs.
    pays: agents.   needs: team credit, runs that are coalitions.   from: Shapley 1953; sampled: Castro et al. 2009,
    Mitchell et al. 2022.
    """
    return _paid(credit, _games(credit, by), permutations, seed, spawning=False)


@register("step")
def spawn_shapley(credit: Credit, permutations: int | None = None, seed: int = 0, by: By = "tree") -> Credit:
    """The same where agents create agents: only orders in which nobody comes before their spawner count.

    A masked agent takes all that it would have spawned with it. A spawner that is no player is always there.
    pays: agents.   needs: team credit, runs that are coalitions, spawns.   from: ours; Faigle & Kern 1992.
    """
    return _paid(credit, _games(credit, by), permutations, seed, spawning=True)


def _paid(credit: Credit, games: _Games, permutations: int | None, seed: int, spawning: bool) -> Credit:
    trace = credit.trace
    above = np.full((len(games.many), int(games.many.max(initial=0))), -1)
    if spawning:
        _put_spawners(above, trace, games)
    masked_n = _closed_down(games, above)
    phi = np.full((len(above) + 1, above.shape[1] + 1), np.nan)  # the last row and column serve -1
    shape = numbered_together(games.many, *((above + 1).T))
    run = np.flatnonzero((games.game_n >= 0) & ~np.isnan(games.value_n))
    for kind in range(count_of(shape)):  # games of one size and shape at once
        alike = np.flatnonzero(shape == kind)
        n, spawner = int(games.many[alike[0]]), tuple(above[alike[0], : games.many[alike[0]]].tolist())
        place = _looked_up(alike, np.arange(len(alike)), games.game_n[run])
        mine, place = run[place >= 0], place[place >= 0]
        coalition, value = (np.int64(1) << n) - 1 - masked_n[mine], games.value_n[mine]
        if permutations is None:
            phi[alike, :n] = _exact(place, coalition, value, len(alike), spawner)
        else:
            phi[alike, :n] = _sampled(
                place, coalition, value, len(alike), antithetic_orders(n, permutations, seed, spawner)
            )
    whole_a = (games.masked_n == 0)[trace.rollout_a] & ~np.isnan(games.value_n)[trace.rollout_a]
    phi_a = phi[games.game_n[trace.rollout_a], games.player_a]
    return Credit(trace, "agent", np.where(whole_a, phi_a, np.nan))


def _exact(game: I, coalition: I, value: F, many: int, spawner: tuple[int, ...]) -> F:
    n = len(spawner)
    _check_exact(n)
    key = game.astype(np.int64) * (1 << n) + coalition
    worth = mean_by(key, value, many << n).reshape(many, 1 << n)
    return spawn_shapley_values(worth, spawner) if max(spawner) >= 0 else shapley_values(worth)


def _check_exact(n: int) -> None:
    if n > MOST_EXACT:
        raise BadCredit(f"{n} players have {1 << n} coalitions; say how many permutations to sample")


def _sampled(game: I, coalition: I, value: F, many: int, orders: NDArray[np.int64]) -> F:
    by = np.lexsort((coalition, game))
    first = np.searchsorted(game[by], np.arange(many + 1))
    phi = np.empty((many, orders.shape[1]))
    for g in range(many):
        mine = by[first[g] : first[g + 1]]
        known, which = np.unique(coalition[mine], return_inverse=True)
        phi[g] = sampled_values(known, np.bincount(which, value[mine]) / np.bincount(which), orders)
    return phi


def _put_spawners(above: NDArray[np.int64], trace: Trace, games: _Games) -> None:
    """Sets for each game and player the nearest player above it, as the first spawn on record has it."""
    up = take(trace.agent_e, spawns(trace))
    for _ in range(trace.n_agents.bit_length()):  # over those who are no players, twice as far in every round
        up = np.where(take(games.player_a, up) < 0, take(up, up), up)
    child = np.flatnonzero((games.player_a >= 0) & (up >= 0))[::-1]
    above[games.game_n[trace.rollout_a[child]], games.player_a[child]] = games.player_a[up[child]]


def _closed_down(games: _Games, above: NDArray[np.int64]) -> NDArray[np.int64]:
    """The masks, each with all that those it masks would have spawned."""
    masked_n, before = games.masked_n, games.masked_n - 1
    while (masked_n != before).any():
        before = masked_n
        for player in range(above.shape[1]):
            by = take(above[:, player], games.game_n)
            gone = (by >= 0) & ((masked_n >> np.maximum(by, 0)) & 1 > 0)
            masked_n = masked_n | gone.astype(np.int64) << player
    return masked_n


def ask_coalitions(
    trace: Trace, players: tuple[str, ...], permutations: int | None = None, seed: int = 0
) -> list[Do]:
    """The masks that `shapley` needs of each run that branched from none: all coalitions, or those of its orders.

    Players stand in the order in which the record has them. The coalition of all is the run itself.
    """
    n = len(players)
    if permutations is None:
        _check_exact(n)
        sets = np.arange((1 << n) - 1)
    else:
        orders = antithetic_orders(n, permutations, seed)
        sets = np.unique(np.append(0, np.cumsum(np.int64(1) << orders, axis=1)[:, :-1]))
    first = trace.first_of("e")
    names = [tuple(p for i, p in enumerate(players) if not s >> i & 1) for s in sets.tolist()]
    free = (trace.parent_n.codes < 0) & (first[1:] > first[:-1])
    return [Do(int(first[run]), "mask", absent) for run in np.flatnonzero(free) for absent in names]
