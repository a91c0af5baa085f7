"""How true the credit of a language model's decisions is: what methods say of each against what it was worth exactly (`experiments.lm.exact`).

In planted teams whose outcome is a coin, half of its variance noise. Every design may generate as many tokens: at each decision of some runs so many continuations, or as
many more runs. The rank correlation is over decisions whose exact credit is 0.01 or more in size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.estimators import branching, leave_one_out, pooled_branching, within_budget
from experiments.fidelity import mark
from experiments.lm.exact import Exact, exact
from experiments.recorded import Decided
from podium.engine.local import engines_of
from podium.engine.models import PolicyTeam
from podium.envs.branch import branch, choices
from podium.envs.draws import U, seeds, uniform
from podium.envs.planted import Planted
from podium.learn.lm.text_world import PlaySettings, TextActor, record
from podium.learn.requirements import with_step_rewards
from podium.learn.unpaid import at_rows
from podium.methods import credit_of
from podium.trace.columns import F, Trace
from podium.trace.do import Do

__all__ = ["Played", "fidelity", "played"]

V = NDArray[np.int64]
LUCK = 0x10CC
AT_ONCE = 128  # continuations


class Played(NamedTuple):
    """Runs of language models, and their decisions with what each was worth."""

    trace: Trace
    actor: TextActor
    decisions: Decided
    number: V  # of each decision: which of its run
    event: V  # and its row in the trace
    tokens: int  # that were generated


def played(world: Planted, team: PolicyTeam, play: PlaySettings, tables: Exact, seed: int, runs: int) -> Played:
    dice = seeds(seed, runs)
    trace, actor = record(world, team, dice, play, version="0", task=f"planted {world.params.team}")
    rows, _ = choices(world, trace)
    of = trace.extra_e["row"]
    states: dict[tuple[int, ...], int] = {}
    found: list[tuple[int, int, int, list[float], float, int]] = []
    number, event = [], []
    first = np.searchsorted(trace.rollout_e[rows], np.arange(runs + 1))
    for run, made in enumerate(actor.turns):
        path: tuple[int, ...] = ()
        for k, turn in enumerate(made):
            assert turn is not None
            at = int(rows[first[run] + k])
            pi = [float(np.exp(sum(some))) for some in turn.answer.option_logp]
            taken = world.options.index(str(trace.chosen_e[at]))
            state = states.setdefault(path, len(states))
            padded = [*pi, *([0.0] * (4 - len(pi)))]
            found.append((run, int(str(of[at])), taken, padded, tables.credit(path, taken), state))
            number.append(k)
            event.append(at)
            path = (*path, taken)
    run, row, taken, pi, worth, state = (np.array(column) for column in zip(*found, strict=True))
    decisions = Decided(run, row, taken, pi / pi.sum(1, keepdims=True), worth, state)
    return Played(trace, actor, decisions, np.array(number), np.array(event), spoken(actor))


def spoken(actor: TextActor, since: V | None = None) -> int:
    """Tokens that the model said, of decisions after number `since` of each episode."""
    after = np.full(len(actor.turns), -1) if since is None else since
    return sum(
        len(turn.answer.ids) for made, k in zip(actor.turns, after, strict=True) for turn in made[k + 1 :] if turn
    )


def luck(runs: Played, tries: int) -> U:
    """A seed for each decision and try; try 0 has that of the run itself."""
    own = runs.actor.seed[runs.decisions.run]
    fresh = (uniform(own[:, None], LUCK, runs.event[:, None], np.arange(tries)[None]) * 2.0**53).astype(np.uint64)
    fresh[:, 0] = own
    return fresh


def tried(runs: Played, wanted: list[tuple[int, int, int]], tries: int) -> tuple[F, int]:
    """What tries earned, each (decision, option, number), and how many tokens they took; some at a time, in the same memory."""
    found, tokens = [], 0
    for i in range(0, len(wanted), AT_ONCE):
        earned, more = _tried(runs, wanted[i : i + AT_ONCE], tries)
        found.append(earned)
        tokens += more
    return np.concatenate(found), tokens


def _tried(runs: Played, wanted: list[tuple[int, int, int]], tries: int) -> tuple[F, int]:
    world, d = runs.actor.world, runs.decisions
    options = world.options
    of, option, number = (np.array(column) for column in zip(*wanted, strict=True))
    dos = [Do(int(runs.event[i]), "choose", options[k]) for i, k in zip(of.tolist(), option.tolist(), strict=True)]
    dice = luck(runs, tries)[of, number]
    labels = [options[k] for k in option.tolist()]
    other = runs.actor.forced(d.run[of].tolist(), runs.number[of].tolist(), labels)
    other.seed = dice.copy()
    how = other.settings
    other.engines = engines_of(other.team, "0", how.rows, how.width, how.remote)  # in the same memory as before
    forest = branch(world, runs.trace, dos, other, dice)
    return np.asarray(forest.reward_n["team"]), spoken(other, runs.number[of])


def designs(runs: Played, budget: int, dice: np.random.Generator) -> Iterator[tuple[str, F, int]]:
    """Of each design its name, its credit, and the tokens that it took: ours, and C3's leave-one-out."""
    d, outcome = runs.decisions, np.asarray(runs.trace.reward_n["team"])
    where = within_budget(d, budget, dice)
    all_ = list(zip(*(x.tolist() for x in np.nonzero(where)), strict=True))
    wanted = [(i, k, t) for i, k, t in all_ if not (t == 0 and k == d.taken[i])]
    found, tokens = tried(runs, wanted, where.shape[2] + 1)
    earned = np.full(where.shape, np.nan)
    earned[tuple(np.array(wanted).T)] = found
    earned[np.arange(len(d)), d.taken, 0] = outcome[d.run]
    yield "ours, pooled by state", pooled_branching(d, earned, "state"), runs.tokens + tokens
    yield "ours", branching(d, earned).credit, runs.tokens + tokens
    edge = np.cumsum(d.pi, axis=1)[:, None, :]
    drawn = (dice.random((len(d), budget))[:, :, None] >= edge - 1e-12).sum(axis=2)
    drawn = np.minimum(drawn, d.options[:, None] - 1)
    asked = [(i, int(drawn[i, t]), t + 1) for i in range(len(d)) for t in range(budget)]
    others, tokens = tried(runs, asked, budget + 1)
    told = leave_one_out(outcome[d.run], others.reshape(len(d), budget))
    yield "c3, leave one out", told, runs.tokens + tokens


def fidelity(
    world: Planted, team: PolicyTeam, play: PlaySettings, runs: int, budget: int, seed: int
) -> list[dict[str, Any]]:
    """A line for each method: the rank correlation of its credit with exact credit, and the tokens that it took."""
    tables, dice = exact(world, team, play), np.random.default_rng([seed, world.params.team])
    here = played(world, team, play, tables, seed, runs)
    lines, most = [], 0
    for name, told, tokens in designs(here, budget, dice):
        most = max(most, tokens)
        lines.append(_line(name, told, here.decisions, tokens))
    more = max(runs, runs * most // max(here.tokens, 1))
    flat = played(world, team, play, tables, seed + 1, more)
    trace = with_step_rewards(flat.trace)
    for method in ("magrpo", "grpo"):
        told = at_rows(credit_of(trace, method), flat.event)
        lines.append(_line(method, told, flat.decisions, flat.tokens))
    return [{"team": world.params.team, "policy": tables.start, **line} for line in lines]


def _line(name: str, told: F, decisions: Decided, tokens: int) -> dict[str, Any]:
    found = mark(told, decisions.exact)
    return {
        "method": name,
        "rank": found.spearman,
        "paid": found.paid,
        "decisions": len(decisions),
        "tokens": tokens,
    }
