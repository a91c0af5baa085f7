"""A lead in `expedition` whose policy is a table, and the plainest policy gradient: for questions about rewards and
credit, not about networks.

Many runs learn at once, each with a policy, an arm and a seed of its own. A run does not depend on who else runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from podium.envs.draws import seeds as seeds_of
from podium.envs.draws import uniform
from podium.envs.expedition import Expedition
from podium.envs.expedition_journal import PHASES, Travelling
from podium.envs.world import View, make, play
from podium.trace.columns import F, I

__all__ = [
    "ARMS",
    "MOST",
    "SETTINGS",
    "TEST",
    "WORLD",
    "Arm",
    "Run",
    "Step",
    "Study",
    "expedition",
    "learn",
    "margin",
    "optimal_play",
    "play_legs",
    "sizes",
    "softmax",
]

WORLD: Mapping[
    str, Any
] = {  # one scout is worth a check in every leg, so that to check always and scout alone is a trap
    "legs": 4,
    "pool": 40,  # as many as the widest play needs: no leg takes scouts from a later one
    "widest": 10,
    "sources": 32,
    "stakes": (1.0, 2.0),
    "w": 3.0,
    "leg_price": 0.2,
    "check_price": 0.42,
    "prices": (0.035, 0.045),
    "messages": (0.0, 0.03, 0.06),
    "specialist": (0.83, 0.80),
    "off_kind": (0.60, 0.58),
    "generalist": (0.70, 0.66),
}
MOST = 40  # the bound of `instantiate`: every scout that there is pays
DICE, TEST = 100, 1_000_000  # an address that no world draws from; the seeds that runs are judged on begin here
MARGINS = 3  # 0, 1, 2 and more


@dataclass(frozen=True)
class Arm:
    """What is added to the outcome; with `end` every weight goes to 0 on a straight line, until that share of
    training."""

    parallel: float = 0.0  # for instantiating scouts
    finished: float = 0.0  # for their finishing
    entropy: float = 0.0  # for an open mind, in every decision
    end: float | None = None

    @property
    def reward(self) -> str:
        """The same in Podium's language of rewards. The entropy bonus is no reward: it is the policy's, not the
        run's."""
        if not self.parallel and not self.finished:
            return "outcome"
        if self.end is not None:
            return f"parl({self.parallel!r}, {self.finished!r}, most={MOST}, end={self.end!r})"
        return f"outcome + {self.parallel!r} * instantiate({MOST}) + {self.finished!r} * finish(none=0.0)"

    def weight(self, progress: float) -> float:
        return 1.0 if self.end is None else max(0.0, 1.0 - progress / self.end)

    def auxiliary(self, spawned: I) -> F:
        """What it pays beside the outcome at full weight, after so many scouts; each of them finishes in this
        world."""
        return _auxiliary(self.parallel, self.finished, spawned)


def _auxiliary(parallel: float | F, finished: float | F, spawned: I) -> F:
    paid: F = parallel * np.minimum(spawned, MOST) / MOST + finished * (spawned > 0)
    return paid


ARMS: Mapping[str, Arm] = {
    "plain": Arm(),
    "constant": Arm(parallel=10.0, finished=1.0),
    "parl": Arm(parallel=10.0, finished=1.0, end=0.1),
    "entropy": Arm(entropy=0.5, end=0.1),
    "both": Arm(parallel=10.0, finished=1.0, entropy=0.5, end=0.1),
}
SETTINGS: Mapping[str, Arm] = {  # how much hangs on the weight and on the schedule
    **{
        f"parl {w:g} to {e:g}": Arm(parallel=w, finished=1.0, end=e)
        for e in (0.1, 0.2, 0.5)
        for w in (5.0, 10.0, 15.0)
    },
    **{f"entropy {w:g} to {e:g}": Arm(entropy=w, end=e) for e in (0.1, 0.2, 0.5) for w in (0.1, 0.25, 0.5)},
}


@dataclass(frozen=True)
class Study:
    """How all arms learn."""

    updates: int = 1000
    batch: int = 384  # episodes an update
    rate: float = 2.0
    one: float = 6.0  # the logit of "spawn 1" at the start, of other widths 0: mean width 1.1
    going: float = 3.0  # the logit of "go on" at the start
    judged: int = 100_000  # episodes, by the policy as it is at the end, on seeds that it was not trained on


