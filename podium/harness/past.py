"""A recorded run, read back as what a replay needs: every step, every call, and whatever came from outside, with
its time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from podium.errors import WrongUse
from podium.harness.team import LEAD
from podium.harness.types import SAID, Fault, Refused, Result, Said
from podium.harness.understand import Understood, from_record
from podium.trace.columns import Text, Trace
from podium.trace.vocabulary import EVENT_TYPES

__all__ = ["BadReplay", "Past", "PastCall", "PastStep", "read_past"]

_decode = msgspec.json.decode


class BadReplay(WrongUse):
    """A replay that cannot be: the trace lacks what it needs, or the intervention makes no sense there."""


@dataclass(slots=True)
class PastStep:
    """A step as it was: when, what the agent saw, and what came of it. Neither `outcome` nor a fault: it was cut
    off."""

    agent: str
    turn: int
    attempt: int
    row: int
    t: float
    end: float
    saw: list[str]
    outcome: Understood | Fault | None
    hit: bool = False  # a budget forbade it


@dataclass(slots=True)
class PastCall:
    """A call as it was: what was asked, when the answer came, and what it was; None where it was cut off."""

    agent: str
    at: str
    tool: str
    args: Any
    began: float
    t: float
    outcome: Result | Fault | None


@dataclass(slots=True)
class Past:
    """A run as it was."""

    task: Any
    spec: str
    seed: int
    end: float
    steps: dict[tuple[str, int, int], PastStep] = field(default_factory=dict)
    calls: dict[tuple[str, str], PastCall] = field(default_factory=dict)
    outside: list[tuple[float, str, Any]] = field(default_factory=list)  # when, what, whom or with what
    at: dict[int, tuple[str, str]] = field(default_factory=dict)  # of each row: the agent that did it and the place
    kinds: list[str] = field(default_factory=list)  # of each row: what it is
    t: list[float] = field(default_factory=list)  # of each row: when it was
    agents: list[str] = field(default_factory=list)  # all that there were, the lead first
    step_s: dict[str, float] = field(default_factory=dict)  # how long steps of a role take
    call_s: dict[str, float] = field(default_factory=dict)  # and calls of a tool


def read_past(trace: Trace) -> Past:
    """What one recorded run was. Raises BadReplay where the trace does not say."""
    try:
        return _read_past(trace)
    except RecursionError:
        raise BadReplay(f"{trace.trace_id_n[0]} holds something that is nested too deeply to be replayed") from None


def _read_past(trace: Trace) -> Past:
    rows = _Rows(trace)
    past = _header(trace)
    past.kinds, past.t = rows.type, rows.t
    past.agents = [LEAD, *(rows.to(row) or "" for row, kind in enumerate(rows.type) if kind == "spawn")]
    acts: dict[tuple[str, int], dict[int, bytes]] = {}
    heads: list[int] = []
    for row in range(trace.n_events):
        rows.place(past, row)
        if "act" in rows.extra and (act := rows.raw("act", row)) is not None:
            turn, at = rows.spot(row)
            acts.setdefault((rows.agent(row), turn), {})[at] = act
        if rows.get("step", row) is not None:
            heads.append(row)
        _from_outside(past, rows, row)
    if not heads:
        raise BadReplay(f"{trace.trace_id_n[0]} was not recorded by the harness: no event of it is a step")
    for row in heads:
        _step(past, rows, row, acts)
    _calls(past, rows, acts)
    _durations(past, rows)
    return past


def _header(trace: Trace) -> Past:
    name = trace.trace_id_n[0]
    if len(trace) != 1:
        raise BadReplay(f"expected one run to replay, got {len(trace)}")
    params = trace.params_n[0]
    fields = _decode(params) if params else {}
    if not isinstance(fields, dict) or "team" not in fields or "task" not in fields:
        raise BadReplay(
            f"{name} does not say which team it was and what its task: it was not recorded by the harness"
        )
    if not isinstance(fields["team"], str):
        raise BadReplay(f"{name}: expected the name of its team, got {fields['team']!r}")
    seed = trace.seed_n[0] or ""
    do = _decode(trace.do_n[0] or "null") or {}
    dos = do["value"] if do.get("what") == "several" else [do]
    if any(one.get("what", "choose") != "choose" for one in dos) or not seed.isdecimal():
        raise BadReplay(f"{name} is a branch that its record alone does not explain: branch from its parent")
    last = float(np.fmax.reduce(np.append(trace.t_e, 0.0)))
    return Past(fields["task"], fields["team"], int(seed), last)


class _Rows:
    """The fields of a trace's rows that the harness wrote."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.extra = trace, trace.extra_e
        self._names = trace.name_a.strings()
        self._agent, self._to = trace.agent_e.tolist(), trace.to_e.tolist()
        self.t: list[float] = trace.t_e.tolist()
        self.type = [EVENT_TYPES[c] for c in trace.type_e.tolist()]
        self._codes = {name: text.codes.tolist() for name, text in trace.extra_e.items()}
        self._first = np.searchsorted(trace.owner_k, np.arange(trace.n_events + 1)).tolist()  # of tokens

    def agent(self, row: int) -> str:
        return self._names[self._agent[row]] or ""

    def to(self, row: int) -> str | None:
        return self._names[self._to[row]] if self._to[row] >= 0 else None

    def raw(self, name: str, row: int) -> bytes | None:
        text: Text | None = self.extra.get(name)
        if text is None:
            return None
        code = self._codes[name][row]
        return None if code < 0 else text.words[code].encode()

    def get(self, name: str, row: int) -> Any:
        raw = self.raw(name, row)
        return None if raw is None else _decode(raw)

    def has(self, name: str, row: int) -> bool:
        return name in self.extra and self._codes[name][row] >= 0

    def spot(self, row: int) -> tuple[int, int]:
        """The turn of an action, and its place in it."""
        turn, _, at = str(self.get("at", row)).partition(".")
        return int(turn), int(at or 0)

    def place(self, past: Past, row: int) -> None:
        """Notes whose doing a row is."""
        spot = self.get("at", row)
        if isinstance(spot, str):
            who = self.to(row) if self.type[row] in ("tool_result", "safety_event") else self.agent(row)
            past.at[row] = (who or "", spot)

    def usage(self, row: int) -> dict[str, Any]:
        trace = self.trace
        usage: dict[str, Any] = {}
        for name, column in (
            ("tokens_in", trace.tokens_in_e),
            ("tokens_out", trace.tokens_out_e),
            ("cost", trace.cost_e),
        ):
            if column[row] == column[row]:
                usage[name] = float(column[row])
        for name, text in (("model", trace.model_e), ("version", trace.version_e)):
            if text[row] is not None:
                usage[name] = text[row]
        if trace.trusted_e[row] >= 0:
            usage["trusted"] = bool(trace.trusted_e[row])
        if (said := self.said(row)) is not None:
            usage["said"] = said
        return usage

    def said(self, row: int) -> Said | None:
        """What a model said in a step."""
        trace, low, high = self.trace, self._first[row], self._first[row + 1]
        if low == high:
            return None
        logps = [None if p != p else p for p in trace.logp_k[low:high].tolist()]
        more = {name: self.get(name, row) for name in SAID if self.has(name, row)}
        mask = [bool(m) for m in trace.mask_k[low:high].tolist()]
        extends = int(trace.context_e[row]) >= 0
        return Said(trace.token_k[low:high].tolist(), logps, mask, int(trace.start_e[row]), extends, **more)


