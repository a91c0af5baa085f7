"""Token trees: rows of tokens that share a prefix share its nodes, so every token is laid out, computed and owned
once.

Nodes are in depth-first order, so a parent is before its child and a subtree is an interval: the descendants of k
are k < q < end_k, and q sees k exactly if k <= q < end_k. Everything here is numpy; what runs on it is in
`attention.py` and `packed.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Part", "Segments", "Tree", "inner", "join", "part_of", "partition", "segments", "take", "tree_of"]

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
Among = Sequence[Sequence[Sequence[int] | None] | None]


@dataclass(frozen=True)
class Tree:
    """Columns over unique tokens (nodes k), over the tokens of the rows they came from, and over rows."""

    token: I64  # [k]
    parent: I64  # [k] the node before it, -1 for a root
    position: I64  # [k] how many are before it along its branch
    end: I64  # [k] its subtree is [k, end)
    owner: I64  # [k] the event that sampled it, -1 for a token that was given
    through: I64  # [k] how many rows pass through it
    weight: F64  # [k] what its loss counts, 0 where it is not trained
    old_logp: F64  # [k] under the policy that sampled it, NaN where it was given
    among: I64  # ids that could have been sampled, those of node k at among_start[k]:among_start[k + 1]; none: any
    among_start: I64  # [k + 1]
    node: I64  # the node of each row's tokens, those of row r at row_start[r]:row_start[r + 1]
    row_start: I64  # [rows + 1]

    def __len__(self) -> int:
        return len(self.token)

    @property
    def sampled(self) -> NDArray[np.bool_]:
        """[k] whose log-probability can enter a loss: a policy chose it, after something."""
        return (self.owner >= 0) & (self.parent >= 0)

    @property
    def node_of(self) -> list[I64]:
        """The nodes of each row's tokens."""
        return [self.node[a:b] for a, b in zip(self.row_start[:-1], self.row_start[1:], strict=True)]

    @property
    def rho(self) -> float:
        """Tokens if branches were separate / unique tokens: what packing saves of all work that is by the token."""
        return len(self.node) / max(len(self), 1)


def _flat(columns: Sequence[ArrayLike], dtype: type, lengths: I64, what: str) -> NDArray[np.generic]:
    arrays: list[NDArray[np.generic]] = [np.asarray(c, dtype) for c in columns]
    if [len(a) for a in arrays] != lengths.tolist():
        raise ValueError(f"{what}: one entry for each token of each row is expected, as many as there are ids")
    return np.concatenate(arrays) if arrays else np.empty(0, dtype)


def _offsets(lengths: ArrayLike) -> I64:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _shared(a: I64, b: I64) -> int:
    """How long the common prefix of two rows is."""
    n = min(len(a), len(b))
    differs = np.flatnonzero(a[:n] != b[:n])
    return int(differs[0]) if len(differs) else n


def _nodes(keys: list[I64]) -> tuple[list[I64], I64, I64]:
    """Node of each row's tokens, and parent and position of each node: rows in lexicographic order are branches in
    depth-first order."""
    order = sorted(range(len(keys)), key=lambda r: keys[r].astype(">u8").tobytes())
    nodes: list[I64] = [np.empty(0, np.int64)] * len(keys)
    parents, positions = [], []
    count, before = 0, -1
    for row in order:
        same = _shared(keys[before], keys[row]) if before >= 0 else 0
        new = np.arange(count, count + len(keys[row]) - same)
        path = np.concatenate([nodes[before][:same], new])
        nodes[row], before, count = path, row, count + len(new)
        parents.append(np.concatenate([[-1], path])[same:-1] if len(new) else new)
        positions.append(np.arange(same, len(path)))
    empty = np.empty(0, np.int64)
    return nodes, np.concatenate([empty, *parents]), np.concatenate([empty, *positions])


def _ends(parent: I64, position: I64) -> I64:
    """end_k = the first j > k with position_j <= position_k: depth-first, that one is outside of k's subtree."""
    count = len(parent)
    end = np.empty(count, np.int64)
    starts = np.union1d(np.flatnonzero(parent != np.arange(count) - 1), np.arange(min(count, 1)))
    later_position, later_start = [-1], [count]  # runs to the right, each the nearest of its position or less
    for first, stop in zip(starts[::-1], np.append(starts, count)[:0:-1], strict=True):
        end[first:stop] = np.array(later_start)[np.searchsorted(later_position, position[first:stop], "right") - 1]
        while later_position[-1] >= position[first]:
            later_position.pop()
            later_start.pop()
        later_position.append(int(position[first]))
        later_start.append(int(first))
    return end


