"""Token trees: rows share what they share, subtrees are intervals, parts cover every node once."""

from __future__ import annotations

import numpy as np
import pytest

from podium.learn.lm.tree import Tree, inner, join, part_of, partition, segments, tree_of


def random_rows(seed: int, levels: int = 3, ids: int = 3) -> tuple[list[list[int]], list[list[int]]]:
    """Branches that repeat each other's tokens, some empty, sampled by events or given."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[list[int], list[int]]] = [([], [])]

    def grow(row: list[int], owner: list[int], level: int) -> None:
        length = int(rng.integers(0, 6))
        event = len(rows) if rng.random() < 0.7 else -1
        row, owner = row + rng.integers(0, ids, length).tolist(), owner + [event] * length
        rows.append((row, owner))
        for _ in range(int(rng.integers(0, 4)) if level < levels else 0):
            grow(row, owner, level + 1)

    for _ in range(2):
        prompt = rng.integers(0, ids, 4).tolist()
        grow(prompt, [-1] * 4, 0)
    return [r for r, _ in rows], [o for _, o in rows]


def random_tree(seed: int, levels: int = 3, ids: int = 3) -> Tree:
    rows, owner = random_rows(seed, levels, ids)
    credit = np.random.default_rng(seed).normal(size=len(rows) + 1)
    weight = [[float(credit[e]) if e >= 0 else 0.0 for e in o] for o in owner]
    return tree_of(rows, weight, weight, [[e >= 0 for e in o] for o in owner], owner)


def above(tree: Tree) -> np.ndarray:
    """Which nodes each one is or descends from, by walking."""
    seen = np.zeros((len(tree), len(tree)), bool)
    for k, parent in enumerate(tree.parent):
        seen[k] = seen[parent] if parent >= 0 else False
        seen[k, k] = True
    return seen


@pytest.mark.parametrize("seed", range(8))
def test_rows_are_paths_and_subtrees_are_intervals(seed: int) -> None:
    rows, owner = random_rows(seed)
    tree = random_tree(seed)
    for row, own, nodes in zip(rows, owner, tree.node_of, strict=True):
        assert tree.token[nodes].tolist() == row
        assert tree.owner[nodes].tolist() == own
        assert tree.parent[nodes].tolist() == [-1, *nodes[:-1]][: len(nodes)]
        assert tree.position[nodes].tolist() == list(range(len(nodes)))
    k = np.arange(len(tree))
    assert np.array_equal(above(tree), (k <= k[:, None]) & (k[:, None] < tree.end))
    assert tree.through.sum() == sum(map(len, rows))
    keys = {
        tuple(zip(row[: i + 1], own[: i + 1], strict=True))
        for row, own in zip(rows, owner, strict=True)
        for i in range(len(row))
    }
    assert len(tree) == len(keys)


def test_tokens_of_two_events_are_two_nodes_and_given_ones_are_one() -> None:
    """Three answers to one prompt, two of them the same words; the last goes on from the first."""
    rows = [[1, 2, 7, 7], [1, 2, 7, 7], [1, 2, 7, 7, 3, 9]]
    owner = [[-1, -1, 0, 0], [-1, -1, 1, 1], [-1, -1, 0, 0, -1, 2]]
    weight = [[0, 0, 1.0, 1.0], [0, 0, -1.0, -1.0], [0, 0, 0, 0, 0, 2.0]]
    mask = [[0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0, 0, 1]]
    tree = tree_of(rows, weight, weight, mask, owner)
    assert len(tree) == 8
    assert tree.weight.sum() == 2.0
    assert tree.weight[tree.node_of[2]].tolist() == [0, 0, 1, 1, 0, 2]
    assert tree.through[tree.node_of[2]].tolist() == [3, 3, 2, 2, 1, 1]
    assert np.isnan(tree.old_logp[tree.owner < 0]).all()


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="disagree on the weight"):
        tree_of([[1, 2], [1, 2]], [[0, 1], [0, 2]], [[0, 0]] * 2, [[0, 1]] * 2, [[-1, 5]] * 2)
    with pytest.raises(ValueError, match="sampled by an event"):
        tree_of([[1, 2]], [[0, 1]], [[0, 0]], [[0, 1]], [[-1, -1]])
    with pytest.raises(ValueError, match="as many as there are ids"):
        tree_of([[1, 2]], [[0]], [[0, 0]], [[0, 1]], [[-1, 0]])


def test_ids_sampled_among_travel_with_their_node() -> None:
    tree = tree_of(
        [[1, 2], [1, 3]], [[0, 1]] * 2, [[0, 0]] * 2, [[0, 1]] * 2, [[-1, 0], [-1, 1]], [[None, [2, 3]], None]
    )
    assert np.diff(tree.among_start).tolist() == [0, 2, 0]
    both = join([tree, tree])
    assert np.diff(both.among_start).tolist() == [0, 2, 0] * 2
    assert np.diff(part_of(both, partition(both, 3)[1]).among_start).tolist() == [0, 2, 0]


@pytest.mark.parametrize("seed", range(4))
def test_a_forest_is_a_longer_tree(seed: int) -> None:
    one, other = random_tree(seed), random_tree(seed + 50)
    both = join([one, other])
    n = len(one)
    assert both.parent[n:].tolist() == [p + n if p >= 0 else -1 for p in other.parent]
    assert both.end[n:].tolist() == (other.end + n).tolist()
    assert [x.tolist() for x in both.node_of] == [x.tolist() for x in one.node_of] + [
        (x + n).tolist() for x in other.node_of
    ]


@pytest.mark.parametrize("seed", range(8))
def test_segments_have_no_branch_within_and_cover_everything(seed: int) -> None:
    tree = random_tree(seed)
    s = segments(tree)
    assert s.first[0] == 0
    assert s.stop.tolist() == [*s.first[1:], len(tree)]
    children = np.bincount(tree.parent[tree.parent >= 0], minlength=len(tree))
    for first, stop, end in zip(s.first, s.stop, s.end, strict=True):
        assert (tree.parent[first + 1 : stop] == np.arange(first, stop - 1)).all()
        assert (children[first : stop - 1] == 1).all()
        assert (tree.end[first:stop] == end).all()


def fewest_again(tree: Tree, most: int) -> int:
    """The fewest tokens that consecutive parts of branches compute twice, by trying all ways to cut."""
    leaves = np.flatnonzero(tree.end == np.arange(len(tree)) + 1)
    paths = [set(np.flatnonzero(a)) for a in above(tree)[leaves]]
    best = len(tree) * len(leaves)
    for cuts in range(2 ** (len(leaves) - 1)):
        groups: list[set[int]] = [set(paths[0])]
        for i, path in enumerate(paths[1:]):
            if cuts >> i & 1:
                groups.append(set())
            groups[-1] |= path
        if max(map(len, groups)) <= most:
            best = min(best, sum(map(len, groups)) - len(tree))
    return best


@pytest.mark.parametrize("seed", range(12))
def test_parts_fit_cover_and_recompute_the_least(seed: int) -> None:
    tree = random_tree(seed, levels=2)
    longest = int(tree.position.max()) + 1
    for most in (longest, longest + 3, len(tree) - 1, len(tree)):
        parts = partition(tree, most)
        assert [k for p in parts for k in range(p.first, p.stop)] == list(range(len(tree)))
        assert max(map(len, parts)) <= max(most, longest)
        for part in parts:
            piece = part_of(tree, part)
            assert not piece.sampled[: len(part.above)].any()
            assert piece.token.tolist() == tree.token[[*part.above, *range(part.first, part.stop)]].tolist()
        if len(np.flatnonzero(tree.end == np.arange(len(tree)) + 1)) <= 12:
            assert sum(map(len, parts)) - len(tree) == fewest_again(tree, most)
    with pytest.raises(ValueError, match="a branch has"):
        partition(tree, longest - 1)


def test_only_what_something_was_sampled_after_is_computed() -> None:
    tree = tree_of([[1, 2, 3, 4, 5]], [[0, 0, 1, 0, 0]], [[0] * 5], [[0, 0, 1, 0, 0]], [[-1, -1, 0, -1, -1]])
    assert inner(tree).tolist() == [0, 1]
    assert len(join([])) == 0
