"""Traces written by hand, for the tests of methods.

    runs(
        run("say ann", on("say bob critic", step=0.5, tokens=3), team=1.0),
        run("say ann", "say bob critic", team=0.0),
    )

Not called `made`, which tests/graph has: the names of test files and of their helpers are one for all folders.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec
import numpy as np

from podium.methods import METHODS, credit_of
from podium.trace.columns import Text, Trace, concat
from podium.trace.options import option_axis
from podium.trace.vocabulary import DECISIONS, EDGE_TYPES, EVENT_TYPES

__all__ = ["NAN", "credit", "near", "on", "run", "runs", "weight"]

NAN = np.nan
SHORT = {"decide": "orchestrator_decision", "say": "message", "call": "tool_call", "result": "tool_result"}
FLOATS = ("t", "end", "tokens_in", "tokens_out", "cost", "logp")
WHOLE = ("stage", "valid", "trusted")
TEXTS = ("tool", "content_ref", "model", "chosen")
SPECIAL = ("after", "tokens", "mask", "decision", "options", "votes")
Event = tuple[str, dict[str, Any]]


def on(what: str, **fields: Any) -> Event:
    """An event and what it says.

    `what` is "type agent", "type agent>to", or either with a role behind it; types have short names: decide, say, call, result.
    `after` names the rows it follows, each a number (a causal edge) or (number, edge type); the row before it unless told.
    `tokens` is how many tokens it wrote; `mask` says of each whether the policy sampled it. `votes` are (source row, value) or
    (source row, value, weight). `t`, `end`, `stage`, `valid`, `tool`, `decision`, `options`, `chosen`, ... are the columns of that name.
    Any other number is a reward channel of the event; any other word, list or truth a label.
    """
    return what, fields


def run(
    *events: str | Event,
    name: str | None = None,
    task: str = "q",
    group: str | None = None,
    batch: int = -1,
    parent: str | None = None,
    branch: int = -1,
    do: dict[str, Any] | None = None,
    **rewards: float,
) -> Trace:
    """One run; other names are its reward channels: team=1.0. Event number i happens at time i unless it says.

    A run that branched names its `parent`, the row there at which it left (`branch`) and what was done (`do`); it repeats the rows
    before. Runs without a name get one from `runs`.
    """
    said = [(e, {}) if isinstance(e, str) else e for e in events]
    cast: dict[str, int] = {}
    rows: dict[str, list[Any]] = {k: [] for k in ("type", "agent", "to", "role")}
    for what, _ in said:
        kind, who, role = (*what.split(" "), None, None)[:3]
        who, _, whom = str(who).partition(">")
        rows["type"].append(EVENT_TYPES.index(SHORT.get(str(kind), str(kind))))
        rows["agent"].append(cast.setdefault(who, len(cast)))
        rows["to"].append(cast.setdefault(whom, len(cast)) if whom else -1)
        rows["role"].append(role)
    fields = [f for _, f in said]
    edges = [
        (c, i, "causal") if isinstance(c, int) else (c[0], i, c[1])
        for i, f in enumerate(fields)
        for c in f.get("after", [i - 1] if i else [])
    ]
    tokens = [(i, m) for i, f in enumerate(fields) for m in f.get("mask", [1] * f.get("tokens", 0))]
    votes = [(i, *v, 1.0)[:4] for i, f in enumerate(fields) for v in f.get("votes", ())]
    rest = [
        {k: v for k, v in f.items() if k not in (*FLOATS, *WHOLE, *TEXTS, *SPECIAL)} | {"tokens": f.get("tokens")}
        for f in fields
    ]
    paid = sorted({k for r in rest for k, v in r.items() if _is_number(v)} - {"tokens"})
    labels = sorted({k for r in rest for k, v in r.items() if not _is_number(v)} - {"tokens"})

    def floats(field: str) -> list[float]:
        absent = {"t": range(len(said)), "tokens_out": [f.get("tokens", NAN) for f in fields]}.get(field)
        return [f.get(field, NAN if absent is None else absent[i]) for i, f in enumerate(fields)]

    return Trace.of(
        trace_id_n=Text.of([name]),
        task_id_n=Text.of([task]),
        group_n=Text.of([group]),
        batch_n=np.array([batch]),
        parent_n=Text.of([parent]),
        branch_n=np.array([branch]),
        do_n=Text.of([None if do is None else _json(do)]),
        reward_n={k: np.array([v]) for k, v in rewards.items()},
        rollout_a=np.zeros(len(cast), int),
        name_a=Text.of(cast),
        rollout_e=np.zeros(len(said), int),
        type_e=np.array(rows["type"], int),
        agent_e=np.array(rows["agent"], int),
        to_e=np.array(rows["to"], int),
        role_e=Text.of(rows["role"]),
        decision_e=np.array([DECISIONS.index(f["decision"]) if "decision" in f else -1 for f in fields], int),
        **option_axis(Text.of(_json(f["options"]) if "options" in f else None for f in fields)),
        **{f"{k}_e": np.array(floats(k), float) for k in FLOATS},
        **{f"{k}_e": np.array([f.get(k, -1) for f in fields], int) for k in WHOLE},
        **{f"{k}_e": Text.of(f.get(k) for f in fields) for k in TEXTS},
        reward_e={k: np.array([r.get(k, NAN) for r in rest], float) for k in paid},
        extra_e={k: Text.of(_json(r[k]) if k in r else None for r in rest) for k in labels},
        src_x=np.array([s for s, _, _ in edges], int),
        dst_x=np.array([d for _, d, _ in edges], int),
        type_x=np.array([EDGE_TYPES.index(k) for _, _, k in edges], int),
        owner_k=np.array([i for i, _ in tokens], int),
        token_k=np.arange(len(tokens)),
        mask_k=np.array([m for _, m in tokens], int),
        event_v=np.array([e for e, *_ in votes], int),
        source_v=np.array([s for _, s, *_ in votes], int),
        value_v=Text.of(str(v) for _, _, v, _ in votes),
        weight_v=np.array([w for *_, w in votes], float),
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def runs(*parts: Trace) -> Trace:
    """Runs as one trace; those without a name are called run0, run1, ..."""
    whole, number = concat(parts), count()
    names = [name or f"run{next(number)}" for name in whole.trace_id_n.strings()]
    return Trace.of(
        **{n: getattr(whole, n) for n in whole.__slots__ if n != "trace_id_n"}, trace_id_n=Text.of(names)
    )


def credit(trace: Trace, method: str) -> list[float]:
    """What a method pays, unit by unit; and that its row says the truth of where it does."""
    made = credit_of(trace, method)
    assert made.unit == METHODS[method].pays
    values: list[float] = made.value.tolist()
    return values


def weight(trace: Trace, method: str) -> list[float]:
    """How much each unit that a method pays counts in the loss."""
    made = credit_of(trace, method).weight
    assert made is not None
    return made.tolist()


def near(got: Any, want: Any, within: float = 1e-9) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=within)
