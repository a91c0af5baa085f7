"""Judges as plug-ins: what someone outside the trace thinks of its contents becomes a reward channel of the trace.

    column = judged(trace, lambda texts: float("sorry" not in texts[-1]), "agent", contents)
    trace = attach(trace, "agent", "scope", column)
    score(trace, "outcome + 0.2 * individual('scope')")

A judge gets the texts of one unit and gives a number in its range. One that is silent, fails or leaves its range
gives NaN, never 0, and the reason is recorded. A model as a judge is `podium.engine.judge.ChatJudge`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from podium.graph import units
from podium.rewards.ledger import BadReward
from podium.trace.columns import Channels, F, Trace

__all__ = ["Checker", "Judge", "Judged", "PythonJudge", "Silent", "attach", "judged"]


class Silent(Exception):
    """A judge that gave no score; says why."""


@runtime_checkable
class Judge(Protocol):
    """Texts in, one number in [low, high] out; anything it raises means that it did not judge."""

    @property
    def low(self) -> float: ...

    @property
    def high(self) -> float: ...

    def __call__(self, texts: Sequence[str], /) -> float: ...


class Judged(NamedTuple):
    """One number for each unit, and for each why there is none; an empty string where there is one."""

    score: F
    why: tuple[str, ...]


@dataclass(frozen=True)
class PythonJudge:
    """A function of your own, with the range that it keeps to."""

    function: Callable[[Sequence[str]], float]
    low: float = 0.0
    high: float = 1.0

    def __call__(self, texts: Sequence[str], /) -> float:
        return self.function(texts)


@dataclass(frozen=True)
class Checker:
    """A formal checker: a program that reads the texts on its standard input and answers by its exit status.

    1 for a status in `passes`, 0 for one in `fails`. Any other status, and no answer in time, is no verdict.
    """

    command: Sequence[str]
    passes: frozenset[int] = frozenset({0})
    fails: frozenset[int] = frozenset({1})
    timeout: float = 60.0
    low: float = 0.0
    high: float = 1.0

    def __call__(self, texts: Sequence[str], /) -> float:
        try:
            run = subprocess.run(
                list(self.command), input="\n".join(texts).encode(), capture_output=True, timeout=self.timeout
            )
        except subprocess.TimeoutExpired:
            raise Silent(f"no answer within {self.timeout:g} s") from None
        if run.returncode in self.passes | self.fails:
            return float(run.returncode in self.passes)
        raise Silent(f"exit status {run.returncode}: {run.stderr[-200:].decode(errors='replace').strip()}")


def judged(
    trace: Trace,
    judge: Judge | Callable[[Sequence[str]], float],
    unit: str,
    contents: Mapping[str, str],
    at_once: int = 1,
) -> Judged:
    """What a judge says of each unit of a trace, from the contents of its events in row order.

    A plain function is a judge with the range 0 to 1. `contents` maps a `content_ref` to its text; a unit without
    contents, or with an unknown one, is not judged. Units with the same texts are judged once, `at_once` together.
    """
    asking = judge if isinstance(judge, Judge) else PythonJudge(judge)
    texts, whys = _texts(trace, unit, contents)
    ask = dict.fromkeys(t for t in texts if t is not None)
    with ThreadPoolExecutor(max(1, at_once)) as pool:
        answers = dict(zip(ask, pool.map(lambda t: _asked(asking, t), ask), strict=True))
    pairs = [(np.nan, why) if t is None else answers[t] for t, why in zip(texts, whys, strict=True)]
    return Judged(np.array([s for s, _ in pairs], np.float64), tuple(w for _, w in pairs))


def _texts(trace: Trace, unit: str, contents: Mapping[str, str]) -> tuple[list[tuple[str, ...] | None], list[str]]:
    """The texts of each unit, or None and why."""
    _check_unit("judges read", unit)
    place_e, code_e = units.place(trace, unit), trace.content_ref_e.codes
    of_unit: list[list[str | None]] = [[] for _ in units.rows(trace, unit)]
    words = [contents.get(word) for word in trace.content_ref_e.words]
    for row in np.flatnonzero((place_e >= 0) & (code_e >= 0)).tolist():
        of_unit[place_e[row]].append(words[code_e[row]])
    texts, whys = [], []
    for contained in of_unit:
        missing = contained.count(None)
        whole = tuple(t for t in contained if t is not None)
        texts.append(whole if contained and not missing else None)
        lacks = f"{missing} of {len(contained)} contents not given" if missing else ""
        whys.append(lacks if contained else "no contents")
    return texts, whys


def _check_unit(what: str, unit: str) -> None:
    known = [name for name in units.UNITS if name != "token"]
    if unit not in known:
        raise BadReward(f"{what} {', '.join(known)}, got {unit!r}")


def _asked(judge: Judge, texts: tuple[str, ...]) -> tuple[float, str]:
    """A judge's number, or NaN and why there is none."""
    try:
        answer = judge(texts)
        number = float(answer) if isinstance(answer, int | float | np.number | np.bool_) else None
    except Silent as silent:
        return np.nan, str(silent)
    except Exception as error:  # whatever a plug-in does, the others are judged
        return np.nan, f"{type(error).__name__}: {error}"
    if number is None:
        return np.nan, f"expected a number, got {answer!r:.80}"
    if not (isfinite(number) and judge.low <= number <= judge.high):
        return np.nan, f"{number:g} is not within {judge.low:g} to {judge.high:g}"
    return number, ""


def attach(trace: Trace, unit: str, channel: str, column: Judged | F) -> Trace:
    """The same trace with one more reward channel: a column at a unit, on the rows that stand for it.

    A column of the team is a reward of the run.
    """
    _check_unit("a reward channel is stated at", unit)
    paid = np.asarray(column.score if isinstance(column, Judged) else column, np.float64)
    rows = units.rows(trace, unit)
    if paid.shape != (len(rows),):
        raise BadReward(f"a column at {unit} has {len(rows)} numbers, got shape {paid.shape}")
    place = "reward_n" if unit == "team" else "reward_e"
    there: Mapping[str, F] = getattr(trace, place)
    if channel in there:
        raise BadReward(f"the trace has a channel {channel!r} already")
    if unit != "team":
        if lost := int(np.count_nonzero((rows < 0) & ~np.isnan(paid))):
            raise BadReward(f"{lost} of the units ({unit}) have no event that could state what they are paid")
        values, at = np.full(trace.n_events, np.nan), rows >= 0
        values[rows[at]] = paid[at]
        paid = values
    paid = paid.copy()
    paid.flags.writeable = False
    more: dict[str, Any] = {place: Channels({**there, channel: paid})}
    return replace(trace, **more)
