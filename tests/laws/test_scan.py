"""The law of the scanner: wherever the C module answers, msgspec would have given the same columns."""

from __future__ import annotations

import random
import struct
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from making import documents, made, texts, trace_of, written

from podium.trace import files, log, scan, survey
from podium.trace.columns import Text, differences
from podium.trace.findings import Unreadable
from podium.trace.loose import edge_codes, event_columns, nested
from podium.trace.scan import EDGES, EVENTS, LOG_EVENTS, Odd, Shape, Table, objects, objects_py

pytestmark = pytest.mark.skipif(not scan.FAST, reason="the C module is not built")

Plain = dict[str, Any]


def plain(table: Table, shape: Shape) -> Plain:
    """A table without its codes, which depend on the order in which words were met."""
    words = {name: d for name, (_, d) in (shape.top | shape.nested).items() if d}
    columns = {
        name: Text(column, table.words[words[name]]).strings() if name in words else column.tobytes()
        for name, column in table.columns.items()
    }
    raw = {name: list(zip(rows.tolist(), texts, strict=True)) for name, (rows, texts) in table.raw.items()}
    return {
        "n": table.n,
        "columns": columns,
        "raw": raw,
        "extras": {k: v.strings() for k, v in table.extras.items()},
    }


def by_c(data: bytes, lines: bool, shape: Shape) -> Plain | None:
    words = shape.dictionaries()
    fields = [tuple((n, k, words.get(d)) for n, (k, d) in s.items()) for s in (shape.top, shape.nested)]
    answer = scan._scan_c(data, 0, lines, *fields)
    if answer is None:
        return None
    end, n, columns, extras = answer
    table = scan._table_c(data, n, columns, extras, shape, words)
    return None if table is None or data[end:].strip(b" \t\r\n") else plain(table, shape)


def by_msgspec(data: bytes, lines: bool, shape: Shape) -> Plain | None:
    try:
        return plain(objects_py(data, lines, shape, {d: scan.WordsPy() for d in shape.dictionaries()}), shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, Odd):
        return None


def required(found: Plain, shape: Shape) -> bool:
    """Whether every object has what it must; the readers ask this of columns, msgspec of objects."""
    names = {
        "events": ("id", "t", "type", "agent"),
        "log": ("n", "t", "type", "agent"),
        "edges": ("src", "dst", "type"),
    }
    kind = "edges" if shape is EDGES else "events" if shape is EVENTS else "log"
    floats = ("t", "n")
    return not found["n"] or all(
        name in found["columns"]
        and not (
            np.isnan(np.frombuffer(found["columns"][name])).any()
            if name in floats
            else None in found["columns"][name]
        )
        for name in names[kind]
    )


def outcome(data: bytes) -> Any:
    """What a whole document comes to: a trace and what is wrong, or why it cannot be read."""
    try:
        one = files.finished(survey.read_document(data, "f"), "f")
    except Unreadable as error:
        return str(error)
    return one


def same_outcome(a: Any, b: Any) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return bool(a == b)
    if (a.trace is None) != (b.trace is None) or a.findings != b.findings:
        return False
    return a.trace is None or differences(a.trace, b.trace) == []


def outcomes(data: bytes) -> tuple[Any, Any]:
    fast = outcome(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "FAST", False)
        patch.setattr(survey, "_plain", lambda data: None)
        return fast, outcome(data)


def mutated(data: bytes, dice: random.Random) -> bytes:
    """A few bytes changed, left out, doubled or brought from elsewhere."""
    pieces = [
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\n",
        b"\x00",
        b"\xff",
        b"\xc3",
        b"0",
        b"-",
        b".",
        b"e9",
        b"1e400",
    ]
    pieces += [
        b"null",
        b"true",
        b" ",
        b"\\u00",
        b"\\ud83d",
        b"\\udc00",
        b"NaN",
        b"9007199254740993",
        b"1.0",
        b'"t":1,',
        b'"type":"dance",',
    ]
    for _ in range(dice.choice([1, 1, 2, 5])):
        at = dice.randrange(len(data) + 1)
        to = min(len(data), at + dice.choice([0, 0, 1, 1, 2, 7]))
        middle = dice.choice([b"", dice.choice(pieces), bytes([dice.randrange(256)]), data[at:to] * 2])
        data = data[:at] + middle + data[to:]
    return data


