"""The small network as a policy that learns: its recipe, what it remembers between iterations, gradient steps."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from podium.credit import Credit
from podium.learn import tape
from podium.learn.bootstrap import bootstrap_returns
from podium.learn.critics import fitted
from podium.learn.loop import Change, Rollouts
from podium.learn.policy import Net, Parameters, entries_of, prepared, taken
from podium.learn.regimes import Plan, acting, learners, remembered, truncated_credit
from podium.learn.requirements import with_anchors, with_decision_tokens
from podium.learn.rows import Deal, TrainingRows, made_of, training_rows, without_zeros
from podium.learn.update import adam, every_option
from podium.methods import Method, reads_forest
from podium.methods.update import BadUpdate, Update, read_update, refusal
from podium.trace.forest import Forest

__all__ = [
    "FlatAdamState",
    "Learner",
    "NetPolicy",
    "Recipe",
    "begin",
    "current",
    "gradient_of",
    "in_units",
    "loss_of",
    "one_thread",
    "players",
    "updated_by_regime",
]

N64 = NDArray[np.int64]
CAN = ("any", "clip", "reinforce", "entropy", "skip_zeros")  # the terms of updates that it evaluates
SPREAD = 0.3  # the weight of the loss that fits how far options lie apart


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
    decisions: int = 0  # of an iteration, branches counted by what they add, instead of `rows` and `episodes`
    update: str = "any"  # an expression; "any": the recipe's own; "method": that of the method
    high: float | None = None  # the upper bound of a clip, where it is another than the lower

    def rule(self, method: Method) -> Update:
        """The update that is done with a method's credit. Raises BadUpdate where the small network cannot do it."""
        update = read_update(method.update if self.update == "method" else self.update)
        if why := refusal(update, CAN, "the small network"):
            raise BadUpdate(why)
        if update.loss.name == "clip" and update.loss["over"] != "token":
            over = update.loss["over"]
            raise BadUpdate(
                f"the small network cannot clip by {over} (in the update {update.text!r}); it can by token"
            )
        return update

    def ruled(self, update: Update) -> Recipe:
        """The recipe with the bounds and the bonus that an update names in place of its own."""
        given: dict[str, Any] = {}
        if update.loss.name == "reinforce":
            given["clip"] = math.inf
        if update.loss.name == "clip":
            named = {"clip": update.loss["low"], "high": update.loss["high"]}
            given |= {name: value for name, value in named.items() if value is not None}
        if any(term.name == "entropy" for term in update.penalties):
            given["entropy"] = update.penalty("entropy")
        return replace(self, **given)


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
    spent: int = 0  # decisions made so far, branches counted by what they add
    memory: Parameters = field(default_factory=dict)  # what the regime and the schedule remember, by name


def one_thread() -> Any:
    """A context in which matrices are multiplied by one thread: these are small, and threads that wait
    for a core that others use made learning six times slower. Cores are used by processes (`WorldSource.mapped`)
    instead."""
    return threadpool_limits(1, "blas")


@contextmanager
def players(cores: int) -> Iterator[Callable[..., Iterable[Any]]]:
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


