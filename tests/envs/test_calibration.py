from __future__ import annotations

import json
import sys
from math import comb, exp, log
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from bench import calibrate
from podium.envs.calibration import (
    FIGURES,
    Counts,
    Lognormal,
    below,
    durations,
    normal_quantile,
    stagger,
    tokens,
    tool_calls,
)
from podium.envs.draws import seeds, uniform

needs_logs = pytest.mark.skipif(
    not calibrate.LOGS.is_dir(), reason=f"the real sessions ({calibrate.LOGS}) are not here"
)
N = 200_000


def test_normal_quantile_is_the_one_of_the_standard_library() -> None:
    tails = 10.0 ** -np.arange(1, 16)
    u = np.concatenate(
        [np.linspace(0.0005, 0.9995, 1999), tails, 1 - tails, [0.075, 0.925, 2.0**-54, 1 - 2.0**-53]]
    )
    theirs = np.array([NormalDist().inv_cdf(float(x)) for x in u])
    np.testing.assert_allclose(normal_quantile(u), theirs, rtol=0, atol=1e-8)


def test_no_draw_is_infinite() -> None:
    ends = np.array([0.0, 1.0 - 2.0**-53])  # the least and the largest that `uniform` gives
    for fit in FIGURES:
        assert np.isfinite(fit.at(ends)).all()
    assert normal_quantile(ends[:1])[0] == pytest.approx(NormalDist().inv_cdf(2.0**-54))


def test_counts_worked_by_hand() -> None:
    # r = 2: P(k) = (k + 1) p^2 (1 - p)^k
    by_hand = np.cumsum([comb(k + 1, k) * 0.3**2 * 0.7**k for k in range(20)])
    np.testing.assert_allclose(below(2.0, 0.3)[:20], by_hand, atol=1e-14)
    fit = Counts(2.0, 0.3, 1, 0, 0, 0.0)
    assert fit.mean == pytest.approx(1 + 2 * 0.7 / 0.3)
    assert fit.at(np.array([0.0, 0.0899, 0.0901])).tolist() == [1, 1, 2]


def test_lognormal_worked_by_hand() -> None:
    fit = Lognormal(log(10.0), 2.0, 0, 0, 0.0)
    assert [fit.median, fit.mean] == pytest.approx([10.0, 10.0 * exp(2.0)])
    assert fit.at(np.array([NormalDist().cdf(1.0)]))[0] == pytest.approx(10.0 * exp(2.0))


@pytest.mark.parametrize(
    ("draw", "fit"),
    [
        (durations, FIGURES.durations),
        (stagger, FIGURES.stagger),
        (tokens, FIGURES.read),
        (lambda s, *at: tokens(s, *at, of=FIGURES.lead_wrote), FIGURES.lead_wrote),
        (tool_calls, FIGURES.calls),
    ],
    ids=["durations", "stagger", "tokens", "tokens of the lead", "tool_calls"],
)
def test_draws_have_the_fitted_mean_and_median(draw: Any, fit: Lognormal | Counts) -> None:
    x = draw(seeds(3, N), 5)
    assert abs(x.mean() - fit.mean) < 4 * x.std() / N**0.5
    if isinstance(fit, Lognormal):
        middle = np.log(np.median(x)) - fit.mu
        assert abs(middle) < 4 * fit.sigma * (np.pi / 2 / N) ** 0.5
        assert np.log(x).std() == pytest.approx(fit.sigma, rel=0.02)
    else:
        assert np.median(x) == fit.median
        assert x.var() == pytest.approx(fit.r * (1 - fit.p) / fit.p**2, rel=0.03)


def test_an_address_gives_the_same_draw_whatever_else_was_drawn() -> None:
    s = seeds(1, 6)
    for draw in (durations, stagger, tokens, tool_calls):
        alone = draw(s[2:3], 4, 7)
        assert draw(s, 4, 7)[2] == alone[0]
        np.testing.assert_array_equal(draw(s[:, None], 4, np.arange(9))[2, 7], alone[0])
        assert (draw(seeds(1, 500), 4, 7) != draw(seeds(1, 500), 4, 8)).mean() > 0.9


