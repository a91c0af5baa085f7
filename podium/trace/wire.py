"""What is written on disk, as types: the survey's document, Podium's fields on an event, and the event log.

Everything Podium adds to an event of the survey travels under the one key `podium`. A field that was not
recorded is left out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, inspect

from podium.trace.vocabulary import Decision, EdgeType, EventType, Topology

__all__ = [
    "LISTS",
    "Cause",
    "Closing",
    "Document",
    "Edge",
    "Event",
    "Extension",
    "Field",
    "Header",
    "Listed",
    "LogEvent",
    "RunFields",
    "fields_of",
    "schema",
]

LOG_VERSION = 1

Id = Annotated[str, Meta(min_length=1)]
Amount = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Json = Any
Unrecorded = Literal["t", "trace_id", "task_id", "costs.tokens", "costs.wall_clock_s"]
Taken = Literal["n", "after", "position", "also"]  # names that an event has in a log and not in a document


class Vote(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A vote that an aggregate combined."""

    value: str
    source: Id | UnsetType = UNSET  # the event that cast it
    weight: float | UnsetType = UNSET


class InferredEdge(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An edge to this event that was not recorded but guessed."""

    src: Id
    type: EdgeType
    rule: str | UnsetType = UNSET  # by which rule


class RunFields(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What is known of a run and has no place in the survey's document; on its first event."""

    group: str | UnsetType = UNSET
    parent: Id | UnsetType = UNSET
    harness: str | UnsetType = UNSET
    env: str | UnsetType = UNSET
    params: Json | UnsetType = UNSET
    seed: Json | UnsetType = UNSET
    do: Json | UnsetType = UNSET
    batch: Count | UnsetType = UNSET
    branch: Count | UnsetType = UNSET
    cut: Count | UnsetType = UNSET
    tells: bool | UnsetType = UNSET
    clock_skew_s: Amount | UnsetType = UNSET
    earned: float | UnsetType = UNSET
    value: float | UnsetType = UNSET


class Extension(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Podium's fields on an event, under the key `podium`."""

    end: Amount | UnsetType = UNSET
    tokens_in: Amount | UnsetType = UNSET
    tokens_out: Amount | UnsetType = UNSET
    cache_read: Amount | UnsetType = UNSET
    cache_write: Amount | UnsetType = UNSET
    cache_write_1h: Amount | UnsetType = UNSET
    task: Count | UnsetType = UNSET
    cost: float | UnsetType = UNSET
    stage: Count | UnsetType = UNSET
    decision: Decision | UnsetType = UNSET
    options: list[str] | UnsetType = UNSET
    option_numbers: list[Count | None] | UnsetType = UNSET
    option_items: list[Count | None] | UnsetType = UNSET
    option_logps: list[float | None] | UnsetType = UNSET  # under the policy, one an option
    option_behaviours: list[float | None] | UnsetType = UNSET  # the same among the options that were tried
    chosen: str | UnsetType = UNSET
    logp: float | UnsetType = UNSET
    call: Count | UnsetType = UNSET  # of the policy
    chance: float | UnsetType = UNSET  # that it was branched
    valid: bool | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET
    model: str | UnsetType = UNSET
    version: str | UnsetType = UNSET
    context: Id | UnsetType = UNSET  # the event whose context this generation extends
    start: Count | UnsetType = UNSET  # place of its first token in that context
    tokens: Annotated[list[Count], Meta(min_length=1)] | UnsetType = UNSET
    logps: list[float | None] | UnsetType = UNSET
    mask: list[bool | Literal[0, 1] | None] | UnsetType = UNSET
    rewards: Annotated[dict[str, float], Meta(min_length=1)] | UnsetType = UNSET
    votes: Annotated[list[Vote], Meta(min_length=1)] | UnsetType = UNSET
    random: Json | UnsetType = UNSET
    inferred: Annotated[list[InferredEdge], Meta(min_length=1)] | UnsetType = UNSET
    absent: Annotated[list[Unrecorded], Meta(min_length=1)] | UnsetType = (
        UNSET  # written, since required; not known
    )
    run: RunFields | UnsetType = UNSET


class Listed(NamedTuple):
    """Fields of an event that list what another axis has a row for each of; the first says how many there are."""

    owner: str  # the column of that axis that points to the event
    rule: str  # that is broken where they differ in length
    sentence: str
    fields: dict[str, str]  # to columns


LISTS = (
    Listed(
        "owner_k",
        "token-owner",
        "every token needs one owner",
        {"tokens": "token_k", "logps": "logp_k", "mask": "mask_k"},
    ),
    Listed(
        "event_o",
        "options",
        "every option is described once",
        {
            "options": "label_o",
            "option_numbers": "number_o",
            "option_items": "item_o",
            "option_logps": "logp_o",
            "option_behaviours": "behaviour_o",
        },
    ),
)


class Event(Struct, omit_defaults=True, rename={"from_": "from"}):
    """An event of the survey's schema. Fields that it does not name are allowed, and kept."""

    id: Id
    t: Amount
    type: EventType
    agent: Id
    role: str | UnsetType = UNSET
    from_: str | UnsetType = UNSET
    to: str | UnsetType = UNSET
    tool: str | UnsetType = UNSET
    content_ref: str | UnsetType = UNSET
    trusted: bool | UnsetType = UNSET
    podium: Extension | UnsetType = UNSET


class Edge(Struct, forbid_unknown_fields=True):
    """An edge of the survey's schema."""

    src: Id
    dst: Id
    type: EdgeType


class Costs(Struct):
    """The costs of a run. Further ones are allowed."""

    tokens: Amount
    wall_clock_s: Amount
    tool_calls: Amount | UnsetType = UNSET
    messages: Amount | UnsetType = UNSET


class Document(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A run, as the survey's schema has it."""

    trace_id: Id
    task_id: Id
    events: Annotated[list[Event], Meta(min_length=1)]
    edges: list[Edge]
    rewards: dict[str, float]
    costs: Costs
    system: str | UnsetType = UNSET
    topology: Topology | UnsetType = UNSET
    metrics: dict[str, float] | UnsetType = UNSET


class Cause(Struct, array_like=True, forbid_unknown_fields=True):
    """A cause of an event in a log: the edge's type, the cause's number and, if it is another's, its writer."""

    type: EdgeType
    n: Count
    writer: str = ""


class LogEvent(Event, omit_defaults=True, rename={"from_": "from"}, kw_only=True):
    """A line of the event log. Its name is (writer, n); its id, unless it is given, is the writer, a dot and n."""

    n: Count
    id: Id | UnsetType = UNSET  # type: ignore[assignment]
    after: Annotated[list[Cause], Meta(min_length=1)] | UnsetType = UNSET
    position: Count | UnsetType = UNSET  # in the document it was first read from
    also: dict[Taken, Json] | UnsetType = UNSET  # fields that nobody knows and that are called as these are


class Header(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The first line of a segment of an event log, under the key `podium_log`."""

    version: int
    trace_id: Id
    writer: Id
    clock: float | UnsetType = UNSET  # what the clock showed at t = 0
    task_id: Id | UnsetType = UNSET
    system: str | UnsetType = UNSET
    topology: Topology | UnsetType = UNSET
    run: RunFields | UnsetType = UNSET


class Closing(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The last line of a segment that was closed, under the key `podium_end`."""

    events: Count
    rewards: dict[str, float | None] | UnsetType = UNSET
    costs: dict[str, float | None] | UnsetType = UNSET
    metrics: dict[str, float | None] | UnsetType = UNSET


class HeaderLine(Struct, forbid_unknown_fields=True):
    podium_log: Header


class ClosingLine(Struct, forbid_unknown_fields=True):
    podium_end: Closing


class Field(NamedTuple):
    """What a reader must know of a field: what it holds, by a letter, and what no type in C says.

    n number, i count, b boolean, s string, j any JSON of which the text is kept, r JSON that is decoded later.
    """

    kind: str
    least: bool = False  # a number of 0 or more
    filled: bool = False  # a string that is not empty


def fields_of(struct: type[Struct]) -> dict[str, Field]:
    """The fields of an object by their names on disk.

    >>> fields_of(Edge)["src"], fields_of(RunFields)["clock_skew_s"]
    (Field(kind='s', least=False, filled=True), Field(kind='n', least=True, filled=False))
    """
    letters = {"Float": "n", "Int": "i", "Bool": "b", "Str": "s", "Literal": "s", "Any": "j"}
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return {
        f.encode_name: Field(
            letters.get(type(f.type).__name__.removesuffix("Type"), "r"),
            getattr(f.type, "ge", None) == 0,
            getattr(f.type, "min_length", None) == 1,
        )
        for f in info.fields
    }


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of all that Podium writes: a survey document, or a line of an event log."""
    forms, definitions = msgspec.json.schema_components(
        [Document, HeaderLine, LogEvent, ClosingLine], ref_template="#/$defs/{name}"
    )
    definitions["Costs"]["additionalProperties"] = {"type": "number"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Podium orchestration trace",
        "description": "A survey document (one run), or one line of an event log: a header, an event or a closing.",
        "anyOf": list(forms),
        "$defs": definitions,
    }
