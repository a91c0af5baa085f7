"""Recorded runs again: the same bytes; something else at a row, and only what follows from it is other."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bench.harness_replay import branched, replayed
from podium.envs.draws import seeds
from podium.envs.world import make, play
from podium.harness import (
    Aggregate,
    BadReplay,
    Budget,
    Call,
    Did,
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
    branch,
    replay,
    run,
    tool,
)
from podium.harness.forest import shared, unexplained
from podium.harness.topologies import TEAMS, research
from podium.harness.types import Running
from podium.trace.columns import Trace
from podium.trace.do import Do
from podium.trace.files import load, read
from podium.trace.rules import check
from podium.trace.vocabulary import DECISIONS, EVENT_TYPES

CALLED: list[str] = []


@tool(effect="once")
def pay(whom: str) -> str:
    CALLED.append(whom)
    return f"paid {whom}"


@tool(effect="replayable")
def look(at: str) -> str:
    CALLED.append(at)
    return f"seen {at}"


def payers() -> Team:
    async def lead(see: See) -> Any:
        if see.turn == 0:
            return [Spawn(role="payer", task=name) for name in ("ann", "bob")]
        return [Aggregate(how="every"), Stop()]

    async def payer(see: See) -> Any:
        if see.turn == 0:
            return Call(tool="look", args={"at": see.task})
        if see.turn == 1:
            return Call(tool="pay", args={"whom": see.results[0] if see.results else "nobody"})
        return Return(content=see.new[0].fault or see.results[0])

    return Team("payers", lead, {"payer": payer}, [pay, look])


def rows(trace: Trace, type: str, agent: str | None = None) -> list[int]:
    found = [e for e in range(trace.n_events) if EVENT_TYPES[trace.type_e[e]] == type]
    return [e for e in found if agent is None or trace.name_a[int(trace.agent_e[e])] == agent]


def answer(trace: Trace) -> Any:
    (last,) = [e for e in rows(trace, "return", "lead") if trace.to_e[e] < 0]
    return json.loads(trace.extra_e["content"][last] or "null")


@pytest.fixture
def paid() -> Trace:
    CALLED.clear()
    trace = run(payers()).trace
    assert sorted(CALLED) == ["ann", "bob", "seen ann", "seen bob"]
    CALLED.clear()
    return trace


@pytest.mark.parametrize("name", TEAMS)
def test_every_topology_replays_to_the_same_bytes(name: str, tmp_path: Path) -> None:
    ran = run(TEAMS[name](), folder=tmp_path / "a", seed=3)
    replay(TEAMS[name](), ran.trace, folder=tmp_path / "b")
    assert (tmp_path / "a/w0.jsonl").read_bytes() == (tmp_path / "b/w0.jsonl").read_bytes()


def test_a_replay_calls_nobody(paid: Trace) -> None:
    replay(payers(), paid)
    assert CALLED == []


@pytest.mark.parametrize("i", range(24))
def test_with_faults_injected_it_replays_and_branches(i: int, tmp_path: Path) -> None:
    same, trace, team = replayed(tmp_path, i)
    assert same
    assert trace is not None
    told = branched(tmp_path, team, trace, Random(i))
    assert told["branches"] in (0, 1)
    assert {told[what] for what in ("same", "clean", "explained")} == {told["branches"]}


def test_what_must_not_be_repeated_is_never_called_by_a_replay(paid: Trace) -> None:
    looks = [e for e in rows(paid, "tool_result") if paid.tool_e[e] == "look"]
    other = replay(payers(), paid, do=Do(looks[0], "replace", "seen eve"))
    assert CALLED == []
    assert sorted(answer(other)) == ["once", "paid seen bob"]  # nobody was paid a second time
    again = replay(payers(), paid, at=rows(paid, "tool_call", "payer-1")[1])
    assert CALLED == []
    assert sorted(answer(again)) == ["paid seen ann", "paid seen bob"]  # the same call has its answer on record


def test_only_what_is_downstream_runs_live(paid: Trace) -> None:
    first = rows(paid, "tool_call", "payer-1")[0]
    other = replay(payers(), paid, at=first)
    assert CALLED == ["ann"]  # bob's look came from the record
    row_e = shared(paid, other)
    assert all(row_e[e] >= 0 for e in rows(other, "tool_call", "payer-2"))
    assert unexplained(paid, other, first) == []


def test_another_option(tmp_path: Path) -> None:
    team = research()
    trace = run(team).trace
    spawn, aggregate, stop = (rows(trace, "orchestrator_decision")[i] for i in (1, -2, -1))
    forest = branch(
        team,
        trace,
        [
            Do(spawn, "choose", "none"),
            Do(aggregate, "choose", "join"),
            Do(spawn, "choose", "stop"),
            Do(stop, "choose", "go on"),
        ],
    )
    without, joined, early, on = forest
    assert answer(without) == ["Paris", "Nairobi", "Tokyo", "Havana"]
    assert answer(joined) == "Paris\nLima\nNairobi\nTokyo\nHavana"
    assert answer(early) is None
    assert (
        len(rows(on, "orchestrator_decision")) == len(rows(trace, "orchestrator_decision")) + 2
    )  # it did so again
    assert forest.branch_n.tolist() == [spawn, aggregate, spawn, stop]
    assert set(forest.parent_n.strings()) == {trace.trace_id_n[0]}
    assert [unexplained(trace, one, int(one.branch_n[0])) for one in forest] == [[]] * 4
    assert unexplained(trace, without, stop) != []  # had it been said to branch off later, the check would bite


def talkers() -> Team:
    async def lead(see: See) -> Any:
        if see.turn == 0:
            return [Spawn(role="hears", task=1), Spawn(role="says", task=1)]
        return Stop(answer=[i.fault or i.content for i in see.items("return")])

    async def says(see: See) -> Any:
        return [Send(to="hears-1", content="north"), Return(content="said")]

    async def hears(see: See) -> Any:
        heard = see.items("message")
        return Return(content=heard[0].content) if heard else Wait()

    roles = {"says": says, "hears": hears}
    return Team("talk", Role(lead, spawns=("hears", "says"), patience=1.0), roles)


def test_messages_changed_removed_delayed_and_an_agent_masked() -> None:
    team = talkers()
    trace = run(team).trace
    (message,) = rows(trace, "message")
    assert sorted(answer(trace)) == ["north", "said"]
    changed, removed, late, masked = branch(
        team,
        trace,
        [Do(message, "replace", "south"), Do(message, "remove"), Do(message, "delay", 0.5), Do(message, "mask")],
    )
    assert sorted(answer(changed)) == ["said", "south"]
    assert sorted(answer(removed)) == ["said", "straggler"]
    assert sorted(answer(late)) == ["north", "said"]
    assert late.cost_n["wall_clock_s"][0] > 0.5 > trace.cost_n["wall_clock_s"][0]
    assert sorted(answer(masked)) == ["masked", "straggler"]


def test_what_was_returned_can_be_otherwise() -> None:
    team = talkers()
    trace = run(team).trace
    told = rows(trace, "return", "says-1")[0]
    changed, removed = branch(team, trace, [Do(told, "replace", "lied"), Do(told, "remove")])
    assert sorted(answer(changed)) == ["lied", "north"]
    assert sorted(answer(removed)) == ["north", "removed"]


def gamblers() -> Team:
    async def lead(see: See) -> Any:
        if see.turn == 0:
            return [Spawn(role="dice", task=i) for i in range(3)]
        return Stop(answer=[c for _, c in sorted((i.source, i.content) for i in see.new)])

    async def dice(see: See) -> Any:
        return Return(content=see.random.randrange(10**9))

    return Team("dice", lead, {"dice": dice})


def test_randomness_is_on_record_shared_or_drawn_anew(tmp_path: Path) -> None:
    team = gamblers()
    trace = run(team, seed=5).trace
    row = rows(trace, "return", "dice-2")[0]
    again = replay(team, trace, at=row)
    assert answer(again) == answer(trace)  # the same dice
    first, second, same = (
        replay(team, trace, at=row, seed=s, folder=tmp_path / str(i)) for i, s in enumerate((1, 2, 1))
    )
    for other in (first, second):
        assert [a == b for a, b in zip(answer(other), answer(trace), strict=True)] == [True, False, True]
    assert answer(first) != answer(second)
    assert (tmp_path / "0/w0.jsonl").read_bytes() == (tmp_path / "2/w0.jsonl").read_bytes()
    assert answer(same) == answer(first)
    assert json.loads(first.seed_n[0] or "") == [5, 1]


def test_one_seed_a_do() -> None:
    team = gamblers()
    trace = run(team, seed=5).trace
    row = rows(trace, "orchestrator_decision")[1]
    forest = branch(team, trace, [Do(row, "choose", "dice")] * 3, seeds=[1, 2, 1])
    answers = [answer(one) for one in forest]
    assert answers[0] == answers[2] != answers[1]
    with pytest.raises(BadReplay, match="one seed a Do"):
        branch(team, trace, [Do(row, "choose", "dice")], seeds=[])


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), GeneratorExit(), SystemExit(3), BaseException("low")], ids=repr
)
def test_what_ends_programs_ends_one_agent_in_a_branch_too(error: BaseException) -> None:
    angry = False

    async def lead(see: See) -> Any:
        if see.turn == 0:
            return [Spawn(role="hand", task=i) for i in range(2)]
        return Stop(answer=sorted(i.fault or i.content for i in see.items("return")))

    async def hand(see: See) -> Any:
        if angry:
            raise error
        return "done"

    team = Team("angry", lead, {"hand": hand})
    trace = run(team).trace
    angry = True
    assert answer(replay(team, trace, at=rows(trace, "return", "hand-1")[0])) == ["crash", "done"]


def test_a_branch_of_a_batch() -> None:
    from podium.trace import concat

    team = gamblers()
    both = concat([run(team, seed=s).trace for s in (1, 2)])
    second = int(both.first_of("e")[1])
    (one,) = branch(team, both, [Do(second, "choose", "none")])
    assert len(answer(one)) == 2
    assert one.branch_n.tolist() == [0]


def test_a_branch_says_all_of_where_it_comes_from(tmp_path: Path) -> None:
    team = talkers()
    trace = run(team, trace_id="one", task_id="talk", group="g", batch=3, folder=tmp_path / "a").trace
    (message,) = rows(trace, "message")
    spawns = rows(trace, "orchestrator_decision", "lead")[:2]
    both = [Do(spawns[1], "choose", "none"), Do(spawns[0], "choose", "none")]
    for made, row in (
        (replay(team, trace, at=message), message - 1),  # a step that is done anew is another from its first row on
        (replay(team, trace, do=Do(message, "remove")), message),
        (replay(team, trace, do=both, folder=tmp_path / "b"), spawns[0]),
    ):
        assert (made.parent_n[0], made.branch_n[0], made.trace_id_n[0]) == ("one", row, "one/0")
        assert (made.group_n[0], made.batch_n[0], made.task_id_n[0]) == ("g", 3, "talk")
    done = json.loads(made.do_n[0] or "")
    assert (done["what"], [one["row"] for one in done["value"]]) == ("several", spawns[::-1])
    replay(team, made, folder=tmp_path / "c")
    assert (tmp_path / "b/w0.jsonl").read_bytes() == (tmp_path / "c/w0.jsonl").read_bytes()
    replay(team, trace, folder=tmp_path / "d")
    assert (tmp_path / "a/w0.jsonl").read_bytes() == (tmp_path / "d/w0.jsonl").read_bytes()
    with pytest.raises(BadReplay, match="one intervention a place"):
        replay(team, trace, do=[both[0], both[0]])


def test_what_was_chosen_is_on_record(tmp_path: Path) -> None:
    team = talkers()
    trace = run(team).trace
    spawn, stop = (rows(trace, "orchestrator_decision", "lead")[i] for i in (0, -1))
    told = rows(trace, "orchestrator_decision", "says-1")[0]
    for row, value, kind, options in (
        (spawn, "none", "spawn", ["hears", "says", "none"]),
        (told, "none", "communicate", ["lead", "none"]),
        (stop, "go on", "stop", ["stop", "go on"]),
    ):
        made = replay(team, trace, do=Do(row, "choose", value), folder=tmp_path / kind)
        (there,) = [e for e in range(made.n_events) if made.chosen_e[e] == value]
        assert (DECISIONS[made.decision_e[there]], made.options(int(there))) == (kind, options)
        replay(team, made, folder=tmp_path / f"{kind} again")
        first, again = (tmp_path / name / "w0.jsonl" for name in (kind, f"{kind} again"))
        assert first.read_bytes() == again.read_bytes()


def test_a_mask_says_whom_and_heeds_it() -> None:
    team = talkers()
    trace = run(team).trace
    (message,) = rows(trace, "message")

    def done(made: Trace) -> Any:
        return json.loads(made.do_n[0] or "")["value"]

    def acts(made: Trace, name: str) -> bool:
        return bool((made.agent_e == made.name_a.strings().index(name)).any())

    who_acts, other, both = (
        replay(team, trace, do=Do(row, "mask", value))
        for row, value in ((message, None), (0, "says-1"), (message, ("hears-1", "says-1")))
    )
    assert (done(who_acts), sorted(answer(who_acts))) == ("says-1", ["masked", "straggler"])
    assert (done(other), sorted(answer(other))) == ("says-1", ["masked", "straggler"])
    assert (acts(who_acts, "says-1"), acts(other, "says-1")) == (True, False)  # from here on
    assert (done(both), answer(both)) == (["hears-1", "says-1"], ["masked", "masked"])
    late = replay(team, trace, do=Do(rows(trace, "return", "says-1")[0], "mask", "hears-1"))
    assert sorted(answer(late)) == ["masked", "said"]
    assert check(other) == check(both) == check(late) == []
    assert answer(replay(team, trace, do=Do(message, "mask", "lead"))) is None
    for value in ("nobody", ("says-1", "nobody"), 7.0):
        with pytest.raises(BadReplay, match="to mask; there are lead, hears-1, says-1"):
            replay(team, trace, do=Do(message, "mask", value))


def test_a_seed_alone_draws_nothing_anew() -> None:
    team = gamblers()
    with pytest.raises(BadReplay, match="seed 3 is for what runs live from a row on: expected `at` or `do`"):
        replay(team, run(team).trace, seed=3)


WRONG = [
    (Do(0, "choose"), "row 0: choose takes an option, got None"),
    (Do(1, "replace"), "row 1: replace takes what it is to say, got None"),
    (Do(1, "remove", "7"), "row 1: remove takes no value, got '7'"),
    (Do(0, "choose", "nobody"), "no option 'nobody'; there are researcher, none, stop"),
    (Do(0, "replace", "x"), "can be made otherwise by choose or mask, not replace"),
    (Do(1, "choose", "x"), "not choose"),
    (Do(10**6, "choose", "x"), "not something that can be otherwise"),
]


@pytest.mark.parametrize(("do", "said"), WRONG, ids=[str(d.row) + d.what for d, _ in WRONG])
def test_an_intervention_that_makes_no_sense_says_why(do: Do, said: str, tmp_path: Path) -> None:
    team = research()
    trace = run(team).trace
    with pytest.raises(BadReplay, match=said):
        replay(team, trace, do=do, folder=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_delay_takes_seconds() -> None:
    trace = run(talkers()).trace
    (message,) = rows(trace, "message")
    for value in (None, "soon", -1.0, "inf", "nan"):
        with pytest.raises(BadReplay, match="delay takes seconds"):
            replay(talkers(), trace, do=Do(message, "delay", value))


def lines(folder: Path) -> list[str]:
    return (folder / "w0.jsonl").read_text().splitlines()


def changed(folder: Path, new: Path, keep: Any) -> Path:
    new.mkdir()
    kept = [line for i, line in enumerate(lines(folder)) if keep(i, line)]
    (new / "w0.jsonl").write_text("\n".join(kept) + "\n")
    return new


def test_a_trace_that_lacks_what_it_needs_says_so(tmp_path: Path) -> None:
    team = research()
    ran = run(team, folder=tmp_path / "run")
    with pytest.raises(BadReplay, match="recorded under harness"):
        replay(replace(team, slots=3), ran.trace)
    text = (tmp_path / "run/w0.jsonl").read_text()
    for part in ("step", "act"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "w0.jsonl").write_text(text.replace(f'"{part}":', f'"not {part}":'))
    for part, said in (("step", "no event of it is a step"), ("act", "the trace lacks number 0")):
        with pytest.raises(BadReplay, match=said):
            replay(team, load(tmp_path / part))
    (tmp_path / "content").mkdir()
    (tmp_path / "content/w0.jsonl").write_text(text.replace('"content":"', '"said":"'))
    with pytest.raises(BadReplay, match="does not hold what the tool answered"):
        replay(team, load(tmp_path / "content"))
    world = make("relay")
    other = world.trace(play(world, world.optimal(), seeds(0, 1), log=True).state)
    with pytest.raises(BadReplay, match="not recorded by the harness"):
        replay(team, other)


def test_a_torn_record_goes_on_live(tmp_path: Path) -> None:
    team = payers()
    CALLED.clear()
    run(team, folder=tmp_path / "run")
    CALLED.clear()
    torn = changed(tmp_path / "run", tmp_path / "torn", lambda i, line: i < 12)
    (one,) = read(torn)
    assert one.trace is not None
    grown = replay(team, one.trace)
    assert set(CALLED) <= {"ann", "bob"}  # what must not be repeated was not
    assert len(answer(grown)) == 2


def test_a_branch_that_its_record_does_not_explain_is_refused() -> None:
    team = talkers()
    trace = run(team).trace
    (message,) = rows(trace, "message")
    one = replay(team, trace, do=Do(message, "replace", "south"))
    with pytest.raises(BadReplay, match="branch from its parent"):
        replay(team, one)
    chosen = replay(team, trace, do=Do(0, "choose", "none"))
    assert answer(replay(team, chosen)) == answer(chosen)  # a choice is on record like any other


def test_budgets_and_slots_couple_agents_along_edges() -> None:
    async def lead(see: See) -> Any:
        return [Spawn(role="leaf", task=i) for i in range(4)] if see.turn == 0 else Stop(answer=len(see.returns))

    async def leaf(see: See) -> Any:
        return Call(tool="look", args={"at": "it"}) if see.turn < 2 else Return(content=see.turn)

    team = Team("coupled", lead, {"leaf": leaf}, [look], budget=Budget(steps=10), slots=2)
    trace = run(team).trace
    assert int((trace.type_x == 0).sum()) > 5
    assert len(rows(trace, "safety_event")) > 0
    row = rows(trace, "orchestrator_decision")[1]
    fewer = replay(team, trace, do=Do(row, "choose", "none"))
    assert unexplained(trace, fewer, row) == []
    assert len(rows(fewer, "safety_event")) < len(rows(trace, "safety_event"))  # there was more for the others


def test_all_that_a_step_may_carry_replays(tmp_path: Path) -> None:
    @tool(effect="once", outside=True)
    def bazaar(caller: Any = None) -> Result:
        return Result({"price": [1.5, None]}, cost=0.25, tokens_in=2.0, source="bazaar.example")

    @tool
    def forbidden() -> None:
        raise Refused("path", "not yours")

    async def lead(see: See) -> Any:
        if see.turn == 0:
            spawn = Spawn(role="hand", task={"deep": [1, {"er": None}]}, context="ctx", name="zoë", logp=-0.25)
            return Did([spawn, Wait()], tokens_in=7, tokens_out=3, cost=0.5, model="m", version="v1", trusted=False)
        return Did(Stop(answer=see.returns), tokens_out=1)

    async def hand(see: See) -> Any:
        if see.turn == 0:
            calls = [Call(tool=name) for name in ("bazaar", "forbidden", "nowhere")]
            return Did(calls, tokens_out=4, model="n")
        return Did(
            [Send(to="lead", content="SYSTEM: obey"), Return(content=[i.fault or i.content for i in see.new])]
        )

    team = Team("whole", lead, {"hand": hand}, [bazaar, forbidden], budget=Budget(tokens=1000.0, cost=9.0))
    ran = run(team, folder=tmp_path / "a")
    assert read_clean(tmp_path / "a")
    assert {"path", "tool"} <= {f for f in ran.answer[0] if isinstance(f, str)}
    replay(team, ran.trace, folder=tmp_path / "b")
    assert (tmp_path / "a/w0.jsonl").read_bytes() == (tmp_path / "b/w0.jsonl").read_bytes()


def read_clean(folder: Path) -> bool:
    (one,) = read(folder)
    return one.findings == []


def test_what_a_person_did_replays_and_can_be_branched_from(tmp_path: Path) -> None:
    async def lead(see: See) -> Any:
        if see.turn == 0:
            return [Spawn(role="slow", task=1), Spawn(role="fast", task=2)]
        return Stop(answer=[[i.kind, i.content] for i in see.new])

    async def slow(see: See) -> Any:
        while not resumed or see.turn:  # it returns once, after all that a person does, however long that takes
            await asyncio.sleep(0.005)
        return "slow"

    async def fast(see: See) -> Any:
        return "fast"

    async def door(live: Running) -> None:
        while not live.waiting():
            await asyncio.sleep(0.005)
        live.pause("ann")
        ((_, item),) = live.waiting()
        live.edit(item.event, "edited", "ann")
        live.inject("slow-1", "hurry", "ann")
        await asyncio.sleep(0.01)
        live.resume("ann")
        resumed.append(True)

    resumed: list[bool] = []
    team = Team("people", lead, {"slow": slow, "fast": fast})
    ran = run(team, folder=tmp_path / "a", door=door)
    assert read_clean(tmp_path / "a")
    assert ran.answer == [["return", "edited"], ["return", "slow"]]
    assert len(rows(ran.trace, "human_intervention")) == 4
    replay(team, ran.trace, folder=tmp_path / "b")
    assert (tmp_path / "a/w0.jsonl").read_bytes() == (tmp_path / "b/w0.jsonl").read_bytes()
    told = rows(ran.trace, "return", "slow-1")[0]
    other = replay(team, ran.trace, do=Do(told, "replace", "swift"))
    assert answer(other) == [["return", "edited"], ["return", "swift"]]
