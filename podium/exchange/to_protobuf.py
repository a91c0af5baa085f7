"""Messages in protobuf, encoded without a library, by the schemas that they are decoded by."""

from __future__ import annotations

from collections.abc import Mapping
from struct import pack
from typing import Any

from podium.exchange.protobuf import Schema

__all__ = ["encoded"]


def encoded(message: Mapping[str, Any], schema: Schema) -> bytes:
    """A message by its fields' names, those that are there.

    >>> from podium.exchange.protobuf import PAIR
    >>> encoded({"key": "a", "value": {"intValue": "3"}}, PAIR)
    b'\\n\\x01a\\x12\\x02\\x18\\x03'
    """
    parts: list[bytes] = []
    for number, (name, kind) in schema.items():
        value = message.get(name)
        if value is None:
            continue
        several = isinstance(kind, list)
        for one in value if several else [value]:
            parts.append(_field(number, kind[0] if several else kind, one))
    return b"".join(parts)


def _field(number: int, kind: Any, value: Any) -> bytes:
    if isinstance(kind, dict):
        data = encoded(value, kind)
    elif kind in ("int", "bool"):
        return _number(number << 3) + _number(int(value) & (1 << 64) - 1)
    elif kind in ("double", "fixed"):
        return _number(number << 3 | 1) + (pack("<d", value) if kind == "double" else pack("<Q", int(value)))
    else:
        data = value.encode() if kind == "text" else bytes.fromhex(value)
    return _number(number << 3 | 2) + _number(len(data)) + data


def _number(value: int) -> bytes:
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes([*data, value])
