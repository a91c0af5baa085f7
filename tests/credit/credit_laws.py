"""The laws of every credit, whatever its formula: a library, run over every step and every method, and proven
against liars.

Four hold for all: a batch is a longer trace, interleaving, names and ids, NaN in NaN out. Four are claims: that
splitting a span of work changes nothing (what weighs rollouts or agents), that credit scales with its reward or not
at all, that no reward is minted or lost (what shares), that whatever is inside a unit has the unit's advantage,
however much that is (what broadcasts).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.audit.score_laws import matched, renamed, reordered
from podium.credit.credit import Credit, apply
from podium.credit.forest import nodes, roots
from podium.graph import units
from podium.graph.grouping import count_of, take
from podium.trace.columns import COLUMNS, F, Names, Text, Trace, concat, take_rows
from podium.trace.vocabulary import edge, event

__all__ = ["LAWS", "Judged", "faults", "judged", "split"]

CAUSAL, TOLD = edge("causal"), edge("message")
PARTS = [event(name) for name in ("aggregate", "return")]  # work that is no unit of its own
CHANNEL = "step"


class Judged(NamedTuple):
    """A credit as the laws see it: what it starts from, what it makes of that, and what it claims."""

    name: str
    start: Callable[[Trace], Credit]
    of: Callable[[Credit], Credit]
    counts: str = "rows"  # what it weighs equally; splitting work must not matter where that is rollouts or agents
    scales: bool = False
    conserves: bool = False
    broadcasts: bool = False
    moves: bool = False  # brings credit to units that had none


def judged(expression: str, unit: str = "turn", **claims: Any) -> Judged:
    """A credit expression, as it treats a reward that each unit has for itself: the channel `step`, or `team` of
    runs.
    """

    def start(trace: Trace) -> Credit:
        if unit == "team":
            return Credit(trace, unit, trace.reward_n["team"])
        return Credit(trace, unit, take(trace.reward_e[CHANNEL], units.rows(trace, unit)))

    return Judged(expression, start, lambda credit: apply(credit, expression), **claims)


def faults(credit: Judged, traces: Sequence[Trace]) -> list[str]:
    """What a credit does against the laws on these traces: "law: what happened", each law at most once."""
    findings = []
    for law, check in LAWS.items():
        why = next((why for trace in traces for why in check(credit, trace)), None)
        if why is not None:
            findings.append(f"{law}: {credit.name} {why}")
            if check is one_number_a_unit:
                break  # nor can the other laws tell which number is whose
    return findings


def _same(a: F | None, b: F | None, rtol: float = 1e-7, atol: float = 1e-9) -> bool:
    if a is None or b is None:
        return a is b
    return len(a) == len(b) and bool(np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True))


def _made(credit: Judged, trace: Trace) -> Credit:
    return credit.of(credit.start(trace))


# the laws for all


def one_number_a_unit(credit: Judged, trace: Trace) -> Iterator[str]:
    """A number for each unit, and the same ones again."""
    for some in (trace, trace[:0]):
        result = _made(credit, some)
        want = len(units.rows(some, result.unit))
        for values in (result.value, result.weight):
            if values is None:
                continue
            if values.shape != (want,) or values.dtype != np.float64:
                yield f"gives {values.dtype} of shape {values.shape}; there are {want} units ({result.unit})"
            elif np.isinf(values).any():
                yield "gives an infinity"
    first, again = _made(credit, trace), _made(credit, trace)
    if not (_same(first.value, again.value) and _same(first.weight, again.weight)):
        yield "does not repeat itself"


def batch(credit: Judged, trace: Trace) -> Iterator[str]:
    """A batch is a longer trace: f(a ++ b) = f(a) ++ f(b), for runs of different batches, be they called alike."""
    other = _another_batch(trace)
    for parts in ((trace, other), (other, trace)):
        together, apart = _made(credit, concat(parts)), [_made(credit, part) for part in parts]
        if not _same(together.value, np.concatenate([a.value for a in apart])):
            yield "gives batches together another credit than alone"
        if together.weight is not None and not _same(
            together.weight, np.concatenate([np.array([]) if a.weight is None else a.weight for a in apart])
        ):
            yield "weighs batches together otherwise than alone"


def interleaving(credit: Judged, trace: Trace) -> Iterator[str]:
    """How the events of concurrent agents interleave in the log changes nothing."""
    dice, here = np.random.default_rng(7), _made(credit, trace)
    for _ in range(2):
        other, old = reordered(trace, dice, _luck(trace, dice))
        start = credit.start(trace)
        given = start.value[matched(trace, other, old, start.unit)]
        result = credit.of(Credit(other, start.unit, given))
        at = matched(trace, other, old, result.unit)
        if not _same(result.value, here.value[at]):
            yield "depends on how concurrent events interleave"
        if here.weight is not None and not _same(result.weight, here.weight[at]):
            yield "weighs by how concurrent events interleave"


def names_and_ids(credit: Judged, trace: Trace) -> Iterator[str]:
    """Agents, events and runs by other names and numbers get the same."""
    other, agent = renamed(trace, np.random.default_rng(8))
    start, here = credit.start(trace), _made(credit, trace)
    given = start.value[agent] if start.unit == "agent" else start.value
    result = credit.of(Credit(other, start.unit, given))
    for values, want in ((result.value, here.value), (result.weight, here.weight)):
        if not _same(values, want[agent] if here.unit == "agent" and want is not None else want):
            yield "depends on names or ids"


def absent_stays_absent(credit: Judged, trace: Trace) -> Iterator[str]:
    """A run of which nothing is known gets nothing; nor does a unit, unless credit is brought to it from others."""
    start = credit.start(trace)
    for run in range(0, len(trace), 2):
        result = credit.of(start.of(np.where(start.rollout == run, np.nan, start.value)))
        if not np.isnan(result.value[result.rollout == run]).all():
            yield "pays a run that was not scored"
    lost = np.random.default_rng(9).random(len(start.value)) < 0.2
    result = credit.of(start.of(np.where(lost, np.nan, start.value)))
    if result.unit == start.unit and not credit.moves and not np.isnan(result.value[lost]).all():
        yield f"pays a unit ({result.unit}) that was not scored"


# claims


def splitting(credit: Judged, trace: Trace) -> Iterator[str]:
    """Where rollouts or agents count, a span of work that is recorded as two is worth what it was."""
    if credit.counts not in ("rollouts", "agents"):
        return
    start, here = credit.start(trace), _made(credit, trace)
    for row in _spans(trace)[:3].tolist():
        other, old = split(trace, row)
        at = matched(trace, other, old, start.unit)
        result = credit.of(Credit(other, start.unit, start.value[at]))
        of = matched(trace, other, old, result.unit)
        if not _same(result.value, here.value[of]):
            yield "changes where a span of work is recorded as two"
        if result.weight is not None and here.weight is not None:
            shared: F = np.bincount(of, np.nan_to_num(result.weight), minlength=len(here.weight)).astype(np.float64)
            if not _same(shared, np.nan_to_num(here.weight)):
                yield "weighs a span of work otherwise if it is recorded as two"


def scale(credit: Judged, trace: Trace) -> Iterator[str]:
    """Twice the reward is twice a unit's credit, or leaves it as it is. What keeps a deviation from 0 may show in
    the sixth digit.
    """
    if not credit.scales:
        return
    start, here = credit.start(trace), _made(credit, trace).value
    for factor in (2.0, 3.0):
        result = credit.of(start.of(factor * start.value)).value
        kept, more = (
            np.isclose(result, want, rtol=1e-4, atol=1e-5, equal_nan=True) for want in (here, factor * here)
        )
        if not (kept | more).all():
            yield f"is neither {factor:g} times as much nor the same for {factor:g} times the reward"


def conservation(credit: Judged, trace: Trace) -> Iterator[str]:
    """What the units of a run get adds up to what it was paid."""
    if not credit.conserves:
        return
    start = credit.start(trace)
    result = credit.of(start)
    scored_n = np.bincount(result.rollout, ~np.isnan(result.value), minlength=len(trace)) > 0
    total, paid = (
        np.bincount(c.rollout, np.nan_to_num(c.value), minlength=len(trace)).astype(np.float64)[scored_n]
        for c in (result, start)
    )
    if not _same(total, paid):
        yield "mints or loses reward"


def broadcasting(credit: Judged, trace: Trace) -> Iterator[str]:
    """An advantage is the same for all that is inside its unit, and none for what is inside no unit."""
    if not credit.broadcasts:
        return
    start = credit.start(trace)
    result = credit.of(start)
    if not _same(result.value, take(start.value, units.within(trace, result.unit, start.unit))):
        yield f"does not give what is inside a unit ({start.unit}) the advantage of the unit"
    weighed = credit.of(replace(start, weight=np.ones(len(start.value)))).weight
    if weighed is not None:
        filled = np.isin(np.arange(len(start.value)), inside := units.within(trace, result.unit, start.unit))
        total = np.bincount(inside[inside >= 0], weighed[inside >= 0], minlength=len(start.value))
        if not _same(total.astype(np.float64), filled.astype(np.float64)):
            yield "does not share the weight of a unit among what is inside"


LAWS: dict[str, Callable[[Judged, Trace], Iterator[str]]] = {
    "one number a unit": one_number_a_unit,
    "batch": batch,
    "interleaving": interleaving,
    "names and ids": names_and_ids,
    "NaN in NaN out": absent_stays_absent,
    "splitting": splitting,
    "scale": scale,
    "conservation": conservation,
    "broadcast": broadcasting,
}


# the same runs, otherwise


def _another_batch(trace: Trace) -> Trace:
    """Runs of the same names in another batch, which earned otherwise."""
    return replace(
        trace,
        batch_n=trace.batch_n + count_of(trace.batch_n) + 1,
        reward_n={name: 0.5 * values + 0.25 for name, values in trace.reward_n.items()},
        reward_e={name: 0.5 * values + 0.25 for name, values in trace.reward_e.items()},
    )


def _luck(trace: Trace, dice: np.random.Generator) -> F:
    """By which rows are taken: at random, but the same for what runs of one tree share, and what was left at a row
    stays there.
    """
    local = np.arange(trace.n_events) - trace.first_of("e")[trace.rollout_e]
    root_n = roots(trace)
    before = np.zeros(trace.n_events)
    for run in np.flatnonzero(trace.parent_n.codes >= 0).tolist():
        family = root_n[trace.rollout_e] == root_n[run]
        before += family * ((local >= trace.branch_n[run]).astype(float) + (local > trace.branch_n[run]))
    _, node = np.unique(nodes(trace, np.arange(trace.n_events)), return_inverse=True)
    luck = before + dice.random(count_of(node))[node]
    scaled: F = luck / (luck.max(initial=0.0) + 1.0)
    return scaled


def _spans(trace: Trace) -> NDArray[np.int64]:
    """Work that may be recorded as two: no unit of its own, by an agent that does not begin its run, in runs
    without branches.
    """
    if (trace.parent_n.codes >= 0).any():
        return np.zeros(0, np.int64)
    starts = trace.first_of("e")[trace.rollout_e]
    may = np.isin(trace.type_e, PARTS) & (trace.agent_e != take(trace.agent_e, starts))
    return np.flatnonzero(may & ~np.isin(np.arange(trace.n_events), trace.event_v))


def split(trace: Trace, row: int) -> tuple[Trace, NDArray[np.int64]]:
    """The same runs, with one event recorded as two, of which the second opens a turn; and for each new row the old
    one.

    The second is heard from whoever began the run. Tokens, time and cost are shared, reward channels stay with the
    first.
    """
    n = trace.n_events
    old = np.insert(np.arange(n), row + 1, row)
    at = np.append(np.arange(n) + (np.arange(n) > row), -1)  # the last entry serves -1, absent
    columns: dict[str, Any] = {}
    for name, axis, kind in COLUMNS:
        values = getattr(trace, name)
        values = take_rows(values, old) if axis == "e" else values
        columns[name] = at[values] if kind == "row" else values
    start = int(trace.first_of("e")[trace.rollout_e[row]])
    src = np.append(np.where(columns["src_x"] == row, row + 1, columns["src_x"]), [row, start])
    dst = np.append(columns["dst_x"], [row + 1, row + 1])
    order = np.argsort(dst, kind="stable")
    more = {"type_x": [CAUSAL, TOLD], "inferred_x": [-1, -1]}
    columns |= {name: np.append(columns[name], values)[order] for name, values in more.items()}
    columns |= {"src_x": src[order], "dst_x": dst[order]}
    columns["rule_x"] = Text.concat([trace.rule_x, Text.constant(None, 2)]).take(order)
    owned = np.flatnonzero(trace.owner_k == row)
    columns["owner_k"][owned[len(owned) // 2 :]] = row + 1
    wrote = trace.tokens_out_e[row]
    first = float(len(owned) // 2) if len(owned) else wrote / 2
    columns["tokens_out_e"] = _pair(columns["tokens_out_e"], row, first, wrote - first)
    middle = (trace.t_e[row] + (trace.end_e[row] if trace.end_e[row] > trace.t_e[row] else trace.t_e[row])) / 2
    columns["t_e"] = _pair(columns["t_e"], row, trace.t_e[row], middle)
    columns["end_e"] = _pair(columns["end_e"], row, middle, trace.end_e[row])
    columns["cost_e"] = _pair(columns["cost_e"], row, trace.cost_e[row] / 2, trace.cost_e[row] / 2)
    columns["reward_e"] = {
        name: _pair(values, row, values[row], 0.0 * values[row]) for name, values in columns["reward_e"].items()
    }
    ids = take_rows(trace.id_e, old).strings()
    columns["id_e"] = Names(Text.of([*ids[: row + 1], f"{ids[row]}, the rest", *ids[row + 2 :]]))
    return Trace.of(**columns), old


def _pair(values: F, row: int, first: float, second: float) -> F:
    changed = np.array(values)
    changed[row : row + 2] = first, second
    return changed