def test_one_address_gives_unrelated_draws_of_each_kind() -> None:
    s = seeds(2, 20_000)
    drawn = [uniform(s, 0), np.log(durations(s, 0)), np.log(stagger(s, 0)), np.log(tokens(s, 0)), tool_calls(s, 0)]
    rho = np.corrcoef(np.array(drawn))
    assert np.abs(rho - np.eye(5)).max() < 0.03


# A made session: two launches in one message, a third in the next, then work, then one alone.


def line(second: float, kind: str, **rest: Any) -> dict[str, Any]:
    return {"type": kind, "timestamp": f"2026-01-01T00:{int(second // 60):02}:{second % 60:06.3f}Z", **rest}


def says(second: float, message: str, *blocks: Any, stop: str | None = None, out: int = 1) -> dict[str, Any]:
    usage = {"input_tokens": 2, "cache_read_input_tokens": 98, "output_tokens": out}
    told = {"id": message, "content": list(blocks), "usage": usage, "stop_reason": stop}
    return line(second, "assistant", message=told)


def use(call: str, name: str = "Agent") -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": name, "input": {}}


def back(second: float, call: str, about: Any = None) -> dict[str, Any]:
    content = [{"type": "tool_result", "tool_use_id": call, "content": "..."}]
    return line(second, "user", message={"content": content}, toolUseResult=about)


def note(agent: str, usage: str = "") -> str:
    return f"<task-notification><task-id>{agent}</task-id><status>completed</status>{usage}</task-notification>"


USAGE = (
    "<usage><subagent_tokens>900</subagent_tokens><tool_uses>7</tool_uses><duration_ms>31500</duration_ms></usage>"
)
DONE = {
    "status": "completed",
    "agentId": "d",
    "totalDurationMs": 9000,
    "totalToolUseCount": 1,
    "totalTokens": 350,
    "content": [{"type": "text", "text": "x" * 120}],
    "usage": {"input_tokens": 300, "output_tokens": 50},
}


def inner(second: float, kind: str, *blocks: Any, tokens: int = 0) -> dict[str, Any]:
    message = {"id": "i1", "content": list(blocks), "usage": {"input_tokens": tokens, "output_tokens": 1}}
    about = {"type": "agent_progress", "message": line(second, kind, message=message)}
    return line(second, "progress", parentToolUseID="D", data=about)


SESSION = [
    line(0, "user", message={"content": "go"}),
    says(1, "m1", use("A")),
    says(5, "m1", use("B"), stop="tool_use", out=40),
    *(back(6, call, {"status": "async_launched", "agentId": call.lower()}) for call in "AB"),
    says(25, "m2", use("C")),
    back(26, "C", {"status": "async_launched", "agentId": "c"}),
    line(40, "queue-operation", operation="enqueue", content=note("a", USAGE)),
    line(41, "user", message={"content": note("a")}),  # a copy, which says less
    line(45, "queue-operation", operation="enqueue", content=note("b")),  # an older log: no usage
    line(46, "queue-operation", operation="enqueue", content=note("some shell")),
    says(50, "m3", use("R", "Read"), use("Q", "AskUserQuestion")),
    back(50.25, "R"),
    back(400, "Q"),
    says(500, "m4", use("D")),
    inner(501, "assistant", use("S", "Bash"), tokens=150),
    inner(501.5, "assistant", use("T", "Bash"), tokens=200),
    inner(503, "user", {"type": "tool_result", "tool_use_id": "S"}),
    back(509, "D", DONE),
]


def read(session: list[dict[str, Any]]) -> dict[str, list[float]]:
    return calibrate.samples(calibrate.read(json.dumps(record) for record in session))


