"""The objects of a JSON file in whatever way they stand there: one document, an array, one a line, or one behind
the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from podium.exchange.lines import ERRORS, one_a_line, records
from podium.exchange.reading import Source

__all__ = ["Complain", "objects", "seconds"]

Complain = Callable[[int | None, str], None]
_decoder = msgspec.json.Decoder()


def objects(source: Source, complain: Complain) -> Iterator[tuple[int | None, Any]]:
    """The objects, with their line where they stand one a line. The elements of an array count as objects. What
    cannot be read is named by its line, and the rest is read."""
    start = source.start.lstrip(b"\xef\xbb\xbf \t\r\n")
    line, _, rest = start.partition(b"\n")
    if one_a_line(start) or (line.startswith(b"[") and rest.strip() and _whole(line)):
        for number, value in records(source.lines(), _decoder, complain):
            yield number, value
        return
    data = source.data()
    try:
        value = _decoder.decode(data)
    except ERRORS:
        yield from _salvaged(data, complain)
        return
    yield from ((None, one) for one in value) if isinstance(value, list) else [(None, value)]


def _whole(line: bytes) -> bool:
    try:
        return isinstance(_decoder.decode(line), (dict, list))
    except ERRORS:
        return False


def _salvaged(data: bytes, complain: Complain) -> Iterator[tuple[int | None, Any]]:
    """The objects of a damaged array, or of documents one behind the other, up to where they break."""
    text = data.decode(errors="replace").lstrip("\ufeff")
    scan, at, apart = json.JSONDecoder(), 0, text.lstrip()[:1] != "["
    while True:
        end, at = at, at + len(text[at:]) - len(text[at:].lstrip("[], \t\r\n"))
        if at >= len(text):
            return
        if apart and end and "\n" not in text[end:at]:
            complain(text.count("\n", 0, at) + 1, "several objects on one line")
        try:
            value, at = scan.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            place = getattr(error, "pos", at)
            complain(
                text[:place].rstrip().count("\n") + 1, f"not JSON from here on: {getattr(error, 'msg', error)}"
            )
            return
        yield None, value


def seconds(value: Any) -> float | None:
    """A time as ISO 8601 or as a number of seconds since 1970; without a zone it is taken for UTC.

    >>> seconds("2026-11-15 01:21:28.5+00:00"), seconds("1970-01-01T00:00:02Z"), seconds(""), seconds("soon")
    (1794705688.5, 2.0, None, None)
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value) if 0 <= value < 1e12 else None
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    stamp = moment.timestamp()
    return stamp if stamp >= 0 else None
