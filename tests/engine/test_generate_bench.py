"""The benchmark of generation: what was recorded on a GPU is what it is said to be, and what failed is not claimed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from bench import lm_generate as bench


def found(**rates: float) -> dict[str, dict[str, Any]]:
    made = {k.replace("_", " "): {"id": k, "tokens_per_second": v} for k, v in rates.items()}
    return {**made, "10.1-exact": {"id": "10.1-exact", "figure": 1.0}}


def missed(rows: list[Any]) -> list[str]:
    return [row["id"] for row in rows if row["ok"] is False]


def test_promises_follow_from_the_tokens_a_second() -> None:
    good = found(many_ours=50.0, many_generate=10.0, many_batching=49.0, prefix_ours=60.0, prefix_generate=9.0)
    assert missed(bench.rows_of(good, "here")) == []
    slow = {**good, "many ours": {"tokens_per_second": 30.0}}
    assert missed(bench.rows_of(slow, "here")) == ["10.1.many", "10.1.many-batching"]
    slow["many ours compiled"] = {"tokens_per_second": 51.0}  # is told, and is not what is promised
    assert missed(bench.rows_of(slow, "here")) == ["10.1.many", "10.1.many-batching"]


def test_a_peer_that_failed_is_no_promise_kept() -> None:
    good = found(many_ours=50.0, many_generate=10.0, prefix_ours=60.0, prefix_generate=9.0)
    good["many batching"] = {"id": "many batching", "error": "Traceback\nImportError: no kernels"}
    rows = {row["id"]: row for row in bench.rows_of(good, "here")}
    assert missed(list(rows.values())) == ["10.1.many-batching"]
    assert "ImportError: no kernels" in rows["10.1.many-batching"]["what"]
    assert "10.1.many-static" not in rows


def test_what_was_not_recorded_has_no_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bench.torch.cuda, "is_available", lambda: False)
    assert missed(bench.on_gpu_rows(True)) == []
    monkeypatch.setattr(bench, "RECORDS", tmp_path)
    assert bench.on_gpu_rows(True) == []


def test_what_the_newest_record_lacks_is_of_the_one_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bench.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(bench, "RECORDS", tmp_path)
    runs = {
        "lm_generate-old": ("old", found(many_ours=50.0, many_static=10.0)),
        "lm_generate": ("new", found(many_ours=60.0)),
    }
    for name, (commit, lines) in runs.items():
        told = [
            {"id": "machine", "device": "NVIDIA H200", "commit": commit},
            *(v | {"id": k} for k, v in lines.items()),
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, told)))
    rows = {row["id"]: row for row in bench.on_gpu_rows(True)}
    assert rows["10.1.many-static"]["figure"] == 5.0
    assert "at old" in rows["10.1.many-static"]["what"]
    assert rows["10.1.many.ours"]["figure"] == 60.0
    assert "at new" in rows["10.1.many.ours"]["what"]


def test_a_part_that_takes_too_long_or_breaks_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ran:
        stdout, stderr, returncode = '{"id": "a", "figure": 1.0}\nnoise\n', "it broke", 1

    monkeypatch.setattr(bench.subprocess, "run", lambda *_, **__: Ran)
    lines = list(bench.part_lines("ours"))
    assert [line["id"] for line in lines] == ["a", "ours", "ours took"]
    assert "it broke" in lines[1]["error"]

    def late(*_: Any, **__: Any) -> Any:
        raise bench.subprocess.TimeoutExpired("x", 1.0, output=b'{"id": "b", "figure": 2.0}\n{"id": "torn')

    monkeypatch.setattr(bench.subprocess, "run", late)
    lines = list(bench.part_lines("ours"))
    assert [line["id"] for line in lines] == ["b", "ours", "ours took"]
    assert "not done in 90 seconds" in lines[1]["error"]


def test_the_work_is_what_it_is_said_to_be() -> None:
    prompts = bench.branches()
    assert len(prompts) == 256
    assert {len(p) for p in prompts} == {2_008}
    assert len({tuple(p[:2_000]) for p in prompts}) == 16
    assert len({tuple(p) for p in bench.many()}) == 256
    assert json.dumps(prompts[0])[:1] == "["
