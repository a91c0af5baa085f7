"""The loop: episodes, what other options would have earned, credit, update; a step is a pure function of the state before it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from podium.envs.draws import U, seeds
from podium.envs.world import World
from podium.learn import tape
from podium.learn.ahead import foreseen
from podium.learn.collect import Batch, Rows, collect
from podium.learn.credit import same_prefix
from podium.learn.mix import shares
from podium.learn.policy import Made, Net, Parameters, Seen, entries_of, joined, prepared, taken
from podium.learn.regimes import Plan, acting, learners, remembered, truncated_credit
from podium.learn.update import adam, every_option
from podium.trace.columns import F

__all__ = [
    "Credited",
    "Learner",
    "Mapped",
    "Progress",
    "Recipe",
    "Stopwatch",
    "Worlds",
    "begin",
    "entropy_of",
    "one_thread",
    "players",
    "step",
    "taught",
    "train",
    "updated",
]

N64 = NDArray[np.int64]
Worlds = Callable[[int, int], World]  # by iteration and number
Mapped = Callable[..., Iterable[Any]]  # map, or a pool's
APART = 0.3  # the weight of the loss that fits how far options lie apart


@dataclass(frozen=True)
class Recipe(Plan):
    """One set of hyper-parameters for all worlds, and who learns when."""

    iterations: int = 100
    rows: int = 3_000  # decisions that are branched in an iteration, about; of k kinds √k times as many ...
    shorter: float = 3.0  # ... and so many times more where branches end with a stretch of the task ...
    whole: float = 0.2  # ... but for this share of them, which goes on to the end of it
    spread: float = 2.0  # of them in an episode, about
    worlds: int = 8  # sets of parameters in an iteration
    tries: int = 8  # options tried at a decision
    most: int = 100  # decisions of an episode, after which it stops where it can
    rate: float = 1e-3  # of Adam at the start; falls to 0
    entropy: float = 0.4  # at the start; falls to 0
    sharp: float = 10.0  # what is drawn is drawn by π^β: others' options are judged by play that is nearly sure
    wander: float = 0.9  # the share of episodes that go where the policy would not
    clip: float = 0.3
    epochs: int = 3
    parts: int = 16  # of a batch, one gradient step each
    norm: float = 1.0  # the longest gradient
    fade: float = 1.0  # of the weights of hats, times the rate, at every step (`Net.fade`)
    episodes: int = 2_000  # of an iteration, branches counted, where a method is paid from traces ...
    branched: float = 0.25  # ... and of their decisions those that are branched, if it needs branches


@dataclass
class Learner:
    """Everything that the next step depends on."""

    w: Parameters
    m: Parameters
    v: Parameters
    seed: int
    iteration: int = 0
    updates: int = 0
    doubt: float = 2.0  # of an episode (`collect`), and decisions branched in it, in the iteration before
    branched: float = 2.0
    held: Parameters = field(default_factory=dict)  # what the regime and the schedule remember, by name


class Progress(NamedTuple):
    """What an iteration did."""

    iteration: int
    score: float
    decisions: int
    rows: int
    entropy: float
    gradient: float
    gradients: dict[str, float]  # of each role that learned
    mix: dict[str, dict[str, Any]]  # what was decided: `mix.shares`
    seconds: dict[str, float]
    paid: float | None = (
        None  # where a method is paid from traces: the share of the policy's decisions that it paid ...
    )
    credit: float | None = None  # ... and the root mean square of what those got; none where it paid none


class Stopwatch:
    """Seconds by stage: `lap` adds those since the lap before."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(("rollout", "graph", "reward", "credit", "update"), 0.0)
        self._since = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] += now - self._since
        self._since = now


@dataclass(frozen=True)
class Credited:
    """Training rows of one kind."""

    seen: Seen
    logp: tape.Array
    credit: tape.Array
    weight: tape.Array  # of each row
    apart: F | None = (
        None  # of each row: the standard deviation of what its options earned, where all were tried alike
    )


def one_thread() -> Any:
    """A context in which matrices are multiplied by one thread: these are small, and threads that wait for a core that others use
    made learning six times slower. Cores are used by processes (`train`'s `mapped`) instead."""
    return threadpool_limits(1, "blas")


