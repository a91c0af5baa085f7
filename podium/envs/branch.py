"""History takes the other branch: an episode replayed up to a decision, another option there, and on from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.envs.draws import U
from podium.envs.log import Log
from podium.envs.world import BadParameter, Policy, World, checked, make
from podium.trace.columns import Text, Trace
from podium.trace.do import Do
from podium.trace.vocabulary import event

__all__ = ["branch", "choices", "world_of"]


def world_of(trace: Trace) -> World:
    """The world that a trace was made in. All its rollouts must come from one, with one set of parameters."""
    import msgspec

    made = {(trace.env_n[i], trace.params_n[i]) for i in range(len(trace))}
    if len(made) != 1 or None in next(iter(made)):
        raise BadParameter(f"expected runs of one world with one set of parameters, got {len(made)} kinds")
    name, params = next(iter(made))
    given = msgspec.json.decode(str(params))
    return make(str(name), **given)


def choices(world: World, trace: Trace) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows of the decisions in a trace, and the option taken in each, in order."""
    rows = np.flatnonzero(trace.type_e == event("orchestrator_decision"))
    number = {label: i for i, label in enumerate(world.options)}
    table = np.array([number.get(w, -1) for w in trace.chosen_e.words] + [-1])
    return rows, table[trace.chosen_e.codes[rows]]


def branch(world: World, trace: Trace, dos: Sequence[Do], policy: Policy, seeds: U | None = None) -> Trace:
    """One episode a Do: what the trace records up to its row, the option that it names there, then the policy.

    With `seeds`, one a Do, what is drawn from that decision on is drawn anew; without, it is what the trace's own
    episode would have drawn (common random numbers). The episodes know where they branched off.
    """
    rows, taken = choices(world, trace)
    first = np.searchsorted(trace.rollout_e[rows], np.arange(len(trace) + 1))
    cut, start, forced, parents = _points(world, trace, dos, rows, first)
    started = np.array([_seed(trace, p) for p in parents], np.uint64)
    state = world.start(started.copy(), Log(len(dos)))
    made = np.zeros(len(dos), np.int64)
    while (view := world.view(state)) is not None:
        at, row = made[view.row], view.row
        before, here = at < cut[row], at == cut[row]
        chosen = np.where(here, forced[row], taken[np.minimum(start[row] + at, len(taken) - 1)])
        if (free := np.flatnonzero(~before & ~here)).size:
            answer = policy(view.take(free))
            chosen[free] = answer[0] if isinstance(answer, tuple) else answer
        if seeds is not None:
            state.seed[row[here]] = seeds[row[here]]
        made[row] += 1
        world.act(state, view, checked(world, view, chosen))
    grown = world.trace(state)
    local = [int(d.row - trace.first_of("e")[p]) for d, p in zip(dos, parents, strict=True)]
    names = [str(trace.trace_id_n[p]) for p in parents]
    return replace(
        grown,
        trace_id_n=Text.of(f"{name}/{i}" for i, name in enumerate(names)),
        parent_n=Text.of(names),
        branch_n=np.array(local),
        seed_n=Text.of(_told(started, seeds)),
    )


def _seed(trace: Trace, rollout: int) -> int:
    told = str(trace.seed_n[rollout])
    if not told.isdecimal():
        raise BadParameter(
            f"run {trace.trace_id_n[rollout]} changed its seed on the way ({told}): branch from its parent"
        )
    return int(told)


def _told(started: U, seeds: U | None) -> list[str]:
    """The seed an episode started from; with the one it went on with from its branch, where that is another."""
    if seeds is None:
        return [str(s) for s in started.tolist()]
    return [f"[{s}, {new}]" for s, new in zip(started.tolist(), seeds.tolist(), strict=True)]


def _points(
    world: World, trace: Trace, dos: Sequence[Do], rows: Any, first: Any
) -> tuple[Any, Any, Any, list[int]]:
    """Of each Do: the number of decisions before it in its episode, where those of the episode begin, the option it
    forces, and its rollout."""
    number = {label: i for i, label in enumerate(world.options)}
    cut, start, forced, parents = [], [], [], []
    for do in dos:
        if do.what != "choose":
            raise BadParameter(f"{world.name} can only choose another option, not {do.what}")
        place = int(np.searchsorted(rows, do.row))
        if place == len(rows) or rows[place] != do.row:
            raise BadParameter(f"row {do.row} is not a decision")
        if do.value not in number:
            raise BadParameter(f"no option {do.value!r}; there are {', '.join(world.options)}")
        rollout = int(trace.rollout_e[do.row])
        parents.append(rollout)
        start.append(int(first[rollout]))
        cut.append(place - start[-1])
        forced.append(number[str(do.value)])
    return np.array(cut), np.array(start), np.array(forced), parents
