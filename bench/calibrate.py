"""How real teams spread their launches, time and tokens: `python -m bench.calibrate [--json]`.

Reads the Claude Code sessions in ../shared/data/logs/claude_code and fits the figures that podium.envs.calibration
keeps. Only parallel runs count: sessions in which two sub-agents were launched together or worked at the same time.
A fan-out is the launches in one message of the lead, or in successive messages with nothing else in between. What a
log does not say is left out, never counted as zero:

- output tokens of a message of the lead count only where the log has its stop reason: without it a line may hold the
  count from the start of the stream, often 1 or 2. Sub-agents' inner messages never have one, so of their output only
  the answer is known, and only where it has fewer than 10 characters a token;
- input tokens over a sub-agent's life need its inner messages, which the newer logs keep in files that are not here.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from math import nan
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from podium.envs.calibration import Counts, Figures, Lognormal, below
from podium.trace.columns import F

__all__ = ["LOGS", "Run", "fitted", "measure", "parallel", "read", "samples", "sessions"]

LOGS = Path(__file__).parents[2] / "shared/data/logs/claude_code"
LAUNCHES = ("Task", "Agent")
WAITS = (*LAUNCHES, "AskUserQuestion", "ExitPlanMode", "EnterPlanMode", "TaskOutput")  # for a human or an agent
NOTE = re.compile(r"<task-notification>.*?<task-id>(\w+)</task-id>(.*?)(?:</task-notification>|\Z)", re.DOTALL)
LEAST = {"calls": 0, "width": 1}  # the figures that are counts, and where they start
DIGITS, WIDTH = 4, 122


@dataclass
class Launch:
    t: float
    message: str
    returned: bool = False
    seconds: float = nan
    calls: float = nan
    context: float = nan
    answer: float = nan
    last: float = nan  # input of the last model call, which the inner messages lack
    inner: dict[str, float] = field(default_factory=dict)  # input of each model call before it

    @property
    def read(self) -> float:
        return sum(self.inner.values()) + self.last if self.inner else nan


class Message(NamedTuple):
    """One model call of the lead, the largest figures on any of its lines."""

    read: float = 0.0
    wrote: float = 0.0
    final: bool = False


@dataclass
class Run:
    """What one session says. Times are in seconds."""

    launches: dict[str, Launch] = field(default_factory=dict)
    fans: list[list[Launch]] = field(default_factory=list)
    messages: dict[str, Message] = field(default_factory=lambda: defaultdict(Message))
    tools: list[float] = field(default_factory=list)  # calls of sub-agents
    lead_tools: list[float] = field(default_factory=list)
    agents: dict[str, str] = field(default_factory=dict)  # a sub-agent's id and that of the call that launched it
    called: dict[str, float] = field(default_factory=dict)  # calls that have no result yet
    busy: bool = True  # something else happened since the last launch

    def launch(self, call: str, t: float, message: str) -> None:
        new = self.launches[call] = Launch(t, message)
        if self.fans and (self.fans[-1][-1].message == message or not self.busy):
            self.fans[-1].append(new)
        else:
            self.fans.append([new])
        self.busy = False

    def call(self, block: Any, t: float) -> None:
        if block["name"] not in WAITS and block["id"] != "REDACTED":
            self.called[block["id"]] = t

    def result(self, block: Any, t: float, to: list[float]) -> None:
        if (start := self.called.pop(block["tool_use_id"], None)) is not None:
            to.append(max(t - start, 0.001))  # the clock's resolution


def read(lines: Iterable[str]) -> Run:
    """What a session's lines say, in order of time."""
    run = Run()
    for record in sorted(records(lines), key=lambda r: str(r["timestamp"])):
        t = datetime.fromisoformat(record["timestamp"]).timestamp()
        match record["type"]:
            case "assistant":
                _assistant(run, record["message"], t)
            case "user":
                _user(run, record, t)
            case "progress" if record["data"].get("type") == "agent_progress":
                _inner(run, record["parentToolUseID"], record["data"]["message"])
            case "queue-operation" | "attachment":
                about = record.get("content") or record.get("attachment", {}).get("prompt")
                _notes(run, about if isinstance(about, str) else json.dumps(about), t)
    return run


