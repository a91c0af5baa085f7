"""Runs that reached outside replay from their record alone: nobody is asked, told or called again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.attempts import ATTEMPTS, scene
from bench.endpoint_server import BAD, serving
from bench.mcp_servers import behaving
from bench.person import Person
from podium.harness.budget import Budget
from podium.harness.commands import command_tool, file_tools, python_tool
from podium.harness.endpoint import Endpoint
from podium.harness.human import door_at
from podium.harness.mcp import mcp_stdio
from podium.harness.model import model_role
from podium.harness.replay import replay
from podium.harness.run import Ran, play, run
from podium.harness.sandbox import isolation
from podium.harness.team import Role, Team
from podium.harness.types import Call, Return, See, Send, Spawn, Stop, Wait

WHY = asyncio.run(isolation())


def same(team: Team, ran: Ran, tmp_path: Path) -> bool:
    replay(team, ran.trace, folder=tmp_path / "again")
    return (ran.folder / "w0.jsonl").read_bytes() == (tmp_path / "again" / "w0.jsonl").read_bytes()


def test_commands(tmp_path: Path) -> None:
    if WHY:
        pytest.skip(f"no isolation here: {WHY}")
    calls = [
        Call(tool="write_file", args={"path": "a.txt", "text": "hi"}),
        Call(tool="command", args={"line": "cat a.txt"}),
        Call(tool="command", args={"line": "cat ../x"}),
        Call(tool="python", args={"code": "import socket; socket.socket()"}),
    ]

    async def lead(see: See) -> Any:
        return calls[see.turn] if see.turn < len(calls) else Stop(answer=[i.fault for i in see.items("result")])

    team = Team("commands", lead, tools=[*file_tools(), command_tool(["cat"]), python_tool()])
    ran = run(team, "go", folder=tmp_path / "run", folders=True)
    assert ran.answer == [None, None, "parent folder", "network"]
    (tmp_path / "run.folders" / "a.txt").unlink()
    assert same(team, ran, tmp_path)
    assert list((tmp_path / "run.folders").iterdir()) == [], "nothing was written again"


@pytest.mark.parametrize("attempt", ATTEMPTS[::9], ids=lambda a: f"{a.kind}: {a.name}")
def test_attempts(attempt: Any, tmp_path: Path) -> None:
    with scene(tmp_path / "scene") as here:
        here.furnish(tmp_path / "run.folders")
        team = attempt.team(here)
        ran = run(team, "try it", folder=tmp_path / "run", folders=True)
    assert same(team, ran, tmp_path)


@pytest.mark.parametrize("how", ["good", "tools", *list(BAD)[::4]])
def test_endpoints(how: str, tmp_path: Path) -> None:
    pytest.importorskip("httpx", reason="an endpoint needs httpx: pip install 'podium[serve]'")

    async def lead(see: See) -> Any:
        return (
            Spawn(role="worker", task="go") if not see.turn else Stop(answer=[i.fault for i in see.items("return")])
        )

    with serving() as url:
        worker = model_role(Endpoint(url, how, idle=0.3, seconds=3), "Answer.", seconds=5, retries=1)
        team = Team("remote", Role(lead, spawns=("worker",)), {"worker": worker}, budget=Budget(steps=6))
        ran = run(team, "go", folder=tmp_path / "run")
    assert same(team, ran, tmp_path)  # the endpoint is gone


def test_mcp(tmp_path: Path) -> None:
    async def lead(see: See) -> Any:
        return Call(tool="odd_act") if not see.turn else Stop(answer=see.results)

    async def main() -> tuple[Team, Ran]:
        async with mcp_stdio("odd", behaving("good")) as server:
            team = Team("asks", lead, tools=server.tools)
            return team, await play(team, "go", folder=tmp_path / "run")

    team, ran = asyncio.run(main())
    assert ran.answer == ["done"]
    assert same(team, ran, tmp_path)  # the server is gone


def test_people(tmp_path: Path) -> None:
    gate = threading.Event()

    async def lead(see: See) -> Any:
        if not see.turn:
            return Spawn(role="worker", task="report")
        if told := [i.content for i in see.items("human")]:
            return Stop(answer=[told, [i.content for i in see.items("message")]])
        return Wait()

    async def worker(see: See) -> Any:
        while not gate.is_set():
            await asyncio.sleep(0.01)
        return Send(to="lead", content="all is well") if not see.turn else Return(content="done")

    def act(say: Callable[[str], list[str]]) -> None:
        say("pause")
        gate.set()
        while not (lines := [line for line in say("waiting") if "all is well" in line]):
            pass
        for line in (f"edit {lines[0].split()[0]} all is lost", "tell lead finish", "resume"):
            assert say(line) == ["ok"]

    team = Team("asks", Role(lead, spawns=("worker",), wait="any"), {"worker": worker})
    person = Person(tmp_path / "door", act)
    person.start()
    ran = run(team, "go", folder=tmp_path / "run", door=door_at(tmp_path / "door"))
    person.join(120)
    assert person.wrong is None
    assert ran.answer == [["finish"], ["all is lost"]]
    assert same(team, ran, tmp_path)
