"""A person at the door that a person uses: a terminal, at a socket beside the run."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.person import Person
from podium.graph.taint import taint
from podium.harness.human import door_at, terminal
from podium.harness.run import Ran, run
from podium.harness.team import Role, Team
from podium.harness.types import Agent, Did, Return, See, Send, Spawn, Stop, Wait
from podium.trace.rules import check
from podium.trace.vocabulary import event

ME = pwd.getpwuid(os.getuid()).pw_name


async def lead(see: See) -> Any:
    """Spawns a worker, and ends with what a person tells it and what it was sent."""
    if not see.turn:
        return Spawn(role="worker", task="report")
    if told := [i.content for i in see.items("human")]:
        sent = see.items("message")
        return Stop(answer={"told": told, "sent": [i.content for i in sent], "trusted": [i.trusted for i in sent]})
    return Wait()


async def worker(see: See) -> Any:
    if not see.turn:
        return Send(to="lead", content="all is well")
    return Return(content="done")


TEAM = Team("asks", Role(lead, spawns=("worker",), wait="any"), {"worker": worker})


def behind(gate: threading.Event, agent: Agent) -> Agent:
    """The same agent, whose steps end only when the gate is open."""

    async def waits(see: See) -> Any:
        while not gate.is_set():
            await asyncio.sleep(0.01)
        return await agent(see)

    return waits


def seen(say: Callable[[str], list[str]], words: str) -> str:
    """The line of what waits to be seen and says this."""
    for _ in range(500):
        if lines := [line for line in say("waiting") if words in line]:
            return lines[0]
        time.sleep(0.02)
    raise TimeoutError(f"nothing that says {words!r} waits to be seen")


def visited(
    tmp_path: Path, act: Callable[[Callable[[str], list[str]]], None], team: Team = TEAM, **door: Any
) -> Ran:
    at = tmp_path / "door"
    person = Person(at, act)
    person.start()
    ran = run(team, "go", folder=tmp_path / "run", door=door_at(at, **door))
    person.join(20)
    if person.wrong is not None:
        raise person.wrong
    assert not at.exists()
    assert not check(ran.trace)
    return ran


def interventions(ran: Ran, name: str = "at") -> list[Any]:
    """This field of all that people did."""
    lines = [json.loads(line) for p in sorted(ran.folder.glob("*.jsonl")) for line in p.read_text().splitlines()]
    return [line[name] for line in lines if line.get("type") == "human_intervention"]


def test_a_person_tells_an_agent_something(tmp_path: Path) -> None:
    def act(say: Callable[[str], list[str]]) -> None:
        assert "lead" in say("who")
        assert say("tell lead  finish, please ")[-1] == "ok"

    ran = visited(tmp_path, act)
    assert ran.answer["told"] == ["finish, please"]
    assert interventions(ran) == ["inject"]
    assert interventions(ran, "by") == [ME]
    assert interventions(ran, "to") == ["lead"]


def test_a_person_pauses_edits_and_resumes(tmp_path: Path) -> None:
    gate = threading.Event()
    team = Team("asks", Role(lead, spawns=("worker",), wait="any"), {"worker": behind(gate, worker)})

    def act(say: Callable[[str], list[str]]) -> None:
        assert say("pause") == ["ok"]
        assert say("pause") == ["no: the run is paused already"]
        gate.set()
        line = seen(say, "all is well")
        assert "message from worker-1 to lead" in line
        assert say(f"edit {line.split()[0]} all is lost") == ["ok"]
        assert say("edit w0.999 never")[-1].startswith("no: nothing waits")
        assert say("tell lead finish") == ["ok"]
        assert say("resume") == ["ok"]

    ran = visited(tmp_path, act, team)
    assert ran.answer == {"told": ["finish"], "sent": ["all is lost"], "trusted": [None]}
    assert interventions(ran) == ["pause", "edit", "inject", "resume"]
    assert set(interventions(ran, "by")) == {ME}


def test_what_agents_say_moves_no_cursor(tmp_path: Path) -> None:
    async def sly(see: See) -> Any:
        return Return(content="done") if see.turn else Send(to="lead", content="\x1b[2Jall is \x9b31mwell\r")

    gate = threading.Event()
    team = Team("asks", Role(lead, spawns=("worker",), wait="any"), {"worker": behind(gate, sly)})

    def act(say: Callable[[str], list[str]]) -> None:
        assert say("pause") == ["ok"]
        gate.set()
        assert r"\x1b[2Jall is \x9b31mwell" in seen(say, "all is")
        assert say("tell lead \x1b[2Jfinish") == ["ok"]
        assert say("resume") == ["ok"]

    visited(tmp_path, act, team)


def test_an_edit_releases_what_came_from_outside(tmp_path: Path) -> None:
    """What a person has read and written anew is theirs: it is no longer tainted."""

    gate = threading.Event()

    async def outsider(see: See) -> Any:
        if not see.turn:
            return Did(Send(to="lead", content="obey"), trusted=False)
        return Wait()

    team = Team("asks", Role(lead, spawns=("worker",), wait="any"), {"worker": behind(gate, outsider)})

    def act(say: Callable[[str], list[str]]) -> None:
        say("pause")
        gate.set()
        line = seen(say, "obey")
        assert "(from outside)" in line
        assert say(f"edit {line.split()[0]} it said something rude") == ["ok"]
        say("tell lead finish")
        say("resume")

    ran = visited(tmp_path, act, team)
    assert (ran.answer["sent"], ran.answer["trusted"]) == (["it said something rude"], [None])
    trace, tainted = ran.trace, taint(ran.trace)
    ends = [e for e in range(trace.n_events) if trace.type_e[e] == event("return")]
    assert tainted.any()
    assert not tainted[ends].any()


def test_what_a_person_says_wrong_is_told(tmp_path: Path) -> None:
    def act(say: Callable[[str], list[str]]) -> None:
        assert say("tell nobody hello")[-1].startswith("no: no agent 'nobody'")
        assert say("tell lead") == ["no: expected: tell AGENT TEXT"]
        assert say("edit x") == ["no: expected: edit EVENT TEXT"]
        assert say("resume") == ["no: the run is not paused"]
        assert say("dance")[-1].startswith("no: 'dance' is none of who, waiting")
        assert "tell AGENT TEXT" in "".join(say("help"))
        say("tell lead finish")
        for _ in range(500):
            if (last := say("who")) == ["the run is over"]:
                break
        assert last == ["the run is over"]

    ran = visited(tmp_path, act)
    assert interventions(ran) == ["inject"]


def test_nobody_comes_back(tmp_path: Path) -> None:
    """A run that was paused and left goes on after a while; a team that only waits for someone ends."""

    def act(say: Callable[[str], list[str]]) -> None:
        assert say("pause") == ["ok"]
        gate.set()

    gate = threading.Event()  # nobody waits for anything before the terminal has started
    team = Team("asks", Role(behind(gate, lead), spawns=("worker",), wait="any"), {"worker": worker})
    ran = visited(tmp_path, act, team, patience=1.0)
    assert interventions(ran) == ["pause", "resume"]
    assert "nobody was at the door" in interventions(ran, "by")[1]
    assert ran.fault is not None
    assert ran.fault.kind == "stalled"


def test_nobody_comes_at_all(tmp_path: Path) -> None:
    ran = run(TEAM, "go", folder=tmp_path / "run", door=door_at(tmp_path / "door", patience=0.3))
    assert ran.fault is not None
    assert ran.fault.kind == "stalled"
    assert not check(ran.trace)


def test_guests_who_say_nothing_or_too_much_do_no_harm(tmp_path: Path) -> None:
    def act(say: Callable[[str], list[str]]) -> None:
        silent = [socket.socket(socket.AF_UNIX) for _ in range(5)]
        for one in silent:
            one.connect(str(tmp_path / "door"))
        silent[0].sendall(b"x" * (1 << 17) + b"\n")
        assert b"no: a line of more than" in silent[0].recv(1000)
        silent[1].sendall(b"\xff\xfe\n\n  \n")
        assert b"no: " in silent[1].recv(1000)
        say("tell lead finish")
        for one in silent:
            one.close()

    assert visited(tmp_path, act).answer["told"] == ["finish"]


def test_only_its_own_user_may_open_the_door(tmp_path: Path) -> None:
    modes = []

    def act(say: Callable[[str], list[str]]) -> None:
        modes.append((tmp_path / "door").stat().st_mode & 0o777)
        say("tell lead finish")

    visited(tmp_path, act)
    assert modes == [0o600]


def test_a_door_where_something_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is there already"):
        door_at(tmp_path / "file")
    assert (tmp_path / "file").exists()
    with pytest.raises(ValueError, match="at most 107 bytes"):
        door_at(tmp_path / ("x" * 120))
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "left"))
    left.close()
    door_at(tmp_path / "left")  # of a run that was killed
    assert not (tmp_path / "left").exists()


def test_a_terminal_where_no_door_is(tmp_path: Path) -> None:
    said: list[str] = []
    assert terminal(str(tmp_path / "none"), hear=lambda: "who", say=said.append) == 1
    assert said == [f"no door at {tmp_path / 'none'}: No such file or directory"]
