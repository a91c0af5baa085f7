"""A row of the table of methods: what is refused when it is put there."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from podium import registry
from podium.credit import BadCredit
from podium.expression import calls, parse
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


# what a row needs, by the steps and scores that it is made of
TELLING = {
    "group": r'by=\(?"(task|parent)"',
    "branches": r'same_prefix|subtree_mean|tree_backup|by="tree"',
    "masks": r"masked|shapley\(\)",
    "critic": r'\b(td|gae|token_gae|vdn|qmix|own_action|plugged)\(|minus\("value"\)|same_prefix\("value"',
    "votes": r"revote|majority_mixture|panel",
    "spawns": r"along_spawns|spawn_shapley|^parl\b",
    "tokens": r'to\("token"\)|token_gae',
    "greedy": r'minus\("greedy"\)',
    "history": r'minus\("ema"\)',
}


@pytest.mark.parametrize("name", METHODS)
def test_what_a_method_needs_is_what_its_steps_read(name: str) -> None:
    row = METHODS[name]
    for need, pattern in TELLING.items():
        reads = any(re.search(pattern, text) for text in (row.reward, row.credit))
        assert (need in row.needs) == reads, need
    assert ("tokens" in row.needs) == (row.pays == "token")
    assert (row.counts == "tokens") <= (row.pays == "token")


COMPARES = "aligned_zscore below_best best_only center drop_even leave_one_out length_weighted rank_gaussian zscore zscore_against"


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].credit])
def test_a_row_says_what_is_compared_with_what_and_leaves_it_to_no_default(name: str) -> None:
    compares = [call for call in calls(parse(METHODS[name].credit)) if call.name in COMPARES.split()]
    assert [call.name for call in compares if "by" not in dict(call.options)] == []


@pytest.mark.parametrize("name", METHODS)
def test_what_is_not_all_public_says_what_is_missing(name: str) -> None:
    row = METHODS[name]
    assert row.source
    assert row.known == "formula" or row.unknown
    assert row.credit or (row.unknown and row.reward == "" and (row.update, row.schedule) == ("none", "none"))
    ours = (row.update, row.schedule) == ("any", "any")
    assert ours == bool(re.match(r"ours|Wolpert & Tumer 2002 and|Shapley 1953", row.source))
