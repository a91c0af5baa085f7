"""JSON lines as records, as far as they go: what cannot be read is named by its line, and the rest is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

__all__ = ["ERRORS", "LOOKED_AT", "one_a_line", "records"]

ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
Complain = Callable[[int, str], None]
_OBJECTS = msgspec.json.Decoder(dict[str, msgspec.Raw])
LOOKED_AT = 8  # lines by which it is known whether a file has one object a line: some of them may be broken


def one_a_line(start: bytes) -> bool:
    """Whether what starts like this has one JSON object a line, rather than one document on many.

    >>> one_a_line(b'{"a": 1}\\n{"a": 2}\\n'), one_a_line(b'{"a": \\n{"a": 2}\\n'), one_a_line(b'{\\n  "a": {}\\n}')
    (True, True, False)
    """
    lines = start.split(b"\n", LOOKED_AT)[:LOOKED_AT]
    if len(lines) == 1 or start[:1] == b"[":
        return start[:1] == b"{"
    begun = [line for line in lines if line.startswith((b'{"', b"{}"))]  # in one document only the first does
    return len(begun) > 1 or any(map(_is_object, begun))


def _is_object(line: bytes) -> bool:
    try:
        return bool(_OBJECTS.decode(line))
    except ERRORS:
        return False


def records(lines: Iterable[bytes], decoder: Any, complain: Complain) -> Iterator[tuple[int, Any]]:
    """The records of a file's lines with the number of their line. `decoder` is msgspec's, of one record.
    `complain` hears of broken lines, torn ones, and of several objects on one line (which are read).

    >>> complaints = []
    >>> lines = [b'{"a": 1}{"a": 2}\\n', b"\\n", b'{"a": \\n', b'{"a": 3}\\n', b'{"a"']
    >>> decoder = msgspec.json.Decoder(dict)
    >>> list(records(lines, decoder, lambda line, why: complaints.append((line, why.split(":")[0]))))
    [(1, {'a': 1}), (1, {'a': 2}), (4, {'a': 3})]
    >>> complaints
    [(1, '2 objects on one line'), (3, 'not JSON'), (5, 'a torn line, which ends after 4 bytes')]
    """
    decode = decoder.decode
    for number, line in enumerate(lines, 1):
        try:
            record = decode(line)
        except ERRORS as error:
            if line.strip():
                yield from ((number, one) for one in _salvaged(line, number, error, decoder, complain))
        else:
            yield number, record


def _salvaged(line: bytes, number: int, error: Exception, decoder: Any, complain: Complain) -> Iterator[Any]:
    """The records on a line that is not one record."""
    if isinstance(error, msgspec.ValidationError):
        complain(number, f"not a record as this format has them: {error}")
        return
    pieces, rest = _pieces(line)
    if len(pieces) > 1:
        complain(number, f"{len(pieces)} objects on one line")
    for piece in pieces:
        try:
            yield decoder.decode(piece)
        except ERRORS as unlike:
            complain(number, f"not a record as this format has them: {unlike}")
    if rest and not line.endswith(b"\n"):
        complain(number, f"a torn line, which ends after {len(line)} bytes")
    elif rest:
        complain(number, f"not JSON: {error}")


def _pieces(line: bytes) -> tuple[list[bytes], bool]:
    """The whole objects that a line begins with, and whether something is left behind them."""
    pieces: list[bytes] = []
    text, at = line.decode(errors="replace"), 0
    scan = json.JSONDecoder()
    while at < len(text):
        try:
            value, end = scan.raw_decode(text, at)
        except (ValueError, RecursionError):
            return pieces, True
        if not isinstance(value, dict):
            return pieces, True
        pieces.append(text[at:end].encode())
        at = end + len(text[end:]) - len(text[end:].lstrip())
    return pieces, False
