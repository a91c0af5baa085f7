"""The doors of the harness: what agents may not do, and what comes in from outside: `python -m bench.harness_doors [--full] [--json]`."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from bench import endpoint_server, mcp_servers, nonsense, table
from bench.attempts import ATTEMPTS, CONTAINED, LIMITS, Tried, scene, tried
from bench.person import Person
from bench.table import Row, at_least, at_most, fact
from podium.harness.endpoint import Endpoint
from podium.harness.human import door_at
from podium.harness.mcp import Server, mcp_http, mcp_stdio
from podium.harness.model import model_agent
from podium.harness.run import Ran, play, run
from podium.harness.sandbox import Sandbox, isolation
from podium.harness.team import Role, Team
from podium.harness.types import Call, Fault, Return, See, Send, Spawn, Stop, Wait
from podium.trace.rules import check

__all__ = ["measure"]


def measure(full: bool) -> list[Row]:
    with TemporaryDirectory() as folder:
        rows = _permissions(Path(folder), 5 if full else 1)
        rows += _mcp() + _endpoint() + _person(Path(folder), 10 if full else 1)
    return rows + _nonsense()


# 8.4: what agents may not do ---------------------------------------------------------------------------------------------


def _permissions(folder: Path, rounds: int) -> list[Row]:
    why = asyncio.run(isolation())
    attempts = [a for a in ATTEMPTS if not (why and a.jailed)]
    got: list[tuple[str, Tried]] = []
    inside: list[Tried] = []
    for turn in range(rounds):
        with scene(folder / f"round{turn}") as here:
            got += [(a.kind, tried(a, here)) for a in attempts]
            inside += [tried(a, here) for a in CONTAINED if not why]
    kinds = Counter(kind for kind, _ in got)
    recorded = sum(t.recorded for _, t in got)
    return [
        at_least(
            "8.4.kinds",
            "kinds of attempts at more than is allowed",
            len(kinds),
            len({a.kind for a in attempts}),
            "exact",
        ),
        at_least("8.4.least", "attempts of the kind that has the fewest", min(kinds.values()) / rounds, 3, "exact"),
        at_least(
            "8.4.recorded",
            f"of {len(got)} attempts, refused and recorded as safety events",
            recorded,
            len(got),
            "exact",
        ),
        at_most("8.4.succeeded", "of these that succeeded", sum(t.succeeded for _, t in got), 0, "exact"),
        at_most(
            "8.4.rules", "of their traces that break a rule", sum(bool(t.findings) for _, t in got), 0, "exact"
        ),
        at_most(
            "8.4.inside",
            f"of {len(inside)} programs inside that got at anything",
            sum(t.succeeded for t in inside),
            0,
            "exact",
        ),
        *_without_isolation(),
        *([] if why else _costs(folder)),
    ]


def _without_isolation() -> list[Row]:
    """Where user namespaces are taken away, nothing runs."""
    what = "commands that run where the system has no user namespaces"
    if not shutil.which("unshare") or os.geteuid():
        return []
    code = (
        "import asyncio, tempfile; from podium.harness.sandbox import Sandbox; "
        "asyncio.run(Sandbox(tempfile.mkdtemp()).run(['true']))"
    )
    inner = f'echo 0 > /proc/sys/user/max_user_namespaces && exec {sys.executable} -c "{code}"'
    answer = subprocess.run(["unshare", "-Ur", "sh", "-c", inner], capture_output=True, text=True, check=False)
    refused = answer.returncode != 0 and "cannot be isolated: " in answer.stderr
    return [at_most("8.4.refuses", what, 0 if refused else 1, 0, "exact")]


def _costs(folder: Path) -> list[Row]:
    (folder / "timed").mkdir()
    box = Sandbox(folder / "timed", LIMITS)
    return [fact("8.4.ms", "milliseconds to run `true` in isolation", _milliseconds(box))]


def _milliseconds(box: Sandbox) -> float:
    async def some() -> float:
        await box.run(["true"])
        start = perf_counter()
        for _ in range(10):
            await box.run(["true"])
        return (perf_counter() - start) * 100

    return asyncio.run(some())


# 8.6: what comes in from outside -----------------------------------------------------------------------------------------


async def _asked(server: Server, tool: str, args: dict[str, Any]) -> Ran:
    async def lead(see: See) -> Any:
        return (
            Call(tool=tool, args=args)
            if not see.turn
            else Stop(answer=[[i.fault, str(i.content)] for i in see.new])
        )

    return await play(Team("asks", lead, tools=server.tools), "go")


def _mcp() -> list[Row]:
    """Tools of servers from the registries, called by a team."""
    asked = [
        ("npm, stdio", lambda: _stdio(mcp_servers.EVERYTHING, "everything_get-sum", {"a": 40, "b": 2}), "42"),
        ("npm, HTTP", lambda: _http("everything_echo", {"message": "hello"}), "Echo: hello"),
        (
            "PyPI, stdio",
            lambda: _stdio(
                mcp_servers.TIME,
                "time_convert_time",
                {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
            ),
            "21:00",
        ),
    ]
    away = [mcp_servers.missing(c) for c in (mcp_servers.EVERYTHING, mcp_servers.EVERYTHING, mcp_servers.TIME)]
    there = [one for one, gone in zip(asked, away, strict=True) if not gone]
    good = sum(
        expected in str(ran.answer) and not check(ran.trace) for _, call, expected in there for ran in [call()]
    )
    names = ", ".join(name for name, _, _ in there) or "none"
    rows = [
        fact(
            "8.6.mcp.servers",
            "ways to MCP servers from the registries that are here (two servers, stdio and HTTP)",
            len(there),
        )
    ]
    if there:
        rows.append(
            at_least(
                "8.6.mcp",
                f"of these whose tool a team called, with a clean trace ({names})",
                good,
                len(there),
                "exact",
            )
        )
    return rows


def _stdio(command: list[str], tool: str, args: dict[str, Any]) -> Ran:
    async def main() -> Ran:
        async with mcp_stdio(tool.split("_")[0], command) as server:
            return await _asked(server, tool, args)

    return asyncio.run(main())


def _http(tool: str, args: dict[str, Any]) -> Ran:
    async def main(url: str) -> Ran:
        async with mcp_http("everything", url) as server:
            return await _asked(server, tool, args)

    with mcp_servers.everything_over_http() as url:
        return asyncio.run(main(url))


async def _hires(see: See) -> Any:
    if not see.turn:
        return Spawn(role="worker", task="go")
    return Stop(answer=[[i.fault, i.content] for i in see.items("return")])


def _endpoint() -> list[Row]:
    """A worker whose model is an endpoint in another process, however that behaves."""
    seconds, good, bad = [], 0, 0
    with endpoint_server.serving() as url:
        for how in (*endpoint_server.GOOD, *endpoint_server.BAD):
            remote = Endpoint(url, how, **endpoint_server.patience(how))
            team = Team("remote", Role(_hires, spawns=("worker",)), {"worker": Role(model_agent(remote))})
            start = perf_counter()
            ran = run(team, "go")
            seconds.append(perf_counter() - start)
            ((fault, content),) = ran.answer
            clean = not check(ran.trace)
            good += clean and fault is None and bool(content)
            bad += clean and fault is not None and fault == endpoint_server.BAD.get(how)
    ways, faults = len(endpoint_server.GOOD), len(endpoint_server.BAD)
    return [
        at_least(
            "8.6.endpoint", f"of {ways} ways in which an endpoint answers that a team heard", good, ways, "exact"
        ),
        at_least(
            "8.7.endpoint",
            f"of {faults} ways in which it fails that are a recorded fault of that kind",
            bad,
            faults,
            "exact",
        ),
        at_most(
            "8.7.endpoint.s",
            "seconds until the slowest of them was told, half a second being its limit",
            max(seconds),
            2.5,
            "time",
        ),
    ]


def _person(folder: Path, rounds: int) -> list[Row]:
    """A person who pauses a run, changes a message, tells the lead something and resumes."""
    heard = sum(_visit(folder / f"person{i}") for i in range(rounds))
    what = f"of {rounds} runs that a person at a terminal paused, edited, told and resumed, those that went as told"
    return [at_least("8.6.person", what, heard, rounds, "exact")]


def _visit(folder: Path) -> bool:
    paused = asyncio.Event()

    async def lead(see: See) -> Any:
        if not see.turn:
            return Spawn(role="worker", task="report")
        if told := [i.content for i in see.items("human")]:
            return Stop(answer=[told, [i.content for i in see.items("message")]])
        return Wait()

    async def worker(see: See) -> Any:
        while not paused.is_set():
            await asyncio.sleep(0.01)
        return Send(to="lead", content="all is well") if not see.turn else Return(content="done")

    def act(say: Callable[[str], list[str]]) -> None:
        say("pause")
        paused.set()
        stop = perf_counter() + 120
        while not (lines := [w for w in say("waiting") if "all is well" in w]) and perf_counter() < stop:
            pass
        for line in (f"edit {lines[0].split()[0]} all is lost", "tell lead finish", "resume"):
            say(line)

    folder.mkdir()
    person = Person(folder / "door", act)
    person.start()
    team = Team("door", Role(lead, spawns=("worker",), wait="any"), {"worker": worker})
    ran = run(team, "go", folder=folder / "run", door=door_at(folder / "door"))
    person.join()
    log = (folder / "run" / "w0.jsonl").read_text()
    recorded = log.count('"human_intervention"') == 4
    return (
        recorded and ran.answer == [["finish"], ["all is lost"]] and person.wrong is None and not check(ran.trace)
    )


# 8.7: whatever is answered -----------------------------------------------------------------------------------------------


def _nonsense() -> list[Row]:
    rows = []
    tables: list[tuple[str, str, dict[str, Any], Callable[[Any], Ran]]] = [
        ("8.7.agents", "kinds of nonsense from an agent", nonsense.AGENTS, nonsense.with_agent),
        ("8.7.tools", "ways in which a tool fails", nonsense.TOOLS, nonsense.with_tool),
        ("8.7.mcp", "ways in which an MCP server fails", mcp_servers.BAD["call"], _with_server),
    ]
    for ident, what, ways, play_with in tables:
        known = sum(_is_fault(play_with, ways[name] if callable(ways[name]) else name) for name in ways)
        rows.append(
            at_least(ident, f"of {len(ways)} {what}, a recorded fault and no more", known, len(ways), "exact")
        )
    started = sum(_does_not_start(how, kind) for how, kind in mcp_servers.BAD["start"].items())
    what = f"of {len(mcp_servers.BAD['start'])} ways in which an MCP server does not start, said in a line"
    return [*rows, at_least("8.7.mcp.start", what, started, len(mcp_servers.BAD["start"]), "exact")]


def _is_fault(play_with: Callable[[Any], Ran], way: Any) -> bool:
    ran = play_with(way)
    told = list(_faults(ran))
    return bool(told) and ran.metrics["faults"] >= 1 and not check(ran.trace) and "Traceback" not in str(ran.answer)


def _faults(ran: Ran) -> Iterator[str]:
    yield from (fault for fault, why in ran.answer or () if fault and why)


def _with_server(how: str) -> Ran:
    async def main() -> Ran:
        async with mcp_stdio(
            "bad", mcp_servers.behaving(how), seconds=mcp_servers.patience(mcp_servers.BAD["call"][how], 2.0)
        ) as server:
            return await _asked(server, "bad_act", {})

    return asyncio.run(main())


def _does_not_start(how: str, kind: str) -> bool:
    async def main() -> None:
        async with mcp_stdio("bad", mcp_servers.behaving(how), seconds=mcp_servers.patience(kind, 0.7)):
            pass

    try:
        asyncio.run(main())
    except Fault as fault:
        return fault.kind == kind and "\n" not in fault.why
    return False


if __name__ == "__main__":
    table.command(measure, __doc__)