def parts(document: dict[str, Any], style: int) -> list[tuple[bytes, bool, Shape]]:
    return [
        (written(document["events"], style), False, EVENTS),
        (written(document["edges"], style), False, EDGES),
        (b"\n".join(log.write(trace_of(document)).split(b"\n")[1:-2]), True, LOG_EVENTS),
    ]


# the law


@given(documents(), st.integers(0, 15))
def test_the_scanner_says_what_msgspec_says(document: dict[str, Any], style: int) -> None:
    for data, lines, shape in parts(document, style):
        found = by_c(data, lines, shape)
        assert found is None or found == by_msgspec(data, lines, shape)


@given(documents(plain=True), st.integers(0, 15))
def test_the_scanner_answers_for_plain_documents(document: dict[str, Any], style: int) -> None:
    for row, event in enumerate(document["events"]):
        event["id"] = f"é{row}"
    assert by_c(written(document["events"], style & ~4), False, EVENTS) is not None


@settings(max_examples=400)
@given(documents(5), st.integers(0, 15), st.integers(0, 2**32), st.integers(0, 2))
def test_the_scanner_accepts_nothing_that_msgspec_refuses(
    document: dict[str, Any], style: int, seed: int, which: int
) -> None:
    data, lines, shape = parts(document, style)[which]
    data = mutated(data, random.Random(seed))
    found = by_c(data, lines, shape)
    if found is None or not required(found, shape):
        return
    meant = by_msgspec(data, lines, shape)
    if meant is None:  # what msgspec checks as it reads, and the readers ask of columns
        with pytest.raises((Odd, msgspec.MsgspecError, UnicodeDecodeError)):
            read_on(data, lines, shape)
    else:
        assert found == meant


def read_on(data: bytes, lines: bool, shape: Shape) -> None:
    table, _ = objects(data, 0, lines, shape, shape.dictionaries())
    if shape is EDGES:
        edge_codes(table.columns["type"], table.words["type"])
        if any("" in (table.text(name, "ids") or Text.of([])).strings() for name in ("src", "dst")):
            raise Odd("empty")
        return
    event_columns(table)
    for name in set(table.raw) - {"after", "also"}:
        nested(table, name)
    if any(
        "" in (table.text(name, d) or Text.of([])).strings()
        for name, d in (("id", "ids"), ("agent", "agents"), ("context", "ids"))
    ):
        raise Odd("empty")


@settings(max_examples=300)
@given(texts(6), st.integers(0, 2**32))
def test_a_document_comes_to_the_same_either_way(text: bytes, seed: int) -> None:
    data = mutated(text, random.Random(seed))
    fast, slow = outcomes(data)
    assert same_outcome(fast, slow), (fast, slow)


@settings(max_examples=200)
@given(st.binary(max_size=200))
@example(b"")
@example(b"[")
@example(b'[{"')
@example(b'[{"t":')
@example(b'[{"t":1}')
@example(b'[{"x":"\\')
@example(b'[{"x":"\\u12')
@example(b'[{"x":"\\ud83d\\u')
@example(b'[{"podium":{')
def test_the_scanner_survives_anything(data: bytes) -> None:
    for lines in (False, True):
        for shape in (EVENTS, EDGES, LOG_EVENTS, log.CHECKED):
            by_c(data, lines, shape)
    for start in range(len(data) + 1):
        end = scan.skip(data, start)
        assert end is None or start < end <= len(data)


