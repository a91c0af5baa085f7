"""The first screen of a run as lines of text: what `podium show` prints of a summary, and nothing that is not in
it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from rich.text import Text as Line

from podium.view.habits import HABITS, Habit
from podium.view.spending import Spending, Tally
from podium.view.summary import RunSummary
from podium.view.team import Agent
from podium.view.words import UNKNOWN, amount, columns, cut, dollars, percent, span, tokens, wrapped

__all__ = ["screen"]

MOST_AGENTS, MOST_TOOLS, MOST_TASKS, MOST_HABITS = 14, 6, 3, 4
BAR = (
    ("model", "█", "cyan"),
    ("tools", "▓", "yellow"),
    ("sub-agents", "▒", "green"),
    ("you", "░", "dim"),
    ("idle", "·", "dim"),
)


def screen(one: RunSummary, width: int) -> list[Line]:
    """The lines, none longer than the width."""
    parts = _head, _time, _cost, _team, _tools, _apart, _wrong, _habits
    return [line for part in parts for line in part(one, width)]


def _title(width: int, text: str, note: str = "") -> Iterator[Line]:
    yield Line("")
    line = Line(text, style="bold")
    if note:
        line.append(f"  {cut(note, width - len(text) - 2)}", style="not bold dim")
    yield line


# ---- what it was


def _head(one: RunSummary, width: int) -> Iterator[Line]:
    began = "" if one.started is None else f"{datetime.fromtimestamp(one.started, UTC):%Y-%m-%d %H:%M} UTC"
    system = " ".join(filter(None, (one.system, one.harness)))
    about = [one.project or "", system, (one.topology or "").replace("_", " "), began]
    yield Line(cut(one.trace_id or "a run", width), style="bold")
    if any(about):
        yield Line(cut(" · ".join(filter(None, about)), width), style="dim")
    for line in _tasks(one):
        yield Line(cut(line, width))
    text = f": {one.ending.text}" if one.ending.text else ""
    if one.ending.how != UNKNOWN or text:
        yield Line(cut(f"{'Ended':<8}{one.ending.how}{text}", width))
    rewards = ", ".join(f"{name} {'not scored' if v != v else f'{v:g}'}" for name, v in one.rewards.items())
    if rewards:
        yield Line(cut(f"{'Reward':<8}{rewards}", width))


def _tasks(one: RunSummary) -> Iterator[str]:
    if not one.tasks or all(task.prompt is None for task in one.tasks):
        if one.task_id and one.task_id != one.trace_id:
            yield f"{'Task':<8}{one.task_id}"
        elif one.tasks:
            yield f"{'Task':<8}{amount(len(one.tasks), 'prompt')}; what they say was not kept"
        return
    many = len(one.tasks)
    shown = one.tasks if many <= MOST_TASKS else one.tasks[: MOST_TASKS - 1]
    for task in shown:
        yield f"{f'Task {task.number + 1}' if many > 1 else 'Task':<8}{task.prompt or UNKNOWN}"
    if many > len(shown):
        yield f"{'':<8}and {amount(many - len(shown), 'more prompt')}; the last: {one.tasks[-1].prompt or UNKNOWN}"


# ---- time


def _time(one: RunSummary, width: int) -> Iterator[Line]:
    clock = one.clock
    if clock.wall != clock.wall:
        yield from _title(width, "Time", UNKNOWN)
        return
    if clock.model != clock.model:
        yield from _title(width, "Time", f"{span(clock.wall)}; no event says how long it took, so no more is known")
        return
    team = clock.wall - clock.person
    note = f"{span(clock.wall)} in all" + (f", {span(team)} without you" if clock.person > 0 else "")
    yield from _title(width, "Where the time went", note)
    modelled = _modelled(one)
    parts = [
        (
            "model" if modelled else "agents",
            clock.model,
            "a model was writing" if modelled else "an agent was at work",
        ),
        ("tools", clock.tools, "a tool was running, and no model"),
        ("sub-agents", clock.unseen, "only the end of their work is in the log"),
        ("you", clock.person, f"prompts {span(clock.prompts)}, leave and answers {span(clock.approvals)}"),
        ("idle", clock.idle, "nothing was recorded"),
    ]
    yield _bar([seconds for _, seconds, _ in parts], width)
    rows = [
        [mark, name, span(seconds), percent(seconds, clock.wall), what]
        for (_, mark, _), (name, seconds, what) in zip(BAR, parts, strict=True)
        if seconds > 0.0005
    ]
    yield from columns(rows, width, "llrrl", wide=4, head=False, indent=2)
    yield from wrapped(
        f"At most {amount(clock.most_at_once, 'agent')} at once, {clock.mean_at_once:.1f} on average. All work "
        f"one after the other: {span(clock.serial)}.",
        width,
    )
    yield from _critical(one, width)


def _modelled(one: RunSummary) -> bool:
    """Whether the log names models."""
    return any(agent.models for agent in one.agents)


def _bar(parts: list[float], width: int) -> Line:
    """One line, as wide as there is room, shared in proportion."""
    room, whole = width - 4, sum(parts)
    line, done, at = Line("  "), 0.0, 0
    for (_, mark, style), part in zip(BAR, parts, strict=True):
        done += part
        to = round(room * done / whole) if whole > 0 else 0
        line.append(mark * (to - at), style=style)
        at = to
    return line


def _critical(one: RunSummary, width: int) -> Iterator[Line]:
    path = one.critical_path
    if path.seconds != path.seconds:
        return

    def listed(shares: list, most: int) -> str:  # type: ignore[type-arg]
        return ", ".join(
            f"{_label(one, s.name)} {span(s.seconds)}" for s in shares[:most] if s.seconds > 0.01 * path.seconds
        )

    kinds = {"model": "the model" if _modelled(one) else "agents", "person": "you"}
    parts = ", ".join(f"{kinds.get(s.name, s.name)} {span(s.seconds)}" for s in path.kinds if s.seconds > 0)
    text = f"Critical path {span(path.seconds)}: with these causes no team can be faster."
    text += f" It is {parts}." if len(path.kinds) > 1 else ""
    agents, tools = listed(path.agents, 3), listed(path.tools, 3)
    text += f" By agent: {agents}." if agents else ""
    text += f" By tool: {tools}." if tools else ""
    yield from wrapped(text, width)


def _label(one: RunSummary, name: str) -> str:
    """An agent's name, with what it was launched for where its name is a number."""
    agent = next((a for a in one.agents if a.name == name and a.task), None)
    return name if agent is None or agent.task is None else f"{cut(agent.task, 24)!r}"


