"""Codex rollouts: the real files against a plain count, and what goes wrong in a log."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign import (
    agent,
    count,
    edges,
    errors,
    faults,
    here,
    imported,
    obeys_the_laws,
    real,
    rows,
    run_of,
    runs_of,
    text_of,
    total,
)

from podium.trace import files

CALLS = ("function_call", "custom_tool_call", "tool_search_call")
OUTPUTS = ("function_call_output", "custom_tool_call_output", "tool_search_output")


def plain_count(text: str) -> Counter[str]:
    """What a rollout holds, by nothing but json and dicts."""
    counts: Counter[str] = Counter()
    ids, answered, started = set(), set(), set()
    before = None
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            counts["broken"] += 1
            continue
        item = record["payload"]
        kind = item.get("type")
        if record["type"] == "compacted":
            counts["compacted"] += 1
        elif record["type"] == "response_item" and kind in CALLS:
            ids.add(item["call_id"])
            counts["spawn calls"] += item.get("name") == "spawn_agent"
        elif record["type"] == "response_item" and kind in OUTPUTS:
            answered.add(item["call_id"])
        elif record["type"] == "response_item":
            counts["searches"] += kind == "web_search_call"
            counts["answers"] += kind == "agent_message" and "FINAL_ANSWER" in json.dumps(item["content"])
        elif kind == "sub_agent_activity" and item["kind"] == "started":
            started.add(item["event_id"])
        elif kind == "user_message":
            counts["prompts"] += 1
        elif kind == "turn_aborted":
            counts["aborted"] += 1
        elif kind == "token_count" and item["info"]:
            now, last = item["info"]["total_token_usage"], item["info"]["last_token_usage"]
            used = now if before is None else {k: now[k] - before.get(k, 0) for k in now}
            if before is not None and now["total_tokens"] < before["total_tokens"]:
                used = last
            before = now
            for name in used:
                counts[name] += used[name]
            counts["turns"] += used["total_tokens"] > 0
    counts["calls"], counts["outputs"], counts["spawned"] = len(ids), len(answered & ids), len(started)
    return counts


def compactions(trace: Any) -> int:
    return (
        sum(text is not None for text in trace.extra_e["compacted"].strings())
        if "compacted" in trace.extra_e
        else 0
    )


@pytest.mark.parametrize("path", real("codex/*.jsonl.xz"))
def test_a_real_rollout_has_what_a_plain_count_finds(path: Path) -> None:
    known = plain_count(text_of(path))
    trace, findings = imported(path)
    assert count(trace, "tool_call") == known["calls"] + known["searches"]
    assert count(trace, "tool_result") == known["outputs"] + known["searches"]
    assert count(trace, "spawn") == known["spawned"]
    assert count(trace, "return") == known["answers"]
    assert compactions(trace) == known["compacted"]
    by_person = [
        row for row in rows(trace, "message") + rows(trace, "human_intervention") if agent(trace, row) == "person"
    ]
    assert len(by_person) == known["prompts"] + known["aborted"]
    read, out = total(trace.cache_read_e), total(trace.tokens_out_e)
    assert read == known["cached_input_tokens"]
    assert total(trace.tokens_in_e) + read == known["input_tokens"]
    assert out == known["output_tokens"]
    assert int((~np.isnan(trace.tokens_in_e)).sum()) == known["turns"]
    assert len(faults(findings)) == known["broken"]
    assert errors(findings) == []
    obeys_the_laws(trace)


@here
def test_the_real_rollouts_add_up_to_what_their_readme_says() -> None:
    sums: Counter[str] = Counter()
    for parameter in real("codex/*.jsonl.xz"):
        trace, findings = imported(parameter.values[0])
        tools = trace.tool_e.strings()
        sums["searches"] += sum(tools[row] == "web_search" for row in rows(trace, "tool_call"))
        sums["spawn calls"] += sum(tools[row] == "spawn_agent" for row in rows(trace, "tool_call"))
        sums["calls"] += count(trace, "tool_call")
        sums["results"] += count(trace, "tool_result")
        sums["spawns"] += count(trace, "spawn")
        columns = trace.tokens_in_e, trace.cache_read_e, trace.cache_write_e, trace.tokens_out_e
        sums["tokens"] += int(sum(map(total, columns)))
        sums["compactions"] += compactions(trace)
        sums["faults"] += len(faults(findings))
    assert sums == {
        "searches": 5,
        "spawn calls": 11,
        "calls": 1614 + 5,
        "results": 1613 + 5,
        "spawns": 9,
        "tokens": 134_049_634,
        "compactions": 5,
        "faults": 1,
    }


@here
def test_the_broken_line_of_a_real_rollout_is_named() -> None:
    [path] = [p.values[0] for p in real("codex/019f8c04*")]
    _, findings = imported(path)
    [fault] = faults(findings)
    assert f"{path.name}:49: not JSON" in fault


# small rollouts of our own


class Rollout:
    """Lines of a rollout, a second apart."""

    def __init__(self, id: str = "t1", start: int = 0, **meta: Any) -> None:
        self.lines: list[str] = []
        self.second = start
        self.line("session_meta", id=id, cwd="/work", cli_version="0.140.0", **({"source": "cli"} | meta))

    def line(self, kind: str, /, **payload: Any) -> Rollout:
        stamp = f"2026-07-01T10:{self.second // 60:02}:{self.second % 60:02}.000Z"
        self.lines.append(json.dumps({"timestamp": stamp, "type": kind, "payload": payload}))
        self.second += 1
        return self

    def item(self, type: str, /, **payload: Any) -> Rollout:
        return self.line("response_item", type=type, **payload)

    def event(self, type: str, /, **payload: Any) -> Rollout:
        return self.line("event_msg", type=type, **payload)

    def prompt(self, text: str = "do it") -> Rollout:
        return self.event("task_started").event("user_message", message=text)

    def think(self) -> Rollout:
        return self.item("reasoning", summary=[])

    def call(self, id: str, name: str = "exec_command", /, **arguments: Any) -> Rollout:
        return self.item("function_call", name=name, call_id=id, arguments=json.dumps(arguments))

    def output(self, id: str, output: Any = "Process exited with code 0") -> Rollout:
        return self.item("function_call_output", call_id=id, output=output)

    def count(self, total: int, last: int) -> Rollout:
        def usage(n: int) -> dict[str, int]:
            return {"input_tokens": n - 1, "cached_input_tokens": n // 2, "output_tokens": 1, "total_tokens": n}

        return self.event("token_count", info={"total_token_usage": usage(total), "last_token_usage": usage(last)})

    def say(self, text: str = "done") -> Rollout:
        return self.item("message", role="assistant", content=[{"type": "output_text", "text": text}])

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def child_of(parent: str, path: str, **meta: Any) -> dict[str, Any]:
    spawn = {"parent_thread_id": parent, "depth": 1, "agent_path": path, "agent_role": "explorer"}
    return {"parent_thread_id": parent, "source": {"subagent": {"thread_spawn": spawn}}} | meta


def team() -> tuple[Rollout, Rollout]:
    """A thread that launches an agent, is refused another, and waits; and the thread of the agent."""
    main = Rollout("t1").prompt().think()
    main.call("s0", "spawn_agent", task_name="bad", agent_type="explorer").output(
        "s0", "Full-history forked agents inherit"
    )
    main.think().call("s1", "spawn_agent", task_name="look", agent_type="explorer")
    main.event("sub_agent_activity", event_id="s1", agent_path="/root/look", agent_thread_id="t2", kind="started")
    main.output("s1", json.dumps({"task_name": "/root/look"})).count(100, 100)
    main.think().call("w", "wait_agent", timeout_ms=9000)
    child = Rollout("t2", main.second, **child_of("t1", "/root/look"))
    child.event("user_message", message="look").think().call("c1").output("c1").count(40, 40).say("found").count(
        60, 20
    )
    main.second = child.second + 1
    text = [
        {
            "type": "input_text",
            "text": "Message Type: FINAL_ANSWER\nTask name: /root\nSender: /root/look\nPayload:\nfound",
        }
    ]
    main.item("agent_message", author="/root/look", recipient="/root", content=text)
    main.output("w", "{}").think().say().count(180, 80).event("task_complete", last_agent_message="done")
    return main, child


def test_threads_of_one_session_are_one_run() -> None:
    main, child = team()
    trace, findings = run_of("codex", main.text, child.text)
    assert errors(findings) == []
    assert trace.name_a.strings() == ["person", "main", "look"]
    [spawn], [back] = rows(trace, "spawn"), rows(trace, "return")
    assert (agent(trace, spawn), agent(trace, back), trace.role_e[spawn]) == ("main", "look", "explorer")
    inner = [row for row in rows(trace, "tool_call") if agent(trace, row) == "look"]
    assert len(inner) == 1
    first = min(row for row in range(trace.n_events) if agent(trace, row) == "look")
    assert (spawn, first) in edges(trace, "spawn")
    said = max(row for row in rows(trace, "message") if agent(trace, row) == "look")
    assert (said, back) in edges(trace, "causal")
    [reads] = rows(trace, "aggregate")
    assert (back, reads) in edges(trace, "aggregate")
    assert total(trace.tokens_in_e) + total(trace.cache_read_e) + total(trace.tokens_out_e) == 180 + 60
    obeys_the_laws(trace)


def test_files_of_a_folder_that_name_each_other_are_one_run(tmp_path: Path) -> None:
    main, child = team()
    for name, text in (("a", child.text), ("b", main.text), ("c", Rollout("t7").prompt("else").say().text)):
        (tmp_path / f"rollout-{name}.jsonl").write_text(text)
    traces = [one.trace for one in files.read(tmp_path)]
    assert sorted(trace.n_events for trace in traces if trace is not None) == [
        2,
        run_of("codex", main.text, child.text)[0].n_events,
    ]


def test_content_is_a_hash_unless_it_is_asked_for() -> None:
    text = Rollout().prompt("my key is sk-ant-api03-" + "a1B2" * 20).say().text
    [(hashed, _)], [(kept, _)] = runs_of("codex", text), runs_of("codex", text, keep=True)
    assert hashed is not None
    assert kept is not None
    assert hashed.content_ref_e[0] == kept.content_ref_e[0]
    assert "content" not in hashed.extra_e
    assert "my key is" in str(kept.extra_e["content"][0])
    assert "a1B2a1B2" not in str(kept.extra_e["content"][0])


def test_a_launch_that_was_refused_is_a_failed_call_and_no_spawn() -> None:
    trace, _ = run_of("codex", team()[0].text)
    assert count(trace, "spawn") == 1
    calls = [row for row in rows(trace, "tool_call") if trace.tool_e[row] == "spawn_agent"]
    results = [row for row in rows(trace, "tool_result") if trace.tool_e[row] == "spawn_agent"]
    assert len(calls) == len(results) == 2
    assert [int(trace.valid_e[row]) for row in results] == [0, -1]


def test_an_agent_whose_thread_is_not_there_worked_until_it_answered() -> None:
    trace, _ = run_of("codex", team()[0].text)
    [spawn], [back] = rows(trace, "spawn"), rows(trace, "return")
    assert trace.t_e[back] == trace.t_e[spawn]
    assert trace.end_e[back] > trace.t_e[spawn] + 5
    obeys_the_laws(trace)


def test_a_thread_without_its_parent_is_imported_alone() -> None:
    trace, findings = run_of("codex", team()[1].text)
    assert errors(findings) == []
    assert count(trace, "tool_call") == 1
    assert "look" in trace.name_a.strings()


def test_a_rollout_beside_its_own_beginning_is_one_run() -> None:
    text = team()[0].text
    part = "".join(line + "\n" for line in text.splitlines()[:7])
    for texts in ((text, part), (part, text), (text, text)):
        trace, _ = run_of("codex", *texts)
        assert trace == run_of("codex", text)[0]


def test_older_tools_name_threads_and_end_by_a_notice() -> None:
    main = Rollout().prompt().think().call("s", "spawn_agent", message="look", agent_type="worker")
    main.output("s", json.dumps({"agent_id": "t9", "nickname": "Ada"})).count(10, 10).think()
    main.call("m", "send_input", target="t9", message="hurry").output("m", "{}").count(20, 10)
    notice = (
        '<subagent_notification>\n{"agent_id": "t9", "status": {"completed": "found"}}\n</subagent_notification>'
    )
    main.item("message", role="user", content=[{"type": "input_text", "text": notice}]).think().say().count(30, 10)
    main.think().call("x", "close_agent", id="t9").output("x", "{}").count(40, 10)
    trace, findings = run_of("codex", main.text)
    assert errors(findings) == []
    assert [count(trace, kind) for kind in ("spawn", "return", "despawn", "aggregate")] == [1, 1, 1, 1]
    [sent] = [
        row
        for row in rows(trace, "message")
        if agent(trace, row) == "main" and trace.name_a[int(trace.to_e[row])] == "t9"
    ]
    assert (sent, rows(trace, "return")[0]) in edges(trace, "message")
    obeys_the_laws(trace)


def test_a_counter_that_is_set_back_goes_on_with_what_the_last_turn_used() -> None:
    main = Rollout().prompt().say().count(100, 100).say().count(150, 50).say().count(30, 20).say().count(50, 20)
    trace, _ = run_of("codex", main.text)
    assert total(trace.tokens_in_e) + total(trace.cache_read_e) == (99 + 50) + 19 + 20
    assert len(rows(trace, "message")) == 1 + 4


def test_the_first_count_of_a_sub_agents_thread_may_hold_its_parents() -> None:
    child = Rollout("t2", **child_of("t1", "/root/look")).event("user_message", message="look").say().count(900, 30)
    trace, _ = run_of("codex", child.text)
    assert total(trace.tokens_in_e) + total(trace.cache_read_e) == 29


def test_a_search_of_the_web_is_answered_though_it_has_no_output() -> None:
    main = Rollout().prompt().think().event("web_search_end", call_id="ws_1", query="podium")
    main.item("web_search_call", status="completed", action={"type": "search"}).say().count(10, 10)
    trace, findings = run_of("codex", main.text)
    assert [f.rule for f in findings] == []
    assert count(trace, "tool_call") == count(trace, "tool_result") == 1
    assert trace.tool_e[rows(trace, "tool_call")[0]] == "web_search"


def test_a_later_prompt_is_a_new_task_and_one_in_between_an_intervention() -> None:
    main = (
        Rollout().prompt().think().call("a").output("a").event("user_message", message="faster").say().count(9, 9)
    )
    main.event("task_complete", last_agent_message="done").prompt("next").think()
    main.event("turn_aborted", reason="interrupted")
    trace, _ = run_of("codex", main.text)
    asked = [row for row in rows(trace, "message") if agent(trace, row) == "person"]
    assert [int(trace.task_e[row]) for row in asked] == [0, 1]
    assert [int(trace.task_e[row]) for row in rows(trace, "human_intervention")] == [0, 1]


def test_a_task_that_failed_says_so() -> None:
    main = (
        Rollout()
        .prompt()
        .event("task_complete", last_agent_message=None, error={"message": "You've hit your usage limit."})
    )
    trace, _ = run_of("codex", main.text)
    [row] = [row for row in rows(trace, "message") if agent(trace, row) == "main"]
    assert trace.valid_e[row] == 0


def test_what_is_broken_is_named_by_its_line_and_the_rest_imported() -> None:
    main = Rollout().prompt().think().call("a").output("a").think().call("a").output("b").say().count(9, 9)
    lines = main.lines
    lines.insert(2, '{"timestamp": "2026-')
    lines[3] += lines[3].replace("do it", "and that")
    lines.append('{"timestamp": "2026-07-01T10:00:59Z", "type": "response_item", "payload": 3}')
    lines.append('{"timestamp": "soon", "type": "event_msg", "payload": {"type": "task_complete"}}')
    trace, findings = run_of("codex", "\n".join(lines) + '\n{"torn": ')
    said = faults(findings)
    for part in (
        "log0:3: not JSON",
        "log0:4: 2 objects on one line",
        "log0:9: a second call with the id a",
        "log0:10: an output for no call: b",
        "log0:13: not a response_item as Codex writes them",
        "log0:14: a time that is none: 'soon'",
        "log0:15: a torn line",
    ):
        assert any(part in fault for fault in said), (part, said)
    assert count(trace, "tool_call") == count(trace, "tool_result") == 1
    assert errors(findings) == []


def test_a_rollout_without_a_run_has_no_trace() -> None:
    [(trace, findings)] = runs_of("codex", Rollout().text)
    assert trace is None
    assert [f.rule for f in findings] == ["empty-run"]


@pytest.mark.parametrize("seed", range(40))
def test_a_mutated_rollout_is_imported_as_far_as_it_goes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = bytearray("".join(one.text for one in team()).encode())
    for _ in range(int(rng.integers(1, 12))):
        at = int(rng.integers(len(data)))
        match int(rng.integers(3)):
            case 0:
                data[at] = int(rng.integers(256))
            case 1:
                del data[at : at + int(rng.integers(1, 400))]
            case _:
                data[at:at] = data[int(rng.integers(len(data))) :][: int(rng.integers(1, 400))]
    for trace, _ in runs_of("codex", bytes(data)):
        if trace is not None:
            obeys_the_laws(trace)
