"""Findings against observations, on runs of the shape that coding agents leave: narration, the web, open calls."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from staged import granted, staged

from podium.audit import Answer, Second, audit
from podium.audit.report import described, report
from podium.graph.trust import WRITERS, declared_writers, trusting
from podium.trace.columns import Trace
from podium.trace.files import save

WEB = (
    "message user>main role=user",
    "call main tool=WebFetch < 0:message",
    "result WebFetch tool=WebFetch < 1:return",
    "call main tool=Edit < 2:tool_dependency",
    "result Edit tool=Edit < 3:return",
)
LOCAL = tuple(line.replace("WebFetch", "Read") for line in WEB)

NOTHING = Second()


def asked(name: str, trace: Trace, second: Second = NOTHING) -> Answer:
    (answer,) = audit(trace, second, [name])
    return answer


def test_use_of_the_web_is_an_observation_and_no_finding() -> None:
    answer = asked("indirect_injection", staged(*WEB))
    assert (answer.suspects.row.tolist(), answer.finding.tolist()) == ([2, 3], [False])
    told = report(staged(*WEB), only=["indirect_injection"])
    (one,) = told["observed"]
    assert (told["found"], told["not_found"], one["level"], one["count"]) == ([], [], "observation", 1)
    assert one["suspects"][0]["confidence"] == "certain"


def test_what_untrusted_content_did_is_a_finding() -> None:
    second = Second(privileged=frozenset({"Edit"}))
    assert asked("tainted_privilege", staged(*WEB), second).finding.tolist() == [True]
    assert not len(asked("tainted_privilege", staged(*LOCAL), second).suspects)


def test_trust_follows_who_can_write_what_a_tool_returns() -> None:
    for tool in ("Read", "Grep", "mcp__linear__list_issues"):  # foreign is not untrusted
        answer = asked("indirect_injection", staged(*(line.replace("WebFetch", tool) for line in WEB)))
        assert (len(answer.suspects), answer.suspects.tells_n.tolist()) == (0, [True]), tool
    shell = asked("indirect_injection", staged(*(line.replace("WebFetch", "Bash") for line in WEB)))
    assert (len(shell.suspects), shell.suspects.tells_n.tolist()) == (0, [False])  # it depends on the command
    assert set(declared_writers().values()) <= set(WRITERS)


def test_the_users_table_comes_before_a_mark_and_a_mark_before_the_declared_table() -> None:
    marked = staged("call main tool=Read", "result Read tool=Read trusted=0 < 0:return")
    vouched = staged("call main tool=WebFetch", "result WebFetch trusted=1 < 0:return")
    bare = staged("call main tool=WebFetch", "result x < 0:return")  # the tool is its call's
    assert [trusting(t, {}).trusted_e[1] for t in (marked, vouched, bare)] == [0, 1, 0]
    own = {"Read": "user", "Web*": "anyone"}
    assert [trusting(t, own).trusted_e[1] for t in (marked, vouched, bare)] == [1, 0, 0]
    assert trusting(marked, {"Read": "unknown"}).trusted_e[1] == 0
    assert trusting(bare, own).trusted_e[0] == -1  # only results have writers


FETCHED = ("call main tool=Read", "result x tool=WebSearch < 0:return", "call main tool=WebFetch role=lead < 1")


def test_a_tool_that_is_new_to_its_role_is_no_escalation_without_a_list() -> None:
    told = report(staged(*FETCHED), only=["parameter_escalation"])
    assert (told["found"], told["observed"]) == ([], [])
    assert "--allow or `granted` on spawns" in told["cannot_tell"][0]["needs"]
    listed = Second(allowed={"lead": frozenset({"Read"})})
    assert asked("parameter_escalation", staged(*FETCHED), listed).finding.tolist() == [True]
    assert asked("parameter_escalation", staged(*FETCHED), listed).confidence(staged(*FETCHED)) == ["certain"]


def test_edges_that_were_inferred_make_it_likely_at_most() -> None:
    trace = staged(*WEB)
    guessed = replace(trace, inferred_x=np.ones(len(trace.src_x), trace.inferred_x.dtype))
    assert asked("indirect_injection", trace).confidence(trace) == ["certain"]
    assert asked("indirect_injection", guessed).confidence(guessed) == ["likely"]
    lost = staged("call main tool=Read", "call main tool=Read", "decide main")
    assert asked("missing_result", lost).confidence(lost) == ["certain"] * 2


def test_a_spawn_on_untrusted_content_is_an_observation_a_grant_beyond_the_parents_a_finding() -> None:
    led = staged(
        "result WebFetch tool=WebFetch", "decide lead < 0", "spawn lead>ann < 1:spawn", "call ann tool=Read"
    )
    answer = asked("sandbox_escape", led)
    assert (answer.suspects.figure.tolist(), answer.finding.tolist()) == ([1.0], [False])
    beyond = staged(
        f"spawn lead>ann {granted('Read')}", f"spawn ann>bob {granted('Bash')}", "result Read tool=Read < 1"
    )
    assert asked("sandbox_escape", beyond).finding.tolist() == [True]


def narrated(sent: int) -> Trace:
    """A session: a task, then an agent that says what it does, to nobody, beside its calls."""
    lines = ["message user>main role=user", "call main tool=Read < 0:message"]
    lines += ["message main", "call main tool=Read"] * 20
    for _ in range(sent):
        lines += ["message main>ann", "call ann tool=Read"]
    return staged(*lines)


def test_narration_is_no_message() -> None:
    answer = asked("over_communication", narrated(0))
    assert (len(answer.suspects), answer.suspects.tells_n.tolist()) == (0, [True])
    answer = asked("over_communication", narrated(12))
    # the task was taken up, twelve messages to ann were not; twenty remarks do not count
    assert answer.suspects.figure.tolist() == pytest.approx([12 / 13])
    assert len(answer.suspects.row) == 12


def test_a_log_without_addressees_cannot_tell() -> None:
    answer = asked("over_communication", staged(*["message main"] * 12))
    assert (len(answer.suspects), answer.suspects.tells_n.tolist()) == (0, [False])


def test_a_call_that_may_still_run_where_the_record_ends_is_an_observation() -> None:
    lost = asked("missing_result", staged("call main tool=Grep", "message main", "call main tool=Read"))
    assert (lost.suspects.row.tolist(), lost.finding.tolist()) == ([0, 2], [True, False])
    side = staged(  # two at once: the other's answer came, and the agent did nothing more
        "call main tool=Read", "call main tool=Bash", "result Read tool=Read < 0:return", "message ann>bob"
    )
    assert asked("missing_result", side).finding.tolist() == [False]
    cut = staged("call main tool=Bash", "decide main", truncated_e=np.array([1, -1]))
    assert asked("missing_result", cut).finding.tolist() == [False]


def test_an_agent_that_may_still_work_where_the_record_ends_is_an_observation() -> None:
    lines = (
        "decide main",
        "spawn main>ann < 0:spawn",
        "return ann>main < 1",
        "aggregate main < 2",
        "spawn main>bob",
    )
    assert asked("dead_spawn", staged(*lines, "message main")).finding.tolist() == [False]
    assert asked("dead_spawn", staged(*lines, "aggregate main")).finding.tolist() == [True]
    assert asked("dead_spawn", staged(*lines, "despawn main>bob")).finding.tolist() == [True]


def test_every_detector_states_its_level_and_confidence() -> None:
    for one in described():
        assert one["level"] in ("finding", "observation"), one["detector"]
        assert one["confidence"] in ("certain", "likely"), one["detector"]


def podium(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "podium.cli", "audit", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_strict_and_the_counts_follow_the_level(tmp_path: Path) -> None:
    save(staged(*WEB), path := tmp_path / "web.json")
    done = podium(path, "--strict", "--only", "indirect_injection")
    assert done.returncode == 0
    assert "0 of 1 detector found a fault, 1 observed something" in done.stdout
    assert "[1 observation]" in done.stdout
    (tmp_path / "own.json").write_text('{"WebFetch": "user"}')
    told = json.loads(podium(path, "--writers", tmp_path / "own.json", "--json").stdout)
    assert (told["found"], told["observed"]) == ([], [])
    (tmp_path / "bad.json").write_text('{"WebFetch": "everybody"}')
    bad = podium(path, "--writers", tmp_path / "bad.json")
    assert (bad.returncode, bad.stderr.count("\n")) == (2, 1)
    assert "one of anyone, user, team, unknown" in bad.stderr
