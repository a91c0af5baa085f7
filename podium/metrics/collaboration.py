"""E3, collaboration quality: whether agents said something new, agreed, differed, and came to a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from podium.graph.grouping import count_of, mean_by, ratio, total_by
from podium.graph.labels import label, number, stated
from podium.metrics.views import count, share, spoken
from podium.registry import register
from podium.rewards.orchestration import combined
from podium.trace.columns import F, I, Trace

__all__: list[str] = []

E3: dict[str, Any] = {"unit": "team", "families": ("E3",), "better": "higher"}

LABELS = (
    "messages or returns with the label duplicate_of or task_relevant: a run that labels any labels all duplicates"
)
COMBINED = "returns or messages that an aggregate combined"
BY_CONTENT = (
    "a message says again what was said if the same receiver was sent an equal content before; other "
    "wording is not seen"
)
BY_VALUE = (
    "what reached one aggregate and states a value answers one question, and answers are the same if their values "
    "are equal"
)


@register("score", **E3 | {"better": "lower"}, needs=LABELS)
def redundancy(trace: Trace) -> F:
    """The share of what agents said to each other that had been said before.

        r = |{m : duplicate_of}| / |{m}|,   m: messages and returns to another agent

    pays: the team.   needs: a label on a message or return of the run, else NaN.   from: the survey's table 13.
    """
    spoken_e, again_e = spoken(trace), stated(trace, "duplicate_of")
    labelled_n = count(trace, spoken_e & (again_e | (label(trace, "task_relevant") >= 0)))
    return np.where(labelled_n > 0, share(trace, spoken_e & again_e, spoken_e), np.nan)


@register("score", **E3 | {"better": "lower"}, needs="contents of messages or returns", assumes=BY_CONTENT)
def redundancy_by_content(trace: Trace) -> F:
    """The share of what agents said to each other with the same content for the same receiver as before.

        r = 1 - |{(receiver, content)}| / |{m}|,   m: messages and returns to another agent that have a content

    pays: the team.   needs: contents, else NaN.
    """
    rows = np.flatnonzero(spoken(trace) & (trace.content_ref_e.codes >= 0))
    words = np.int64(len(trace.content_ref_e.words) + 1)
    to = np.where(trace.to_e[rows] >= 0, trace.to_e[rows], trace.n_agents + trace.rollout_e[rows])
    _, first = np.unique(to * words + trace.content_ref_e.codes[rows], return_index=True)
    all_n = np.bincount(trace.rollout_e[rows], minlength=len(trace))
    new_n = np.bincount(trace.rollout_e[rows[first]], minlength=len(trace))
    return 1.0 - ratio(new_n, all_n)


class _Sides(NamedTuple):
    """The answers that met in aggregates: a row for each different answer to each question."""

    question: I
    weight: F  # behind that answer
    voices: I  # that gave it
    rollout_q: I
    runs: int


def _sides(trace: Trace, question: I, answer: I, weight: F) -> _Sides:
    """Equal answers to a question, put together; questions with one voice are left out."""
    aggregate_q, question = np.unique(question, return_inverse=True)
    several = np.bincount(question)[question] > 1
    question, answer, weight = question[several], answer[several], weight[several]
    size = count_of(answer)
    side, which = np.unique(question * size + answer, return_inverse=True)
    rollout_q = trace.rollout_e[aggregate_q]
    return _Sides(side // size, total_by(which, weight, len(side)), np.bincount(which), rollout_q, len(trace))


def _by_votes(trace: Trace) -> _Sides:
    """Votes that aggregates state; one without a weight weighs 1."""
    known = np.flatnonzero(trace.value_v.codes >= 0)
    of = trace.event_v[known]
    weight = trace.weight_v[known]
    return _sides(trace, of, trace.value_v.codes[known], np.where(np.isnan(weight), 1.0, weight))


def _by_value(trace: Trace) -> _Sides:
    """Returns and messages that aggregates combined and that state a value; a content is no vote."""
    row, of = combined(trace)
    value_e = number(trace, "value")
    known = ~np.isnan(value_e[row])
    _, answer = np.unique(value_e[row[known]], return_inverse=True)
    return _sides(trace, of[known], answer, np.ones(int(known.sum())))


def _mean(sides: _Sides, of: Callable[[_Sides], F]) -> F:
    """For each run the mean over its questions."""
    return mean_by(sides.rollout_q, of(sides), sides.runs)


def _agreement(sides: _Sides) -> F:
    """The share of the weight behind the strongest answer of each question; NaN where one voice spoke."""
    most_q, all_q = np.zeros((2, len(sides.rollout_q)))
    np.maximum.at(most_q, sides.question, sides.weight)
    np.add.at(all_q, sides.question, sides.weight)
    return ratio(most_q, all_q)


def _difference(sides: _Sides) -> F:
    same_q, all_q = np.zeros((2, len(sides.rollout_q)))
    np.add.at(same_q, sides.question, sides.voices * (sides.voices - 1.0))
    np.add.at(all_q, sides.question, sides.voices)
    pairs_q = all_q * (all_q - 1.0)
    return 1.0 - ratio(same_q, pairs_q)


def _resolution(sides: _Sides) -> F:
    agreed_q = _agreement(sides)
    dissent_q = np.bincount(sides.question, minlength=len(sides.rollout_q)) > 1
    return np.where(dissent_q, (agreed_q > 0.5).astype(np.float64), np.nan)


@register("score", **E3, needs="votes of aggregates, two or more")
def consensus(trace: Trace) -> F:
    """How much of the weight stood behind the strongest answer.

        c = mean over aggregates of   max_v W(v) / Σ_v W(v)

    pays: the team.   needs: an aggregate that states two votes, else NaN.   from: the survey, E3.
    """
    return _mean(_by_votes(trace), _agreement)


@register("score", **E3, needs=f"{COMBINED}, with value", assumes=BY_VALUE)
def consensus_by_value(trace: Trace) -> F:
    """`consensus` among what aggregates combined, each return or message one voice.

    pays: the team.   needs: an aggregate that combined two stated values, else NaN.
    """
    return _mean(_by_value(trace), _agreement)


@register("score", **E3, needs="votes of aggregates, two or more")
def diversity(trace: Trace) -> F:
    """The chance that two voices, drawn without replacement, differ.

        d = mean over aggregates of   1 - Σ_v n_v (n_v - 1) / (n (n - 1))

    pays: the team.   needs: an aggregate that states two votes, else NaN.   from: the survey, E3.
    """
    return _mean(_by_votes(trace), _difference)


@register("score", **E3, needs=f"{COMBINED}, with value", assumes=BY_VALUE)
def diversity_by_value(trace: Trace) -> F:
    """`diversity` among what aggregates combined.

    pays: the team.   needs: an aggregate that combined two stated values, else NaN.
    """
    return _mean(_by_value(trace), _difference)


@register("score", **E3, needs="votes of aggregates, two or more that differ")
def resolved(trace: Trace) -> F:
    """The share of disagreements in which one answer had more than half of the weight.

        s = mean over aggregates whose votes differ of   [max_v W(v) > Σ_v W(v) / 2]

    pays: the team.   needs: an aggregate whose votes differ, else NaN.   from: the survey, E3.
    """
    return _mean(_by_votes(trace), _resolution)


@register("score", **E3, needs=f"{COMBINED}, with values that differ", assumes=BY_VALUE)
def resolved_by_value(trace: Trace) -> F:
    """`resolved` among what aggregates combined.

    pays: the team.   needs: an aggregate whose stated values differ, else NaN.
    """
    return _mean(_by_value(trace), _resolution)
