"""Which method for these traces: the survey's four questions (figure 13), answered from the record, and what can be
paid.

What each answer asks of a method is ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from podium import graph
from podium.credit import BadCredit, Credit
from podium.credit.credit import read_credit
from podium.credit.keys import groups
from podium.expression import Call, calls
from podium.graph import units
from podium.graph.grouping import any_by, first_by, sum_by, take
from podium.methods.method import METHODS, Method, Needs, credit_of
from podium.methods.table import fidelity
from podium.rewards.ledger import BadReward, Now
from podium.trace.columns import I, Trace
from podium.trace.vocabulary import TOPOLOGIES, event

__all__ = ["ASKS", "LONG", "Answer", "Choice", "Fit", "answers", "choose", "lacking"]

LONG = 100  # turns of a run from which on credit diffuses: where the survey's academic regime ends
TRIED = 200_000  # events on which methods are tried
WORDS = {"team": "run", "orchestrator": "decision", "tool_call": "tool call"}
SPAWN, MESSAGE = event("spawn"), event("message")
DEBATE = TOPOLOGIES.index("debate")


class Answer(NamedTuple):
    """One of the four questions: what the traces say to it, by what figures, and the traits that follow."""

    question: str
    says: str  # yes, no, cannot tell; to the last question also what it is
    because: str
    traits: tuple[str, ...] = ()


class Fit(NamedTuple):
    """A method that the traces can pay: whom, traits it suits, units with credit, whether runs differ inside."""

    method: str
    pays: str
    suits: tuple[str, ...]
    paid: int
    units: int
    differs: bool
    fidelity: list[dict[str, Any]] | None


class Choice(NamedTuple):
    """The four answers, the methods whose needs are met, what the others lack, and how many runs were tried."""

    answers: list[Answer]
    fits: list[Fit]
    lacks: dict[str, str]
    tried: int


def choose(trace: Trace) -> Choice:
    """The four answers, and every method: paid from these runs, or what it lacks. The best suited first."""
    told, measured = answers(trace), fidelity()
    traits = [trait for one in told for trait in one.traits]
    sample = trace[: int(np.searchsorted(trace.first_of("e")[1:], TRIED, "right")) or 1]
    short = lacking(trace)
    fits, lacks = [], {}
    for name, row in sorted(METHODS.items()):
        if not row.credit:
            lacks[name] = "cards, of which nothing runs"
            continue
        if missing := [need for need in row.needs if need in short]:
            lacks[name] = "; ".join(short[need] for need in missing)
            continue
        try:
            credit = credit_of(sample, row, Now(1.0, ()))
        except (BadCredit, BadReward) as error:
            lacks[name] = str(error).partition("; there are")[0]
            continue
        paid = int((~np.isnan(credit.value)).sum())
        if not np.nan_to_num(credit.value).any():
            what = WORDS.get(credit.unit, credit.unit)
            lacks[name] = f"every {what} gets 0" if paid else f"no {what} of these runs gets credit"
            continue
        differs = _differs(credit)
        suits = tuple(trait for trait in traits if SUITS[trait](row, differs))
        fits.append(Fit(name, credit.unit, suits, paid, len(credit.value), differs, measured.get(name)))
    return Choice(told, sorted(fits, key=_rank), lacks, len(sample))


def _rank(fit: Fit) -> tuple[int, float, str]:
    best = max((row["spearman"] or 0.0 for row in fit.fidelity or ()), default=0.0)
    return -len(fit.suits), -best, fit.method


def _differs(credit: Credit) -> bool:
    """Whether units of one run get different credit."""
    first_n = first_by(credit.rollout, ~np.isnan(credit.value), len(credit.trace))
    first = take(credit.value, first_n[credit.rollout])
    return bool((np.abs(credit.value - first) > 0).any())


# what the traces must have


def lacking(trace: Trace) -> dict[Needs, str]:
    """The needs that these traces cannot meet, each with the reason; a critic's or judge's only show by trying."""
    group = groups(Credit(trace, "team", np.zeros(len(trace))), "task")
    masked = any('"mask"' in word for word in trace.do_n.words)
    has: dict[Needs, tuple[bool, str]] = {
        "group": (bool((np.bincount(group[group >= 0]) > 1).any()), "no two runs of one task"),
        "branches": (bool((trace.parent_n.codes >= 0).any()), "no run branched from another"),
        "masks": (masked, "no run in which somebody was masked"),
        "votes": (len(trace.event_v) > 0, "no votes"),
        "roles": (len(set(trace.role_e.codes.tolist()) - {-1}) > 0, "no roles"),
        "tokens": (len(trace.token_k) > 0, "no tokens"),
        "spawns": (bool((trace.type_e == SPAWN).any()), "no spawns"),
        "labels": (len(trace.extra_e) > 0, "no labels"),
    }
    return {need: why for need, (met, why) in has.items() if not met}


# the four questions


def answers(trace: Trace) -> list[Answer]:
    """What the traces say to the survey's four questions."""
    return [_dynamic(trace), _bottleneck(trace), _long(trace), _shaped(trace)]


