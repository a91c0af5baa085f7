"""What programs inside the jail try comes to nothing, and the record says what they tried: a sample of each kind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from bench.attempts import Scene, scene
from bench.escapes import ESCAPES, escaped
from podium.harness.sandbox import isolation

WHY = asyncio.run(isolation())


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene(tmp_path_factory.mktemp("escapes")) as made:
        yield made


def test_there_are_at_least_a_hundred_of_all_kinds() -> None:
    assert len(ESCAPES) >= 100
    kinds = {"files", "links", "network", "privileges", "processes", "memory", "disk", "time", "evidence"}
    assert {escape.kind for escape in ESCAPES} == kinds


@pytest.mark.skipif(bool(WHY), reason=f"no isolation here: {WHY}")
@pytest.mark.parametrize("number", range(0, len(ESCAPES), 12))
def test_an_escape_is_recorded_rightly(number: int, here: Scene) -> None:
    recorded, got, what = escaped(ESCAPES[number], number, here)
    assert recorded, what
    assert not got, what
