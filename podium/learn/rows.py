"""Training rows: what a policy learns from, read from the trace and its credit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.credit import Credit
from podium.credit.options import at_options
from podium.learn import tape
from podium.learn.collect import Decisions
from podium.learn.credit import same_prefix
from podium.learn.policy import Made, Seen, entries_of, joined, taken
from podium.learn.unpaid import at_rows
from podium.rewards import score
from podium.trace.columns import F, Trace, ranges
from podium.trace.options import chosen_options
from podium.trace.vocabulary import event

__all__ = ["Deal", "Taught", "TrainingRows", "made_of", "training_rows", "without_zeros"]

N64 = NDArray[np.int64]
DECISION = event("orchestrator_decision")


@dataclass(frozen=True)
class TrainingRows:
    """Decisions of one kind and role that are learned from: one entry an option."""

    seen: Seen
    logp: tape.Array  # of each entry, under the policy that acted
    credit: tape.Array  # of each entry
    weight: tape.Array  # of each row
    spread: F | None = None  # of each row, where options were tried alike: the deviation of what they earned


class Taught(NamedTuple):
    """What an iteration is learned from."""

    rows: list[TrainingRows]
    entropy: float  # of a decision, on average
    paid: float  # the share of the policy's decisions that got credit
    credit: float | None  # root mean square of it


Deal = Callable[[int], N64]  # an order of so many things


def training_rows(
    decisions: Sequence[Sequence[Decisions]], credit: Sequence[Credit], deal: Deal | None = None
) -> Taught:
    """Rows of the worlds of an iteration: of the decisions in each, and by the credit that its trace got.

    Where the options of a decision were tried (`behaviour_o`), each has the credit of the run that took it; else
    the option taken has the credit of the decision, over its probability: the clipped sum over options is then
    PPO's. Decisions without credit are left out.

    With `deal` (the control of studies) what decisions of a kind earned is dealt out anew among them.
    """
    each: dict[tuple[str, str], list[TrainingRows]] = {}
    alone: list[TrainingRows] = []
    uncertain, many, paid, total = 0.0, 0, 0, 0
    squares: list[F] = []
    for some, given in zip(decisions, credit, strict=True):
        trace = given.trace
        tried = _tried_options(trace, some, given, deal) if not np.isnan(trace.behaviour_o).all() else None
        total += _decisions(given) if tried else sum(len(d.row) for d in some)
        for k, one in enumerate(some):
            if tried:
                rows = tried[k]
                each.setdefault((rows.seen.kind, rows.seen.role), []).append(rows)
                uncertain, many, paid = (
                    uncertain + _entropy(rows.logp),
                    many + len(rows.seen),
                    paid + len(rows.seen),
                )
                squares.append(rows.credit)
                continue
            made, value = made_of(trace, one), at_rows(given, one.row)
            if deal:
                there = np.flatnonzero(~np.isnan(value))
                value[there] = value[there][deal(len(there))]
            uncertain, many = uncertain + _entropy(made.logp), many + len(made.seen)
            paid += int((~np.isnan(value)).sum())
            squares.append(value[~np.isnan(value)])
            alone += _on_the_taken(made, value)
    square = np.concatenate([np.zeros(0), *squares]) ** 2
    rows_ = [_joined(parts) for parts in each.values()] + alone
    size = float(np.sqrt(np.mean(square))) if len(square) else None
    return Taught(rows_, uncertain / max(1, many), paid / max(1, total), size)


def made_of(trace: Trace, decisions: Decisions) -> Made:
    """What the policy made of decisions: the log-probability of every option, and the one that was taken."""
    first, count = trace.options_of(decisions.row)
    entry = chosen_options(trace, decisions.row) - first + decisions.seen.start[:-1]
    logp = trace.logp_o[ranges(first, count)].astype(np.float32)
    return Made(decisions.seen, logp, entry, decisions.row)


def _decisions(given: Credit) -> int:
    """How many decisions the policy made in runs that are no branches."""
    trace = given.trace
    return int(((trace.type_e == DECISION) & (trace.parent_n.codes[trace.rollout_e] < 0)).sum())


def _entropy(logp: tape.Array) -> float:
    return float(-(np.exp(logp) * logp).sum())


def _tried_options(
    trace: Trace, decisions: Sequence[Decisions], given: Credit, deal: Deal | None
) -> list[TrainingRows]:
    """Every option that was tried at these decisions, with its credit."""
    every = np.concatenate([d.row for d in decisions])
    paid_o = at_options(given, every)
    earned = Credit(trace, given.unit, score(trace, "outcome", given.unit), packed=given.packed)
    earned_o = at_options(earned, every)
    return [_tried(trace, d, paid_o, earned_o, deal) for d in decisions]


def _tried(trace: Trace, decisions: Decisions, paid_o: F, earned_o: F, deal: Deal | None) -> TrainingRows:
    views = decisions.seen
    place = ranges(*trace.options_of(decisions.row))
    tried = ~np.isnan(trace.behaviour_o[place])
    of = np.repeat(np.arange(len(views)), tape.lengths(views.start))
    lacks = np.bincount(of[tried & np.isnan(paid_o[place])], minlength=len(views)) > 0
    lacks |= np.bincount(of[tried], minlength=len(views)) == 0
    weight = 1.0 / trace.chance_e[decisions.row]
    if lacks.any():
        at = np.flatnonzero(~lacks)
        entries = entries_of(views, at)
        views, place, tried, weight = taken(views, at), place[entries], tried[entries], weight[at]
        of = np.repeat(np.arange(len(views)), tape.lengths(views.start))
    if not tried.all():
        start = np.concatenate([[0], np.cumsum(np.bincount(of[tried], minlength=len(views)))])
        views = replace(views, start=start, option=views.option[tried], item=views.item[tried])
        place = place[tried]
    logp = trace.behaviour_o[place].astype(np.float32)
    paid, earned = paid_o[place], earned_o[place]
    if deal:
        earned = earned[deal(len(earned))]
        paid = same_prefix(earned, logp, views.start)
    return TrainingRows(views, logp, paid, weight, _spread(earned, views.start))


def _spread(earned: F, start: N64) -> F:
    """sd_k Q_k over the options k of each row."""
    first, many = start[:-1], tape.lengths(start)
    off = earned - np.repeat(np.add.reduceat(earned, first) / many, many)
    spread: F = np.sqrt(np.add.reduceat(off * off, first) / many)
    return spread


def _on_the_taken(made: Made, paid: F) -> list[TrainingRows]:
    """Credit on the option that was taken, over its probability, of the decisions that are paid."""
    at = np.flatnonzero(~np.isnan(paid))
    if not len(at):
        return []
    earned = np.zeros(len(made.logp), np.float32)
    earned[made.entry[at]] = paid[at] / np.exp(made.logp[made.entry[at]])
    seen, logp = made.seen, made.logp
    if len(at) < len(paid):
        entries = entries_of(seen, at)
        seen, logp, earned = taken(seen, at), logp[entries], earned[entries]
    return [TrainingRows(seen, logp, earned, np.ones(len(at), np.float32))]


def without_zeros(rows: TrainingRows) -> TrainingRows:
    """The rows of which some option has credit other than 0."""
    other = np.add.reduceat(rows.credit != 0, rows.seen.start[:-1]) > 0
    at = np.flatnonzero(other)
    entries = entries_of(rows.seen, at)
    spread = None if rows.spread is None else rows.spread[at]
    return TrainingRows(taken(rows.seen, at), rows.logp[entries], rows.credit[entries], rows.weight[at], spread)


def _joined(parts: Sequence[TrainingRows]) -> TrainingRows:
    """Rows of one kind, of all worlds."""
    logp, credit, weight = (
        np.concatenate([getattr(p, name) for p in parts]) for name in ("logp", "credit", "weight")
    )
    spread = np.concatenate([p.spread for p in parts if p.spread is not None])
    return TrainingRows(joined([p.seen for p in parts]), logp, credit, weight, spread)
