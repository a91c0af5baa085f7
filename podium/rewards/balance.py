"""Balancing: weights that mean something, and how much of a reward's variation each part of it is.

A policy gradient feels how much a part varies from run to run, not how large it is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from podium.expression import Node, Scaled, Sum, parse, spell
from podium.rewards.ledger import BadReward, Ledger, Now, ledger, read_reward
from podium.trace.columns import F, Trace

__all__ = ["Share", "balanced", "shares"]


class Share(NamedTuple):
    """A part of a reward: its spread over runs, its share of the whole's variance, and how many runs say so."""

    part: str
    spread: float
    share: float
    n: int


def balanced(reward: str | Node, trace: Trace, now: Now = Now(), most: float = 1.0) -> Node:  # noqa: B008
    """The same sum with weights by spread: a part of weight w varies w times as much as the anchor, the first part.

        w_i' = w_i s_0 / s_i · min(1, most / Σ_j |w_j|),   s the deviation over runs of what the bare part pays

    All parts together vary at most `most` times as much as the anchor (taken with its weight). A part that does not
    vary keeps its weight. Refuses where the anchor does not vary.
    """
    tree = read_reward(reward)
    if not isinstance(tree, Sum):
        return tree
    anchor, *others = tree.parts
    spread = _spread(_paid(trace, anchor, now))
    if not spread > 0:
        raise BadReward(
            f"{spell(anchor)} does not vary over these {len(trace)} runs, so nothing can be balanced against it"
        )
    bare = [(p.weight, p.part) if isinstance(p, Scaled) else (1.0, p) for p in others]
    too_much = sum(abs(w) for w, _ in bare) / most
    weighed: list[Node] = [anchor]
    for weight, part in bare:
        own = _spread(_paid(trace, part, now))
        factor = spread / own / max(1.0, too_much) if own > 0 else 1.0
        weighed.append(Scaled(float(f"{weight * factor:.12g}"), part))
    return parse(spell(Sum(tuple(weighed))))


def shares(reward: str | Node, trace: Trace, now: Now = Now()) -> list[Share]:  # noqa: B008 (immutable)
    """The share of the variance over runs that each part of a sum is responsible for. They add up to 1.

        share_i = cov(r_i, Σ r) / var(Σ r)

    Over the runs in which every part was scored; below 0 a part works against the rest. NaN where the sum does not
    vary.
    """
    tree = read_reward(reward)
    parts = tree.parts if isinstance(tree, Sum) else (tree,)
    paid = np.array([_paid(trace, part, now) for part in parts]).reshape(len(parts), -1)
    paid = paid[:, ~np.isnan(paid).any(axis=0)]
    n = paid.shape[1]
    apart = paid - paid.mean(axis=1, keepdims=True) if n else paid
    with_all = (apart * apart.sum(axis=0)).sum(axis=1)
    whole = float(with_all.sum())
    tiny = 1e-12 * float((paid**2).sum())
    return [
        Share(spell(part), _spread(row), float(cov) / whole if whole > tiny else np.nan, n)
        for part, row, cov in zip(parts, paid, with_all, strict=True)
    ]


def _paid(trace: Trace, part: Node, now: Now) -> F:
    """What a part pays each run."""
    paid: Ledger = ledger(trace, part, now)
    return paid.total()


def _spread(paid: F) -> float:
    there = paid[~np.isnan(paid)]
    spread = float(there.std()) if len(there) > 1 else 0.0
    return spread if spread > 1e-12 * float(np.abs(there).max(initial=0.0)) else 0.0
