"""Whether a trace holds what the model saw, id by id: worked cases of every class, and what a random tree must give."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.audit.exactness import ANCHOR, CLASSES, TAIL, WINDOW, Drift, align, exactness
from podium.trace.columns import Text, Trace, concat
from podium.trace.tokens import DIGEST, digest
from tests.verbs import verb


class Made(NamedTuple):
    """A generation as a test states it: what it extends, where its tokens start, its tokens and how many are given."""

    ids: list[int]
    given: int | None = 0
    context: int = -1
    start: int = -1
    agent: int = 0
    read: float = np.nan
    seen: str | None = None


def trace_of(*made: Made) -> Trace:
    mask = [
        -1 if m.given is None else int(i >= m.given) for m in made for i in range(len(m.ids))
    ]  # given, then sampled
    agents = max(m.agent for m in made) + 1
    return Trace.of(
        trace_id_n=Text.of(["run"]),
        rollout_a=np.zeros(agents, int),
        name_a=Text.of([f"a{i}" for i in range(agents)]),
        t_e=np.arange(len(made), dtype=float),
        agent_e=np.array([m.agent for m in made]),
        context_e=np.array([m.context for m in made]),
        start_e=np.array([m.start for m in made]),
        tokens_in_e=np.array([m.read for m in made]),
        model_e=Text.constant("m", len(made)),
        extra_e={DIGEST: Text.of([None if m.seen is None else json.dumps(m.seen) for m in made])},
        owner_k=np.repeat(np.arange(len(made)), [len(m.ids) for m in made]),
        token_k=np.array([t for m in made for t in m.ids], np.int64),
        mask_k=np.array(mask, np.int8),
        logp_k=np.where(np.array(mask) == 0, np.nan, -1.0),
    )


def classes(*made: Made) -> list[str]:
    return [CLASSES[c] for c in exactness(trace_of(*made)).class_g]


LONG = list(range(100, 160))


def test_a_prompt_that_repeats_context_and_answer_is_clean() -> None:
    first = Made([1, 2, 3, 4], given=2)
    assert classes(first, Made([1, 2, 3, 4, 9, 8], given=5, context=0, start=0)) == ["clean", "clean"]
    found = exactness(trace_of(first, Made([1, 2, 3, 4, 9, 8], given=5)))
    assert found.parent_g.tolist() == [-1, 0]
    assert found.inferred_g.tolist() == [False, True]
    assert found.silent == 0


def test_what_is_new_alone_is_clean_where_it_starts_at_the_end_of_its_context() -> None:
    first = Made([1, 2, 3], given=2, start=0)
    assert classes(first, Made([4, 5], given=1, context=0, start=3)) == ["clean", "clean"]
    assert classes(first, Made([4, 5], given=1, context=0, start=4)) == ["clean", "unknown"]
    assert classes(first, Made([4, 5], given=1, context=0, start=2)) == ["clean", "fork"]
    assert classes(first, Made([4, 5], given=1, context=0, start=2), Made([6], 0, 1, 4)) == [
        "clean",
        "fork",
        "clean",
    ]


def test_the_place_is_found_from_the_tokens_that_were_read() -> None:
    first = Made([1, 2, 3], given=2, read=2)
    assert classes(first, Made([4, 5], given=1, context=0, read=4)) == ["clean", "clean"]
    assert classes(first, Made([1, 2, 3, 4, 5], given=4, context=0, read=4)) == ["clean", "clean"]
    assert classes(first, Made([4, 5], given=1, context=0)) == ["clean", "unknown"]
    assert classes(Made([1, 2, 3], given=2, read=7)) == ["unknown"]


def test_a_few_tokens_that_differ_are_realigned() -> None:
    first = Made(LONG, given=30)
    drifted = [*LONG[:40], 7, 8, 9, *LONG[42:]]
    found = exactness(trace_of(first, Made([*drifted, 1, 2], given=len(drifted) + 1, agent=0)))
    assert [CLASSES[c] for c in found.class_g] == ["clean", "realigned"]
    assert found.said == {
        1: "1 differs from 0 in 3 of 60 tokens at 1 place, first at 40: 140 141 142 143 ... there, 7 8 9 142 ... here"
    }


def test_the_last_tokens_of_an_answer_may_be_lost_on_the_way() -> None:
    first = Made(LONG, given=30)
    assert classes(first, Made([*LONG[:-1], 1, 2], given=60)) == ["clean", "realigned"]
    assert classes(first, Made([*LONG[: -TAIL - 1], 1, 2], given=60 - TAIL)) == ["clean", "fork"]


def test_compaction_and_a_second_answer_are_forks() -> None:
    first = Made(LONG, given=30)
    assert classes(first, Made([*LONG[:10], 1, 2, 3], given=12)) == ["clean", "fork"]
    assert classes(first, Made([*LONG[:30], 5, 5], given=30)) == ["clean", "fork"]
    assert classes(Made([1, 2, 3], given=2), Made([1, 2, 9], given=2)) == ["clean", "fork"]


def test_a_turn_that_differs_cannot_be_skipped() -> None:
    turns = [LONG[:20], LONG[:40], [*LONG[:30], 7, *LONG[31:60]]]
    assert classes(*(Made(t, len(t) - 2) for t in turns)) == ["clean", "clean", "realigned"]
    assert classes(*(Made(t, len(t) - 2, agent=i) for i, t in enumerate(turns))) == ["clean", "clean", "clean"]


def test_another_agent_begins_a_tree_of_its_own() -> None:
    assert classes(Made([1, 2, 3], given=2), Made([7, 8], given=1, agent=1)) == ["clean", "clean"]


def test_what_cannot_be_judged_is_unknown() -> None:
    assert classes(Made([])) == ["unknown"]  # a model acted, no ids
    assert classes(Made([1, 2], given=0)) == ["unknown"]  # an answer without its prompt
    assert classes(Made([1, 2], given=None)) == ["unknown"]
    assert classes(Made([1, -1], given=1)) == ["unknown"]  # an id that was not recorded
    assert classes(Made([1, 2], given=1, start=5)) == ["unknown"]
    assert classes(Made([], given=0), Made([1, 2], given=1, context=0, start=0)) == ["unknown", "unknown"]
    assert classes(Made([1, 2], given=0), Made([3], 0, context=0, start=2)) == ["unknown", "unknown"]
    assert classes(Made([1], given=1, context=1, start=1), Made([1], given=1)) == ["unknown", "clean"]


def test_a_context_in_pieces_is_put_together_to_be_compared() -> None:
    path = (Made([1, 2, 3], 2, start=0), Made([4, 5], 1, 0, 3), Made([6, 7], 1, 1, 5))
    assert classes(*path, Made([*range(1, 8), 8, 9], given=8, context=2, start=0))[-1] == "clean"
    assert classes(*path, Made([*range(1, 8), 8, 9], given=8))[-1] == "clean"
    assert classes(*path, Made([1, 2, 3, 9, 5, 6, 7, 8, 9], given=8))[-1] == "realigned"


def test_a_digest_proves_what_only_the_engine_saw() -> None:
    first = Made([1, 2, 3], 2, start=0, seen=digest(np.array([1, 2, 3])))
    second = Made([4, 5], 1, context=0, seen=digest(np.arange(1, 6)))
    found = exactness(trace_of(first, second))
    assert (found.class_g.tolist(), found.proof_g.tolist()) == ([0, 0], [2, 2])
    assert classes(first, second._replace(ids=[4, 6])) == ["clean", "unknown"]
    assert classes(first._replace(ids=[1, 2, 4]), second) == ["unknown", "unknown"]
    assert classes(first._replace(seen="other")) == ["unknown"]


def test_a_digest_tells_any_two_lists_apart_that_differ_in_one_token() -> None:
    ids, moved = np.array([0, 2**53, 5, 0]), np.array([0, 0, 2**31 - 1, 0])
    others = [ids[:3], ids[1:], np.append(ids, 0), ids + moved, ids + moved[::-1]]
    assert len({digest(o) for o in [ids, *others]}) == 6


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, WINDOW), st.integers(0, WINDOW), st.integers(ANCHOR, 60))
def test_align_finds_a_planted_drift(seed: int, out: int, into: int, after: int) -> None:
    dice = np.random.default_rng(seed)
    before, tail = dice.permutation(1000)[:99], 1000 + dice.permutation(1000)[:after]
    old, new = 2000 + np.arange(out), 3000 + np.arange(into)
    drift = align(np.concatenate([before, old, tail]), np.concatenate([before, new, tail, [1, 2]]))
    assert drift == (Drift(99, max(out, into), 1) if out or into else Drift(99 + after, 0, 0))


class Grown(NamedTuple):
    parent: int
    prompt: list[int]
    answer: list[int]
    whole: list[int]


def grown(seed: int, n: int) -> list[Grown]:
    """A random token tree; few different ids, so that tokens repeat, and answers to one prompt differ in some id."""
    dice = np.random.default_rng(seed)
    tree: list[Grown] = []
    for i in range(n):
        parent = int(dice.integers(-1, i))
        prompt = dice.integers(0, 4, dice.integers(1, 5)).tolist()
        answer = [*dice.integers(0, 4, dice.integers(1, 5)).tolist(), 10 + i]
        tree.append(Grown(parent, prompt, answer, (tree[parent].whole if parent >= 0 else []) + prompt + answer))
    return tree


def written(tree: list[Grown], way: str) -> Trace:
    """The tree as a trace: each generation owns what is new, or repeats its prompt, naming its context or not."""
    made = []
    for i, g in enumerate(tree):
        own = {"new": True, "repeated": False, "mixed": i % 2 == 0}[way]
        ids = g.prompt + g.answer if own else g.whole
        base = len(g.whole) - len(g.prompt) - len(g.answer)
        given = len(ids) - len(g.answer)
        named = way != "repeated" or i % 3 > 0
        start = base if own else 0
        told = digest(np.array(g.whole)) if own else None
        # where no context is named, agents differ: a prompt of one's own then begins a tree
        made.append(Made(ids, given, g.parent if named else -1, start if named else -1, i, np.nan, told))
    return trace_of(*made)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 12), st.sampled_from(["new", "repeated", "mixed"]))
def test_a_trace_written_from_a_token_tree_is_clean(seed: int, n: int, way: str) -> None:
    tree = grown(seed, n)
    found = exactness(written(tree, way))
    assert found.count("clean") == n, found.said
    assert found.parent_g.tolist() == [g.parent for g in tree]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 10), st.sampled_from(["new", "repeated", "mixed"]))
def test_any_corrupted_token_that_is_recorded_twice_is_found(seed: int, n: int, way: str) -> None:
    dice = np.random.default_rng(seed)
    trace = written(grown(seed, n), way)
    held = _twice(trace)
    if not len(held):
        return
    k = int(dice.choice(held))
    token_k = trace.token_k.copy()
    token_k[k] += int(dice.integers(1, 2**40))
    columns = {c: getattr(trace, c) for c in Trace.__slots__} | {"token_k": token_k}
    assert exactness(Trace.of(**columns)).count("clean") < n


def _twice(trace: Trace) -> Any:
    """Tokens with a witness: a digest of their own generation, or a named child that repeats them."""
    seen = trace.extra_e[DIGEST].codes >= 0
    repeated = np.zeros(trace.n_events, bool)
    child = np.flatnonzero((trace.context_e >= 0) & (trace.start_e == 0))
    repeated[trace.context_e[child]] = True
    own = np.zeros(len(trace.token_k), bool)  # what a child took over from its context
    first = np.searchsorted(trace.owner_k, np.arange(trace.n_events))
    owned = np.bincount(trace.owner_k, minlength=trace.n_events)
    for c in child.tolist():
        p = int(trace.context_e[c])
        end = int(trace.start_e[p] + owned[p]) if trace.start_e[p] >= 0 else int(owned[p])
        own[first[c] : first[c] + end] = True
    return np.flatnonzero(seen[trace.owner_k] | repeated[trace.owner_k] | own)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_a_batch_is_judged_as_its_runs_are(seed: int) -> None:
    a, b = written(grown(seed, 5), "repeated"), written(grown(seed, 7), "repeated")
    both = exactness(concat([a, b]))
    assert both.class_g.tolist() == [*exactness(a).class_g, *exactness(b).class_g]
    assert both.parent_g.tolist() == [
        *exactness(a).parent_g,
        *(p + 5 if p >= 0 else -1 for p in exactness(b).parent_g),
    ]


@pytest.mark.parametrize("way", ["new", "repeated"])
def test_a_million_tokens_take_about_a_second(way: str) -> None:
    dice = np.random.default_rng(0)
    made: list[Made] = []
    for agent in range(100):
        whole: list[int] = []
        for turn in range(10):
            new = dice.integers(0, 50_000, 1000 if way == "new" else 182).tolist()
            above = len(made) - 1 if turn else -1
            if way == "new":
                made.append(Made(new, 500, above, len(whole), agent))
            else:
                made.append(Made(whole + new, len(whole) + 90, agent=agent))
            whole = whole + new
    trace = trace_of(*made)
    assert len(trace.token_k) >= 1_000_000
    assert exactness(trace).count("clean") == 1000


def podium(*words: object) -> subprocess.CompletedProcess[str]:
    return verb(*words, cwd=Path(__file__).parents[2])


def document(path: Path, second: list[int]) -> Path:
    events = [
        {
            "id": "a",
            "t": 0,
            "type": "message",
            "agent": "ann",
            "podium": {"tokens": [1, 2, 3], "mask": [False, True, True]},
        },
        {
            "id": "b",
            "t": 1,
            "type": "message",
            "agent": "ann",
            "podium": {
                "tokens": second,
                "mask": [False] * (len(second) - 1) + [True],
                "logps": [-1.0] * len(second),
            },
        },
    ]
    told = {"trace_id": "run", "task_id": "task", "events": events, "edges": [], "rewards": {}}
    path.write_text(json.dumps(told | {"costs": {"tokens": 0, "wall_clock_s": 1}}))
    return path


def test_the_verb_fails_unless_all_is_clean_or_allowed(tmp_path: Path) -> None:
    clean, fork = document(tmp_path / "clean.json", [1, 2, 3, 4, 5]), document(tmp_path / "fork.json", [9, 8, 7, 6])
    answer = podium("check", clean, "--tokens")
    assert answer.returncode == 0, answer.stdout
    assert "exact" in answer.stdout.splitlines()[-2]
    answer = podium("check", fork, "--tokens")
    assert answer.returncode == 1
    assert "b shares the first 0 of the 3 tokens of a" in " ".join(answer.stdout.split())  # folded to the screen
    assert "--allow fork" in answer.stdout
    assert podium("check", fork, "--tokens", "--allow", "fork").returncode == 0
    assert podium("check", fork, "--tokens", "--allow", "unknown").returncode == 2
    assert podium("check", fork).returncode == 0
    told = json.loads(podium("check", clean, fork, "--tokens", "--json").stdout)
    assert (told["ok"], told["findings"], told["tokens"]["classes"]["clean"]) == (False, [], 3)
    assert told["tokens"]["places"]["fork"][0]["row"] == 1
    assert told["tokens"]["without_logp"] == 4


def test_a_trace_without_ids_proves_nothing(tmp_path: Path) -> None:
    path = document(tmp_path / "run.json", [1])
    told = json.loads(path.read_text())
    for event in told["events"]:
        del event["podium"]
    path.write_text(json.dumps(told))
    answer = podium("check", path, "--tokens")
    assert answer.returncode == 1
    assert "nothing is proven" in answer.stdout
