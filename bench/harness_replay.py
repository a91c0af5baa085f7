"""Whether recorded runs replay to the same bytes, and whether a change changes only what is downstream of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from bench import table
from bench.table import Row, at_least, fact
from podium.harness.budget import Budget
from podium.harness.chaos import Injected, injured
from podium.harness.forest import shared, unexplained
from podium.harness.replay import BadReplay, replay
from podium.harness.run import run
from podium.harness.team import Team
from podium.harness.topologies import TEAMS
from podium.trace.columns import Trace
from podium.trace.do import Do
from podium.trace.files import read
from podium.trace.vocabulary import EVENT_TYPES

__all__ = ["branched", "measure", "mixed", "replayed"]

LIMITS = (None, Budget(steps=12), Budget(agents=3), Budget(depth=1), Budget(critical_steps=5), Budget(seconds=0.08))


def mixed(i: int, log: list[Injected], rate: float) -> Team:
    """Run number i: the topologies in turn, every other one with slots or a budget, all with faults, delays and
    stragglers."""
    from dataclasses import replace

    team = list(TEAMS.values())[i % len(TEAMS)]()
    limit = LIMITS[i // len(TEAMS) % len(LIMITS)]
    if limit is not None:
        team = replace(team, budget=limit)
    if i % 4 == 1:
        team = replace(team, slots=2)
    return injured(team, i, rate, log)


def replayed(folder: Path, i: int, rate: float = 0.15) -> tuple[bool, Trace | None, Team]:
    """Whether run number i keeps every rule and replays to the same bytes."""
    team = mixed(i, [], rate)
    run(team, seed=i, folder=folder / f"run{i}")
    (one,) = read(folder / f"run{i}")
    if one.findings or one.trace is None:
        return False, one.trace, team
    replay(team, one.trace, folder=folder / f"again{i}")
    first, again = ((folder / f"{name}{i}/w0.jsonl").read_bytes() for name in ("run", "again"))
    return first == again, one.trace, team


def intervention(trace: Trace, dice: Random) -> Do | None:
    """Something else at a random row; None where nothing can be otherwise there."""
    row = dice.randrange(trace.n_events)
    kind = EVENT_TYPES[trace.type_e[row]]
    if kind in ("orchestrator_decision", "tool_call"):
        if dice.random() < 0.3:
            return Do(row, "mask")
        options = trace.options(int(row))
        lead = trace.name_a[int(trace.agent_e[row])] == "lead"
        options += ["stop"] if lead else []
        return Do(row, "choose", dice.choice(options)) if options else None
    if kind in ("message", "return", "tool_result"):
        what = dice.choice(["replace", "remove", "delay", "mask"])
        value = {"replace": "something else", "delay": 0.01}.get(what)
        return Do(row, what, value)  # type: ignore[arg-type]
    return None


def branched(folder: Path, team: Team, trace: Trace, dice: Random) -> Counter[str]:
    """One branch, twice: whether it is the same bytes, keeps every rule, and changed only what is downstream."""
    said: Counter[str] = Counter()
    a, b = folder / f"a{dice.random()}", folder / f"b{dice.random()}"
    for _ in range(8):
        do = intervention(trace, dice)
        try:
            grown = None if do is None else replay(team, trace, do=do, folder=a, trace_id="branch")
        except BadReplay:  # nothing can be otherwise there
            grown = None
        if grown is not None and do is not None:
            break
    else:
        return said
    replay(team, trace, do=do, folder=b, trace_id="branch")
    (one,) = read(a)
    lost = unexplained(trace, grown, do.row)
    said.update(
        branches=1,
        same=(a / "w0.jsonl").read_bytes() == (b / "w0.jsonl").read_bytes(),
        clean=not one.findings,
        explained=not lost,
        rows=grown.n_events,
        shared=int((shared(trace, grown) >= 0).sum()),
        events=trace.n_events,
    )
    return said


def measure(full: bool) -> list[Row]:
    runs, dice = (800 if full else 24), Random(8)
    good, said = 0, Counter[str]()
    with TemporaryDirectory() as folder:
        for i in range(runs):
            same, trace, team = replayed(Path(folder), i)
            good += same
            if same and trace is not None:
                said += branched(Path(folder), team, trace, dice)
    n = max(said["branches"], 1)
    return [
        at_least("8.2.replays", f"of {runs} runs of mixed topologies with faults injected, those that replay to the same bytes", good, runs, "exact"),
        at_least("8.2.downstream", f"share of {n} branches in which nothing changed that is not downstream, event by event", said["explained"] / n, 1.0, "exact"),
        at_least("8.2.bytes", "share of them that are the same bytes when branched again", said["same"] / n, 1.0, "exact"),
        at_least("8.2.rules", "share of them that keep every rule", said["clean"] / n, 1.0, "exact"),
        fact("8.2.shared", "share of their rows that they have in common with their parent", said["shared"] / max(said["rows"], 1)),
    ]  # fmt: skip


if __name__ == "__main__":
    table.command(measure, __doc__)
