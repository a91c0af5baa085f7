"""The commands of the GPU's results, small and on the CPU: every part runs, keeps its lines, and is judged as it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from bench import lm_jobs, lm_results  # noqa: E402
from bench.lm_credit import fidelity  # noqa: E402
from bench.lm_jobs import LIVE_OURS, OURS, WORLDS, Job, ran  # noqa: E402
from experiments.lm.exact import exact, sure_teams  # noqa: E402
from podium.engine.models import PolicyTeam, policy_team  # noqa: E402
from podium.envs.draws import seeds  # noqa: E402
from podium.envs.world import BadParameter, make  # noqa: E402
from podium.learn.lm.text_world import PlaySettings, record  # noqa: E402

MANNER = PlaySettings(rows=32, width=32)
SMALL = {"episodes": 4, "rows": 8, "parts": 1, "epochs": 1, "most": 3}


@pytest.fixture(scope="module")
def tiny() -> PolicyTeam:
    return policy_team("tiny", ["lead"])


def test_exact_values_are_what_many_episodes_earn(tiny: PolicyTeam) -> None:
    world = sure_teams(1)[0]
    tables = exact(world, tiny, MANNER)
    trace, _ = record(world, tiny, seeds(3, 200), MANNER, version="0", task="a")
    earned = np.asarray(trace.reward_n["team"])
    assert abs(earned.mean() - tables.start) < 4 * 0.5 / np.sqrt(len(earned))
    for path, pi in tables.pi.items():
        assert np.isclose(sum(pi), 1.0)
        assert abs(sum(p * tables.credit(path, k) for k, p in enumerate(pi))) < 1e-9


def test_exact_values_are_refused_where_there_is_chance(tiny: PolicyTeam) -> None:
    world: Any = make("planted", agents=1, depth=1, tools=0, messages=1)
    with pytest.raises(BadParameter, match="no chance"):
        exact(world, tiny, MANNER)


def test_forced_options_pooled_by_state_are_truer_than_leave_one_out(tiny: PolicyTeam) -> None:
    lines = {x["method"]: x for x in fidelity(sure_teams(1)[0], tiny, MANNER, 6, 4, 0)}
    assert lines["ours, pooled by state"]["rank"] >= 2 * lines["c3, leave one out"]["rank"]
    assert lines["ours, pooled by state"]["tokens"] <= 1.1 * lines["c3, leave one out"]["tokens"]
    assert lines["magrpo"]["tokens"] >= 0.9 * lines["c3, leave one out"]["tokens"]


@pytest.mark.parametrize(
    ("kind", "name", "method"),
    [
        ("world", "relay", OURS),
        ("world", "jury", "grpo"),
        ("planted", "planted 0", "c3"),
        ("parl", "scouts", "parl"),
        ("parl", "scouts", "own_plain"),
        ("live", "office", LIVE_OURS),
    ],
)
def test_a_job_tells_before_while_and_after(kind: str, name: str, method: str) -> None:
    job = Job(kind, name, method, seconds=60.0, tiny=True, set=SMALL, judged=8, most=1)
    lines = list(ran(job))
    assert [x["event"] for x in lines if x["event"] not in ("look", "untaught")] == ["before", "iteration", "after"]
    assert all(np.isfinite(x["value"]) for x in lines if "value" in x)
    assert json.loads(json.dumps(lines[-1]))["settings"]["model"] == "tiny"
    if kind == "live":
        assert set(lines[-1]["roles"]) <= {"lead", "worker", "critic"}
        assert lines[-1]["roles"]
        assert lines[1]["exact"]["unknown"] == lines[1]["exact"]["fork"] == 0


def test_worlds_are_held_out() -> None:
    for name in WORLDS:
        judged = [w.params for w in lm_jobs.judged_in(name, 2)]
        assert not any(lm_jobs.trained_on(name, 0, i, 0).params in judged for i in range(20))
        assert not any(w.params in judged for w in lm_jobs.judged_in(name, 2, look=True))


def test_a_command_keeps_its_lines_and_prints_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "lm.jsonl"
    sets = [f"{k}={v}" for k, v in SMALL.items()]
    words = ["--tiny", "--only", "jury", "--seconds", "0.2", "--judged", "8", "--out", str(out)]
    lm_results.main(["worlds", *words, "--set", *sets])
    lines = [json.loads(x) for x in out.read_text().splitlines()]
    assert lines[0]["id"] == "machine"
    assert {x["id"] for x in lines if x.get("event") == "after"} == {
        f"world jury {m} seed 0" for m in (OURS, "grpo")
    }
    assert "jury" in capsys.readouterr().out


def test_a_job_that_fails_is_a_line_and_the_others_go_on(tmp_path: Path) -> None:
    kept = lm_results.Kept(tmp_path / "lm.jsonl", quiet=True)
    lm_results.side_by_side([Job("world", "jury", OURS, model="/no/such/folder", device="cpu", seconds=1)], kept, 2)
    assert "no model" in kept.lines[-1]["error"]


def test_what_was_cut_short_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, ran = tmp_path / "lm.jsonl", lm_results.ran
    command = ["worlds", "--tiny", "--only", "jury", "--seconds", "0.1", "--judged", "4", "--out", str(out)]

    def cut(job: Job) -> Any:
        if job.method == "grpo":
            raise KeyboardInterrupt
        return ran(job)

    monkeypatch.setattr(lm_results, "ran", cut)
    with pytest.raises(KeyboardInterrupt):
        lm_results.main(command)
    before = out.read_text()
    monkeypatch.setattr(lm_results, "ran", ran)
    lm_results.main([*command, "--again"])
    assert out.read_text().startswith(before)
    new = [json.loads(x) for x in out.read_text()[len(before) :].splitlines()]
    assert {x["id"] for x in new} == {
        "world jury grpo seed 0",
        "worlds",
    }  # no other machine, and ours is not run again
    lm_results.main([*command, "--again"])
    assert len(out.read_text().splitlines()) == len(before.splitlines()) + len(new) + 1  # how long it took


def line(id: str, event: str, **more: Any) -> str:
    return json.dumps({"id": id, "event": event, **more})


def test_promises_are_read_off_the_lines(tmp_path: Path) -> None:
    assert lm_results.measure(True, tmp_path) == []
    machine = {"id": "machine", "part": "worlds", "device": "NVIDIA H200", "asked": {"only": []}}
    good = {"value": 0.7, "regret": 0.01, "share": 0.2}
    lines = [json.dumps(machine)]
    for name in WORLDS:
        for seed in range(3):
            lines += [line(f"world {name} {OURS} seed {seed}", e, **good) for e in ("before", "after")]
            lines.append(line(f"world {name} grpo seed {seed}", "after", **(good | {"share": 0.9})))
    path = tmp_path / "lm_worlds.jsonl"
    path.write_text("\n".join(lines))
    rows = {r["id"]: r for r in lm_results.measure(True, tmp_path)}
    assert all(r["ok"] for r in rows.values() if r["target"])
    assert np.isclose(rows["10.2.crew.trajectory"]["figure"], 0.9)
    path.write_text("\n".join([*lines, line(f"world crew {OURS} seed 0", "after", **(good | {"share": 2.0}))]))
    assert [r["id"] for r in lm_results.measure(True, tmp_path) if r["ok"] is False] == ["10.2.crew"]
    few = [x for x in lines if "costly_search" not in x or "seed 2" not in x]
    path.write_text("\n".join(few))
    missed = {r["id"]: r for r in lm_results.measure(True, tmp_path) if r["ok"] is False}
    assert set(missed) == {"10.2.seeds", "10.2.costly_search"}  # two seeds are not three
    assert not set(missed) & {r["id"] for r in lm_results.measure(False, tmp_path)}  # told at full size
    assert "2 seeds, too few (0.01, 0.01)" in missed["10.2.costly_search"]["what"]
    more = machine | {"asked": {"only": [], "first": 2}}
    third = line(f"world costly_search {OURS} seed 2", "after", **good)
    path.write_text("\n".join([*few, json.dumps(more), third]))  # added later
    assert all(r["ok"] for r in lm_results.measure(True, tmp_path) if r["target"])
    path.write_text("\n".join([json.dumps(machine | {"device": "a laptop"}), *lines[1:]]))
    assert lm_results.measure(True, tmp_path) == []
