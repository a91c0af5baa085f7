"""What an expedition knows of its own events.

- `task_relevant`, on what a scout does: whether the answer of its leg counts its vote. A check counts none; the
  majority of sources counts the first return from each; the majority of returns counts all.
- `duplicate_of`, on a return: the first return of that leg from the same source.
- `corrupted`, under attack: whether the event says something else than it would have without the attack, all
  decisions and draws as they are. A result that carries an instruction and a note that an intruder wrote do; a vote
  does if it was turned; an answer does if the votes that were turned turned it. Decisions are the policy's own.
"""

from __future__ import annotations

import numpy as np

from podium.envs.expedition_journal import Travelling
from podium.envs.expedition_optimum import CHECK, RETURNS
from podium.envs.labels import duplicates, numbered_agents, truth
from podium.graph.grouping import changes
from podium.graph.steps import IS_STEP
from podium.trace.columns import Text, Trace
from podium.trace.vocabulary import event

__all__ = ["labels"]

CALL, RESULT, RETURN, AGGREGATE = event("tool_call"), event("tool_result"), event("return"), event("aggregate")


def labels(state: Travelling, trace: Trace, attacked: bool) -> dict[str, Text]:
    scout_e = numbered_agents(trace, "scout ")
    back = np.flatnonzero((trace.type_e == RETURN) & (scout_e >= 0))
    n, scout = trace.rollout_e[back], scout_e[back]
    leg, legs = state.of[n, scout], state.how.shape[1]
    key = (n.astype(np.int64) * legs + leg) * (int(state.source.max(initial=0)) + 1) + state.source[n, scout]
    twice, again = duplicates(trace, back, key)
    how = state.how[n, leg]
    counted = np.full((len(state.seed), state.of.shape[1] + 1), -1)
    counted[n, scout] = np.where(how < 0, -1, (how == RETURNS) | ((how != CHECK) & ~again))
    acts_e = (scout_e >= 0) & IS_STEP[trace.type_e]
    labels = {
        "task_relevant": truth(np.where(acts_e, counted[trace.rollout_e, scout_e], -1)),
        "duplicate_of": twice,
    }
    if attacked:
        turned_e = np.zeros(trace.n_events, np.int64)
        tool_e = (trace.type_e == CALL) | (trace.type_e == RESULT)
        turned_e[tool_e] = trace.trusted_e[tool_e] == 0
        turned_e[back] = state.vote[n, scout] != state.meant[n, scout]
        answers = np.flatnonzero(trace.type_e == AGGREGATE)
        n = trace.rollout_e[answers]
        nth = np.arange(len(answers)) - np.flatnonzero(changes(n))[np.cumsum(changes(n)) - 1]
        last = nth == (state.answer[n] >= 0).sum(axis=1)  # closes the expedition, and answers nothing
        nth = np.minimum(nth, legs - 1)
        turned_e[answers] = np.where(last, -1, state.answer[n, nth] != state.spared[n, nth])
        labels["corrupted"] = truth(turned_e)
    return {name: column for name, column in labels.items() if (column.codes >= 0).any()}
