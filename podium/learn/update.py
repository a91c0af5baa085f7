"""The loss of the small network, over log-probabilities and credit, to be minimised; and Adam.

A loss is a pure function. `logp` is of what was done (one entry a decision, turn or token), `old` under the policy
that did it, `weight` how much each counts; constants are arrays, what a gradient is wanted of is a tape's Var.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from podium.learn import tape
from podium.learn.policy import Parameters
from podium.learn.tape import Array, Node

__all__ = ["adam", "bounded_gain", "critic", "entropy", "every_option", "qmix", "ratio", "weighted_loss"]

N64 = NDArray[np.int64]


def weighted_loss(gain: Node, weight: Array) -> Node:
    """-Σ_i w_i gain_i."""
    return tape.mul(tape.sum_all(tape.mul(gain, weight)), -1.0)


def ratio(logp: Node, old: Array, first: N64 | None = None, mean: bool = False) -> Node:
    """ρ = π / π_old of each entry; with `first`, of each run of entries: its product, or geometric mean (GSPO).

    ρ_i = exp(logp_i - old_i),   ρ_s = exp(Σ_{i in s} (logp_i - old_i)),   ρ_s = exp(mean_{i in s} (logp_i - old_i))
    """
    change = tape.plus(logp, -old)
    if first is not None:
        change = tape.segment_sum(change, first)
        if mean:
            change = tape.mul(change, (1.0 / np.maximum(np.diff(first), 1)).astype(old.dtype))
    return tape.exp(change)


def bounded_gain(rho: Node, credit: Array, low: float, high: float) -> Node:
    """min(ρ A, clip(ρ, 1 - low, 1 + high) A): only the bound on the side where A pulls can be the smaller one."""
    bound = np.where(credit >= 0, 1 + high, 1 - low).astype(credit.dtype) * credit
    return tape.minimum(tape.mul(rho, credit), bound)


def entropy(logp: Node, weight: Array) -> Node:
    """L = Σ_i w_i Σ_k π_k log π_k over all options k: less is more undecided."""
    return tape.sum_all(tape.mul(tape.mul(tape.exp(logp), logp), weight))


def critic(value: Node, target: Array, weight: Array) -> Node:
    """L = ½ Σ_i w_i (V_i - G_i)²: what an actor-critic adds to the policy's own loss."""
    off = tape.plus(value, -target)
    return tape.mul(tape.sum_all(tape.mul(tape.mul(off, off), weight)), 0.5)


def qmix(q: Node, w1: Node, b1: Node, w2: Node, b2: Node) -> Node:
    """Q_tot = |w2| · elu(|w1| Q + b1) + b2, monotone in every Q_i.   from: Rashid et al. 2018.

    q [teams, agents]; w1 [agents, width], b1 [width], w2 [width, 1], b2 [1] from the state or fitted as they are.
    TD is `critic` on Q_tot.
    """
    hidden = tape.elu(tape.plus(tape.matmul(q, tape.absolute(w1)), b1))
    return tape.squeeze(tape.plus(tape.matmul(hidden, tape.absolute(w2)), b2))


def every_option(
    logp: Node, old: Array, credit: Array, weight: Array, clip: float, doubt: float, high: float | None = None
) -> Node:
    """All options of a decision at once, each clipped as PPO clips the one taken, and h times the entropy:

    L = -Σ_i w_i Σ_k [π_old,k min(ρ_k A_k, clip(ρ_k, 1 - ε, 1 + ε) A_k) - h π_k log π_k],   ρ = π / π_old

    With a clip of ∞ π_old,k A_k log π_k in place of the minimum: REINFORCE.
    """
    if math.isinf(clip):  # REINFORCE
        loss = weighted_loss(logp, credit * np.exp(old) * weight)
    else:
        bounded = bounded_gain(ratio(logp, old), credit, clip, clip if high is None else high)
        loss = weighted_loss(bounded, np.exp(old) * weight)
    return tape.plus(loss, tape.mul(entropy(logp, weight), doubt)) if doubt else loss


def adam(
    w: Parameters,
    grad: Parameters,
    m: Parameters,
    v: Parameters,
    step: int,
    rate: float,
    shrink: float = 1.0,
    b1: float = 0.9,
    b2: float = 0.99,
) -> None:
    """Adam (Kingma & Ba 2015), in the arrays given, of gradients times `shrink`: w -= rate m̂ / (√v̂ + 1e-8)."""
    for name, g in grad.items():
        first, second = m[name], v[name]
        first *= b1
        first += (1 - b1) * shrink * g
        second *= b2
        size = g * g
        size *= (1 - b2) * shrink * shrink
        second += size
        np.sqrt(second, out=size)
        size *= 1 / math.sqrt(1 - b2**step)
        size += 1e-8
        np.divide(first, size, out=size)
        size *= rate / (1 - b1**step)
        w[name] -= size
