from __future__ import annotations

from datetime import date
from pathlib import Path

import numpy as np
import pytest

from podium.metrics.prices import KINDS, default_prices, price_of, read_prices, turn_bill
from podium.metrics.table import BadMetrics
from podium.trace.columns import Text, Trace

TABLE = """
[[price]]
models = ["m"]
input = 1.0
cache_write = 2.0
cache_write_1h = 4.0
cache_read = 0.5
output = 10.0
above = { tokens = 1000000, input = 3.0, output = 30.0 }
source = "a page"
read = 2026-01-01

[[price]]
models = ["m"]
since = 2026-06-01
input = 100.0
source = "a page"
read = 2026-06-01
"""


@pytest.fixture
def table(tmp_path: Path) -> list:  # type: ignore[type-arg]
    (tmp_path / "prices.toml").write_text(TABLE)
    return read_prices(tmp_path / "prices.toml")


def one(model: str | None = "m", started: float = 0.0, extra: str | None = None, **tokens: float) -> Trace:
    """A run of one turn."""
    columns = {f"{name}_e": np.array([value]) for name, value in tokens.items()}
    return Trace.of(
        trace_id_n=Text.of(["run"]), params_n=Text.of([f'{{"started":{started}}}']), rollout_a=np.array([0]), name_a=Text.of(["a"]),
        rollout_e=np.array([0]), t_e=np.array([0.0]), type_e=np.array([6]), agent_e=np.array([0]), model_e=Text.of([model]),
        extra_e={} if extra is None else {"last_usage": Text.of([extra])}, **columns,
    )  # fmt: skip


def test_each_kind_of_token_has_its_price(table) -> None:  # type: ignore[no-untyped-def]
    bill = turn_bill(one(tokens_in=1e6, cache_write=3e6, cache_write_1h=1e6, cache_read=2e6, tokens_out=1e5), table)
    # more than a million tokens of input: the whole request has the other prices, and of those two are not stated
    assert bill.usd_e.tolist() == [3.0 + 3.0]
    assert (bill.exact_e.tolist(), bill.unpriced_e.tolist()) == ([False], [True])
    bill = turn_bill(one(tokens_in=1e5, cache_write=3e5, cache_write_1h=1e5, cache_read=2e5, tokens_out=1e5), table)
    assert bill.usd_e[0] == pytest.approx(0.1 + 2 * 0.2 + 4 * 0.1 + 0.5 * 0.2 + 10 * 0.1)
    assert bill.exact_e.tolist() == [True]


def test_what_is_not_known_makes_it_at_least(table) -> None:  # type: ignore[no-untyped-def]
    silent = turn_bill(one(tokens_in=1e5), table)
    assert (silent.usd_e.tolist(), silent.exact_e.tolist(), silent.unwritten_e.tolist()) == ([0.1], [False], [True])
    vague = turn_bill(one(cache_write=1e5, tokens_out=0.0), table)  # for how long it is kept is not recorded
    assert (vague.usd_e[0], vague.exact_e[0]) == (pytest.approx(0.2), False)
    nothing = turn_bill(one(), table)
    assert np.isnan(nothing.usd_e[0])
    assert (nothing.turn_e[0], nothing.unread_e[0]) == (True, True)


def test_a_model_that_is_not_in_the_table_has_no_price_and_nothing_costs_nothing(table) -> None:  # type: ignore[no-untyped-def]
    for model in ("other", None):
        bill = turn_bill(one(model, tokens_in=5.0, tokens_out=1.0), table)
        assert np.isnan(bill.usd_e[0])
        assert bill.unpriced_e[0]
    free = turn_bill(one("other", tokens_in=0.0, tokens_out=0.0), table)
    assert (free.usd_e[0], free.exact_e[0]) == (0.0, True)


def test_prices_are_those_of_the_day(table) -> None:  # type: ignore[no-untyped-def]
    june = 1_780_272_000.0  # 2026-06-01
    assert turn_bill(one(started=june - 1, tokens_in=1e6, tokens_out=0.0), table).usd_e[0] == 1.0
    assert turn_bill(one(started=june, tokens_in=1e6, tokens_out=0.0), table).usd_e[0] == 100.0
    assert price_of("m", table, date(2026, 5, 31)) is table[0]
    assert price_of("m", table) is table[1]


def test_the_last_turn_of_a_sub_agent_may_stand_in_its_return(table) -> None:  # type: ignore[no-untyped-def]
    usage = '{"input_tokens":100000,"cache_creation_input_tokens":300000,"cache_creation":{"ephemeral_1h_input_tokens":100000},"output_tokens":100000}'
    bill = turn_bill(one("m", extra=usage), table)
    assert bill.usd_e[0] == pytest.approx(0.1 + 0.4 + 0.4 + 1.0)
    assert bill.turn_e[0]


def test_every_price_has_a_source_and_a_day() -> None:
    for row in default_prices():
        assert row.source.startswith("https://")
        assert row.read >= date(2026, 11, 18)
        assert any(getattr(row, kind) is not None for kind in KINDS)
    names = [(name, row.since) for row in default_prices() for name in row.models]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[price", "not a table of prices"),
        ('[[price]]\nmodels=["m"]\nsource="x"\nread=2026-01-01\ninput=-1.0', "not 0 or more"),
        ('[[price]]\nmodels=["m"]\nsource="x"\nread=2026-01-01\ncost=1.0', "unknown field `cost`"),
        ('[[price]]\nmodels=["m"]\ninput=1.0', "missing required field `source`"),
    ],
)
def test_a_bad_table_is_refused_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(BadMetrics, match=says):
        read_prices(tmp_path / "bad.toml")
    with pytest.raises(BadMetrics, match="No such file"):
        read_prices(tmp_path / "none.toml")
