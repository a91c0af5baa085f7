"""Whether the tokens of a trace are exact: does concatenating along a path give the ids that the model saw?

A generation event owns tokens and names the generation whose context it extends, so tokens form a tree. Two ways of
writing it down are read. A generation may own only what is new, its `start` saying at which place of its context
that begins; or it may repeat its whole prompt, as most other tools do, as tokens with mask 0 of its own event.
Where such a trace names no context, the one that is extended is sought among earlier generations of the run, and
said to be inferred.

Every generation is put into one of four classes, and whatever cannot be proven is not clean:

    clean      its context is, id by id, the context that it extends and the tokens of that
    realigned  ids differ, a few at a time, and agree again up to the end of that context: text tokenised again
    fork       another context: compaction, edited history, a second answer to the same prompt, a sub-agent
    unknown    ids, places or counts are missing or contradict each other, here or earlier on the path
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from podium.trace.columns import I, Trace, ranges
from podium.trace.tokens import DIGEST, FIELDS, digest, hashes_of, powers, prefix_sums, span_hashes, spelled_one

__all__ = ["CLASSES", "PROOFS", "Drift", "Exactness", "align", "exactness"]

CLASSES = ("clean", "realigned", "fork", "unknown")
PROOFS = ("place", "ids", "digest")  # what a clean generation was held against: its place, repeated ids, a digest

WINDOW, ANCHOR, TAIL = 32, 8, 4  # tokens that may differ at once, that must agree after, that may differ at the end

U = NDArray[np.uint64]
N = NDArray[np.int64]


class Drift(NamedTuple):
    """How a context differs from the one it extends: tokens that agree at first, differ in all, and in how many
    places."""

    common: int
    differ: int
    places: int


@dataclass(frozen=True, slots=True)
class Exactness:
    """What was found: for each generation `_g` its row, class, the row it was held against and why it is not
    clean."""

    row_g: N
    class_g: N
    proof_g: N  # -1 where it is not clean
    parent_g: N  # -1 where nothing is extended
    inferred_g: NDArray[np.bool_]  # whether that generation was sought, because the trace does not name it
    said: dict[int, str]  # by row
    tokens: int
    silent: int  # sampled tokens without a log-probability, or of which nobody says whether they were sampled

    def count(self, name: str) -> int:
        return int((self.class_g == CLASSES.index(name)).sum())

    def rows(self, name: str) -> list[int]:
        rows: list[int] = self.row_g[self.class_g == CLASSES.index(name)].tolist()
        return rows


def align(whole: I, prompt: I) -> Drift | None:
    """How a prompt differs from the context it should begin with; None if it is another context.

    Where ids differ, the least number of tokens is left out on both sides (at most 32 on each) after which 8 agree,
    or all that are left of the context. Up to 4 tokens at its very end may differ with nothing after them to agree.
    More tokens that differ than agree are another context, and so is a prompt that ends within the context.

    >>> align(np.arange(20), np.array([*range(9), 99, 98, *range(10, 25)]))
    Drift(common=9, differ=2, places=1)
    """
    i = j = differ = places = 0
    common = -1
    while True:
        same = _agree(whole[i:], prompt[j:])
        i, j = i + same, j + same
        common = i if common < 0 else common
        if i == len(whole):
            return Drift(common, differ, places) if differ <= i - differ else None
        skip = _skip(whole[i : i + WINDOW + ANCHOR], prompt[j : j + WINDOW + ANCHOR], len(whole) - i)
        if skip is None:
            return None
        i, j, differ, places = i + skip[0], j + skip[1], differ + max(skip), places + 1


def _agree(a: I, b: I) -> int:
    """How many tokens agree from the beginning on; looks at no more than twice as many."""
    n, done, step = min(len(a), len(b)), 0, 64
    while done < n:
        differ = np.flatnonzero(a[done : min(done + step, n)] != b[done : min(done + step, n)])
        if len(differ):
            return done + int(differ[0])
        done, step = done + step, 2 * step
    return n


def _skip(whole: I, prompt: I, left: int) -> tuple[int, int] | None:
    """The least number of tokens to leave out of each so that they agree again."""
    if not len(prompt):
        return None
    a = np.append(whole, np.full(ANCHOR, -1))  # past the end of the context anything agrees
    b = np.append(prompt, np.full(ANCHOR, -2))  # past the end of the prompt nothing does
    a_w, b_w = sliding_window_view(a, ANCHOR)[: WINDOW + 1], sliding_window_view(b, ANCHOR)[: WINDOW + 1]
    again = ((a_w[:, None] == b_w) | (a_w[:, None] == -1)).all(2)
    again[min(left, WINDOW + 1) :] = False  # nothing is left there that could agree
    if left <= TAIL:
        again[left, 0] = True
    x, y = np.nonzero(again)
    if not len(x):
        return None
    best = int(np.lexsort((x, x + y))[0])
    return int(x[best]), int(y[best])


class _Layout(NamedTuple):
    """Where the tokens of each event lie, and what is told about them."""

    token_k: I
    row_g: N
    first_e: N  # of its tokens
    owned_e: N
    prompt_e: N  # how many of its tokens come before those it sampled last
    in_e: N  # tokens of the prompt that it states, -1 where it does not or they are not a prompt and an answer
    out_e: N
    lost_e: NDArray[np.bool_]  # whether the id of some of its tokens is not recorded


def _layout(trace: Trace) -> _Layout:
    owner_k, token_k, mask_k, n = trace.owner_k, trace.token_k, trace.mask_k, trace.n_events
    astray = (owner_k < 0) | (owner_k >= n)
    if astray.any() or (owner_k[1:] < owner_k[:-1]).any():
        by_owner = np.flatnonzero(~astray)[np.argsort(owner_k[~astray], kind="stable")]
        owner_k, token_k, mask_k = owner_k[by_owner], token_k[by_owner], mask_k[by_owner]
    owned_e = np.bincount(owner_k, minlength=n)
    first_e = np.cumsum(owned_e) - owned_e
    given = np.flatnonzero(mask_k == 0)
    prompt_e = np.zeros(n, np.int64)
    prompt_e[owner_k[given]] = given - first_e[owner_k[given]] + 1  # the last is written last, so it stays
    given_e = np.bincount(owner_k[given], minlength=n)
    plain_e = (given_e == prompt_e) & (np.bincount(owner_k[mask_k < 0], minlength=n) == 0) & (owned_e > 0)
    told_in, told_out = (
        np.where(plain_e & ~np.isnan(c), np.nan_to_num(c), -1).astype(np.int64)
        for c in (trace.tokens_in_e, trace.tokens_out_e)
    )
    prompt_e[np.bincount(owner_k[mask_k >= 0], minlength=n) == 0] = -1
    prompt_e = np.where(prompt_e < 0, owned_e, prompt_e)
    writes_e = np.nan_to_num(trace.tokens_out_e) > 0
    model_e = trace.model_e.codes >= 0
    row_g = np.flatnonzero((owned_e > 0) | (trace.context_e >= 0) | (trace.start_e >= 0) | writes_e | model_e)
    lost_e = np.bincount(owner_k[token_k < 0], minlength=n) > 0
    return _Layout(token_k, row_g, first_e, owned_e, prompt_e, told_in, told_out, lost_e)


def exactness(trace: Trace) -> Exactness:
    """The class of every generation. Time is linear in the tokens, but that a context whose pieces lie in many
    events is put together once for each generation that repeats it."""
    tree = _Tree(trace)
    tree.sweep()
    row_g = tree.layout.row_g
    full = row_g[(tree.place_e[row_g] == 0) & tree.whole_e[row_g]]
    named, free = full[trace.context_e[full] >= 0], full[trace.context_e[full] < 0]
    extended, before = tree.extended(free), tree.before(free)
    # its own past comes first: skipping it would hide what differs there
    against = np.where(before >= 0, before, extended)
    known = against >= 0
    tree.compare(np.append(named, free[known]), np.append(trace.context_e[named], against[known]).astype(np.int64))
    parent_e, inferred_e = np.array(trace.context_e, np.int64), np.zeros(trace.n_events, np.bool_)
    parent_e[free] = np.where((tree.class_e[free] == 0) & (extended >= 0), extended, against)
    inferred_e[free] = parent_e[free] >= 0
    sampled = trace.mask_k != 0
    return Exactness(
        row_g,
        tree.class_e[row_g],
        np.where(tree.class_e[row_g] == 0, tree.proof_e[row_g], -1),
        parent_e[row_g],
        inferred_e[row_g],
        tree.said,
        len(trace.token_k),
        int((sampled & (np.isnan(trace.logp_k) | (trace.mask_k < 0))).sum()),
    )


class _Tree:
    """The token tree of a trace while it is judged, parents first."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.layout = trace, _layout(trace)
        n = trace.n_events
        self.class_e, self.proof_e = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.place_e, self.whole_e = np.full(n, -1), np.zeros(n, np.bool_)
        self.hash_e = np.zeros((2, n), np.int64)  # of all ids up to the end of the generation
        self.said: dict[int, str] = {}

    def mark(self, row: int, name: str, why: str) -> None:
        self.class_e[row] = CLASSES.index(name)
        self.said[row] = f"{self.trace.id_e[row]} {why}"

    def sweep(self) -> None:
        """Where each generation begins, whether all ids up to its end are known, and their hash."""
        own_e, power = self._own_hashes()
        digests = _told_digests(self.trace)
        context, start = self.trace.context_e.tolist(), self.trace.start_e.tolist()
        owned, lost = self.layout.owned_e.tolist(), self.layout.lost_e.tolist()
        end = [0] * len(owned)
        whole = [False] * len(owned)
        hashes: list[tuple[int, int]] = [(0, 0)] * len(owned)
        for row in self.layout.row_g.tolist():
            above, place = context[row], start[row]
            if not owned[row] or lost[row]:
                self.mark(row, "unknown", "has tokens without an id" if owned[row] else "has no token ids")
                continue
            if above >= row:
                self.mark(row, "unknown", f"extends {self.trace.id_e[above]}, which comes after it")
                continue
            if place < 0:
                place = self._sought(
                    row, above, end[above] if above >= 0 and whole[above] else -1, digests.get(row)
                )
            why = _misplaced(place, above, end[above], above >= 0 and whole[above])
            if why:
                self.mark(row, "unknown", why.format(self.trace.id_e[above] if above >= 0 else ""))
                continue
            self.place_e[row], end[row] = place, place + owned[row]
            before = (0, 0) if place == 0 else hashes[above]
            if 0 < place < end[above]:
                before = hashes_of(self.path(above, place))
                fault = f"goes on from inside its context, at token {place} of the {end[above]} of {{}}"
                self.mark(row, "fork", fault.format(self.trace.id_e[above]))
            h1, h2 = ((b + int(own_e[f, row]) * int(power[f][place])) % FIELDS[f][0] for f, b in enumerate(before))
            why = self._contradicted(row, place, digests.get(row), spelled_one(end[row], h1, h2))
            if why:
                self.mark(row, "unknown", why)
                continue
            hashes[row], whole[row] = (h1, h2), True
            self.proof_e[row] = PROOFS.index("digest" if row in digests else "place")
        self.whole_e[:] = whole
        self.hash_e[:] = np.array(hashes, np.int64).reshape(-1, 2).T

    def _own_hashes(self) -> tuple[N, list[U]]:
        """Of each event's tokens as if they began at place 0, and the powers to move them."""
        token_k, _, first_e, owned_e = self.layout[:4]
        place = np.arange(len(token_k)) - np.repeat(first_e, owned_e)
        own_e = span_hashes(token_k, place, first_e, owned_e)
        return own_e, [powers(len(token_k) + 1, field) for field in FIELDS]

    def _sought(self, row: int, above: int, end: int, told: str | None) -> int:
        """The place of its first token where it does not say: the one that agrees with its digest, or with the
        tokens it states to have read, or 0 where its ids begin like its context; -1 if there is no telling."""
        given, stated = int(self.layout.prompt_e[row]), int(self.layout.in_e[row])
        if above < 0:
            masked = self.trace.mask_k[self.layout.first_e[row]] == 0
            return 0 if masked or stated == 0 or told is not None else -1
        own = self.own(row)
        if told is not None:
            return 0 if told == digest(own) else end
        if stated >= 0:
            return 0 if stated == given else end
        return 0 if end >= 0 and self.path(above, 1)[0] == own[0] else -1

    def _contradicted(self, row: int, place: int, told: str | None, found: str) -> str:
        stated, wrote = int(self.layout.in_e[row]), int(self.layout.out_e[row])
        given = int(self.layout.prompt_e[row])
        if stated >= 0 and stated != place + given:
            return f"read {stated} tokens, of which {place + given} are recorded"
        if wrote >= 0 and wrote != self.layout.owned_e[row] - given:
            return f"wrote {wrote} tokens, of which {self.layout.owned_e[row] - given} are recorded"
        if told is not None and told != found:
            return f"has ids with the digest {found}, the model saw those with {told}"
        return ""

    def own(self, row: int) -> I:
        first = int(self.layout.first_e[row])
        return self.layout.token_k[first : first + int(self.layout.owned_e[row])]

    def path(self, row: int, end: int) -> I:
        """The ids of a generation's context and its tokens, up to a place."""
        pieces = []
        while end > 0:
            place = int(self.place_e[row])
            if place < end:
                pieces.append(self.own(row)[: end - place])
                end = place
            row = int(self.trace.context_e[row])
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces[::-1])

    def extended(self, rows: N) -> N:
        """The longest earlier generation of the run that each prompt begins with, found by its hash; -1 if none."""
        longest = np.full(len(rows), -1)
        layout, mix = self.layout, np.uint64(0x9E3779B97F4A7C15)
        if len(rows) < 2:
            return longest

        def key(hashes: Any, rollout: N) -> U:
            h1, h2 = (np.asarray(h).astype(np.uint64) for h in hashes)
            return (h1 << np.uint64(31)) + h2 + rollout.astype(np.uint64) * mix

        known = layout.row_g[self.whole_e[layout.row_g]]
        ends, first = np.unique(key(self.hash_e[:, known], self.trace.rollout_e[known]), return_index=True)
        k = ranges(layout.first_e[rows], layout.prompt_e[rows])
        at = np.repeat(np.arange(len(rows)), layout.prompt_e[rows])
        place = k - np.repeat(layout.first_e[rows], layout.prompt_e[rows])
        begin = (np.cumsum(layout.prompt_e[rows]) - layout.prompt_e[rows])[at]
        sums = prefix_sums(layout.token_k[k], place)
        hashes = [(s[1:] - s[begin]) % np.uint64(prime) for s, (prime, _) in zip(sums, FIELDS, strict=True)]
        keys = key(hashes, self.trace.rollout_e[rows][at])
        spot = np.minimum(np.searchsorted(ends, keys), len(ends) - 1)
        hit = np.flatnonzero((ends[spot] == keys) & (known[first[spot]] < rows[at]))
        longest[at[hit]] = known[first[spot[hit]]]  # the longest is written last, so it stays
        return longest

    def before(self, rows: N) -> N:
        """The generation before by the same agent, -1 if there is none or the agent is not told."""
        known = self.layout.row_g[self.whole_e[self.layout.row_g]]
        by_agent = known[np.argsort(self.trace.agent_e[known], kind="stable")]
        before_e = np.full(self.trace.n_events, -1)
        agent = self.trace.agent_e[by_agent]
        same = (agent[1:] == agent[:-1]) & (agent[1:] >= 0)
        before_e[by_agent[1:][same]] = by_agent[:-1][same]
        return before_e[rows]

    def compare(self, child: N, parent: N) -> None:
        """Holds each prompt against the context it repeats: all those of whole events at once, then what is left
        one by one."""
        layout = self.layout
        end_e = np.where(self.place_e < 0, 0, self.place_e + layout.owned_e)
        simple = self.whole_e[parent] & (self.place_e[parent] == 0) & (end_e[parent] <= layout.prompt_e[child])
        c, p = child[simple], parent[simple]
        n = layout.owned_e[p]
        same = layout.token_k[ranges(layout.first_e[c], n)] == layout.token_k[ranges(layout.first_e[p], n)]
        exact = np.zeros(len(child), np.bool_)
        differ = np.append(0, np.cumsum(~same))
        exact[simple] = differ[np.cumsum(n)] == differ[np.cumsum(n) - n]
        self.proof_e[child[exact]] = np.maximum(self.proof_e[child[exact]], PROOFS.index("ids"))
        for row, above in zip(child[~exact].tolist(), parent[~exact].tolist(), strict=True):
            self._judge(row, above, int(end_e[above]))

    def _judge(self, row: int, above: int, end: int) -> None:
        name = self.trace.id_e[above]
        if not self.whole_e[above]:
            self.mark(row, "unknown", f"extends {name}, whose ids are not all known")
            return
        whole, prompt = self.path(above, end), self.own(row)[: int(self.layout.prompt_e[row])]
        drift = align(whole, prompt)
        if drift is None:
            common = _agree(whole, prompt)
            self.mark(row, "fork", f"shares the first {common} of the {end} tokens of {name} and goes its own way")
        elif drift.places:
            at = drift.common
            spots = f"{drift.places} place{'s' * (drift.places > 1)}"
            sample = f"{_few(whole[at:])} there, {_few(prompt[at:])} here"
            fault = f"differs from {name} in {drift.differ} of {end} tokens at {spots}, first at {at}: {sample}"
            self.mark(row, "realigned", fault)
        else:
            self.proof_e[row] = max(int(self.proof_e[row]), PROOFS.index("ids"))


def _misplaced(place: int, above: int, end: int, whole: bool) -> str:
    """Why a generation's tokens have no known place, with {} for the context it names; nothing if they have."""
    if place < 0:
        return (
            "names {} as its context, but not the place where its tokens start"
            if above >= 0
            else "has no ids of its prompt"
        )
    if place and above < 0:
        return f"starts at token {place} of a context that it does not name"
    if place and not whole:
        return "extends {}, whose ids are not all known"
    if place > end and place:
        return f"starts at token {place}, and {{}} ends at {end}: ids are missing between them"
    return ""


def _told_digests(trace: Trace) -> dict[int, str]:
    """By row, the digest of what the model saw, where it was recorded."""
    if DIGEST not in trace.extra_e:
        return {}
    column = trace.extra_e[DIGEST]
    words = [msgspec.json.decode(word) for word in column.words]
    rows = np.flatnonzero(column.codes >= 0)
    return {
        row: words[code] if isinstance(words[code], str) else "what is not a digest"
        for row, code in zip(rows.tolist(), column.codes[rows].tolist(), strict=True)
    }


def _few(ids: I) -> str:
    return " ".join(map(str, ids[:4].tolist())) + (" ..." if len(ids) > 4 else "") if len(ids) else "nothing"
