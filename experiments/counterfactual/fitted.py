"""Fitting the estimator on tries that were kept back, and the credit it then gives. Nothing exact is used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from experiments.counterfactual.hypotheses import contrasts, steps
from experiments.counterfactual.network import Batch, batched, initial, join_batches, worth
from experiments.counterfactual.work import Asked
from podium.learn import tape
from podium.learn.policy import Parameters
from podium.learn.tape import Node
from podium.learn.update import adam
from podium.trace.columns import F

__all__ = ["Fit", "Lesson", "fit", "lesson", "loss", "unfitted"]

V = NDArray[np.int64]
SMALL = 0.2  # share of a team's mean square credit that an error is measured in, beside that of its step


@dataclass(frozen=True)
class Fit:
    """An estimator with its parameters; the id is theirs."""

    parameters: Parameters

    @property
    def id(self) -> str:
        """Eight digits that change with any parameter."""
        hasher = blake2b(digest_size=4)
        for name in sorted(self.parameters):
            hasher.update(name.encode() + np.ascontiguousarray(self.parameters[name], "<f4").tobytes())
        return hasher.hexdigest()

    def worth(self, asked: Asked) -> F:
        """What each option of each decision is worth, less the mean over options: (decisions, options), NaN where
        there is none."""
        guesses = steps(asked)
        worth_r = tape.value_of(worth(self.parameters, batched(asked.work, guesses, _mean(asked))))[:, 0]
        out: F = np.full(asked.pi.shape, np.nan)
        start = 0
        for s in guesses:
            end = start + len(s.times) * s.options
            out[s.at, : s.options] = worth_r[start:end].reshape(-1, s.options)[s.state]
            start = end
        return out

    def credit(self, asked: Asked) -> F:
        """Of each decision what its option is worth beyond the policy's mean: A = Q(taken) - Σ_k π_k Q(k)."""
        q = self.worth(asked)
        beyond: F = q[np.arange(len(asked)), asked.taken] - np.nansum(asked.pi * q, axis=1)
        return beyond


def unfitted() -> Fit:
    """Guesses weighed by their likelihood alone: what the fit starts from."""
    return Fit(initial(0))


@dataclass(frozen=True)
class Lesson:
    """A team's tries as the estimator sees them, and what other tries of the same decisions said."""

    batch: Batch
    pi: F  # (rows,)
    target: F  # (rows,) credit of an option in a state, noisy
    weight: F  # (rows,)


def lesson(seen: Asked, kept: F) -> Lesson:
    """`kept` are tries of the same decisions that the estimator does not see: (decisions, options, tries).

    A row weighs as often as the policy comes by it, over what the credit of its step and the noise of the target
    are in size:

        weight = count π / (mean A² of the step + 0.2 mean A² of the team + mean noise² / kept sets of the step),
        A as unfitted
    """
    guesses = steps(seen)
    batch = batched(seen.work, guesses, _mean(seen))
    pi = np.concatenate([s.pi.ravel() for s in guesses])
    often = pi * np.concatenate([np.repeat(s.times, s.options) for s in guesses])
    targets = [contrasts(kept[s.at, : s.options], s.state, len(s.times)) for s in guesses]
    target = np.concatenate([mean.ravel() for _, mean, _ in targets])
    sets = np.concatenate([np.repeat(n, s.options) for s, (n, _, _) in zip(guesses, targets, strict=True)])
    often = np.where(sets > 0, often, 0.0)
    guessed = _beyond(tape.value_of(worth(initial(0), batch))[:, 0].astype(np.float64), pi, batch)
    size = _by_step(guessed**2 + batch.noise**2 / np.maximum(sets, 1.0), often, batch.step_of_row)
    size += SMALL * np.average(guessed**2, weights=often)
    return Lesson(batch, pi, _beyond(target, pi, batch), often / size / often.sum())


def _by_step(values: F, often: F, step: V) -> F:
    """The mean over each step, at every row of it."""
    mean: F = (np.bincount(step, often * values) / np.maximum(np.bincount(step, often), 1e-12))[step]
    return mean + 1e-8


def _mean(asked: Asked) -> float:
    return float(np.nanmean(asked.earned))


def _beyond(q: F, pi: F, batch: Batch) -> F:
    """q less its mean under the policy, state by state."""
    advantage: F = q - np.bincount(batch.row_state, pi * q)[batch.row_state]
    return advantage


def loss(w: Parameters, batch: Batch, pi: F, target: F, weight: F) -> Node:
    """L = Σ_rows weight (A - target)²,   A = Q - Σ_k π_k Q_k"""
    q = worth(w, batch)
    first = np.searchsorted(batch.row_state, np.arange(len(batch.rest) + 1))
    base = tape.segment_sum(tape.mul(q, pi[:, None].astype(np.float32)), first)
    off = tape.plus(q, tape.mul(tape.gather(base, batch.row_state), np.float32(-1.0)))
    off = tape.plus(off, -target[:, None].astype(np.float32))
    return tape.sum_all(tape.mul(tape.mul(off, off), weight[:, None].astype(np.float32)))


def fit(lessons: Sequence[Lesson], seed: int = 0, rounds: int = 10, at_once: int = 8, rate: float = 3e-3) -> Fit:
    """Adam on the kept tries of a few teams at a time; the rate falls to nothing."""
    dice, w = np.random.default_rng([seed, 0xF17]), initial(seed)
    m, v = ({k: np.zeros_like(x) for k, x in w.items()} for _ in range(2))
    total, step = rounds * -(-len(lessons) // at_once), 0
    for _ in range(rounds):
        order = dice.permutation(len(lessons))
        for start in range(0, len(order), at_once):
            step += 1
            some = [lessons[i] for i in order[start : start + at_once]]
            grad = _gradient(w, some)
            adam(w, grad, m, v, step, rate * (1 - (step - 1) / total))
    return Fit(w)


def _gradient(w: Parameters, some: Sequence[Lesson]) -> Parameters:
    variables = {name: tape.Var(x) for name, x in w.items()}
    parts = (np.concatenate([getattr(one, name) for one in some]) for name in ("pi", "target", "weight"))
    total = loss(variables, join_batches([one.batch for one in some]), *parts)
    tape.backward(total)
    return {k: x.grad / len(some) if x.grad is not None else np.zeros_like(w[k]) for k, x in variables.items()}