def _from_outside(past: Past, rows: _Rows, row: int) -> None:
    """What no agent did: people, the clock, patience that ended, a task that someone cancelled."""
    kind, t = rows.type[row], rows.t[row]
    fault = rows.get("fault", row) or {}
    if kind == "human_intervention":
        intervention = {name: rows.get(name, row) for name in ("at", "by", "content", "of")} | {"to": rows.to(row)}
        past.outside.append((t, "person", intervention))
    elif kind == "despawn" and fault.get("kind") == "straggler":
        past.outside.append((t, "expire", rows.agent(row)))
    elif kind == "safety_event" and rows.get("at", row) == "":
        stalled = rows.has("refused", row)
        past.outside.append((t, "stall" if stalled else "run out", rows.get("hit", row)))
    elif kind == "return" and rows.get("outside", row):
        past.outside.append((t, "lost", (rows.agent(row), Fault(fault["kind"], fault["why"]))))


def _step(past: Past, rows: _Rows, row: int, acts: dict[tuple[str, int], dict[int, bytes]]) -> None:
    step = rows.get("step", row)
    hit = rows.has("hit", row)
    agent = (rows.to(row) if hit else rows.agent(row)) or ""
    turn, attempt = step["turn"], step.get("try", 0)
    outcome: Understood | Fault | None = None
    fault = rows.get("fault", row)
    if step["n"]:
        there = acts.get((agent, turn), {})
        if missing := [i for i in range(step["n"]) if i not in there]:
            where = f"step {turn} of {agent!r} did {step['n']} things"
            raise BadReplay(f"{rows.trace.id_e[row]}: {where}, and the trace lacks number {missing[0]}")
        outcome = from_record([there[i] for i in range(step["n"])], rows.usage(row))
    elif fault is not None and not step.get("cut"):
        outcome = Fault(fault["kind"], fault["why"], fault.get("retry", False))
    began = rows.t[row]
    end = step.get("end", began)
    past.steps[agent, turn, attempt] = PastStep(agent, turn, attempt, row, began, end, step["saw"], outcome, hit)


