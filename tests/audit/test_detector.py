"""What a detector returns, how an audit is told, and the verb as a user meets it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from staged import staged

import podium.audit.report as reports
from podium.audit import BadAudit, Second, Suspects, audit, detectors
from podium.audit.relations import about_agents
from podium.audit.report import described, report
from podium.envs import draws
from podium.envs.world import make, play
from podium.registry import facts
from podium.trace import concat
from podium.trace.files import save
from tests.verbs import verb

INJECTED = (
    "call ann tool=web seq=1",
    "result web trusted=0 < 0:return",
    "return ann>lead seq=3 < 1",
    "decide lead < 2:return",
    "human boss>lead < 3",
)


def test_suspects_of_rollouts() -> None:
    suspects = Suspects.of_rollouts(
        np.array([0.2, np.nan, 0.9]), 0.5, np.array([True, True, False, True]), np.array([0, 1, 2, 2])
    )
    assert (suspects.rollout.tolist(), suspects.figure.tolist(), suspects.agent.tolist()) == ([2], [0.9], [-1])
    assert (suspects.row.tolist(), suspects.of.tolist()) == ([3], [0])
    assert suspects.tells_n.tolist() == [True, False, True]  # NaN: cannot tell


def test_suspects_of_agents_and_rows() -> None:
    trace = staged("decide ann", "decide bob", "decide ann")
    tells_n = np.array([True])
    suspects = about_agents(trace, np.array([3.0, 1.0]), 2.0, np.arange(2), trace.agent_e[:2], tells_n)
    assert (suspects.agent.tolist(), suspects.row.tolist()) == ([0], [0])
    suspects = Suspects.of_rows(np.array([0.0, 1.0, np.nan]), 1.0, trace, tells_n)
    assert (suspects.agent.tolist(), suspects.row.tolist(), suspects.of.tolist()) == ([1], [1], [0])


def test_suspects_of_counts() -> None:
    trace = staged("decide ann", "decide bob", "decide ann", "result web")
    rows, about = np.array([0, 1, 2, 3]), np.array([0, 0, 1, -1])  # a row may be about another than who did it
    suspects = Suspects.of_counts(rows, about, 2.0, trace, np.array([True]))
    assert (suspects.agent.tolist(), suspects.figure.tolist(), suspects.row.tolist()) == ([0], [2.0], [0, 1])


def test_worst_first_with_its_evidence() -> None:
    n = np.zeros(3, int)
    suspects = Suspects(n, np.array([1.0, 5.0, 2.0]), n, np.array([9, 8, 7]), np.array([2, 0, 2]), np.array([True]))
    assert suspects.worst().tolist() == [1, 2, 0]
    assert [rows.tolist() for rows in suspects.evidence()] == [[8], [], [9, 7]]


def test_every_detector_says_what_it_is() -> None:
    for name in detectors():
        told = facts("detector", name)
        assert {"group", "threshold", "finds", "needs", "todo", "severity"} <= told.keys(), name
        assert told["severity"] in (1, 2, 3)
    assert {one["detector"] for one in described()} == set(detectors())


def test_the_worst_answers_come_first() -> None:
    answers = audit(staged(*INJECTED), Second(privileged=frozenset({"web"})))
    hit = [(a.facts["severity"], len(a.suspects) > 0) for a in answers]
    assert [s for s, found in hit if found] == sorted((s for s, found in hit if found), reverse=True)
    assert hit == sorted(hit, key=lambda h: -h[1])


def test_an_unknown_detector_is_refused() -> None:
    with pytest.raises(BadAudit, match="no detector called 'spam'; there are"):
        audit(staged("decide lead"), only=["spam"])


def test_a_report_counts_rows_from_the_start_of_the_run() -> None:
    told = report(concat([staged("decide lead"), staged(*INJECTED, name="bad")]), only=["indirect_injection"])
    (found,) = told["observed"]
    who = {"run": 1, "trace_id": "bad", "agent": "web"}
    rows = {"rows": [1, 2], "events": ["e1", "e2"]}
    saw = {"saw": "events that build on it directly: 1", "figure": 1.0, "confidence": "certain"}
    assert found["suspects"] == [{**who, **saw, **rows}]
    assert (found["count"], found["runs"], found["cannot_tell"]) == (1, 1, 1)
    assert told["cannot_tell"] == [
        {
            "detector": "indirect_injection",
            "needs": "`trusted` on tool results, or tools whose writers are declared",
            "runs": 1,
        }
    ]
    assert (told["not_found"], told["interventions"]) == ([], None)


def test_every_detector_says_what_it_saw_and_every_suspect_where(tmp_path: Path) -> None:
    for name in detectors():
        assert facts("detector", name)["saw"].format(figure=0.5)
    save(staged("call ann tool=web", "message ann>bob"), tmp_path / "run.json")
    assert "    run.json, agent ann, row 0: no result is recorded for this call (1, threshold 1, certain)" in (
        podium(tmp_path / "run.json").stdout
    )
    told = json.loads(podium(tmp_path / "run.json", "--json").stdout)
    (suspect,) = told["found"][0]["suspects"]
    assert suspect["file"] == str(tmp_path / "run.json")
    assert suspect["saw"] == "no result is recorded for this call"


def test_a_detector_is_found_not_found_or_cannot_tell() -> None:
    told = report(staged(*INJECTED))
    found, seen, untold = ({f["detector"] for f in told[k]} for k in ("found", "observed", "cannot_tell"))
    assert found | seen | untold | set(told["not_found"]) == set(detectors())
    assert not (found | seen) & set(told["not_found"])
    assert found == {"sequence_gap"}
    assert {"indirect_injection", "orchestrator_misdirection"} <= seen
    assert {"direct_injection", "outside_allow_list"} <= untold
    (one,) = told["interventions"]["worst"]
    assert (one["row"], one["decision"], one["rule"], one["invalid"]) == (4, 3, "cause", [])


def test_figures_are_read_where_there_are_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "FIGURES", tmp_path / "none.json")
    assert all(one["figures"] is None for one in described())
    figures = {"precision": 1.0, "recall": 0.99, "recall_edge": 0.8, "false_alarms": 0.001, "cases": 300}
    (tmp_path / "some.json").write_text(json.dumps({"sequence_gap": figures}))
    monkeypatch.setattr(reports, "FIGURES", tmp_path / "some.json")
    assert {one["detector"]: one["figures"] for one in described()}["sequence_gap"] == figures


def podium(*words: object) -> subprocess.CompletedProcess[str]:
    done = verb("audit", *words)
    assert "Traceback" not in done.stderr + done.stdout
    return done


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("audit") / "attacked.store"
    world = make("expedition", inject=0.3, lie=0.3, poison=2)
    save(world.trace(play(world, world.random, draws.seeds(0, 600), log=True).state), path)
    return path


def test_one_screen_with_a_thousand_suspects(attacked: Path) -> None:
    acts = ("--privileged", "search", "--privileged", "notes.read")
    answer = podium(attacked, *acts)
    assert (answer.returncode, answer.stderr) == (0, "")
    told: dict[str, Any] = json.loads(podium(attacked, *acts, "--json").stdout)
    assert sum(f["count"] for f in told["found"] + told["observed"]) > 900
    assert all(len(f["suspects"]) == f["count"] for f in told["found"] + told["observed"])
    lines = answer.stdout.splitlines()
    assert sum(1 + len(line) // 120 for line in lines) <= 50
    assert "indirect_injection (AV2, tool/message)" in answer.stdout
    assert "threshold 1" in answer.stdout
    assert lines[-1].startswith("looked for and not found: ")


def test_strict_exits_with_one_if_a_fault_is_found(attacked: Path, tmp_path: Path) -> None:
    (tmp_path / "allow.json").write_text('{"*": []}')
    listed = ("--only", "outside_allow_list", "--allow", tmp_path / "allow.json")
    assert podium(attacked, "--strict", *listed).returncode == 1
    assert podium(attacked, "--strict", "--only", "indirect_injection").returncode == 0  # observations
    assert podium(attacked, "--strict", "--only", "missing_result").returncode == 0


def test_an_allow_list_from_a_file(attacked: Path, tmp_path: Path) -> None:
    allow = tmp_path / "allow.json"
    allow.write_text('{"*": ["*"], "intruder": []}')
    told = json.loads(podium(attacked, "--allow", allow, "--only", "outside_allow_list", "--json").stdout)
    assert {s["agent"] for s in told["found"][0]["suspects"]} == {"intruder"}


def test_the_list_of_detectors() -> None:
    said = podium("--list").stdout
    assert all(name in said for name in detectors())
    assert "figure = max(seq) - min(seq) + 1 - |{seq}|" in said
    assert [one["detector"] for one in json.loads(podium("--list", "--json").stdout)] == detectors()


def test_names_from_a_trace_cannot_take_over_the_terminal(tmp_path: Path) -> None:
    lines = ("call ann\x1b[31m tool=web", "result web trusted=0 < 0:return", "decide ann\x1b[31m < 1")
    save(staged(*lines), tmp_path / "run.json")
    said = podium(tmp_path / "run.json").stdout
    assert "agent ann\\x1b[31m" in said
    assert "\x1b" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "spam"], "no detector called 'spam'"),
        (["--truth", "team"], "--truth and --judge go together"),
        (
            ["--truth", "team", "--judge", "none"],
            "--judge none: these runs have no reward of that name; there are team",
        ),
        (["--allow", "nowhere.json"], "nowhere.json: "),
        (["--trained", "nowhere"], "nowhere: "),
    ],
)
def test_wrong_use_is_said_in_one_line(attacked: Path, words: list[str], said: str) -> None:
    answer = podium(attacked, *words)
    assert answer.returncode == 2
    assert said in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_a_bad_allow_list_is_refused(attacked: Path, tmp_path: Path) -> None:
    for text in ("[]", '{"ann": "web"}', "{", '{"ann": [1]}', "\xff"):
        (tmp_path / "bad.json").write_bytes(text.encode("latin-1"))
        answer = podium(attacked, "--allow", tmp_path / "bad.json")
        assert answer.returncode == 2, text
        assert "expected a JSON object from an agent or role to its tools" in answer.stderr
    assert podium().returncode == 2
