"""The draw of findings that are judged, and the page on real runs, on runs written by us."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from staged import staged

from bench import judged, real_runs
from bench.judged import Claim, claims, draw, judgements
from podium.trace import save
from podium.trace.columns import concat


def many(level: str, n: int) -> list[Claim]:
    return [Claim(level, "file", "detector", "agent", row) for row in range(n)]


def test_findings_are_drawn_before_observations() -> None:
    assert [c.level for c in draw(many("finding", 300) + many("observation", 9))] == ["finding"] * 100
    few = draw(many("finding", 3) + many("observation", 300))
    assert (len(few), [c.level for c in few[:4]]) == (100, ["finding"] * 3 + ["observation"])
    assert sorted(draw(many("finding", 2) + many("observation", 5))) == many("finding", 2) + many("observation", 5)
    assert draw(many("finding", 300)) == draw(many("finding", 300))


def test_a_claim_names_file_agent_and_row(tmp_path: Path) -> None:
    lines = (
        "call ann tool=web",
        "message ann>bob",
        "call ann tool=web",
        "result web < 2:return",
        "message ann>bob",
    )
    (tmp_path / "logs").mkdir()
    save(staged(*lines), tmp_path / "logs/run.json")
    assert claims([tmp_path / "logs"]) == [Claim("finding", "logs/run.json", "missing_result", "ann", 0)]
    assert claims([tmp_path / "nothing"]) == []


def test_a_judgement_without_a_reason_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = tmp_path / "judged.json"
    bad.write_text(
        '{"judgements": [{"detector": "d", "file": "f", "agent": "a", "row": 1, "right": true, "why": " "}]}'
    )
    monkeypatch.setattr(judged, "JUDGED", bad)
    with pytest.raises(ValueError, match="without a verdict or a reason"):
        judgements()


FANNED = (
    "spawn lead>ann",  # 0
    "spawn lead>bob",
    "spawn lead>cat",
    "return ann>lead < 0:spawn",
    "return bob>lead < 1:spawn",
    "decide lead < 3",
    "return cat>lead < 2:spawn",  # 6
)


def test_a_fan_out_and_its_slowest() -> None:
    (fan,) = real_runs.fan_outs(staged(*FANNED))
    # lives: ann 0 to 3, bob 1 to 4, cat 2 to 6; from 4 to 6 only cat: 2 of 6 s; idle (3 + 2) of (6 + 5 + 4)
    assert (fan.width, fan.seconds, fan.tail_s, fan.gated) == (3, 6.0, 2.0, False)
    assert (fan.tail, fan.idle, fan.times) == pytest.approx((2 / 6, 5 / 15, 4 / 3))
    assert real_runs.sizes(staged(*FANNED)).width.tolist() == [3.0]
    one_by_one = ("spawn lead>ann", "return ann>lead < 0", "spawn lead>bob < 1", "return bob>lead < 2")
    assert real_runs.fan_outs(staged(*one_by_one)) == []


def test_what_a_log_does_not_say_is_absent_on_the_page() -> None:
    of = real_runs.sizes(concat([staged(*FANNED), staged("message ann>bob")]))
    assert np.isnan(of.read).all()
    assert np.isnan(of.tasks).all()
    assert of.agents.tolist() == [3.0, 0.0]
    text = real_runs.page(staged(*FANNED), staged("message ann>bob"))
    assert "| tokens written | 0 | 1 | – | – | – |" in text
    assert "1 fan-outs in 1 of 1 runs" in text
