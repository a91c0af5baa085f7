"""The one generator of traces for every bench: a big hierarchical team at work, valid under all rules, seeded.

A lead spawns agents that spawn agents. Each acts when the dice name it: it decides, calls tools, talks to its
family, returns and aggregates. In the second half agents finish, children before parents. Any prefix of such a
run is legal, so the run is simply cut at the number of events asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from podium.graph import taint
from podium.trace.columns import I, Names, Text, Trace
from podium.trace.options import option_axis
from podium.trace.vocabulary import DECISIONS, TOPOLOGIES, edge, event

__all__ = ["trace"]

DECIDE, SPAWN, DESPAWN = event("orchestrator_decision"), event("spawn"), event("despawn")
MESSAGE, CALL, RESULT, RETURN = event("message"), event("tool_call"), event("tool_result"), event("return")
AGGREGATE, HUMAN, SAFETY = event("aggregate"), event("human_intervention"), event("safety_event")
TEMPORAL, CAUSAL, SPAWNED, TOLD = edge("temporal"), edge("causal"), edge("spawn"), edge("message")
TOOL, RETURNED, COMBINED, SAFETY_FLOW = (
    edge("tool_dependency"),
    edge("return"),
    edge("aggregate"),
    edge("safety_flow"),
)
WORKING = np.isin(np.arange(10), [DECIDE, MESSAGE, CALL, RETURN, AGGREGATE])
TOOLS = ("search", "python", "browser", "editor", "shell", "calculator")
ROLES = ("lead", "planner", "worker", "critic")
STOPS = len(DECISIONS)  # a decision of kind stop whose choice is to stop; code 4 is one whose choice is to go on
OPTIONS: tuple[tuple[str, ...], ...] = (
    ("spawn", "wait"),
    ("agent-1", "agent-2", "agent-3"),
    ("direct", "broadcast", "silent"),
    ("vote", "best", "concat"),
    ("continue", "stop"),
)


class Team:
    """A team at work. What happened is in plain lists, one entry an event, then one entry an edge."""

    def __init__(self, parent: list[int], dice: Iterator[float]) -> None:
        crew = len(parent)
        self.parent, self.dice, self.human = parent, dice, crew
        self.type: list[int] = []
        self.agent: list[int] = []
        self.to: list[int] = []
        self.tool: list[int] = []
        self.decision: list[int] = []
        self.src: list[int] = []
        self.dst: list[int] = []
        self.tie: list[int] = []
        self.active = [0]
        self.last = [-1] * (crew + 1)  # an agent's latest event ...
        self.link = [-1] * (crew + 1)  # ... and how its next one hangs on it, -1 for in time or as its cause
        self.inbox: list[list[tuple[int, int]]] = [[] for _ in range(crew + 1)]
        self.calls: list[list[int]] = [[] for _ in range(crew)]  # unanswered
        self.asked = [False] * crew  # has been addressed since it last returned

    def play(self, n: int) -> None:
        """Work until n events have happened. Spawns fill two fifths of the run, ends the second half."""
        self.emit(DECIDE, 0, decision=1)
        crew = len(self.parent)
        youngest, oldest = 1, crew - 1  # next to be spawned, next to finish
        while (row := len(self.type)) < n:
            if youngest < crew and row >= 0.4 * n * youngest / crew:
                self.spawn(youngest)
                youngest += 1
            elif youngest == crew and oldest and row >= n * (0.95 - 0.45 * oldest / crew):
                self.finish(oldest)
                oldest -= 1
            elif not self.active:
                self.emit(AGGREGATE, 0)
            elif not oldest and n - row <= 3 + len(self.calls[0]):
                self.finish(0)
            else:
                self.act(self.active[int(next(self.dice) * len(self.active))])
        for column in (self.type, self.agent, self.to, self.tool, self.decision):
            del column[n:]
        while self.dst and self.dst[-1] >= n:
            for column in (self.src, self.dst, self.tie):
                column.pop()

    def act(self, who: int) -> None:
        u = next(self.dice)
        if self.calls[who] and u < 0.7:
            self.answer(who)
        elif u < 0.48:
            self.calls[who].append(self.emit(CALL, who, tool=int(next(self.dice) * len(TOOLS))))
        elif u < 0.78:
            self.tell(who)
        elif u < 0.93:
            self.emit(DECIDE, who, decision=1 + int(next(self.dice) * 4))
        elif u < 0.96 and self.asked[who] and who:
            self.give_back(who)
        elif u < 0.98:
            self.emit(AGGREGATE, who)
        elif u < 0.995:
            self.emit(SAFETY, who)
            self.link[who] = SAFETY_FLOW
        else:
            self.inbox[who].append((self.emit(HUMAN, self.human, who), SAFETY_FLOW))

    def emit(self, kind: int, who: int, to: int = -1, decision: int = -1, tool: int = -1) -> int:
        """An event that hangs on its agent's latest and on all that has reached the agent since."""
        row = len(self.type)
        if self.last[who] >= 0:
            tie = self.link[who]
            self.join(self.last[who], row, tie if tie >= 0 else TEMPORAL if next(self.dice) < 0.5 else CAUSAL)
        for cause, tie in self.inbox[who]:
            self.join(cause, row, COMBINED if kind == AGGREGATE else tie)
        self.inbox[who].clear()
        self.last[who], self.link[who] = row, -1
        self.write(kind, who, to, decision, tool)
        return row

    def write(self, kind: int, who: int, to: int, decision: int, tool: int) -> None:
        self.type.append(kind)
        self.agent.append(who)
        self.to.append(to)
        self.decision.append(decision)
        self.tool.append(tool)

    def join(self, src: int, dst: int, tie: int) -> None:
        self.src.append(src)
        self.dst.append(dst)
        self.tie.append(tie)

    def answer(self, who: int) -> None:
        """The result of its earliest open call, by the tool or in the caller's name."""
        call, row = self.calls[who].pop(0), len(self.type)
        self.join(call, row, TOOL)
        if self.link[who] == TOOL:
            self.inbox[who].append((row, TOOL))
        else:
            if self.last[who] != call:  # it has acted since the call: both hang together in its next act
                self.inbox[who].append((self.last[who], TEMPORAL))
            self.last[who], self.link[who] = row, TOOL
        tool = self.tool[call]
        self.write(RESULT, self.human + 1 + tool if next(self.dice) < 0.5 else who, -1, -1, tool)

    def tell(self, who: int) -> None:
        """A message to anyone, or up."""
        anyone = next(self.dice) < 0.5
        to = self.active[int(next(self.dice) * len(self.active))] if anyone else max(self.parent[who], 0)
        if to == who:
            self.emit(AGGREGATE, who)
        else:
            self.inbox[to].append((self.emit(MESSAGE, who, to), TOLD))
            self.asked[to] = True

    def give_back(self, who: int) -> None:
        row = self.emit(RETURN, who, self.parent[who])
        self.asked[who] = False
        if who:
            self.inbox[self.parent[who]].append((row, RETURNED))

    def spawn(self, who: int) -> None:
        if next(self.dice) < 0.5:
            self.emit(DECIDE, self.parent[who], decision=0)
        self.last[who] = self.emit(SPAWN, self.parent[who], who)
        self.link[who], self.asked[who] = SPAWNED, True
        self.active.append(who)

    def finish(self, who: int) -> None:
        self.active.remove(who)
        while self.calls[who]:
            self.answer(who)
        if self.inbox[who] or not who:
            self.emit(AGGREGATE, who)
        self.emit(DECIDE, who, decision=STOPS)
        if self.asked[who] or not who:
            self.give_back(who)
        if who and next(self.dice) < 0.6:
            self.emit(DESPAWN, self.parent[who], who)


