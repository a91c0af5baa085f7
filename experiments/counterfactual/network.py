"""Which guess to believe, and what to expect of an option before any try: a small network over sets, learned over
many teams.

It is told of a step what the record shows, never what is exact: what kind of decision, where in the work, what
depends on what.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.counterfactual.hypotheses import GUESSES, LEVELS, SPREADS, Step
from experiments.counterfactual.work import Work
from podium.learn import tape
from podium.learn.policy import Parameters
from podium.learn.tape import Array, Node
from podium.trace.vocabulary import DECISIONS, EVENT_TYPES

__all__ = ["Batch", "batched", "initial", "join_batches", "worth"]

V = NDArray[np.int64]
M = GUESSES * len(SPREADS)
OPTIONS = 4  # options that are told apart; later ones are alike
CONTEXT, THINGS, HIDDEN = 32, 16, 32
FACTS = len(DECISIONS) + OPTIONS + 13
ABOUT = len(LEVELS) + len(EVENT_TYPES) + len(DECISIONS) + 5
OFFERED = OPTIONS + 2


class Batch(NamedTuple):
    """Steps of one or more teams, ragged. Options of step s are entries option_first[s] to option_first[s + 1], and
    so on."""

    facts: Array  # (steps, FACTS)
    things: Array  # (things, ABOUT): what each guess says of each live step
    thing_first: V  # by step and guess
    offered: Array  # (options, OFFERED)
    option_first: V
    likely: Array  # (steps, M)
    cross: Array  # (options, M)
    square: Array  # (steps, M)
    rest: Array  # (states, M)
    state_step: V
    told: Array  # (rows, M): the worth of an option in a state, rows of a state together
    row_state: V
    row_option: V  # among the options of all steps
    noise: Array  # (rows,)

    @property
    def step_of_row(self) -> V:
        steps: V = self.state_step[self.row_state]
        return steps


def batched(work: Work, found: Sequence[Step], outcome: float) -> Batch:
    """The steps of a team, whose runs earn so much on average."""
    many = np.array([s.options for s in found])
    states = np.array([len(s.times) for s in found])
    things = [_things(work, s) for s in found]
    per_guess = np.concatenate([np.full(GUESSES, s.level.shape[1]) for s in found])
    first = np.concatenate([[0], np.cumsum(many)])
    place = np.concatenate([[0], np.cumsum(states)])
    return Batch(
        _f32(np.array([_facts(work, s, outcome) for s in found])),
        _f32(np.concatenate(things)),
        np.concatenate([[0], np.cumsum(per_guess)]),
        _f32(np.concatenate([_offered(s.options) for s in found])),
        first,
        _f32(np.array([s.likely - s.likely.max() for s in found])),
        _f32(np.concatenate([s.cross.T for s in found])),
        _f32(np.array([s.square for s in found])),
        _f32(np.concatenate([s.rest for s in found])),
        np.repeat(np.arange(len(found)), states),
        _f32(np.concatenate([s.worth.reshape(-1, M) for s in found])),
        np.concatenate(
            [np.repeat(np.arange(len(s.times)), s.options) + p for s, p in zip(found, place, strict=False)]
        ),
        np.concatenate(
            [np.tile(np.arange(s.options), len(s.times)) + f for s, f in zip(found, first, strict=False)]
        ),
        _f32(np.concatenate([np.repeat(s.noise, s.options) for s in found])),
    )


def join_batches(parts: Sequence[Batch]) -> Batch:
    """Steps of several teams, one after the other."""

    def ends(firsts: list[V]) -> V:
        shift = np.cumsum([0, *(f[-1] for f in firsts)])
        return np.concatenate([[0], *(f[1:] + k for f, k in zip(firsts, shift, strict=False))])

    def moved(name: str, by: str) -> V:
        shift = np.cumsum([0, *(len(getattr(p, by)) for p in parts)])
        return np.concatenate([getattr(p, name) + k for p, k in zip(parts, shift, strict=False)])

    def stacked(name: str) -> Array:
        return np.concatenate([getattr(p, name) for p in parts])

    return Batch(
        stacked("facts"),
        stacked("things"),
        ends([p.thing_first for p in parts]),
        stacked("offered"),
        ends([p.option_first for p in parts]),
        stacked("likely"),
        stacked("cross"),
        stacked("square"),
        stacked("rest"),
        moved("state_step", "facts"),
        stacked("told"),
        moved("row_state", "rest"),
        moved("row_option", "offered"),
        stacked("noise"),
    )


def _f32(x: Array) -> Array:
    return np.asarray(x, np.float32)


def _one_hot(k: int, n: int) -> list[float]:
    return [float(k == j) for j in range(n)]


def _facts(work: Work, step: Step, outcome: float) -> list[float]:
    i, n = step.number, len(work)
    follows, meets, live = work.after(i), work.meets(i), work.live[i]
    gained = float(step.likely.max() - step.likely[0])
    return [
        *_one_hot(int(work.kind[i]), len(DECISIONS)),
        *_one_hot(min(step.options, OPTIONS + 1) - 2, OPTIONS),
        float(np.log1p(step.sets.mean())) / 3,
        float(np.log(len(step.times))) / 3,
        float(np.log(step.times.sum())) / 5,
        len(live) / 8,
        len(meets) / 8,
        i / n,
        float(work.agent[i] == 0),
        len(follows) / n,
        len(follows.intersection(work.ends)) / len(work.ends),
        np.log(n) / 4,
        float(np.log(np.average(step.noise, weights=step.times))) / 3,
        4 * outcome * (1 - outcome),
        np.log1p(gained) / 3,
    ]


def _things(work: Work, step: Step) -> Array:
    i, n = step.number, len(work)
    live, meets = work.live[i], work.meets(i)
    if not live:
        return np.zeros((0, ABOUT))
    uses = [sum(j in work.causes[r] for r in range(i, n)) for j in live]
    about = np.array(
        [
            [
                *_one_hot(int(work.type[j]), len(EVENT_TYPES)),
                *_one_hot(int(work.kind[j]), len(DECISIONS)),
                float(j in meets),
                float(j in work.causes[i]),
                float(work.agent[j] == work.agent[i]),
                (i - j) / n,
                used / 4,
            ]
            for j, used in zip(live, uses, strict=True)
        ]
    )
    level = np.eye(len(LEVELS))[step.level]
    wide = np.broadcast_to(about, (GUESSES, *about.shape))
    return np.concatenate([level, wide], axis=2).reshape(-1, ABOUT)


def _offered(many: int) -> Array:
    k = np.arange(many)
    return np.column_stack([np.eye(OPTIONS)[np.minimum(k, OPTIONS - 1)], k / (many - 1), k == many - 1])


def initial(seed: int) -> Parameters:
    """At the start guesses are believed as likely as they are, and nothing is expected before a try."""
    dice = np.random.default_rng([seed, 0xC0F])
    sizes = {
        "facts": (FACTS, CONTEXT),
        "things": (ABOUT, THINGS),
        "guess.facts": (CONTEXT, HIDDEN),
        "guess.things": (THINGS, HIDDEN),
        "guess.out": (HIDDEN, len(SPREADS)),
        "sure": (CONTEXT, 1),
        "mean.facts": (CONTEXT, HIDDEN),
        "mean.offered": (OFFERED, HIDDEN),
        "mean.out": (HIDDEN, 1),
    }
    weights: Parameters = {}
    for name, size in sizes.items():
        scale = 0.0 if name in ("guess.out", "sure", "mean.out") else 1.0 / np.sqrt(size[0])
        weights[name] = _f32(scale * dice.standard_normal(size))
    return weights | {"factsb": np.zeros(CONTEXT, np.float32), "thingsb": np.zeros(THINGS, np.float32)}


def worth(w: Parameters, batch: Batch) -> Node:
    """What each option is expected to be worth in each state, less the mean over options: (rows, 1), in units of
    the outcome.

    c = relu(F facts),   e_h = Σ_j tanh(T [level_hj, thing_j])                       a set of things
    m_k = mean · relu(c, option_k), less its mean over k
    α = softmax over guess h and spread v of  exp(sure · c) log p(tries | h, v, m) + out_v · relu(c, e_h)
    worth = noise Σ α ( S y + (1 - S 1) m )
    """
    steps, guesses = np.arange(len(batch.facts)), len(batch.thing_first) - 1
    c = tape.relu(tape.plus(tape.matmul(batch.facts, w["facts"]), w["factsb"]))
    things = tape.tanh(tape.plus(tape.matmul(batch.things, w["things"]), w["thingsb"]))
    e = tape.segment_sum(things, batch.thing_first)
    by_step = tape.gather(tape.matmul(c, w["guess.facts"]), np.repeat(steps, GUESSES))
    hidden = tape.relu(tape.plus(by_step, tape.matmul(e, w["guess.things"])))
    belief = _reshaped(tape.matmul(hidden, w["guess.out"]), (guesses // GUESSES, M))
    mean = _mean(w, batch, c)
    more = tape.segment_sum(tape.mul(mean, batch.cross), batch.option_first)
    less = tape.mul(tape.segment_sum(tape.mul(mean, mean), batch.option_first), -0.5 * batch.square)
    likely = tape.plus(batch.likely, tape.plus(more, less))
    score = tape.plus(tape.mul(tape.exp(tape.matmul(c, w["sure"])), likely), belief)
    first = np.arange(0, len(steps) * M + 1, M)
    alpha = _reshaped(tape.exp(tape.log_softmax(_reshaped(score, (-1,)), first)), (len(steps), M))
    ones = np.ones((M, 1), np.float32)
    mean_worth = tape.matmul(tape.mul(tape.gather(alpha, batch.step_of_row), batch.told), ones)
    rest = tape.matmul(tape.mul(tape.gather(alpha, batch.state_step), batch.rest), ones)
    expected = tape.mul(tape.gather(rest, batch.row_state), tape.gather(mean, batch.row_option))
    return tape.mul(tape.plus(mean_worth, expected), batch.noise[:, None])


def _mean(w: Parameters, batch: Batch, c: Node) -> Node:
    """m of each option of each step, 0 on average over the options."""
    many = np.diff(batch.option_first)
    at = np.repeat(np.arange(len(many)), many)
    hidden = tape.plus(
        tape.gather(tape.matmul(c, w["mean.facts"]), at), tape.matmul(batch.offered, w["mean.offered"])
    )
    raw = tape.matmul(tape.relu(hidden), w["mean.out"])
    middle = tape.mul(tape.segment_sum(raw, batch.option_first), (-1.0 / many)[:, None].astype(np.float32))
    return tape.plus(raw, tape.gather(middle, at))


def _reshaped(a: Node, shape: tuple[int, ...]) -> Node:
    x = tape.value_of(a)
    if not isinstance(a, tape.Var):
        return x.reshape(shape)
    return tape.Var(x.reshape(shape), ((a, lambda g: g.reshape(x.shape)),))
