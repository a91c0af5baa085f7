"""Guesses at which decisions are alike, and what each guess makes of the tries.

A guess says how much of the likeness of two states is left where one of the things they depend on differs. Under it
the worth of an option is a random function of the state with a mean and a spread that are not known yet; what was
tried then tells the expected worth, and how likely the guess is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.counterfactual.work import Asked, Work
from podium.trace.columns import B, F

__all__ = ["GUESSES", "LEVELS", "SPREADS", "Step", "contrasts", "guesses", "steps"]

V = NDArray[np.int64]
LEVELS = np.array([1e-9, 0.3, 0.6, 0.85, 0.95, 1.0])  # of likeness left
NEAR = np.array([0, 1, 2, 3, 5])  # levels drawn for what meets the decision before the outcome ...
FAR = np.array([1, 2, 3, 4, 5, 5])  # ... and for what meets it there alone
SPREADS = np.geomspace(1e-4, 1.0, 7)  # variances of the worth of an option over states, in variances of one try
DRAWN = 17
GUESSES = 7 + DRAWN
PRIOR = 16.0  # tries that what is known of all states counts for in the variance of one
LEAST = 1e-5  # variance of a try that was never seen to vary


class Step(NamedTuple):
    """The decisions of one step, by state, in units of the noise of a try. Guesses times spreads are M, the guess
    the slower."""

    number: int  # of the step in the work
    state: V  # of each decision
    at: V  # the decisions
    options: int
    times: F  # (states,) decisions
    sets: F  # (states,) tries of all options under one luck
    noise: F  # (states,) standard deviation of a try, less what options share
    pi: F  # (states, options)
    level: V  # (guesses, live steps) index of LEVELS
    likely: F  # (M,) log-likelihood of the tries, if the mean is 0
    cross: F  # (M, options) and what a mean m of the options adds to it: Σ m cross - square Σ m² / 2
    square: F  # (M,)
    worth: F  # (states, options, M) expected, in units of noise, if the mean is 0
    rest: F  # (states, M) the share of a mean that is left in the expectation


def guesses(work: Work, i: int) -> V:
    """Which likeness is left for each live step: nothing matters, all does, all that meet, ... and some drawn, the
    same every time."""
    live, meets = work.live[i], work.meets(i)
    near = np.array([j in meets for j in live], np.bool_)
    dice = np.random.default_rng([i, len(live)])
    n, top = len(live), len(LEVELS) - 1
    fixed = [np.full(n, top), np.zeros(n), np.full(n, 1), np.full(n, 3)]
    fixed += [np.where(near, level, top) for level in (0, 1, 3)]
    scales = [np.where(near, dice.choice(NEAR, n), dice.choice(FAR, n)) for _ in range(DRAWN)]
    return np.array([*fixed, *scales], np.int64).reshape(GUESSES, n)


def steps(asked: Asked) -> list[Step]:
    """Every step at which something was decided."""
    return [_step(asked, int(i)) for i in np.unique(asked.step)]


def _step(asked: Asked, i: int) -> Step:
    at = np.flatnonzero(asked.step == i)
    many = int((asked.pi[at] > 0).any(axis=0).sum())
    live = list(asked.work.live[i])
    states, state = np.unique(asked.seen[at][:, live], axis=0, return_inverse=True)
    state = state.ravel()
    sets, mean, variance = contrasts(asked.earned[at, :many], state, len(states))
    noise = np.sqrt(variance)
    times = np.bincount(state).astype(np.float64)
    pi = np.stack([np.bincount(state, asked.pi[at, k]) for k in range(many)], axis=1) / times[:, None]
    level = guesses(asked.work, i)
    differ = (states[:, None, :] != states[None, :, :]).astype(np.float64)
    left = np.exp(np.einsum("hj,abj->hab", np.log(LEVELS)[level], differ))
    parts = [_told(k, mean / noise[:, None], sets) for k in left]
    likely, cross, square, worth, rest = (np.concatenate(p, axis=-1) for p in zip(*parts, strict=True))
    return Step(i, state, at, many, times, sets, noise, pi, level, likely, cross.T, square, worth, rest)


def contrasts(earned: F, state: V, many: int) -> tuple[F, F, F]:
    """Of each state: tries of all options under one luck, the mean of each option less that of all, and the
    variance of one try about it.

    A state in which nothing was tried has a mean of 0 from no tries.
    """
    whole: B = np.asarray(~np.isnan(earned).any(axis=1))
    apart = np.where(whole[:, None], earned - earned.mean(axis=1, keepdims=True), 0.0)
    sets: F = np.bincount(state, whole.sum(axis=1), minlength=many).astype(np.float64)
    each = apart.sum(axis=2)
    total = np.stack([np.bincount(state, each[:, k], minlength=many) for k in range(each.shape[1])], axis=1)
    mean = total / np.maximum(sets, 1.0)[:, None]
    off = np.where(whole[:, None], apart - mean[state][:, :, None], 0.0)
    square = np.bincount(state, (off**2).sum(axis=(1, 2)), minlength=many) / max(earned.shape[1] - 1, 1)
    freedom = np.maximum(sets - 1.0, 0.0)
    everywhere = square.sum() / max(freedom.sum(), 1.0)
    variance: F = (square + PRIOR * everywhere) / (freedom + PRIOR) + LEAST
    return sets, mean, variance


def _told(likeness: F, y: F, sets: F) -> tuple[F, F, F, F, F]:
    """A guess under each spread v: y ~ N(m, v likeness + 1 / sets), for every option alike.

        S = v C (v C + N)^-1,   worth = S y + (1 - S 1) m
        2 log p = - (y - m)ᵀ (v C + N)^-1 (y - m) - (K - 1) log |1 + v N^-½ C N^-½|

    C is the likeness of states, N the noise of their means, K the options. log p is up to what is the same for all
    guesses.
    """
    root = np.sqrt(sets)
    size, axes = np.linalg.eigh(root[:, None] * likeness * root[None])
    size = np.maximum(size, 0.0)[:, None] * SPREADS
    z, one = axes.T @ (root[:, None] * y), axes.T @ root
    weight = likeness @ (root[:, None] * axes)  # C N^-½ U, so that states without a try are told too
    gain = SPREADS / (1.0 + size)
    worth = np.einsum("ge,ek,em->gkm", weight, z, gain)
    rest = 1.0 - np.einsum("ge,e,em->gm", weight, one, gain)
    likely = -0.5 * (z**2).sum(axis=1) @ (1.0 / (1.0 + size)) - 0.5 * (y.shape[1] - 1) * np.log1p(size).sum(axis=0)
    cross = (z * one[:, None]).T @ (1.0 / (1.0 + size))
    square = one**2 @ (1.0 / (1.0 + size))
    return likely, cross, square, worth, rest
