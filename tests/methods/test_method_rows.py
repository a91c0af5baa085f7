"""A row of the table of methods: what is refused when it is put there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from podium import registry
from podium.credit import BadCredit
from podium.methods import METHODS
from podium.methods.method import add, named
from podium.rewards.ledger import BadReward


@pytest.fixture
def _table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table as it was, afterwards."""
    assert METHODS  # which fills it
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))


@pytest.mark.usefixtures("_table")
def test_a_reward_or_a_credit_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(BadReward, match="no_such_score"):
        add(replace(METHODS["parl"], name="wrong_reward", reward="no_such_score()"))
    with pytest.raises(BadCredit, match="no_such_step"):
        add(replace(METHODS["parl"], name="wrong_credit", credit="no_such_step()"))


def test_a_name_is_taken_once() -> None:
    with pytest.raises(KeyError, match="'parl' is already taken"):
        add(replace(METHODS["parl"], source="another paper"))
    assert add(METHODS["parl"]) is METHODS["parl"]


def test_a_name_that_nobody_has_is_refused() -> None:
    with pytest.raises(BadCredit, match="no method called 'pearl'"):
        named("pearl")
