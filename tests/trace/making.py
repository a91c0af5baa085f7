"""Valid survey documents, made up: teams that grow and shrink, every field that Podium knows, and some more."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from podium.trace import files, log, survey
from podium.trace.columns import Trace
from podium.trace.findings import Finding
from podium.trace.log import LOG_EVENTS
from podium.trace.vocabulary import DECISIONS, EDGE_TYPES, TOPOLOGIES

__all__ = [
    "documents",
    "findings",
    "log_text",
    "made",
    "normal",
    "restored",
    "same",
    "texts",
    "trace_of",
    "written",
]

SURVEY = Path(__file__).parents[3] / "shared" / "data" / "survey"
WORDS = (
    "a",
    "lead",
    "Ünï©ødé 語 🎉",
    'quo"te',
    "back\\slash",
    "new\nline",
    "tab\t",
    "\x7f",
    "w0.3",
    "ends.",
    "None",
    "x" * 70,
)
KEYS = (
    "span",
    "note",
    "a.b",
    'q"',
    "ключ",
    "n",
    "after",
    "N",
    "",
    "writer",
    "agents",
    "prefix",
    "extra_e",
    "position",
)
NUMBERS = (0, 1, 7.25, 0.1, 1e-9, 12345.678901234567, 5e-324, 1e22, 2**53)
JSON = (
    None,
    True,
    False,
    0,
    -1,
    10**30,
    -1.5e-7,
    "",
    "é\u2028\x00",
    '🎉 \\ " / \n',
    [],
    {},
    [[[]], {"k": [1, {"deep": None}]}],
    {"": 0, "a b": "c", "u": "\u00fc"},
)


class Team:
    """A team at work. Events of equal time are ordered by an edge, so any order of the file is the same run."""

    def __init__(self, dice: random.Random, plain: bool) -> None:
        self.dice, self.plain = dice, plain
        self.events: list[dict[str, Any]] = []
        self.edges: list[dict[str, str]] = []
        self.t = 0.0
        self.alive = ["lead"]
        self.boss: dict[str, str] = {}
        self.owes: set[str] = set()  # spawned agents that have something to answer
        self.calls: list[dict[str, Any]] = []
        self.ends: dict[str, int] = {}  # generations: where the context that each leaves ends
        self.stopped = False

    def add(self, type_: str, agent: str, **fields: Any) -> dict[str, Any]:
        dice = self.dice
        step = dice.choice([0, 0.125, 1, dice.random()])
        self.t += step
        taken = {e["id"] for e in self.events}
        names = [
            f"e{len(taken)}",
            f"w0.{len(taken)}",
            f"w0.{dice.randrange(99)}",
            dice.choice(WORDS),
            f"{dice.getrandbits(60):x}",
        ]
        id_ = next(n for n in [dice.choice(names), f"{dice.getrandbits(90):x}"] if n not in taken)
        event = {"id": id_, "t": self.t, "type": type_, "agent": agent, **fields}
        if self.events and step == 0:
            self.edge(self.events[-1], event, "temporal")
        for cause in dice.sample(self.events, min(len(self.events), dice.choice([0, 1, 1, 2]))):
            for _ in range(dice.choice([1, 1, 1, 2])):
                self.edge(cause, event, dice.choice(EDGE_TYPES))
        self.events.append(event)
        if not self.plain:
            self.adorn(event)
        return event

    def edge(self, cause: dict[str, Any], effect: dict[str, Any], kind: str) -> None:
        self.edges.append({"src": cause["id"], "dst": effect["id"], "type": kind})

    def some(self, chance: float) -> bool:
        return self.dice.random() < chance

    def adorn(self, event: dict[str, Any]) -> None:
        """Everything an event may carry, here and there."""
        dice, some = self.dice, self.some
        for name, values in {
            "role": WORDS,
            "content_ref": ("h1", "", "sha:é"),
            "from": WORDS,
            "trusted": (True, False),
        }.items():
            if some(0.2):
                event.setdefault(name, dice.choice(values))
        if some(0.15):
            event |= {dice.choice(KEYS): dice.choice(JSON) for _ in range(dice.randint(1, 3))}
        fields: dict[str, Any] = {}
        simple: dict[str, tuple[Any, ...]] = {
            "end": (event["t"], event["t"] + 1.5),
            "tokens_in": NUMBERS,
            "tokens_out": (0, 20),
            "cost": (*NUMBERS, -0.5),
            "stage": (0, 3, 2**53),
            "valid": (True, False),
            "truncated": (True, False),
            "model": WORDS,
            "version": ("v1", "é"),
            "random": JSON,
            "rewards": ({"judge": 0.5}, {"judge": -1, "é.x": 1e-300}),
        }
        for name, values in simple.items():
            if some(0.08):
                fields[name] = dice.choice(values)
        if event["type"] == "orchestrator_decision" and some(0.8):
            kind = dice.choice(DECISIONS)
            options = [*dice.sample(WORDS, 2), "go on"]
            fields |= {
                "decision": kind,
                "options": options,
                "chosen": "go on" if kind == "stop" else dice.choice(options),
                "logp": -0.25,
            }
        if event["type"] == "aggregate" and some(0.8):
            fields["votes"] = [
                {"value": dice.choice(WORDS)}
                | ({"source": dice.choice(self.events)["id"]} if some(0.5) else {})
                | ({"weight": dice.choice(NUMBERS)} if some(0.5) else {})
                for _ in range(dice.randint(1, 3))
            ]
        if some(0.2):
            self.generate(event["id"], fields)
        into = [x for x in self.edges if x["dst"] == event["id"]]
        if into and some(0.3):
            fields["inferred"] = [
                {"src": x["src"], "type": x["type"]} | ({"rule": dice.choice(WORDS)} if some(0.5) else {})
                for x in dice.sample(into, dice.randint(1, len(into)))
            ]
        if fields:
            event["podium"] = fields

    def generate(self, id_: str, fields: dict[str, Any]) -> None:
        dice = self.dice
        tokens = [dice.choice([0, 11, 50_000, 2**53]) for _ in range(dice.randint(1, 4))]
        context = dice.choice([None, *self.ends])
        start = 0 if context is None else self.ends[context]
        fields |= {"tokens": tokens, "start": start}
        if context is not None:
            fields["context"] = context
        if self.some(0.5):
            fields["logps"] = [-0.5, *(dice.choice([None, -1, -2.5]) for _ in tokens[1:])]
        if self.some(0.5):
            fields["mask"] = [True, *(dice.choice([None, True, False]) for _ in tokens[1:])]
        self.ends[id_] = start + len(tokens)

    def act(self) -> None:
        dice = self.dice
        agent = dice.choice(self.alive)
        if agent == "lead" and self.stopped:
            self.add("aggregate", "lead")
            return
        match dice.choice(
            [
                "decide",
                "spawn",
                "message",
                "call",
                "result",
                "result",
                "return",
                "despawn",
                "aggregate",
                "human",
                "safety",
                "stop",
            ]
        ):
            case "decide":
                self.add("orchestrator_decision", agent)
            case "spawn":
                new = f"{dice.choice(('worker', 'Ünï', 'a b'))} {len(self.boss)}"
                self.add("spawn", agent, to=new)
                self.alive.append(new)
                self.boss[new] = agent
                self.owes.add(new)
            case "message":
                to = dice.choice(self.alive)
                self.add("message", agent, to=to)
                if to != agent:
                    self.owes |= {to} & set(self.boss)
            case "call":
                tool = dice.choice(["search", "run python", None])
                self.calls.append(self.add("tool_call", agent, **({"tool": tool} if tool else {})))
            case "result" if self.calls:
                call = self.calls.pop(dice.randrange(len(self.calls)))
                tool = call.get("tool")
                result = self.add("tool_result", tool or call["agent"], **({"tool": tool} if tool else {}))
                self.edge(call, result, dice.choice(["tool_dependency", "return"]))
            case "return" if agent in self.owes:
                self.add("return", agent, to=self.boss[agent])
                self.owes.discard(agent)
            case "despawn" if agent in self.boss:
                self.add(
                    "despawn",
                    dice.choice([agent, self.boss[agent]]) if self.boss[agent] in self.alive else agent,
                    to=agent,
                )
                self.alive.remove(agent)
            case "aggregate":
                self.add("aggregate", agent)
            case "human":
                self.add("human_intervention", "person")
            case "safety":
                self.add("safety_event", "monitor")
            case "stop" if agent == "lead" and self.some(0.3):
                event = self.add("orchestrator_decision", "lead")
                fields = event.setdefault("podium", {})
                fields.update(decision="stop", chosen="stop")
                if "options" in fields:
                    fields["options"] = ["stop", "go on"]
                self.stopped = True


def made(seed: int, size: int = 12, plain: bool = False) -> dict[str, Any]:
    """A valid document. A plain one has no field beyond what the rules of a team at work need."""
    dice = random.Random(seed)
    team = Team(dice, plain)
    while len(team.events) < size:
        team.act()
    events, edges = team.events, team.edges
    if not plain:
        dice.shuffle(events)
        dice.shuffle(edges)
    count = Counter(e["type"] for e in events)
    costs: dict[str, Any] = {"tokens": dice.choice(NUMBERS), "wall_clock_s": team.t}
    costs |= (
        {"tool_calls": count["tool_call"], "messages": count["message"]} if plain or dice.random() < 0.5 else {}
    )
    document: dict[str, Any] = {"trace_id": f"run {seed}", "task_id": dice.choice(WORDS)}
    document |= {"events": events, "edges": edges, "rewards": {}, "costs": costs}
    if plain:
        return document
    document["rewards"] = dice.choice([{}, {"team": 1.0}, {"team": 0, "é": -2.5e-8}])
    optional = {"system": WORDS, "topology": TOPOLOGIES, "metrics": ({}, {"task_success": 1}, {"a.b": 0.1, "": 2})}
    document |= {name: dice.choice(values) for name, values in optional.items() if dice.random() < 0.6}
    if dice.random() < 0.3:
        costs["extra cost"] = -1.5
    _first(events[0], document, dice)
    return dict(dice.sample(list(document.items()), len(document)))


def _first(event: dict[str, Any], document: dict[str, Any], dice: random.Random) -> None:
    """What belongs to the run as a whole, on the first event of the file."""
    fields: dict[str, tuple[Any, ...]] = {
        "group": WORDS,
        "batch": (0, 2**53),
        "parent": ("the run before",),
        "branch": (0, 7),
        "do": JSON,
        "harness": WORDS,
        "env": ("maze",),
        "params": JSON,
        "seed": JSON,
        "clock_skew_s": (0, 0.25),
    }
    if dice.random() < 0.5:
        run = {name: dice.choice(values) for name, values in fields.items() if dice.random() < 0.5}
        if "parent" in run:
            run.setdefault("branch", dice.choice(fields["branch"]))
        if run:
            event.setdefault("podium", {})["run"] = run
    absent = [name for name in ("costs.tokens", "costs.wall_clock_s", "trace_id", "task_id") if dice.random() < 0.1]
    if absent:
        event.setdefault("podium", {})["absent"] = absent
    for name in absent:
        if name.startswith("costs."):
            document["costs"][name.removeprefix("costs.")] = 0
        else:
            document[name] = "unnamed"


def documents(most: int = 14, plain: bool = False) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(made, st.integers(0, 2**32), st.integers(1, most), st.just(plain))


def written(document: Any, style: int) -> bytes:
    """A document as text: compact or printed prettily, escaped or not, with one line end or the other."""
    layout: Any = [{"separators": (",", ":")}, {}, {"indent": 2}, {"indent": "\t"}][style % 4]
    text = json.dumps(document, ensure_ascii=bool(style & 4), **layout)
    return (text.replace("\n", "\r\n") if style & 8 else text).encode()


def texts(most: int = 14) -> st.SearchStrategy[bytes]:
    return st.builds(written, documents(most), st.integers(0, 15))


def normal(document: dict[str, Any]) -> dict[str, Any]:
    """A document less the order that means nothing: that of edges, guesses and names of what is absent."""

    def key(value: Any) -> str:
        return json.dumps(value, sort_keys=True)

    document = json.loads(json.dumps(document))
    document["edges"].sort(key=key)
    for event in document["events"]:
        for name in ("inferred", "absent"):
            if name in event.get("podium", {}):
                event["podium"][name].sort(key=key)
    return document


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return normal(a) == normal(b)


def read_text(text: bytes, file: str = "f") -> files.Read:
    """What comes of a survey document."""
    return files.finished(survey.read_document(text, file), file)


def trace_of(document: dict[str, Any] | bytes) -> Trace:
    text = document if isinstance(document, bytes) else written(document, 0)
    one = read_text(text)
    assert one.trace is not None, one.findings
    return one.trace


def findings(document: dict[str, Any]) -> list[Finding]:
    return read_text(written(document, 0)).findings


def restored(text: bytes) -> Trace:
    """The runs of a log, as one trace."""
    return files.concat([one.trace for one in log_reads(text) if one.trace is not None])


def log_reads(*segment_files: bytes) -> list[files.Read]:
    """What comes of a log in one or several files."""
    words = LOG_EVENTS.dictionaries()
    runs: list[list[log.Segment]] = []
    for i, text in enumerate(segment_files):
        for segment in log.read_segments(iter([text]), f"f{i}", LOG_EVENTS, words):
            files._joined(runs, segment)
    return [files.finished(log.run_of(segments), "f") for segments in runs]


def log_text(*lines: dict[str, Any], writer: str = "w0", run: str = "run", closed: bool = True) -> bytes:
    """A segment of these events, numbered from 0."""
    head = {"podium_log": {"version": 1, "trace_id": run, "writer": writer}}
    events = [{"n": n, "t": n, "type": "message", "agent": "a"} | line for n, line in enumerate(lines)]
    end = [{"podium_end": {"events": len(events)}}] if closed else []
    return b"".join(json.dumps(line).encode() + b"\n" for line in [head, *events, *end])
