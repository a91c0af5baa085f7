"""Digests of token ids that compose along a path: what a model saw is checked without writing it down."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from podium.trace.columns import I

__all__ = [
    "DIGEST",
    "FIELDS",
    "digest",
    "extend",
    "hashes_of",
    "powers",
    "prefix_sums",
    "span_hashes",
    "spelled",
    "spelled_one",
]

DIGEST = "seen_ids"  # the field of an event with the digest of all ids the model saw and wrote
FIELDS = ((2_147_483_647, 1_103_515_245), (2_147_483_629, 1_664_525_013))  # a prime below 2^31 and a base, twice

U = NDArray[np.uint64]
N = NDArray[np.int64]


def digest(ids: I) -> str:
    """A digest of token ids that composes along a path; two lists that differ in one token never share it.

        h = Σ_i (id_i + 1) b^i  modulo p,    for two primes p, and the length

    >>> digest(np.array([1, 2, 3])), digest(np.array([1, 2, 4])) == digest(np.array([1, 2, 3]))
    ('3:570fc0755bd3143f', False)
    """
    return spelled_one(len(ids), *hashes_of(np.asarray(ids)))


def spelled_one(n: int, h1: int, h2: int) -> str:
    return f"{n}:{h1:08x}{h2:08x}"


def extend(length: N, h1: N, h2: N, ids: Sequence[Sequence[int]]) -> tuple[N, N, N]:
    """Lengths and both hashes of lists of ids that follow those whose lengths and hashes are given; all 0 for none.

    >>> none = np.zeros(1, np.int64)
    >>> spelled(*extend(*extend(none, none, none, [[1, 2]]), [[3]])) == [digest(np.array([1, 2, 3]))]
    True
    """
    count = np.array([len(some) for some in ids], np.int64)
    stop = np.cumsum(count)
    token = np.fromiter(chain.from_iterable(ids), np.int64, int(count.sum()))
    place = np.arange(len(token)) + np.repeat(length - stop + count, count)
    added = span_hashes(token, place, stop - count, count)
    h1, h2 = ((h + more) % prime for h, more, (prime, _) in zip((h1, h2), added, FIELDS, strict=True))
    return length + count, h1, h2


def spelled(length: N, h1: N, h2: N) -> list[str]:
    """Digests as text."""
    return [spelled_one(*one) for one in zip(length.tolist(), h1.tolist(), h2.tolist(), strict=True)]


def powers(n: int, field: tuple[int, int]) -> U:
    """b^0, ..., b^(n - 1) modulo p, by doubling."""
    prime, base = field
    power = np.ones(max(n, 1), np.uint64)
    done = 1
    while done < n:
        step = min(done, n - done)
        power[done : done + step] = power[:step] * np.uint64(pow(base, done, prime)) % np.uint64(prime)
        done += step
    return power


def _terms(token: I, place: N, field: tuple[int, int], longest: int) -> U:
    """(id + 1) b^place modulo p; each is below 2^31, so four billion of them add up without overflow."""
    prime = np.uint64(field[0])
    terms: U = (token.astype(np.uint64) + np.uint64(1)) % prime * powers(longest, field)[place] % prime
    return terms


def prefix_sums(token: I, place: N) -> list[U]:
    """In each field the sums of terms before each token, and of all."""
    longest = int(place.max(initial=0)) + 1
    return [np.append(np.uint64(0), np.cumsum(_terms(token, place, field, longest))) for field in FIELDS]


def span_hashes(token: I, place: N, first: N, count: N) -> N:
    """Both hashes of each span of tokens, at these places of their contexts."""
    sums = prefix_sums(token, place)
    return np.array(
        [(s[first + count] - s[first]) % np.uint64(p) for s, (p, _) in zip(sums, FIELDS, strict=True)], np.int64
    )


def hashes_of(ids: I) -> tuple[int, int]:
    (h1,), (h2,) = span_hashes(ids, np.arange(len(ids)), np.zeros(1, np.int64), np.array([len(ids)])).tolist()
    return h1, h2
