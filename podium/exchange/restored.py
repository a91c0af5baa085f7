"""Runs that were exported by Podium and come back: what another format has no place for travels beside it, so that
a run read back is the run that was written.

An export puts every event, as the survey's document has it, beside what stands for it, with its place; and what is
said of the run, with its edges, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from podium.exchange.build import Run
from podium.exchange.lines import ERRORS
from podium.trace import files, survey
from podium.trace.columns import Trace
from podium.trace.findings import Finding

__all__ = ["EVENT", "EXPORTED", "PLACE", "RUN", "TRAVELS", "Exported", "Placed", "Restored", "parts_of"]

EVENT, PLACE, RUN = "podium.event", "podium.place", "podium.run"  # the keys under which they travel
TRAVELS = (EVENT, PLACE, RUN)
EXPORTED = "podium.exported"  # stands where a file begins
Placed = tuple[int, dict[str, Any]]  # an event and its place among the others


def parts_of(trace: Trace) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What is said of a run, with its edges, and its events."""
    document = msgspec.json.decode(survey.write(trace))
    return document, document.pop("events")


class Restored(Run):
    """A run of which the parts are read back."""

    def __init__(self, run: dict[str, Any], events: Sequence[Placed]) -> None:
        super().__init__(str(run.get("trace_id") or "run"), system=str(run.get("system") or "podium"))
        self.document = run | {"events": [event for _, event in sorted(events, key=lambda one: one[0])]}

    def built(self, file: str) -> tuple[Trace | None, list[Finding]]:
        """The run as it was, and what is wrong with it: something, where parts of it were changed or lost."""
        faults = [fault.finding() for fault in self.faults]
        if not self.document["events"]:
            return None, [*faults, *super().built(file)[1]]
        read = files.finished(survey.read_document(msgspec.json.encode(self.document), file), file)
        return read.trace, faults + read.findings


class Exported:
    """The runs in spans that Podium wrote, by their traces."""

    def __init__(self) -> None:
        self.about: dict[str, dict[str, Any]] = {}
        self.events: dict[str, list[Placed]] = {}

    def add(self, trace: str, known: Mapping[str, Any]) -> None:
        """What travels with one span."""
        with suppress(*ERRORS, TypeError, ValueError):
            if RUN in known:
                self.about[trace] = msgspec.json.decode(known[RUN], type=dict[str, Any])
            if EVENT in known:
                event = msgspec.json.decode(known[EVENT], type=dict[str, Any])
                self.events.setdefault(trace, []).append((int(known.get(PLACE) or 0), event))

    def runs(self, faults: list[tuple[str, int | None, str]]) -> Iterator[Run]:
        for trace, about in self.about.items():
            run = Restored(about, self.events.get(trace, []))
            for fault in faults:
                run.fault(*fault)
            faults.clear()
            yield run