@contextmanager
def players(cores: int) -> Iterator[Mapped]:
    """What episodes are played by: this process, or so many others, which leave Ctrl-C to this one."""
    if cores == 1:
        yield map
        return
    with ProcessPoolExecutor(cores, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)) as pool:
        try:
            yield pool.map
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def begin(net: Net, seed: int) -> Learner:
    """A learner that knows nothing."""
    w = net.initial(seed)
    return Learner(
        w, {k: np.zeros_like(x) for k, x in w.items()}, {k: np.zeros_like(x) for k, x in w.items()}, seed
    )


def step(net: Net, recipe: Recipe, worlds: Worlds, old: Learner, mapped: Mapped = map) -> tuple[Learner, Progress]:
    """One iteration; `old` stays as it is. `mapped` may be a pool's, to play on several cores: the result is the same."""
    return next(train(net, recipe, worlds, old, mapped))


def train(
    net: Net, recipe: Recipe, worlds: Worlds, learner: Learner, mapped: Mapped = map
) -> Iterator[tuple[Learner, Progress]]:
    """Iteration after iteration, from wherever the learner is to the end of the recipe.

    Where weights that act may be stale, a pool plays the next episodes while this process learns from the last: the result is the same.
    """

    def begun(known: Learner) -> tuple[list[_Order], Iterable[Batch]]:
        orders = _orders(net, recipe, worlds, known)
        return orders, mapped(_carried_out, orders)

    ahead = None
    while learner.iteration < recipe.iterations:
        watch, old = Stopwatch(), learner
        orders, playing = ahead or begun(old)
        batches = foreseen(list(playing))
        watch.lap("rollout")
        met = _met(recipe, old, orders, batches)
        ahead = begun(met) if recipe.staleness and met.iteration < recipe.iterations else None
        rows = [_credited(part) for part in _kinds([rows for batch in batches for rows in batch.rows])]
        watch.lap("credit")
        new, gradient, gradients = taught(net, recipe, rows, old)
        counts = {name: x for name, x in new.held.items() if name.startswith("updates/")}
        learner = replace(met, w=new.w, m=new.m, v=new.v, updates=new.updates, held=met.held | counts)
        watch.lap("update")
        yield (
            learner,
            Progress(
                old.iteration,
                _score(batches),
                sum(batch.decisions for batch in batches),
                sum(len(r.seen) for r in rows),
                entropy_of(rows),
                gradient,
                gradients,
                shares(item for batch in batches for item in batch.mix.items()),
                watch.seconds,
            ),
        )


def _score(batches: list[Batch]) -> float:
    """The mean over worlds in which some episode did not wander."""
    told = [float(batch.score.mean()) for batch in batches if len(batch.score)]
    return float(np.mean(told)) if told else np.nan


def _met(recipe: Recipe, old: Learner, orders: list[_Order], batches: list[Batch]) -> Learner:
    """The learner after its episodes, before it learned from them."""
    rows = sum(len(part.seen) for batch in batches for part in batch.rows)
    return replace(
        old,
        iteration=old.iteration + 1,
        doubt=max(float(np.mean([batch.doubt for batch in batches])), 1e-3),
        branched=max(0.05, rows / sum(len(order.seed) for order in orders)),
        held=remembered(recipe, old.held, old.w, _score(batches)),
    )


class _Order(NamedTuple):
    """What one call of `collect` is given."""

    world: World
    net: Net
    w: Parameters
    seed: U
    share: float
    recipe: Recipe
    room: int
    roles: tuple[str, ...] | None


def _carried_out(order: _Order) -> Batch:
    r = order.recipe
    how: dict[str, Any] = {
        "tries": r.tries,
        "most": r.most,
        "room": order.room,
        "sharp": r.sharp,
        "wander": r.wander,
        "roles": order.roles,
        "whole": r.whole,
    }
    return collect(order.world, order.net, order.w, order.seed, order.share, **how)


def _orders(net: Net, recipe: Recipe, worlds: Worlds, old: Learner) -> list[_Order]:
    """Episodes in some worlds, as many as should give the rows wanted."""
    share = recipe.spread / old.doubt
    rows = round(recipe.rows * np.sqrt(len(net.kinds)) * (recipe.shorter if net.stretches else 1.0))
    each = int(np.clip(rows / recipe.worlds / old.branched, 64, rows))
    w, roles = acting(recipe, old.w, old.held), learners(recipe, net.roles, old.iteration, old.held)
    orders = []
    for number in range(recipe.worlds):
        world = worlds(old.iteration, number)
        seed = seeds(old.seed * 1_000_003 + old.iteration, each, number * each)
        room = int(1.3 * rows / recipe.worlds) * min(recipe.tries, len(world.options))
        orders.append(_Order(world, net, w, seed, share, recipe, room, roles))
    return orders