def records(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Every record that has a time. A line may hold two."""
    decode = json.JSONDecoder().raw_decode
    for number, line in enumerate(lines, 1):
        line = line.strip()
        while line:
            try:
                record, end = decode(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"line {number} is not JSON: {error}") from None
            line = line[end:].lstrip()
            if "timestamp" in record and "type" in record:
                yield record


def _assistant(run: Run, message: dict[str, Any], t: float) -> None:
    if message.get("model") == "<synthetic>":
        return
    seen, usage = run.messages[message["id"]], message.get("usage", {})
    run.messages[message["id"]] = Message(
        max(seen.read, _input(usage)),
        max(seen.wrote, usage.get("output_tokens", 0)),
        seen.final or bool(message.get("stop_reason")),
    )
    for block in _blocks(message, "tool_use"):
        if block["name"] in LAUNCHES:
            run.launch(block["id"], t, message["id"])
        else:
            run.busy = True
            run.call(block, t)


def _user(run: Run, record: dict[str, Any], t: float) -> None:
    results = _blocks(record["message"], "tool_result")
    for block in results:
        run.result(block, t, run.lead_tools)
        about = record.get("toolUseResult")
        if (launch := run.launches.get(block["tool_use_id"])) and isinstance(about, dict):
            if about.get("status") == "completed":
                _completed(launch, about)
                run.busy = True
            elif "agentId" in about:
                run.agents[about["agentId"]] = block["tool_use_id"]
    if not results:
        run.busy |= not record.get("isMeta")
        _notes(run, json.dumps(record["message"]["content"]), t)


def _completed(launch: Launch, about: dict[str, Any]) -> None:
    usage, answer = about.get("usage", {}), about.get("content", [])
    characters = sum(len(block.get("text", "")) for block in answer)
    wrote = usage.get("output_tokens", 0)
    launch.returned, launch.seconds = True, about.get("totalDurationMs", nan) / 1000.0
    launch.calls = about.get("totalToolUseCount", nan)
    launch.context = about.get("totalTokens") or nan
    launch.answer = wrote if wrote and characters < 10 * wrote else nan
    launch.last = _input(usage) or nan


def _notes(run: Run, text: str, t: float) -> None:
    """A sub-agent in the background comes back by a notification; copies of it follow."""
    for agent, rest in NOTE.findall(text):
        launch = run.launches.get(run.agents.get(agent, ""))
        if launch is None or launch.returned or "<status>completed" not in rest:
            continue
        run.busy = launch.returned = True
        launch.seconds = _last(r"<duration_ms>(\d+)", rest) / 1000.0
        if launch.seconds != launch.seconds:
            launch.seconds = t - launch.t
        launch.calls = _last(r"<tool_uses>(\d+)", rest)
        launch.context = _last(r"<(?:subagent|total)_tokens>(\d+)", rest)


def _inner(run: Run, call: str, record: dict[str, Any]) -> None:
    t, message, launch = (
        datetime.fromisoformat(record["timestamp"]).timestamp(),
        record["message"],
        run.launches[call],
    )
    if record["type"] == "assistant":
        launch.inner[message["id"]] = max(launch.inner.get(message["id"], 0.0), _input(message["usage"]))
        for block in _blocks(message, "tool_use"):
            run.call(block, t)
    for block in _blocks(message, "tool_result"):
        run.result(block, t, run.tools)


def _blocks(message: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    content = message["content"]
    return (
        [b for b in content if isinstance(b, dict) and b.get("type") == kind] if isinstance(content, list) else []
    )


def _input(usage: dict[str, Any]) -> float:
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return float(sum(usage.get(name) or 0 for name in names))


def _last(pattern: str, text: str) -> float:
    found = re.findall(pattern, text)
    return float(found[-1]) if found else nan


def parallel(runs: Iterable[Run]) -> list[Run]:
    """The runs with a fan-out of two or more, or with a launch while an earlier sub-agent was still at work."""

    def overlap(run: Run) -> bool:
        made = list(run.launches.values())
        return any(a.t <= b.t < a.t + a.seconds for i, a in enumerate(made) for b in made[i + 1 :])

    return [run for run in runs if any(len(fan) > 1 for fan in run.fans) or overlap(run)]


def samples(run: Run) -> dict[str, list[float]]:
    """What one run adds to each of the figures."""
    pairs = [(a, b) for fan in run.fans for a, b in pairwise(fan)]
    done = [launch for launch in run.launches.values() if launch.returned]
    out = {
        "durations": [launch.seconds for launch in done],
        "stagger": [b.t - a.t for a, b in pairs if a.message == b.message],
        "turns": [b.t - a.t for a, b in pairs if a.message != b.message],
        "calls": [launch.calls for launch in done],
        "width": [float(len(fan)) for fan in run.fans],
        "read": [launch.read for launch in done],
        "context": [launch.context for launch in done],
        "answer": [launch.answer for launch in done],
        "tool": run.tools,
        "lead_tool": run.lead_tools,
        "lead_read": [m.read for m in run.messages.values() if m.read],
        "lead_wrote": [m.wrote for m in run.messages.values() if m.final],
    }
    return {name: [x for x in values if x == x] for name, values in out.items()}


def pooled(runs: list[Run]) -> dict[str, tuple[F, int]]:
    """Per figure: all that was measured, and in how many runs."""
    each = [samples(run) for run in runs]
    return {
        name: (np.array([x for s in each for x in s[name]]), sum(bool(s[name]) for s in each))
        for name in Figures._fields
    }


def fitted(runs: list[Run]) -> Figures:
    """The figures, to the digits that podium.envs.calibration keeps."""
    fits: dict[str, Any] = {}
    for name, (x, of) in pooled(runs).items():
        fits[name] = counts(x, of, LEAST[name]) if name in LEAST else lognormal(x, of)
    return Figures(**fits)


def lognormal(x: F, runs: int) -> Lognormal:
    mu, sigma = round(float(np.log(x).mean()), DIGITS), round(float(np.log(x).std()), DIGITS)
    normal = NormalDist(mu, sigma)
    return Lognormal(mu, sigma, len(x), runs, distance(x, lambda v: normal.cdf(float(np.log(v)))))


def counts(x: F, runs: int, least: int) -> Counts:
    """Mean m and variance v of x - least give p = m / v and r = m p / (1 - p)."""
    m, v = float(x.mean()) - least, float(x.var())
    if v <= m:
        raise ValueError(f"counts with variance {v:.3g} below their mean {m:.3g} are not negative binomial")
    p = m / v
    r, p = round(m * p / (1.0 - p), DIGITS), round(p, DIGITS)
    return Counts(r, p, least, len(x), runs, steps(x - least, below(r, p)))


def distance(x: F, cdf: Callable[[float], float]) -> float:
    """Kolmogorov and Smirnov's: D = max over x of |share measured - share fitted|, on both sides of each step."""
    fit = np.array([cdf(float(v)) for v in np.sort(x)])
    n = len(x)
    return round(float(max((np.arange(1, n + 1) / n - fit).max(), (fit - np.arange(n) / n).max())), DIGITS)


def steps(x: F, sums: F) -> float:
    """The same distance where both sides only take whole numbers."""
    k = np.arange(max(len(sums), int(x.max()) + 1))
    measured = np.searchsorted(np.sort(x), k, side="right") / len(x)
    return round(float(np.abs(measured - np.append(sums, np.ones(len(k)))[: len(k)]).max()), DIGITS)


def instead(name: str, x: F) -> tuple[str, float]:
    """The simpler law with one parameter, and its distance."""
    mean = float(x.mean())
    if name in LEAST:
        return "geometric", steps(x - LEAST[name], below(1.0, 1.0 / (1.0 + mean - LEAST[name])))
    return "exponential", distance(x, lambda v: 1.0 - float(np.exp(-v / mean)))


def together(runs: list[Run]) -> dict[str, float]:
    """Rank correlation (Spearman) of what one sub-agent took, called and held at its end."""
    done = [x for run in runs for x in run.launches.values() if x.returned]
    rows = np.array([(x.seconds, x.calls, x.context) for x in done])
    rows = rows[~np.isnan(rows).any(axis=1)]
    ranks = np.array([[(c < v).sum() + (c == v).sum() / 2 for v in c] for c in rows.T])
    rho = np.corrcoef(ranks).round(2)
    return {
        "durations, calls": float(rho[0, 1]),
        "durations, context": float(rho[0, 2]),
        "calls, context": float(rho[1, 2]),
    }


def measure(folder: Path) -> dict[str, Any]:
    """All that is printed: per figure the fit, its mean and median, and the simpler law beside it."""
    every = sessions(folder)
    runs = parallel(every)
    figures, data = fitted(runs), pooled(runs)
    rows: dict[str, Any] = {}
    for name, fit in figures._asdict().items():
        x = data[name][0]
        law, other = instead(name, x)
        rows[name] = {
            "law": "negative binomial" if isinstance(fit, Counts) else "lognormal",
            **fit._asdict(),
            "mean": fit.mean,
            "median": fit.median,
            "measured_mean": float(x.mean()),
            "measured_median": float(np.median(x)),
            law: other,
        }
    return {"sessions": len(every), "parallel": len(runs), "figures": rows, "correlation": together(runs)}


def sessions(folder: Path) -> list[Run]:
    runs = []
    for path in sorted(folder.glob("*.jsonl.xz")):
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            try:
                runs.append(read(lines))
            except ValueError as error:
                raise ValueError(f"{path.name}: {error}") from error
    return runs


def show(measured: dict[str, Any]) -> None:
    titles = ("figure", "n", "runs", "fit", "KS", "KS of a simpler law", "mean, fit / measured")
    table = Table(*titles, box=SIMPLE)
    for name, row in measured["figures"].items():
        a, b = ("r", "p") if "r" in row else ("mu", "sigma")
        simple = "geometric" if "geometric" in row else "exponential"
        table.add_row(
            name,
            str(row["n"]),
            str(row["runs"]),
            f"{row['law']} {a} {row[a]:.4f} {b} {row[b]:.4f}",
            f"{row['ks']:.4f}",
            f"{row[simple]:.4f} {simple}",
            f"{_short(row['mean'])} / {_short(row['measured_mean'])}",
        )
    console = Console()
    console.width = max(console.width, WIDTH)  # a figure broken over two lines cannot be read
    console.print(table)
    moves = "; ".join(f"{pair} {rho:.2f}" for pair, rho in measured["correlation"].items())
    console.print(
        f"{measured['parallel']} of {measured['sessions']} sessions ran in parallel. Rank correlations: {moves}."
    )


def _short(x: float) -> str:
    return f"{x:,.0f}" if x >= 1000 else f"{x:.3g}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", action="store_true", help="one line of JSON instead of a table")
    args = options.parse_args()
    if not LOGS.is_dir():
        sys.exit(f"the sessions to calibrate on are not here: {LOGS}")
    measured = measure(LOGS)
    print(json.dumps(measured, allow_nan=False)) if args.json else show(measured)


if __name__ == "__main__":
    main()
