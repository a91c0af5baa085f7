"""What the turns of a run cost: a dated table of prices by model, and the bill that it gives.

    usd_e = (input p_in + (write - write_1h) p_write + write_1h p_write_1h + read p_read + output p_out) / 10⁶

A kind of token of which the log, or the table, says nothing is left out, and the turn costs *at least* that. A turn
whose model is not in the table has no price; one without tokens is 0.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from datetime import UTC, date, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from podium.metrics.table import BadMetrics
from podium.trace.columns import B, F, I, Trace

__all__ = ["KINDS", "PriceRow", "TurnBill", "default_prices", "model_name", "price_of", "read_prices", "turn_bill"]

KINDS = ("input", "cache_write", "cache_write_1h", "cache_read", "output")
_DATED = re.compile(r"(?:-\d{8}|-\d{4}-\d{2}-\d{2}|@\d{8})(?:-v\d+(?::\d+)?)?$")


class Rates(Struct, forbid_unknown_fields=True, kw_only=True):
    """Dollars per million tokens, by the `KINDS` of tokens."""

    input: float | None = None
    cache_write: float | None = None
    cache_write_1h: float | None = None
    cache_read: float | None = None
    output: float | None = None


class Above(Rates, kw_only=True):
    """Other prices for a whole request that has more tokens than these as input."""

    tokens: float


class PriceRow(Rates, kw_only=True):
    """A row of the table, and the page that says so."""

    models: list[str]
    source: str
    read: date
    since: date | None = None  # from this day on; a row without holds from the beginning
    above: Above | None = None
    states: str | None = None


class _Table(Struct, forbid_unknown_fields=True):
    price: list[PriceRow]


class TurnBill(NamedTuple):
    """What each turn of a model cost, in dollars, and what of that is known; NaN in `usd_e` where nothing is."""

    turn_e: B  # a turn of a model
    models: tuple[str, ...]
    model_e: I  # its place among them, -1 where its model is not recorded
    tokens_fe: F  # its tokens, a row a kind of `KINDS`; what is written for an hour is not among `cache_write`
    usd_e: F  # what is known of its price
    exact_e: B  # all of it is known
    unpriced_e: B  # tokens of a kind, or of a model, that has no price
    unread_e: B  # what it read is not recorded
    unwritten_e: B  # what it wrote is not recorded
    rate_fe: F  # a row a kind of token, in the order of KINDS: the price that each event pays


def read_prices(file: str | Path) -> list[PriceRow]:
    """The rows of a price table."""
    try:
        return _rows(Path(file).read_text())
    except OSError as error:
        raise BadMetrics(f"{file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        example = "podium/metrics/prices.toml is an example"
        raise BadMetrics(f"{file}: not a table of prices: {error}; {example}") from None


@cache
def default_prices() -> tuple[PriceRow, ...]:
    """The table that comes with Podium."""
    return tuple(_rows((files("podium.metrics") / "prices.toml").read_text()))


def _rows(text: str) -> list[PriceRow]:
    rows = msgspec.convert(tomllib.loads(text), _Table).price
    for row in rows:
        for part in filter(None, (row, row.above)):
            prices = [getattr(part, kind) for kind in KINDS]
            if any(p is not None and not 0 <= p < np.inf for p in prices):
                raise msgspec.ValidationError(f"a price of {', '.join(row.models)} is not 0 or more")
    return rows


def model_name(model: str) -> str:
    """The name by which a model has its price: without its provider, its date and the size of its context.

    >>> names = ("claude-haiku-4-5-20251001", "anthropic/claude-opus-4-6[1m]", "gpt-5.5-pro")
    >>> tuple(map(model_name, names))
    ('claude-haiku-4-5', 'claude-opus-4-6', 'gpt-5.5-pro')
    """
    bare = model.rpartition("/")[2].partition("[")[0]
    return _DATED.sub("", re.sub(r"^(?:[a-z]{2,6}\.)?anthropic\.", "", bare))


def price_of(model: str, prices: Sequence[PriceRow], day: date | None = None) -> PriceRow | None:
    """The row of a model on a day, the newest where no day is known; None where it is not in the table.

    >>> price_of("claude-opus-4-6", default_prices()).output, price_of("no-such-model", default_prices())
    (25.0, None)
    """
    name = model_name(model)
    rows = [row for row in prices if name in row.models or model in row.models]
    rows = [row for row in rows if row.since is None or day is None or row.since <= day]
    return max(rows, key=lambda row: row.since or date.min, default=None)


def turn_bill(trace: Trace, prices: Sequence[PriceRow]) -> TurnBill:
    """The bill of every turn in these runs, at the prices of the day on which its run began.

    The last turn of a sub-agent may stand only in its return (`last_usage`), which is then a turn too.
    """
    tokens_fe, model_e, models = _tokens(trace)
    known = ~np.isnan(tokens_fe)
    turn_e: B = (trace.model_e.codes >= 0) | known.any(axis=0)
    rate_fe = _rates(trace, prices, tokens_fe, model_e, models, turn_e)
    zero = known & (tokens_fe == 0)
    paid = known & ~zero & ~np.isnan(rate_fe)
    usd_e = np.where(paid, tokens_fe * rate_fe, 0.0).sum(axis=0) / 1e6
    unpriced_e = turn_e & (known & ~zero & np.isnan(rate_fe)).any(axis=0)
    unread_e, unwritten_e = turn_e & ~known[[0, 1, 2, 3]].any(axis=0), turn_e & ~known[4]
    # which part of the writes is kept for an hour is not recorded: they cost at least the lower price
    vague_e = known[1] & ~zero[1] & ~known[2] & (rate_fe[2] != rate_fe[1]) & ~np.isnan(rate_fe[2])
    exact_e = turn_e & ~unpriced_e & ~unread_e & ~unwritten_e & ~vague_e
    some_e = turn_e & (paid.any(axis=0) | (known.any(axis=0) & ~unpriced_e))
    usd_e = np.where(some_e, usd_e, np.nan)
    return TurnBill(turn_e, models, model_e, tokens_fe, usd_e, exact_e, unpriced_e, unread_e, unwritten_e, rate_fe)


def _tokens(trace: Trace) -> tuple[F, I, tuple[str, ...]]:
    """The tokens of each event by `KINDS`, the code of its model, and the models."""
    hour_e = trace.cache_write_1h_e
    brief_e = trace.cache_write_e - np.nan_to_num(hour_e)
    tokens_fe = np.stack([trace.tokens_in_e, brief_e, hour_e, trace.cache_read_e, trace.tokens_out_e])
    model_e: I = trace.model_e.codes
    models = list(trace.model_e.words)
    column = trace.extra_e.get("last_usage")
    if column is None:
        return tokens_fe, model_e, tuple(models)
    model_e = model_e.copy()
    for row in np.flatnonzero((column.codes >= 0) & np.isnan(tokens_fe).all(axis=0)).tolist():
        usage = msgspec.json.decode(column[row] or "null")
        if not isinstance(usage, dict):
            continue
        hour = (usage.get("cache_creation") or {}).get("ephemeral_1h_input_tokens")
        write = usage.get("cache_creation_input_tokens")
        brief = None if write is None else write - (hour or 0)
        read, wrote = usage.get("cache_read_input_tokens"), usage.get("output_tokens")
        values = (usage.get("input_tokens"), brief, hour, read, wrote)
        tokens_fe[:, row] = [np.nan if v is None else float(v) for v in values]
        own = model_e[(trace.agent_e == trace.agent_e[row]) & (model_e >= 0)]
        if len(own):
            model_e[row] = own[-1]
        elif (model := _stated_model(trace, row)) is not None:
            models += [model] if model not in models else []
            model_e[row] = models.index(model)
    return tokens_fe, model_e, tuple(models)


def _stated_model(trace: Trace, row: int) -> str | None:
    """The model that a launch says its agent has."""
    column = trace.extra_e.get("agent_model")
    value = None if column is None else msgspec.json.decode(column[row] or "null")
    return value if isinstance(value, str) else None


def _rates(
    trace: Trace, prices: Sequence[PriceRow], tokens_fe: F, model_e: I, models: Sequence[str], turn_e: B
) -> F:
    rate_fe = np.full((len(KINDS), trace.n_events), np.nan)
    context_e = np.nansum(tokens_fe[:4], axis=0)
    for n, day in enumerate(map(_day, trace.params_n.strings())):
        mine_e = turn_e & (trace.rollout_e == n) if len(trace) > 1 else turn_e
        for code in np.unique(model_e[mine_e]).tolist():
            row = None if code < 0 else price_of(models[code], prices, day)
            if row is None:
                continue
            rows = np.flatnonzero(mine_e & (model_e == code))
            rate_fe[:, rows] = _column(row)[:, None]
            if row.above is not None:
                rate_fe[:, rows[context_e[rows] > row.above.tokens]] = _column(row.above)[:, None]
    return rate_fe


def _column(row: Rates) -> F:
    return np.array([np.nan if (p := getattr(row, kind)) is None else p for kind in KINDS], np.float64)


def _day(params: str | None) -> date | None:
    """The day on which a run began."""
    try:
        value: Any = msgspec.json.decode(params or "null")
        started = value.get("started") if isinstance(value, dict) else None
        return None if started is None else datetime.fromtimestamp(float(started), UTC).date()
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, OSError):
        return None
