"""What the record itself lacks: a call without a result, a number that an agent's sequence skips."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from podium.audit.detector import Second, Suspects, detector
from podium.audit.relations import about_agents
from podium.graph.grouping import changes
from podium.graph.labels import number
from podium.trace import sweep
from podium.trace.columns import B, I, Trace
from podium.trace.rules import unmatched_calls
from podium.trace.vocabulary import event

__all__ = ["missing_result", "sequence_gap"]

SPAWN, CALL, RESULT = event("spawn"), event("tool_call"), event("tool_result")
MESSAGE, DECISION, AGGREGATE = event("message"), event("orchestrator_decision"), event("aggregate")


class _Params(msgspec.Struct):
    faults: int = 0


@detector
def missing_result(trace: Trace, second: Second, threshold: float) -> Suspects:
    """Tool calls that no result answers, by an edge or, where results have none, by the pairing of `podium check`.

        figure = 1 for a call without a result

    A call that is recorded as invalid is not missed: the record says what became of it. A call that is marked
    truncated, or of an agent's last turn, is an observation: it may still have been running when the record ended.
    Calls side by side and the agents they spawn belong to one turn. So is any call of a log with faults (`podium
    check` names them): its result may be what could not be read.
    """
    waiting = np.array(unmatched_calls(trace)[1], np.int64)
    figure_e = np.where(trace.valid_e == 0, 0.0, np.bincount(waiting, minlength=trace.n_events))
    turn_e = _turn(trace)
    last_a = np.full(trace.n_agents + 1, -1)
    acts = np.flatnonzero(~np.isin(trace.type_e, (RESULT, SPAWN)) & (trace.agent_e >= 0))
    np.maximum.at(last_a, trace.agent_e[acts], turn_e[acts])
    tells_n = np.bincount(trace.rollout_e, minlength=len(trace)) > 0
    suspects = Suspects.of_rows(figure_e, threshold, trace, tells_n)
    calls = suspects.row
    open_e = (trace.truncated_e[calls] == 1) | (turn_e[calls] >= last_a[trace.agent_e[calls]])
    return replace(suspects, open=open_e | _with_faults(trace)[trace.rollout_e[calls]])


def _with_faults(trace: Trace) -> B:
    """The runs whose importer could not read all of their log."""
    faulty_w = []
    for word in trace.params_n.words:
        try:
            faulty_w.append(msgspec.json.decode(word, type=_Params).faults > 0)
        except msgspec.MsgspecError:
            faulty_w.append(False)
    faulty_n: B = np.array([*faulty_w, False])[trace.params_n.codes]
    return faulty_n


def _turn(trace: Trace) -> I:
    """For each call the latest row at which its agent spoke, decided or aggregated and that led to it; for all
    else, and for a call without one, its own row.
    """
    speaks_e = np.isin(trace.type_e, (MESSAGE, DECISION, AGGREGATE))
    spoke_e = sweep.latest(speaks_e, trace.src_x, trace.dst_x)
    own_e = (spoke_e >= 0) & (trace.agent_e[spoke_e] == trace.agent_e) & (trace.type_e == CALL)
    return np.where(own_e, spoke_e, np.arange(trace.n_events))


@detector
def sequence_gap(trace: Trace, second: Second, threshold: float) -> Suspects:
    """Numbers missing between the lowest and the highest that an agent gave its events.

        figure = max(seq) - min(seq) + 1 - |{seq}|

    Evidence: the events on both sides of each gap.
    """
    seq_e = number(trace, "seq")
    with np.errstate(invalid="ignore"):
        whole_e = (np.floor(seq_e) == seq_e) & (np.abs(seq_e) < 2**53) & (trace.agent_e >= 0)
    rows = np.flatnonzero(whole_e)
    rows = rows[np.lexsort((seq_e[rows], trace.agent_e[rows]))]
    same = ~changes(trace.agent_e[rows])
    step = np.diff(seq_e[rows], prepend=0.0)
    after = np.flatnonzero(same & (step > 1))
    missing_a = np.bincount(trace.agent_e[rows[after]], step[after] - 1, minlength=trace.n_agents)
    sides = np.unique(np.concatenate([rows[after], rows[after - 1]]))
    tells_n = np.bincount(trace.rollout_e[whole_e], minlength=len(trace)) > 0
    about = trace.agent_e[sides]
    return about_agents(trace, missing_a.astype(np.float64), max(threshold, 1.0), sides, about, tells_n)
