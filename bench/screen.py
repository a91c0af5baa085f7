"""The first screen: whether an independent count gives the same figures, and what it costs: `python -m
bench.screen [--full] [--json]`."""

from __future__ import annotations

import lzma
import tomllib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import podium
from bench.generate import trace
from bench.recount import recount
from bench.table import Row, at_most, command, fact
from podium.metrics import prices
from podium.trace import files, log
from podium.view.screen import screen
from podium.view.summary import RunSummary, summary

__all__ = ["differences", "figures", "logs", "measure"]

LOGS = Path(__file__).parents[2] / "shared/data/logs/claude_code"
REDACTED = 2
NEAR = 0.02  # seconds or tokens: times of a log are in milliseconds


def logs(most: int | None = None) -> list[Path]:
    """Real sessions, where they are there: all of them, or every other one until there are so many."""
    paths = sorted(LOGS.glob("*.jsonl.xz"))
    return paths if most is None else paths[::2][:most]


def figures(one: RunSummary) -> dict[str, Any]:
    """The figures of the first screen, by the names that the recount gives them."""
    nested = {"clock": one.clock, "spending": one.spending, "trouble": one.trouble}
    flat: dict[str, Any] = {
        f"{part}.{name}": getattr(value, name) for part, value in nested.items() for name in value.__struct_fields__
    }
    flat |= {"tasks": len(one.tasks), "critical": one.critical_path.seconds, "missing_agents": one.missing_agents}
    for model in one.by_model:
        flat |= {
            f"models.{model.name}.{name}": getattr(model.tally, name) for name in model.tally.__struct_fields__
        }
    for agent in one.agents:
        flat |= {f"agents.{agent.name}.{name}": getattr(agent, name) for name in agent.__struct_fields__}
        flat |= {
            f"agents.{agent.name}.tally.{name}": getattr(agent.tally, name)
            for name in agent.tally.__struct_fields__
        }
        c = agent.context
        flat |= {f"agents.{agent.name}.context": None if c.most != c.most else [c.first, c.most, c.last]}
        if agent.returned is not None and agent.returned.fate != "none":
            flat[f"fates.{agent.name}"] = [agent.returned.words, agent.returned.found]
        flat |= {f"agents.{agent.name}.compactions": c.compactions, f"agents.{agent.name}.stated_context": c.stated}
    usd = {tool.name: tool.tally.usd for tool in one.by_tool}
    for tool in one.tools:
        flat |= {f"tools.{tool.name}.{name}": getattr(tool, name) for name in tool.__struct_fields__}
        flat[f"tools.{tool.name}.usd"] = usd.get(tool.name, 0.0)
    habits = {habit.rule: habit for habit in one.habits}
    again, compacted = habits.get("context_again"), habits.get("compactions")
    flat["again"] = [again.times, again.tokens, again.usd] if again else [0, 0.0, 0.0]
    flat["compactions"] = compacted.times if compacted else 0
    flat["repeats"] = sum(len(repeat.rows) - 1 for repeat in one.trouble.repeats)
    return flat


def flattened(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flattened(inner, f"{name}.{key}" if name else key)
    else:
        yield name, value


def same(a: Any, b: Any) -> bool:
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if a is None or b is None or a != a or b != b:
        return (a is None or a != a) and (b is None or b != b)
    if isinstance(a, str) or isinstance(b, str):
        return bool(a == b)
    return abs(a - b) <= NEAR + 1e-9 * abs(b)


def differences(path: Path) -> tuple[int, list[str]]:
    """How many figures of a session were counted twice, and those that differ."""
    table = tomllib.loads((Path(prices.__file__).parent / "prices.toml").read_text())["price"]
    with lzma.open(path, "rt", newline="\n") as lines:
        counted = dict(flattened(recount(lines, table)))
    (one,) = (read.trace for read in files.read(path, keep=True) if read.trace is not None)
    ours = figures(summary(one))
    # content is read after redaction, so that a few words of a return may be missing
    close = {
        n
        for n, v in counted.items()
        if n.startswith("fates.")
        and n in ours
        and all(0 <= a - b <= REDACTED for a, b in zip(v, ours[n], strict=True))
    }
    wrong = [
        f"{path.name} {name}: {value} counted, {ours.get(name)} shown"
        for name, value in counted.items()
        if name not in close and (name not in ours or not same(value, ours[name]))
    ]
    return len(counted), wrong


def measure(full: bool) -> list[Row]:
    rows = []
    if paths := logs(None if full else 2):
        compared = [differences(path) for path in paths]
        wrong = [line for _, lines in compared for line in lines]
        print(*wrong, sep="\n", end="\n" * bool(wrong))
        rows += [
            at_most(
                "25.4.1",
                f"figures of {len(paths)} real sessions that an independent count gives otherwise",
                len(wrong),
                0,
                "exact",
            ),
            fact("25.4.2", "figures that were counted twice", sum(n for n, _ in compared)),
        ]
    return [*rows, *_cost(1_000_000 if full else 5_000, 3 if full else 1)]


def _cost(events: int, tries: int) -> list[Row]:
    """Processor time of loading a log, and of loading and showing it, in one run."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        path.write_bytes(log.write(trace(events)))
        ratios, loading = [], []
        for _ in range(tries):
            start = process_time()
            podium.load(path)
            between = process_time()
            (read,) = files.read(path, keep=True)
            assert read.trace is not None
            screen(summary(read.trace), 80)
            loading.append(between - start)
            ratios.append((process_time() - between) / loading[-1])
    ratio, seconds = sorted(ratios)[tries // 2], sorted(loading)[tries // 2]
    what = f"times podium.load that reading and showing {events:,} events takes"
    return [
        at_most("26.2.show", what, ratio, 2.0, "time"),
        fact("26.2.load", "s of processor time of podium.load", seconds),
    ]


if __name__ == "__main__":
    command(measure, __doc__)
