"""Whose time it is: the team's, or that of the person it waits for."""

from __future__ import annotations

import numpy as np

from podium.graph.grouping import any_by, first_by, take
from podium.graph.path import work
from podium.graph.spans import covered
from podium.trace.columns import B, F, Trace
from podium.trace.vocabulary import event

__all__ = ["persons", "team_work", "waiting"]

PERSON_ROLES = ("user", "human")
HUMAN, MESSAGE, SPAWN = event("human_intervention"), event("message"), event("spawn")


def persons(trace: Trace) -> B:
    """The agents that are people: the first role that an event of theirs states is user or human, or they intervene
    and else only send messages. The role on a spawn is that of the new agent, so spawns do not count."""
    stated = first_by(trace.agent_e, (trace.role_e.codes >= 0) & (trace.type_e != SPAWN), trace.n_agents)
    role_a = take(trace.role_e.codes, stated)
    person_a: B = np.isin(role_a, [trace.role_e.code(role) for role in PERSON_ROLES]) & (stated >= 0)
    intervenes_a = any_by(trace.agent_e, trace.type_e == HUMAN, trace.n_agents)
    acts_a = any_by(trace.agent_e, (trace.type_e != HUMAN) & (trace.type_e != MESSAGE), trace.n_agents)
    return person_a | (intervenes_a & ~acts_a)


def team_work(trace: Trace, work_e: F | None = None) -> F:
    """How long each event of the team took; NaN where it is not recorded, and for what people do."""
    person_e = np.append(persons(trace), False)[trace.agent_e]
    return np.where(person_e, np.nan, work(trace) if work_e is None else work_e)


def waiting(trace: Trace, start_e: F, work_e: F) -> F:
    """For how long each run waited for a person: a person was busy, and nobody of the team.

    waiting_n = |∪ [start_e, start_e + work_e]| − |∪ [start_e, start_e + work_e] : e is not a person's|
    """
    person_e = np.append(persons(trace), False)[trace.agent_e]
    if not person_e.any():
        return np.zeros(len(trace))
    known_e = ~np.isnan(start_e) & (work_e > 0)
    busy_n, team_n = (
        covered(trace.rollout_e[which], start_e[which], start_e[which] + work_e[which], len(trace))
        for which in (known_e, known_e & ~person_e)
    )
    return np.maximum(0.0, busy_n - team_n)
