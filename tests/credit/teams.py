"""Teams by dice, with all that a log may carry, for the laws: runs, and forests of runs that branched or masked someone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
from grown import Event, on, run, runs

from podium.credit.forest import nodes
from podium.graph import units
from podium.trace.columns import Text, Trace
from podium.trace.vocabulary import EVENT_TYPES

__all__ = ["acts", "forest", "plain", "solo"]

CAST = ("lead planner", "ann solver", "bob critic", "cy sub", "dee defender")
CHANNELS = (
    "step agent tests verifier value value_local value_joint value_graph q mixer phi ema language critic verdict correct score "
    "format verified role harm weight"
).split()
TEAM = "team greedy judge harm refusal format language ema".split()
OPTIONS = ("go", "stop", "ask")


def events(dice: np.random.Generator, n: int, start: int = 0, gone: str = "") -> list[Event]:
    """What happens in a run from some row on; `gone` is whoever is masked."""
    here = [who for who in CAST if not gone or not who.startswith(gone)]
    found: list[Event] = []
    calls: dict[int, str] = {}
    for row in range(start, start + n):
        who = here[0] if row == 0 else here[int(dice.integers(len(here)))]
        kind = ("decide", "say", "say", "call", "return", "aggregate")[int(dice.integers(6))] if row else "decide"
        if called := [r for r, kinds in calls.items() if r < row - row % 3 and kinds]:
            kind, who = "result", f"{calls[called[0]]}-tool"  # a tool answers in its own name
            calls[called[0]] = ""
        more: dict[str, Any] = {
            "t": float(row // 3),  # three things begin at once
            "end": float(row // 3) + float(dice.integers(1, 4)) / 4,
            "tokens": int(dice.integers(2, 6)),
            "stage": row // 4,
            "valid": int(dice.random() < 0.8),
            "content_ref": f"c{int(dice.integers(3))}",
            "after": _causes(dice, row),
        }
        if kind == "decide":
            named = ("spawn", "delegate", "stop")[int(dice.integers(3))]
            chosen = "go" if named == "stop" else OPTIONS[int(dice.integers(3))]
            more |= {"decision": named, "options": list(OPTIONS), "chosen": chosen}
        if kind == "call":
            more["tool"], calls[row] = "search", who.split(" ")[0] if row > 2 else ""
        if kind == "result":
            more |= {"tool": "search", "after": [(called[0], "tool_dependency")]}
        if kind == "aggregate":
            more["votes"] = [(int(s), "xy"[int(dice.integers(2))]) for s in {0, max(row - 2, 0), max(row - 4, 0)}]
        found.append(on(f"{kind} {who}", **more))
    return found


def _causes(dice: np.random.Generator, row: int) -> list[int]:
    """A turn has a cause at an earlier moment, so that what begins at once is concurrent."""
    earlier = row - row % 3
    return sorted({int(c) for c in dice.integers(max(earlier - 6, 0), earlier, 2)}) if earlier else []


def spawning(events: list[Event]) -> list[Event]:
    """The second and third thing that happens are spawns."""
    (_, a), (_, b) = events[1:3]
    a, b = (
        {k: v for k, v in e.items() if k not in ("votes", "tool", "decision", "options", "chosen")} for e in (a, b)
    )
    return [events[0], on("spawn lead>cy planner", **a), on("spawn ann>dee solver", **b), *events[3:]]


def plain(seed: int, n: int = 5, length: int = 30) -> Trace:
    """Runs of two tasks in two batches."""
    dice = np.random.default_rng(seed)
    parts = [
        run(*spawning(events(dice, length - 3 * i)), task=f"q{i % 2}", batch=i % 2 if seed % 2 else 0)
        for i in range(n)
    ]
    return _paid(runs(*parts), dice)


def forest(seed: int, length: int = 15) -> Trace:
    """Trees: a run each, runs that left it at decisions or elsewhere, one that left a branch, and runs without someone."""
    dice = np.random.default_rng(seed)
    parts: list[Trace] = []
    for tree in ("a", "b", "c"):
        root = spawning(events(dice, length))
        parts.append(run(*root, name=tree, task="q"))
        decided = [i for i, (what, _) in enumerate(root) if what.startswith("decide") and i > 2][:2]
        for k, row in enumerate([*decided, 4, 0]):
            other = events(dice, length - row, row)
            if row in decided:
                other[0] = on(root[row][0], **(root[row][1] | {"chosen": ("ask", "go")[k % 2]}))
            if not row:
                other = spawning(other)
            left = [*root[:row], *other]
            do = {"what": "choose", "value": str(left[row][1].get("chosen"))}
            parts.append(run(*left, name=f"{tree}/{k}", task="q", parent=tree, branch=row, do=do))
        twice = [*left[:9], *events(dice, length - 9, 9)]
        parts.append(run(*twice, name=f"{tree}/{k}/0", task="q", parent=f"{tree}/{k}", branch=9, do=do))
        for whom in (["ann"], ["bob"], ["ann", "bob"]):
            rest = [e for e in events(dice, length) if e[0].split(" ")[1] not in whom and "result" not in e[0]]
            short = [on(what, **{k: v for k, v in e.items() if k not in ("after", "votes")}) for what, e in rest]
            do = {"what": "mask", "value": whom}
            parts.append(run(*short, name=f"{tree}-{whom}", task="q", parent=tree, branch=0, do=do))
    return _paid(runs(*parts), dice)


def solo(seed: int = 0) -> Trace:
    """Runs that have nobody to be compared with: of one turn and one task each."""
    dice = np.random.default_rng(seed)
    parts = [
        run(
            on(
                "decide lead planner",
                tokens=3,
                stage=0,
                valid=1,
                content_ref="c",
                decision="spawn",
                options=list(OPTIONS),
                chosen="go",
            ),
            task=f"q{i}",
        )
        for i in range(3)
    ]
    return _paid(runs(*parts), dice)


def acts(trace: Trace, unit: str) -> list[int]:
    """Of each unit the first event that is no result of a call; if all are, the first event."""
    if unit != "turn":
        return [int(row) for row in units.rows(trace, unit)]
    held: dict[int, list[int]] = {}
    for row, u in enumerate(units.place(trace, unit).tolist()):
        if u >= 0:
            held.setdefault(u, []).append(row)
    results = set(np.flatnonzero(trace.type_e == EVENT_TYPES.index("tool_result")).tolist())
    return [next((r for r in held[u] if r not in results), held[u][0]) for u in sorted(held)]


def _paid(trace: Trace, dice: np.random.Generator) -> Trace:
    """Every channel and label, the same on all copies of an event."""
    _, node = np.unique(nodes(trace, np.arange(trace.n_events)), return_inverse=True)
    many = int(node.max()) + 1
    channels = {name: dice.normal(size=many).round(3)[node] for name in CHANNELS}
    channels |= {name: (dice.random(many) < 0.5).astype(float)[node] for name in ("correct", "verified", "format")}
    channels["weight"] = dice.integers(1, 4, many).astype(float)[node]
    lists = [json.dumps(dice.random(len(OPTIONS)).round(3).tolist()) for _ in range(many)]
    odds = [json.dumps((p / p.sum()).tolist()) for p in dice.random((many, len(OPTIONS)))]
    size_e = np.bincount(trace.owner_k, minlength=trace.n_events)
    values = [json.dumps(dice.normal(size=9).round(3).tolist()) for _ in range(many)]
    labels = {
        "q": Text.of(lists[i] for i in node),
        "pi": Text.of(odds[i] for i in node),
        "values": Text.of(
            json.dumps(json.loads(values[i])[:k]) for i, k in zip(node, size_e.tolist(), strict=True)
        ),
        "anchor": Text.of(f'"s{i}"' for i in dice.integers(3, size=many)[node]),
        "player": Text.of(f'"p{i}"' for i in dice.integers(2, size=many)[node]),
        "value": Text.of(str(v) for v in dice.random(many).round(2)[node]),
        "graded": Text.of(str(v) for v in dice.random(many).round(2)[node]),
    }
    return replace(
        trace,
        reward_n={name: dice.random(len(trace)).round(3) for name in TEAM},
        reward_e=channels,
        extra_e={**trace.extra_e, **labels},
    )
