"""Many runs: compared, their cost by day and by project, and the habits that cost most.

A `Comparison` takes in one summary after the other and keeps a row of each, so a folder is read run by run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from rich.text import Text as Line

from podium.view.habits import HABITS
from podium.view.summary import RunSummary
from podium.view.words import amount, columns, cut, dollars, percent, span, tokens, wrapped

__all__ = ["Comparison", "Group", "HabitTotal", "RunRow", "comparison_screen"]

UNNAMED = "no project"
MOST_RUNS, MOST_GROUPS = 20, 10


class RunRow(Struct):
    """One of several runs. NaN and None are not recorded."""

    number: int  # `podium show FOLDER --run NUMBER` shows it
    trace_id: str | None
    file: str
    project: str | None
    system: str | None
    started: float | None  # seconds since 1970, UTC
    prompt: str | None  # the first
    ending: str
    wall: float  # seconds
    team: float  # ... without those of the person
    agents: int
    turns: float
    calls: int
    failed_calls: int
    read: float  # tokens of all kinds
    hit: float  # the share of them that came from the cache
    usd: float
    at_least: bool


class Group(Struct):
    """The runs of a day or of a project."""

    name: str
    runs: int
    team: float
    turns: float
    usd: float
    at_least: bool


class HabitTotal(Struct):
    """A habit over all runs."""

    rule: str
    sentence: str
    runs: int
    times: int
    usd: float  # at most what could have been saved
    seconds: float
    worst: list[int]  # the runs in which it cost most


class _Found(NamedTuple):
    run: int
    times: int
    usd: float
    seconds: float


class Comparison:
    """Takes in the summaries of runs, one after the other."""

    def __init__(self) -> None:
        self.runs: list[RunRow] = []
        self._days: dict[str, Group] = {}
        self._projects: dict[str, Group] = {}
        self._habits: dict[str, list[_Found]] = {}

    def add(self, one: RunSummary, file: str) -> None:
        """Takes in one more run."""
        number, bill = len(self.runs), one.spending
        team = one.clock.wall - np.nan_to_num(one.clock.person)
        row = RunRow(
            number,
            one.trace_id,
            file,
            one.project,
            one.system,
            one.started,
            one.tasks[0].prompt if one.tasks else None,
            one.ending.how,
            one.clock.wall,
            float(team),
            len(one.agents),
            bill.turns,
            one.trouble.calls,
            one.trouble.failed_calls,
            _total(bill.input, bill.cache_write, bill.cache_read),
            bill.hit,
            bill.usd,
            bill.at_least,
        )
        self.runs.append(row)
        _put(self._projects, one.project or UNNAMED, row.team, bill.turns, bill.usd, bill.at_least)
        for day in one.by_day:
            tally = day.tally
            _put(
                self._days, day.name, float("nan"), tally.turns, tally.usd, tally.at_least or one.missing_agents > 0
            )
        for habit in one.habits:
            self._habits.setdefault(habit.rule, []).append(_Found(number, habit.times, habit.usd, habit.seconds))

    @property
    def days(self) -> list[Group]:
        """The cost of each day, UTC, by when turns were made."""
        return sorted(self._days.values(), key=lambda g: g.name)

    @property
    def projects(self) -> list[Group]:
        """The cost of each project, the dearest first."""
        return sorted(
            self._projects.values(), key=lambda g: (-np.nan_to_num(g.usd), -np.nan_to_num(g.team), g.name)
        )

    @property
    def habits(self) -> list[HabitTotal]:
        """The habits, the dearest first."""
        totals = []
        for rule, habits in self._habits.items():
            worst = sorted(habits, key=lambda f: (-np.nan_to_num(f.usd), -np.nan_to_num(f.seconds)))
            totals.append(
                HabitTotal(
                    rule,
                    HABITS[rule],
                    len(habits),
                    sum(f.times for f in habits),
                    _total(*(f.usd for f in habits)),
                    _total(*(f.seconds for f in habits)),
                    [f.run for f in worst[:3]],
                )
            )
        return sorted(totals, key=lambda h: (-np.nan_to_num(h.usd), -np.nan_to_num(h.seconds)))

    def data(self) -> dict[str, object]:
        """All of it, for JSON."""
        return {"runs": self.runs, "days": self.days, "projects": self.projects, "habits": self.habits}


def _put(groups: dict[str, Group], name: str, team: float, turns: float, usd: float, at_least: bool) -> None:
    group = groups.setdefault(name, Group(name, 0, float("nan"), 0.0, float("nan"), False))
    group.runs += 1
    group.team, group.usd = _total(group.team, team), _total(group.usd, usd)
    group.turns += turns
    group.at_least |= at_least


def _total(*values: float) -> float:
    """The sum of what is known; NaN where nothing is."""
    known = [v for v in values if v == v]
    return float(sum(known)) if known else float("nan")


# ---- on a terminal


def comparison_screen(many: Comparison, width: int) -> list[Line]:
    """The lines, none longer than the width."""
    return [line for part in (_runs, _projects, _days, _habits) for line in part(many, width)]


def _runs(many: Comparison, width: int) -> Iterator[Line]:
    usd, least = _total(*(r.usd for r in many.runs)), any(r.at_least for r in many.runs)
    price = f", {dollars(usd, least)}" if usd == usd else ""
    team = _total(*(r.team for r in many.runs))
    work = f", {span(team)} of work" if team == team else ""
    yield Line(f"{amount(len(many.runs), 'run')}{work}{price}", style="bold")
    by_price = sorted(many.runs, key=lambda r: (-np.nan_to_num(r.usd), -np.nan_to_num(r.team), r.number))
    rows = [["run", "task", "work", "agents", "turns", "read", "hits", "failed", "price"]]
    rows += [_row(r) for r in by_price[:MOST_RUNS]]
    yield from columns(rows, width, "rlrrrrrrr", wide=1)
    if len(by_price) > MOST_RUNS:
        rest = by_price[MOST_RUNS:]
        cost = _total(*(r.usd for r in rest))
        price = f", {dollars(cost, any(r.at_least for r in rest))}" if cost == cost else ""
        yield Line(f"and {amount(len(rest), 'more run')}{price}; --json lists all", style="dim")
    yield Line(cut("--run N shows one of them", width), style="dim")


def _row(r: RunRow) -> list[str]:
    name = r.prompt or r.trace_id or r.file
    share = percent(r.failed_calls, r.calls) if r.failed_calls else "-"
    hit = "?" if r.hit != r.hit else f"{100 * r.hit:.0f} %"
    work = "?" if r.team != r.team else span(r.team)
    return [
        str(r.number),
        f"{r.project}: {name}" if r.project else name,
        work,
        str(r.agents),
        f"{r.turns:,.0f}",
        tokens(r.read),
        hit,
        share,
        dollars(r.usd, r.at_least) if r.turns else "-",
    ]


def _projects(many: Comparison, width: int) -> Iterator[Line]:
    if len(many.projects) < 2:
        return
    yield from _groups("By project", many.projects[:MOST_GROUPS], len(many.projects), width)


def _days(many: Comparison, width: int) -> Iterator[Line]:
    if many.days:
        yield from _groups(
            "By day (UTC, by when the turns were made)", many.days[-MOST_GROUPS:], len(many.days), width
        )


def _groups(title: str, groups: list[Group], count: int, width: int) -> Iterator[Line]:
    yield Line("")
    shown = "" if count == len(groups) else f", {len(groups)} of {count}"
    yield Line(cut(title + shown, width), style="bold")
    worked = any(g.team == g.team for g in groups)
    rows = [["", "runs", *(["work"] if worked else []), "turns", "price"]]
    for g in groups:
        work = [span(g.team) if g.team == g.team else "?"] if worked else []
        rows.append([g.name, str(g.runs), *work, f"{g.turns:,.0f}", dollars(g.usd, g.at_least) if g.turns else "-"])
    yield from columns(rows, width, "l" + "r" * (len(rows[0]) - 1), indent=2)


def _habits(many: Comparison, width: int) -> Iterator[Line]:
    if not many.habits:
        return
    yield Line("")
    title = Line("Habits that cost most", style="bold")
    title.append("  at most so much could have been saved", style="not bold dim")
    yield title[:width]
    for h in many.habits:
        price = dollars(h.usd) if h.usd == h.usd else span(h.seconds)
        time = f"; {span(h.seconds)}" if h.usd == h.usd and h.seconds == h.seconds and h.seconds > 0 else ""
        worst = ", ".join(map(str, h.worst))
        text = f"{h.times:,} × in {amount(h.runs, 'run')}: {h.sentence}{time} (most in {worst})"
        lines = list(wrapped(text, width, 14))
        yield Line(f"{price:>12}  ") + lines[0][14:]
        yield from lines[1:]
