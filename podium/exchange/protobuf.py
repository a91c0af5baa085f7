"""OTLP traces in protobuf, decoded without a library: the fields that are read, and no others.

The messages are those of opentelemetry/proto/trace/v1/trace.proto. A file holds one request, or several, each
behind its length in four bytes (what the collector's file exporter writes).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import unpack_from
from typing import Any

__all__ = ["PAIR", "REQUEST", "Damaged", "Schema", "requests"]


class Damaged(ValueError):
    """Bytes that are not the message they should be."""


def requests(data: bytes) -> Iterator[dict[str, Any]]:
    """The requests of a file, in the shape that OTLP has in JSON.

    >>> span = b"\\x2a\\x02hi"
    >>> scope = b"\\x12" + bytes([len(span)]) + span
    >>> resource = b"\\x12" + bytes([len(scope)]) + scope
    >>> [r] = requests(b"\\x0a" + bytes([len(resource)]) + resource)
    >>> r["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["name"]
    'hi'
    """
    at = 0
    while data[at : at + 1] == b"\0":  # no message begins with a zero; a length does
        size = int.from_bytes(data[at : at + 4], "big")
        if size == 0 or at + 4 + size > len(data):
            raise Damaged(f"a message of {size} bytes at byte {at}, but the file has {len(data)}")
        yield _message(data, at + 4, at + 4 + size, REQUEST)
        at += 4 + size
    if at < len(data):
        yield _message(data, at, len(data), REQUEST)


Schema = dict[
    int, tuple[str, Any]
]  # number -> name, and what it is: a message, text, id, fixed, int, bool, double; [x] if repeated
VALUE: Schema = {
    1: ("stringValue", "text"),
    2: ("boolValue", "bool"),
    3: ("intValue", "int"),
    4: ("doubleValue", "double"),
    7: ("bytesValue", "id"),
}
PAIR: Schema = {1: ("key", "text"), 2: ("value", VALUE)}
VALUE[5] = ("arrayValue", {1: ("values", [VALUE])})
VALUE[6] = ("kvlistValue", {1: ("values", [PAIR])})
SPAN: Schema = {
    1: ("traceId", "id"),
    2: ("spanId", "id"),
    4: ("parentSpanId", "id"),
    5: ("name", "text"),
    7: ("startTimeUnixNano", "fixed"),
    8: ("endTimeUnixNano", "fixed"),
    9: ("attributes", [PAIR]),
    11: ("events", [{2: ("name", "text"), 3: ("attributes", [PAIR])}]),
    13: ("links", [{1: ("traceId", "id"), 2: ("spanId", "id"), 4: ("attributes", [PAIR])}]),
    15: ("status", {3: ("code", "int")}),
}
REQUEST: Schema = {
    1: (
        "resourceSpans",
        [{1: ("resource", {1: ("attributes", [PAIR])}), 2: ("scopeSpans", [{2: ("spans", [SPAN])}])}],
    )
}


def _message(data: bytes, at: int, end: int, schema: Schema) -> dict[str, Any]:
    message: dict[str, Any] = {}
    while at < end:
        tag, at = _varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        value: Any
        if wire == 0:
            value, at = _varint(data, at, end)
        elif wire == 2:
            size, at = _varint(data, at, end)
            value, at = (at, at + size), at + size
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            value, at = (at, at + size), at + size
        else:
            raise Damaged(f"wire type {wire} at byte {at}")
        if at > end or number == 0:
            raise Damaged(f"field {number} at byte {at} ends behind its message, which ends at byte {end}")
        if number in schema:
            name, kind = schema[number]
            if isinstance(kind, list):
                message.setdefault(name, []).append(_value(data, value, kind[0], wire))
            else:
                message[name] = _value(data, value, kind, wire)
    return message


def _value(data: bytes, value: Any, kind: Any, wire: int) -> Any:
    expected = {"int": 0, "bool": 0, "double": 1, "fixed": 1}.get(kind, 2) if isinstance(kind, str) else 2
    if wire != expected:
        raise Damaged(f"wire type {wire} where {expected} was expected")
    if isinstance(kind, dict):
        return _message(data, value[0], value[1], kind)
    if kind == "int":
        return value - (1 << 64) if value >> 63 else value
    if kind == "bool":
        return bool(value)
    start, end = value
    if kind == "text":
        return data[start:end].decode(errors="replace")
    if kind == "id":
        return data[start:end].hex()
    return unpack_from("<d" if kind == "double" else "<Q", data, start)[0]


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
    raise Damaged(f"a number that does not end at byte {at}")