class Run(NamedTuple):
    """How one run ended, and how it went: what it lacks of the optimum and its mean width, by update."""

    arm: str
    seed: int
    short: float  # (V* - V) / V*
    width: float
    checks: float  # the share of legs that end in a check
    legs: float
    short_u: F
    width_u: F


@cache
def expedition(legs: int = 4) -> Expedition:
    """The world of the studies; with more legs there are as many more scouts, so that no leg takes them from a
    later one."""
    world = make("expedition", **{**WORLD, "legs": legs, "pool": 10 * legs})
    assert isinstance(world, Expedition)
    return world


# the policy: a table for each kind of decision, by a few of the facts in view


def sizes(world: Expedition) -> dict[str, int]:
    p = world.params
    leg = len(p.stakes) * len(p.specialist)
    return {
        "stop": leg,
        "spawn": leg,
        "delegate": p.kinds,
        "communicate": 2 * len(p.stakes),
        "aggregate": leg * MARGINS,
    }


def _place(world: Expedition, state: Travelling, view: View) -> I:
    """The row of the table that applies: stake and difficulty; the kind, for whom to ask; context and stake, for
    how to brief; and the margin among distinct sources, for how to aggregate."""
    p, facts = world.params, view.facts
    kind, context, hard = (facts[:, i].astype(np.int64) for i in (1, 2, 4))
    stake = np.searchsorted(p.stakes, facts[:, 3])
    leg: I = stake * len(p.specialist) + hard
    match view.kind:
        case "delegate":
            return kind
        case "communicate":
            return np.asarray(context * len(p.stakes) + stake)
        case "aggregate":
            return np.asarray(leg * MARGINS + np.minimum(margin(world, state, view), MARGINS - 1))
    return leg


def margin(world: Expedition, state: Travelling, view: View) -> I:
    """By how many distinct sources the one side leads, of this leg: what the view's items show, from the columns
    behind them."""
    row = view.row
    width = state.width[row, state.leg[row]]
    scout = np.arange(int(width.max()))
    i, j = np.nonzero(scout < width[:, None])
    at = (state.used[row] - width)[i] + j
    says = np.zeros((len(row), world.params.sources), np.int8)
    says[i, state.source[row[i], at]] = 2 * state.vote[row[i], at] - 1
    ahead: I = np.abs(says.sum(axis=1, dtype=np.int64))
    return ahead


def softmax(logits: F) -> F:
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p: F = e / e.sum(axis=-1, keepdims=True)
    return p


class Step(NamedTuple):
    """What was decided in one view, and what had been paid before."""

    kind: str
    row: I
    place: I
    choice: I
    earned: F
    spawned: I


def play_legs(world: Expedition, tables: Mapping[str, F], seed_n: Any, run_n: I) -> tuple[Travelling, list[Step]]:
    """Episodes by the policies of their runs. Dice are drawn by address, so that a run does not depend on who else
    runs."""
    state = world.start(seed_n)
    below = {kind: np.cumsum(softmax(table), axis=-1)[..., :-1] for kind, table in tables.items()}
    steps = []
    while (view := world.view(state)) is not None:
        phase, row = PHASES.index(view.kind), view.row
        place = _place(world, state, view)
        dice = uniform(state.seed[row], DICE, state.leg[row], phase)
        choice = (dice[:, None] >= below[view.kind][run_n[row], place]).sum(axis=1)
        steps.append(Step(view.kind, row, place, choice, state.earned[row], state.used[row]))
        world.act(state, view, choice + world.first[phase])
    return state, steps


def learn(study: Study, arms: Mapping[str, Arm], seeds: Sequence[int]) -> list[Run]:
    """Every arm on every seed, all at once: policy gradient with the reward to go and the mean of its place as the
    baseline.

    θ[place, option] += rate / batch · Σ over decisions of (G - mean G of that place) · ∂ log π + weight · ∂ entropy
    """
    world, runs = expedition(), [(arm, seed) for arm in arms for seed in seeds]
    tables = {
        kind: np.zeros((len(runs), n, len(menu)))
        for (kind, n), menu in zip(sizes(world).items(), world.menu, strict=True)
    }
    tables["stop"][:, :, 1], tables["spawn"][:, :, 0] = study.going, study.one
    best_score = world.optimum()
    short_u, width_u = np.zeros((2, len(runs), study.updates))
    run_n = np.repeat(np.arange(len(runs)), study.batch)
    for u in range(study.updates):
        seed_n = np.concatenate([seeds_of(seed, study.batch, u * study.batch) for _, seed in runs])
        state, steps = play_legs(world, tables, seed_n, run_n)
        _improve(study, [arms[arm] for arm, _ in runs], u / study.updates, tables, state, steps, run_n)
        short_u[:, u] = 1.0 - state.score.reshape(len(runs), -1).mean(axis=1) / best_score
        width_u[:, u] = _widths(state, len(runs))
    judged = _judged(study, tables, runs)
    short, width, checks, legs = (column.tolist() for column in judged.T)
    return [
        Run(arm, seed, short[i], width[i], checks[i], legs[i], short_u[i], width_u[i])
        for i, (arm, seed) in enumerate(runs)
    ]