def _calls(past: Past, rows: _Rows, acts: dict[tuple[str, int], dict[int, bytes]]) -> None:
    began = {past.at[r]: rows.t[r] for r in range(len(rows.t)) if rows.type[r] == "tool_call" and r in past.at}
    for row, kind in enumerate(rows.type):
        if kind != "tool_result" or row not in past.at:
            continue
        agent, spot = past.at[row]
        turn, at = rows.spot(row)
        act = acts.get((agent, turn), {}).get(at)
        if act is None:
            raise BadReplay(f"{rows.trace.id_e[row]} answers a call that the trace lacks")
        call = _decode(act)
        outcome = _answer(rows, row)
        past.calls[agent, spot] = PastCall(
            agent,
            spot,
            call["tool"],
            call.get("args", {}),
            began.get((agent, spot), rows.t[row]),
            rows.t[row],
            outcome,
        )


def _answer(rows: _Rows, row: int) -> Result | Fault | None:
    fault = rows.get("fault", row)
    if fault is not None:
        if fault.get("cut"):
            return None
        return (Refused if fault.get("refused") else Fault)(fault["kind"], fault["why"])
    usage = rows.usage(row)
    trusted = usage.pop("trusted", None)
    if not rows.has("content", row):
        raise BadReplay(f"{rows.trace.id_e[row]}: the trace does not hold what the tool answered")
    return Result(rows.get("content", row), trusted, rows.get("source", row), **usage)


def _durations(past: Past, rows: _Rows) -> None:
    """How long steps and calls take on average, for those that the record does not have."""
    roles = rows.trace.role_e
    steps: dict[str, list[float]] = {}
    for step in past.steps.values():
        if step.outcome is not None:
            steps.setdefault(roles[step.row] or "", []).append(step.end - step.t)
    calls: dict[str, list[float]] = {}
    for call in past.calls.values():
        if call.outcome is not None:
            calls.setdefault(call.tool, []).append(call.t - call.began)
    past.step_s = {role: float(np.mean(s)) for role, s in steps.items()}
    past.call_s = {tool: float(np.mean(s)) for tool, s in calls.items()}
