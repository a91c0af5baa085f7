"""E3, collaboration quality: whether agents said something new, agreed, differed, and came to a result."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from podium.graph.grouping import count_of, mean_by, ratio, total_by
from podium.graph.labels import label, number, stated
from podium.metrics.views import count, share, spoken
from podium.registry import register
from podium.rewards.orchestration import combined
from podium.trace.columns import F, I, Trace

__all__ = [
    "consensus",
    "consensus_by_value",
    "diversity",
    "diversity_by_value",
    "redundancy",
    "redundancy_by_content",
    "resolved",
    "resolved_by_value",
]

BY_VALUE = (
    "what reached one aggregate and states a value answers one question, and answers are the same if their values "
    "are equal"
)


@register(
    "score",
    unit="team",
    families=("E3",),
    better="lower",
    needs="messages or returns with the label duplicate_of or task_relevant: a run that labels any labels all "
    "duplicates",
)
def redundancy(trace: Trace) -> F:
    """The share of what agents said to each other that had been said before.

        r = |{m : duplicate_of}| / |{m}|,   m: messages and returns to another agent

    pays: the team.   needs: a label on a message or return of the run, else NaN.   from: the survey's table 13,
    message redundancy.
    """
    said_e, again_e = spoken(trace), stated(trace, "duplicate_of")
    labelled_n = count(trace, said_e & (again_e | (label(trace, "task_relevant") >= 0)))
    return np.where(labelled_n > 0, share(trace, said_e & again_e, said_e), np.nan)


@register(
    "score",
    unit="team",
    families=("E3",),
    better="lower",
    needs="contents of messages or returns",
    assumes="a message says again what was said if the same receiver was sent an equal content before; other "
    "wording is not seen",
)
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


def _sides(rollout: I, question: I, answer: I, weight: F) -> _Sides:
    """Equal answers to a question, put together; questions with one voice are left out."""
    asked, question = np.unique(question, return_inverse=True)
    rollout_q = np.zeros(len(asked), np.int64)
    rollout_q[question] = rollout
    several = np.bincount(question)[question] > 1
    question, answer, weight = question[several], answer[several], weight[several]
    size = count_of(answer)
    side, which = np.unique(question * size + answer, return_inverse=True)
    return _Sides(side // size, total_by(which, weight, len(side)), np.bincount(which), rollout_q)


def _by_votes(trace: Trace) -> _Sides:
    """Votes that aggregates state; one without a weight weighs 1."""
    known = np.flatnonzero(trace.value_v.codes >= 0)
    of = trace.event_v[known]
    weight = trace.weight_v[known]
    return _sides(trace.rollout_e[of], of, trace.value_v.codes[known], np.where(np.isnan(weight), 1.0, weight))


def _by_value(trace: Trace) -> _Sides:
    """Returns and messages that aggregates combined and that state a value; a content is no vote."""
    row, of = combined(trace)
    value_e = number(trace, "value")
    known = ~np.isnan(value_e[row])
    _, answer = np.unique(value_e[row[known]], return_inverse=True)
    return _sides(trace.rollout_e[of[known]], of[known], answer, np.ones(int(known.sum())))


def _mean(trace: Trace, sides: _Sides, value_q: F) -> F:
    return mean_by(sides.rollout_q, value_q, len(trace))


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


@register("score", unit="team", families=("E3",), better="higher", needs="votes of aggregates, two or more")
def consensus(trace: Trace) -> F:
    """How much of the weight stood behind the strongest answer.

        c = mean over aggregates of   max_v W(v) / Σ_v W(v)

    pays: the team.   needs: an aggregate that states two votes, else NaN.   from: the survey, E3.
    """
    sides = _by_votes(trace)
    return _mean(trace, sides, _agreement(sides))


@register(
    "score",
    unit="team",
    families=("E3",),
    better="higher",
    needs="returns or messages that an aggregate combined, with value",
    assumes=BY_VALUE,
)
def consensus_by_value(trace: Trace) -> F:
    """`consensus` among what aggregates combined, each return or message one voice.

        c = mean over aggregates of   max_v n(v) / Σ_v n(v)

    pays: the team.   needs: an aggregate that combined two stated values, else NaN.
    """
    sides = _by_value(trace)
    return _mean(trace, sides, _agreement(sides))


@register("score", unit="team", families=("E3",), better="higher", needs="votes of aggregates, two or more")
def diversity(trace: Trace) -> F:
    """The chance that two voices, drawn without replacement, differ.

        d = mean over aggregates of   1 - Σ_v n_v (n_v - 1) / (n (n - 1))

    pays: the team.   needs: an aggregate that states two votes, else NaN.   from: the survey, E3.
    """
    sides = _by_votes(trace)
    return _mean(trace, sides, _difference(sides))


@register(
    "score",
    unit="team",
    families=("E3",),
    better="higher",
    needs="returns or messages that an aggregate combined, with value",
    assumes=BY_VALUE,
)
def diversity_by_value(trace: Trace) -> F:
    """`diversity` among what aggregates combined.

        d = mean over aggregates of   1 - Σ_v n_v (n_v - 1) / (n (n - 1))

    pays: the team.   needs: an aggregate that combined two stated values, else NaN.
    """
    sides = _by_value(trace)
    return _mean(trace, sides, _difference(sides))


@register(
    "score", unit="team", families=("E3",), better="higher", needs="votes of aggregates, two or more that differ"
)
def resolved(trace: Trace) -> F:
    """The share of disagreements in which one answer had more than half of the weight.

        s = mean over aggregates whose votes differ of   [max_v W(v) > Σ_v W(v) / 2]

    pays: the team.   needs: an aggregate whose votes differ, else NaN.   from: the survey, E3.
    """
    sides = _by_votes(trace)
    return _mean(trace, sides, _resolution(sides))


@register(
    "score",
    unit="team",
    families=("E3",),
    better="higher",
    needs="returns or messages that an aggregate combined, with values that differ",
    assumes=BY_VALUE,
)
def resolved_by_value(trace: Trace) -> F:
    """`resolved` among what aggregates combined.

        s = mean over aggregates whose answers differ of   [max_v n(v) > Σ_v n(v) / 2]

    pays: the team.   needs: an aggregate whose stated values differ, else NaN.
    """
    sides = _by_value(trace)
    return _mean(trace, sides, _resolution(sides))
