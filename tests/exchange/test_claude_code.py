from __future__ import annotations

import io
import json
import lzma
import tarfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from podium.graph.path import critical_path, serial_time
from podium.trace import files, log, survey
from podium.trace.columns import Trace
from podium.trace.vocabulary import EDGE_TYPES, EVENT_TYPES
from tests.exchange import sessions
from tests.exchange.sessions import Log, call, message, text


def reads(tmp_path: Path, *data: bytes | tuple[str, bytes]) -> list[files.Read]:
    for number, one in enumerate(data):
        name, content = one if isinstance(one, tuple) else (f"{number}.jsonl", one)
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return list(files.read(tmp_path))


def one(tmp_path: Path, *data: bytes | tuple[str, bytes]) -> tuple[Trace, list[str]]:
    """The one run there is, whose rules must hold, and what is said of the log."""
    (only,) = reads(tmp_path, *data)
    assert only.trace is not None
    assert not [f for f in only.findings if f.level == "error"], only.findings
    sound(only.trace)
    return only.trace, [f"{Path(f.file).name}: {f.message}" for f in only.findings if f.rule.startswith("log")]


def sound(trace: Trace) -> None:
    """What holds of every import: an effect begins no earlier than its cause ends, and time adds up."""
    ends_x = np.fmax(trace.end_e, trace.t_e)[trace.src_x]
    assert not (ends_x > trace.t_e[trace.dst_x]).any()
    longest, work, wall = (
        critical_path(trace).time_n[0],
        serial_time(trace).time_n[0],
        trace.cost_n["wall_clock_s"][0],
    )
    assert np.isnan(longest) or longest <= min(work, wall) + 1e-6
    again = json.loads(survey.write(trace))
    assert files.survey.write(trace) == files.survey.write(trace)
    assert len(again["events"]) == trace.n_events


def types(trace: Trace) -> dict[str, int]:
    return Counter(EVENT_TYPES[c] for c in trace.type_e.tolist())


def edges(trace: Trace, type: str) -> list[tuple[str, str, bool]]:
    """Edges of a type, by the types of events, and whether they were inferred."""
    return [
        (EVENT_TYPES[trace.type_e[s]], EVENT_TYPES[trace.type_e[d]], bool(trace.inferred_x[x] == 1))
        for x, (s, d) in enumerate(zip(trace.src_x.tolist(), trace.dst_x.tolist(), strict=True))
        if EDGE_TYPES[trace.type_x[x]] == type
    ]


def test_a_simple_session(tmp_path: Path) -> None:
    trace, said = one(tmp_path, sessions.simple().data())
    assert said == []
    assert types(trace) == {"message": 5, "tool_call": 2, "tool_result": 2}
    assert [trace.system_n[0], trace.trace_id_n[0]] == ["Claude Code", "5e55"]
    assert edges(trace, "return") == [("tool_call", "tool_result", False)] * 2
    assert edges(trace, "tool_dependency") == [("tool_result", "message", False)] * 2
    turns = np.flatnonzero(trace.model_e.codes >= 0)
    assert len(turns) == 3  # lines of one answer are one event
    assert trace.tokens_in_e[turns].tolist() == [3, 3, 3]
    assert trace.cache_write_e[turns].tolist() == [100, 100, 100]
    assert trace.cache_read_e[turns].tolist() == [1000, 1000, 1000]
    assert np.isnan(trace.tokens_out_e[turns[0]])  # no line says why it stopped: a snapshot, not a figure
    assert trace.tokens_out_e[turns[1:]].tolist() == [7, 7]
    assert trace.task_e.tolist() == [0] * 7 + [1] * 2  # a later prompt is a new task, not an intervention
    fetched = [r for r in range(trace.n_events) if trace.tool_e[r] == "WebFetch"]
    assert trace.trusted_e[fetched].tolist() == [-1, 0]
    calls = np.flatnonzero(trace.type_e == EVENT_TYPES.index("tool_call"))
    assert (trace.end_e - trace.t_e)[calls].tolist() == [2, 2]  # from the call to its result


