"""Whatever comes in: an answer or a Fault, never anything else."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from podium.engine.chat import ReplyParts
from podium.engine.client import EndpointFault
from podium.engine.lines import Lines
from podium.harness.commands import Program, command_words, look_at
from podium.harness.folder import Folder, path_names
from podium.harness.mcp import _Answer, _content
from podium.harness.model import actions_of
from podium.harness.provenance import no_forgery, no_orders, quoted
from podium.harness.types import Fault, Item, Send

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
CHUNKS = st.fixed_dictionaries(
    {},
    optional={
        "choices": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "delta": st.fixed_dictionaries(
                        {},
                        optional={
                            "content": st.text(max_size=9) | JSON,
                            "tool_calls": st.lists(
                                st.fixed_dictionaries(
                                    {},
                                    optional={
                                        "index": st.integers(-3, 3) | JSON,
                                        "function": st.fixed_dictionaries(
                                            {},
                                            optional={
                                                "name": st.text(max_size=5),
                                                "arguments": st.text(max_size=9),
                                            },
                                        ),
                                    },
                                ),
                                max_size=3,
                            ),
                        },
                    )
                    | JSON,
                    "finish_reason": st.sampled_from(["stop", "length", None, 7]),
                },
            ),
            max_size=2,
        )
        | JSON,
        "usage": st.fixed_dictionaries({}, optional={"prompt_tokens": st.integers() | JSON}) | JSON,
        "error": JSON,
    },
)
HOME = Folder("/nonexistent-podium")
KNOWN = {"cat": Program("cat", ("-n",)), "free": Program("free", free=True)}


@given(st.lists(CHUNKS.map(msgspec.json.encode) | st.binary(max_size=40) | st.just(b"[DONE]"), max_size=5))
def test_what_an_endpoint_says(chunks: list[bytes]) -> None:
    parts = ReplyParts()
    with suppress(Fault, EndpointFault):
        for chunk in chunks:
            parts.add(chunk)
        actions_of(parts.reply("m"), ["a"])


@given(st.binary(max_size=60), st.lists(st.integers(1, 9), min_size=1, max_size=20))
def test_lines_are_the_same_however_they_are_cut(data: bytes, cuts: list[int]) -> None:
    lines, got, rest = Lines(), [], data
    while rest:
        for cut in cuts:
            got += lines.take(rest[:cut])
            rest = rest[cut:]
    got.append(lines.rest())
    whole = data.split(b"\n")
    assert got == [*(line.removesuffix(b"\r") for line in whole[:-1]), whole[-1]]


@given(st.text(max_size=40) | st.lists(st.text(max_size=8), max_size=4) | JSON)
def test_command_lines(line: Any) -> None:
    with suppress(Fault):
        argv = command_words(line)
        assert argv
        look_at(argv, KNOWN, Path("/nonexistent-podium"))
        assert argv[0] in KNOWN
        if argv[0] == "cat":
            assert not any(w.startswith("/") or ".." in w.split("/") for w in argv[1:])


@given(st.text("./a~\0é", max_size=12) | JSON)
def test_paths(path: Any) -> None:
    with suppress(Fault):
        names = path_names(path)
        assert names
        assert not {"..", ".", ""} & set(names)
        assert not any("/" in name for name in names)
    with suppress(Fault, FileNotFoundError):
        HOME.read(path)


@given(JSON, st.booleans())
def test_guards(content: Any, trusted: bool) -> None:
    no_forgery("ann", Send(to="lead", content=content))
    item = Item("result", "tool:x", content, trusted)
    no_orders("ann", item)
    assert isinstance(quoted(item), str)


@given(JSON)
def test_what_an_mcp_server_says(said: Any) -> None:
    with suppress(msgspec.ValidationError):
        _content(msgspec.convert(said, _Answer))
        return
    with suppress(msgspec.ValidationError):
        _content(msgspec.convert({"content": said}, _Answer))
