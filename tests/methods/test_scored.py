"""Another reward on the way."""

from __future__ import annotations

import numpy as np
import pytest
from handmade import run

from podium.credit import Credit, apply
from podium.rewards import BadReward

TRACE = run("decide lead", "decide lead", "decide lead", name="run", team=1.0, judge=0.25)


def test_it_starts_again_from_another_reward() -> None:
    made = apply(Credit(TRACE, "orchestrator", np.array([1.0, 2.0, np.nan])), "scored('outcome(\"judge\")')")
    np.testing.assert_array_equal(made.value, [0.25, 0.25, np.nan])  # the judge's, and none where there was none


def test_with_the_same_reward_it_changes_nothing() -> None:
    credit = Credit(TRACE, "team", np.array([1.0]))
    assert apply(credit, 'scored("outcome")').value.tolist() == [1.0]


def test_what_it_cannot_read_is_refused() -> None:
    with pytest.raises(BadReward, match="no score, shape or reward called"):
        apply(Credit(TRACE, "team", np.array([1.0])), 'scored("nobody")')
