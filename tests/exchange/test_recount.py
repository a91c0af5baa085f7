"""Every figure of the first screen of ten real sessions, against a count in plain Python that knows nothing of
Podium."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import screen

SESSIONS = screen.logs(10)


@pytest.mark.parametrize("path", SESSIONS or [None], ids=lambda path: path.name[:8] if path else "none")
def test_an_independent_count_gives_the_same_figures(path: Path | None) -> None:
    if path is None:
        pytest.skip("the real logs (../shared/data/logs) are not here")
    counted, wrong = screen.differences(path)
    assert not wrong
    assert counted > 60
