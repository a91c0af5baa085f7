"""Inspect: evaluation logs, `.json` and `.eval` (an archive of samples). A sample is a run, its scores are rewards.

Spans of agents are agents, nested ones work for the agent above. What scorers did is not the team's and is left
out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from podium.exchange.build import Run
from podium.exchange.jsons import Complain, objects, seconds
from podium.exchange.reading import Source
from podium.exchange.spans import Span, add_spans, figure_of
from podium.exchange.turns import dicts, figure_after, plain_text
from podium.registry import register

__all__ = ["inspect_ai"]

GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}  # correct, incorrect, partial, no answer
NOT_THE_TEAM = ("scorers", "scorer", "init")
SOLVER = "solver"
REFUSED = ("reject", "terminate")
_MEMBER = re.compile(r"(.*\.eval):(?:header|summaries|reductions|samples/.*|_journal/.*)\.?(?:json)?")


def is_inspect(start: bytes, name: str) -> float:
    if _MEMBER.fullmatch(name):
        return 0.9
    head = start[:8192]
    if b'"eval"' in head and b'"status"' in head and (b'"eval_id"' in head or b'"run_id"' in head):
        return 0.9
    if b'"event": "span_begin"' in head or b'"event":"span_begin"' in head:
        return 0.85
    sample = b'"epoch"' in head and b'"target"' in head and b'"id"' in head[:100]
    return 0.85 if sample and b'"input"' in head else 0.0


def inspect_keys(start: bytes, name: str) -> Iterable[str]:
    """The members of one archive belong together."""
    member = _MEMBER.fullmatch(name)
    return [member[1] if member else name]


@register("importer", title="Inspect", detect=is_inspect, group=inspect_keys)
def inspect_ai(sources: Sequence[Source], keep: bool) -> Iterator[Run]:
    """A run a sample."""
    faults = Run("inspect", system="inspect", keep=keep)
    header: dict[str, Any] = {}
    count = 0
    for source in sorted(sources, key=lambda one: (not one.name.endswith("header.json"), one.name)):
        if ".eval:" in source.name and not re.search(r":(header\.json|samples/)", source.name):
            continue

        def complain(line: int | None, why: str, file: str = source.name) -> None:
            faults.fault(file, line, why)

        for line, item in objects(source, complain):
            if not isinstance(item, dict):
                complain(line, "expected a log or a sample, an object")
                continue
            header = item["eval"] if isinstance(item.get("eval"), dict) else header
            for sample in dicts(item.get("samples")) if "eval" in item else [item]:
                run = _run(sample, header, keep)
                add_spans(run, _spans(sample, complain))
                _score(run, sample)
                run.faults, faults.faults = faults.faults, []
                count += 1
                yield run
    if not count or faults.faults:
        yield faults


def _run(sample: dict[str, Any], header: dict[str, Any], keep: bool) -> Run:
    task, id, epoch = str(header.get("task") or "task"), sample.get("id"), sample.get("epoch")
    name = sample.get("uuid") or f"{header.get('run_id') or task}/{id}/{epoch}"
    run = Run(str(name), system="inspect", task_id=f"{task}/{id}", keep=keep)
    run.params |= {"epoch": epoch} if isinstance(epoch, int) else {}
    run.params |= {"model": header["model"]} if isinstance(header.get("model"), str) else {}
    return run


def _score(run: Run, sample: dict[str, Any]) -> None:
    """Scores as rewards: the only one is the team's."""
    scores = sample["scores"] if isinstance(sample.get("scores"), dict) else {}
    for name, score in scores.items():
        value = score.get("value") if isinstance(score, dict) else score
        for part, one in value.items() if isinstance(value, dict) else [("", value)]:
            figure = GRADES.get(one) if isinstance(one, str) else float(one) if isinstance(one, bool) else None
            figure = figure_of(one) if figure is None else figure
            channel = f"{name}.{part}" if part else "team" if len(scores) == 1 else name
            if figure is not None:
                run.rewards[channel] = figure


