"""Why a method pays none of a policy's decisions: the first part of its reward or credit that leaves nothing."""

from __future__ import annotations

import inspect
import re

import numpy as np
from numpy.typing import NDArray

from podium import rewards
from podium.credit import Credit, apply
from podium.credit.credit import read_credit
from podium.credit.keys import groups
from podium.expression import Call, Node, Scaled, Sum, Then, calls, spell
from podium.learn.credit import at_events
from podium.methods import Method, scored
from podium.registry import facts, find, kind_of
from podium.rewards.ledger import Now, read_reward
from podium.trace.columns import F, Trace
from podium.trace.vocabulary import DECISIONS

__all__ = ["at_rows", "compared", "unpaid"]

N64 = NDArray[np.int64]


def at_rows(given: Credit, rows: N64) -> F:
    """What the units that events belong to are paid, each time its weight; NaN where it cannot be told."""
    value = given.value if given.weight is None else given.value * given.weight
    paid: F = at_events(given, value)[rows]
    return paid


def unpaid(trace: Trace, method: Method, rows: N64, now: Now) -> str:
    """Why a method pays none of the events `rows` of a trace; empty if it pays one."""
    if not len(rows):
        return "these runs have no decisions"
    reward, what = scored(trace, method, now), _word(method.unit)
    if not len(reward.value):
        return f"it pays by {what}, and these runs have no {what}"
    if np.isnan(reward.value).all():
        return _unscored(trace, method, now)
    if np.isnan(at_rows(reward, rows)).all():
        count = int((~np.isnan(reward.value)).sum())
        share = f"{count:,} of {len(reward.value):,} units ({what})"
        return f"`{method.reward}` is scored for {share}, and none holds a decision"
    return _lost(reward, read_credit(method.credit), rows)


def _word(unit: str) -> str:
    return {"team": "run", "orchestrator": "orchestrator's decision", "tool_call": "tool call"}.get(unit, unit)


def _unscored(trace: Trace, method: Method, now: Now) -> str:
    """Of a reward that is absent everywhere: which of its scores are, and what those need."""
    missing = []
    for call in dict.fromkeys(calls(read_reward(method.reward))):
        if kind_of(call.name, "score", "shape") == "score":
            paid = np.concatenate([c.paid for c in rewards.ledger(trace, call, now).channels])
            if np.isnan(paid).all():
                needs = facts("score", call.name).get("needs", "")
                missing.append(f"`{spell(call)}`" + (f", which needs {needs}," if needs else ""))
    what = _word(method.unit)
    if not missing:
        return f"its reward `{method.reward}` has all its parts for no {what}"
    return f"its reward has no score for any {what}: {' and '.join(missing)} is absent everywhere"


def _lost(credit: Credit, node: Node, rows: N64) -> str:
    """The first step after which none of the rows has credit, and why, as far as it can be told."""
    for part in node.parts if isinstance(node, Then) else (node,):
        before, credit = credit, apply(credit, part)
        if not np.isnan(at_rows(credit, rows)).all():
            continue
        if isinstance(part, Scaled):
            return _lost(before, part.part, rows)
        if isinstance(part, Sum):
            return next(why for why in (_lost(before, p, rows) for p in part.parts) if why)
        if isinstance(part, Then):
            return _lost(before, part, rows)
        assert isinstance(part, Call)
        weighed = not np.isnan(at_events(credit, credit.value)[rows]).all()
        what = "none of these has a weight" if weighed else "none of these has credit"
        return f"after `{spell(part)}` {what}: {_why(before, part, rows)}"
    return ""


def _why(credit: Credit, call: Call, rows: N64) -> str:
    if call.name == "only" and call.args[0] in ("role", "agent", "decision"):
        kind, trace = str(call.args[0]), credit.trace
        word = {"role": trace.role_e.words, "agent": trace.name_a.words, "decision": DECISIONS}[kind]
        code = np.append(find("key", kind)(trace, credit.unit), -1)[_units(credit, rows)]
        there = [str(word[c]) for c in np.unique(code[code >= 0]).tolist()]
        return f"by {kind} they are {', '.join(there)}" if there else f"none has the key {kind!r}"
    return _alone(credit, call, rows) or _needs(call) or "its value is absent"


def compared(call: Call) -> tuple[str, ...]:
    """The keys by which a step compares units; none if it does not.

    >>> compared(Call("center", (), (("by", ("parent", "agent")),))), compared(Call("sampled"))
    (('parent', 'agent'), ())
    """
    given = inspect.signature(find("step", call.name)).bind_partial(None, *call.args, **dict(call.options))
    given.apply_defaults()
    by = given.arguments.get("by") or ()
    return (by,) if isinstance(by, str) else tuple(by)


def _alone(credit: Credit, call: Call, rows: N64) -> str:
    """Whether a step that compares has nothing to compare these rows with: they lack a key, or each is the
    only one of its group."""
    of = _units(credit, rows)
    for keys in filter(None, map(compared, calls(call))):
        for key in keys:
            if (np.append(find("key", key)(credit.trace, credit.unit), -1)[of] < 0).all():
                return f"none has the key {key!r}"
        group = np.append(groups(credit, keys), -1)
        grouped = (group[:-1] >= 0) & ~np.isnan(credit.value)
        count = np.append(np.bincount(group[:-1][grouped], minlength=int(group.max(initial=0)) + 1), 0)
        if (count[group[of]] < 2).all():
            return f"each is the only {_word(credit.unit)} of its group by {' and '.join(keys)}"
    return ""


def _units(credit: Credit, rows: N64) -> N64:
    """The unit of each row, -1 for none."""
    unit_e = at_events(credit, np.arange(len(credit.value), dtype=np.float64))
    return np.nan_to_num(unit_e, nan=-1.0)[rows].astype(np.int64)


def _needs(call: Call) -> str:
    """What a step's docstring says that it needs, its own or that of the first step inside it which says so."""
    for inner in calls(call):
        text = " ".join((find("step", inner.name).__doc__ or "").split())
        if found := re.search(r"needs: (.*?)(?:, else|\. |\.$|; )", text):
            return f"`{inner.name}` needs {found[1]}"
    return ""