def test_a_page_that_was_not_there_is_a_failed_fetch(tmp_path: Path) -> None:
    log = Log()
    log.person("look it up")
    for id, code in (("c1", 404), ("c2", 200)):
        log.model(f"m{id}", call(id, "WebFetch", url="https://example.org"))
        log.result(id, "what came", said={"code": code, "bytes": 0})
    log.model("mc3", call("c3", "WebFetch", url="https://example.org"))
    log.result("c3", "what came", said="a text")
    trace, findings = one(tmp_path, log.data())
    results = trace.type_e == EVENT_TYPES.index("tool_result")
    assert (trace.valid_e[results].tolist(), findings) == ([0, -1, -1], [])


def test_the_larger_of_each_figure_counts(tmp_path: Path) -> None:
    log = Log()
    log.person("go")
    for tokens in ((3, 10, 0, 1), (2, 40, 50, 9)):
        log.add("assistant", message=message("m1", text("a"), tokens=tokens))
    trace, _ = one(tmp_path, log.data())
    assert (trace.tokens_in_e[1], trace.cache_write_e[1], trace.cache_read_e[1]) == (3, 40, 50)
    assert np.isnan(trace.tokens_out_e).all()


def test_content_is_a_hash_unless_asked_for(tmp_path: Path) -> None:
    log = sessions.simple()
    key = "sk-" + "a1b2" * 6
    log.person(f"mail ann@example.org the key {key} from 10.1.2.3")
    (path := tmp_path / "a.jsonl").write_bytes(log.data())
    (hashed,), (kept,) = files.read(path), files.read(path, keep=True)
    assert hashed.trace is not None
    assert kept.trace is not None
    assert hashed.trace.content_ref_e == kept.trace.content_ref_e
    assert "content" not in hashed.trace.extra_e
    assert str(hashed.trace.content_ref_e[0]).startswith("sha256:")
    spelled = survey.write(kept.trace)
    assert b"fix the bug" in spelled
    assert b"mail [email] the key [api-key] from [ip]" in spelled
    assert b"fix the bug" not in survey.write(hashed.trace)


@pytest.mark.parametrize("with_file", [False, True])
def test_a_sub_agent_counts_once(tmp_path: Path, with_file: bool) -> None:
    main, own = sessions.with_progress()
    more = [("5e55/subagents/agent-af3b.jsonl", own.data())] if with_file else []
    trace, said = one(tmp_path, ("5e55.jsonl", main.data()), *more)
    assert said == []
    got = types(trace)
    assert [got[k] for k in ("tool_call", "tool_result", "spawn", "return", "aggregate")] == [2, 2, 1, 1, 1]
    names = np.array(trace.name_a.strings())
    inner = (trace.type_e == EVENT_TYPES.index("tool_call")) & (names[trace.agent_e] == "af3b")
    assert inner.sum() == 1  # its totalToolUseCount
    back = int(np.flatnonzero(trace.type_e == EVENT_TYPES.index("return"))[0])
    assert (names[trace.agent_e[back]], names[trace.to_e[back]]) == ("af3b", "main")
    assert json.loads(str(trace.extra_e["last_usage"][back]))["output_tokens"] == 30
    turns = int((trace.model_e.codes >= 0).sum())
    assert turns == (4 if with_file else 3)  # its last turn stands only in its own file
    assert ("return", "aggregate", True) in edges(trace, "aggregate")
    assert edges(trace, "spawn") == [("orchestrator_decision", "spawn", False), ("spawn", "message", False)]
    assert trace.role_e[int(np.flatnonzero(trace.type_e == EVENT_TYPES.index("spawn"))[0])] == "Explore"


def test_agents_that_tell_when_they_end(tmp_path: Path) -> None:
    trace, said = one(tmp_path, sessions.notified().data())
    assert said == []
    got = types(trace)
    assert [got[k] for k in ("tool_call", "tool_result", "spawn", "return", "aggregate")] == [2, 2, 2, 1, 1]
    back = int(np.flatnonzero(trace.type_e == EVENT_TYPES.index("return"))[0])
    assert trace.extra_e["tool_uses"][back] == "4"
    assert trace.end_e[back] == trace.t_e.tolist()[-1] - 2  # when it was first told, not when it was read


