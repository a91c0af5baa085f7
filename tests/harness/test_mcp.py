"""Tools of MCP servers: two from the registries, and one that misbehaves."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import pytest

from bench.mcp_servers import BAD, EVERYTHING, TIME, behaving, everything_over_http, missing, patience
from podium.graph.taint import taint
from podium.harness.mcp import Server, mcp_http, mcp_stdio
from podium.harness.run import Ran, play
from podium.harness.team import Team
from podium.harness.types import Call, Fault, See, Stop
from podium.trace.rules import check

no_everything = pytest.mark.skipif(bool(missing(EVERYTHING)), reason=missing(EVERYTHING) or "there")
no_time = pytest.mark.skipif(bool(missing(TIME)), reason=missing(TIME) or "there")


async def asks(server: Server, tool: str, args: dict[str, Any]) -> Ran:
    """A team whose lead calls one tool of the server and answers with what it says."""

    async def lead(see: See) -> Any:
        if not see.turn:
            return Call(tool=tool, args=args)
        return Stop(answer=[[i.fault, i.source, i.trusted, i.content] for i in see.new])

    return await play(Team("asks", lead, tools=server.tools), "go")


def clean(ran: Ran) -> None:
    """Its trace obeys the rules, and what the server said is tainted, and what came of it."""
    trace = ran.trace
    assert not check(trace)
    said = [i for i in range(trace.n_events) if trace.type_e[i] == 5]
    assert said
    assert taint(trace)[said].all()
    assert taint(trace)[-1]


@no_everything
def test_the_reference_server_over_stdio() -> None:
    async def main() -> Ran:
        async with mcp_stdio("everything", EVERYTHING) as server:
            assert server.calls_itself == "mcp-servers/everything"
            effects = {t.name: t.effect for t in server.tools}
            assert effects["everything_echo"] == "replayable"
            assert effects["everything_gzip-file-as-resource"] == "once"
            return await asks(server, "everything_get-sum", {"a": 40, "b": 2})

    ran = asyncio.run(main())
    ((fault, source, trusted, content),) = ran.answer
    assert (fault, source, trusted) == (None, "mcp:everything", False)
    assert "42" in content
    clean(ran)


@no_everything
def test_the_reference_server_over_http() -> None:
    pytest.importorskip("httpx", reason="MCP over HTTP needs httpx: pip install 'podium[serve]'")

    async def main(url: str) -> Ran:
        async with mcp_http("everything", url) as server:
            long = await server.call("trigger-long-running-operation", {"duration": 0.2, "steps": 2})
            assert "completed" in str(long.content).lower()
            structured = await server.call("get-structured-content", {"location": "New York"})
            assert isinstance(structured.content, dict)
            with pytest.raises(Fault, match="get-sum"):
                await server.call("get-sum", {"a": "forty"})
            return await asks(server, "everything_echo", {"message": "hello"})

    with everything_over_http() as url:
        ran = asyncio.run(main(url))
        with pytest.raises(Fault, match="status 404"):
            asyncio.run(main(url + "/elsewhere"))
    assert ran.answer == [[None, "mcp:everything", False, "Echo: hello"]]
    clean(ran)


@no_time
def test_a_server_from_pypi() -> None:
    async def main() -> Ran:
        async with mcp_stdio("time", TIME) as server:
            asked = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
            return await asks(server, "time_convert_time", asked)

    ran = asyncio.run(main())
    assert "21:00" in str(ran.answer)
    clean(ran)


@pytest.mark.parametrize(("how", "kind"), BAD["start"].items())
def test_a_server_that_does_not_start_is_a_fault(how: str, kind: str) -> None:
    async def main() -> None:
        async with mcp_stdio("bad", behaving(how), seconds=patience(kind, 0.6)):
            pass

    with pytest.raises(Fault, match="MCP server 'bad'") as caught:
        asyncio.run(main())
    assert caught.value.kind == kind


@pytest.mark.parametrize(("how", "kind"), BAD["call"].items())
def test_a_server_that_fails_in_a_call_is_a_recorded_fault(how: str, kind: str) -> None:
    async def main() -> Ran:
        async with mcp_stdio("bad", behaving(how), seconds=patience(kind, 4.0)) as server:
            return await asks(server, "bad_act", {})

    ran = asyncio.run(main())
    assert ran.answer[0][0] == kind
    assert ran.metrics["faults"] == 1
    assert not check(ran.trace)


def test_a_server_is_left_though_what_it_started_goes_on() -> None:
    """A grandchild in a session of its own holds the streams of the server; nobody waits for it."""

    async def main() -> float:
        async with mcp_stdio("odd", behaving("leaves a child")) as server:
            assert (await server.call("act", {})).content == "done"
            began = time.monotonic()
        return time.monotonic() - began

    assert asyncio.run(main()) < 30


@pytest.mark.parametrize("how", ["prints", "pages", "asks back", "odd ids"])
def test_what_a_server_may_do_as_well(how: str) -> None:
    async def main() -> Any:
        async with mcp_stdio("odd", behaving(how), effects={"act": "pure"}) as server:
            names = [t.name for t in server.tools]
            return names, (await server.call("act", {})).content

    names, said = asyncio.run(main())
    assert names == (["odd_act0", "odd_act1", "odd_act2"] if how == "pages" else ["odd_act"])
    assert said == ("-32601" if how == "asks back" else "done")


def test_a_server_has_none_of_our_variables_and_is_gone_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_SECRET", "x")
    transports = []

    async def main() -> None:
        async with mcp_stdio("good", behaving("good"), env={"MINE": "1"}) as server:
            transports.append(server._transport)

    asyncio.run(main())
    (transport,) = transports
    assert set(transport.env) <= {"PATH", "HOME", "LANG", "MINE"}
    with pytest.raises(ProcessLookupError):
        os.kill(transport._process.pid, 0)


@pytest.mark.parametrize("command", [["podium-no-such-program"], []])
def test_a_server_that_is_not_there(command: list[str]) -> None:
    async def main() -> None:
        async with mcp_stdio("none", command):
            pass

    with pytest.raises(Fault, match="cannot start"):
        asyncio.run(main())


def test_nobody_at_the_address() -> None:
    pytest.importorskip("httpx", reason="MCP over HTTP needs httpx: pip install 'podium[serve]'")

    async def main() -> None:
        async with mcp_http("none", "http://127.0.0.1:9/mcp"):
            pass

    with pytest.raises(Fault, match="MCP server 'none'") as caught:
        asyncio.run(main())
    assert caught.value.kind == "mcp unreachable"
    with pytest.raises(ValueError, match="expected the address"):
        asyncio.run(mcp_http("none", "ftp://x").__aenter__())