def _kinds(parts: list[Rows]) -> list[list[Rows]]:
    kinds: dict[tuple[str, str], list[Rows]] = {}
    for part in parts:
        kinds.setdefault((part.seen.kind, part.seen.role), []).append(part)
    return list(kinds.values())


def _credited(parts: list[Rows]) -> Credited:
    seen = joined([p.seen for p in parts])
    logp, earned = (np.concatenate([getattr(p, name) for p in parts]) for name in ("logp", "earned"))
    chance = np.concatenate([p.chance for p in parts])
    return Credited(seen, logp, same_prefix(earned, logp, seen.start), 1.0 / chance, _apart(earned, seen.start))


def _apart(earned: F, start: N64) -> F:
    """sd_k Q_k over the options k of each row."""
    first, many = start[:-1], tape.lengths(start)
    off = earned - np.repeat(np.add.reduceat(earned, first) / many, many)
    apart: F = np.sqrt(np.add.reduceat(off * off, first) / many)
    return apart


def entropy_of(rows: Sequence[Credited | Made]) -> float:
    """Of a decision, on average."""
    total = sum(float(-(np.exp(r.logp) * r.logp).sum()) for r in rows)
    return total / max(1, sum(len(r.seen) for r in rows))


def taught(net: Net, recipe: Recipe, rows: list[Credited], old: Learner) -> tuple[Learner, float, dict[str, float]]:
    """The learner after the update of its regime on the rows of those who learn now; the mean length of its gradients, and of each role's.

    Decoupled roles share nothing, so that each is updated as if it were alone, with its own count of Adam's steps.
    """
    if recipe.regime != "shared" and not net.shape.per_role:
        raise ValueError(f"regime {recipe.regime!r} needs parameters for each role; `regimes.network` makes them")
    who = learners(recipe, net.roles, old.iteration, old.held)
    rows = [r for r in rows if who is None or r.seen.role in who]
    if recipe.staleness and recipe.correction == "truncated":
        rows = [_current(net, old.w, row, recipe.truncate) for row in rows]
    if recipe.regime != "decoupled":
        return updated(net, recipe, rows, old)
    new, lengths = old, {}
    for role in dict.fromkeys(r.seen.role for r in rows):
        name = f"updates/{role}"
        before = int(old.held.get(name, 0))
        alone = replace(new, updates=before)
        one, lengths[role], _ = updated(net, recipe, [r for r in rows if r.seen.role == role], alone)
        new = replace(
            one, updates=new.updates + one.updates - before, held=one.held | {name: np.array(one.updates)}
        )
    return new, float(np.sqrt(sum(x * x for x in lengths.values()))), lengths


def _current(net: Net, w: Parameters, row: Credited, most: float) -> Credited:
    """A row that others' weights acted in, as one of these weights, its credit by truncated importance weights."""
    now = net.log_odds(w, row.seen)
    return replace(row, logp=now, credit=truncated_credit(row.credit, row.logp, now, most))


def updated(
    net: Net, recipe: Recipe, rows: list[Credited], old: Learner
) -> tuple[Learner, float, dict[str, float]]:
    """The learner after some gradient steps on credited rows; the mean length of its gradients, and of each role's part of them."""
    if not rows:
        return old, 0.0, {}
    left = 1.0 - old.iteration / recipe.iterations
    w, m, v = ({k: x.copy() for k, x in some.items()} for some in (old.w, old.m, old.v))
    new = replace(old, w=w, m=m, v=v)
    usual = float(np.sqrt(np.mean(np.concatenate([r.credit for r in rows]) ** 2))) + 1e-12
    rows = [_in_units(net, old.w, replace(row, seen=prepared(row.seen)), usual) for row in rows]
    total = sum(float(r.weight.sum()) for r in rows)
    dice = np.random.default_rng([old.seed, old.iteration, 0xBA7C])
    together = _Together(w, m, v)
    norms: list[float] = []
    lengths: dict[str, list[float]] = {}
    for _ in range(recipe.epochs):
        orders = [dice.permutation(len(r.seen)) for r in rows]
        for part in range(recipe.parts):
            at = {k: tape.Var(x) for k, x in new.w.items()}
            losses: dict[str, Any] = {}
            for row, order in zip(rows, orders, strict=True):
                index = np.sort(order[part :: recipe.parts])
                if len(index):
                    term, role = _loss(net, recipe, at, row, index, left, recipe.parts / total), row.seen.role
                    losses[role] = tape.add(losses[role], term) if role in losses else term
            grad: Parameters = {}
            for role, loss in losses.items():
                part_of = _gradient(loss, at)
                lengths.setdefault(role, []).append(_length(part_of))
                grad |= {k: grad[k] + g if k in grad else g for k, g in part_of.items()}
            norm = _length(grad) if len(losses) > 1 else lengths[role][-1]
            norms.append(norm)
            shrink = min(1.0, recipe.norm / (norm + 1e-12))
            new.updates += 1
            adam(*together(grad), new.updates, recipe.rate * left, shrink)
            net.fade(new.w, grad, recipe.fade * recipe.rate * left)
    return new, float(np.mean(norms)), {role: float(np.mean(some)) for role, some in lengths.items()}