# ---- money


def _cost(one: RunSummary, width: int) -> Iterator[Line]:
    bill = one.spending
    if not bill.turns:
        yield from _title(width, "What it cost", f"{UNKNOWN}: no event states a model or tokens")
        return
    stated = "" if one.stated_usd != one.stated_usd else f"; the log itself says {dollars(one.stated_usd)}"
    yield from _title(width, "What it cost", f"{dollars(bill.usd, bill.at_least)}{stated}")
    rows = [["model", "turns", "input", "to cache", "cached", "hits", "output", "price"]]
    rows += [_priced(s) for s in one.by_model if s.tally.usd or s.tally.unread or s.tally.input]
    if len(one.by_model) > 1:
        rows.append(_priced(Spending("all", bill)))
    yield from columns(rows, width, "lrrrrrrr", indent=2)
    if reasons := _unknown(one):
        yield from wrapped("Not in the price: " + "; ".join(reasons) + ".", width, style="yellow")


def _priced(one: Spending) -> list[str]:
    b: Tally = one.tally
    hit = "?" if b.hit != b.hit else f"{100 * b.hit:.0f} %"
    written = "?" if b.unwritten * 2 > b.turns else tokens(b.output) + ("+" if b.unwritten else "")
    figures = [tokens(b.input), tokens(b.cache_write), tokens(b.cache_read)]
    return [one.name, f"{b.turns:,.0f}", *figures, hit, written, dollars(b.usd, b.at_least)]


