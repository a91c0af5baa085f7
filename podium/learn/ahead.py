"""What is still to come of a task that is paid stretch by stretch, told by where a stretch ends: branches need not go on to the end, and later luck is not paid.

A scout more in one leg of `expedition` changes who is left for the legs after it. By playing them that is one draw of a dozen outcomes, each as
large as the stakes; a fit to thousands of such draws has far less of their noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from podium.learn.collect import Batch, Rows
from podium.learn.ridge import by_halves, ridge
from podium.trace.columns import F

__all__ = ["foreseen"]

RIDGE = 0.03  # of the features' mean square


def foreseen(batches: Sequence[Batch]) -> list[Batch]:
    """Batches whose options are paid for the stretch in which they were tried, and by what is ahead of them then:

    Q_k = R_k + θ · x_k,   x_k = [what the network makes of the start of the next stretch, 1], 0 if there is none

    θ by ridge regression of L_k - mean_j L_j on x_k - mean_j x_j, options j tried at the same decision on the same dice, where L, what came after the
    stretch, was played. Each half of the episodes is told by a fit to the other. Batches without stretches are as they were.
    """
    parts = [rows for batch in batches for rows in batch.rows if rows.ahead is not None]
    if not parts:
        return list(batches)
    told = iter(np.split(_later(parts), np.cumsum([len(rows.earned) for rows in parts])[:-1]))

    def paid(rows: Rows) -> Rows:
        return rows if rows.ahead is None else rows._replace(earned=rows.earned + next(told), ahead=None)

    return [batch._replace(rows=[paid(rows) for rows in batch.rows]) for batch in batches]


def _later(parts: Sequence[Rows]) -> F:
    """θ · x of each entry, about its decision's mean."""
    x = np.concatenate([_about_means(_features(rows), rows) for rows in parts])
    later = np.concatenate([_about_means(rows.ahead.later, rows) for rows in parts if rows.ahead])
    run = np.concatenate([np.repeat(rows.episode, np.diff(rows.seen.start)) for rows in parts])
    played = ~np.isnan(later)
    return by_halves(run, lambda half: lambda at: at @ ridge(x[half & played], later[half & played], RIDGE), x)


def _features(rows: Rows) -> F:
    assert rows.ahead is not None
    return np.column_stack([rows.ahead.context, rows.ahead.going]).astype(np.float64)


def _about_means(x: F, rows: Rows) -> F:
    """Less the mean over the entries of each row."""
    start, many = rows.seen.start, np.diff(rows.seen.start)
    mean = np.add.reduceat(x, start[:-1], axis=0) / (many if x.ndim == 1 else many[:, None])
    found: F = x - np.repeat(mean, many, axis=0)
    return found
