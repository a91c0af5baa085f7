"""What every world must be, whatever its rules: a library, run over the whole registry and proven against liars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.envs import text
from podium.envs.branch import branch, choices
from podium.envs.draws import seeds
from podium.envs.log import Log
from podium.envs.world import Policy, View, World, checked, episodes, play
from podium.trace.columns import B, F, Trace, differences
from podium.trace.do import Do
from podium.trace.rules import check
from podium.trace.vocabulary import event

__all__ = ["LAWS", "faces_agree", "faults", "fit", "random_policy", "score_of"]

FEW, MANY = 40, 40_000


def random_policy(seed: int = 0) -> Policy:
    """Any allowed option, each as likely as the others, with its log-probability."""
    dice = np.random.default_rng(seed)

    def policy(view: View) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        keys = np.where(view.allowed, dice.random(view.allowed.shape), -1.0)
        return np.argmax(keys, axis=1), -np.log(view.allowed.sum(axis=1))

    return policy


def faults(world: World) -> list[str]:
    """The laws that a world breaks."""
    return [fault for law in LAWS for fault in law(world)]


def score_of(world: World, policy: Policy, n: int = MANY, seed: int = 1) -> tuple[float, float]:
    """The mean score of a policy and its standard error."""
    score = episodes(world, policy, n, seed)
    return float(score.mean()), float(score.std(ddof=1) / np.sqrt(n))


def fit(world: World, n: int = MANY) -> list[str]:
    """Why a set of parameters is not fit for a promise, if it is not."""
    best = world.optimum()
    loss = {name: best - score_of(world, policy, n)[0] for name, policy in world.trivial().items()}
    name = min(loss, key=lambda k: loss[k])
    faults = []
    if loss[name] < 0.05 * abs(best):
        faults.append(f"the trivial policy {name!r} loses only {loss[name] / abs(best):.1%} of the optimum")
    if "stop" in world.options and score_of(world, random_policy(), n)[0] <= score_of(world, _at_once(), n)[0]:
        faults.append("random play does not beat stopping at once")
    return faults


def _at_once() -> Policy:
    """The first allowed option, which is to stop where one can."""
    return lambda view: np.argmax(view.allowed, axis=1)


def _recorded(world: World, n: int = FEW, policy: Policy | None = None) -> tuple[Trace, Any, int]:
    played = play(world, policy or random_policy(), seeds(3, n), log=True)
    return world.trace(played.state), played.state, played.decisions


def obeys_the_rules(world: World) -> Iterator[str]:
    trace, _, _ = _recorded(world)
    for finding in check(trace)[:3]:
        yield f"its traces break a rule: {finding.rule}: {finding.message}"


def labels_every_decision(world: World) -> Iterator[str]:
    trace, _, made = _recorded(world)
    rows, taken = choices(world, trace)
    if len(rows) != made:
        yield f"{made} decisions were made, {len(rows)} are in the traces"
    if (taken < 0).any() or (trace.options_of(rows)[1] < 1).any() or (trace.decision_e[rows] < 0).any():
        yield "a decision in its traces lacks its kind, its options or a choice among the world's options"
    if not np.isfinite(trace.logp_e[rows]).all():
        yield "a decision in its traces lacks the log-probability that the policy told"


def agents_come_by_spawn(world: World) -> Iterator[str]:
    trace, _, _ = _recorded(world)
    born_a = np.zeros(trace.n_agents + 1, np.bool_)
    born_a[trace.to_e[trace.type_e == event("spawn")]] = True
    acting = np.unique(trace.agent_e[trace.type_e != event("tool_result")])
    strangers = {str(trace.name_a[a]) for a in acting.tolist() if not born_a[a]} - set(world.roots)
    if strangers:
        yield f"agents act that nobody spawned: {', '.join(sorted(strangers)[:3])}"
    if (trace.to_e[trace.type_e == event("spawn")] < 0).any():
        yield "a spawn names nobody"
    gone = trace.to_e[trace.type_e == event("despawn")]
    if not born_a[gone].all():
        yield "somebody is despawned who was not spawned"


def ordinary_without_spawns(world: World) -> Iterator[str]:
    """An episode in which nobody is spawned has the same agents throughout: it is an ordinary Dec-POMDP."""
    for policy in (_at_once(), random_policy(5)):
        trace, _, _ = _recorded(world, FEW, policy)
        spawned = np.unique(trace.rollout_e[trace.type_e == event("spawn")])
        still_e = ~np.isin(trace.rollout_e, spawned) & (trace.type_e != event("tool_result"))
        if (still_e & (trace.type_e == event("despawn"))).any():
            yield "an agent leaves an episode in which nobody was spawned"
        names = {str(trace.name_a[a]) for a in np.unique(trace.agent_e[still_e]).tolist()}
        if names - set(world.roots):
            yield f"agents come without a spawn: {', '.join(sorted(names - set(world.roots))[:3])}"


def repeats_itself(world: World) -> Iterator[str]:
    one, two = _recorded(world)[0], _recorded(world)[0]
    if one != two:
        yield f"the same seeds give other traces: {', '.join(differences(one, two))}"
    together = play(world, _at_random_but_fixed(), seeds(5, FEW)).score
    alone = [play(world, _at_random_but_fixed(), seeds(5, 1, i)).score[0] for i in range(FEW)]
    if not np.array_equal(together, alone):
        yield "an episode depends on those that are played beside it"


def _at_random_but_fixed() -> Policy:
    """A choice that is a function of what is seen, different for different sights."""

    def policy(view: View) -> NDArray[np.int64]:
        values, owner = view.items()
        return _by_sight(view.facts, np.bincount(owner, np.nan_to_num(values).sum(axis=1), len(view)), view.allowed)

    return policy


def _by_sight(facts: F, items: Any, allowed: B) -> NDArray[np.int64]:
    mark = np.nan_to_num(facts).sum(axis=1) + items
    keys = (np.abs(mark)[:, None] * 7919.0 + np.arange(allowed.shape[1]) * 0.618) % 1.0
    chosen: NDArray[np.int64] = np.argmax(np.where(allowed, keys, -1.0), axis=1)
    return chosen


def allows_by_what_is_seen(world: World) -> Iterator[str]:
    """Two who see the same may do the same."""
    outcomes: dict[tuple[Any, ...], bytes] = {}
    state = world.start(seeds(9, 2000))
    policy = _at_random_but_fixed()
    history: list[tuple[Any, ...]] = [() for _ in range(2000)]
    while (view := world.view(state)) is not None:
        values, owner = view.items()
        first = np.searchsorted(owner, np.arange(len(view) + 1))
        chosen = checked(world, view, policy(view))
        for i, row in enumerate(view.row.tolist()):
            sight = (view.agent, view.kind, view.facts[i].tobytes(), values[first[i] : first[i + 1]].tobytes())
            key = (*history[row], sight)
            if outcomes.setdefault(key, view.allowed[i].tobytes()) != view.allowed[i].tobytes():
                yield "what is allowed depends on more than the agent, its role and what has happened"
                return
            history[row] = (hash(key), int(chosen[i]))
        world.act(state, view, chosen)


def replays(world: World) -> Iterator[str]:
    """The same option again is the same history; another option changes nothing before it."""
    policy = _at_random_but_fixed()
    trace, _, _ = _recorded(world, 12, policy)
    rows, taken = choices(world, trace)
    again = branch(
        world, trace, [Do(int(r), "choose", world.options[c]) for r, c in zip(rows, taken, strict=True)], policy
    )
    for i, row in enumerate(rows.tolist()):
        other = set(differences(again[i], trace[int(trace.rollout_e[row])])) - {
            "trace_id_n",
            "parent_n",
            "branch_n",
            "do_n",
            "logp_e",
        }
        if other:
            yield f"the same decision again at row {row} gives another history: {', '.join(sorted(other))}"
            return
    yield from _keeps_the_past(world, trace, rows, taken, policy)


def _keeps_the_past(world: World, trace: Trace, rows: Any, taken: Any, policy: Policy) -> Iterator[str]:
    """Another option, with the same dice and with new ones, leaves all that came before as it was."""
    dos = [
        Do(int(row), "choose", option)
        for row, c in zip(rows, taken, strict=True)
        for option in trace.options(int(row))
        if option != world.options[c]
    ]
    first = trace.first_of("e")
    for fresh in (None, seeds(77, len(dos))):
        for do, other in zip(dos, branch(world, trace, dos, policy, fresh), strict=True):
            start = int(first[trace.rollout_e[do.row]])
            before = slice(0, do.row - start)
            for name in ("t_e", "type_e", "decision_e"):
                if not np.array_equal(
                    getattr(other, name)[before], getattr(trace, name)[start : do.row], equal_nan=True
                ):
                    yield f"another option at row {do.row} changes what came before it: {name}"
                    return
            if other.chosen_e[do.row - start] != do.value:
                yield f"another option at row {do.row} is not what the branch records there"
                return


def faces_agree(world: World) -> Iterator[str]:
    state = world.start(seeds(4, FEW))
    policy = random_policy(4)
    while (view := world.view(state)) is not None:
        values, owner = view.items()
        for i, said in enumerate(text.prompts(world, view)):
            facts, items, allowed, about = text.read_answer(world, said)
            same = np.array_equal(facts, view.facts[i], equal_nan=True) and np.array_equal(allowed, view.allowed[i])
            same &= np.array_equal(items, values[owner == i], equal_nan=True)
            pointed = np.full(len(allowed), -1) if view.about is None else np.where(allowed, view.about[i], -1)
            if not (same and np.array_equal(about, pointed)):
                yield "its text does not say what its arrays say"
                return
        world.act(state, view, checked(world, view, policy(view)[0]))

    def answer(said: str) -> str:
        facts, items, allowed, _ = text.read_answer(world, said)
        total = np.bincount(np.zeros(len(items), np.int64), np.nan_to_num(items).sum(axis=1), 1)
        return world.options[int(_by_sight(facts[None], total, allowed[None])[0])]

    by_text = play(world, text.through_text(world, answer), seeds(12, FEW)).score
    if not np.array_equal(by_text, play(world, _at_random_but_fixed(), seeds(12, FEW)).score):
        yield "a policy scores otherwise through text than through arrays"


def optimum_is_reached(world: World) -> Iterator[str]:
    best = world.optimum()
    mean, error = score_of(world, world.optimal())
    if abs(mean - best) > 4 * error + 1e-9:
        yield f"optimal play scores {mean:.5f} ± {error:.5f}, the optimum is said to be {best:.5f}"
    for name, policy in world.trivial().items():
        mean, error = score_of(world, policy)
        if mean > best + 4 * error + 1e-9:
            yield f"the trivial policy {name!r} beats the optimum: {mean:.5f} ± {error:.5f} against {best:.5f}"


def logging_changes_nothing(world: World) -> Iterator[str]:
    policy = _at_random_but_fixed()
    if not np.array_equal(
        play(world, policy, seeds(6, FEW)).score, play(world, policy, seeds(6, FEW), log=True).score
    ):
        yield "an episode scores otherwise when it is recorded"


def ends(world: World) -> Iterator[str]:
    state = world.start(seeds(8, 20), Log(20))
    policy = random_policy(8)
    for _ in range(100_000):
        view = world.view(state)
        if view is None:
            if state.open.any():
                yield "it has no view for episodes that are still open"
            return
        if not view.allowed.any(axis=1).all():
            yield "somebody must decide and may do nothing"
            return
        world.act(state, view, checked(world, view, policy(view)[0]))
    yield "random play does not end"


LAWS: tuple[Callable[[World], Iterator[str]], ...] = (
    ends,
    obeys_the_rules,
    labels_every_decision,
    agents_come_by_spawn,
    ordinary_without_spawns,
    repeats_itself,
    logging_changes_nothing,
    allows_by_what_is_seen,
    replays,
    faces_agree,
    optimum_is_reached,
)
