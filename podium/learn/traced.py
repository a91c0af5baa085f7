"""Learning by any method of the table: episodes with their traces, the method's credit on them, and the same update for all.

Only credit differs between methods. The option that was taken gets the credit of the unit that its decision belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.credit import BadCredit, apply
from podium.credit.credit import read
from podium.envs.branch import branch, choices
from podium.envs.draws import U, seeds, uniform
from podium.envs.world import Policy, View, World, play
from podium.expression import calls
from podium.graph import units
from podium.learn.collect import DICE, MARK, drawn
from podium.learn.critics import fitted, reads
from podium.learn.mix import named, shares
from podium.learn.policy import Made, Net, Parameters, Seen, entries_of, joined, seen_by, taken
from podium.learn.regimes import acting, remembered
from podium.learn.tape import Array
from podium.learn.train import Credited, Learner, Progress, Recipe, Stopwatch, Worlds, entropy_of, taught
from podium.learn.unpaid import at_rows, compared, unpaid
from podium.methods import Method, scored
from podium.rewards.ledger import Now
from podium.trace.columns import F, Text, Trace, concat
from podium.trace.do import Do
from podium.trace.vocabulary import event

__all__ = [
    "TRIED",
    "Record",
    "at_rows",
    "branching",
    "cannot",
    "credited",
    "dressed",
    "forest",
    "others",
    "record",
    "stepped",
    "traced_step",
    "with_anchors",
]

N64 = NDArray[np.int64]
CALL = event("tool_call")


class Record(NamedTuple):
    """Episodes of one world."""

    world: World
    trace: Trace
    made: list[Made]
    seed: U

    @property
    def score(self) -> F:
        score: F = self.trace.reward_n["team"]
        return score


def record(world: World, net: Net, w: Parameters, seed: U, task: str, most: int) -> Record:
    """Episodes under the policy, with their trace. Those of one world are runs of one task."""
    views: list[tuple[Seen, Array, N64, N64, N64]] = []
    policy = _sampled(world, net, w, seed, np.zeros(len(seed), np.int64), most, views)
    trace = world.trace(play(world, policy, seed.copy(), log=True).state)
    trace = replace(trace, task_id_n=Text.constant(task, len(trace)))
    rows, _ = choices(world, trace)
    first = np.searchsorted(trace.rollout_e[rows], np.arange(len(trace)))
    kinds: dict[tuple[str, str], list[Made]] = {}
    for seen, logp, entry, episode, number in views:
        made = Made(seen, logp, entry, rows[first[episode] + number])
        kinds.setdefault((seen.kind, seen.role), []).append(made)
    made_of = [_joined(some) for some in kinds.values()]
    return Record(world, trace, made_of, seed)


def _sampled(
    world: World,
    net: Net,
    w: Parameters,
    seed: U,
    number: N64,
    most: int,
    views: list[tuple[Seen, Array, N64, N64, N64]] | None = None,
) -> Policy:
    """The policy as it is, dice by address: what episode `seed` draws in its decision number so and so. After `most` decisions
    it stops where it can."""
    codes, number = net.words.codes(world.options), number.copy()
    home = world.options.index("stop") if "stop" in world.options else -1

    def policy(view: View) -> tuple[N64, F, F]:
        seen, option = seen_by(view, codes)
        logp = net.log_odds(w, seen)
        entry = drawn(logp, seen.start, uniform(seed[view.row], DICE, number[view.row]))
        row = np.repeat(np.arange(len(seen)), np.diff(seen.start))
        late = (number[view.row] >= most)[row] & (option == home)
        entry[row[late]] = np.flatnonzero(late)
        if views is not None:
            views.append((seen, logp, entry, view.row.copy(), number[view.row]))
        number[view.row] += 1
        known = np.asarray(logp, np.float64)
        return option[entry], known[entry], known

    return policy


def _joined(some: Sequence[Made]) -> Made:
    shift = np.cumsum([0, *(len(m.logp) for m in some)])
    return Made(
        joined([m.seen for m in some]),
        np.concatenate([m.logp for m in some]),
        np.concatenate([m.entry + k for m, k in zip(some, shift, strict=False)]),
        np.concatenate([m.row for m in some]),
    )


def forest(one: Record, net: Net, w: Parameters, share: float, most: int) -> Trace:
    """The episodes and branches of a share of their decisions: every option that was not taken, then the policy, with the same dice."""
    dos, source, number = others(one.world, one.trace, one.seed, share)
    if not dos:
        return one.trace
    policy = _sampled(one.world, net, w, one.seed[source], np.array(number) + 1, most)
    return concat([one.trace, branch(one.world, one.trace, dos, policy)])


def others(world: World, trace: Trace, seed: U, share: float) -> tuple[list[Do], list[int], list[int]]:
    """Every option that was not taken at a share of decisions, drawn by address; and of each the run and the decision, by number."""
    dos, source, number = [], [], []
    rows, _ = choices(world, trace)
    rollout = trace.rollout_e[rows]
    at = np.arange(len(rows)) - np.searchsorted(rollout, rollout)
    for row, run, nth in zip(rows.tolist(), rollout.tolist(), at.tolist(), strict=True):
        if float(uniform(seed[run], MARK, nth)) < share:
            for option in trace.options(row):
                if option != trace.chosen_e[row]:
                    dos.append(Do(row, "choose", option))
                    source.append(run)
                    number.append(nth)
    return dos, source, number


CANNOT = {
    "judge": "a judge",
    "masks": "runs with agents masked",
    "greedy": "the outcome of a greedy run",
    "history": "running statistics",
}


def cannot(method: Method) -> str:
    """Why a method cannot be learned by, whatever the world; empty if it can be tried."""
    if not method.credit:
        return f"{method.name} is a card: {method.unknown}"
    lacks = [said for need, said in CANNOT.items() if need in method.needs]
    if "critic" in method.needs and not reads(method):
        lacks.append("a critic that reads language")
    return f"{method.name} needs {' and '.join(lacks)}" if lacks else ""


def branching(method: Method) -> bool:
    """Whether a method learns from branches: it needs them, or compares a turn with its siblings, of which an
    agent's later turns have none
    without branches."""
    return "branches" in method.needs or any("parent" in compared(call) for call in calls(read(method.credit)))


TRIED = 3  # iterations without a paid decision, before any update, after which a method is refused


def traced_step(net: Net, recipe: Recipe, worlds: Worlds, method: Method, old: Learner) -> tuple[Learner, Progress]:
    """One iteration by a method's credit; as `train.step`, `recipe.episodes` episodes instead of so many
    branched decisions.

    Decisions that the method does not pay are not in the update, and where it pays none there is no update.
    Raises BadCredit, with
    the reason, if it has paid none in its first iterations.
    """
    watch, now = Stopwatch(), Now(old.iteration / recipe.iterations, ())
    rows: list[Credited] = []
    paid: list[F] = []
    played = [_grown(worlds(old.iteration, k), net, recipe, method, old, k) for k in range(recipe.worlds)]
    every = [made for one, _ in played for made in one.made]
    watch.lap("rollout")
    traces = [dressed(grown) for _, grown in played]
    watch.lap("graph")
    traces = fitted(method, traces, [one.made for one, _ in played], net, acting(recipe, old.w, old.held))
    watch.lap("credit")
    for (one, _), trace in zip(played, traces, strict=True):
        reward = scored(trace, method, now)
        watch.lap("reward")
        given = apply(reward, method.credit)
        for made in one.made:
            paid.append(at_rows(given, made.row))
            rows += credited(made, paid[-1])
        watch.lap("credit")
    credit = np.concatenate(paid)
    share = float(np.mean(~np.isnan(credit)))
    if not share and not old.updates and old.iteration + 1 >= min(TRIED, recipe.iterations):
        at = np.concatenate([made.row for made in played[0][0].made])
        raise BadCredit(f"no decision of the policy is paid: {unpaid(traces[0], method, at, now)}")
    new, gradient, gradients = taught(net, recipe, rows, old)
    watch.lap("update")
    told = Progress(
        old.iteration,
        float(np.mean([float(one.score.mean()) for one, _ in played])),
        sum(int((grown.decision_e >= 0).sum()) for _, grown in played),
        sum(len(r.seen) for r in rows),
        entropy_of(every),
        gradient,
        gradients,
        shares([(made.seen.kind, _named(net, made)) for made in every]),
        watch.seconds,
        share,
        float(np.sqrt(np.nanmean(credit**2))) if share else None,
    )
    held = remembered(recipe, new.held, old.w, told.score)
    return replace(new, iteration=old.iteration + 1, held=held), told


def _named(net: Net, made: Made) -> dict[str, int]:
    return named(net.words.words, *np.unique(made.seen.option[made.entry], return_counts=True))


def _grown(
    world: World, net: Net, recipe: Recipe, method: Method, old: Learner, number: int
) -> tuple[Record, Trace]:
    """Episodes and, for a method that needs them, branches: as many in all as the recipe allows."""
    each = recipe.episodes // recipe.worlds
    start = seeds(old.seed * 1_000_003 + old.iteration, each, number * each)
    task = f"{world.name} {old.iteration}.{number}"
    w = acting(recipe, old.w, old.held)
    if not branching(method):
        one = record(world, net, w, start, task, recipe.most)
        one = with_anchors(one) if "anchor" in method.credit else one
        return one, one.trace
    tried = record(world, net, w, start[: max(2, each // 20)], task, recipe.most)
    others = sum(len(m.logp) - len(m.entry) for m in tried.made) / len(tried.score)
    one = record(world, net, w, start[: max(2, int(each / (1 + recipe.branched * others)))], task, recipe.most)
    return one, forest(one, net, w, recipe.branched, recipe.most)


def with_anchors(one: Record) -> Record:
    """Decisions labelled `anchor` by what was observed: two that saw the same figures have the same label (GiGPO)."""
    number: dict[tuple[str, str, bytes, bytes], int] = {}
    label: list[str | None] = [None] * one.trace.n_events
    for made in one.made:
        seen = made.seen
        for i, row in enumerate(made.row.tolist()):
            items = seen.items[seen.first[i] : seen.first[i + 1]]
            state = seen.kind, seen.role, seen.facts[i].tobytes(), items.tobytes()
            label[row] = str(number.setdefault(state, len(number)))
    return one._replace(trace=replace(one.trace, extra_e={**one.trace.extra_e, "anchor": Text.of(label)}))


def credited(made: Made, paid: F) -> list[Credited]:
    """Credit on the option that was taken, over its probability: the clipped sum over options is then PPO's.
    Only decisions that are paid
    are rows; none if no decision is."""
    at = np.flatnonzero(~np.isnan(paid))
    if not len(at):
        return []
    earned = np.zeros(len(made.logp), np.float32)
    earned[made.entry[at]] = paid[at] / np.exp(made.logp[made.entry[at]])
    seen, logp = made.seen, made.logp
    if len(at) < len(paid):
        entries = entries_of(seen, at)
        seen, logp, earned = taken(seen, at), logp[entries], earned[entries]
    return [Credited(seen, logp, earned, np.ones(len(at), np.float32))]


def stepped(trace: Trace) -> Trace:
    """A trace whose outcome is also a reward of steps, in the last turn of a run, and of agents, in the last turn of each."""
    outcome, stand = trace.reward_n["team"], units.rows(trace, "turn")
    step, agent = (np.full(trace.n_events, np.nan) for _ in range(2))
    step[stand], agent[stand] = 0.0, 0.0
    for column, who, many in (
        (step, trace.rollout_e[stand], len(trace)),
        (agent, trace.agent_e[stand], trace.n_agents),
    ):
        last = np.full(many, -1)
        last[who[who >= 0]] = stand[who >= 0]
        last = last[last >= 0]
        column[last] = outcome[trace.rollout_e[last]]
    return replace(trace, reward_e={**trace.reward_e, "step": step, "agent": agent})


def dressed(trace: Trace) -> Trace:
    """A `stepped` trace with a token for each decision, and what a world knows without saying it: how long
    that is, and that a call which
    it allowed was valid."""
    rows = np.flatnonzero(trace.decision_e >= 0)
    length, valid = np.array(trace.tokens_out_e), np.array(trace.valid_e)
    length[rows[np.isnan(length[rows])]] = 1.0
    valid[(valid < 0) & (trace.type_e == CALL)] = 1
    return replace(
        stepped(trace),
        tokens_out_e=length,
        valid_e=valid,
        owner_k=rows.astype(np.int32),
        token_k=np.zeros(len(rows), np.int32),
        logp_k=trace.logp_e[rows],
        mask_k=np.ones(len(rows), np.int8),
    )
