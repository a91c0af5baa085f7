"""What agents may not do is refused and recorded, and nothing comes of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from bench.attempts import ATTEMPTS, CONTAINED, Attempt, Scene, scene, tried
from podium.harness.sandbox import isolation

WHY = asyncio.run(isolation())


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene(tmp_path_factory.mktemp("attempts")) as made:
        yield made


def test_there_are_at_least_three_of_each_kind() -> None:
    assert min(Counter(a.kind for a in ATTEMPTS).values()) >= 3
    assert len({a.kind for a in ATTEMPTS}) == 14


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda a: f"{a.kind}: {a.name}")
def test_an_attempt_is_refused_and_recorded(attempt: Attempt, here: Scene) -> None:
    if WHY and attempt.jailed:
        pytest.skip(f"no isolation here: {WHY}")
    got = tried(attempt, here)
    assert got.recorded, (
        f"{attempt.kind} by {attempt.name} is recorded as {got.kinds}; the answer was {got.ran.answer}"
    )
    assert not got.succeeded
    assert got.findings == []


@pytest.mark.parametrize("attempt", CONTAINED, ids=lambda a: a.name)
def test_what_a_program_tries_inside_comes_to_nothing(attempt: Attempt, here: Scene) -> None:
    if WHY:
        pytest.skip(f"no isolation here: {WHY}")
    got = tried(attempt, here)
    assert not got.succeeded, got.ran.answer
    assert any(said in str(got.ran.answer) for said in ("PATH", "No such file"))  # it did run to its end