def test_an_inline_side_chain(tmp_path: Path) -> None:
    trace, said = one(tmp_path, sessions.inline().data())
    assert said == []
    got = types(trace)
    assert [got[k] for k in ("tool_call", "tool_result", "spawn", "return")] == [2, 2, 1, 1]
    assert ("orchestrator_decision", "spawn", True) in edges(trace, "spawn")  # by the same prompt: inferred
    assert "same prompt" in trace.rule_x.words


def test_a_sub_agent_that_is_launched_again(tmp_path: Path) -> None:
    trace, said = one(tmp_path, sessions.resumed_twice().data())
    assert said == []
    got = types(trace)
    assert [got[k] for k in ("tool_call", "tool_result", "spawn", "return")] == [4, 4, 2, 2]
    assert trace.n_agents == 3


def test_a_launch_without_a_time(tmp_path: Path) -> None:
    log = sessions.resumed_twice()
    del log.lines[1]["timestamp"]
    trace, _ = one(tmp_path, log.data())
    assert types(trace)["spawn"] == 2


def test_stream_json(tmp_path: Path) -> None:
    trace, said = one(tmp_path, sessions.streamed())
    assert said == []
    got = types(trace)
    assert [got[k] for k in ("tool_call", "tool_result", "spawn", "return")] == [2, 2, 1, 1]
    assert {k: v.tolist() for k, v in trace.cost_n.items()} == {"cost": [0.25], "wall_clock_s": [9.0]}
    assert "tk" in trace.name_a.strings()


def test_a_refused_launch_is_no_spawn(tmp_path: Path) -> None:
    log = Log()
    log.person("go")
    log.model("m1", call("a1", "Task", prompt="p"))
    log.result("a1", "The user doesn't want to proceed with this tool use.", error=True)
    log.person("[Request interrupted by user for tool use]")
    trace, _ = one(tmp_path, log.data())
    got = types(trace)
    assert (got["tool_call"], got["tool_result"], got["spawn"], got["human_intervention"]) == (1, 1, 0, 2)


def test_waiting_for_the_person_is_not_the_tools_time(tmp_path: Path) -> None:
    log = Log()
    log.person("go")
    log.model(
        "m1",
        call("c1", "AskUserQuestion", question="which?"),
        call("c2", "Edit", file_path="a"),
        call("c3", "Read", file_path="a"),
    )
    log.result("c3")
    log.clock += 100
    log.result("c1")
    log.result("c2")
    log.model("m2", text("ok"))
    trace, _ = one(tmp_path, log.data())
    calls = {trace.tool_e[r]: r for r in range(trace.n_events) if EVENT_TYPES[trace.type_e[r]] == "tool_call"}
    spent = trace.end_e - trace.t_e
    assert [spent[calls[k]] for k in ("AskUserQuestion", "Edit", "Read")] == [0, 0, 1]
    people = [r for r in np.argsort(trace.end_e).tolist() if trace.extra_e["what"][r] is not None]
    assert [EVENT_TYPES[trace.type_e[r]] for r in people] == [
        "human_intervention",
        "message",
    ]  # leave to go on changes nothing
    assert [trace.name_a[trace.agent_e[r]] for r in people] == ["person", "person"]
    assert [json.loads(str(trace.extra_e["what"][r])) for r in people] == ["answered", "approved"]
    assert spent[people].tolist() == [102, 103]
    assert trace.extra_e["inferred"][people[0]] is None
    assert trace.extra_e["inferred"][people[1]] == '"an edit takes no time"'


def test_time_between_an_answer_and_the_next_prompt_is_the_persons(tmp_path: Path) -> None:
    log = Log()
    log.person("go")
    log.model("m1", text("done"))
    log.clock += 500
    log.person("and now this")
    log.model("m2", call("c1", "Bash", command="ls"))
    log.person("faster")  # while the team works: no time of the person's
    log.result("c1")
    log.model("m3", text("done"))
    trace, _ = one(tmp_path, log.data())
    mine = np.flatnonzero(np.array(trace.name_a.strings())[trace.agent_e] == "person")
    assert (trace.end_e - trace.t_e)[mine].tolist()[1] == 501
    assert np.isnan(trace.end_e[mine[[0, 2]]]).all()
    assert trace.task_e[mine].tolist() == [0, 1, 2]
    (x,) = np.flatnonzero((trace.dst_x == mine[1]) & (trace.inferred_x == 1))
    assert (trace.rule_x[int(x)], EVENT_TYPES[trace.type_e[trace.src_x[x]]]) == (
        "next prompt after an answer",
        "message",
    )


