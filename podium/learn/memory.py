"""What was made of a record is not made again: pools over items that have not changed since the last decision."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from podium.learn import tape
from podium.learn.policy import Net, Parameters, Seen, encoded
from podium.learn.tape import Array

__all__ = ["Memory"]

N64 = NDArray[np.int64]
LOW = np.float32(-2.0)  # below every embedding, which is a tanh


class Memory:
    """Sums and maxima over the items of episodes under way, for one set of parameters.

    Items that an episode showed twice in the same place are *settled*: their part is kept, and only what came after
    is embedded at the next decision. If a settled item changes after all, its episode is embedded anew.
    """

    def __init__(self, net: Net, w: Parameters, n: int) -> None:
        self.net, self.w = net, w
        self.items = np.zeros((n, 8, net.figures[1]), np.float32)
        self.count = np.zeros(n, np.int64)
        self.settled = np.zeros(n, np.int64)
        self.sum = np.zeros((n, net.shape.item), np.float32)
        self.max = np.full((n, net.shape.item), LOW)

    def pools(self, seen: Seen, row: N64) -> tuple[Array, Array, Array, Array]:
        """Σ_j e_j and max_j e_j (0 if there is none) of each row of what is seen, and of its new items; `row` are
        the episodes."""
        count = tape.lengths(seen.first)
        owner, local = np.repeat(np.arange(len(row)), count), _local(seen.first)
        same = self._unchanged(seen, row, owner, local)
        again = (same < self.settled[row]) | (count - seen.new < self.settled[row])
        if again.any():
            self.settled[row[again]], self.sum[row[again]], self.max[row[again]] = 0, 0.0, LOW
        old = self.settled[row]
        fresh = np.flatnonzero(local >= old[owner])
        e = self.net.embedded(self.w, encoded(seen.items[fresh]), seen.role)
        settles = local[fresh] < same[owner[fresh]]
        total, top = _pooled(e[settles], same - old)
        self.sum[row] += total
        self.max[row] = np.maximum(self.max[row], top)
        self.settled[row] = same
        self._keep(seen, row, owner, local, count)
        total, top = _pooled(e[~settles], count - same)
        top = np.maximum(self.max[row], top)
        top[count == 0] = 0.0
        new = e[(local >= (count - seen.new)[owner])[fresh]]
        ends = np.concatenate([[0], np.cumsum(seen.new)])
        return self.sum[row] + total, top, tape.segment_sum(new, ends), tape.segment_max(new, ends)

    def copy(self, source: N64, target: N64) -> None:
        """Some episodes go on as others do."""
        for column in (self.items, self.count, self.settled, self.sum, self.max):
            column[target] = column[source]

    def _unchanged(self, seen: Seen, row: N64, owner: N64, local: N64) -> N64:
        """How many items at the beginning of each record are what they were at the last decision."""
        had = np.minimum(self.count[row], tape.lengths(seen.first))
        known = np.flatnonzero(local < had[owner])
        differs = (self.items[row[owner[known]], local[known]] != seen.items[known].astype(np.float32)).any(axis=1)
        same = had.copy()
        if differs.any():
            at = known[differs]
            np.minimum.at(same, owner[at], local[at])
        return same

    def _keep(self, seen: Seen, row: N64, owner: N64, local: N64, count: N64) -> None:
        while count.max(initial=0) > self.items.shape[1]:
            self.items = np.concatenate([self.items, np.zeros_like(self.items)], 1)
        self.items[row[owner], local] = seen.items
        self.count[row] = count


def _local(first: N64) -> N64:
    """The place of each item in its own segment."""
    return np.arange(first[-1]) - np.repeat(first[:-1], tape.lengths(first))


def _pooled(e: Array, count: N64) -> tuple[Array, Array]:
    """Sums and maxima of so many rows each; `LOW` is the maximum of none."""
    first = np.concatenate([[0], np.cumsum(count)])
    total, top = tape.segment_sum(e, first), tape.segment_max(e, first)
    top[count == 0] = LOW
    return total, top
