"""Text worlds learned by the state: many episodes are played, and a state is learned once.

What it is paid comes from a critic, which rehearsals keep up (`Coach`); or, as trajectory-level credit, from what
episodes scored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.lm.critic import Critic, Imitation
from experiments.lm.explore import Practice, Taken, Tried, explored, sampled
from experiments.lm.rehearse import Aside, Rehearsal, RehearsalResult, imitable
from experiments.lm.states import Book, Fan, Place, log_odds, lots, side_by_side
from podium.envs.draws import seeds
from podium.envs.world import World
from podium.learn.lm.policy import LmPolicy, apply_gradient, halving, own_weights
from podium.learn.lm.settings import Settings, computing, generating
from podium.learn.loop import Stopwatch
from podium.trace.columns import F

__all__ = [
    "Coach",
    "Lecture",
    "Pay",
    "critic_pay",
    "paced",
    "practised",
    "some_of",
    "state_loss",
    "trajectory_pay",
]

N64 = NDArray[np.int64]
Worlds = Callable[[int, int], World]
KEPT, HEARD = 16, 4  # rounds that a critic and an imitation learn from
LEARNING = 3  # a gradient takes so many times what a glimpse does


# ---- credit


class Pay(NamedTuple):
    """What options of states are paid: Σ of all that is for, and of all that is against; and how often a state was
    met."""

    state: N64
    up: F  # [states, options]
    down: F
    met: F


def critic_pay(book: Book, states: N64, heat: float) -> Pay:
    """What a critic says of states, as often as they were met and the more there is at stake: with u the root mean
    square of A over all that was met,

    W_k = n min(max A - min A, 3 u) p_k,   p = e^(A / (heat u)) over its sum

    Then -Σ W_k log π_k is least where π is p, and says most where most depends on it.
    """
    may = np.isfinite(book.logp[states])
    above, visits = np.where(may, book.hint[states], 0.0), book.visits[states]
    unit = np.sqrt((visits[:, None] * above**2).sum() / max(float((visits * may.sum(1)).sum()), 1e-12)) + 1e-12
    wanted = np.exp((above - above.max(1, keepdims=True)) / (heat * unit)) * may
    wanted /= wanted.sum(1, keepdims=True)
    apart = np.where(may, above, -np.inf).max(1) - np.where(may, above, np.inf).min(1)
    met = visits * np.minimum(apart / unit, 3.0)
    some = np.flatnonzero((met > 0) & (may.sum(1) > 1))
    return Pay(states[some], met[some, None] * wanted[some], np.zeros((len(some), may.shape[1])), met[some])


def trajectory_pay(taken: Taken, width: int) -> Pay:
    """Every decision of an episode is paid (score - mean) / standard deviation of its group, as GRPO pays.
    from: Shao et al. 2024."""
    worth = (taken.score - taken.score.mean()) / (taken.score.std() + 1e-6)
    state, of = np.unique(taken.state, return_inverse=True)
    up, down = np.zeros((len(state), width)), np.zeros((len(state), width))
    credit = worth[taken.episode]
    np.add.at(up, (of, taken.option), np.maximum(credit, 0.0))
    np.add.at(down, (of, taken.option), np.minimum(credit, 0.0))
    return Pay(state, up, down, np.bincount(of).astype(np.float64))


def some_of(pay: Pay, book: Book, tokens: int, dice: np.random.Generator) -> Pay:
    """States of about so many tokens, each kept with a chance by how often it was met, and counting the more for
    it."""
    each = sum(len(book.prompts[s].ids) for s in pay.state.tolist()) / max(len(pay.state), 1)
    many = int(tokens / max(each, 1.0))
    if len(pay.state) <= many:
        return pay
    chance = _chances(pay.met, many)
    rows = np.flatnonzero(dice.random(len(chance)) < chance)
    more = 1 / chance[rows]
    return Pay(pay.state[rows], pay.up[rows] * more[:, None], pay.down[rows] * more[:, None], pay.met[rows] * more)


def _chances(met: F, many: int) -> F:
    """min(1, c met) with Σ = many."""
    low, high = 0.0, float(many)
    for _ in range(60):
        mid = (low + high) / 2
        low, high = (low, mid) if np.minimum(1.0, mid * met).sum() > many else (mid, high)
    chance: F = np.minimum(1.0, high * met)
    return chance


# ---- the loop


class Lecture(NamedTuple):
    """What an iteration did."""

    iteration: int
    score: float | None  # of episodes that did not wander, if there were any
    episodes: int  # of each world, branches not counted
    decisions: int  # made by all episodes and branches
    states: int  # different ones among them, which a model weighed
    learned: int  # of those
    entropy: float  # of a decision that is learned
    gradient: float
    steps: int
    weighed: int  # tokens that a model read while episodes were played
    tokens: int  # and those that it learned
    mix: dict[str, float]  # how likely each option is where it is allowed, over decisions that are learned
    most_tokens: int
    seconds: dict[str, float]
    rehearsal: dict[str, float]  # what the last rehearsal said of itself


def paced(how: Practice, last: Lecture | None) -> int:
    """How many episodes of each world the next iteration plays, so that it takes the tokens that are wanted."""
    if last is None:
        return 2 * how.at_least
    wanted = last.episodes * min(3.0, how.budget / max(last.weighed + LEARNING * last.tokens, 1))
    return max(how.at_least, min(how.at_most, int(wanted)))


class Coach:
    """The critic of a team as it was last heard of, and the rehearsal that is under way."""

    def __init__(self, world: World, settings: Settings, how: Practice, seed: int, apart: bool = False) -> None:
        self.critic = Critic(world, seed, KEPT)
        rehearsal = Rehearsal(Imitation(world, seed + 1, HEARD), Critic(world, seed, KEPT), settings, how, seed)
        self.aside, self.stages = Aside(rehearsal, apart), how.stages
        self._next: Future[RehearsalResult] | None = None
        self.result: RehearsalResult | None = None

    def heard(self, books: Sequence[Book], worlds: Sequence[World]) -> None:
        """What the rehearsal before this came to; one after what the model does in these books begins, and is
        waited for if it is the first."""
        models = [f for book in books for f in imitable(book)]
        if self._next is None:
            self._next = self.aside.begin(worlds, models)
        self.result = self._next.result()
        self.critic.late, self.critic.unit = self.result.late, self.result.unit
        self._next = self.aside.begin(worlds, models)
        for book in books:
            book.hear(self.critic)


def practised(
    learner: LmPolicy,
    settings: Settings,
    how: Practice,
    worlds: Worlds,
    last: float,
    each: int,
    coach: Coach | None = None,
) -> Lecture:
    """One iteration of `last`, in the learner given, with so many episodes of each world (`paced`): by states.

    Rate and entropy fall by 1 - iteration / last. With a coach nothing is branched here, every state that was met
    is learned by what its critic says, and the rate falls from half of the time on.
    """
    watch, left = Stopwatch(), 1.0 - learner.iteration / last
    if coach is not None:
        how = replace(how, clip=float("inf"))
        settings, left = replace(settings, entropy=0.0), min(1.0, 2 * left)
    fans: dict[Any, Fan] = {}
    settings = replace(settings, most_tokens=learner.most_tokens)
    numbers, root = range(settings.worlds), learner.seed * 1_000_003 + learner.iteration
    critic = None if coach is None or coach.result is None else coach.critic
    books = [Book(worlds(learner.iteration, k), learner.team, settings, fans, critic) for k in numbers]
    dice = [seeds(root, each, k * each) for k in numbers]
    taken: list[Taken] = []
    met: list[Tried] = []
    with generating(settings):
        if coach is None:
            taken = side_by_side(books, [sampled(b, d) for b, d in zip(books, dice, strict=True)])
        else:
            met = side_by_side(books, [explored(b, d, how, 0.0) for b, d in zip(books, dice, strict=True)])
    played: list[Taken | Tried] = [*taken, *met]
    scores = [float(one.score.mean()) for one in played if len(one.score)]
    watch.lap("rollout")
    if coach is None:
        pays = [
            (book, trajectory_pay(one, len(book.world.options))) for book, one in zip(books, taken, strict=True)
        ]
    else:
        stages = [worlds(learner.iteration, settings.worlds + k) for k in range(coach.stages)]
        coach.heard(books, stages)
        pays = [(book, critic_pay(book, np.arange(len(book)), how.heat)) for book in books]
    lot = np.random.default_rng([learner.seed, learner.iteration, 0xBA7C])
    lessons = [(book, some_of(pay, book, how.learned // settings.worlds, lot)) for book, pay in pays]
    watch.lap("credit")
    gradient, steps = _steps(learner, settings, how, lessons, left, lot)
    watch.lap("update")
    lecture = Lecture(
        learner.iteration,
        float(np.mean(scores)) if scores else None,
        each,
        sum(one.decisions for one in played),
        sum(len(book.prompts) for book, _ in pays),
        sum(len(pay.state) for _, pay in lessons),
        _entropy(lessons),
        gradient,
        steps,
        sum(book.tokens for book, _ in pays),
        settings.epochs * _tokens(lessons),
        _mix(lessons),
        learner.most_tokens,
        watch.seconds,
        {}
        if coach is None or coach.result is None
        else {k: v for k, v in coach.result._asdict().items() if k != "late"},
    )
    learner.iteration += 1
    return lecture


Kept = Sequence[tuple[Book, Pay]]


def _entropy(kept: Kept) -> float:
    """The entropy of decisions that are learned."""
    total = sum(float(pay.met.sum()) for _, pay in kept)
    doubts = 0.0
    for book, pay in kept:
        logp = book.logp[pay.state]
        doubts -= float((pay.met[:, None] * np.exp(logp) * np.where(np.isfinite(logp), logp, 0.0)).sum())
    return doubts / max(total, 1e-12)


def _mix(kept: Kept) -> dict[str, float]:
    up: dict[str, float] = {}
    down: dict[str, float] = {}
    for book, pay in kept:
        logp = book.logp[pay.state]
        for k, name in enumerate(book.world.options):
            up[name] = up.get(name, 0.0) + float((pay.met * np.exp(logp[:, k])).sum())
            down[name] = down.get(name, 0.0) + float((pay.met * np.isfinite(logp[:, k])).sum())
    return {name: up[name] / down[name] for name in up if down[name]}


def _tokens(kept: Kept) -> int:
    return sum(len(book.prompts[s].ids) for book, pay in kept for s in pay.state.tolist())


def _steps(
    learner: LmPolicy, settings: Settings, how: Practice, kept: Kept, left: float, dice: np.random.Generator
) -> tuple[float, int]:
    """Gradient steps on what states are paid, in the learner given; the mean length of gradients, and how many."""
    weights, norms = own_weights(learner.team), list[float]()
    warm = min(1.0, (learner.iteration + 1) / settings.warm) if settings.warm else 1.0
    where = [(b, i) for b, (_, pay) in enumerate(kept) for i in range(len(pay.state))]
    parts = max(1, round(_tokens(kept) / how.step))
    for _ in range(settings.epochs):
        order = dice.permutation(len(where))
        for part in range(parts):
            chosen = [where[i] for i in order[part::parts].tolist()]
            some = [(book, _rows(pay, [i for of, i in chosen if of == b])) for b, (book, pay) in enumerate(kept)]
            if not chosen:
                continue
            lengths = [len(book.prompts[s].ids) for book, pay in some for s in pay.state.tolist()]
            halving(
                learner,
                partial(_once, learner, settings, how, some, settings.entropy * left),
                partial(max, lengths),
            )
            grad = {k: w.grad for k, w in weights.items() if w.grad is not None}
            norm = torch.stack(torch._foreach_norm(list(grad.values()))).double().square().sum().sqrt()
            norms.append(float(norm))
            apply_gradient(learner, weights, grad, settings.rate * left * warm, {"all": norms[-1]})
    return float(np.mean(norms)) if norms else 0.0, len(norms)


def _rows(pay: Pay, which: Sequence[int]) -> Pay:
    at = np.array(which, np.int64)
    return Pay(pay.state[at], pay.up[at], pay.down[at], pay.met[at])


def _once(learner: LmPolicy, settings: Settings, how: Practice, some: Kept, doubt: float) -> None:
    total = sum(float(pay.met.sum()) for _, pay in some)
    at = {(id(book), s): (pay, i) for book, pay in some for i, s in enumerate(pay.state.tolist())}
    for lot in lots([(book, s) for book, pay in some for s in pay.state.tolist()], learner.most_tokens):
        policy = learner.team.policies[lot[0][0].prompts[lot[0][1]].policy]
        if policy.frozen:
            continue
        with computing(settings):
            losses = []
            for which, logp in log_odds(policy, [book.asked(s) for book, s in lot]):
                rows = [_row(lot[i], *at[id(lot[i][0]), lot[i][1]]) for i in which.tolist()]
                old, up, down, met = (np.array(column) for column in zip(*rows, strict=True))
                columns = (old, up / total, down / total, met / total)
                given = (torch.from_numpy(x).float().to(policy.model.device) for x in columns)
                losses.append(state_loss(logp, *given, clip=how.clip, doubt=doubt))
            sum(losses).backward()


def _row(place: Place, pay: Pay, i: int) -> tuple[F, F, F, float]:
    """Of a state the log-probabilities of its options when it was met, and what they are paid."""
    book, state = place
    options = list(book.prompts[state].options)
    return book.logp[state, options], pay.up[i, options], pay.down[i, options], float(pay.met[i])


def state_loss(logp: Any, old: Any, up: Any, down: Any, met: Any, *, clip: float, doubt: float) -> Any:
    """L = -Σ_s Σ_k [min(r_k, ε) W⁺_k + max(r_k, -ε) W⁻_k - h n_s π_k log π_k],   r = log π - log π_old

    As PPO's clipped loss of all decisions that were merged into a state, but on logarithms: W need not be small
    where π_old is, and the gradient of a ratio to that would be large.
    """
    change = logp - old
    gain = change.clamp(max=clip) * up + change.clamp(min=-clip) * down
    return -gain.sum() + doubt * (met[:, None] * logp.exp() * logp).sum()
