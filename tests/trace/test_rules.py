"""Every rule: what breaks it, what comes close and is legal, and that no broken trace gets by."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from making import documents, findings, made, trace_of

from podium.trace import log
from podium.trace.columns import Text, Trace, concat
from podium.trace.files import check_paths
from podium.trace.findings import BadTrace, Finding
from podium.trace.rules import LIMIT, RULES, check
from podium.trace.vocabulary import EVENT_TYPES

Document = dict[str, Any]
LEVEL = {rule.id: rule.level for rule in RULES}


def run(
    *events: dict[str, Any], edges: str = "", skew: float | None = None, of: Document | None = None, **costs: float
) -> Document:
    """A document of these events (e0, e1, ... at t = 0, 1, ...) and edges, written "0>1 1>2:temporal"; `of` are fields
    of the run."""
    rows = [
        {"id": f"e{i}", "t": i, "agent": "lead", "type": "message"} | copy.deepcopy(e) for i, e in enumerate(events)
    ]
    fields = (of or {}) | ({} if skew is None else {"clock_skew_s": skew})
    if fields:
        rows[0].setdefault("podium", {})["run"] = fields
    made_edges = []
    for word in edges.split():
        ends, _, kind = word.partition(":")
        src, dst = ends.split(">")
        made_edges.append({"src": f"e{src}", "dst": f"e{dst}", "type": kind or "causal"})
    return {
        "trace_id": "r",
        "task_id": "t",
        "events": rows,
        "edges": made_edges,
        "rewards": {},
        "costs": {"tokens": 0, "wall_clock_s": 0} | costs,
    }


def ev(type_: str = "message", agent: str = "lead", t: float | None = None, **fields: Any) -> dict[str, Any]:
    known = ("to", "from", "tool", "trusted", "id", "role")
    top = {k: v for k, v in fields.items() if k in known}
    ours = {k: v for k, v in fields.items() if k not in known}
    return (
        {"type": type_, "agent": agent} | ({} if t is None else {"t": t}) | top | ({"podium": ours} if ours else {})
    )


def spawn(to: str, t: float | None = None, by: str = "lead") -> dict[str, Any]:
    return ev("spawn", by, t, to=to)


def stop(agent: str = "lead", t: float | None = None, chosen: str = "stop") -> dict[str, Any]:
    return ev("orchestrator_decision", agent, t, decision="stop", chosen=chosen)


def broken(document: Document) -> list[tuple[str, int | None]]:
    return [(f.rule, f.row) for f in findings(document)]


def decide(chosen: str, options: list[str] | None = None, **more: Any) -> dict[str, Any]:
    return ev("orchestrator_decision", decision="delegate", chosen=chosen, options=options or ["a", "b"], **more)


def tally(*sources: str, t: float | None = None) -> dict[str, Any]:
    return ev("aggregate", t=t, votes=[{"value": "x", "source": source} for source in sources])


T, F = {"trusted": True}, {"trusted": False}

# Each of these breaks one rule and no other.
ALONE: dict[str, list[tuple[Document, int]]] = {
    "end-before-start": [
        (run(ev(t=3, end=2)), 0),
        (run(ev(), ev("tool_call", t=3, end=0), ev("tool_result", t=4)), 1),
        (run(ev(t=3, end=2), skew=0.5), 0),
        (run(ev(t=1, end=float(np.nextafter(1, 0)))), 0),
    ],
    "unknown-choice": [
        (run(decide("c")), 0),
        (run(decide("a"), decide("c"), decide("c", ["c"])), 1),
        (run(decide("A")), 0),
        (run(decide("a, b")), 0),
        (run(decide("", valid=True)), 0),
        (run(*(decide(f"{i}", [f"{i}", f"{i + 1}"]) for i in range(70)), decide("7", ["8"])), 70),
    ],
    "positive-logp": [
        (run(ev(logp=0.5)), 0),
        (run(ev(logp=-0.5), decide("a", logp=0.001)), 1),
        (run(ev(), ev(tokens=[1, 2], logps=[-1, 2])), 1),
        (run(ev(tokens=[1], logps=[-1]), ev(tokens=[1, 2], logps=[0.2, None])), 1),
    ],
    "other-tool": [
        (run(ev("tool_call", tool="a"), ev("tool_result", tool="b"), edges="0>1:return"), 1),
        (run(ev("tool_call", tool="a"), ev("tool_result", "b", tool="b"), edges="0>1:tool_dependency"), 1),
        (
            run(
                ev("tool_call", tool="a"),
                ev("tool_call", tool="b"),
                ev("tool_result", tool="b"),
                ev("tool_result", tool="a"),
                edges="0>2 1>3",
            ),
            2,
        ),
    ],
    "early-count": [
        (run(tally("e1"), ev()), 0),
        (run(ev(), tally("e0", "e2"), ev()), 1),
        (run(ev(t=2), tally("e0", t=1), skew=0.5), 0),
        (run(tally("e1", t=1), ev(t=1), edges="0>1"), 0),
        (run(tally("e1", t=0), ev(t=1), edges="0>1"), 0),
    ],
    "self-spawn": [
        (run(spawn("lead")), 0),
        (run(spawn("w"), spawn("w", by="w"), ev("return", "w")), 1),
    ],
    "own-parent": [(run(ev(), of={"parent": "r", "branch": 0}), 0)],
    "missing-branch": [(run(ev(), of={"parent": "q"}), 0)],
}

BROKEN: dict[str, list[tuple[Document, int | None]]] = {
    **{rule: [*cases] for rule, cases in ALONE.items()},
    "duplicate-id": [
        (run(ev(id="a"), ev(id="a")), 1),
        (run(ev(id="a", t=5), ev(id="b", t=1), ev(id="a", t=0)), 0),
    ],
    "reference": [
        (run(ev(), ev(), edges="0>7"), 0),
        (run(ev(), ev(), edges="7>1"), 1),
        (run(ev(), ev(), edges="7>8"), None),
        (run(ev(), ev(context="e9")), 1),
        (run(ev(), ev("aggregate", votes=[{"value": "x", "source": "e9"}])), 1),
        (run(ev(), ev(inferred=[{"src": "e0", "type": "causal"}])), 1),
        (run(ev(), ev(inferred=[{"src": "e0", "type": "causal"}]), edges="0>1:temporal"), 1),
        (run(ev(), ev(inferred=[{"src": "e0", "type": "causal"}] * 2), edges="0>1"), 1),
    ],
    "cycle": [
        (run(ev(), ev(), edges="0>0"), 0),
        (run(ev(t=1), ev(t=1), edges="0>1 1>0"), None),
        (run(ev(), ev(), ev(), edges="0>1 1>2 2>0:temporal"), None),
        (
            run(
                ev(t=1),
                ev(t=1),
                *(ev(t=100 - i) for i in range(40)),
                edges="0>1 1>0 " + " ".join(f"{i}>{i + 1}" for i in range(1, 41)),
            ),
            None,
        ),
    ],
    "backwards-time": [
        (run(ev(t=2), ev(t=1), edges="0>1"), 1),
        (run(ev(t=2), ev(t=1), edges="0>1:temporal"), 1),
        (run(ev(t=2), ev(t=1), edges="0>1", skew=0.5), 1),
        (run(ev(t=1), ev(t=np.nextafter(1, 0)), edges="0>1"), 1),
    ],
    "lifetime": [
        (run(ev("message", "w"), spawn("w")), 0),
        (run(spawn("w"), ev("despawn", to="w"), ev("message", "w")), 2),
        (run(spawn("w"), ev("despawn", "w"), ev("message", "w")), 2),
        (run(spawn("w", 1), ev("despawn", to="w", t=1), ev("message", "w", 2), edges="0>1"), 2),
        (run(spawn("w"), ev("despawn", to="w"), spawn("w"), ev("despawn", to="w"), ev("aggregate", "w")), 4),
        (run(spawn("w"), ev("message", "v"), spawn("v", by="w")), 1),
        (run(ev("message", "w", 0), spawn("w", 2), skew=1), 0),
        (run(ev("message", "w", truncated=True), spawn("w")), 0),
    ],
    "orphan-result": [
        (run(ev("tool_result", "search", tool="search")), 0),
        (run(ev("tool_result", tool="search"), ev("tool_call", tool="search")), 0),
        (run(ev("tool_call", tool="read"), ev("tool_result", tool="search")), 1),
        (run(ev("tool_call"), ev("tool_result"), ev("tool_result")), 2),
        (run(ev("tool_call", "a"), ev("tool_result", "b")), 1),
        (run(ev(), ev("tool_result"), edges="0>1:tool_dependency"), 1),
        (run(ev("tool_result", truncated=False)), 0),
    ],
    "orphan-return": [
        (run(spawn("w"), ev("return", "w"), ev("return", "w")), 2),
        (run(ev("return", "w", 0), spawn("w", 0)), 0),
        (run(spawn("w"), ev("return", "w"), ev("message", "w", to="w"), ev("return", "w")), 3),
        (run(spawn("w"), ev("return", "w"), ev("message", to="v"), ev("return", "w"), edges="2>3:temporal"), 3),
        (
            run(
                spawn("w"),
                ev("return", "w"),
                ev("tool_call", "w"),
                ev("tool_result", "w"),
                ev("return", "w"),
                edges="2>3",
            ),
            4,
        ),
    ],
    "acts-after-stop": [
        (run(stop(), ev()), 1),
        *(
            (run(stop(), spawn("w") if t == "spawn" else ev(t)), 1)
            for t in EVENT_TYPES
            if t not in ("aggregate", "return", "despawn", "tool_result")
        ),
        (run(stop(), ev("aggregate"), stop()), 2),
        (run(stop(t=1), ev(t=1), edges="0>1"), 1),
    ],
    "options": [
        (run(ev(options=["x", "y"], option_logps=[-1])), 0),
        (run(ev(option_logps=[-1])), 0),
        (run(ev(), ev(options=["x"], option_numbers=[0, 1])), 1),
        (run(ev(options=["x", "y"], option_items=[None])), 0),
    ],
    "token-owner": [
        (run(ev(tokens=[1, 2], logps=[-1])), 0),
        (run(ev(tokens=[1, 2], mask=[True, False, True])), 0),
        (run(ev(logps=[-1])), 0),
        (run(ev(mask=[True])), 0),
        (run(ev(tokens=[1, 2], start=0), ev(tokens=[3], context="e0", start=1)), 1),
        (run(ev(tokens=[1, 2], start=0), ev(tokens=[3], context="e0", start=3)), 1),
        (run(ev(tokens=[1, 2], start=1)), 0),
        (run(ev(context="e1"), ev(context="e0")), None),
        (run(ev(context="e0")), 0),
    ],
    "clock-skew": [
        (run(ev(t=2), ev(t=1), edges="0>1", skew=1), 1),
        (run(ev(t=2), ev(t=1.5), edges="0>1:temporal", skew=1), 1),
    ],
    "open-call": [
        (run(ev("tool_call")), 0),
        (run(ev("tool_call", tool="a"), ev("tool_call", tool="b"), ev("tool_result", tool="b")), 0),
        (run(ev("tool_call"), ev("tool_call"), ev("tool_result"), edges="1>2"), 0),
    ],
    "totals": [
        (run(ev(), messages=2), 0),
        (run(ev("aggregate"), tool_calls=1), 0),
        (run(ev("aggregate", cost=1.5), cost=2), 0),
    ],
    "trust-laundering": [
        (run(ev() | F, ev() | T, edges="0>1"), 1),
        (run(ev() | F, ev(), ev() | T, edges="0>1:message 1>2:return"), 2),
        (run(ev() | F, ev("human_intervention"), ev() | T, edges="0>1 1>2 0>2"), 2),
        (run(ev() | F, ev("human_intervention") | F, ev() | T, edges="0>1 1>2"), 2),
        (run(ev() | F, ev("safety_event"), ev() | T, edges="0>2:safety_flow"), 2),
        (run(ev("human_intervention") | F, ev() | T, edges="0>1"), 1),
    ],
}

LEGAL: dict[str, list[Document]] = {
    "end-before-start": [
        run(ev(t=3, end=3)),
        run(ev(t=3, end=2.5), skew=0.5),
        run(ev(t=0, end=0)),
    ],
    "unknown-choice": [
        run(decide("a"), decide("b")),
        run(ev(chosen="c")),
        run(ev(options=["a"])),
        run(ev(chosen="c", options=[])),  # too many to spell out
        run(decide("c", valid=False)),  # tried, and not done
        run(decide("ü \n", ["ü \n"])),
    ],
    "positive-logp": [
        run(ev(logp=0), ev(tokens=[1, 2], logps=[0, None])),
        run(ev(logp=1e-6), ev(tokens=[1], logps=[1e-6])),  # as 32-bit arithmetic rounds
    ],
    "other-tool": [
        run(ev("tool_call", tool="a"), ev("tool_result", tool="a"), edges="0>1"),
        run(ev("tool_call", tool="a"), ev("tool_result"), edges="0>1"),
        run(ev("tool_call"), ev("tool_result", tool="a"), edges="0>1"),
        run(
            ev("tool_call", tool="a"),
            ev("tool_call", tool="b"),
            ev("tool_result", tool="a"),
            ev("tool_result", tool="b"),
            edges="0>2 1>2:temporal 1>3 0>3:causal",
        ),
    ],
    "early-count": [
        run(ev(), tally("e0")),
        run(ev(t=1), tally("e0", t=1)),
        run(tally("e1", t=1), ev(t=1), edges="1>0"),
        run(ev(t=2), tally("e0", t=1), skew=1),
        run(ev(t=2), tally("e0", t=1), ev(t=0), skew=1),
    ],
    "self-spawn": [run(spawn("w"), spawn("v", by="w")), run(ev("spawn"))],
    "own-parent": [run(ev(), of={"parent": "r/0", "branch": 0})],
    "missing-branch": [run(ev(), of={"branch": 3}), run(ev(), of={"parent": "q", "branch": 0})],
    "reference": [
        run(ev(), ev(inferred=[{"src": "e0", "type": "causal"}] * 2), edges="0>1 0>1"),
        run(ev(), ev("aggregate", votes=[{"value": "x"}, {"value": "y", "source": "e0"}])),
    ],
    "cycle": [
        run(ev(t=1), ev(t=1), edges="1>0"),
        run(ev(t=1), ev(t=1), edges="1>0 1>0 1>0:temporal"),
    ],
    "backwards-time": [
        run(ev(t=1), ev(t=1), edges="0>1"),
        run(ev(t=2), ev(t=1), edges="1>0"),
        run(ev(t=2), ev(t=1)),
    ],
    "lifetime": [
        run(spawn("w", 1), ev("message", "w", 1), ev("despawn", to="w", t=2), ev("message", "w", 2)),
        run(spawn("w"), ev("tool_call", "w", tool="s"), ev("despawn", to="w"), ev("tool_result", "w", tool="s")),
        run(
            spawn("w"),
            ev("tool_call", "w", tool="s"),
            ev("despawn", to="w"),
            ev("tool_result", "s", tool="s"),
            edges="1>3",
        ),
        run(ev("message", "root"), ev("despawn", to="root"), ev("message", "root")),
        run(spawn("w"), ev("message", "w")),  # a life still open at the end
        run(spawn("w"), ev("despawn", to="w"), ev("message", to="w")),  # spoken to, it does not act
        run(spawn("w"), ev("despawn", to="w"), ev("message", "w"), spawn("w"), ev("message", "w")),
        run(spawn("w", 1), ev("despawn", to="w", t=2), spawn("w", 2), ev("message", "w", 5), edges="1>2"),
        run(ev("message", "w", 1), spawn("w", 2), skew=1),
        run(spawn("w", 0), ev("despawn", to="w", t=1), ev("message", "w", 2), skew=1),
        run(ev("spawn"), ev("message", "w")),  # it does not say whom
    ],
    "orphan-result": [
        run(ev("tool_result", tool="search", truncated=True)),
        run(ev("tool_call", tool="s"), ev("tool_result", "s", tool="s")),
        run(ev("tool_call", tool="s"), ev("tool_result", "s")),
        run(ev("tool_call", "w", tool="s"), ev("tool_result", "w")),
        run(ev("tool_call", "w"), ev("tool_result", "w", tool="s")),
        run(ev("tool_call", "w"), ev("tool_result", "x", tool="s"), edges="0>1:temporal"),
        run(ev("tool_call"), ev("tool_result"), ev("tool_result"), edges="0>1 0>2"),
        run(
            ev("tool_call", tool="s"),
            ev("tool_call", tool="s"),
            ev("tool_result", tool="s"),
            ev("tool_result", tool="s"),
            edges="1>2",
        ),
        run(ev("tool_result", t=5, tool="s"), ev("tool_call", t=1, tool="s")),
    ],
    "orphan-return": [
        run(ev("return", "root"), ev("return", "root")),  # never spawned
        run(spawn("w"), ev("return", "w")),
        run(spawn("w"), ev("return", "w"), ev("return", "w", truncated=True)),
        run(spawn("w"), ev("return", "w"), ev("message", to="w"), ev("return", "w")),
        run(
            spawn("w"), ev("return", "w"), ev("message"), ev("message", "w"), ev("return", "w"), edges="2>3:message"
        ),
        run(spawn("w"), ev("return", "w"), ev("human_intervention", "person", to="w"), ev("return", "w")),
        run(spawn("w"), ev("despawn", to="w"), spawn("w"), ev("return", "w")),
    ],
    "acts-after-stop": [
        run(stop(), ev("aggregate"), ev("return"), ev("despawn")),
        run(stop(chosen="go on"), ev()),
        run(ev("orchestrator_decision", decision="stop"), ev()),
        run(ev("orchestrator_decision", decision="spawn", chosen="stop"), ev()),
        run(stop("a"), ev("message", "b")),
        run(ev("tool_call", tool="s"), stop(), ev("tool_result", tool="s")),
        run(stop(t=5), ev(t=1)),
        run(stop("a"), ev("message", "b", to="a")),
    ],
    "options": [
        run(ev(options=["x", "y"], option_logps=[-1, None], option_items=[2, None])),
        run(ev(options=["x"], option_numbers=[7])),
        run(ev(options=[])),
    ],
    "token-owner": [
        run(
            ev(tokens=[1, 2], start=0), ev(tokens=[3], context="e0", start=2), ev(tokens=[4], context="e0", start=2)
        ),
        run(ev(tokens=[1, 2]), ev(tokens=[3], context="e0", start=40)),
        run(ev(tokens=[1], logps=[None], mask=[None])),
        run(ev(context="e1", t=1), ev(t=1)),
        run(ev(tokens=[1], start=0), ev(context="e0")),
    ],
    "clock-skew": [run(ev(t=1), ev(t=1), edges="0>1", skew=1)],
    "open-call": [
        run(ev("tool_call"), ev("tool_result")),
        run(ev("tool_call"), ev("tool_result", "x"), edges="0>1"),
    ],
    "totals": [
        run(ev(), messages=1, tool_calls=0),
        run(ev(), ev("aggregate", cost=1), cost=2),  # an event that should state its cost does not
        run(ev("tool_result", truncated=True), messages=3),
        run(ev("aggregate", cost=0.1), ev("aggregate", cost=0.2), cost=0.3),
        run(ev("human_intervention"), cost=3),  # nobody states a cost
    ],
    "trust-laundering": [
        run(ev() | F, ev() | T, edges="0>1:temporal"),
        run(ev() | F, ev("human_intervention"), ev() | T, edges="0>1 1>2"),
        run(ev() | F, ev("safety_event") | T, ev() | T, edges="0>1 1>2:safety_flow"),
        run(ev() | F, ev(), edges="0>1"),
        run(ev(), ev() | T, edges="0>1"),
        run(ev() | T, ev() | F, edges="0>1"),
        run(ev() | F, ev() | T),
    ],
}


@pytest.mark.parametrize(
    ("rule", "document", "row"), [(r, d, row) for r, cases in BROKEN.items() for d, row in cases]
)
def test_what_breaks_a_rule_is_found_where_it_is(rule: str, document: Document, row: int | None) -> None:
    found = [f for f in findings(document) if f.rule == rule]
    assert found, findings(document)
    assert {f.level for f in found} == {LEVEL[rule]}
    if row is not None:
        assert row in [f.row for f in found]


@pytest.mark.parametrize(("rule", "document"), [(r, d) for r, cases in LEGAL.items() for d in cases])
def test_what_comes_close_is_legal(rule: str, document: Document) -> None:
    assert rule not in [r for r, _ in broken(document)]
    assert not [f for f in findings(document) if f.level == "error"]


@pytest.mark.parametrize(
    ("rule", "document", "row"), [(r, d, row) for r, cases in ALONE.items() for d, row in cases]
)
def test_only_the_rule_that_is_broken_is_reported(rule: str, document: Document, row: int) -> None:
    reported = findings(document)
    assert {(f.rule, f.level) for f in reported} == {(rule, "error")}
    assert row in [f.row for f in reported]


@pytest.mark.parametrize(("rule", "document"), [(r, d) for r, cases in ALONE.items() for d, _ in cases])
def test_it_is_reported_of_a_log_too(rule: str, document: Document, tmp_path: Path) -> None:
    """`podium check` reads of a log only the columns that rules look at."""
    (tmp_path / "run.jsonl").write_bytes(log.write(trace_of(document)))
    assert {f.rule for f in check_paths(tmp_path / "run.jsonl")} == {rule}


def test_an_agent_that_spawned_itself_has_something_to_answer() -> None:
    assert {rule for rule, _ in broken(run(spawn("w", by="w"), ev("return", "w")))} == {"self-spawn"}


def test_runs_of_a_batch_are_checked_one_by_one() -> None:
    whole, own, lost = (
        trace_of(run(ev(), ev(), of=of)) for of in ({}, {"parent": "r", "branch": 1}, {"parent": "other"})
    )
    found = {(f.rule, f.row) for f in check(concat([whole, own, whole, lost]))}
    assert found == {("own-parent", 2), ("missing-branch", 6)}


def test_a_vote_without_times_is_cast_in_the_order_of_rows() -> None:
    columns: Document = {"type_e": [6, 3, 6], "agent_e": [0, 0, 0], "rollout_a": [0], "trace_id_n": Text.of(["r"])}
    trace = Trace.of(t_e=[np.nan] * 3, event_v=[0, 2], source_v=[1, 1], value_v=Text.of(["x", "x"]), **columns)
    assert [(f.rule, f.row) for f in check(trace)] == [("early-count", 0)]


def test_a_log_probability_says_which_token() -> None:
    (finding,) = findings(run(ev(tokens=[7]), ev(tokens=[1, 2, 3], logps=[-1, -2, 0.5])))
    assert "its token 2 is 0.5" in finding.message


def test_every_rule_has_cases() -> None:
    read_elsewhere = {
        "schema",
        "missing-line",
        "empty-run",
        "torn-line",
        "lost-cause",
        "log-fault",
        "log-unknown",
        "log-order",
    }  # tests/exchange, test_survey, test_log, test_recorder
    assert {r.id for r in RULES} == set(BROKEN) | read_elsewhere
    assert all(rule.sentence and rule.level in ("error", "warning") for rule in RULES)


@pytest.mark.parametrize(
    ("events", "tokens", "found"),
    [
        ([ev(tokens_in=1, tokens_out=2), ev(tokens_out=3)], 6, False),
        ([ev(tokens_in=1, tokens_out=2), ev(tokens_out=3)], 7, True),
        ([ev(tokens_in=1), ev()], 7, False),
        ([ev(tokens_in=1), ev("spawn", to="w")], 7, True),
        ([ev("spawn", to="w")], 7, False),
    ],
)
def test_totals_of_tokens(events: list[Any], tokens: int, found: bool) -> None:
    assert ("totals" in [f.rule for f in findings(run(*events, tokens=tokens))]) == found


def test_an_absent_total_is_not_zero() -> None:
    document = run(ev(tokens_in=5, absent=["costs.tokens"]), tokens=0)
    assert "totals" not in [f.rule for f in findings(document)]


def test_a_token_without_an_owner() -> None:
    trace = Trace.of(
        t_e=[0.0], type_e=[0], agent_e=[0], rollout_a=[0], trace_id_n=Text.of(["r"]), owner_k=[-1], token_k=[3]
    )
    assert ("token-owner", 0) in [(f.rule, f.row) for f in check(trace)]


def test_a_cycle_does_not_hide_other_faults() -> None:
    found = broken(run(ev(t=3), ev(t=2), ev("tool_result"), edges="0>1 1>0"))
    assert {r for r, _ in found} == {"cycle", "backwards-time", "orphan-result"}


def test_the_way_round_a_cycle_is_told() -> None:
    (found,) = [f for f in findings(run(ev(t=1), ev(t=1), ev(t=1), edges="0>1 1>2 2>0")) if f.rule == "cycle"]
    assert found.message.count("→") == 3


def test_a_finding_says_where_and_what() -> None:
    found = Finding("a.json", 3, "cycle", "error", "it turns")
    assert str(found) == "a.json: row 3: error: it turns [cycle]"
    assert str(Finding("a.json", None, "schema", "error", "no")) == "a.json: error: no [schema]"
    assert "... and 2 more" in str(BadTrace([found] * 7))
    assert BadTrace([found, Finding("a", 0, "totals", "warning", "")]).findings == [found]


def test_the_many_findings_of_one_rule_are_cut_short() -> None:
    count = LIMIT + 50
    document = run(*(ev("tool_result") for _ in range(count)))
    found = [f for f in findings(document) if f.rule == "orphan-result"]
    assert len(found) == LIMIT + 1
    assert "more than" in found[-1].message


def test_runs_of_a_batch_do_not_answer_for_each_other() -> None:
    call, result = trace_of(run(ev("tool_call", tool="s"))), trace_of(run(ev("tool_result", tool="s")))
    found = {(f.rule, f.row) for f in check(concat([call, result]))}
    assert {("open-call", 0), ("orphan-result", 1)} <= found


# valid documents break no rule; each of these breaks one


@given(documents(20))
def test_a_valid_document_has_no_errors(document: Document) -> None:
    assert [f for f in findings(document) if f.level == "error"] == []


@given(documents(20, plain=True))
def test_a_plain_document_has_no_findings_but_open_calls(document: Document) -> None:
    assert {f.rule for f in findings(document)} <= {"open-call"}


Break = Callable[[Document, random.Random], Any]


def pick(document: Document, dice: random.Random, *types: str) -> dict[str, Any]:
    """An event of these types; the example is given up if there is none."""
    some = [e for e in document["events"] if not types or e["type"] in types]
    assume(some)
    return dice.choice(some)


def fresh(document: Document, **fields: Any) -> dict[str, Any]:
    """One more event, after all others."""
    end = max(e["t"] for e in document["events"])
    event = {
        "id": "fresh" + "!" * len(document["events"]),
        "t": end + 1,
        "type": "message",
        "agent": "newcomer",
    } | fields
    document["events"].append(event)
    return event


def wrong_type(document: Document, dice: random.Random) -> None:
    event = pick(document, dice)
    event[dice.choice(["t", "type", "agent", "id", "role", "trusted", "podium"])] = dice.choice(
        [[], {"a": 1}, -1.5]
    )


def repeat_id(document: Document, dice: random.Random) -> None:
    document["events"].append(dict(pick(document, dice)))


def point_nowhere(document: Document, dice: random.Random) -> None:
    edge = {"src": pick(document, dice)["id"], "dst": pick(document, dice)["id"], "type": "causal"}
    edge[dice.choice(["src", "dst"])] = "nobody's id"
    document["edges"].insert(dice.randint(0, len(document["edges"])), edge)


def close_a_cycle(document: Document, dice: random.Random) -> None:
    if document["edges"] and dice.random() < 0.7:
        edge = dice.choice(document["edges"])
        document["edges"].append(edge | {"src": edge["dst"], "dst": edge["src"]})
    else:
        id_ = pick(document, dice)["id"]
        document["edges"].append({"src": id_, "dst": id_, "type": "temporal"})


def turn_back_time(document: Document, dice: random.Random, skew: float = 0) -> None:
    cause = pick(document, dice)
    effect = fresh(document, t=max(0, cause["t"] - 1))
    assume(effect["t"] < cause["t"])
    _skew(document, skew)
    document["edges"].append({"src": cause["id"], "dst": effect["id"], "type": dice.choice(["temporal", "causal"])})


def _skew(document: Document, skew: float) -> None:
    _run_fields(document, clock_skew_s=skew)


def _run_fields(document: Document, **fields: Any) -> None:
    extension = document["events"][0].setdefault("podium", {})
    extension["run"] = extension.get("run", {}) | fields


def act_too_early(document: Document, dice: random.Random) -> None:
    spawned = pick(document, dice, "spawn")
    assume(spawned["t"] > 1)
    _skew(document, 0)
    fresh(document, agent=spawned["to"], t=spawned["t"] - 1)


def act_too_late(document: Document, dice: random.Random) -> None:
    _skew(document, 0)
    worker = pick(document, dice, "spawn")["to"]
    fresh(document, type="despawn", to=worker, id="!gone")
    fresh(document, agent=worker)


def result_of_nothing(document: Document, dice: random.Random) -> None:
    fresh(document, type="tool_result", agent="no such tool", tool="no such tool")


def return_to_nothing(document: Document, dice: random.Random) -> None:
    fresh(document, type="spawn", to="worker!", id="!s")
    for n in range(2):
        fresh(document, type="return", agent="worker!", id=f"!r{n}")


def go_on_after_stop(document: Document, dice: random.Random) -> None:
    agent = pick(document, dice)["agent"]
    fresh(
        document,
        id="!stop",
        type="orchestrator_decision",
        agent=agent,
        podium={"decision": "stop", "chosen": "stop"},
    )
    fresh(document, agent=agent)


def lose_a_token(document: Document, dice: random.Random) -> None:
    generations = [e for e in document["events"] if "tokens" in e.get("podium", {})]
    assume(generations)
    parent = dice.choice(generations)
    end = parent["podium"]["start"] + len(parent["podium"]["tokens"])
    fresh(document, podium={"context": parent["id"], "start": end + dice.choice([-1, 1]), "tokens": [1]})


def end_too_early(document: Document, dice: random.Random) -> None:
    event = pick(document, dice)
    _skew(document, 0)
    assume(event["t"] > 0)
    event.setdefault("podium", {})["end"] = event["t"] / 2


def choose_what_is_not_there(document: Document, dice: random.Random) -> None:
    event = pick(document, dice)
    event["podium"] = event.get("podium", {}) | {"options": ["x", "y"], "chosen": "z", "valid": True}


def forget_an_option(document: Document, dice: random.Random) -> None:
    event = pick(document, dice)
    described = {"options": ["x", "y"], "chosen": "x", dice.choice(["option_logps", "option_items"]): [None]}
    event["podium"] = event.get("podium", {}) | described


def exceed_certainty(document: Document, dice: random.Random) -> None:
    event = pick(document, dice)
    event.setdefault("podium", {})["logp"] = 0.25


def answer_with_another_tool(document: Document, dice: random.Random) -> None:
    call = fresh(document, type="tool_call", tool="one", id="!call")
    result = fresh(document, type="tool_result", tool="other", id="!result")
    document["edges"].append({"src": call["id"], "dst": result["id"], "type": dice.choice(["return", "causal"])})


def count_too_early(document: Document, dice: random.Random) -> None:
    _skew(document, 0)
    fresh(document, type="aggregate", id="!count", podium={"votes": [{"value": "x", "source": "!vote"}]})
    fresh(document, id="!vote")


def spawn_oneself(document: Document, dice: random.Random) -> None:
    fresh(document, type="spawn", to="newcomer")


def descend_from_oneself(document: Document, dice: random.Random) -> None:
    _run_fields(document, parent=document["trace_id"], branch=0)
    first = document["events"][0]["podium"]  # a name that is absent is nobody's
    first["absent"] = [name for name in first.get("absent", []) if name != "trace_id"] or ["costs.tokens"]


def branch_nowhere(document: Document, dice: random.Random) -> None:
    _run_fields(document, parent="another")
    document["events"][0]["podium"]["run"].pop("branch", None)


def leave_a_call_open(document: Document, dice: random.Random) -> None:
    fresh(document, type="tool_call", tool="no such tool")


def miscount(document: Document, dice: random.Random) -> None:
    assume(not any(e.get("podium", {}).get("truncated") for e in document["events"]))
    name, kind = dice.choice([("messages", "message"), ("tool_calls", "tool_call")])
    document["costs"][name] = sum(e["type"] == kind for e in document["events"]) + 1


def launder(document: Document, dice: random.Random) -> None:
    source = pick(document, dice)
    source["trusted"] = False
    between = fresh(document, id="!between")
    washed = fresh(document, trusted=True)
    for a, b in ((source, between), (between, washed)):
        document["edges"].append({"src": a["id"], "dst": b["id"], "type": "message"})


def skew_clocks(document: Document, dice: random.Random) -> None:
    turn_back_time(document, dice, skew=1)


BREAKS: list[tuple[str, Break]] = [
    ("schema", wrong_type),
    ("duplicate-id", repeat_id),
    ("reference", point_nowhere),
    ("cycle", close_a_cycle),
    ("backwards-time", turn_back_time),
    ("lifetime", act_too_early),
    ("lifetime", act_too_late),
    ("orphan-result", result_of_nothing),
    ("orphan-return", return_to_nothing),
    ("acts-after-stop", go_on_after_stop),
    ("options", forget_an_option),
    ("token-owner", lose_a_token),
    ("end-before-start", end_too_early),
    ("unknown-choice", choose_what_is_not_there),
    ("positive-logp", exceed_certainty),
    ("other-tool", answer_with_another_tool),
    ("early-count", count_too_early),
    ("self-spawn", spawn_oneself),
    ("own-parent", descend_from_oneself),
    ("missing-branch", branch_nowhere),
    ("clock-skew", skew_clocks),
    ("open-call", leave_a_call_open),
    ("totals", miscount),
    ("trust-laundering", launder),
]


@pytest.mark.parametrize(("rule", "break_"), BREAKS, ids=[b.__name__ for _, b in BREAKS])
@settings(max_examples=50)
@given(documents(20), st.integers(0, 2**32), st.booleans())
def test_a_mutation_that_breaks_a_rule_is_found(
    rule: str, break_: Break, document: Document, seed: int, shuffle: bool
) -> None:
    dice = random.Random(seed)
    break_(document, dice)
    if shuffle:
        first, *rest = document["events"]
        document["events"] = [first, *dice.sample(rest, len(rest))]
    assert rule in {f.rule for f in findings(document)}


def test_every_rule_of_a_run_has_a_mutation() -> None:
    assert {rule for rule, _ in BREAKS} == {r.id for r in RULES} - {
        "missing-line",
        "empty-run",
        "torn-line",
        "lost-cause",
        "log-fault",
        "log-unknown",
        "log-order",
    }


def test_long_runs_are_checked_too() -> None:
    document = made(11, 2000, plain=True)
    assert {f.rule for f in findings(document)} <= {"open-call"}
    document["events"][1500]["trusted"], document["events"][10]["trusted"] = True, False
    document["edges"].append(
        {"src": document["events"][10]["id"], "dst": document["events"][1500]["id"], "type": "causal"}
    )
    assert "trust-laundering" in {f.rule for f in findings(document)}