def _unknown(one: RunSummary) -> list[str]:
    """What the price leaves out, and why."""
    bill, reasons = one.spending, []
    if bill.unwritten > bill.unread:
        reasons.append(
            f"what {bill.unwritten - bill.unread:,} of {amount(bill.turns, 'turn')} wrote, which the log does not "
            "say"
        )
    if bill.unread:
        reasons.append(f"what {amount(bill.unread, 'turn')} read, which the log does not say")
    if one.missing_agents:
        reasons.append(f"turns of {amount(one.missing_agents, 'sub-agent')} that are not in the log")
    unpriced = [f"model {s.name}" if s.name == UNKNOWN else s.name for s in one.by_model if s.tally.unpriced]
    if unpriced:
        reasons.append(f"{', '.join(unpriced)}: no price (--prices FILE)")
    return reasons


# ---- who


def _team(one: RunSummary, width: int) -> Iterator[Line]:
    if not one.agents:
        return
    used = [a.returned.fate for a in one.agents if a.returned is not None]
    fates = ", ".join(f"{used.count(fate)} {fate}" for fate in dict.fromkeys(used))
    yield from _title(
        width, "Who worked", f"{amount(len(one.agents), 'agent')}" + (f"; returns: {fates}" if fates else "")
    )
    rows = [["agent", "work", "turns", "calls", "context", "price", "return"]]
    dearest = sorted(one.agents, key=_weight, reverse=True)[:MOST_AGENTS]
    shown = [a for a in one.agents if a.name in {d.name for d in dearest}]
    rows += [_agent(a) for a in shown]
    keep = [True, True, *[one.spending.turns > 0] * 4, bool(used)]
    keep[3] |= bool(one.tools)
    rows = [[cell for cell, shows in zip(row, keep, strict=True) if shows] for row in rows]
    right = "".join(side for side, shows in zip("lrrrrrl", keep, strict=True) if shows)
    yield from columns(rows, width, right, indent=2)
    if len(one.agents) > len(shown):
        rest = [a for a in one.agents if a.name not in {d.name for d in dearest}]
        prices = [a.tally.usd for a in rest if a.tally.usd == a.tally.usd]
        price = f", {dollars(sum(prices), any(a.tally.at_least for a in rest))}" if prices else ""
        yield from wrapped(f"and {amount(len(rest), 'more agent')}{price}; --json lists them", width)
    yield from _contexts(one, width)


def _weight(a: Agent) -> tuple[bool, float, float]:
    """What is shown first where there is no room for all: who launched others, what cost most, what worked
    longest."""
    known = [0.0 if v != v else v for v in (a.tally.usd, a.busy)]
    return a.parent is None, known[0], known[1]


def _agent(a: Agent) -> list[str]:
    name = a.task or (f"{a.name} ({a.role})" if a.role and a.role != a.name else a.name)
    calls = (
        f"{a.calls:,}" if not a.missing else "?" if a.stated_calls != a.stated_calls else f"{a.stated_calls:.0f}"
    )
    stated = a.context.stated
    grown = (
        tokens(a.context.most)
        if a.context.most == a.context.most
        else "?"
        if stated != stated
        else f"~{tokens(stated)}"
    )
    price = (
        "?"
        if a.tally.usd != a.tally.usd and a.missing
        else dollars(a.tally.usd, a.tally.at_least)
        if a.tally.turns
        else "-"
    )
    turns = "?" if a.missing else f"{a.tally.turns:,.0f}"
    fate = "" if a.returned is None else a.returned.fate + (", failed" if a.returned.failed else "")
    work = "?" if a.busy != a.busy else span(a.busy)
    return ["  " * a.depth + name, work, turns, calls, grown, price, fate]


def _contexts(one: RunSummary, width: int) -> Iterator[Line]:
    lead = next((a for a in one.agents if a.name == one.lead), None)
    if lead is None or lead.context.most != lead.context.most:
        return
    c = lead.context
    turns = f"{tokens(c.first)} tokens in its first turn, {tokens(c.most)} at most, {tokens(c.last)} in its last"
    text = f"Context of {lead.name}: {turns}"
    compacted = sum(a.context.compactions for a in one.agents)
    yield from wrapped(f"{text}; {amount(compacted, 'compaction') if compacted else 'no compaction'}.", width)


