"""What models of a live team said and chose, read off its trace, and the trace as credit and update read it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from podium.audit.permissions import role_of_agents
from podium.engine.models import role_of
from podium.trace.columns import Text, Trace
from podium.trace.vocabulary import DECISIONS

__all__ = ["choice_of", "choice_rows", "choices_as_decisions", "spoken"]


def spoken(trace: Trace) -> NDArray[np.bool_]:
    """Events in which a model said something."""
    return np.bincount(trace.owner_k[trace.mask_k == 1], minlength=trace.n_events) > 0


def choice_rows(trace: Trace) -> list[int]:
    """The events at which a model chose among options."""
    rows: list[int] = []
    if "choice" in trace.extra_e:
        rows = np.flatnonzero(trace.extra_e["choice"].codes >= 0).tolist()
    return rows


def choice_of(trace: Trace, row: int) -> dict[str, Any]:
    """What a model chose among, and what it chose: kind, options, chosen."""
    choice: dict[str, Any] = msgspec.json.decode(str(trace.extra_e["choice"][row]))
    return choice


def choices_as_decisions(trace: Trace) -> Trace:
    """The trace as credit and update read it: every choice of a model is a decision, with the options that the
    model had.

    To the harness a call of a tool is a call, and a spawn a choice of a role; what the model chose among is in the
    field `choice`. The harness marks what was not valid; what it does not mark of a model's choices is. An agent
    whose name does not say its role is called by it, and by its number.
    """
    rows = choice_rows(trace)
    decision, logp, valid = np.array(trace.decision_e), np.array(trace.logp_e), np.array(trace.valid_e)
    valid[spoken(trace) & (valid < 0)] = 1
    valid[rows] = np.where(valid[rows] < 0, 1, valid[rows])
    chosen, offered = (
        trace.chosen_e.strings(),
        {row: trace.options(row) for row in np.unique(trace.event_o).tolist()},
    )
    known_e = np.bincount(trace.owner_k, ~np.isnan(trace.logp_k), minlength=trace.n_events) > 0
    spoken_e = np.bincount(trace.owner_k, trace.mask_k == 1, minlength=trace.n_events)
    first = np.searchsorted(trace.owner_k, np.arange(trace.n_events + 1))
    for row in rows:
        choice = choice_of(trace, row)
        decision[row] = DECISIONS.index(choice["kind"])
        offered[row], chosen[row] = choice["options"], choice["chosen"]
        logp[row] = np.nansum(trace.logp_k[first[row] : first[row + 1]])
    none = np.full(sum(map(len, offered.values())), -1)
    return replace(
        trace,
        name_a=_by_roles(trace),
        decision_e=decision,
        chosen_e=Text.of(chosen),
        event_o=np.repeat(np.array(sorted(offered), np.int32), [len(offered[row]) for row in sorted(offered)]),
        label_o=Text.of(label for row in sorted(offered) for label in offered[row]),
        number_o=none,
        item_o=none,
        logp_o=np.full(len(none), np.nan),
        behaviour_o=np.full(len(none), np.nan),
        logp_e=logp,
        tokens_out_e=np.where(np.isnan(trace.tokens_out_e) & known_e, spoken_e, trace.tokens_out_e),
        valid_e=valid,
    )


def _by_roles(trace: Trace) -> Text:
    """Names from which `role_of` reads the role: "scout-2" is scout 2, if it is the second scout of its run."""
    role_a, met = [*trace.role_e.words, None], dict[tuple[int, str], int]()
    names = trace.name_a.strings()
    for a, (run, code) in enumerate(zip(trace.rollout_a.tolist(), role_of_agents(trace).tolist(), strict=True)):
        role = role_a[code]
        if role is None or role_of(str(names[a])) == role:
            continue
        met[run, role] = met.get((run, role), 0) + 1
        names[a] = f"{role} {met[run, role]}"
    return Text.of(names)