def trace(
    n_events: int,
    *,
    agents: int = 1000,
    seed: int = 0,
    ids: Literal["random", "podium"] = "random",
    content: bool = True,
    extras: bool = False,
    tokens: bool = False,
) -> Trace:
    """One valid run of a team.

    >>> run = trace(500)
    >>> run, bool((run.src_x < run.dst_x).all())
    (Trace(1 rollout, 500 events, 633 edges, 32 agents), True)
    """
    rng = np.random.default_rng(seed)
    crew = max(3, min(agents, n_events // 20))
    parent = [-1] + [i - 1 if i < 4 else int(rng.integers(i)) for i in range(1, crew)]
    team = Team(parent, _uniforms(rng))
    team.play(n_events)
    type_e, agent_e = np.array(team.type, np.int8), np.array(team.agent, np.int32)
    src_x, dst_x = np.array(team.src, np.int32), np.array(team.dst, np.int32)
    t_e = np.cumsum(rng.exponential(0.05, n_events))
    to_e, tool_e = np.array(team.to, np.int32), np.array(team.tool, np.int32)
    columns: dict[str, Any] = {
        "trace_id_n": Text.of([f"bench-{seed}"]),
        "task_id_n": Text.of(["bench"]),
        "system_n": Text.of(["podium-bench"]),
        "topology_n": np.array([TOPOLOGIES.index("hierarchical")]),
        "reward_n": {"team": rng.random(1)},
        "rollout_a": np.zeros(crew + 1 + len(TOOLS), np.int32),
        "name_a": Text.of([*(f"agent-{i}" for i in range(crew)), "human", *TOOLS]),
        "rollout_e": np.zeros(n_events, np.int32),
        "id_e": Names(_hex(rng, n_events)) if ids == "random" else _podium_ids(n_events),
        "t_e": t_e,
        "end_e": _ends(rng, t_e, type_e, src_x, dst_x),
        "type_e": type_e,
        "agent_e": agent_e,
        "from_e": np.where(to_e >= 0, agent_e, -1),
        "to_e": to_e,
        "role_e": Text(np.append(_roles(parent), np.full(1 + len(TOOLS), -1))[agent_e], ROLES),
        "tool_e": Text(tool_e, TOOLS),
        "src_x": src_x,
        "dst_x": dst_x,
        "type_x": np.array(team.tie, np.int8),
        **_decisions(rng, np.array(team.decision, np.int8)),
    }
    columns["cost_n"] = {"tokens": np.array([float(n_events * 250)]), "wall_clock_s": t_e[-1:] - t_e[:1]}
    if content:
        columns["content_ref_e"] = _hex(rng, n_events)
    if extras:
        columns["extra_e"] = _extras(rng, n_events)
    if tokens:
        columns |= _tokens(rng, type_e, agent_e)
        columns["cost_n"]["tokens"] = np.array([np.nansum(columns["tokens_in_e"] + columns["tokens_out_e"])])
    trusted_e = np.where((type_e == RESULT) & (rng.random(n_events) < 0.02), 0, -1)
    clean_e = ~taint(Trace.of(**columns, trusted_e=trusted_e))
    trusted_e[clean_e & (rng.random(n_events) < 0.01)] = 1
    return Trace.of(**columns, trusted_e=trusted_e)


def _uniforms(rng: np.random.Generator) -> Iterator[float]:
    while True:
        yield from rng.random(1 << 14).tolist()


def _roles(parent: list[int]) -> I:
    """The lead, planners under it, workers below, and a critic among every seven."""
    below_a = np.array(parent)
    role_a = np.where(below_a < 0, 0, np.where(below_a == 0, 1, 2))
    role_a[6::7] = 3
    return role_a


def _ends(rng: np.random.Generator, t_e: Any, type_e: I, src_x: I, dst_x: I) -> Any:
    """Nine working events in ten say when they ended: somewhere before the first thing they led to began."""
    n = len(t_e)
    next_e = np.full(n, n, np.int64)
    np.minimum.at(next_e, src_x, dst_x)
    limit_e = np.append(t_e, np.nan)[next_e]
    span_e = np.where(np.isnan(limit_e), rng.exponential(0.05, n), limit_e - t_e)
    end_e = t_e + span_e * rng.uniform(0.3, 1.0, n)
    return np.where(WORKING[type_e] & (rng.random(n) < 0.9), end_e, np.nan)


def _decisions(rng: np.random.Generator, choice_e: I) -> dict[str, Any]:
    """The kind, the options, the chosen one and its log-probability of every decision."""
    decision_e = np.minimum(choice_e, STOPS - 1)
    words = tuple(dict.fromkeys(w for options in OPTIONS for w in options))
    spell = tuple(f"[{','.join(f'{chr(34)}{w}{chr(34)}' for w in options)}]" for options in OPTIONS)
    table = np.array([[words.index(o[min(i, len(o) - 1)]) for i in range(3)] for o in OPTIONS])
    picked_e = rng.integers(3, size=len(choice_e))
    picked_e[choice_e == 0] = 0  # a spawn follows
    picked_e[choice_e == STOPS - 1] = 0  # it goes on
    picked_e[choice_e == STOPS] = 1
    is_e = choice_e >= 0
    return {
        "decision_e": decision_e,
        **option_axis(Text(decision_e, spell)),
        "chosen_e": Text(np.where(is_e, table[decision_e, picked_e], -1), words),
        "logp_e": np.where(is_e, -rng.exponential(0.7, len(choice_e)), np.nan),
    }


def _podium_ids(n: int) -> Names:
    return Names(Text.constant("w0.", n), np.arange(n))


def _hex(rng: np.random.Generator, n: int) -> Text:
    digits = rng.bytes(8 * n).hex()
    return Text(np.arange(n), tuple(digits[i : i + 16] for i in range(0, 16 * n, 16)))


def _extras(rng: np.random.Generator, n: int) -> dict[str, Text]:
    """Two fields that Podium does not know: a number and an object."""
    span, retries = _hex(rng, n), rng.integers(4, size=n).tolist()
    latency = (f"{ms:.3f}" for ms in rng.exponential(80.0, n).tolist())
    vendor = (f'{{"span":"{s}","try":{{"n":{r}}}}}' for s, r in zip(span.words, retries, strict=True))
    return {"latency_ms": Text.of(latency), "vendor": Text.of(vendor)}


def _tokens(rng: np.random.Generator, type_e: I, agent_e: I) -> dict[str, Any]:
    """Every working event is a generation of some tokens, in the context of its agent's generation before."""
    n = len(type_e)
    rows = np.flatnonzero(WORKING[type_e])
    many = rng.integers(4, 24, len(rows))
    by_agent = rows[np.argsort(agent_e[rows], kind="stable")]
    size_e = np.zeros(n, np.int64)
    size_e[rows] = many
    context_e, start_e = np.full(n, -1), np.full(n, -1)
    same = agent_e[by_agent[1:]] == agent_e[by_agent[:-1]]
    context_e[by_agent[1:][same]] = by_agent[:-1][same]
    before = np.cumsum(size_e[by_agent]) - size_e[by_agent]
    first = np.flatnonzero(np.append(True, ~same)) if len(rows) else rows
    start_e[by_agent] = before - np.repeat(before[first], np.diff(np.append(first, len(rows))))
    total = int(many.sum())
    return {
        "model_e": Text(np.where(size_e > 0, 0, -1), ("bench-model",)),
        "version_e": Text(np.where(size_e > 0, 0, -1), ("0",)),
        "context_e": context_e,
        "start_e": start_e,
        "tokens_in_e": np.where(size_e > 0, start_e, np.nan),
        "tokens_out_e": np.where(size_e > 0, size_e, np.nan),
        "owner_k": np.repeat(rows, many),
        "token_k": rng.integers(32_000, size=total),
        "logp_k": -rng.exponential(0.5, total),
        "mask_k": np.ones(total, np.int8),
    }
