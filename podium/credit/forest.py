"""Runs that branched off other runs: which rows they share.

A run that left its parent at row b repeats the parent's rows before b. A row stands for a *node*, the same event in
every run that repeats it. The row b itself is another choice in the same *context*.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from podium.graph.grouping import count_of, take, unset
from podium.trace.columns import B, I, Trace
from podium.trace.forest import Forest

__all__ = ["contexts", "copies", "leaves", "nodes", "parents", "roots"]


def parents(trace: Trace | Forest) -> NDArray[np.int64]:
    """For each run the place of its parent, which is of the same batch; -1 for none.

    A parent that is not among the runs gets a place after them all, the same for all its branches.
    """
    if isinstance(trace, Forest):
        return trace.parent_n.astype(np.int64)
    n, branches = len(trace), np.flatnonzero(trace.parent_n.codes >= 0)
    up = unset(n)
    if not len(branches):
        return up
    words = list(dict.fromkeys([*trace.parent_n.words, *trace.trace_id_n.words]))
    batch = np.unique(trace.batch_n, return_inverse=True)[1] * len(words)
    name, of = batch + trace.trace_id_n.recoded(words), (batch + trace.parent_n.recoded(words))[branches]
    name = np.where(trace.trace_id_n.codes >= 0, name, -1)
    known, first = np.unique(name, return_index=True)  # the first of that name
    at = np.searchsorted(known, of)
    lost = np.unique(of, return_inverse=True)[1] + n
    up[branches] = np.where(take(known, at) == of, take(first, at), lost)
    return up


def nodes(trace: Trace | Forest, rows: I) -> NDArray[np.int64]:
    """For each row a number that it shares with the rows of other runs that are the same event; -1 for -1."""
    return _canonical(trace, rows, 0)


def contexts(trace: Trace | Forest, rows: I) -> NDArray[np.int64]:
    """For each row a number that it shares with what other branches did instead of it; -1 for -1."""
    return _canonical(trace, rows, 1)


def copies(trace: Trace | Forest, rows: I) -> B:
    """Whether a row only repeats its parent's: whatever was done in its run was done later."""
    run, local, branch_n = _placed(trace, rows)
    repeats: B = local < take(np.where(parents(trace) >= 0, branch_n, -1), run)
    return repeats


def leaves(trace: Trace | Forest, rows: I) -> NDArray[np.int64]:
    """For each row at which a branch leaves its parent, the parent's row instead of it; else -1."""
    run, local, branch_n = _placed(trace, rows)
    up = parents(trace)
    up = np.where(up < len(trace), up, -1)
    packed, shared_n = (
        (trace.rows, trace.shared_n) if isinstance(trace, Forest) else (trace, np.zeros(len(trace), np.int64))
    )
    first = packed.first_of("e")[:-1] - shared_n
    above = take(up, run)
    return np.where((above >= 0) & (local == take(branch_n, run)), take(first, above) + local, -1)


def roots(trace: Trace | Forest) -> NDArray[np.int64]:
    """For each run the place of the run that all its branches come from."""
    root_n, up = np.arange(len(trace)), parents(trace)
    for _ in range(len(trace)):
        above = take(up, np.where(root_n < len(trace), root_n, -1))
        if (above < 0).all():
            break
        root_n = np.where(above >= 0, above, root_n)
    return root_n


def _placed(trace: Trace | Forest, rows: I) -> tuple[I, I, I]:
    """Of each row its run and its place there; and of each run where it left its parent."""
    if isinstance(trace, Forest):
        return take(trace.rows.rollout_e, rows), trace.local_rows(rows), trace.rows.branch_n
    run = take(trace.rollout_e, rows)
    return run, rows - take(trace.first_of("e")[:-1], run), trace.branch_n


def _canonical(trace: Trace | Forest, rows: I, beyond: int) -> NDArray[np.int64]:
    """Climbs to the first run that has the row, where a child has its parent's rows before `branch + beyond`."""
    up, (at, local, branch_n) = parents(trace), _placed(trace, rows)
    for _ in range(len(trace)):  # ends after as many rounds as branches are deep
        inside = np.where(at < len(trace), at, -1)
        climbs = (take(up, inside) >= 0) & (local < take(branch_n, inside) + beyond)
        if not climbs.any():
            break
        at = np.where(climbs, take(up, inside), at)
    return np.where(rows >= 0, at * count_of(local) + local, -1)
