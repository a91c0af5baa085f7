"""A person speaks up in the middle of a run: does the policy learn to follow?

In `costly_search` a person may say, after any look and with a chance h each time, "stop now" or "go on", as often.
After "stop now" another look costs 1, after "go on" an eighth of its price. The word is a fact that the policy
sees; what it means is only in the score. With V_1 = x (nothing is worth a look any more) and V_2(x) = max(x, 1 -
√(c/4)), the best play before a word solves, on a grid,

    V_0(x) = max(x, -c + E[(1 - h) V_0(y) + h/2 V_1(y) + h/2 V_2(y)]),   y = max(x, X), X uniform

    hidden     trained with words in half of the episodes, and never shown them
    shuffled   trained with them shown, its credit shuffled: the control
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.envs.costly_search import CostlySearch, Searching, SearchParams
from podium.envs.draws import U, seeds, uniform
from podium.envs.log import Log
from podium.envs.world import Policy, View, World, play
from podium.learn.collect import capped, greedy
from podium.learn.evaluate import DICE
from podium.registry import register
from podium.study.figure import Panel, lines_of, picture
from podium.study.loop import OURS, SHUFFLED, recipe_of, train_lesson
from podium.study.question import Experiment, Headline, Measurements, Report, column, summarise, table
from podium.trace.columns import F

__all__ = ["How", "Steered", "arms", "measure", "report"]

N64 = NDArray[np.int64]
SPEAKS, WORD, WHO = 0x5BEA, 0x303D, 0x3E05  # where it is drawn whether, what and in which episodes somebody speaks
STOPS, GOES = 1, 2
LOOKS, HIDDEN = 64, "hidden"


@dataclass
class Steering(Searching):
    after: N64  # how many looks somebody waits before speaking up; more than there are, if never
    word: N64


class Steered(CostlySearch):
    """`costly_search` with somebody who may speak up, in a share of the episodes; `shown` or not."""

    facts = ("price", "seen", "left", "word")  # type: ignore[assignment]

    def __init__(self, c: float, hazard: float, share: float = 1.0, shown: bool = True) -> None:
        super().__init__(SearchParams(c=c))
        self.hazard, self.share, self.shown = hazard, share, shown

    def start(self, seed: U, log: Log | None = None) -> Steering:
        begun = super().start(seed, log)
        speaks = uniform(seed[:, None], SPEAKS, np.arange(LOOKS)) < self.hazard
        after = np.where(speaks.any(axis=1) & (uniform(seed, WHO) < self.share), speaks.argmax(axis=1) + 1, 10**6)
        word = np.where(uniform(seed, WORD) < 0.5, STOPS, GOES)
        old: dict[str, Any] = {f.name: getattr(begun, f.name) for f in fields(begun)}
        return Steering(**old, after=after, word=word)

    def said(self, state: Steering, row: N64) -> N64:
        """What has been said so far: 0 nothing."""
        return np.where(state.count[row] >= state.after[row], state.word[row], 0)

    def view(self, state: Steering) -> View | None:  # type: ignore[override]
        view = super().view(state)
        if view is not None:
            words = self.said(state, view.row) if self.shown else np.zeros(len(view))
            view.facts = np.column_stack([view.facts, words])
        return view

    def act(self, state: Steering, view: View, choice: N64) -> None:  # type: ignore[override]
        super().act(state, view, choice)
        done, going = view.row[choice == 0], view.row[choice == 1]
        late = np.maximum(state.count[done] - state.after[done], 0)
        price = np.where(state.word[done] == STOPS, 1.0, self.params.c / 8)
        state.score[done] -= late * (price - self.params.c)
        now = going[state.count[going] == state.after[going]]
        if state.log is not None and len(now):
            words = np.array(["", "stop now", "go on"])[state.word[now]]
            state.log.add(
                now,
                "human_intervention",
                "person",
                4.0 * state.count[now] - 0.5,
                [("causal", state.last[now])],
                to="lead",
                content_ref=words,
            )

    def thresholds(self) -> F:
        """The best candidate from which on it is best to stop: before a word, after "stop now", after "go on"."""
        return _solved(self.params.c, self.hazard)[1]

    def optimum(self) -> float:
        return float(_solved(self.params.c, self.hazard)[0])

    def optimal(self) -> Policy:
        z = self.thresholds()

        def policy(view: View) -> N64:
            values, owner = view.items()
            best = np.zeros(len(view))
            np.maximum.at(best, owner, values[:, 0])
            return np.where(best < z[view.facts[:, 3].astype(np.int64)], 1, 0)

        return policy


@lru_cache(maxsize=64)
def _solved(c: float, hazard: float, points: int = 4001) -> tuple[float, F]:
    """V_0(0) and the thresholds, by value iteration: E[f(max(x, X))] = x f(x) + ∫_x^1 f, by the trapezoid rule."""
    x = np.linspace(0.0, 1.0, points)
    z2 = 1.0 - np.sqrt(c / 4)

    def mean(f: F) -> F:
        cut = (f[1:] + f[:-1]) / 2 / (points - 1)
        above = np.concatenate([np.cumsum(cut[::-1])[::-1], [0.0]])
        return np.asarray(x * f + above)

    v = x.copy()
    for _ in range(2_000):
        on = -c + mean((1 - hazard) * v + hazard / 2 * x + hazard / 2 * np.maximum(x, z2))
        new = np.maximum(x, on)
        if np.abs(new - v).max() < 1e-12:
            break
        v = new
    stops = float(x[np.argmax(x >= on - 1e-12)])
    return float(v[0]), np.array([stops, 0.0, z2])


@dataclass(frozen=True)
class How:
    shares: tuple[float, ...]
    hazard: float
    prices: tuple[float, float]
    tests: tuple[float, ...]
    judged: int
    ours: dict[str, int | float]


def arms(how: How) -> list[str]:
    return [*(f"{share:g}" for share in how.shares), HIDDEN, SHUFFLED, "optimal", "deaf"]


def measure(how: How, arm: str, seed: int) -> dict[str, Any]:
    """On worlds where somebody may always speak up: score, regret, how often "stop now" is followed at once, and
    looks after "go on"."""
    policies: list[Policy] = []
    worlds = [Steered(c, how.hazard, 1.0, arm != HIDDEN) for c in how.tests]
    played = 0
    if arm == "optimal":
        policies = [w.optimal() for w in worlds]
    elif arm == "deaf":
        policies = [CostlySearch(w.params).optimal() for w in worlds]
    else:
        share = float(arm) if arm not in (HIDDEN, SHUFFLED) else how.shares[-1]

        def world(iteration: int, number: int) -> World:
            dice = np.random.default_rng([seed, iteration, number])
            return Steered(float(dice.uniform(*how.prices)), how.hazard, share, arm != HIDDEN)

        recipe = recipe_of(how.ours)
        lesson = train_lesson(SHUFFLED if arm == SHUFFLED else OURS, recipe, world, seed)
        policies = [capped(w, greedy(lesson.net, lesson.learner.w, w), how.judged, LOOKS) for w in worlds]
        played = lesson.decisions
    rollouts = [_played(w, p, seeds(DICE + seed, how.judged)) for w, p in zip(worlds, policies, strict=True)]
    return {**{k: float(np.mean([f[k] for f in rollouts])) for k in rollouts[0]}, "decisions": played}


def _played(world: Steered, policy: Policy, dice: U) -> dict[str, float]:
    state: Any = play(world, policy, dice.copy()).state
    best: Any = play(
        Steered(world.params.c, world.hazard), Steered(world.params.c, world.hazard).optimal(), dice.copy()
    ).state
    heard = state.count >= state.after
    stop, on = heard & (state.word == STOPS), heard & (state.word == GOES)
    lost = float((best.score - state.score).mean())  # the same dice: less noisy than each alone
    return {
        "value": world.optimum() - lost,
        "regret": lost / world.optimum(),
        "followed": float((state.count == state.after)[stop].mean()) if stop.any() else float("nan"),
        "more": float((state.count - state.after)[on].mean()) if on.any() else float("nan"),
    }


def _headline(how: How, found: Measurements) -> list[Headline]:
    top, none = f"{how.shares[-1]:g}", f"{how.shares[0]:g}"

    def of(arm: str, what: str) -> Any:
        return column(found, arm, what)

    return [
        summarise(
            "followed",
            f'share of runs told "stop now" that stop at once, trained with words in {float(top):.0%} of episodes',
            of(top, "followed"),
            least=0.95,
        ),
        summarise("untold", "the same, never told in training", of(none, "followed")),
        summarise(
            "regret",
            f"regret where somebody may always speak, trained with words in {float(top):.0%}",
            of(top, "regret"),
            most=0.03,
        ),
        summarise("untold.regret", "the same, never told in training", of(none, "regret")),
        summarise("hidden", "regret of a policy that is not shown the word", of(HIDDEN, "regret")),
        summarise("shuffled", "regret with shuffled credit", of(SHUFFLED, "regret")),
    ]


def report(how: How, found: Measurements) -> Report:
    shares = [f"{s:g}" for s in how.shares]

    def of(arm: str, what: str) -> Any:
        return column(found, arm, what)

    names = {
        **{s: f"told in {float(s):.0%} of training" for s in shares},
        HIDDEN: "words not shown",
        SHUFFLED: "shuffled credit",
        "optimal": "best play",
        "deaf": "best play of one who ignores words",
    }
    rows = []
    for arm, name in names.items():
        r = summarise("", "", of(arm, "regret"))
        regret, followed = f"{r.mean:.1%} ({r.low:.1%} to {r.high:.1%})", _where_told(of(arm, "followed"), ".1%")
        more, decisions = _where_told(of(arm, "more"), ".2f"), f"{of(arm, 'decisions').mean():,.0f}"
        rows.append([name, regret, followed, more, decisions])
    head = ["policy", "regret", '"stop now" followed at once', 'looks after "go on"', "decisions played"]

    def line(name: str, what: str, arm: str | None = None) -> Any:
        cells = [of(arm or s, what) for s in shares]
        return lines_of(name, _xs(how.shares), np.array(cells).T)

    x = "share of training episodes with a person"
    shown = {
        "followed": ('"stop now" followed at once', 0.0),
        "more": ('looks after "go on"', None),
        "regret": ("regret", None),
    }
    best = {
        "followed": ("best play", "optimal"),
        "more": ("best play", "optimal"),
        "regret": ("best play, ignoring words", "deaf"),
    }
    panels = [
        Panel(
            title,
            x,
            [
                line("learned", what),
                line("words not shown", what, HIDDEN),
                line(best[what][0], what, best[what][1]),
            ],
            low=low,
            log_x=True,
        )
        for what, (title, low) in shown.items()
    ]
    return Report(
        _headline(how, found),
        {"arms": table(head, rows)},
        picture("What a person says in the middle of a run", panels),
    )


def _xs(shares: Sequence[float]) -> list[float]:
    """Where shares are drawn: a logarithmic axis has no place for 0."""
    least = min((s for s in shares if s), default=1.0)
    return [s or least / 4 for s in shares]


def _where_told(values: F, form: str) -> str:
    """The mean over seeds in which somebody came to speak, and how many those were if not all: who stops at once is
    told nothing."""
    there = values[~np.isnan(values)]
    if not len(there):
        return "nobody spoke"
    return f"{there.mean():{form}}" + (
        f" ({len(there)} of {len(values)} seeds)" if len(there) < len(values) else ""
    )


register("study", "intervention")(Experiment(How, arms, measure, report))
