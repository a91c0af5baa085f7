"""Branches of one run beside it: which rows they share, and whether all that changed had cause to."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from podium.graph.ancestry import descendants
from podium.trace.columns import B, I, Trace
from podium.trace.vocabulary import event

__all__ = ["shared", "unexplained"]

AT_ONCE = 1e-7  # seconds: a replay sets what happens at the same time a little apart
_NOT_ITS_OWN = ("n", "end")  # of a step: what else was done in it, and a clock


def shared(parent: Trace, branch: Trace) -> I:
    """For each event of a branch the row of the same event in its parent, -1 where there is none.

    It is the same if it is the same agent's doing at the same place and time, says the same, and has the same
    causes.
    """
    keys, theirs = _keys(branch), _keys(parent)
    place = {key: row for row, key in enumerate(theirs)}
    said, told = _contents(branch), _contents(parent)
    causes, before = _causes(branch, keys), _causes(parent, theirs)
    row_e = np.full(branch.n_events, -1, np.int64)
    for row, key in enumerate(keys):
        there = place.get(key, -1)
        if there >= 0 and said[row] == told[there] and causes[row] == before[there]:
            row_e[row] = there
    return row_e


def unexplained(parent: Trace, branch: Trace, row: int) -> list[int]:
    """Rows of the parent that the branch lacks though the change at this row does not lead to them: neither along
    the parent's edges, nor along the branch's to something new that their agent did, or that ended it, no later.
    There should be none.
    """
    row_e = shared(parent, branch)
    kept_e: B = np.zeros(parent.n_events, np.bool_)
    kept_e[row_e[row_e >= 0]] = True
    after_e = descendants(parent, [row])
    after_e[row] = True
    after_e |= _cut_short(parent, after_e)
    reached = _reached(branch, row_e, _changed(parent, branch, row, row_e))
    names, lost = parent.name_a.strings(), []
    for e in np.flatnonzero(~kept_e & ~after_e).tolist():
        when = min(reached.get(names[_whose(parent, e)], np.inf), reached.get(None, np.inf))
        if not parent.t_e[e] >= when - AT_ONCE:
            lost.append(e)
    return lost


def _changed(parent: Trace, branch: Trace, row: int, row_e: I) -> list[int]:
    """Where in the branch the change is: what is new in its place, what ended its agent there, or the event itself
    where only its way was changed."""
    names, at = branch.name_a.strings(), _texts(branch, "at")
    who, spot = parent.name_a.strings()[_whose(parent, row)], _texts(parent, "at")[row]
    own = [e for e in range(branch.n_events) if names[_whose(branch, e)] == who]
    new = [e for e in own if row_e[e] < 0 and (at[e] == spot or branch.type_e[e] == event("despawn"))]
    return new + np.flatnonzero(row_e == row).tolist() or [e for e in own if row_e[e] < 0]


def _reached(branch: Trace, row_e: I, changed: list[int]) -> dict[str | None, float]:
    """When the change first reached each agent of the branch, and under None when it ended the run."""
    after_e = descendants(branch, changed)
    after_e[changed] = True
    names = branch.name_a.strings()
    reached: dict[str | None, float] = {}
    for e in np.flatnonzero(after_e & (row_e < 0)).tolist():
        ends_run = branch.type_e[e] == event("return") and branch.to_e[e] < 0
        for name in (names[_whose(branch, e)], *((None,) if ends_run else ())):
            reached[name] = min(reached.get(name, np.inf), float(branch.t_e[e]))
    return reached


def _cut_short(parent: Trace, after_e: B) -> B:
    """Steps and calls that were under way when something downstream ended their agent, or the run."""
    names = parent.name_a.strings()
    ends = after_e & (
        (parent.type_e == event("despawn")) | ((parent.type_e == event("return")) & (parent.to_e < 0))
    )
    ended = {names[_whose(parent, e)] for e in np.flatnonzero(ends).tolist()}
    cut_e = np.zeros(parent.n_events, np.bool_)
    for name in ("step", "fault"):
        for e, text in enumerate(_texts(parent, name)):
            if text and msgspec.json.decode(text).get("cut"):
                cut_e[e] = names[_whose(parent, e)] in ended
    return cut_e


def _whose(trace: Trace, row: int) -> int:
    outside = trace.type_e[row] in (event("tool_result"), event("safety_event"), event("despawn"))
    return int(trace.to_e[row] if outside and trace.to_e[row] >= 0 else trace.agent_e[row])


def _keys(trace: Trace) -> list[tuple[Any, ...]]:
    """Whose doing each event is, and where in it: the same in every branch."""
    at = _texts(trace, "at")
    tries = [msgspec.json.decode(s).get("try", 0) if s else 0 for s in _texts(trace, "step")]
    nth = _texts(trace, "nth")
    names = trace.name_a.strings()
    agent, to = (column.tolist() for column in (trace.agent_e, trace.to_e))
    kinds = trace.type_e.tolist()
    return [
        (kinds[e], names[agent[e]], names[to[e]] if to[e] >= 0 else None, at[e], tries[e], nth[e])
        for e in range(trace.n_events)
    ]


def _contents(trace: Trace) -> list[tuple[Any, ...]]:
    """What each event says, its time included."""
    steps = []
    for text in _texts(trace, "step"):
        step = msgspec.json.decode(text) if text else {}
        steps.append({k: v for k, v in step.items() if k not in _NOT_ITS_OWN})
    extra = [_texts(trace, name) for name in ("act", "content", "fault", "hit", "refused")]
    columns = [c.strings() for c in (trace.content_ref_e, trace.chosen_e, trace.tool_e, trace.random_e)]
    return list(zip(trace.t_e.tolist(), trace.trusted_e.tolist(), steps, *extra, *columns, strict=True))


def _texts(trace: Trace, name: str) -> list[str | None]:
    text = trace.extra_e.get(name)
    return [None] * trace.n_events if text is None else text.strings()


def _causes(trace: Trace, keys: list[tuple[Any, ...]]) -> list[set[tuple[Any, ...]]]:
    causes: list[set[tuple[Any, ...]]] = [set() for _ in range(trace.n_events)]
    for s, d, t in zip(trace.src_x.tolist(), trace.dst_x.tolist(), trace.type_x.tolist(), strict=True):
        causes[d].add((t, *keys[s]))
    return causes