class NetPolicy:
    """A small network that acts and learns. `learner` holds all that the next iteration depends on."""

    deal: Deal | None = None  # of the control in studies: what was earned is dealt out anew

    def __init__(self, net: Net, recipe: Recipe, learner: Learner) -> None:
        if recipe.regime != "shared" and not net.shape.per_role:
            raise ValueError(
                f"regime {recipe.regime!r} needs parameters for each role; `regimes.network` makes them"
            )
        self.net, self.recipe, self.learner = net, recipe, learner

    @property
    def iteration(self) -> int:
        return self.learner.iteration

    @property
    def updates(self) -> int:
        return self.learner.updates

    def fit(self, rollouts: Sequence[Rollouts], method: Method) -> list[Rollouts]:
        """The same with what has to be fitted: values of what came after stretches of a task, or critics."""
        if all(one.observations.fitted for one in rollouts):
            return list(rollouts)
        if all(isinstance(one.trace, Forest) for one in rollouts) and reads_forest(method):
            return bootstrap_returns(rollouts)
        anchors = "anchor" in method.credit
        rollouts = [_whole(one) for one in rollouts]
        traces = [with_decision_tokens(with_anchors(one) if anchors else one.trace) for one in rollouts]
        w = acting(self.recipe, self.learner.w, self.learner.memory)
        acted = [
            [made_of(t, d) for d in one.observations.decisions] for t, one in zip(traces, rollouts, strict=True)
        ]
        traces = fitted(method, traces, acted, self.net, w)
        return [one._replace(trace=trace) for one, trace in zip(rollouts, traces, strict=True)]

    def update(self, rollouts: Sequence[Rollouts], credit: Sequence[Credit], update: Update) -> Change:
        """The update of the recipe's regime on the rows of those who learn now."""
        old, recipe = self.learner, self.recipe.ruled(update)
        learned = training_rows([one.observations.decisions for one in rollouts], credit, self.deal)
        rows = learned.rows
        if any(term.name == "skip_zeros" for term in update.filters):
            rows = [some for some in map(without_zeros, rows) if len(some.seen)]
        new, gradient, gradients = updated_by_regime(self.net, recipe, rows, old)
        scores = [float(one.score.mean()) for one in rollouts if len(one.score)]
        memory = remembered(recipe, old.memory, old.w, float(np.mean(scores)) if scores else np.nan)
        counts = {name: x for name, x in new.memory.items() if name.startswith("updates/")}
        self.learner = replace(new, iteration=old.iteration + 1, memory=memory | counts)
        self._pace(rollouts)
        many = sum(len(r.seen) for r in rows)
        return Change(many, learned.entropy, gradient, gradients, learned.paid, learned.credit)

    def _pace(self, rollouts: Sequence[Rollouts]) -> None:
        """How many decisions of an episode are branched, and how undecided they are, for the next iteration."""
        self.learner.spent += sum(one.decisions for one in rollouts)
        observed = [one.observations for one in rollouts if one.observations.doubt is not None]
        if observed:
            rows = sum(len(d.row) for some in observed for d in some.decisions)
            self.learner.doubt = max(float(np.mean([some.doubt for some in observed])), 1e-3)
            self.learner.branched = max(0.05, rows / sum(some.episodes for some in observed))


def _whole(one: Rollouts) -> Rollouts:
    """Rollouts whose record is a trace, and the rows of their decisions in it."""
    if not isinstance(one.trace, Forest):
        return one
    decisions = [d._replace(row=one.trace.whole_rows(d.row)) for d in one.observations.decisions]
    observations = one.observations._replace(decisions=decisions)
    return one._replace(trace=one.trace.whole(), observations=observations, rows=one.trace.whole_rows(one.rows))


def updated_by_regime(
    net: Net, recipe: Recipe, rows: list[TrainingRows], old: Learner
) -> tuple[Learner, float, dict[str, float]]:
    """The learner after its regime's update on the rows of those who learn now; the mean gradient, and each role's.

    Decoupled roles share nothing, so that each is updated as if it were alone, with its own count of Adam's steps.
    """
    who = learners(recipe, net.roles, old.iteration, old.memory)
    rows = [r for r in rows if who is None or r.seen.role in who]
    if recipe.staleness and recipe.correction == "truncated":
        rows = [current(net, old.w, row, recipe.truncate) for row in rows]
    if recipe.regime != "decoupled":
        return updated(net, recipe, rows, old)
    new, lengths = old, {}
    for role in dict.fromkeys(r.seen.role for r in rows):
        name = f"updates/{role}"
        before = int(old.memory.get(name, 0))
        alone = replace(new, updates=before)
        one, lengths[role], _ = updated(net, recipe, [r for r in rows if r.seen.role == role], alone)
        new = replace(
            one, updates=new.updates + one.updates - before, memory=one.memory | {name: np.array(one.updates)}
        )
    return new, float(np.sqrt(sum(x * x for x in lengths.values()))), lengths


