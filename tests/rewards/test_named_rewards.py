"""Rewards that a user names: an expression, or a score or reward in a file of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from acting import act, near

from podium import registry
from podium.methods import METHODS, use_method
from podium.rewards import score
from podium.rewards.ledger import use_reward

FILE = """
import numpy as np

from podium.methods import Method
from podium.registry import register


@register("score", unit="team", families=("R1",), better="higher", needs="nothing")
def two(trace):
    return np.full(len(trace), 2.0)


@register("reward")
def three():
    return "two + one"


fourth = Method("fourth", reward="three", credit='center(by="batch")')
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    assert METHODS  # which fills the table
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))
    (tmp_path / "own.py").write_text(FILE)
    return tmp_path / "own.py"


def test_an_expression_is_itself() -> None:
    assert use_reward("outcome - 0.1 * spent") == "outcome - 0.1 * spent"


def test_a_score_or_a_reward_of_a_file(own: Path) -> None:
    trace = act({"is": "message a"})
    near(score(trace, use_reward(f"{own}:two"), "team"), [2.0])
    near(score(trace, use_reward(f"{own}:three"), "team"), [3.0])
    assert use_method(f"{own}:fourth").reward == "three"
    assert use_method("parl") is METHODS["parl"]
    with pytest.raises(ValueError, match="nobody"):
        use_reward(f"{own}:nobody")
