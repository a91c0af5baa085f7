"""The bench's rewriting of contents is one to one, hostile, and seen by whoever reads."""

from __future__ import annotations

import json

import numpy as np

from bench.generate import trace as generated
from bench.metrics import HOSTILE, _alike, _answers, _labelled, _rewritten
from podium.trace.columns import Trace

RUN = _labelled(generated(300, tokens=True), 0)


def length_of_contents(trace: Trace) -> np.ndarray:
    words = np.array([*(len(w) for w in trace.content_ref_e.words), 0])
    return words[trace.content_ref_e.codes]


def test_equal_contents_stay_equal_and_others_differ() -> None:
    other = _rewritten(RUN)
    np.testing.assert_array_equal(other.content_ref_e.codes, RUN.content_ref_e.codes)
    assert len(set(other.content_ref_e.words)) == len(RUN.content_ref_e.words)
    assert set(HOSTILE) <= set(other.content_ref_e.words)
    assert not set(other.content_ref_e.words) & set(RUN.content_ref_e.words)
    assert {json.loads(w) for w in other.extra_e["content"].words} == set(HOSTILE)


def test_who_reads_is_caught() -> None:
    assert not _alike(length_of_contents(RUN), length_of_contents(_rewritten(RUN)))


def test_no_score_metric_or_detector_reads() -> None:
    before, after = _answers(RUN), _answers(_rewritten(RUN))
    assert [name for name in before if not _alike(before[name], after[name])] == []
    assert {kind for kind, _ in before} == {"scores", "metrics", "detectors"}