def current(net: Net, w: Parameters, row: TrainingRows, most: float) -> TrainingRows:
    """A row that others' weights acted in, as one of these weights, its credit by truncated importance weights."""
    now = net.log_odds(w, row.seen)
    return replace(row, logp=now, credit=truncated_credit(row.credit, row.logp, now, most))


def updated(
    net: Net, recipe: Recipe, rows: list[TrainingRows], old: Learner
) -> tuple[Learner, float, dict[str, float]]:
    """The learner after some gradient steps on credited rows; the mean length of gradients, and of each role's."""
    if not rows:
        return old, 0.0, {}
    left = 1.0 - old.iteration / recipe.iterations
    w, m, v = ({k: x.copy() for k, x in some.items()} for some in (old.w, old.m, old.v))
    new = replace(old, w=w, m=m, v=v)
    usual = float(np.sqrt(np.mean(np.concatenate([r.credit for r in rows]) ** 2))) + 1e-12
    rows = [in_units(net, old.w, replace(row, seen=prepared(row.seen)), usual) for row in rows]
    total = sum(float(r.weight.sum()) for r in rows)
    dice = np.random.default_rng([old.seed, old.iteration, 0xBA7C])
    flat = FlatAdamState(w, m, v)
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
                    term, role = loss_of(net, recipe, at, row, index, left, recipe.parts / total), row.seen.role
                    losses[role] = tape.plus(losses[role], term) if role in losses else term
            grad: Parameters = {}
            for role, loss in losses.items():
                part_of = gradient_of(loss, at)
                lengths.setdefault(role, []).append(_length(part_of))
                grad |= {k: grad[k] + g if k in grad else g for k, g in part_of.items()}
            norm = _length(grad) if len(losses) > 1 else lengths[role][-1]
            norms.append(norm)
            shrink = min(1.0, recipe.norm / (norm + 1e-12))
            new.updates += 1
            adam(*flat(grad), new.updates, recipe.rate * left, shrink)
            net.fade(new.w, grad, recipe.fade * recipe.rate * left)
    return new, float(np.mean(norms)), {role: float(np.mean(some)) for role, some in lengths.items()}


class FlatAdamState:
    """Parameters and both moments of Adam as one array each: less than half the time. A step that has gradients of
    others than the first had is made one by one."""

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


def gradient_of(loss: Any, w: Parameters) -> Parameters:
    """Of a loss by each parameter that it depends on; leaves none behind."""
    tape.backward(loss)
    grad = {k: x.grad for k, x in w.items() if x.grad is not None}
    for x in w.values():
        x.grad = None
    return grad


def _length(grad: Parameters) -> float:
    return float(np.sqrt(sum(float(np.vdot(g, g)) for g in grad.values())))


def in_units(net: Net, w: Parameters, row: TrainingRows, usual: float) -> TrainingRows:
    """Credit as a multiple of what is usual: of all rows or, where options were tried alike, of rows like this one,
    A / (usual e^h).

    Where stakes differ a lot, the largest alone would else set the unit, and the rest would be lost in the entropy
    that is added. Rows count by the root of their unit: between each alike, and each by what is lost if it is
    decided wrongly.
    """
    if row.spread is None:
        return replace(row, credit=row.credit / usual)
    stake = net.stake(w, row.seen, tape.value_of(net.context(w, row.seen)[0]))
    unit = np.repeat(usual * stake * stake, tape.lengths(row.seen.start))
    return replace(row, credit=row.credit / unit, spread=row.spread / usual, weight=row.weight * stake)


def loss_of(
    net: Net, recipe: Recipe, w: Parameters, row: TrainingRows, index: N64, left: float, weight: float
) -> Any:
    """Of some rows: `every_option`, and a fit of e^h to how far options lie apart, d: Σ_i w_i (h_i + d_i
    e^-h_i)."""
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
        recipe.high,
    )
    if row.spread is None:
        return loss
    h = net.apart(w, seen, tape.value_of(context))
    off = tape.plus(h, tape.mul(tape.exp(tape.mul(h, -1.0)), row.spread[index].astype(np.float32)))
    return tape.plus(loss, tape.mul(tape.sum_all(tape.mul(off, each)), SPREAD))