def tree_of(
    sequences: Sequence[ArrayLike],
    weight: Sequence[ArrayLike],
    old: Sequence[ArrayLike],
    mask: Sequence[ArrayLike],
    owner: Sequence[ArrayLike],
    among: Among | None = None,
) -> Tree:
    """The tree of rows of ids: two tokens are one node if all before them are, they are the same id and have the
    same owner.

    `owner` is the event that sampled a token and -1 for one that was given, so given tokens merge and tokens of
    different events never do. A node is trained if `mask` says so in any row; rows that pass through it must agree
    on its weight. `among` has for each row None or for each token None or the ids it was sampled among.

    >>> weight, old, owner = [[0, 0, 1.0], [0, 0, 2.0]], [[0, 0, -1.0]] * 2, [[-1, -1, 0], [-1, -1, 1]]
    >>> t = tree_of([[5, 6, 7], [5, 6, 8]], weight, old, [[0, 0, 1]] * 2, owner)
    >>> t.token.tolist(), t.parent.tolist(), t.through.tolist(), t.weight.tolist()
    ([5, 6, 7, 8], [-1, 0, 1, 1], [2, 2, 1, 1], [0.0, 0.0, 1.0, 2.0])
    """
    lengths = np.array([len(np.atleast_1d(s)) for s in sequences], np.int64)
    token_t = _flat(sequences, np.int64, lengths, "sequences").astype(np.int64)
    owner_t = _flat(owner, np.int64, lengths, "owner").astype(np.int64)
    mask_t = _flat(mask, bool, lengths, "mask").astype(bool)
    weight_t = _flat(weight, np.float64, lengths, "weight").astype(np.float64)
    old_t = _flat(old, np.float64, lengths, "old").astype(np.float64)
    if (mask_t & (owner_t < 0)).any():
        raise ValueError("a trained token was sampled by an event: its owner cannot be -1")
    row_start = _offsets(lengths)
    nodes, parent, position = _nodes(np.split(((owner_t + 1) << 32) | token_t, row_start[1:-1])[: len(lengths)])
    node_t, count = np.concatenate([np.empty(0, np.int64), *nodes]), len(parent)
    weight_k, old_k = np.zeros(count), np.full(count, np.nan)
    token_k, owner_k = np.empty(count, np.int64), np.empty(count, np.int64)
    token_k[node_t], owner_k[node_t] = token_t, owner_t
    weight_k[node_t[mask_t]], old_k[node_t[mask_t]] = weight_t[mask_t], old_t[mask_t]
    if (weight_k[node_t] != weight_t)[mask_t].any():
        raise ValueError("rows disagree on the weight of a token that they share: it is owned, and counted, once")
    ids = _among(among, lengths, node_t, count)
    return Tree(
        token=token_k,
        parent=parent,
        position=position,
        end=_ends(parent, position),
        owner=owner_k,
        through=np.bincount(node_t, minlength=count),
        weight=weight_k,
        old_logp=old_k,
        among=np.array([i for each in ids for i in each], np.int64),
        among_start=_offsets([len(each) for each in ids]),
        node=node_t,
        row_start=row_start,
    )


def _among(among: Among | None, lengths: I64, node_t: I64, count: int) -> list[Sequence[int]]:
    """Of each node the ids it was sampled among; none for any."""
    ids: list[Sequence[int]] = [()] * count
    t = 0
    for row, length in zip(among or (), lengths, strict=False):
        for i, each in enumerate(row or ()):
            if each is not None:
                ids[node_t[t + i]] = each
        t += length
    return ids


def join(trees: Sequence[Tree]) -> Tree:
    """A forest is a longer tree: the columns one after another, nodes and offsets shifted."""
    if len(trees) < 2:
        return trees[0] if trees else tree_of([], [], [], [], [])
    nodes, ids, tokens = (
        _offsets([len(c) for c in cs]) for cs in zip(*((t, t.among, t.node) for t in trees), strict=True)
    )
    shift = {"end": nodes, "node": nodes, "among_start": ids, "row_start": tokens}

    def column(name: str, i: int) -> NDArray[np.generic]:
        c: NDArray[np.generic] = getattr(trees[i], name)
        if name == "parent":
            return np.where(trees[i].parent < 0, -1, trees[i].parent + nodes[i])
        if name in shift:
            c = c + shift[name][i]
        return c[:-1] if name in ("among_start", "row_start") and i < len(trees) - 1 else c

    return Tree(**{f.name: np.concatenate([column(f.name, i) for i in range(len(trees))]) for f in fields(Tree)})


@dataclass(frozen=True)
class Segments:
    """Maximal runs of nodes without a branch: tokens [first, stop), descendants [stop, end), level = how many
    segments are above."""

    first: I64
    stop: I64
    end: I64
    level: I64


