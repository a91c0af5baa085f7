"""From what an importer reads to a trace. No files here: an importer adds events and edges, `Run.built` makes the
trace.

An importer states what its log states. An edge that the log does not state names the rule by which it was inferred.
What the log does not know stays absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from itertools import repeat
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from podium.exchange.redact import redacted
from podium.trace.columns import COLUMNS, F, I, Names, Text, Trace
from podium.trace.findings import Finding
from podium.trace.loose import Edges, Loose, settle
from podium.trace.order import causes_first
from podium.trace.rules import LEVELS, check
from podium.trace.vocabulary import DECISIONS, EDGE_TYPES, EVENT_TYPES, TOPOLOGIES, Decision, EdgeType, EventType

__all__ = ["PERSON", "Fault", "Noted", "Run"]

Noted = tuple[str, bytes | None]  # the hash of a content and, if content is kept, itself, redacted
Content = bytes | msgspec.Raw | str | Noted  # JSON, or a text
PERSON = "person"  # whoever gives the tasks, approves and interrupts
_TYPE = {word: code for code, word in enumerate(EVENT_TYPES)}
_EDGE = {word: code for code, word in enumerate(EDGE_TYPES)}
_KIND = {c.name: c.kind for c in COLUMNS}
_DTYPE: dict[str, tuple[Any, Any]] = {
    "float": (np.float64, np.nan),
    "int": (np.int64, -1),
    "tri": (np.int8, -1),
    "row": (np.int32, -1),
}
_TEMPORAL = _EDGE["temporal"]
_SRC, _DST, _ROW, _KIND_OF = 34, 4, (1 << 30) - 1, 15  # an edge as one number: cause, effect and type
_BESIDE = (_TYPE["tool_call"], _TYPE["tool_result"])
MOST_BESIDE = 100  # events of one agent side by side that are looked through for one that had ended


class Fault(NamedTuple):
    """Something in a log that could not be read, or not as it should be. The rest was imported."""

    file: str
    line: int | None
    message: str

    def finding(self) -> Finding:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return Finding(where, None, "log-fault", LEVELS["log-fault"], self.message)


class Run:
    """One run of another system, event by event.

    >>> run = Run("session", system="example")
    >>> ask = run.add("message", PERSON, 10.0, to="main", content="fix it")
    >>> call = run.add("tool_call", "main", 11.0, end=12.5, tool="Bash", tokens_in=3, cache_read=900)
    >>> run.edge(ask, call, "message")
    >>> trace, findings = run.built("session.jsonl")
    >>> trace, findings[0].rule, trace.t_e.tolist(), trace.cache_read_e.tolist()
    (Trace(1 rollout, 2 events, 1 edge, 2 agents), 'open-call', [0.0, 1.0], [nan, 900.0])
    """

    def __init__(
        self,
        trace_id: str,
        *,
        system: str,
        task_id: str | None = None,
        topology: str | None = None,
        harness: str | None = None,
        keep: bool = False,  # content itself, redacted, beside its hash
    ) -> None:
        self.trace_id, self.system, self.task_id = trace_id, system, task_id
        self.topology, self.harness, self.keep = topology, harness, keep
        self.params: dict[
            str, Any
        ] = {}  # what else there is to know of the run; `started` and the number of `faults` are added
        self.rewards: dict[str, float] = {}
        self.costs: dict[str, float] = {}  # totals that the log states
        self.file: str | None = None  # the file to name it by, where several were read
        self.faults: list[Fault] = []
        self.events: list[dict[str, Any]] = []  # column names, without suffix, to values
        self._edges: dict[int, str | None] = {}  # by number: the rule by which it was inferred

    def add(
        self,
        type: EventType,
        agent: str,
        t: float | None,
        *,
        end: float | None = None,
        to: str | None = None,
        content: Content | None = None,
        decision: Decision | None = None,
        extra: Mapping[str, Any] | None = None,
        after: Iterable[tuple[EdgeType, int]] = (),
        **fields: Any,
    ) -> int:
        """Adds an event and returns its number. `t` and `end` are seconds on any one clock. `fields` are columns of
        an event by their names without `_e` (role, tool, model, tokens_in, tokens_out, cache_read, cache_write,
        cost, task, valid, truncated, trusted, chosen, ...); None is absent. Events of one agent are added in their
        causal order: each follows the one before it (a `temporal` edge), but for calls and results, whose order
        their edges state, and what the person does."""
        agent = agent or "unnamed"
        fields["type"], fields["agent"], fields["t"] = _TYPE[type], agent, t
        if end is not None:
            fields["end"] = end
        if to:
            fields["to"] = to
        if agent == PERSON:
            fields.setdefault("role", "user")
        if decision is not None:
            fields["decision"] = DECISIONS.index(decision)
        if extra:
            fields["extra"] = dict(extra)
        row = self.append(fields)
        if content is not None:
            self.set_content(row, content)
        for kind, cause in after:
            self.edge(cause, row, kind)
        return row

    def append(self, event: dict[str, Any]) -> int:
        """Adds an event that is ready: the values of its columns, words as their codes. For who adds many."""
        self.events.append(event)
        return len(self.events) - 1

    def set(self, row: int, **fields: Any) -> None:
        """What was learnt of an event later."""
        self.events[row] |= fields

    def note(self, content: bytes | msgspec.Raw | str) -> Noted:
        """What is kept of a content, so that the bytes that it was read from need not be."""
        raw = msgspec.json.encode(content) if isinstance(content, str) else content
        return "sha256:" + sha256(raw).hexdigest()[:24], redacted(bytes(raw)) if self.keep else None

    def set_content(self, row: int, content: Content) -> None:
        """Sets the content of an event: its hash, and itself if content is kept."""
        event = self.events[row]
        event["content_ref"], clean = content if isinstance(content, tuple) else self.note(content)
        if clean is not None:
            event.setdefault("extra", {})["content"] = msgspec.Raw(clean)

    def edge(self, src: int, dst: int, type: EdgeType, rule: str | None = None) -> None:
        """States that one event is a cause of another; `rule` says by which rule an edge was inferred. One edge of
        a type joins two events once, and a recorded one is not made an inferred one."""
        key = src << _SRC | dst << _DST | _EDGE[type]
        if src != dst and (rule is None or key not in self._edges):
            self._edges[key] = rule

    def fault(self, file: str, line: int | None, message: str) -> None:
        self.faults.append(Fault(file, line, message))

    def built(self, file: str) -> tuple[Trace | None, list[Finding]]:
        """The trace, and what is wrong with it or with the log; no trace where there was no event."""
        findings = [f.finding() for f in self.faults]
        if not self.events:
            return None, [*findings, Finding(file, None, "empty-run", LEVELS["empty-run"], "a log without a run")]
        columns = self._columns()
        t, end, type_e = columns["t_e"], columns.get("end_e"), columns["type_e"]
        end = np.full(len(t), np.nan) if end is None else end
        agent = columns["agent_e"].codes  # numbered by their first event
        theirs = agent != columns["agent_e"].code(PERSON)
        stated = np.fromiter(self._edges, np.int64, len(self._edges))
        keys = np.append(stated, _in_line(agent, theirs & ~np.isin(type_e, _BESIDE)))
        times = _times(t, end, keys >> _SRC, keys >> _DST & _ROW, keys & _KIND_OF)
        if times.moved:
            later = (
                f"{times.moved} events have causes that are later by the log's clock, by {times.most:.3g} s at most"
            )
            findings.append(Finding(file, None, "log-order", LEVELS["log-order"], f"{later}; moved behind them"))
        begun, ended = times.begun, times.ended
        timed = begun[~np.isnan(begun)]
        start = float(timed.min()) if len(timed) else 0.0
        columns |= {"t_e": begun - start, "end_e": ended - start}
        agents, columns = _named(columns)
        for key in _follows(agent, times).tolist():
            self._edges.setdefault(key, None)
        keys = np.fromiter(self._edges, np.int64, len(self._edges))
        rules = [(x, rule) for x, rule in enumerate(self._edges.values()) if rule is not None]
        inferred = _sparse([x for x, _ in rules], [rule for _, rule in rules], len(keys))
        edges = Edges(
            keys >> _SRC, keys >> _DST & _ROW, (keys & _KIND_OF).astype(np.int8),
            np.where(inferred.codes >= 0, 1, -1).astype(np.int8), inferred,
        )  # fmt: skip
        trace, broken, _ = settle(Loose(self._run(begun, ended), columns, agents, edges))
        findings += [Finding(file, p.position, p.rule, LEVELS[p.rule], p.message) for p in broken]
        return trace, findings + check(trace, file)

    def _columns(self) -> dict[str, Any]:
        n = len(self.events)
        columns: dict[str, Any] = {"id_e": Names(Text.constant("e", n), np.arange(n))}
        for name in set().union(*self.events) - {"extra"}:
            columns[f"{name}_e"] = _column(_KIND[f"{name}_e"], list(map(dict.get, self.events, repeat(name))))
        extra: dict[str, tuple[list[int], list[Any]]] = {}
        for row, more in enumerate([event.get("extra") for event in self.events]):
            for name, value in more.items() if more else ():
                rows, values = extra.setdefault(name, ([], []))
                rows.append(row)
                values.append(msgspec.json.encode(value).decode())
        columns["extra_e"] = {name: _sparse(*texts, n) for name, texts in extra.items()}
        return columns

    def _run(self, begun: F, ended: F) -> dict[str, Any]:
        last, first = np.fmax.reduce(np.fmax(begun, ended)), np.fmin.reduce(begun)
        params = self.params | ({} if first != first else {"started": round(float(first), 3)})
        params |= {"faults": len(self.faults)} if self.faults else {}
        costs = self.costs | ({} if last != last else {"wall_clock_s": float(last - first)})
        run: dict[str, Any] = {
            "trace_id_n": Text.of([self.trace_id]),
            "task_id_n": Text.of([self.task_id or self.trace_id]),
            "system_n": Text.of([self.system]),
            "topology_n": np.array([TOPOLOGIES.index(self.topology) if self.topology else -1], np.int8),
            "harness_n": Text.of([self.harness]),
            "measured_n": np.array([0]),
            "params_n": Text.of([msgspec.json.encode(params).decode()]),
            "cost_n": {name: np.array([value]) for name, value in costs.items()},
        }
        return run | ({"reward_n": {k: np.array([v]) for k, v in self.rewards.items()}} if self.rewards else {})


def _column(kind: str, values: list[Any]) -> Any:
    """A column of these values, absent where they are None."""
    if kind in ("text", "agent"):
        return Text.of(values)
    dtype, absent = _DTYPE.get(kind, (np.int8, -1))
    if kind != "float" and None in values:
        values = [absent if value is None else value for value in values]
    return np.fromiter(values, dtype, len(values))  # of None numpy makes a NaN


def _sparse(rows: list[int], values: list[str], n: int) -> Text:
    """A column of texts, absent in other rows."""
    text, codes = Text.of(values), np.full(n, -1, np.int32)
    codes[rows] = text.codes
    return Text(codes, text.words)


def _in_line(agent: I, rows: NDArray[np.bool_]) -> I:
    """The edges that join each of these events to the agent's next one, in the order in which they were added.
    Calls and results are not among them: they have their order by their edges, since they may be made, and come
    back, side by side."""
    order = np.flatnonzero(rows)
    order = order[np.argsort(agent[order], kind="stable")]
    same = agent[order[:-1]] == agent[order[1:]]
    keys: I = order[:-1][same] << _SRC | order[1:][same] << _DST | _TEMPORAL
    return keys


def _follows(agent: I, times: Times) -> I:
    """The edges that join each event to the agent's last one before it that had ended when it began; calls made
    side by side do not follow each other."""
    clock, ended = times.clock, times.ended
    order = np.lexsort((times.rank, clock, agent))
    first = np.searchsorted(agent[order], agent[order])  # where the agent's events begin
    place = np.arange(len(order))
    before = np.where(place > first, place - 1, -1)
    row, last = order, order[before]
    beside = np.flatnonzero((before >= 0) & ((ended[last] > clock[row]) | (clock[last] > clock[row])))
    for at in beside.tolist():
        since, earlier = clock[order[at]], order[max(first[at], at - MOST_BESIDE) : at]
        done = np.flatnonzero(~(ended[earlier] > since) & ~(clock[earlier] > since))
        before[at] = at - len(earlier) + done[-1] if len(done) else -1
    follows = before >= 0
    keys: I = order[before[follows]] << _SRC | order[follows] << _DST | _TEMPORAL
    return keys


def _named(columns: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """The agents, and the columns that point to them as codes."""
    pointing = [name for name in ("agent_e", "from_e", "to_e") if name in columns]
    names = list(dict.fromkeys(word for name in pointing for word in columns[name].words))
    return names, columns | {name: columns[name].recoded(tuple(names)) for name in pointing}


class Times(NamedTuple):
    """When events began and ended; a clock and a rank that agree with all edges, also where the log has no time;
    and how many events had to begin later than the log says, and by how much at most."""

    begun: F
    ended: F
    clock: F
    rank: I
    moved: int
    most: float


def _times(t: F, end: F, src: I, dst: I, kind: I) -> Times:
    """Times such that an effect begins no earlier than its cause and, unless it only follows it, no earlier than
    its cause ends.

    An event that the log has earlier than its cause begins with its cause. A cause ends when the first of its
    effects begins.
    """
    clock, rank = np.where(np.isnan(t), -np.inf, t), np.arange(len(t))
    if not (src < dst).all():
        order, closing = causes_first(t, src, dst)
        if order is not None:
            rank[order] = np.arange(len(t))
        src, dst, kind = src[~closing], dst[~closing], kind[~closing]
    if (clock[src] > clock[dst]).any():
        by_effect, moved = np.argsort(rank[dst], kind="stable"), clock.tolist()
        for a, b in zip(src[by_effect].tolist(), dst[by_effect].tolist(), strict=True):
            if moved[a] > moved[b]:
                moved[b] = moved[a]
        clock = np.array(moved)
    begun = np.where(np.isnan(t), np.nan, clock)
    ended = np.where(np.isnan(end), np.nan, np.fmax(end, begun))
    binds = (kind != _TEMPORAL) & ~np.isnan(ended[src])
    np.fmin.at(ended, src[binds], begun[dst[binds]])
    by = begun - t
    return Times(begun, ended, clock, rank, int((by > 0).sum()), float(np.fmax.reduce(by, initial=0.0)))