def test_the_scanner_stops_where_the_data_does() -> None:
    text = b'[{"id":"e","t":1.5e3,"podium":{"end":2,"valid":true,"tokens":[1]},"x":{"y":[null,"\\ud83d\\ude00"]}}]'
    assert by_c(text, False, EVENTS) is not None
    for cut in range(len(text)):
        assert by_c(text[:cut], False, EVENTS) is None


# one case at a time

DOCUMENT = (
    b'{"trace_id":"r","task_id":"t","events":[{"id":"a","t":0,"type":"spawn","agent":"x"%s}],'
    b'"edges":[],"rewards":{},"costs":{"tokens":0,"wall_clock_s":0}}'
)


@pytest.mark.parametrize(
    "more",
    [
        b',"podium":{"stage":1.0}',
        b',"podium":{"stage":1e2}',
        b',"podium":{"stage":9007199254740993}',
        b',"podium":{"stage":18446744073709551617}',
        b',"podium":{"start":00}',
        b',"podium":{"tokens":[18446744073709551616]}',
        b',"podium":{"tokens":[-1]}',
        b',"podium":{"tokens":[1.5]}',
        b',"podium":{"surprise":1}',
        b',"podium":null',
        b',"type":"dance","type":"spawn"',
        b',"t":-1,"t":1',
        b',"agent":"","agent":"x"',
        b',"x":"\\ud800"',
        b',"x":"\\ud800\\u0041"',
        b',"x":"\\udc00"',
        b',"x":"\xff"',
        b',"\xff":1',
        b',"x":{"\xff":1}',
        b',"role":"\xff"',
        b',"role":"\xed\xa0\x80"',
        b',"podium":{"options":["\xff"]}',
        b',"podium":{"votes":[{"value":"\xff"}]}',
        b',"podium":{"model":"\\ud800"}',
        b',"x":01',
        b',"x":+1',
        b',"x":.5',
        b',"x":1.',
        b',"x":1e',
        b',"x":--1',
        b',"x":NaN',
        b',"x":Infinity',
        b',"t":1e400',
        b',"x":tru',
        b',"x":nullx',
        b',"x":"a\tb"',
        b',"x":"\\x41"',
        b",\"x\":'a'",
        b',"x":1,',
        b',,"x":1',
        b',"x"',
        b',"x":',
        b",x:1",
    ],
)
def test_what_is_wrong_is_wrong_either_way(more: bytes) -> None:
    fast, slow = outcomes(DOCUMENT % more)
    assert same_outcome(fast, slow), (fast, slow)
    assert isinstance(fast, str) or {f.rule for f in fast.findings} == {"schema"}


@pytest.mark.parametrize(
    "more",
    [
        b',"x":1,"x":2',
        b',"podium":{"stage":-0}',
        b',"podium":{"options":3,"options":["a"]}',
        b',"podium":{"end":1,"end":2}',
        b',"podium":{"end":1},"podium":{"cost":2}',
        b',"x":1e400',
        b',"x":"\\ud83d\\ude00"',
        b',"\\u0078":1',
        b',"ro\\u006ce":"r"',
        b',"role":"\\u0041\\n"',
        b',"x":[' * 1 + b"[" * 200 + b"]" * 200 + b"]",
        b',"x":' + b"1" * 100,
        b',"t":' + b"1" * 100,
        b',"t":0.' + b"1" * 100,
        b',"x":\n[1,\n2]',
        b',"x": [ ] , "y" : { }',
        b',"x":"\x7f"',
        b',"x":"\xc3\xa9"',
        b',"":1',
        b',"x":-0.0',
    ],
)
def test_what_is_odd_but_right_is_right_either_way(more: bytes) -> None:
    fast, slow = outcomes(DOCUMENT % more)
    assert not isinstance(fast, str), fast
    assert same_outcome(fast, slow), (fast, slow)
    assert fast.findings == []


# numbers


def parsed(text: str) -> float | None:
    found = by_c(b'[{"t":%s}]' % text.encode(), False, EVENTS)
    return None if found is None else struct.unpack("d", found["columns"]["t"])[0]