class _Together:
    """Parameters and both moments of Adam as one array each, on which it takes less than half as long. A step that has gradients of others than the first had is made one by one."""

    def __init__(self, w: Parameters, m: Parameters, v: Parameters) -> None:
        self.each = w, m, v
        self.names: list[str] = []
        self.whole: list[tape.Array] = []  # of w, of m, of v, and room for the gradient

    def __call__(self, grad: Parameters) -> tuple[Parameters, Parameters, Parameters, Parameters]:
        """What `adam` is given."""
        if not self.whole:
            self.names = list(grad)
            self.whole = [_side_by_side(some, self.names) for some in self.each]
            self.whole.append(np.empty_like(self.whole[0]))
        if list(grad) != self.names:
            w, m, v = self.each
            return w, grad, m, v
        w, m, v, g = ({"all": whole} for whole in self.whole)
        np.concatenate([x.ravel() for x in grad.values()], out=g["all"])
        return w, g, m, v


def _side_by_side(some: Parameters, names: list[str]) -> tape.Array:
    """Some parameters in one array, of which each becomes a part."""
    whole = np.concatenate([some[k].ravel() for k in names])
    parts = np.split(whole, np.cumsum([some[k].size for k in names])[:-1])
    some |= {k: part.reshape(some[k].shape) for k, part in zip(names, parts, strict=True)}
    return whole


def _gradient(loss: Any, w: Parameters) -> Parameters:
    """Of a loss by each parameter that it depends on; leaves none behind."""
    tape.backward(loss)
    grad = {k: x.grad for k, x in w.items() if x.grad is not None}
    for x in w.values():
        x.grad = None
    return grad


def _length(grad: Parameters) -> float:
    return float(np.sqrt(sum(float(np.vdot(g, g)) for g in grad.values())))


def _in_units(net: Net, w: Parameters, row: Credited, usual: float) -> Credited:
    """Credit as a multiple of what is usual: of all rows or, where options were tried alike, of rows like this one, A / (usual e^h).

    Where stakes differ a lot, the largest alone would else set the unit, and the rest would be lost in the entropy that is added. Rows
    count by the root of their unit: between each alike, and each by what is lost if it is decided wrongly.
    """
    if row.apart is None:
        return replace(row, credit=row.credit / usual)
    stake = net.stake(w, row.seen, tape.value_of(net.context(w, row.seen)[0]))
    unit = np.repeat(usual * stake * stake, tape.lengths(row.seen.start))
    return replace(row, credit=row.credit / unit, apart=row.apart / usual, weight=row.weight * stake)


def _loss(net: Net, recipe: Recipe, w: Parameters, row: Credited, index: N64, left: float, weight: float) -> Any:
    """Of some rows: `every_option`, and what fits e^h to how far options lie apart, d:  Σ_i w_i (h_i + d_i e^-h_i)."""
    at, seen = entries_of(row.seen, index), taken(row.seen, index)
    context, items = net.context(w, seen)
    each = (row.weight[index] * weight).astype(np.float32)
    loss = every_option(
        tape.log_softmax(net.scores(w, seen, context, items), seen.start),
        row.logp[at],
        row.credit[at].astype(np.float32),
        np.repeat(each, tape.lengths(seen.start)),
        recipe.clip,
        recipe.entropy * left,
    )
    if row.apart is None:
        return loss
    h = net.apart(w, seen, tape.value_of(context))
    off = tape.add(h, tape.mul(tape.exp(tape.mul(h, -1.0)), row.apart[index].astype(np.float32)))
    return tape.add(loss, tape.mul(tape.sum_all(tape.mul(off, each)), APART))
