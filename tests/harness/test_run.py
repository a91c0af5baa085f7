"""A team at work: what agents see, do and may do, and what is on record of it."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import ValidationError

from podium.audit.detector import Second
from podium.audit.permissions import Permissions
from podium.harness import (
    Aggregate,
    BadTeam,
    Budget,
    Call,
    Delegate,
    Did,
    Fault,
    Ran,
    Refused,
    Result,
    Return,
    Role,
    See,
    Send,
    Spawn,
    Stop,
    Team,
    Wait,
    fingerprint,
    play,
    replay,
    run,
    tool,
)
from podium.harness.topologies import TEAMS
from podium.harness.types import Said
from podium.trace.columns import Trace
from podium.trace.do import Do
from podium.trace.files import read
from podium.trace.rules import check
from podium.trace.vocabulary import DECISIONS, EVENT_TYPES


def script(*steps: Any) -> Callable[[See], Any]:
    """An agent that does these things, one a step; a function is asked with what it sees."""

    async def agent(see: See) -> Any:
        step = steps[min(see.turn, len(steps) - 1)]
        return step(see) if callable(step) else step

    return agent


def events(trace: Trace, type: str, **extra: Any) -> list[int]:
    rows = [e for e in range(trace.n_events) if EVENT_TYPES[trace.type_e[e]] == type]
    return [e for e in rows if all(f'"{value}"' in (trace.extra_e[name][e] or "") for name, value in extra.items())]


def clean(ran: Ran) -> Trace:
    (one,) = read(ran.folder)
    assert one.findings == []
    assert one.trace is not None
    return one.trace


@tool(effect="pure")
def double(x: int) -> int:
    return 2 * x


@tool
def fails() -> None:
    raise RuntimeError("no such luck")


@pytest.mark.parametrize("name", TEAMS)
def test_every_topology_runs_out_of_the_box(name: str) -> None:
    team = TEAMS[name]()
    ran = run(team)
    trace = clean(ran)
    assert (ran.reward, ran.fault) == (1.0, None)
    assert trace.topology() == team.topology


def test_the_five_decisions_are_on_record() -> None:
    first = [Spawn(role="hand"), Spawn(role="hand"), Delegate(to="hand-1", task=1, logp=-0.5)]
    lead = script([*first, Send(to="hand-2", content="psst")], [Aggregate(how="first"), Stop()])
    hand = script(lambda see: Wait() if see.new[0].kind == "message" else Return(content=see.task))
    trace = clean(ran := run(Team("five", lead, {"hand": hand})))
    assert {DECISIONS[d] for d in trace.decision_e if d >= 0} == set(DECISIONS)
    told = next(e for e in range(trace.n_events) if trace.logp_e[e] == -0.5)
    assert (trace.chosen_e[told], ran.fault) == ("hand-1", None)


def test_what_an_agent_sees() -> None:
    seen: list[See] = []

    async def lead(see: See) -> Any:
        seen.append(see)
        return [Spawn(role="hand", task="t", context={"k": 1})] if see.turn == 0 else Stop(answer=see.returns)

    async def hand(see: See) -> Any:
        seen.append(see)
        return Call(tool="double", args={"x": 4}) if see.turn == 0 else Return(content=see.results)

    ran = run(Team("see", lead, {"hand": Role(hand, tools=("double",))}, [double, fails]), {"ask": 1})
    assert ran.answer == [[8]]
    first, child, after, last = seen
    assert (first.task, first.tools, first.roles, first.depth) == ({"ask": 1}, ("double", "fails"), ("hand",), 0)
    assert (child.name, child.parent, child.task, child.context, child.tools) == (
        "hand-1",
        "lead",
        "t",
        {"k": 1},
        ("double",),
    )
    assert [i.kind for i in after.new] == ["result"]
    assert after.history[0][1] == [Call(tool="double", args={"x": 4})]
    assert (last.new[0].source, last.children) == ("hand-1", ["hand-1"])
    assert len({s.seed for s in seen}) == 4


def test_content_is_handed_over_as_a_copy() -> None:
    own = {"list": [1]}

    async def lead(see: See) -> Any:
        return [Spawn(role="hand", task=own)] if see.turn == 0 else Stop(answer=see.returns[0])

    async def hand(see: See) -> Any:
        see.task["list"].append(2)
        return Return(content=see.task)

    assert run(Team("copy", lead, {"hand": hand})).answer == {"list": [1, 2]}
    assert own == {"list": [1]}


def test_a_message_waits_for_a_sibling_that_is_not_yet_there() -> None:
    async def lead(see: See) -> Any:
        if see.turn == 0:
            return Spawn(role="early", task="write to late")
        if see.turn == 1:
            return Spawn(role="late", name="late", task="read")
        return Stop(answer=see.returns[-1])

    early = script([Send(to="late", content="hello"), Return(content=None)])
    late = script(lambda see: Return(content=[i.content for i in see.items("message")]))
    ran = run(Team("post", lead, {"early": early, "late": late}))
    assert ran.answer in (["hello"], [])  # it may have begun with its task alone
    assert ran.fault is None


NONSENSE = [
    7,
    object(),
    [1],
    {"a": 1},
    Spawn(role=3),
    Call(tool="double", args=[1]),
    Return(content=object()),
    [[]],
]  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", NONSENSE, ids=range(len(NONSENSE)))
def test_nonsense_is_a_fault_and_not_the_end(answer: Any) -> None:
    lead = script(Spawn(role="mad", task=1), lambda see: Stop(answer=see.new[0].fault))
    ran = run(Team("mad", lead, {"mad": Role(script(answer), retries=1)}))
    trace = clean(ran)
    assert (ran.answer, ran.fault) == ("nonsense", None)
    assert len(events(trace, "orchestrator_decision", fault="nonsense")) == 2  # it was asked twice


FAULTS: dict[str, Callable[[], Any]] = {
    "exception": lambda: (_ for _ in ()).throw(ValueError("odd")),
    "mine": lambda: (_ for _ in ()).throw(Fault("mine", "of my own kind")),
    "crash": lambda: (_ for _ in ()).throw(SystemExit(2)),
    "cancelled": lambda: (_ for _ in ()).throw(asyncio.CancelledError()),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_of_one_agent_reaches_its_parent(kind: str) -> None:
    lead = script(
        [Spawn(role="bad", task=1), Spawn(role="good", task=1)],
        lambda see: Stop(answer=sorted((i.fault or "", i.source) for i in see.new)),
    )
    ran = run(Team("bad", lead, {"bad": script(lambda see: FAULTS[kind]()), "good": script("fine")}))
    assert ran.answer == [["", "good-1"], [kind, "bad-1"]]
    assert events(clean(ran), "return", fault=kind)


async def slow(see: See) -> Any:
    await asyncio.sleep(5.0)


async def deaf(see: See) -> Any:
    for _ in range(3):
        try:
            await asyncio.sleep(5.0)
        except asyncio.CancelledError:
            continue


def test_a_step_that_takes_too_long_is_cancelled() -> None:
    lead = script(Spawn(role="slow", task=1), lambda see: Stop(answer=see.new[0].fault))
    ran = run(Team("slow", lead, {"slow": Role(slow, seconds=0.05, retries=1, backoff=0.01)}))
    assert ran.answer == "timeout"
    assert len(events(clean(ran), "orchestrator_decision", fault="timeout")) == 2


def test_a_step_that_does_not_heed_its_cancellation_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["podium.harness.run"], "GRACE", 0.05)
    lead = script(Spawn(role="deaf", task=1), lambda see: Stop(answer=see.new[0].fault))
    ran = run(Team("deaf", lead, {"deaf": Role(deaf, seconds=0.05)}))
    assert ran.answer == "timeout"
    assert events(clean(ran), "orchestrator_decision", fault="timeout")


def test_stragglers_are_let_go() -> None:
    lead = script(
        [Spawn(role="slow", task=1), Spawn(role="fast", task=1)],
        lambda see: [Aggregate(how="first"), Stop()] if any(i.fault == "straggler" for i in see.new) else Wait(),
    )
    ran = run(
        Team("late", Role(lead, spawns=("slow", "fast"), patience=0.05), {"slow": slow, "fast": script("fast")})
    )
    trace = clean(ran)
    assert ran.answer == "fast"
    (gone,) = events(trace, "despawn", fault="straggler")
    assert trace.name_a[int(trace.to_e[gone])] == "slow-1"


def test_an_agent_that_waits_for_anything_sees_returns_as_they_come() -> None:
    async def later(see: See) -> Any:
        await asyncio.sleep(0.02)
        return "late"

    lead = Role(
        script([Spawn(role="fast", task=1), Spawn(role="later", task=1)], lambda see: Wait() if len(see.returns) < 2 else Stop(answer=[see.turn, see.returns])),
        spawns=("fast", "later"),
        wait="any",
    )  # fmt: skip
    assert run(Team("any", lead, {"fast": script("soon"), "later": later})).answer == [2, ["soon", "late"]]


def test_everyone_waiting_is_said_and_ends_the_run() -> None:
    ran = run(Team("stall", script(Spawn(role="idle"), Wait()), {"idle": script(Wait())}))
    assert ran.fault is not None
    assert ran.fault.kind == "stalled"
    assert events(clean(ran), "safety_event", refused="stalled")


@tool(seconds=0.05)
async def hangs() -> None:
    await asyncio.sleep(5.0)


@tool
def says_what_json_cannot() -> Any:
    return object()


@tool
def refuses() -> None:
    raise Refused("path", "that is not yours")


@tool(outside=True)
async def looks_outside() -> str:
    return "untrusted words"


@tool
def costs() -> Result:
    return Result("dear", cost=0.5, tokens_in=3.0, source="shop", trusted=False)


TOOLS = [double, fails, hangs, says_what_json_cannot, refuses, looks_outside, costs]


@pytest.mark.parametrize(
    ("name", "args", "fault"),
    [
        ("fails", {}, "exception"),
        ("hangs", {}, "timeout"),
        ("says_what_json_cannot", {}, "nonsense"),
        ("refuses", {}, "path"),
        ("double", {"y": 1}, "exception"),
        ("DOUBLE", {"x": 1}, "tool"),
        ("double ", {"x": 1}, "tool"),
    ],
)
def test_a_call_that_fails_is_told_to_the_agent(name: str, args: dict[str, Any], fault: str) -> None:
    lead = script(Call(tool=name, args=args), lambda see: Stop(answer=[see.new[0].fault, see.new[0].kind]))
    ran = run(Team("calls", lead, {}, TOOLS))
    trace = clean(ran)
    assert ran.answer == [fault, "result"]
    assert len(events(trace, "safety_event")) == (fault in ("path", "tool"))


def test_several_calls_at_once() -> None:
    lead = script(
        [Call(tool="double", args={"x": i}) for i in range(5)], lambda see: Stop(answer=sorted(see.results))
    )
    assert run(Team("many", lead, {}, [double])).answer == [0, 2, 4, 6, 8]


def test_where_a_result_came_from_is_a_fact() -> None:
    lead = script(
        [Call(tool="looks_outside"), Call(tool="costs")], lambda see: Stop(answer=sorted(i.source for i in see.new))
    )
    ran = run(Team("from", lead, {}, TOOLS))
    trace = clean(ran)
    assert ran.answer == ["shop", "tool:looks_outside"]
    assert [int(t) for t in trace.trusted_e[events(trace, "tool_result")]] == [0, 0]
    assert trace.cost_n["cost"][0] == 0.5


def test_a_child_never_has_more_than_its_parent() -> None:
    middle = script(
        [Spawn(role="leaf", task=1, tools=["fails"]), Spawn(role="leaf", task=1)],
        lambda see: Return(content=[[i.fault for i in see.new if i.fault], see.returns]),
    )
    leaf = script(lambda see: Return(content=list(see.tools)))
    roles = {
        "middle": Role(middle, tools=("double",), spawns=("leaf",)),
        "leaf": Role(leaf, tools=("double", "fails")),
    }
    lead = script(Spawn(role="middle", task=1), lambda see: Stop(answer=see.returns[0]))
    ran = run(Team("less", Role(lead, spawns=("middle",)), roles, [double, fails]))
    assert ran.answer == [["tool"], [["double"]]]
    assert events(clean(ran), "safety_event", refused="tool")


def test_names_that_no_agent_may_have() -> None:
    names = ["lead", "harness", "person", "a/b", "", "double"]
    lead = script(
        [Spawn(role="leaf", name=n, task=1) for n in names], lambda see: Stop(answer=[i.fault for i in see.new])
    )
    ran = run(Team("names", lead, {"leaf": script("x")}, [double]))
    assert ran.answer == ["name"] * len(names)


def test_a_guard_refuses_actions_and_marks_items() -> None:
    def guard(agent: str, thing: Any) -> Refused | None:
        text = str(getattr(thing, "content", ""))
        return Refused("words", "such words") if "forbidden" in text else None

    lead = script(Spawn(role="leaf", task=1), lambda see: Stop(answer=[see.new[0].fault, see.new[0].content]))
    leaf = script(Send(to="lead", content="forbidden"), lambda see: Return(content=see.new[0].fault))
    ran = run(Team("guarded", lead, {"leaf": leaf}, guards=(guard,)))
    assert ran.answer == [None, "words"]
    assert events(clean(ran), "safety_event", refused="words")


BUDGETS = [
    (Budget(steps=3), "steps"),
    (Budget(tokens=25), "tokens"),
    (Budget(cost=0.25), "cost"),
    (Budget(critical_steps=3), "critical_steps"),
    (Budget(seconds=0.05), "seconds"),
]


@pytest.mark.parametrize(("budget", "name"), BUDGETS, ids=[n for _, n in BUDGETS])
def test_a_budget_ends_the_run(budget: Budget, name: str) -> None:
    async def lead(see: See) -> Any:
        await asyncio.sleep(0.005)
        return Did(Call(tool="double", args={"x": 1}), tokens_out=10, cost=0.1)

    ran = run(Team("spend", lead, {}, [double], budget=budget))
    trace = clean(ran)
    assert ran.fault is not None
    assert (ran.fault.kind, len(events(trace, "safety_event", hit=name))) == ("budget", 1)
    if name != "seconds":
        assert ran.metrics["steps"] == 3


def test_limits_on_agents_and_depth() -> None:
    deep = script(Spawn(role="deep", task=1), lambda see: Return(content=see.new[0].fault or see.returns[0]))
    team = Team(
        "deep",
        Role(deep, spawns=("deep",)),
        {"deep": Role(deep, spawns=("deep",))},
        budget=Budget(depth=3),
    )
    assert run(team).answer == "budget"
    lead = script(
        [Spawn(role="leaf", task=1) for _ in range(5)], lambda see: Stop(answer=[i.fault for i in see.new])
    )
    ran = run(Team("few", lead, {"leaf": script("x")}, budget=Budget(agents=2)))
    assert sorted(ran.answer, key=str) == [None, None, "budget", "budget", "budget"]


def test_a_budget_of_one_agent() -> None:
    lead = script(Spawn(role="leaf", task=1), lambda see: Stop(answer=see.new[0].fault))
    leaf = Role(script(Call(tool="double", args={"x": 1})), budget=Budget(steps=4))
    ran = run(Team("own", lead, {"leaf": leaf}, [double]))
    assert (ran.answer, ran.metrics["steps"]) == ("budget", 6)


def test_slots_are_never_exceeded() -> None:
    running = peak = 0

    async def leaf(see: See) -> Any:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.002)
        running -= 1
        return "x"

    lead = script([Spawn(role="leaf", task=i) for i in range(12)], lambda see: Stop(answer=len(see.returns)))
    ran = run(Team("slots", lead, {"leaf": leaf}, slots=3))
    clean(ran)
    assert (ran.answer, peak) == (12, 3)


def test_a_team_that_never_ends_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["podium.harness.core"], "MOST_STEPS", 20)
    busy = script(Call(tool="double", args={"x": 1}))
    lead = script([Spawn(role="busy", task=1), Spawn(role="busy", task=1)], Stop())
    team = Team("endless", lead, {"busy": busy}, [double])
    ran = run(team, folder=tmp_path / "a")
    trace = clean(ran)
    assert ran.fault is not None
    assert (ran.fault.kind, ran.fault.why) == ("budget", "steps budget of 20 is used up")
    assert (ran.metrics["steps"], len(events(trace, "safety_event", hit="steps"))) == (20, 1)
    (hit,) = events(trace, "safety_event")
    assert min(trace.dst_x[trace.type_x == 0]) == hit  # nobody is coupled by it before
    replay(team, trace, folder=tmp_path / "b")
    assert (tmp_path / "a/w0.jsonl").read_bytes() == (tmp_path / "b/w0.jsonl").read_bytes()
    without = replay(team, trace, do=Do(0, "choose", "none"))
    assert without.metric_n["hits"][0] == 1  # the other goes on alone until the limit


def test_a_temporary_record_goes_with_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    team = Team("brief", script("x"))
    ran = run(team, folders=True)
    trace = ran.trace
    assert ran.folder.is_relative_to(tmp_path)
    replay(team, trace)
    assert list(tmp_path.iterdir()) == [ran.folder.parent]
    del ran
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValidationError, match="nonsense"):
        run(team, nonsense=1)
    assert list(tmp_path.iterdir()) == []
    kept = run(team, folder=tmp_path / "kept").folder
    gc.collect()
    assert (kept / "w0.jsonl").exists()


def test_a_spawn_says_which_tools_it_granted() -> None:
    lead = script(
        [Spawn(role="hand", task=1), Spawn(role="hand", task=1, tools=["fails"]), Spawn(role="bare", task=1)],
        Stop(),
    )
    bare = Role(script("x"), tools=())
    trace = run(Team("grants", lead, {"hand": script("x"), "bare": bare}, [double, fails])).trace
    granted = [json.loads(trace.extra_e["granted"][e] or "") for e in events(trace, "spawn")]
    assert granted == [["double", "fails"], ["fails"], []]
    may = Permissions(trace, Second())
    assert sorted(trace.name_a[a] or "" for a in np.flatnonzero(may.known_a)) == ["bare-1", "hand-1", "hand-2"]


def test_cancelling_the_run_leaves_nothing_behind(tmp_path: Path) -> None:
    async def main() -> int:
        lead = script([Spawn(role="slow", task=i) for i in range(5)], Stop())
        task = asyncio.create_task(play(Team("cut", lead, {"slow": slow}), folder=tmp_path / "run"))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait({task})
        return len(asyncio.all_tasks()) - 1

    assert asyncio.run(main()) == 0
    (one,) = read(tmp_path / "run")
    assert one.findings == []
    assert one.trace is not None
    assert one.trace.metric_n["interrupted"][0] == 1


def test_working_folders_lie_in_each_other(tmp_path: Path) -> None:
    async def middle(see: See) -> Any:
        return Spawn(role="leaf", task=1) if see.turn == 0 else Return(content=[str(see.folder), *see.returns])

    leaf = script(lambda see: Return(content=str(see.folder)))
    lead = script(Spawn(role="middle", task=1), lambda see: Stop(answer=[str(see.folder), *see.returns[0]]))
    roles = {"middle": Role(middle, spawns=("leaf",)), "leaf": leaf}
    ran = run(Team("desks", Role(lead, spawns=("middle",)), roles), folder=tmp_path / "run", folders=True)
    own, below, lowest = ran.answer
    assert below == f"{own}/middle-1"
    assert lowest == f"{below}/leaf-1"
    assert Path(lowest).is_dir()


def test_a_folder_holds_one_run(tmp_path: Path) -> None:
    team = Team("one", script("x"))
    run(team, folder=tmp_path / "run")
    with pytest.raises(BadTeam, match="holds a run already"):
        run(team, folder=tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tools": [double, double]}, "same name"),
        ({"topology": "ring"}, "no topology 'ring'"),
        ({"slots": 0}, "slots must be 1 or more"),
        ({"roles": {"a": Role(script("x"), tools=("nope",))}}, "tools the team lacks: nope"),
        ({"roles": {"a": Role(script("x"), spawns=("nope",))}}, "roles the team lacks: nope"),
        ({"roles": {"a": 7}}, "expected an async function"),
    ],
)
def test_a_team_that_cannot_work_says_so(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(BadTeam, match=said):
        Team(**({"name": "bad", "lead": script("x")} | changes))


def test_the_fingerprint_is_of_tools_prompts_and_limits() -> None:
    def team(agent: Any = None, **changes: Any) -> Team:
        roles = {"a": Role(agent or script("x"), prompt=changes.pop("prompt", ""))}
        return Team("f", script("x"), roles, [double], **changes)

    same = fingerprint(team())
    assert fingerprint(team(agent=script("y"))) == same  # the policy is no part of it
    others = {fingerprint(t) for t in (team(prompt="be good"), team(slots=2), team(budget=Budget(steps=9)))}
    assert len(others | {same}) == 4


def test_the_example_runs_in_forty_lines() -> None:
    text = (Path(__file__).parents[2] / "examples/research_team.py").read_text()
    scope: dict[str, Any] = {"__name__": "example"}
    exec(text, scope)
    assert run(scope["team"]).reward == 1.0
    assert len(text.splitlines()) <= 40


def test_an_agent_that_never_waits_does_not_keep_the_others_from_their_turn() -> None:
    busy = script(Call(tool="double", args={"x": 1}))  # for ever, and never awaits anything
    lead = script([Spawn(role="busy", task=1), Spawn(role="fast", task=1)], lambda see: Stop(answer=see.returns))
    team = Team(
        "busy", Role(lead, spawns=("busy", "fast"), wait="any"), {"busy": busy, "fast": script("done")}, [double]
    )
    assert run(team).answer == ["done"]
    ran = run(Team("busier", Role(busy), {}, [double], budget=Budget(seconds=0.1)))
    assert ran.fault is not None
    assert ran.fault.kind == "budget"


@pytest.mark.parametrize("name", ["research", "swarm", "debate"])
def test_by_a_clock_that_counts_the_same_run_is_the_same_bytes(name: str, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        ticks = count()
        run(TEAMS[name](), folder=tmp_path / folder, trace_id="same", clock=lambda n=ticks: next(n) * 1e-3)
    assert (tmp_path / "a/w0.jsonl").read_bytes() == (tmp_path / "b/w0.jsonl").read_bytes()


def test_what_an_agent_below_chooses_is_one_of_its_options() -> None:
    """Below the lead, children have their path for a name and can be named without it."""
    hand = Role(script(Return(content=1)))
    first = [Spawn(role="hand"), Delegate(to="hand-1", task=1)]
    boss = Role(script(first, Send(to="hand-1", content="thanks"), Return(content=2)), spawns=("hand",))
    team = Team(
        "three", Role(script(Spawn(role="boss", task=0), Stop()), spawns=("boss",)), {"boss": boss, "hand": hand}
    )
    trace = run(team).trace
    chosen = {trace.chosen_e[row]: options for row in range(trace.n_events) if (options := trace.options(row))}
    assert "boss-1/hand-1" in chosen
    assert all(choice in options for choice, options in chosen.items())
    assert check(trace) == []


def test_a_log_probability_above_0_is_nonsense() -> None:
    said = Said([1, 2], [None, 0.5], [False, True])
    for act in (Stop(answer=1, logp=0.5), Did(Stop(answer=1), said=said)):
        ran = run(Team("one", Role(script(act), retries=0)))
        assert ran.fault is not None
        assert ran.fault.why == "a log-probability must be at most 0, got 0.5"
        assert check(ran.trace) == []