def test_a_session_worked_by_hand() -> None:
    assert read(SESSION) == {
        "durations": [31.5, 40.0, 9.0],  # C never came back
        "stagger": [4.0],
        "turns": [20.0],
        "calls": [7.0, 1.0],
        "width": [3.0, 1.0],
        "read": [500.0],
        "context": [900.0, 350.0],
        "answer": [50],
        "tool": [2.0],
        "lead_tool": [0.25],
        "lead_read": [100.0] * 4,
        "lead_wrote": [40],
    }


def test_order_on_disk_does_not_matter_and_a_line_may_hold_two_records() -> None:
    both = "".join(json.dumps(record) for record in SESSION[::-1])
    assert calibrate.samples(calibrate.read([both])) == read(SESSION)
    with pytest.raises(ValueError, match="line 2 is not JSON"):
        calibrate.read([both, "{"])


def test_a_count_from_the_start_of_a_stream_is_not_an_answer() -> None:
    early = {**DONE, "usage": {"input_tokens": 300, "output_tokens": 3}}
    assert read([*SESSION[:-1], back(509, "D", early)])["answer"] == []


def test_only_parallel_runs_count() -> None:
    alone = [SESSION[0], says(1, "m1", use("D")), back(10, "D", DONE), says(20, "m2", use("E"))]
    overlapping = [*alone[:2], says(2, "m2", use("R", "Read")), says(3, "m3", use("E")), alone[2]]
    runs = [calibrate.read(json.dumps(r) for r in s) for s in (SESSION, alone, overlapping)]
    assert calibrate.parallel(runs) == [runs[0], runs[2]]
    assert [len(fan) for fan in runs[2].fans] == [1, 1]


def test_fits_find_what_was_planted() -> None:
    u = (np.arange(20_000) + 0.5) / 20_000
    fit = calibrate.lognormal(FIGURES.durations.at(u), 1)
    assert fit[:2] == pytest.approx(FIGURES.durations[:2], abs=1e-3)
    counted = calibrate.counts(FIGURES.calls.at(u).astype(float), 1, 0)
    assert counted[:2] == pytest.approx(FIGURES.calls[:2], rel=0.01)
    assert max(fit.ks, counted.ks) < 1e-3
    assert calibrate.distance(np.array([0.5]), lambda v: v) == 0.5
    assert calibrate.steps(np.array([0.0, 1.0]), np.array([0.75, 1.0])) == 0.25
    with pytest.raises(ValueError, match="not negative binomial"):
        calibrate.counts(np.array([2.0, 3.0]), 1, 0)


@needs_logs
def test_the_constants_are_what_the_real_runs_give() -> None:
    assert calibrate.fitted(calibrate.parallel(calibrate.sessions(calibrate.LOGS))) == FIGURES


@needs_logs
def test_the_command_prints_the_constants(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["calibrate", "--json"])
    calibrate.main()
    line, rest = capsys.readouterr().out.split("\n")
    assert not rest
    printed = json.loads(line)["figures"]
    related = json.loads(line)["correlation"]  # as the module's docstring has it
    assert (related["durations, calls"], related["calls, context"]) == (0.66, 0.77)
    for name, fit in FIGURES._asdict().items():
        assert {key: printed[name][key] for key in fit._fields} == fit._asdict()
    monkeypatch.setattr(sys, "argv", ["calibrate"])
    calibrate.main()
    table = capsys.readouterr().out
    for name, fit in FIGURES._asdict().items():
        row = next(line for line in table.splitlines() if line.split()[:1] == [name])
        assert all(f"{figure:.4f}" in row for figure in (*fit[:2], fit.ks))


def test_the_command_says_so_when_the_logs_are_not_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(calibrate, "LOGS", tmp_path / "absent")
    monkeypatch.setattr(sys, "argv", ["calibrate"])
    with pytest.raises(SystemExit, match=r"not here: .*absent"):
        calibrate.main()