def _spans(sample: dict[str, Any], complain: Complain) -> list[Span]:
    """The spans of a sample, its turns and calls among them."""
    spans: dict[str, Span] = {}
    kinds: dict[str, str] = {}
    events = sorted(dicts(sample.get("events")), key=lambda one: seconds(one.get("timestamp")) or 0.0)
    for event in events:
        id, t = str(event.get("id")), seconds(event.get("timestamp"))
        if event.get("event") == "span_begin":
            kinds[id] = kind = str(event.get("type") or "")
            agent = kind in ("agent", "handoff")
            name = str(event.get("name") or "")
            spans[id] = Span(id, str(event.get("parent_id") or ""), "agent" if agent else "group", name, t)
        elif event.get("event") == "span_end" and id in spans:
            spans[id].end = t
    outside = {id for id in spans if any(kinds[above] in NOT_THE_TEAM for above in _path(id, spans))}
    tools = [span for id, span in spans.items() if kinds[id] == "tool"]
    for number, event in enumerate(events):
        within = str(event.get("span_id") or "")
        if within not in outside and (span := _span(event, within, f"event {number}", tools)) is not None:
            if span.start is None:
                complain(None, f"an event of type {event.get('event')!r} without a time; left out")
            spans[span.id] = span
    team = {id: span for id, span in spans.items() if id not in outside}
    lead = next((one for one in team.values() if one.kind == "agent"), None)
    if lead is None:  # a solver that is no agent: all that it does is
        times = [
            t for span in team.values() if span.kind != "group" for t in (span.start, span.end) if t is not None
        ]
        lead = Span("solver", "", "agent", SOLVER, min(times, default=None), max(times, default=None))
        for span in team.values():
            span.parent = span.parent if span.parent in team else "solver"
        team = {"solver": lead} | team
    lead.input = _asked(sample)
    return list(team.values())


def _path(id: str, spans: dict[str, Span]) -> Iterator[str]:
    hops = 0
    while id in spans and hops < 100:
        yield id
        id, hops = spans[id].parent, hops + 1


def _asked(sample: dict[str, Any]) -> str | None:
    given = sample.get("input")
    last = [plain_text(one.get("content")) for one in dicts(given) if one.get("role") == "user"]
    return given if isinstance(given, str) else last[-1] if last else None


def _span(event: dict[str, Any], within: str, id: str, tools: list[Span]) -> Span | None:
    """What an event is, if it is something that an agent, a tool or a person did."""
    start, end = seconds(event.get("timestamp")), seconds(event.get("completed"))
    match event.get("event"):
        case "model":
            return _turn(event, Span(id, within, "model", start=start, end=end))
        case "tool":
            name = str(event.get("function") or "")
            own = next((one for one in tools if one.parent == within and one.name == name), None)
            if own is not None:  # its own span, in which an agent may work
                tools.remove(own)
            span = Span(own.id if own else id, within, "tool", name, start, end)
            span.failed = event.get("error") is not None
            span.input, span.output = _json(event.get("arguments")), _json(event.get("result"))
            return span
        case "approval":
            human = event.get("approver") == "human"
            if event.get("decision") in REFUSED:
                return Span(id, within, "guard", "approval", start, end, failed=True)
            return Span(id, within, "person", "approval", start, end) if human else None
        case "input":
            return Span(id, within, "person", "input", start, end, output=_json(event.get("input")))
        case "interrupt":
            return Span(id, within, "person", "interrupt", start, end)
        case "sample_limit":
            return Span(id, within, "guard", str(event.get("type") or "limit"), start, end, failed=True)
    return None


def _turn(event: dict[str, Any], span: Span) -> Span:
    output = event["output"] if isinstance(event.get("output"), dict) else {}
    span.model = str(event.get("model") or output.get("model") or "") or None
    choice = next(iter(dicts(output.get("choices"))), {})
    message = choice["message"] if isinstance(choice.get("message"), dict) else {}
    span.output = plain_text(message.get("content")) or None
    span.failed = event.get("error") is not None
    if isinstance(usage := output.get("usage"), dict):
        given, total = figure_of(usage.get("input_tokens")), figure_of(usage.get("total_tokens"))
        span.tokens_out = figure_of(usage.get("output_tokens"))
        span.cache_read = figure_of(usage.get("input_tokens_cache_read"))
        span.cache_write = figure_of(usage.get("input_tokens_cache_write"))
        span.cost = figure_of(usage.get("total_cost"))
        among = total is not None and total == (given or 0.0) + (span.tokens_out or 0.0)  # some providers count so
        span.tokens_in = figure_after(given, span.cache_read, span.cache_write) if among else given
    return span


def _json(value: Any) -> bytes | str | None:
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value)
