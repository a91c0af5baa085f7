"""The benchmark of packing: both sides do the same work, and what was recorded on a GPU is what it is said to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from bench import lm_packed as bench  # noqa: E402

SMALL = ((20, 1), (6, 2), (4, 3))


@pytest.fixture(scope="module")
def model() -> Any:
    return bench.model_of("tiny", torch.float32, "cpu", 64)


def lines() -> list[str]:
    return bench.RECORD.read_text().splitlines()


def missed(found: dict[str, dict[str, Any]]) -> list[str]:
    return [row["id"] for row in bench.rows_of(found, "here") if not row["ok"]]


def test_rows_of_several_trees_alone_are_the_trees_packed(model: Any) -> None:
    trees = [bench.tree_like(SMALL, np.random.default_rng(i), 64) for i in range(3)]
    bench.packed_step(model, trees)()
    together = bench.gradient(model)
    bench.plain_step(model, trees, 3 * 6)()
    assert float((bench.gradient(model) - together).norm() / together.norm()) < 1e-5
    bench.plain_step(model, trees, 7)()
    assert float((bench.gradient(model) - together).norm() / together.norm()) > 0.1


def test_random_trees_branch_repeat_tokens_and_have_empty_branches() -> None:
    trees = bench.random_trees(3, first=40, most=24)
    assert all(tree.through[tree.sampled].max() > 1 for tree in trees)
    assert any(len({r.tobytes() for r in t.node_of}) < len(t.node_of) for t in trees)  # a row that adds nothing
    assert len(np.unique(trees[1].token)) <= 4


def test_a_token_counted_twice_is_seen(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = bench.tree_like(SMALL, np.random.default_rng(0), 64)
    assert bench.gradient_error(model, tree, "dense")[1] == 0
    real = bench.packed.loss_and_backward

    def twice(model: Any, trees: Any, loss: Any, *rest: Any, **more: Any) -> Any:
        real(model, trees, loss, *rest, **more)
        return real(model, trees, loss, *rest, **more)

    monkeypatch.setattr(bench.packed, "loss_and_backward", twice)
    off, wrong = bench.gradient_error(model, tree, "dense")
    assert wrong == tree.sampled.sum()
    assert off > 0.5


def test_every_promise_is_on_record_and_holds() -> None:
    assert missed(bench.recorded(lines())) == []
    first = json.loads(lines()[0])
    assert first["id"] == "machine"
    assert {"device", "torch", "date"} <= set(first)


@pytest.mark.parametrize("size", bench.ENOUGH)
@pytest.mark.parametrize("shape", bench.SHAPES)
def test_recorded_shares_follow_from_the_recorded_seconds(size: str, shape: str) -> None:
    found = bench.recorded(lines())
    hidden, layers, heads, groups, ffn = bench.SIZES[size]
    config = bench.LlamaConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        head_dim=hidden // heads,
        intermediate_size=ffn,
        vocab_size=bench.VOCABULARY,
    )
    tree = bench.tree_like(bench.SHAPES[shape], np.random.default_rng(0))
    alone = min(line["seconds"][0] for name, line in found.items() if name.startswith(f"{size} separate {shape} "))
    together = found[f"{size} packed {shape}"]["seconds"][0]
    row = found[f"9.2-{size} {shape}"]
    assert row["rho"] == pytest.approx(tree.rho)
    assert row["bound"] == pytest.approx(bench.bound(config, tree))
    assert row["figure"] == pytest.approx(alone / together / row["bound"])


def test_what_is_not_on_record_is_missed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    everything = [bench.short(name) for name in bench.PROMISES]
    assert missed({}) == everything
    some = [
        line for line in lines() if '"9.2-wide 1024 -> 8 x 256"' not in line and '"9.1-gpu-bf16-alone"' not in line
    ]
    assert missed(bench.recorded(some)) == ["9.1.gpu-bf16-parts", "9.2.wide-1024-8x256"]
    elsewhere = [line.replace("NVIDIA H200", "NVIDIA A100") for line in lines()]
    assert missed(bench.recorded(elsewhere)) == everything
    monkeypatch.setattr(bench.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    monkeypatch.setattr(bench, "RECORD", tmp_path / "none.jsonl")
    assert [row["id"] for row in bench.on_gpu_rows(True) if not row["ok"]] == everything


def test_a_figure_that_falls_short_is_missed_whatever_its_line_says() -> None:
    found = bench.recorded(lines())
    found["9.2-trl-smol"] = {**found["9.2-trl-smol"], "figure": 3.9, "ok": True}
    assert missed(found) == ["9.2.trl-smol"]


def test_with_a_gpu_the_promises_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(bench.torch.cuda, "get_device_name", lambda: "some GPU")
    monkeypatch.setattr(bench, "lines_of", lambda parts: iter([{"id": "9.1-gpu-dense", "figure": 1.0}]))
    rows = {row["id"]: row for row in bench.on_gpu_rows(False)}
    assert rows["9.1.gpu-dense"]["ok"] is False
    assert "measured on some GPU" in rows["9.1.gpu-dense"]["what"]
    assert rows["9.1.gpu-flex"]["ok"] is False  # it was to be measured, and was not
    assert "as recorded on an H200, docs/results/lm_packed.jsonl" in rows["9.2.smol-4096-16x128"]["what"]
