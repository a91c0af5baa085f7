"""The first screen on sessions written here: what it says of a team, and what it does not know."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from podium.trace import files
from podium.view.folder import Comparison, comparison_screen
from podium.view.screen import screen
from podium.view.summary import RunSummary, summary
from tests.verbs import verb

USAGE = {"input_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 90, "output_tokens": 5}


class Talk:
    """A session of Claude Code, line by line, with the clock in seconds."""

    def __init__(self, session: str = "talk") -> None:
        self.session, self.lines = session, []

    def line(self, clock: float, type: str, result: Any = None, **message: Any) -> None:
        stamp = f"2026-07-05T12:{int(clock) // 60:02}:{clock % 60:06.3f}Z"
        record = {
            "type": type,
            "sessionId": self.session,
            "uuid": f"{self.session}{len(self.lines)}",
            "timestamp": stamp,
        }
        more = {} if result is None else {"toolUseResult": result}
        self.lines.append(record | more | {"message": {"role": type} | message})

    def turn(self, clock: float, id: str, *content: Any, model: str = "claude-sonnet-5", **usage: Any) -> None:
        hour = {"cache_creation": {"ephemeral_1h_input_tokens": 0}}
        self.line(
            clock, "assistant", id=id, model=model, content=list(content), usage=USAGE | hour | usage, stop_reason="end_turn"
        )  # fmt: skip

    def answer(self, clock: float, id: str, text: str, failed: bool = False, stated: Any = None) -> None:
        block = {"type": "tool_result", "tool_use_id": id, "content": text, "is_error": failed}
        self.line(clock, "user", result=stated, content=[block])

    def write(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        return path


def call(id: str, tool: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": tool, "input": given}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def summed(path: Path) -> RunSummary:
    (read,) = (one for one in files.read(path, keep=True) if one.trace is not None)
    assert read.trace is not None
    return summary(read.trace)


@pytest.fixture
def team(tmp_path: Path) -> RunSummary:
    """Two sub-agents, of which the log has only what their launches returned; the lead uses one of the two."""
    talk = Talk()
    talk.line(0, "user", content="Find the bug")
    talk.turn(
        10,
        "m1",
        call("a", "Task", prompt="Look at basket.py", description="Look at the basket"),
        call("b", "Task", prompt="Look at order.py"),
    )
    stated = {"status": "completed", "totalToolUseCount": 3, "totalTokens": 4000, "totalDurationMs": 20_000}
    talk.answer(40, "a", "In checkout_total the rounding of vat_rate2 is wrong", stated={**stated, "agentId": "x1"})
    talk.answer(
        50, "b", "Nothing wrong in place_order, see test_orders_77 and cart_id", stated={**stated, "agentId": "x2"}
    )
    talk.turn(60, "m2", call("e", "Edit", file_path="basket.py", new_string="def checkout_total(vat_rate2): ..."))
    talk.answer(61, "e", "ok")
    talk.turn(65, "m3", text("Mended."))
    return summed(talk.write(tmp_path / "talk.jsonl"))


def test_what_became_of_returns(team: RunSummary) -> None:
    lead, one, other = team.agents
    assert (lead.name, one.parent, one.task, other.depth) == ("main", "main", "Look at the basket", 1)
    assert one.returned is not None
    assert other.returned is not None
    assert (one.returned.fate, one.returned.words, one.returned.found) == ("used", 2, 2)
    assert (other.returned.fate, other.returned.words) == ("no trace", 3)
    assert [h.rule for h in team.habits if h.times] == ["unused_agents"]


def test_what_is_not_in_the_log_is_not_counted(team: RunSummary) -> None:
    one = team.agents[1]
    assert (one.missing, one.calls, one.stated_calls, one.context.stated) == (True, 0, 3, 4000)
    assert one.tally.usd != one.tally.usd
    assert (team.missing_agents, team.spending.at_least) == (2, True)
    lines = [line.plain for line in screen(team, 80)]
    assert "  Not in the price: turns of 2 sub-agents that are not in the log." in lines
    assert any(line.startswith("    Look at the basket") and line.endswith("used") for line in lines)


def test_every_moment_counts_once(team: RunSummary) -> None:
    clock = team.clock
    parts = clock.model, clock.tools, clock.unseen, clock.person, clock.idle
    assert clock.wall == pytest.approx(65)
    assert sum(parts) == pytest.approx(65)
    assert clock.unseen == pytest.approx(30)  # 20 to 40 and 30 to 50 seconds
    assert (clock.person, clock.most_at_once) == (0, 2)


def test_reads_that_do_not_wait_for_each_other(tmp_path: Path) -> None:
    talk = Talk()
    talk.line(0, "user", content="Read")
    for i, (name, found) in enumerate(
        [("one.py", "import three.py"), ("two.py", "nothing"), ("three.py", "nothing")]
    ):
        talk.turn(10 * i + 4, f"m{i}", call(f"c{i}", "Read", file_path=f"/src/{name}"))
        talk.answer(10 * i + 6, f"c{i}", found)
    talk.turn(40, "end", text("Done"))
    (group,) = summed(talk.write(tmp_path / "talk.jsonl")).apart or ()
    assert (group.what, group.names) == ("reads", ["Read", "Read"])  # three.py was named by what came back first
    assert group.seconds == pytest.approx(8 + 2)  # the second turn, and the shorter of the two calls


def test_a_cache_that_ran_out_and_a_call_made_again(tmp_path: Path) -> None:
    talk = Talk()
    talk.line(0, "user", content="Test")
    talk.turn(
        4,
        "m1",
        call("c1", "Bash", command="make test"),
        cache_read_input_tokens=0,
        cache_creation_input_tokens=50_000,
    )
    talk.answer(6, "c1", "broken", failed=True)
    talk.turn(9, "m2", call("c2", "Bash", command="make test"), cache_read_input_tokens=50_000)
    talk.answer(12, "c2", "broken", failed=True)
    talk.turn(15, "m3", text("It fails"), cache_read_input_tokens=50_000)
    talk.line(900, "user", content="Again")
    talk.turn(905, "m4", text("No"), cache_read_input_tokens=0, cache_creation_input_tokens=50_000)
    one = summed(talk.write(tmp_path / "talk.jsonl"))
    found = {habit.rule: habit for habit in one.habits}
    again = found["context_again"]
    assert (again.times, again.tokens) == (1, 50_010)
    assert again.usd == pytest.approx((50_000 * (2.5 - 0.2) + 10 * (2 - 0.2)) / 1e6)
    assert (found["same_call_again"].times, one.trouble.failed_calls) == (1, 2)
    assert one.clock.prompts == pytest.approx(885)
    assert [task.prompt for task in one.tasks] == ["Test", "Again"]
    assert one.ending.how == "answered"


def test_json_is_strict_and_a_screen_fits(team: RunSummary) -> None:
    said = json.loads(msgspec.json.encode(team), parse_constant=lambda word: pytest.fail(word))
    assert said["agents"][1]["tally"]["usd"] is None
    for width in (60, 80, 120):
        assert max(len(line.plain) for line in screen(team, width)) <= width


def test_folders_are_compared(tmp_path: Path) -> None:
    many = Comparison()
    for name, output in (("cheap", 10), ("dear", 1_000_000)):
        talk = Talk(name)
        talk.line(0, "user", content=f"Be {name}")
        talk.turn(5, "m", text("Yes"), output_tokens=output)
        path = talk.write(tmp_path / f"{name}.jsonl")
        many.add(summed(path), str(path))
    assert [day.name for day in many.days] == ["2026-07-05"]
    assert many.days[0].usd == pytest.approx(sum(run.usd for run in many.runs))
    lines = [line.plain for line in comparison_screen(many, 80)]
    assert lines[0] == "2 runs, 10 s of work, $10.00"
    assert lines[2].split()[:3] == ["1", "Be", "dear"]
    answer = verb("show", str(tmp_path), "--json")
    assert [run["prompt"] for run in json.loads(answer.stdout)["runs"]] == ["Be cheap", "Be dear"]
    assert "Be dear" in verb("show", str(tmp_path), "--run", "1").stdout
    refused = verb("show", str(tmp_path), "--run", "2")
    assert (refused.returncode, "there is no run 2; there are 2" in refused.stderr) == (2, True)
    refused = verb("show", str(tmp_path), "--html", str(tmp_path / "page.html"))
    assert (refused.returncode, "choose one with --run" in refused.stderr) == (2, True)


def test_prices_of_ones_own(tmp_path: Path) -> None:
    talk = Talk()
    talk.line(0, "user", content="Hello")
    talk.turn(5, "m", text("Yes"), model="mine")
    path = talk.write(tmp_path / "talk.jsonl")
    assert "What it cost  no price" in verb("show", str(path)).stdout
    table = tmp_path / "prices.toml"
    table.write_text(
        '[[price]]\nmodels=["mine"]\ninput=1e5\ncache_read=0.0\noutput=0.0\nsource="x"\nread=2026-01-01\n'
    )
    assert "What it cost  $1.00" in verb("show", str(path), "--prices", str(table)).stdout


def test_what_lies_beside_a_session_belongs_to_it(tmp_path: Path) -> None:
    talk = Talk()
    talk.line(0, "user", content="Look")
    talk.turn(5, "m1", call("a", "Task", prompt="Look"))
    talk.answer(30, "a", "found", stated={"status": "completed", "agentId": "x1", "totalToolUseCount": 0})
    own = Talk("own")
    own.line(6, "user", content="Look")
    own.turn(20, "k1", text("found"))
    for line in own.lines:
        line |= {"agentId": "x1", "isSidechain": True, "sessionId": "talk"}
    path = talk.write(tmp_path / "talk.jsonl")
    assert summed(path).missing_agents == 1
    own.write(tmp_path / "talk/subagents/agent-x1.jsonl")
    one = summed(path)
    assert (one.missing_agents, [a.tally.turns for a in one.agents]) == (0, [1, 1])


def test_the_newest_session_that_can_be_read(tmp_path: Path) -> None:
    where = {"HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": "", "CODEX_HOME": ""}
    projects = tmp_path / ".claude/projects/-work"
    talk = Talk()
    talk.line(0, "user", content="Hello")
    talk.turn(5, "m", text("Yes"))
    os.utime(talk.write(projects / "good.jsonl"), (50, 50))
    (projects / "empty.jsonl").touch()
    (projects / "folder.jsonl").mkdir()
    (projects / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    answer = verb("show", cwd=tmp_path, **where)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith(f"the newest session: {projects / 'good.jsonl'}\n")
    (projects / "broken.jsonl").write_text("not a log\n")
    answer = verb("show", cwd=tmp_path, **where)
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    talk = Talk()
    talk.line(0, "user", content="\x1b[31m[red]<script>alert(1)</script>[/]")
    talk.turn(5, "m", text("\x1b]0;title\x07"), model="\x1b[2J")
    answer = verb("show", str(talk.write(tmp_path / "talk.jsonl")))
    assert "\x1b" not in answer.stdout
    assert r"\x1b[31m[red]<script>" in answer.stdout


def test_the_task_of_spans_is_what_their_first_agent_was_given(tmp_path: Path) -> None:
    def span(id: str, parent: str, start: int, end: int, **attributes: str) -> dict[str, Any]:
        pairs = [{"key": k, "value": {"stringValue": v}} for k, v in attributes.items()]
        times = {"startTimeUnixNano": str(start * 10**9), "endTimeUnixNano": str(end * 10**9)}
        return {"traceId": "7" * 32, "spanId": id * 16, "parentSpanId": parent * 16, "attributes": pairs} | times

    lead = {"openinference.span.kind": "AGENT", "input.value": '["Look it up."]'}
    spans = [span("a", "", 1, 9, **lead), span("b", "a", 1, 3, **{"openinference.span.kind": "LLM"})]
    path = tmp_path / "spans.json"
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
    (read,) = files.read(path, keep=True)
    assert read.trace is not None
    assert [task.prompt for task in summary(read.trace).tasks] == ["Look it up."]
