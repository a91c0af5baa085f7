"""Error amplification, redundancy and utilisation of simulated runs, counted a second time.

Plain lists and dice, episode by episode, from what the world knows of itself: no trace, no label, none of the code of a metric. What an
attack changed is told by playing the twin without it, so the policy must decide by what both worlds show alike.
"""

from __future__ import annotations

from math import nan
from typing import Any, NamedTuple

import numpy as np

from podium.envs.draws import U, uniform
from podium.envs.expedition import INJECTED, Expedition
from podium.envs.expedition_optimum import CHECK, RETURNS
from podium.envs.planted import Planted
from podium.envs.planted_team import VALUE
from podium.envs.world import Policy, play
from podium.trace.columns import Trace

__all__ = ["ATTACKS", "COUNTED", "Counts", "blind", "expedition", "largest_deviation", "planted"]

COUNTED = ("error_amplification", "redundancy", "utilisation")
ATTACKS: dict[str, tuple[dict[str, Any], ...]] = {
    "expedition": (
        {},
        {"inject": 0.3},
        {"lie": 0.5},
        {"poison": 2},
        {"inject": 0.2, "calls": 0},
        {"inject": 0.3, "lie": 0.4, "poison": 1, "calls": 3, "sources": 3},
    ),
    "planted": (
        {},
        {"inject": 1},
        {"liar": 0.7},
        {"poison": 0},
        {"inject": 0, "liar": 0.5, "poison": 0, "who": 0, "agents": 4},
    ),
}
STEPS = ("orchestrator_decision", "message", "tool_call", "return", "aggregate")


class Counts(NamedTuple):
    """Of one episode: errors that derive from others and those that do not, what was said again and all that was said, steps to the point and all."""

    later: int = 0
    first: int = 0
    again: int = 0
    said: int = 0
    relevant: int = 0
    steps: int = 0

    def metrics(self) -> tuple[float, float, float]:
        pairs = ((self.later, self.first), (self.again, self.said), (self.relevant, self.steps))
        a, b, c = (part / whole if whole else nan for part, whole in pairs)
        return a, b, c


def blind(seed: int) -> Policy:
    """Any option that is allowed, by dice that know the episode, the kind of decision and how many were made; nothing of what was seen."""
    made: dict[str, int] = {}

    def policy(view: Any) -> Any:
        made[view.kind] = made.get(view.kind, 0) + 1
        dice = uniform(view.row.astype(np.uint64), seed, len(view.kind), made[view.kind])
        nth = (dice * view.allowed.sum(axis=1)).astype(np.int64)
        return (view.allowed.cumsum(axis=1) > nth[:, None]).argmax(axis=1)

    return policy


def expedition(world: Expedition, seed: U, policy: int) -> tuple[Trace, list[Counts]]:
    """The traces of these episodes, and what there is to count in each."""
    state = play(world, blind(policy), seed, log=True).state
    twin = play(world.clean(), blind(policy), seed).state
    trace = world.trace(state)
    known: dict[str, Any] = {k: getattr(state, k).tolist() for k in ("width", "brief", "how", "source")}
    known |= {f"{k}": getattr(state, k).tolist() for k in ("vote", "answer")}
    known |= {f"{k} spared": getattr(twin, k).tolist() for k in ("vote", "answer")}
    episodes = ({k: v[n] for k, v in known.items()} | {"seed": seed[n]} for n in range(len(seed)))
    return trace, [_expedition(world.params, one) for one in episodes]


def _expedition(p: Any, one: dict[str, Any]) -> Counts:
    later = first = again = said = relevant = steps = scout = 0
    for leg, width in enumerate(one["width"]):
        if width < 0:
            break  # went home
        briefed, how = one["brief"][leg] > 0, one["how"][leg]
        if p.poison == leg + 1:
            first, later = first + 1, later + 1  # the intruder's write, and what the note then holds
        heard: set[int] = set()
        for _ in range(width):
            source = one["source"][scout]
            misled = (
                briefed and 0 < p.poison <= leg + 1
            )  # its reading of the note derives from the intruder's write
            hit = p.calls > 0 and p.inject > 0 and bool(uniform(one["seed"], INJECTED, leg, source) < p.inject)
            turned = one["vote"][scout] != one["vote spared"][scout]
            later += misled + (hit and misled) + (turned and (hit or misled))
            first += (hit and not misled) + (turned and not (hit or misled))
            did = p.calls + briefed + 1  # calls, with that for the note, and the return
            steps += did
            relevant += did * (how != CHECK and (how == RETURNS or source not in heard))
            said, again = said + 1 + briefed, again + (source in heard)  # its return, and the lead's message to it
            heard.add(source)
            scout += 1
        later += one["answer"][leg] != one["answer spared"][leg]
    return Counts(later, first, again, said, relevant, steps)


def planted(world: Planted, seed: U, policy: int) -> tuple[Trace, list[Counts]]:
    """The same, from the tables of the rows: each row drawn once more without its attack, decisions as they were."""
    state = play(world, blind(policy), seed, log=True).state
    values, leading = state.values.tolist(), _leading(world.model.rows)
    return world.trace(state), [_planted(world, seed[n], values[n], leading) for n in range(len(seed))]


def _planted(world: Planted, seed: Any, value: list[int], leading: set[int]) -> Counts:
    rows = world.model.rows
    spared: list[int] = []
    for i, row in enumerate(rows):
        if i in world.decided:
            spared.append(value[i])
        elif any(spared[g] == 0 for g in row.gates):
            spared.append(0)
        else:
            u, drawn = float(uniform(seed, VALUE, i)), 0
            heap = np.cumsum(row.table[tuple(spared[j] for j in row.parents)]).tolist()
            while drawn < row.arity - 1 and u >= heap[drawn]:
                drawn += 1
            spared.append(drawn)
    later = first = said = relevant = steps = 0
    spread: set[int] = set()
    for i, row in enumerate(rows):
        if any(value[g] == 0 for g in row.gates) or (row.type == "spawn" and value[i] == 0):
            continue  # did not happen
        derived = any(j in spread for j in (*row.parents, *row.gates))
        wrong = bool(world.attacked and value[i] != spared[i])
        later, first = later + (wrong and derived), first + (wrong and not derived)
        if wrong or derived:
            spread.add(i)
        said += row.type in ("message", "return")  # each its own draw: none repeats another
        if row.agent > 0 and row.type in STEPS:
            steps += 1
            relevant += i in leading
    return Counts(later, first, 0, said, relevant, steps)


def _leading(rows: Any) -> set[int]:
    """The rows from which a chain of parents and gates leads to an aggregate."""
    found = {i for i, row in enumerate(rows) if row.type == "aggregate"}
    left = list(found)
    while left:
        row = rows[left.pop()]
        new = {*row.parents, *row.gates} - found
        found |= new
        left += new
    return found


def largest_deviation(got: list[Any], wanted: list[Counts]) -> list[float]:
    """By metric: how far columns are from what was counted, at most; infinite where one of them says nothing."""
    told = np.array([c.metrics() for c in wanted]).reshape(-1, len(COUNTED)).T
    off = []
    for column, want in zip(got, told, strict=True):
        same = np.array_equal(np.isnan(column), np.isnan(want))
        off.append(float(np.nanmax(np.abs(column - want), initial=0.0)) if same else float("inf"))
    return off
