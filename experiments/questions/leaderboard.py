"""The leader-board: every method of the table that can act in each world, at equal budgets, beside optimum and
trivial policies.

Network, update, dice and the decisions that the policy makes are the same for all, branches counted by what they
add; what differs is the credit, the method's own expression on the traces. Methods whose expressions are equal are
trained once and share a row's figures. A row says what share of the policy's decisions its method pays; one that
pays none in a world, or 0 to all that it pays, is not ranked there. Beside them: `same-prefix`, the credit of
`podium train`; GRPO's credit, dealt out anew among all decisions of an update (the control); and a single agent,
which takes the first candidate, plays best with one worker at a time, or asks one source as often. The best rows
of each world, and the best known methods, are trained a second time with more iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from podium.credit import BadCredit
from podium.envs.draws import seeds
from podium.envs.jury import Jury
from podium.envs.scouts import Scouts
from podium.envs.world import World, make, play
from podium.learn.evaluate import DICE, Judged, beside
from podium.learn.params import held_out, training
from podium.learn.policy import Net
from podium.learn.requirements import branching, cannot
from podium.learn.source import iterations
from podium.learn.train import NetPolicy, Recipe, begin
from podium.methods import METHODS, Method
from podium.registry import register
from podium.rewards.ledger import BadReward
from podium.study.figure import dots
from podium.study.loop import OURS, SHUFFLED, Lesson, marks, recipe_of, train_lesson
from podium.study.question import Experiment, Headline, Measurements, Report, column, summarise, table

__all__ = ["How", "arms", "different", "measure", "report", "shuffled", "then"]

MORE, SINGLE = "more decisions", "one agent"
LONG = ("grpo", "magrpo", "c3_reward_only", "c3_value_only", "c3_value_assisted", "mappo")  # trained longer anyhow
KNOWN = (*LONG, "rloo", "dr_mas", "gigpo", "parl", "puppeteer")  # in the short table wherever they stand
FIRST = 8  # and so many that stand first, which are trained longer too


@dataclass(frozen=True)
class How:
    envs: tuple[str, ...]
    methods: tuple[str, ...]
    tests: int
    judged: int
    longer: int
    decisions: dict[str, int]
    budget: dict[str, int | float]


def _key(method: Method) -> tuple[str, str, str, float]:
    return method.reward, method.credit, method.unit, branching(method, 0.5)


@cache
def different(names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Methods that can be tried, each with those whose expressions are the same; all of the table, if none is
    named."""
    same: dict[Any, list[str]] = {}
    for name in names or tuple(METHODS):
        if not cannot(METHODS[name]):
            same.setdefault(_key(METHODS[name]), []).append(name)
    return {some[0]: tuple(some) for some in same.values()}


def arms(how: How) -> list[str]:
    return [f"{env}/{name}" for env in how.envs for name in (*different(how.methods), OURS, SHUFFLED, SINGLE)]