def _improve(
    study: Study,
    arms: Sequence[Arm],
    progress: float,
    tables: dict[str, F],
    state: Travelling,
    steps: Sequence[Step],
    run_n: I,
) -> None:
    weight_r = np.array([arm.weight(progress) for arm in arms])
    open_r = weight_r * [arm.entropy for arm in arms]

    def paid(spawned: I, row: I) -> F:
        """The auxiliary reward so far; a block of rows a run."""
        run = run_n[row]
        parallel, finished = (np.array([getattr(arm, name) for arm in arms]) for name in ("parallel", "finished"))
        both: F = _auxiliary(parallel[run], finished[run], spawned)
        return weight_r[run] * both

    total = state.score + paid(state.used, np.arange(len(run_n)))
    for kind, table in tables.items():
        mine = [s for s in steps if s.kind == kind]
        if not mine:
            continue
        row, place, choice, earned, spawned = (np.concatenate(c) for c in list(zip(*mine, strict=True))[1:])
        togo = total[row] - earned - paid(spawned, row)
        many, options = table.shape[0] * table.shape[1], table.shape[2]
        at = run_n[row] * table.shape[1] + place
        count = np.bincount(at, minlength=many)
        ahead = togo - (np.bincount(at, togo, minlength=many) / np.maximum(count, 1))[at]
        # the other half of ∂ log π, -π Σ ahead, is 0: what is ahead of a mean adds up to nothing
        up = np.bincount(at * options + choice, ahead, minlength=many * options).reshape(table.shape)
        p = softmax(table)
        log_p = np.log(np.maximum(p, 1e-300))
        closed = log_p - (p * log_p).sum(axis=-1, keepdims=True)
        up -= open_r[:, None, None] * count.reshape(table.shape[:2])[..., None] * p * closed
        table += study.rate / study.batch * up


def _widths(state: Travelling, runs: int) -> F:
    """The mean width of a leg, by run."""
    width = state.width.reshape(runs, -1)
    went = width > 0
    mean: F = np.where(went, width, 0).sum(axis=1) / np.maximum(went.sum(axis=1), 1)
    return mean


def _judged(study: Study, tables: Mapping[str, F], runs: Sequence[tuple[str, int]]) -> F:
    """[run, (short, width, checks, legs)] of the policies as they are, on fresh episodes."""
    world, piece = expedition(), min(1_000, study.judged)
    sums = np.zeros((len(runs), 4))
    for first in range(0, study.judged, piece):
        n = min(piece, study.judged - first)
        seed_n = np.concatenate([seeds_of(TEST + seed, n, first) for _, seed in runs])
        state, _ = play_legs(world, tables, seed_n, np.repeat(np.arange(len(runs)), n))
        went, how = (c.reshape(len(runs), -1) for c in (np.maximum(state.width, 0), state.how))
        sums += np.stack(
            [state.score.reshape(len(runs), -1).sum(1), went.sum(1), (how == 2).sum(1), (how >= 0).sum(1)], 1
        )
    score, width, checks, legs = sums.T
    ended = np.maximum(legs, 1)
    return np.stack(
        [1.0 - score / study.judged / world.optimum(), width / ended, checks / ended, legs / study.judged], 1
    )


def optimal_play(n: int = 20_000) -> tuple[float, float, float]:
    """Mean width, share of legs with a check and legs of optimal play."""
    state = play(expedition(), expedition().optimal(), seeds_of(TEST, n)).state
    assert isinstance(state, Travelling)
    how = state.how[state.how >= 0]
    return float(_widths(state, 1)[0]), float((how == 2).mean()), len(how) / n
