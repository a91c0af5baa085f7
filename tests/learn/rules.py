"""Update rules of the method table on the tape, by their formulas: what other implementations are compared with."""

from __future__ import annotations

import numpy as np

from podium.learn import tape
from podium.learn.tape import Array, Node
from podium.learn.update import bounded_gain, critic, entropy, every_option, qmix, ratio, weighted_loss

__all__ = [
    "clipped",
    "critic",
    "dual_clipped",
    "entropy",
    "every_option",
    "masked_mirror",
    "qmix",
    "ratio",
    "reinforce",
    "truncated",
]


def reinforce(logp: Node, credit: Array, weight: Array) -> Node:
    """L = -Σ_i w_i A_i log π_i.   from: Williams 1992."""
    return weighted_loss(logp, credit * weight)


def clipped(rho: Node, credit: Array, weight: Array, low: float = 0.2, high: float = 0.2) -> Node:
    """L = -Σ_i w_i min(ρ_i A_i, clip(ρ_i, 1 - low, 1 + high) A_i).   from: PPO; DAPO for two sides; ρ by token, turn or sequence (`ratio`)."""
    return weighted_loss(bounded_gain(rho, credit, low, high), weight)


def dual_clipped(
    rho: Node, credit: Array, weight: Array, low: float = 0.2, high: float = 0.2, most: float = 3.0
) -> Node:
    """As `clipped`, and where A < 0 no less than `most` A: L = -Σ w max(min(ρ A, clip(ρ) A), c A).   from: Ye et al. 2020."""
    floor = np.where(credit < 0, most * credit, -np.inf).astype(credit.dtype)
    held = tape.mul(tape.minimum(tape.mul(bounded_gain(rho, credit, low, high), -1.0), -floor), -1.0)
    return weighted_loss(held, weight)


def masked_mirror(
    logp: Node, old: Array, credit: Array, weight: Array, low: float = 0.5, high: float = 2.0, tau: float = 0.1
) -> Node:
    """L = -Σ_i w_i [Clip(ρ_i, α, β) A_i - τ (log ρ_i)²]: outside [α, β] nothing is learned from A, whatever its sign.   from: Kimi K2.5."""
    change = tape.plus(logp, -old)
    rho = tape.exp(change)
    x = tape.value_of(rho)
    inside = ((x >= low) & (x <= high)).astype(old.dtype)
    outside = np.clip(x, low, high) * (1 - inside)
    held = tape.mul(tape.plus(tape.mul(rho, inside), outside.astype(old.dtype)), credit)
    return weighted_loss(tape.plus(held, tape.mul(tape.mul(change, change), -tau)), weight)


def truncated(logp: Node, old: Array, credit: Array, weight: Array, most: float = 2.0) -> Node:
    """L = -Σ_i w_i min(ρ_i, c) A_i log π_i, the weight min(ρ, c) held constant.   from: truncated importance sampling, Yao et al. 2025."""
    rho = np.minimum(np.exp(tape.value_of(logp) - old), most)
    return weighted_loss(logp, rho * credit * weight)