# ---- tools


def _tools(one: RunSummary, width: int) -> Iterator[Line]:
    if not one.tools:
        return
    price = {s.name: s.tally for s in one.by_tool}
    text = price.get("text")
    note = "price: of the turns that made the calls" if price else ""
    note += (
        ""
        if text is None or text.usd != text.usd
        else f"; turns that made none: {dollars(text.usd, text.at_least)}"
    )
    yield from _title(width, "Tools", note)
    rows = [["tool", "calls", "failed", "time", "price"]]
    for tool in one.tools[:MOST_TOOLS]:
        bill = price.get(tool.name)
        cost = "-" if bill is None or not bill.turns else dollars(bill.usd, bill.at_least)
        took = "?" if tool.seconds != tool.seconds else span(tool.seconds)
        rows.append([tool.name, f"{tool.calls:,}", f"{tool.failed:,}" if tool.failed else "-", took, cost])
    yield from columns(rows, width, "lrrrr", indent=2)
    if len(one.tools) > MOST_TOOLS:
        rest = one.tools[MOST_TOOLS:]
        names = ", ".join(f"{t.name} {t.calls:,}" for t in rest)
        yield Line(cut(f"  and {len(rest)} more: {names}", width))


# ---- what could be better


def _apart(one: RunSummary, width: int) -> Iterator[Line]:
    if one.apart is None or not one.apart:
        why = "cannot tell without content" if one.apart is None else "nothing of note"
        yield from _title(width, "Could have run side by side", why)
        return
    seconds = sum(g.seconds for g in one.apart)
    yield from _title(
        width,
        "Could have run side by side",
        f"at most {span(seconds)} saved",
    )
    for group in one.apart[:3]:
        names = ", ".join(
            _label(one, name) if group.what == "sub-agents" else name for name in dict.fromkeys(group.names)
        )
        kind = "sub-agents" if group.what == "sub-agents" else "reads in a row"
        yield Line(cut(f"  {span(group.seconds):>9}  {len(group.rows)} {kind} by {group.agent}: {names}", width))
    if len(one.apart) > 3:
        rest = sum(g.seconds for g in one.apart[3:])
        yield Line(cut(f"  {span(rest):>9}  in {amount(len(one.apart) - 3, 'more group')}", width))


def _wrong(one: RunSummary, width: int) -> Iterator[Line]:
    t = one.trouble
    again = sum(len(r.rows) - 1 for r in t.repeats)
    rows = [
        (t.failed_calls, f"{t.failed_calls:,} of {amount(t.calls, 'call')} failed"),
        (again, f"{amount(again, 'time')} a failed call was made again unchanged"),
        (t.failed_agents, f"{amount(t.failed_agents, 'sub-agent')} failed or stopped"),
        (t.interruptions, f"{amount(t.interruptions, 'interruption')} by you"),
        (t.refusals, f"{amount(t.refusals, 'call')} that you refused"),
        (t.denials, f"{t.denials:,} denied by a permission, a guard or a hook"),
        (t.model_errors, f"{amount(t.model_errors, 'error')} of the model's API"),
        (t.open_calls, f"{amount(t.open_calls, 'call')} without a result"),
        (t.truncated, f"{amount(t.truncated, 'event')} whose beginning or end is not in the log"),
    ]
    troubles = [what for n, what in rows if n]
    yield from _title(width, "What went wrong", "" if troubles else "nothing that the log shows")
    if troubles:
        yield from wrapped("; ".join(troubles) + ".", width)


def _habits(one: RunSummary, width: int) -> Iterator[Line]:
    if not one.habits:
        return
    yield from _title(width, "What cost most, and need not have", "at most")
    for habit in one.habits[:MOST_HABITS]:
        lines = list(wrapped(f"{habit.times} × {HABITS[habit.rule]} ({habit.evidence})", width, 14))
        yield Line(f"{_figure(habit):>12}  ") + lines[0][14:]
        yield from lines[1:]


def _figure(habit: Habit) -> str:
    return dollars(habit.usd) if habit.usd == habit.usd and habit.usd > 0 else span(habit.seconds)