def segments(tree: Tree) -> Segments:
    """A segment starts at a root, after a branch point, and wherever depth-first order goes back."""
    count = len(tree)
    children = np.bincount(tree.parent[tree.parent >= 0], minlength=count)
    follows = tree.parent == np.arange(count) - 1
    starts = ~follows | (np.where(tree.parent >= 0, children[tree.parent], 2) > 1)
    first = np.flatnonzero(starts)
    within = np.cumsum(starts) - 1
    level = np.zeros(len(first), np.int64)
    for s, above in enumerate(tree.parent[first]):
        if above >= 0:
            level[s] = level[within[above]] + 1
    return Segments(first=first, stop=np.append(first[1:], count)[: len(first)], end=tree.end[first], level=level)


@dataclass(frozen=True)
class Part:
    """Nodes of a tree that are computed together: all those above the ones that count here, and these, which are
    consecutive."""

    above: I64  # computed again, with gradient, since what counts attends to them
    first: int
    stop: int

    def __len__(self) -> int:
        return len(self.above) + self.stop - self.first


def partition(tree: Tree, most_tokens: int | None = None) -> list[Part]:
    """Consecutive parts of at most `most_tokens`, every node counting in one, that recompute the fewest tokens.

    Branches i..j in depth-first order need shared_i + leaf_j - leaf_{i-1} tokens, shared_i being what branch i
    shares with the one before;
    f_j = min_i f_{i-1} + shared_i, the least that is computed twice, over all i for which that fits; among equals
    the fewest parts.
    """
    count = len(tree)
    if most_tokens is None or count <= most_tokens:
        return [Part(np.empty(0, np.int64), 0, count)] if count else []
    leaf = np.flatnonzero(tree.end == np.arange(count) + 1)
    before = np.concatenate([[-1], leaf[:-1]])
    shared = tree.position[leaf] + 1 - (leaf - before)
    longest = int((tree.position[leaf] + 1).max())
    if longest > most_tokens:
        raise ValueError(f"a branch has {longest} tokens, and at most {most_tokens} are to be computed at once")
    again, cut = np.zeros(len(leaf) + 1), np.zeros(len(leaf), np.int64)
    for j, last in enumerate(leaf):
        low = int(np.searchsorted(before, last - most_tokens, "left"))  # what is new alone must fit
        cost = np.where(
            shared[low : j + 1] + last - before[low : j + 1] <= most_tokens, shared[low : j + 1] + 1e-3, np.inf
        )
        cut[j] = low + np.argmin(again[low : j + 1] + cost)
        again[j + 1] = (again[low : j + 1] + cost).min()
    parts, j = [], len(leaf) - 1
    while j >= 0:
        i = int(cut[j])
        parts.append(Part(_path(tree.parent, int(before[i]) + 1), int(before[i]) + 1, int(leaf[j]) + 1))
        j = i - 1
    return parts[::-1]


def _path(parent: I64, node: int) -> I64:
    """All nodes above one, the root first."""
    path = []
    while (node := int(parent[node])) >= 0:
        path.append(node)
    return np.array(path[::-1], np.int64)


def part_of(tree: Tree, part: Part) -> Tree:
    """The part as a tree of its own, where what is above is only given."""
    if len(part) == len(tree):
        return tree
    nodes = np.concatenate([part.above, np.arange(part.first, part.stop)])
    return take(tree, nodes, np.arange(len(nodes)) >= len(part.above))


def inner(tree: Tree) -> I64:
    """Nodes after which something was sampled: those whose hidden state matters."""
    up_to = _offsets(tree.sampled)
    return np.flatnonzero(up_to[tree.end] > up_to[1:])


def take(tree: Tree, nodes: I64, counts: NDArray[np.bool_] | None = None) -> Tree:
    """Some nodes, in order and with all that is above them, as a tree without rows; those that do not count are
    only given."""
    counts = np.ones(len(nodes), bool) if counts is None else counts
    place = np.full(len(tree) + 1, -1, np.int64)  # the last entry is the parent of roots
    place[nodes] = np.arange(len(nodes))
    parent, position = place[tree.parent[nodes]], tree.position[nodes]
    wide = np.diff(tree.among_start)[nodes]
    within = np.arange(wide.sum()) - np.repeat(_offsets(wide)[:-1], wide)
    return Tree(
        token=tree.token[nodes],
        parent=parent,
        position=position,
        end=_ends(parent, position),
        owner=np.where(counts, tree.owner[nodes], -1),
        through=tree.through[nodes],
        weight=np.where(counts, tree.weight[nodes], 0.0),
        old_logp=tree.old_logp[nodes],
        among=tree.among[np.repeat(tree.among_start[nodes], wide) + within],
        among_start=_offsets(wide),
        node=np.empty(0, np.int64),
        row_start=np.zeros(1, np.int64),
    )
