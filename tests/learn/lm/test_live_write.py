"""A live team that writes learns by the one loop: free text, no options, by GRPO and by branches over text."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from podium.audit.exactness import exactness  # noqa: E402
from podium.learn.folder import BadRecipe  # noqa: E402
from podium.learn.lm.live_run import LiveRun, read_team_recipe  # noqa: E402
from podium.trace.files import load  # noqa: E402
from podium.trace.rules import check  # noqa: E402

WRITERS = """
from podium.harness import Did, Return, Spawn, Stop, Team
from podium.learn.lm.live import Live, tasks_from


def writers(speak, write):
    async def lead(see):
        if see.turn == 0:
            line = await write(see, [{"role": "user", "content": see.task}])
            return Did([Spawn(role="helper", task=line.text)], said=line.said)
        return Stop(answer=see.history[0][1][0].task + (see.returns[0] if see.returns else ""))

    async def helper(see):
        line = await write(see, [{"role": "user", "content": "go on"}])
        return Did([Return(content=line.text)], said=line.said)

    def share(task, answer):
        return sum(c.isascii() and c.isalpha() for c in answer or "") / max(1, len(answer or ""))

    return Team("writers", lead, {"helper": helper}, verify=share)


learns = Live("writers", writers, ("lead", "helper"), tasks_from(["a line", "a word"], ["a note"]), optimum=1.0)
"""
RECIPE = """
team = "writers.py:learns"
method = "{method}"
[lm]
iterations = {iterations}
episodes = {episodes}
worlds = {worlds}
longest = 6
rate = 1e-2
parts = 2
branched = 1.0
fresh = 2
branch_tokens = 60
watched = 2
judged = 8
keep = 1
{more}
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "writers.py").write_text(WRITERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "writers", raising=False)


def trained(folder: str, method: str, iterations: int, episodes: int, worlds: int, more: str = "") -> LiveRun:
    recipe = RECIPE.format(method=method, iterations=iterations, episodes=episodes, worlds=worlds, more=more)
    run = LiveRun(read_team_recipe(recipe, "here"), Path(folder))
    assert [line["iteration"] for line in run.iterations()] == list(range(iterations))
    return run


def test_what_is_written_gets_better() -> None:
    run = trained("out", "grpo", 7, 48, 24)
    scores = [line["score"] for line in run.lines]
    assert scores[-1] > scores[0] + 0.3
    assert set(run.lines[-1]["roles"]) == {"lead", "helper"}
    trace = load(Path("out/traces/6.0.jsonl"))
    assert check(trace) == []
    judged = exactness(trace)
    assert judged.count("clean") == len(judged.row_g) == 96


def test_branches_over_text_within_a_budget_are_learned_from() -> None:
    run = trained("out", "c3_reward_only", 2, 4, 2)
    forest = load(Path("out/traces/0.0.jsonl"))
    own = np.flatnonzero(forest.parent_n.codes < 0)
    assert 4 == len(own) < len(forest) <= 4 + 60 // 6  # a branch takes six tokens at least
    assert all(np.isfinite(line["gradient"]) and line["gradient"] > 0 for line in run.lines)


def test_a_policy_a_role_and_one_of_them_frozen() -> None:
    run = trained("out", "grpo", 1, 4, 2, 'share = "role"\nfrozen = ["helper"]')
    assert set(run.lines[0]["gradients"]) == {"lead"}


def test_a_method_that_pays_options_is_refused_for_text() -> None:
    with pytest.raises((BadRecipe, ValueError), match="branching_turns"):
        trained("out", "branching_turns", 1, 4, 2)
