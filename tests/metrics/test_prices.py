"""What turns cost by a table of prices, event by event, on runs by dice of which much is not recorded."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from functools import cache
from math import isnan, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from podium.metrics import BadMetrics
from podium.metrics.prices import KINDS, PriceRow, default_prices, model_name, price_of, read_prices, turn_bill
from podium.trace.columns import Text, Trace
from podium.trace.vocabulary import event

TABLE = """
[[price]]
models = ["small"]
source = "a page"
read = 2026-01-01
input = 1.0
cache_write = 1.25
cache_write_1h = 2.0
cache_read = 0.1
output = 5.0

[[price]]
models = ["small", "middle"]
source = "a later page"
read = 2026-02-01
since = 2026-02-01
input = 2.0
cache_write = 2.5
cache_read = 0.2
output = 8.0

[[price]]
models = ["large", "vendor/odd@name"]
source = "a page"
read = 2026-01-01
input = 10.0
cache_write = 10.0
cache_write_1h = 10.0
output = 50.0
above = { tokens = 100, input = 20.0, cache_write = 25.0, cache_write_1h = 30.0, output = 75.0 }
"""
MODELS = ("small", "vendor/small-20260101", "middle-2026-01-01", "large[1m]", "unknown")
DAYS = (date(2026, 1, 31), date(2026, 2, 1), date(2026, 2, 2), date(2026, 1, 1))
STARTED = (
    *(None, {}, [], {"started": "soon"}, {"started": None}, {"started": 1e300}),
    *({"started": datetime(d.year, d.month, d.day, 12, tzinfo=UTC).timestamp()} for d in DAYS),
)


@pytest.fixture
def prices(tmp_path: Path) -> list[PriceRow]:
    (tmp_path / "table.toml").write_text(TABLE)
    return read_prices(tmp_path / "table.toml")


def usage(dice: np.random.Generator) -> str:
    """What a return may say of the last turn of a sub-agent."""
    told: dict[str, Any] = {}
    for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"):
        if dice.random() < 0.7:
            told[name] = int(dice.integers(0, 90)) if dice.random() < 0.9 else None
    if dice.random() < 0.5:
        most = told.get("cache_creation_input_tokens") or 0
        hour = {"ephemeral_1h_input_tokens": int(dice.integers(0, most + 1))}
        told["cache_creation"] = hour if dice.random() < 0.8 else None
    return json.dumps(told if dice.random() < 0.9 else [1])


@cache
def billed(seed: int) -> Trace:
    dice = np.random.default_rng(seed)
    runs, agents = (10, 20) if seed else (1, 2)
    n = 30 * runs
    rollout = np.sort(dice.integers(0, runs, n))
    who = 2 * rollout + dice.integers(0, 2, n)

    def amounts(high: int, odds: float) -> np.ndarray:
        return np.where(dice.random(n) < odds, dice.integers(0, high, n), nan)

    silent = dice.random(n) < 0.4  # says nothing of tokens
    hour = amounts(30, 0.5)
    write = np.where(dice.random(n) < 0.7, np.nan_to_num(hour) + dice.integers(0, 40, n), nan)
    columns = {"tokens_in_e": amounts(60, 0.8), "cache_write_e": write, "cache_write_1h_e": hour}
    columns |= {"cache_read_e": amounts(50, 0.8), "tokens_out_e": amounts(50, 0.8)}
    said = [usage(dice) if dice.random() < 0.5 else None for _ in range(n)]
    launched = [
        json.dumps(m) if dice.random() < 0.5 else None for m in dice.choice([*MODELS, "middle", 7], n).tolist()
    ]
    return Trace.of(
        trace_id_n=Text.of(f"run{i}" for i in range(runs)),
        params_n=Text.of(
            None if s is None else json.dumps(s) for s in (STARTED[i % len(STARTED)] for i in range(runs))
        ),
        rollout_a=np.repeat(np.arange(runs), 2)[:agents],
        name_a=Text.of(f"a{i}" for i in range(agents)),
        rollout_e=rollout,
        t_e=np.arange(n, dtype=float),
        type_e=np.full(n, event("return")),
        agent_e=who,
        model_e=Text(
            np.where((dice.random(n) < 0.5) & (who % 3 > 0), dice.integers(0, len(MODELS), n), -1), list(MODELS)
        ),
        **{name: np.where(silent, nan, values) for name, values in columns.items()},
        **({"extra_e": {"last_usage": Text.of(said), "agent_model": Text.of(launched)}} if seed != 1 else {}),
    )


def tokens_of(trace: Trace, e: int) -> tuple[list[float], bool]:
    """What an event says of its tokens, by kind, and whether only its last usage says so."""
    hour, write = float(trace.cache_write_1h_e[e]), float(trace.cache_write_e[e])
    kinds = [float(trace.tokens_in_e[e]), write - (0.0 if isnan(hour) else hour), hour]
    kinds += [float(trace.cache_read_e[e]), float(trace.tokens_out_e[e])]
    word = trace.extra_e["last_usage"][e] if "last_usage" in trace.extra_e else None
    told = json.loads(word) if word else None
    if not all(map(isnan, kinds)) or not isinstance(told, dict):
        return kinds, False
    hour = (told.get("cache_creation") or {}).get("ephemeral_1h_input_tokens")
    write = told.get("cache_creation_input_tokens")
    values = [told.get("input_tokens"), None if write is None else write - (hour or 0), hour]
    values += [told.get("cache_read_input_tokens"), told.get("output_tokens")]
    return [nan if v is None else float(v) for v in values], True


@pytest.mark.parametrize("seed", range(8))
def test_the_bill_event_by_event(seed: int, prices: list[PriceRow]) -> None:
    trace = billed(seed)
    bill = turn_bill(trace, prices)
    models: list[str | None] = [None if c < 0 else MODELS[c] for c in trace.model_e.codes.tolist()]
    for e in range(trace.n_events):
        tokens, by_usage = tokens_of(trace, e)
        if by_usage:
            own = [m for m, a in zip(models, trace.agent_e.tolist(), strict=True) if m and a == trace.agent_e[e]]
            word = trace.extra_e["agent_model"][e]
            stated = json.loads(word) if word else None
            models[e] = own[-1] if own else stated if isinstance(stated, str) else models[e]
        is_turn = trace.model_e.codes[e] >= 0 or not all(map(isnan, tokens))
        day = (*[None] * 6, *DAYS)[int(trace.rollout_e[e]) % 10]
        rate = [nan] * 5
        name = None if models[e] is None else str(models[e]).rpartition("/")[2].split("-")[0].split("[")[0]
        if is_turn and name in ("small", "middle", "large"):
            rows = [r for r in prices if name in r.models and (r.since is None or day is None or r.since <= day)]
            if rows:
                row: Any = rows[-1]
                if row.above and sum(t for t in tokens[:4] if not isnan(t)) > row.above.tokens:
                    row = row.above
                rate = [nan if getattr(row, k) is None else getattr(row, k) for k in KINDS]
        paid = [t * r for t, r in zip(tokens, rate, strict=True) if t > 0 and not isnan(r)]
        lacks = any(t > 0 and isnan(r) for t, r in zip(tokens, rate, strict=True))
        vague = tokens[1] > 0 and isnan(tokens[2]) and not isnan(rate[2]) and rate[2] != rate[1]
        unread, unwritten = all(map(isnan, tokens[:4])), isnan(tokens[4])
        some = bool(paid) or (not all(map(isnan, tokens)) and not lacks)
        np.testing.assert_allclose(bill.tokens_fe[:, e], tokens)
        np.testing.assert_allclose(bill.rate_fe[:, e], rate)
        np.testing.assert_allclose(bill.usd_e[e], sum(paid) / 1e6 if is_turn and some else nan)
        assert (None if bill.model_e[e] < 0 else bill.models[bill.model_e[e]]) == models[e]
        assert bill.turn_e[e] == is_turn
        assert bill.unpriced_e[e] == (is_turn and lacks)
        assert bill.unread_e[e] == (is_turn and unread)
        assert bill.unwritten_e[e] == (is_turn and unwritten)
        assert bill.exact_e[e] == (is_turn and not (lacks or unread or unwritten or vague))


def test_a_model_by_other_names_and_on_other_days(prices: list[PriceRow]) -> None:
    names = (
        "us.anthropic.small-20260101-v1:0",
        "small@20260101",
        "a/b/small-2026-01-01-v2",
        "small[1m]",
        "anthropic.small",
    )
    assert {model_name(name) for name in names} == {"small"}
    assert model_name("verylong.anthropic.small") == "verylong.anthropic.small"
    assert price_of("vendor/odd@name", prices) is prices[2]
    assert [price_of("small", prices, date(2026, 1, d)) for d in (1, 31)] == [prices[0]] * 2
    assert [price_of("small", prices, date(2026, 2, d)) for d in (1, 2)] == [prices[1]] * 2
    assert price_of("small", prices) is prices[1]
    assert price_of("middle", prices, date(2026, 1, 31)) is None
    assert price_of("nobody", prices) is None


def test_a_table_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadMetrics, match="No such file"):
        read_prices(tmp_path / "missing.toml")
    file = tmp_path / "table.toml"
    for text in (
        TABLE.replace("= 5.0", "= -5.0"),
        TABLE.replace("= 75.0", "= inf"),
        "[[price]]\nmodels = 1",
        "= 3",
    ):
        file.write_text(text)
        with pytest.raises(BadMetrics, match=r"not a table of prices.*prices\.toml is an example"):
            read_prices(file)
    file.write_text(TABLE.replace("= 5.0", "= 0.0"))
    assert read_prices(file)[0].output == 0.0


def test_the_table_that_comes_with_podium() -> None:
    rows = default_prices()
    assert len(rows) > 20
    assert all(row.source.startswith("https://") and row.models for row in rows)
    assert all(row.input is not None and row.output is not None and row.output >= row.input for row in rows)
    assert default_prices() is rows