def measure(how: How, arm: str, seed: int) -> dict[str, Any]:
    """Share of the gap and regret in held-out worlds; or why the method cannot be paid in this world."""
    env, _, name = arm.partition("/")
    name, _, more = name.partition(", ")
    tests = [held_out(env, i) for i in range(how.tests)]
    if name == SINGLE:
        return _told([_single(world, how.judged) for world in tests])
    recipe = recipe_of(how.budget)
    recipe = replace(recipe, decisions=how.decisions[env] // recipe.iterations)
    if name == OURS:
        recipe = replace(recipe, entropy=Recipe().entropy)
    if more:
        recipe = replace(recipe, iterations=recipe.iterations * how.longer)

    try:
        if name == SHUFFLED:
            lesson = shuffled(env, recipe, seed)
        else:
            lesson = train_lesson(name, recipe, lambda i, k: training(env, seed, i + 1, k), seed)
    except (BadCredit, BadReward) as error:
        return {**_told([]), "paid": 0.0, "refused": str(error).partition("; there are")[0]}
    if lesson.credit == 0:
        return {**_told([], lesson.decisions, lesson.paid), "refused": "every decision that it pays gets 0"}
    return _told(marks(lesson, tests, how.judged, recipe.most), lesson.decisions, lesson.paid)


def _told(found: list[Judged], decisions: int = 0, paid: float | None = None) -> dict[str, Any]:
    share, regret = (
        float(np.mean([getattr(j, what) for j in found])) if found else float("nan") for what in ("share", "regret")
    )
    return {"share": share, "regret": regret, "decisions": decisions, "paid": paid, "refused": ""}


def _single(world: World, episodes: int) -> Judged:
    """The first candidate; best play with one worker at a time; one source that is asked as often as there are
    ballots."""
    if isinstance(world, Jury | Scouts):
        fewer = {"s": 1} if isinstance(world, Jury) else {"widest": 1}
        one = make(world.name, **{**asdict(world.params), **fewer})
        evaluation = beside(
            world, lambda dice: play(world, world.optimal(), dice.copy()).score, episodes, batch=episodes
        )
        return evaluation._replace(value=one.optimum())
    first = play(world, lambda view: np.where(view.facts[:, 1] < 1, 1, 0), seeds(DICE, episodes)).score
    return beside(world, lambda dice: first, episodes, batch=episodes)


def shuffled(env: str, recipe: Recipe, seed: int) -> Lesson:
    """GRPO, what decisions are paid dealt out anew among all of a kind."""
    policy = NetPolicy(net := Net(training(env, seed, 0, 0)), recipe, begin(net, seed))
    policy.deal = np.random.default_rng([seed, 0x5F1E]).permutation
    done = list(iterations(policy, lambda i, k: training(env, seed, i + 1, k), "grpo"))
    return Lesson(net, policy.learner, sum(one.decisions for one in done), {})


def report(how: How, found: Measurements) -> Report:
    rows, marks_, headline, refused = [], [], [], []
    for env in how.envs:
        own = [arm for arm in arms(how) if arm.startswith(f"{env}/")]
        refused += [
            [f"`{arm.split('/')[1]}`", env, _percent(found, arm), why]
            for arm in own
            if (why := _refused(found, arm))
        ]
        ranked = _ranked_in(how, found, env)
        rows += [_row(how, found, arm, ranked) for arm in ranked]
        shown = {f"{env}/{name}" for name in (*_shown(how, found), OURS, SHUFFLED, SINGLE)}
        for arm in (arm for arm in ranked if arm in shown):
            mark = summarise("", "", column(found, arm, "share"))
            marks_.append((arm.replace("/", ": "), min(mark.mean, 3.0), min(mark.low, 3.0), min(mark.high, 3.0)))
        headline += _headline(how, found, env, ranked)
    head = ["world", "method", "share of the gap", "95 % interval", "regret", "decisions paid", "the same here as"]
    longer = [f"share at {how.longer} times", "95 % interval", f"decisions at {how.longer} times"]
    tables = {
        "board": table([*head, "decisions made", "seconds", *longer], rows),
        "short": _short(how, found),
        "refused": table(["not paid here", "world", "decisions paid", "why not"], refused),
        "same": _same(how, found),
    }
    figure = dots(
        "The leader-board: share of the gap left, at equal budgets",
        "share of the gap (3 and more at 3)",
        marks_,
        {"optimum": 0.0, "best trivial": 1.0},
    )
    return Report(headline, tables, figure)


def _ranked_in(how: How, found: Measurements, env: str) -> list[str]:
    """The arms of a world that are paid on all seeds, the best first."""
    own = [arm for arm in arms(how) if arm.startswith(f"{env}/") and not _refused(found, arm)]
    return sorted(own, key=lambda arm: float(column(found, arm, "share").mean()))


def then(how: How, found: Measurements) -> list[str]:
    """The rows that are trained longer: the best of each world, of equal figures one; the best known;
    and ours."""
    chosen = []
    for env in how.envs:
        ranked = [arm for arm in _ranked_in(how, found, env) if arm.split("/")[1] in different(how.methods)]
        best = [a for i, a in enumerate(ranked) if found.arms[a] not in [found.arms[b] for b in ranked[:i]]][:FIRST]
        known = [arm for arm in ranked if arm.split("/")[1] in LONG]
        chosen += [f"{arm}, {MORE}" for arm in dict.fromkeys([*best, *known, f"{env}/{OURS}"])]
    return chosen


def _headline(how: How, found: Measurements, env: str, ranked: list[str]) -> list[Headline]:
    best = next(arm for arm in ranked if arm.split("/")[1] in different(how.methods))
    long = [arm for arm in found.arms if arm.startswith(f"{env}/") and arm.endswith(f", {MORE}")]
    rows = [("best", best), *((id, f"{env}/{name}") for id, name in NAMED.items())]
    if long:
        rows.append(("longer", min(long, key=lambda arm: float(column(found, arm, "share").mean()))))
    return [
        summarise(
            f"{env}.{id}",
            f"{env}: share of the gap left, {WHICH.get(id, '')}{arm.split('/')[1].partition(', ')[0]}",
            column(found, arm, "share"),
        )
        for id, arm in rows
    ]


def _same(how: How, found: Measurements) -> str:
    """Rows that are one row: by their expressions, or because every decision got the same credit in a world."""
    rows = [["all", names(some), "equal expressions"] for some in different(how.methods).values() if len(some) > 1]
    for env in how.envs:
        alike: dict[str, list[str]] = {}
        for arm in _ranked_in(how, found, env):
            alike.setdefault(repr(found.arms[arm]), []).append(arm.split("/")[1])
        rows += [[env, names(some), "equal credit here, to the bit"] for some in alike.values() if len(some) > 1]
    return table(["world", "rows that are the same", "by"], rows)


def names(some: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in some)


NAMED = {"grpo": "grpo", "ours": OURS, "shuffled": SHUFFLED, "single": SINGLE}
WHICH = {"best": "the best method, ", "longer": "the best with more decisions, "}


def _refused(found: Measurements, arm: str) -> str:
    """Why a method is not ranked in a world, empty if it is; and on how many seeds, if not on all."""
    why = [one["refused"] for one in found.arms[arm] if one["refused"]]
    return (
        f"{why[0]} ({len(why)} of {len(found.arms[arm])} seeds)"
        if 0 < len(why) < len(found.arms[arm])
        else "".join(why[:1])
    )


def _percent(found: Measurements, arm: str) -> str:
    """The share of decisions that is paid, where it was recorded."""
    there = [one["paid"] for one in found.arms[arm] if one.get("paid") is not None]
    return f"{np.mean(there):.0%}" if there else ""


def _row(how: How, found: Measurements, arm: str, ranked: list[str]) -> list[str]:
    """A row of the board. Methods that leave the same figures on every seed to the last bit gave every
    decision the same credit."""
    env, name = arm.split("/")
    left, lost = summarise("", "", column(found, arm, "share")), summarise("", "", column(found, arm, "regret"))
    same = [other.split("/")[1] for other in ranked if other != arm and found.arms[other] == found.arms[arm]]
    cells = [f"{left.mean:.2f}", f"{left.low:.2f} to {left.high:.2f}", f"{lost.mean:.1%}", _percent(found, arm)]
    spent = [f"{column(found, arm, 'decisions').mean():,.0f}", f"{np.mean(found.seconds[arm]):.1f}"]
    longer = ["", "", ""]
    if (more := f"{arm}, {MORE}") in found.arms and not _refused(found, more):
        left = summarise("", "", column(found, more, "share"))
        decisions = column(found, more, "decisions").mean()
        longer = [f"{left.mean:.2f}", f"{left.low:.2f} to {left.high:.2f}", f"{decisions:,.0f}"]
    return [env, names(different(how.methods).get(name, (name,))), *cells, names(same), *spent, *longer]


def _ranked(how: How, found: Measurements) -> list[str]:
    """The methods that act in all worlds, by the mean of their shares."""

    def mean(name: str) -> float:
        return float(np.mean([column(found, f"{env}/{name}", "share").mean() for env in how.envs]))

    whole = [n for n in different(how.methods) if not any(_refused(found, f"{env}/{n}") for env in how.envs)]
    return sorted(whole, key=mean)


def _shown(how: How, found: Measurements) -> list[str]:
    """Those that stand first, and the best known ones."""
    return [n for i, n in enumerate(_ranked(how, found)) if i < FIRST or n in KNOWN]


def _cell(found: Measurements, arm: str) -> str:
    """What is left, with more decisions too, and what is paid."""
    left, paid, more = summarise("", "", column(found, arm, "share")), _percent(found, arm), f"{arm}, {MORE}"
    cell = f"{left.mean:.2f} ± {left.high - left.mean:.2f}"
    if more in found.arms:
        left = summarise("", "", column(found, more, "share"))
        cell += f", then {left.mean:.2f} ± {left.high - left.mean:.2f}"
    return cell + (f" ({paid} paid)" if paid else "")


def _short(how: How, found: Measurements) -> str:
    """Methods by worlds, each with the share of decisions paid, and what they are to be compared with."""

    def cells(name: str) -> list[str]:
        return [_cell(found, f"{env}/{name}") for env in how.envs]

    ranked = _ranked(how, found)
    rows = [["*optimum*", *(["0"] * len(how.envs))], [f"`podium train` ({OURS})", *cells(OURS)]]
    rows += [[f"{1 + ranked.index(n)}. `{n}`", *cells(n)] for n in _shown(how, found)]
    rows += [["*best trivial policy*", *(["1"] * len(how.envs))]]
    rows += [["*shuffled credit*", *cells(SHUFFLED)], ["*one agent*", *cells(SINGLE)]]
    return table([f"share of the gap left, {len(ranked)} rows", *how.envs], rows)


register("study", "leaderboard")(Experiment(How, arms, measure, report, then))