def test_a_team_and_its_mail(tmp_path: Path) -> None:
    log = Log()
    log.person("form a team")
    log.model(
        "m1",
        call("t1", "TeamCreate", team_name="crew"),
        call("a1", "Agent", prompt="hi", name="bob", team_name="crew"),
    )
    log.result("t1")
    log.result(
        "a1",
        "spawned",
        said={"status": "teammate_spawned", "teammate_id": "bob@crew", "name": "bob", "agent_id": "bob@crew"},
    )
    log.model("m2", call("s1", "SendMessage", to="bob", message="start"))
    log.result("s1")
    log.person('<teammate-message teammate_id="bob" summary="done">\nall done\n</teammate-message>')
    log.model("m3", text("Bob is done."))
    trace, said = one(tmp_path, log.data())
    assert said == []
    names = trace.name_a.strings()
    mail = [
        (names[trace.agent_e[r]], names[trace.to_e[r]])
        for r in range(trace.n_events)
        if EVENT_TYPES[trace.type_e[r]] == "message" and trace.to_e[r] != trace.agent_e[r]
    ]
    assert mail == [("person", "main"), ("main", "bob"), ("bob", "main"), ("main", "person")]
    assert types(trace)["spawn"] == 1


def test_a_compaction_is_no_agent(tmp_path: Path) -> None:
    log = sessions.simple()
    summary = Log(first=log.clock, prefix="k")
    summary.add(
        "user",
        message={"role": "user", "content": "Your task is to create a summary"},
        agentId="acompact-1",
        isSidechain=True,
    )
    summary.add(
        "assistant",
        message=message("k1", text("<summary>"), stop="end_turn"),
        agentId="acompact-1",
        isSidechain=True,
    )
    log.clock = summary.clock
    log.add(
        "system",
        subtype="compact_boundary",
        compactMetadata={"trigger": "auto", "preTokens": 1103},
        content="Conversation compacted",
    )
    log.person("This session is being continued from a previous conversation.", isCompactSummary=True)
    log.model("m9", text("Going on."))
    trace, said = one(
        tmp_path, ("5e55.jsonl", log.data()), ("5e55/subagents/agent-acompact-1.jsonl", summary.data())
    )
    assert said == []
    assert trace.name_a.strings() == ["person", "main"]
    assert [w for w in trace.extra_e["compacted"].strings() if w] == ['{"trigger":"auto","tokens":1103}']
    assert [w for w in trace.extra_e["compaction"].strings() if w] == ["true"]
    assert int(trace.task_e.max()) == 1  # the summary is not the person's


def same(a: Trace, b: Trace) -> bool:
    return log.write(a) == log.write(b)


def test_the_same_again_changes_nothing(tmp_path: Path) -> None:
    main, own = sessions.with_progress()
    whole, inner = ("p/5e55.jsonl", main.data()), ("p/5e55/subagents/agent-af3b.jsonl", own.data())
    once, _ = one(tmp_path / "once", whole, inner)
    copied = main.data().replace(b'"sessionId":"5e55"', b'"sessionId":"another"')
    prefix = b"".join(main.data().splitlines(True)[:4])
    for name, more in {
        "twice": [("q/5e55.jsonl", main.data()), ("q/5e55/subagents/agent-af3b.jsonl", own.data())],
        "prefix": [("p/0.jsonl", prefix)],
        "prefix after": [("p/zz.jsonl", prefix)],
        "resumed": [("p/another.jsonl", copied)],
        "packed": [("p/5e55.jsonl.xz", lzma.compress(main.data()))],
    }.items():
        again, said = one(tmp_path / name, whole, inner, *more)
        assert said == [], name
        assert same(once, again), name
    assert [r.trace is not None for r in files.read(tmp_path / "once", tmp_path / "once")] == [True, True]


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tar.xz"])
def test_archives(tmp_path: Path, kind: str) -> None:
    main, own = sessions.with_progress()
    members = {
        "p/5e55.jsonl": main.data(),
        "p/5e55/subagents/agent-af3b.jsonl": own.data(),
        "LICENSE": b"MIT License\n",
    }
    plain, _ = one(tmp_path / "plain", *list(members.items())[:2])
    path = tmp_path / f"logs.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
    else:
        with tarfile.open(path, "w" + kind[3:].replace(".", ":")) as tar:
            for name, data in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    unknown, run = files.read(path)
    assert run.trace is not None
    assert same(plain, run.trace)
    assert unknown.trace is None
    assert "it looks like text, 'MIT License'" in unknown.findings[0].message