def _yes(question: str, trait: str, holds: bool | None, because: str) -> Answer:
    says = "cannot tell" if holds is None else "yes" if holds else "no"
    return Answer(question, says, because, (trait,) if holds else ())


def _dynamic(trace: Trace) -> Answer:
    spawns = any_by(trace.rollout_e, trace.type_e == SPAWN, len(trace))
    agents = np.bincount(trace.rollout_a, minlength=len(trace))
    because = f"{_of(spawns.sum(), len(trace))} runs spawn; {_range(agents)} agents a run"
    return _yes("Is the set of agents dynamic?", "dynamic", bool(spawns.any()) if trace.n_events else None, because)


def _bottleneck(trace: Trace) -> Answer:
    """Whether the lead does half of the work on the critical path, or more."""
    work, guess = graph.work(trace), ""
    if np.isnan(work).all():
        work, guess = graph.inferred_work(trace), ", guessed from when events began"
    on = graph.critical_path(trace, work).on_e & (work > 0)
    leads = on & (trace.agent_e == graph.lead(trace)[trace.rollout_e])
    total, own = (sum_by(trace.rollout_e, np.where(e, work, 0.0), len(trace))[0] for e in (on, leads))
    question = "Is the orchestrator the bottleneck?"
    if not (total > 0).any():
        return _yes(question, "bottleneck", None, "no event says how long it took")
    share = float((own[total > 0] / total[total > 0]).mean())
    return _yes(question, "bottleneck", share >= 0.5, f"{share:.0%} of the critical path is the lead's{guess}")


def _long(trace: Trace) -> Answer:
    turns = np.bincount(units.rollouts(trace, "turn"), minlength=len(trace))
    question = "Are traces long enough for credit to diffuse?"
    if not turns.any():
        return _yes(question, "long", None, "no turns")
    middle = float(np.median(turns))
    return _yes(question, "long", middle >= LONG, f"{middle:g} turns in the median run; {LONG} are long")


def _shaped(trace: Trace) -> Answer:
    """Whether there are several roles; whether agents other than the lead answer each other, or votes are taken."""
    roles = sorted({word for word in trace.role_e.strings() if word is not None})
    lead_e = graph.lead(trace)[trace.rollout_e]
    peers = (trace.type_e == MESSAGE) & (trace.agent_e >= 0) & (trace.to_e >= 0)
    peers &= (trace.agent_e != lead_e) & (trace.to_e != lead_e)
    pairs = {*zip(trace.agent_e[peers].tolist(), trace.to_e[peers].tolist(), strict=True)}
    both = sum((b, a) in pairs for a, b in pairs if a < b)
    debates, votes = int((trace.topology_n == DEBATE).sum()), len(set(trace.rollout_e[trace.event_v].tolist()))
    named = (
        f"{len(roles)} roles ({', '.join(roles[:6])}{', ...' * (len(roles) > 6)})"
        if roles
        else "no role is recorded"
    )
    because = f"{named}; {both} pairs of peers answer each other; {_of(votes, len(trace))} runs take votes"
    because += f"; {_of(debates, len(trace))} runs are said to be debates" if debates else ""
    traits = (*(["roles"] if len(roles) > 1 else []), *(["debate"] if both or votes or debates else []))
    says = {0: "neither", 2: "both"}.get(len(traits), " ".join(traits))
    if not traits and not roles and not peers.any():
        says = "cannot tell"
    return Answer("Are roles heterogeneous, or is it debate-shaped?", says, because, traits)


def _of(some: int, all_: int) -> str:
    return f"{some:,} of {all_:,}"


def _range(many: I) -> str:
    low, high = (int(many.min()), int(many.max())) if len(many) else (0, 0)
    return f"{low}" if low == high else f"{low} to {high}"


# what a trait asks of a method


def _keys(row: Method) -> set[str]:
    """The keys that a method's groups have."""
    keys: set[str] = set()
    for call in calls(read_credit(row.credit)):
        keys |= _by(call)
    return keys


def _by(call: Call) -> set[str]:
    given = [v for k, v in call.options if k == "by"] + [a for a in call.args if isinstance(a, tuple)]
    return {word for by in given for word in (by if isinstance(by, tuple) else (by,)) if isinstance(word, str)}


ASKS: dict[str, str] = {
    "dynamic": "no comparison of an agent with its namesake in other runs",
    "bottleneck": "credit for the orchestrator's decisions",
    "long": "credit that differs inside a run",
    "roles": "comparison within a role or an agent",
    "debate": "credit for messages, turns or votes",
}
SUITS: dict[str, Callable[[Method, bool], bool]] = {
    "dynamic": lambda row, _: not _keys(row) & {"agent", "player"},
    "bottleneck": lambda row, _: row.pays == "orchestrator",
    "long": lambda _, differs: differs,
    "roles": lambda row, _: bool(_keys(row) & {"role", "agent", "player"}),
    "debate": lambda row, _: row.pays in ("message", "turn") or "votes" in row.needs,
}
