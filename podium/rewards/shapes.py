"""What can be done to a reward: schedules, gates, clips, moves between units; and sums that have a name.

A shape receives the channels of the expression it is given and returns channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from podium.graph import units
from podium.graph.grouping import count_by, mean_by
from podium.registry import register
from podium.rewards.ledger import BadReward, Channel, Now, copied, summed
from podium.trace.columns import F, Trace

__all__ = ["converged"]

# schedules


@register("shape")
def anneal(
    trace: Trace,
    now: Now,
    parts: list[Channel],
    start: float = 0.0,
    end: float = 1.0,
    how: str = "line",
    stages: int = 4,
) -> list[Channel]:
    """Full weight until `start`, none from `end` on, and in between a straight line, half a cosine or equal steps.

    x = clip((progress - start) / (end - start), 0, 1) w = 1 - x   ("line"),   (1 + cos πx) / 2   ("cosine"),   1 -
    ⌊x stages⌋ / stages   ("stages")
    """
    if now.progress is None:
        raise BadReward("anneal needs to know how far training is: give progress, from 0 to 1")
    if not start < end:
        raise BadReward(f"anneal needs start < end, got {start!r} and {end!r}")
    if how not in ("line", "cosine", "stages") or stages < 1:
        raise BadReward(f"anneal goes by 'line', 'cosine' or at least 1 'stages', got {how!r} and {stages!r}")
    x = float(np.clip((now.progress - start) / (end - start), 0.0, 1.0))
    weight = {
        "line": 1.0 - x,
        "cosine": (1.0 + float(np.cos(np.pi * x))) / 2.0,
        "stages": 1.0 - int(x * stages + 1e-9) / stages,
    }[how]
    return [part.times(weight) for part in parts]


@register("shape")
def until_converged(
    trace: Trace,
    now: Now,
    parts: list[Channel],
    window: int = 20,
    below: float = 0.1,
    fade: int = 20,
    sure: float = 4.0,
) -> list[Channel]:
    """Full weight until the watched signal has converged (`converged`), then a straight line down, never up again.

    w = 1 - clip((t - t*) / fade, 0, 1),   t values so far, t* how many there were when it converged
    """
    if now.history is None:
        raise BadReward("until_converged needs the signal that it watches: give its history, oldest first")
    if fade < 1 or window < 2:
        raise BadReward(f"until_converged needs a window of 2 and a fade of 1 or more, got {window!r} and {fade!r}")
    since = converged(now.history, window, below, sure)
    done = 0.0 if since is None else min(1.0, (_there(now.history).size - since) / fade)
    return [part.times(1.0 - done) for part in parts]


def converged(history: Sequence[float], window: int = 20, below: float = 0.1, sure: float = 4.0) -> int | None:
    """After how many values a signal had first converged; None if it has not.

        g_t = mean of the last `window` values - mean of the `window` before
        P_t = max(g_s : s ≤ t, g_s > `sure` standard errors),   t* = the first t with P_t > 0 and g_t ≤ below x P_t

    It must have risen for sure first, so that a flat start is not the end. NaN values are left out.

    >>> converged([0, 0, 0, 0, 1, 2, 3, 4, 4, 4, 4, 4], window=2, sure=2)
    11
    """
    values = _there(history)
    if len(values) < 2 * window:
        return None
    sums, squares = (np.cumsum(np.append(0.0, (values - values[0]) ** k)) for k in (1, 2))
    mean = (sums[window:] - sums[:-window]) / window
    spread = np.maximum(0.0, (squares[window:] - squares[:-window]) / window - mean**2) / (window - 1)
    gain = mean[window:] - mean[:-window]
    error = np.sqrt(spread[window:] + spread[:-window])
    peak = np.maximum.accumulate(np.where(gain > sure * error + 1e-12, gain, 0.0))
    flat = np.flatnonzero((peak > 0.0) & (gain <= below * peak))
    return int(flat[0]) + 2 * window if len(flat) else None


def _there(history: Sequence[float]) -> F:
    values = np.asarray(history, np.float64)
    there: F = values[~np.isnan(values)]
    return there


# gates and bounds


@register("shape")
def gate(trace: Trace, now: Now, parts: list[Channel], by: list[Channel], least: float = 0.5) -> list[Channel]:
    """Pays where another score reaches a bar, and nothing elsewhere; NaN where that score is not known.

    r' = r where by ≥ least, else 0
    """
    return _by_level(trace, parts, by, lambda paid, level: np.where(level >= least, paid, 0.0))


@register("shape")
def budget(trace: Trace, now: Now, parts: list[Channel], cost: list[Channel], most: float) -> list[Channel]:
    """Pays where a cost keeps to a budget, and nothing beyond it; NaN where the cost is not known.

    r' = r where cost ≤ most, else 0
    """
    return _by_level(trace, parts, cost, lambda paid, level: np.where(level <= most, paid, 0.0))


def _by_level(trace: Trace, parts: list[Channel], by: list[Channel], pay: Callable[[F, F], F]) -> list[Channel]:
    """What each part pays at the level of other channels; NaN where that is not known."""
    levels = [sum((_moved(trace, b, part.unit).paid for b in by), np.zeros(len(part.paid))) for part in parts]
    return [
        Channel(part.name, part.unit, np.where(np.isnan(level), np.nan, pay(part.paid, level)))
        for part, level in zip(parts, levels, strict=True)
    ]


@register("shape")
def earned(trace: Trace, now: Now, parts: list[Channel], by: list[Channel], most: float = 1.0) -> list[Channel]:
    """Pays in proportion to another score; nothing where that is 0 or less, NaN where it is not known.

        r' = r min(max(by, 0), most) / most

    With r up to w and outcomes R up to `most`, a run below R / (1 + w / most) cannot outbid one that earned R.
    """
    if not most > 0:
        raise BadReward(f"earned needs most above 0, got {most!r}")

    def pay(paid: F, level: F) -> F:  # nothing earned is 0, scored or not
        return np.where(level > 0, paid, 0.0) * np.clip(level, 0.0, most) / most

    return _by_level(trace, parts, by, pay)


@register("shape")
def clip(trace: Trace, now: Now, parts: list[Channel], low: float = -1.0, high: float = 1.0) -> list[Channel]:
    """No less than `low` and no more than `high`, for the sum of what it is given, as one channel.

    r' = min(max(Σ r, low), high)
    """
    if not low <= high:
        raise BadReward(f"clip needs low ≤ high, got {low!r} and {high!r}")
    kinds = {part.unit for part in parts}
    if len(kinds) != 1:
        raise BadReward(
            f"clip bounds a sum at one unit, got {', '.join(sorted(kinds))}; move them with at(..., unit)"
        )
    total = np.clip(sum((p.paid for p in parts), np.zeros(len(parts[0].paid))), low, high)
    name = " + ".join(part.name for part in parts)
    return [Channel(f"clip({name}, {low:g}, {high:g})", kinds.pop(), total)]


# from unit to unit


@register("shape")
def at(trace: Trace, now: Now, parts: list[Channel], unit: str, share: bool = False) -> list[Channel]:
    """The same pay at another unit: summed into a coarser one, copied to finer ones, or shared among them.

    r'_u = Σ (r_v : v in u)   upwards,   r_v   for every u in v   downwards,   r_v / |{u in v}|   with share
    """
    return [_moved(trace, part, _known(unit), share) for part in parts]


@register("shape", "mean")
def mean_inside(trace: Trace, now: Now, parts: list[Channel], unit: str = "team") -> list[Channel]:
    """The mean over the units inside a coarser one, of those that were scored; NaN where none was.

    r'_u = mean(r_v : v in u, r_v scored)
    """
    for part in parts:
        if units.finer(_known(unit), part.unit):
            inside = f"{part.name} pays the {part.unit}, not what is inside a {unit}"
            raise BadReward(f"mean goes to a coarser unit; {inside}")
    n = len(units.rows(trace, unit))
    return [Channel(p.name, unit, mean_by(units.within(trace, p.unit, unit), p.paid, n)) for p in parts]


def _moved(trace: Trace, part: Channel, unit: str, share: bool = False) -> Channel:
    if part.unit == unit:
        return part
    if units.finer(part.unit, unit):
        return summed(trace, part, unit)
    if not share:
        return copied(trace, part, unit)
    inside = units.within(trace, unit, part.unit)
    count = count_by(inside, inside >= 0, len(part.paid))
    empty = np.flatnonzero((count == 0) & (np.nan_to_num(part.paid) != 0.0))
    if len(empty):
        raise BadReward(
            f"{part.name} pays {len(empty)} of its units ({part.unit}) that hold no {unit} to share it among"
        )
    return copied(trace, Channel(part.name, part.unit, part.paid / np.maximum(count, 1)), unit)


def _known(unit: str) -> str:
    if unit not in units.UNITS:
        raise BadReward(f"no unit called {unit!r}; there are {', '.join(units.UNITS)}")
    return unit


# sums that have a name


@register("reward")
def parl(parallel: float = 0.3, finished: float = 0.3, most: int = 8, end: float = 1.0, how: str = "line") -> str:
    """The reward of Kimi's PARL: the outcome, and two auxiliary rewards that go to zero over training.

        r = r_perf + l1 r_parallel + l2 r_finish,   l1, l2 → 0

    Weights and schedule are ours. Nothing is gated: idle workers are paid until it is annealed (`parl_earned` is
    gated).   from: Kimi K2.5, section 3; the survey's equation (9) calls r_parallel a speed-up, which the report
    does not.

    >>> parl()
    'outcome + anneal(0.3 * instantiate(8)) + anneal(0.3 * finish(none=0.0))'
    """
    auxiliary = ((parallel, f"instantiate({most!r})"), (finished, "finish(none=0.0)"))
    return _with_annealed(auxiliary, end, how)


def _with_annealed(auxiliary: Sequence[tuple[float, str]], end: float, how: str) -> str:
    options = "" if (end, how) == (1.0, "line") else f", end={end!r}, how={how!r}"
    return " + ".join(["outcome", *(f"anneal({weight!r} * {score}{options})" for weight, score in auxiliary)])


@register("reward")
def parl_earned(
    parallel: float = 0.3, finished: float = 0.3, most: int = 8, end: float = 1.0, how: str = "line"
) -> str:
    """`parl` that idle workers cannot raise: auxiliary rewards for used work, in proportion to the outcome.

        r = r_perf + (l1 r_contributed + l2 r_completed) min(max(r_perf, 0), 1),   l1, l2 → 0

    from: ours, after Kimi K2.5, section 3.

    >>> parl_earned()
    'outcome + anneal(0.3 * earned(contributed(8), outcome)) + anneal(0.3 * earned(completed(none=0.0), outcome))'
    """
    scores = ((parallel, f"contributed({most!r})"), (finished, "completed(none=0.0)"))
    return _with_annealed([(weight, f"earned({score}, outcome)") for weight, score in scores], end, how)
