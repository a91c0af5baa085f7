"""What tests of learning share: episodes with their rows, one iteration, a whole training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from podium.credit import Credit
from podium.credit.options import at_options
from podium.learn.collect import Branching, Collected, Observed, StretchEnds, collect
from podium.learn.loop import Iteration, Rollouts, learn
from podium.learn.policy import Made, Net, Seen
from podium.learn.rows import TrainingRows, made_of, training_rows
from podium.learn.source import WorldSource, iterations
from podium.learn.train import Learner, NetPolicy, Recipe
from podium.methods import METHODS, Method, credit_of
from podium.trace.columns import Trace, ranges


class Tried(NamedTuple):
    """Branched decisions of one kind: one entry an option that was tried."""

    seen: Seen
    option: Any  # of each entry: its number in the world
    logp: Any
    earned: Any  # of each entry: what its branch ended with, or had when its stretch ended
    run: Any  # of each entry
    episode: Any  # of each row
    number: Any  # of each row: how many decisions its episode had made
    chosen: Any
    ends: StretchEnds | None


def collected(world: Any, net: Net, w: Any, seed: Any, **how: Any) -> Collected:
    return collect(world, net, w, seed, Branching(**how))


def tried(batch: Collected) -> list[Tried]:
    assert batch.forest is not None
    forest, trace = batch.forest, batch.forest.rows
    every = np.concatenate([d.row for d in batch.decisions])
    rows = Credit(trace, "orchestrator", np.zeros(0), packed=forest)
    taker_o = at_options(rows.of(rows.rollout.astype(float)), every)
    decided = rows.rows
    found = []
    for seen, row in batch.decisions:
        first, many = trace.options_of(row)
        place = ranges(first, many)
        there = ~np.isnan(trace.behaviour_o[place])
        of = np.repeat(np.arange(len(row)), many)[there]
        start = np.searchsorted(of, np.arange(len(row) + 1))
        run = taker_o[place[there]].astype(int)
        earned = trace.reward_n["team"][run] if batch.ends is None else trace.earned_n[run]
        episode = trace.rollout_e[row]
        number = np.searchsorted(decided, row) - np.searchsorted(decided, trace.first_of("e")[episode])
        chosen = trace.number_o[[first[i] + trace.options(r).index(trace.chosen_e[r]) for i, r in enumerate(row)]]
        option, logp = trace.number_o[place[there]], trace.behaviour_o[place[there]]
        seen = training_seen(seen, there, start)
        found.append(Tried(seen, option, logp, earned, run, episode, number, chosen, batch.ends))
    return found


def training_seen(seen: Seen, there: Any, start: Any) -> Seen:
    from dataclasses import replace

    return replace(seen, start=start, option=seen.option[there], item=seen.item[there])


def rollouts_of(batch: Collected) -> Rollouts:
    assert batch.forest is not None
    observed = Observed(batch.decisions, 0, None, batch.ends)
    rows = np.concatenate([np.zeros(0, np.int64), *(d.row for d in batch.decisions)])
    return Rollouts(batch.forest, observed, batch.score, batch.made, batch.mix, rows)


def record(world: Any, net: Net, w: Any, seed: Any, share: float = 0.0, most: int = 100) -> Rollouts:
    """Episodes, all of whose decisions are learned from, and branches of a share of them."""
    how = Branching(share, alike=True, tries=len(world.options), most=most, room=100_000 if share else 1)
    return rollouts_of(collect(world, net, w, seed, how, "task"))


def trace_of(one: Rollouts) -> Trace:
    assert not isinstance(one.trace, Trace)
    return one.trace.whole()


def made(one: Rollouts) -> list[Made]:
    trace = trace_of(one)
    return [made_of(trace, d) for d in one.observations.decisions]


def credited(batch: Collected, method: str = "branching_policy") -> list[TrainingRows]:
    """As an iteration learns from them."""
    assert batch.forest is not None
    return training_rows([batch.decisions], [credit_of(batch.forest, method)]).rows


def train(
    net: Net, recipe: Recipe, worlds: Any, learner: Learner, mapped: Any = map, method: str = "branching_policy"
) -> Iterator[tuple[Learner, Iteration]]:
    policy = NetPolicy(net, recipe, learner)
    for done in iterations(policy, worlds, method, mapped=mapped):
        yield policy.learner, done


def step(
    net: Net, recipe: Recipe, worlds: Any, method: Method | str, learner: Learner
) -> tuple[Learner, Iteration]:
    """One iteration by a method of the table."""
    row = METHODS[method] if isinstance(method, str) else method
    policy = NetPolicy(net, recipe, learner)
    source = WorldSource(worlds, row, by_doubt=False)
    done = next(learn(source, policy, row, recipe.rule(row), recipe.iterations))
    return policy.learner, done
