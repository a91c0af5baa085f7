"""Small runs for the tests of `podium.audit`, written by hand."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from podium.trace.columns import Names, Text, Trace
from podium.trace.vocabulary import EDGE_TYPES, EVENT_TYPES

WORDS = {
    "decide": "orchestrator_decision",
    "call": "tool_call",
    "result": "tool_result",
    "human": "human_intervention",
    "safety": "safety_event",
}
NUMBERS = {"trusted": -1, "valid": -1}
TEXTS = ("role", "tool", "content_ref")


def staged(*lines: str, name: str = "run", **columns: Any) -> Trace:
    """One run, an event a line: "type agent>to key=value ... < cause cause:edge_type ...".

    Keys are trusted, valid, role, tool and content_ref; any other is a label, in JSON. Event i happens at time i. A cause
    is the number of a line, joined by a causal edge unless told.
    """
    said = [_said(line) for line in lines]
    names = list(dict.fromkeys(n for one in said for n in (one["agent"], one["to"]) if n))
    place = {n: i for i, n in enumerate(names)} | {None: -1}
    edges = [(cause, row, kind) for row, one in enumerate(said) for cause, kind in one["after"]]
    labels = dict.fromkeys(k for one in said for k in one["fields"] if k not in (*NUMBERS, *TEXTS))
    given: dict[str, Any] = {
        "trace_id_n": Text.of([name]),
        "rollout_a": np.zeros(len(names), int),
        "name_a": Text.of(names),
        "rollout_e": np.zeros(len(said), int),
        "id_e": Names(Text.constant("e", len(said)), np.arange(len(said))),
        "t_e": np.arange(len(said), dtype=float),
        "type_e": np.array([EVENT_TYPES.index(one["type"]) for one in said], int),
        "agent_e": np.array([place[one["agent"]] for one in said], int),
        "to_e": np.array([place[one["to"]] for one in said], int),
        "src_x": np.array([e[0] for e in edges], int),
        "dst_x": np.array([e[1] for e in edges], int),
        "type_x": np.array([EDGE_TYPES.index(e[2]) for e in edges], int),
    }
    given |= {f"{k}_e": np.array([int(o["fields"].get(k, no)) for o in said], int) for k, no in NUMBERS.items()}
    given |= {f"{k}_e": Text.of(one["fields"].get(k) for one in said) for k in TEXTS}
    given["extra_e"] = {k: Text.of(one["fields"].get(k) for one in said) for k in labels}
    return Trace.of(**given | columns)


def _said(line: str) -> dict[str, Any]:
    what, _, causes = line.partition("<")
    kind, who, *pairs = what.split()
    agent, _, to = who.partition(">")
    after = [(int(c), k or "causal") for c, _, k in (cause.partition(":") for cause in causes.split())]
    fields = dict(pair.split("=", 1) for pair in pairs)
    return {"type": WORDS.get(kind, kind), "agent": agent, "to": to or None, "after": after, "fields": fields}


def granted(*tools: str) -> str:
    return "granted=" + json.dumps(list(tools), separators=(",", ":"))