def bits(value: float) -> bytes:
    return struct.pack("d", value)


@settings(max_examples=500)
@given(st.from_regex(r"\A-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,30})?([eE][-+]?[0-9]{1,3})?\Z"))
@example("9007199254740993")
@example("9007199254740992.5")
@example("1.7976931348623157e308")
@example("2.2250738585072011e-308")
@example("4.9e-324")
@example("-0")
@example("-0.0e5")
@example("0." + "0" * 26 + "1")
@example("123456789012345678.9")
@example("9999999999999999999")
def test_a_number_is_the_nearest_double(text: str) -> None:
    text = text.strip("\n")
    value = parsed(text)
    if value is None:
        assert float(text) in (float("inf"), float("-inf")) or len(text) >= 64
    else:
        assert bits(value) == bits(float(text))


def test_many_numbers_are_the_nearest_doubles() -> None:
    """Doubles as Python writes them, and decimals that lie close to halfway between two."""
    dice = random.Random(0)
    texts_: list[str] = []
    for _ in range(20_000):
        (value,) = struct.unpack("d", dice.getrandbits(64).to_bytes(8, "little"))
        if value == value and abs(value) != float("inf"):
            texts_.append(repr(value))
        digits = dice.randint(1, 19)
        texts_.append(f"{dice.randrange(10**digits)}e{dice.randint(-30, 25)}")
        half = dice.getrandbits(53) * 2 + 1
        texts_ += [
            str(half << dice.randint(0, 9)),
            f"{half * 5}e-1",
            f"{half}.{'0' * dice.randint(1, 12)}{dice.choice('01')}",
        ]
        texts_.append(f"{dice.randrange(10**6)}.{dice.randrange(10**12):012}")
    data = b"[" + b",".join(b'{"t":%s}' % t.encode() for t in texts_) + b"]"
    words = EVENTS.dictionaries()
    fields = [tuple((n, k, words.get(d)) for n, (k, d) in s.items()) for s in (EVENTS.top, EVENTS.nested)]
    answer = scan._scan_c(data, 0, False, *fields)
    assert answer is not None
    got = np.frombuffer(answer[2]["t"])
    want = np.array([float(t) for t in texts_])
    assert [texts_[i] for i in np.flatnonzero(got.view(np.int64) != want.view(np.int64))[:5]] == []


# words


@given(st.lists(st.text(max_size=12), max_size=300))
def test_words_are_numbered_as_they_come(strings: list[str]) -> None:
    fast, slow = scan.Words(), scan.WordsPy()
    keep = [s for s in strings if not any(0xD800 <= ord(c) < 0xE000 for c in s)]
    assert [fast.code(s) for s in keep] == [slow.code(s) for s in keep]
    assert list(fast) == list(slow)
    assert len(fast) == len(slow)
    assert fast.valid()
    with pytest.raises(IndexError):
        fast[len(fast)]


def test_many_words() -> None:
    words = scan.Words()
    codes = [words.code(f"{i * 2654435761 % 2**32:x}") for i in range(100_000)]
    assert codes == list(range(100_000))
    assert words[77_777] == f"{77_777 * 2654435761 % 2**32:x}"
    with pytest.raises(UnicodeEncodeError):
        words.code("\ud800")


def test_the_scanner_refuses_fields_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="no such kind"):
        scan._scan_c(b"[]", 0, False, (("t", "?", None),), ())
    with pytest.raises(ValueError, match="no such kind"):
        scan._scan_c(b"[]", 0, False, (("t", "s", None),), ())
    with pytest.raises(ValueError, match="outside"):
        scan._scan_c(b"[]", 3, False, (), ())
    with pytest.raises(ValueError, match="too many"):
        scan._scan_c(b"[]", 0, False, tuple((f"f{i}", "n", None) for i in range(49)), ())


def test_a_big_document_comes_to_the_same_either_way() -> None:
    fast, slow = outcomes(written(made(9, 3000), 0))
    assert same_outcome(fast, slow)
