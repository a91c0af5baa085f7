"""History takes the other branch: an episode replayed up to a decision, another option there, and on from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from podium.envs.draws import U, uniform
from podium.envs.draws import seeds as seeds_of
from podium.envs.log import Log
from podium.envs.world import BadParameter, Mask, Policy, World, answer_of, checked, make, offer
from podium.trace.columns import Text, Trace
from podium.trace.do import Do
from podium.trace.vocabulary import event

__all__ = ["branch", "choices", "luck", "world_of"]


def world_of(trace: Trace) -> World:
    """The world that a trace was made in. All its rollouts must come from one, with one set of parameters."""
    worlds = {(trace.env_n[i], trace.params_n[i]) for i in range(len(trace))}
    if len(worlds) != 1 or None in next(iter(worlds)):
        raise BadParameter(f"expected runs of one world with one set of parameters, got {len(worlds)} kinds")
    name, params = next(iter(worlds))
    given = msgspec.json.decode(str(params))
    return make(str(name), **given)


def choices(world: World, trace: Trace) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows of the decisions in a trace, and the option taken in each, in order."""
    rows = np.flatnonzero(trace.type_e == event("orchestrator_decision"))
    number = {label: i for i, label in enumerate(world.options)}
    table = np.array([number.get(w, -1) for w in trace.chosen_e.words] + [-1])
    return rows, table[trace.chosen_e.codes[rows]]


def branch(world: World, trace: Trace, dos: Sequence[Do], policy: Policy, seeds: U | None = None) -> Trace:
    """One episode a Do: what the trace records up to its row, there the option that it names or silence of the
    agents that it masks, then the policy.

    With `seeds`, one a Do, what is drawn from that row on is drawn anew; without, it is what the trace's own
    episode would have drawn (common random numbers). The episodes know where they branched off. To choose, the row
    must be a decision; agents can be masked from any row on, in worlds that can do that.
    """
    rows, taken = choices(world, trace)
    first = np.searchsorted(trace.rollout_e[rows], np.arange(len(trace) + 1))
    cut, start, forced, parents = _points(world, trace, dos, rows, first)
    started = np.array([_seed(trace, p) for p in parents], np.uint64)
    local = [int(d.row - trace.first_of("e")[p]) for d, p in zip(dos, parents, strict=True)]
    state = _begun(world, trace, dos, started, local, seeds)
    step = np.zeros(len(dos), np.int64)
    while (view := world.view(state)) is not None:
        at, row = step[view.row], view.row
        before, parting = at < cut[row], (at == cut[row]) & (forced[row] >= 0)
        recorded = np.minimum(start[row] + at, len(taken) - 1)
        chosen = np.where(parting, forced[row], taken[recorded])
        state.logp[row] = np.where(before, trace.logp_e[rows[recorded]], np.nan)
        logp_o = None
        if (free := np.flatnonzero(~before & ~parting)).size:
            open_ = view.take(free)
            chosen[free], state.logp[row[free]], logp_o = answer_of(policy(open_))
        if seeds is not None:
            state.seed[row[parting]] = seeds[row[parting]]
        step[row] += 1
        world.act(state, view, checked(world, view, chosen))
        if logp_o is not None:
            offer(state.log, open_, logp_o)
    names = [str(trace.trace_id_n[p]) for p in parents]
    return replace(
        world.trace(state),
        trace_id_n=Text.of(f"{name}/{i}" for i, name in enumerate(names)),
        task_id_n=trace.task_id_n.take(np.array(parents, np.int64)),
        group_n=trace.group_n.take(np.array(parents, np.int64)),
        batch_n=trace.batch_n[parents],
        parent_n=Text.of(names),
        branch_n=np.array(local),
        do_n=Text.of(msgspec.json.encode({"what": d.what, "value": d.value}).decode() for d in dos),
        seed_n=Text.of(_told(started, seeds)),
    )


def _begun(world: World, trace: Trace, dos: Sequence[Do], started: U, local: list[int], seeds: U | None) -> Any:
    """The episodes at their start; masks are known from there on, because a row may come before any decision."""
    if not any(do.what == "mask" for do in dos):
        return world.start(started.copy(), Log(len(dos)))
    fresh: list[Any] = [None] * len(dos) if seeds is None else seeds.tolist()
    masks = [
        Mask(_agents(trace, do), row, seed, new) if do.what == "mask" else Mask((), 0, seed)
        for do, row, seed, new in zip(dos, local, started.tolist(), fresh, strict=True)
    ]
    return world.start_masked(masks, Log(len(dos)))


def _agents(trace: Trace, do: Do) -> tuple[str, ...]:
    """Whom a Do masks."""
    match do.value:
        case tuple():
            return do.value
        case str():
            return (do.value,)
        case None if trace.agent_e[do.row] >= 0:
            return (str(trace.name_a[trace.agent_e[do.row]]),)
    raise BadParameter(f"to mask takes names of agents, got {do.value!r}")


def _seed(trace: Trace, rollout: int) -> int:
    seed, done = str(trace.seed_n[rollout]), trace.do_n[rollout]
    if done is not None and msgspec.json.decode(done)["what"] != "choose":
        raise BadParameter(f"run {trace.trace_id_n[rollout]} was itself changed ({done}): branch from its parent")
    if not seed.isdecimal():
        raise BadParameter(
            f"run {trace.trace_id_n[rollout]} changed its seed on the way ({seed}): branch from its parent"
        )
    return int(seed)


def _told(started: U, seeds: U | None) -> list[str]:
    """The seed an episode started from; with the one it went on with from its branch, where that is another."""
    went_on = started if seeds is None else seeds
    pairs = zip(started.tolist(), went_on.tolist(), strict=True)
    return [str(s) if s == new else f"[{s}, {new}]" for s, new in pairs]


def luck(trace: Trace, dos: Sequence[Do], turn: NDArray[np.int64], seed: int = 0) -> U:
    """Seeds for tries: those with the same number at a row share one, number 0 the run's own
    (`experiments.asks.turn_of`)."""
    own = np.array([_seed(trace, int(trace.rollout_e[do.row])) for do in dos], np.uint64)
    fresh = seeds_of(seed, 1)[0] ^ own
    row = np.array([do.row for do in dos], np.int64)
    mixed = (uniform(fresh, row, turn) * 2.0**53).astype(np.uint64)
    return np.where(turn == 0, own, mixed)


def _points(
    world: World, trace: Trace, dos: Sequence[Do], rows: Any, first: Any
) -> tuple[Any, Any, Any, list[int]]:
    """Of each Do: the number of decisions before it in its episode, where those of the episode begin, the option it
    forces (-1 if none), and its rollout."""
    number = {label: i for i, label in enumerate(world.options)}
    cut, start, forced, parents = [], [], [], []
    for do in dos:
        if do.what not in ("choose", "mask"):
            raise BadParameter(f"{world.name} can choose another option or mask agents, not {do.what}")
        if not 0 <= do.row < trace.n_events:
            raise BadParameter(f"there is no row {do.row}")
        place = int(np.searchsorted(rows, do.row))
        if do.what == "choose":
            if place == len(rows) or rows[place] != do.row:
                raise BadParameter(f"row {do.row} is not a decision")
            if do.value not in number:
                raise BadParameter(f"no option {do.value!r}; there are {', '.join(world.options)}")
        rollout = int(trace.rollout_e[do.row])
        parents.append(rollout)
        start.append(int(first[rollout]))
        cut.append(place - start[-1])
        forced.append(number[str(do.value)] if do.what == "choose" else -1)
    return np.array(cut), np.array(start), np.array(forced), parents