FAULTS: dict[str, Any] = {
    "broken JSON": (lambda lines: [*lines[:2], b'{"type": "user", \n', *lines[2:]], 3, "not JSON"),
    "two objects on one line": (
        lambda lines: [lines[0].rstrip() + lines[1], *lines[2:]],
        1,
        "2 objects on one line",
    ),
    "a torn last line": (lambda lines: [*lines, lines[0][:50]], 10, "a torn line, which ends after 50 bytes"),
    "not an object": (lambda lines: [*lines[:1], b"42\n", *lines[1:]], 2, "Expected `object`, got `int`"),
    "not the type": (
        lambda lines: [lines[0].replace(b'"type":"user"', b'"type":7'), *lines[1:]],
        1,
        "Expected `str | null`, got `int`",
    ),
    "no time": (
        lambda lines: [lines[0].replace(b"2026-02", b"tomorrow"), *lines[1:]],
        1,
        "expected a time, got 'tomorrow",
    ),
    "a call id used twice": (
        lambda lines: [*lines[:3], lines[3].replace(b'"c2"', b'"c1"'), *lines[4:]],
        4,
        "the call id 'c1' is used twice, first in line 3",
    ),
    "a uuid used twice": (
        lambda lines: [lines[0], lines[1].replace(b'"u-1"', b'"u-0"'), *lines[2:]],
        2,
        "is also that of line 1",
    ),
    "a second result": (
        lambda lines: [*lines[:5], lines[5].replace(b'"c2"', b'"c1"'), *lines[6:]],
        6,
        "a second result of the call 'c1', first in line 5",
    ),
    "a result of no call": (
        lambda lines: [*lines[:2], *lines[3:]],
        4,
        "a result of the call 'c1', which is not in the log",
    ),
    "a record without a message": (
        lambda lines: [b'{"type":"user","uuid":"x","sessionId":"5e55"}\n', *lines],
        1,
        "a record of type user without a message",
    ),
}


@pytest.mark.parametrize("what", FAULTS)
def test_what_is_broken_is_named_and_the_rest_is_read(tmp_path: Path, what: str) -> None:
    broken, line, words = FAULTS[what]
    lines = sessions.simple().data().splitlines(True)
    trace, said = one(tmp_path, b"".join(broken(lines)))
    assert any(s.startswith(f"0.jsonl:{line}: ") and words in s for s in said), said
    assert trace.n_events >= 7


def test_without_the_main_file(tmp_path: Path) -> None:
    _, own = sessions.with_progress()
    trace, said = one(tmp_path, ("5e55/subagents/agent-af3b.jsonl", own.data()))
    assert types(trace)["tool_call"] == 1
    assert said == [
        "agent-af3b.jsonl:1: no launch of the agent 'af3b' is in the log; imported without one",
        "agent-af3b.jsonl: the main file of the session is missing",
    ]


def test_an_agent_that_nobody_launched(tmp_path: Path) -> None:
    _, own = sessions.with_progress()
    trace, said = one(
        tmp_path, ("5e55.jsonl", sessions.simple().data()), ("5e55/subagents/agent-af3b.jsonl", own.data())
    )
    assert types(trace)["tool_call"] == 3
    assert said == ["agent-af3b.jsonl:1: no launch of the agent 'af3b' is in the log; imported without one"]


def test_times_that_go_backwards_are_told(tmp_path: Path) -> None:
    log = sessions.simple()
    log.lines[6]["timestamp"] = "2026-02-05T11:59:00.000Z"
    _, said = one(tmp_path, log.data())
    assert len(said) == 1
    assert "causes that are later by the log's clock" in said[0]
