"""Dr. MAS against GRPO: gradient lengths by role, and what is learned, in a team whose roles act unequally often
and in unequal places.

A run is of one of two types, which all see. The planner picks a plan (one of three is right for the type). The
worker makes six steps of three kinds (one of three options is right for each). A few runs turn out hard; only then
is the critic called (one of three is right for the type). A run succeeds with

    easy   .84 + .05 plan + .10 work          hard   .05 + .10 plan + .20 work + .60 critic
    (work: the share of right steps)

so that most runs succeed, and those in which the critic acts mostly do not. Credit, in groups of runs of a task (a
test holds it to what `podium.credit` gives on traces of them):

    grpo        A = (R - mean of the group) / deviation of the group
    dr_mas      the same over the calls of one agent in the group
    mean only   the agent's own mean, without the deviation: which half of Dr. MAS does it
    shuffled    dr_mas, dealt out anew among all decisions of an update: the control

The theory (Dr. MAS): the second moment of agent k's gradient under GRPO is (σ_k² + (μ_k - μ)²) / σ² times that
under Dr. MAS. It is compared with the second moments of many batches at the start. A *spike* is a gradient of more
than so many times the median of those within 25 updates of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.legs import softmax
from podium.credit import Credit, apply
from podium.envs.log import Log
from podium.methods import METHODS
from podium.registry import register
from podium.study.figure import Panel, lines_of, picture
from podium.study.question import Experiment, Headline, Measurements, Report, column, summarise, table
from podium.trace.columns import F, Text
from podium.trace.vocabulary import Decision

__all__ = [
    "How",
    "Runs",
    "arms",
    "credit_of_team",
    "gradient",
    "measure",
    "moments",
    "report",
    "runs_of",
    "train_team",
    "value",
]

N64 = NDArray[np.int64]
ROLES: dict[str, tuple[Decision, int]] = {
    "planner": ("delegate", 2),
    "worker": ("communicate", 3),
    "critic": ("aggregate", 2),
}
OPTIONS = np.array(["a", "b", "c"])
CREDITS = {
    "grpo": 'zscore(by="task", alone="raw")',
    "dr_mas": METHODS["dr_mas"].credit,
    "mean only": 'center(by=("task", "agent"), count="row", alone="raw")',
    "shuffled": METHODS["dr_mas"].credit,
}
Tables = dict[str, F]  # by role: logits [place, option]; in every place option 0 is right


@dataclass(frozen=True)
class How:
    credits: tuple[str, ...]
    teams: tuple[str, ...]
    tasks: int
    group: int
    updates: int
    rates: tuple[float, ...]
    hard: float
    calls: int
    looks: int
    batches: int
    spike: float


class Runs(NamedTuple):
    """A batch of runs: of every decision its run, role, place and choice; and of every run whether it succeeded."""

    run: N64
    role: N64
    place: N64
    choice: N64
    success: F
    hard: NDArray[np.bool_]


def arms(how: How) -> list[str]:
    return [f"{team}/{credit}" for team in how.teams for credit in how.credits]


def runs_of(how: How, tables: Tables, n: int, dice: np.random.Generator) -> Runs:
    """So many runs under a policy, decisions in the order in which a run makes them."""
    type_, hard = dice.integers(0, 2, n), dice.random(n) < how.hard
    every, parts, right = np.arange(n), [], {"worker": np.zeros(n)}

    def act(role: str, place: N64, who: N64) -> F:
        below = np.cumsum(softmax(tables[role]), axis=1)[place, :-1]
        choice = (dice.random(len(who))[:, None] >= below).sum(axis=1)
        parts.append((who, np.full(len(who), list(ROLES).index(role)), place, choice))
        return np.where(choice == 0, 1.0, 0.0)

    right["planner"] = act("planner", type_, every)
    for step in range(how.calls):
        right["worker"] += act("worker", np.full(n, step % 3), every) / how.calls
    critic = np.zeros(n)
    critic[hard] = act("critic", type_[hard], every[hard])
    run, role, place, choice = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(run, kind="stable")
    success = (dice.random(n) < chance(right["planner"], right["worker"], critic, hard)).astype(float)
    return Runs(run[order], role[order], place[order], choice[order], success, hard)


def chance(plan: Any, work: Any, critic: Any, hard: Any) -> Any:
    """How likely a run is to succeed."""
    return np.where(hard, 0.05 + 0.10 * plan + 0.20 * work + 0.60 * critic, 0.84 + 0.05 * plan + 0.10 * work)


def value(how: How, tables: Tables) -> float:
    """The exact chance of success of a policy: everything is linear in what is right."""
    p = {role: softmax(table)[:, 0].mean() for role, table in tables.items()}
    both = [float(chance(p["planner"], p["worker"], p["critic"], hard)) for hard in (False, True)]
    return (1 - how.hard) * both[0] + how.hard * both[1]


def _standard(value: F, group: N64, deviation: bool = True) -> F:
    """(v - mean) / (deviation + 1e-6) in its group, the deviation with n - 1; alone: v. As `credit.zscore` and
    `credit.center` on a trace."""
    n = np.bincount(group)
    mean = np.bincount(group, value) / np.maximum(n, 1)
    ahead = value - mean[group]
    if deviation:
        ahead = ahead / (np.sqrt(np.bincount(group, ahead**2) / np.maximum(n - 1, 1)) + 1e-6)[group]
    return np.where(n[group] > 1, ahead, value)


def credit_of_team(how: How, team: str, name: str, runs: Runs, dice: np.random.Generator) -> F:
    """What each decision is paid. GRPO pays runs, and their decisions the same; the others pay the calls of an
    agent."""
    if name == "grpo":
        return _standard(runs.success, np.arange(len(runs.success)) // how.group)[runs.run]
    agent = runs.role if team == "three roles" else np.zeros_like(runs.role)
    given = _standard(runs.success[runs.run], runs.run // how.group * len(ROLES) + agent, name != "mean only")
    return dice.permutation(given) if name == "shuffled" else given


def traced(how: How, team: str, name: str, runs: Runs) -> F:
    """The same by the expressions of the method table, on a trace of the runs: what tests compare with."""
    n = len(runs.success)
    log, before = Log(n), np.full(n, -1)
    number = np.arange(len(runs.run)) - np.searchsorted(runs.run, np.arange(n))[runs.run]
    for step in range(int(number.max()) + 1):
        for role, (agent, (kind, _)) in enumerate(ROLES.items()):
            some = np.flatnonzero((number == step) & (runs.role == role))
            row = runs.run[some]
            who = agent if team == "three roles" else "solo"
            chosen, after = OPTIONS[runs.choice[some]], before[row]
            before[row] = log.decide(
                row, kind, who, float(step), OPTIONS.tolist(), chosen, after=[("causal", after)]
            )
    trace = log.trace(
        trace_id_n=Text.of(f"r{i}" for i in range(n)),
        task_id_n=Text.of(f"t{i // how.group}" for i in range(n)),
        reward_n={"team": runs.success},
    )
    if name == "grpo":
        given: F = apply(Credit(trace, "team", runs.success), CREDITS[name]).value[runs.run]
        return given
    paid: F = apply(Credit(trace, "orchestrator", runs.success[runs.run]), CREDITS[name]).value
    return paid


def train_team(how: How, team: str, name: str, rate: float, seed: int) -> dict[str, Any]:
    """The value of the policy now and then, and the length of each role's gradient in every update."""
    dice = np.random.default_rng([seed, len(name), len(team)])
    tables: Tables = {role: np.zeros((places, 3)) for role, (_, places) in ROLES.items()}
    n = how.tasks * how.group
    looks = set(np.linspace(0, how.updates, how.looks + 1).round().astype(int).tolist())
    values: list[float] = []
    lengths: dict[str, list[float]] = {role: [] for role in ROLES}
    for u in range(how.updates + 1):
        if u in looks:
            values.append(value(how, tables))
        runs = runs_of(how, tables, n, dice)
        given = credit_of_team(how, team, name, runs, dice)
        for k, role in enumerate(ROLES):
            up = gradient(tables[role], runs, given, k)
            lengths[role].append(float(np.sqrt((up**2).sum())))
            tables[role] += rate * up
    right = float(softmax(tables["critic"])[:, 0].mean())
    return {"value": values, "lengths": lengths, "right": right}


def gradient(logits: F, runs: Runs, given: F, role: int) -> F:
    """mean over the calls of a role of A ∂ log π, as its own optimiser takes it."""
    mine, pi = np.flatnonzero(runs.role == role), softmax(logits)
    up = np.zeros(pi.shape)
    np.add.at(up, (runs.place[mine], runs.choice[mine]), given[mine])
    up -= np.bincount(runs.place[mine], given[mine], len(pi))[:, None] * pi
    return np.asarray(up / max(1, len(mine)))


def moments(how: How, team: str, name: str, seed: int) -> tuple[list[float], list[float]]:
    """E |A ∂ log π|² of a call of each role at the start, over some batches; and (σ_k² + (μ_k - μ)²) / σ² over all
    of them."""
    dice = np.random.default_rng([seed, 77])
    tables: Tables = {role: np.zeros((places, 3)) for role, (_, places) in ROLES.items()}
    squares: list[list[F]] = [[] for _ in ROLES]
    scores: list[list[F]] = [[] for _ in ROLES]
    every = []
    for _ in range(how.batches):
        runs = runs_of(how, tables, how.tasks * how.group, dice)
        given = credit_of_team(how, team, name, runs, dice)
        every.append(runs.success)
        for k in range(len(ROLES)):
            mine = runs.role == k
            squares[k].append(given[mine] ** 2 * (2 / 3))  # |1 - π|² = 2/3 at even odds
            scores[k].append(runs.success[runs.run[mine]])
    all_ = np.concatenate(every)
    theory = [float((s.var() + (s.mean() - all_.mean()) ** 2) / all_.var()) for s in map(np.concatenate, scores)]
    return [float(np.concatenate(s).mean()) for s in squares], theory


def _spikes(lengths: F, times: float, window: int = 25) -> float:
    """The share of gradients of more than so many times the median around them."""
    around = [np.median(lengths[max(0, i - window) : i + window + 1]) for i in range(len(lengths))]
    return float((lengths > times * np.maximum(around, 1e-12)).mean())


def measure(how: How, arm: str, seed: int) -> dict[str, Any]:
    team, name = arm.split("/")
    outcome = train_team(how, team, name, _best_rate(how, team, name), seed)
    lengths = {role: np.array(some) for role, some in outcome["lengths"].items()}
    moment, theory = moments(how, team, name, seed)
    return {
        "value": outcome["value"],
        "right": outcome["right"],
        "spikes": [_spikes(some, how.spike) for some in lengths.values()],
        "critic": lengths["critic"].tolist(),
        "moment": moment,
        "theory": theory,
        "rate": _best_rate(how, team, name),
        "episodes": how.updates * how.tasks * how.group,
    }


@cache
def _best_rate(how: How, team: str, name: str) -> float:
    """The rate that learns most on a seed that nothing is told of."""
    return max(how.rates, key=lambda rate: float(np.mean(train_team(how, team, name, rate, 10_007)["value"])))


def _headline(how: How, found: Measurements, best: float) -> list[Headline]:
    start = value(how, {role: np.zeros((places, 3)) for role, (_, places) in ROLES.items()})
    ends = {arm: column(found, arm, "value")[:, -1] for arm in arms(how)}
    right = {arm: column(found, arm, "right") for arm in arms(how)}
    three, critic = how.teams[0], list(ROLES).index("critic")
    gain = ends[f"{three}/dr_mas"] - ends[f"{three}/grpo"]
    least = np.maximum(column(found, f"{three}/dr_mas", "moment"), 1e-12)
    ratio = column(found, f"{three}/grpo", "moment") / least
    theory = column(found, f"{three}/grpo", "theory")
    spikes = {arm: column(found, arm, "spikes") for arm in arms(how)}
    return [
        summarise(
            "gain",
            f"success that Dr. MAS gains over GRPO, three roles, as many runs (optimum {best:.3f}, start "
            f"{start:.3f})",
            gain,
        ),
        summarise(
            "moment",
            "second moment of the critic's gradient under GRPO, times that under Dr. MAS, at the start",
            ratio[:, critic],
            least=1.5,
        ),
        summarise("theory", "what the theory says of that", theory[:, critic]),
        summarise("moment.worker", "the same of the worker's, who acts in every run", ratio[:, 1]),
        *(
            summarise(
                f"{c}.spikes",
                f"{c}: share of the critic's gradients that are spikes, three roles",
                spikes[f"{three}/{c}"][:, critic],
            )
            for c in ("grpo", "dr_mas")
        ),
        *(
            summarise(
                f"{c}.right",
                f"{c}: how often the critic is right after training, three roles",
                right[f"{three}/{c}"],
            )
            for c in ("grpo", "dr_mas")
        ),
        summarise(
            "one",
            "success that Dr. MAS gains over GRPO where one agent makes all decisions",
            ends[f"{how.teams[1]}/dr_mas"] - ends[f"{how.teams[1]}/grpo"],
        ),
        summarise(
            "shuffled",
            "how often the critic is right after shuffled credit, three roles",
            right[f"{three}/shuffled"],
        ),
    ]


def report(how: How, found: Measurements) -> Report:
    best = value(how, {role: np.tile([50.0, 0.0, 0.0], (places, 1)) for role, (_, places) in ROLES.items()})
    ends = {arm: column(found, arm, "value")[:, -1] for arm in arms(how)}
    spikes = {arm: column(found, arm, "spikes") for arm in arms(how)}
    three = how.teams[0]
    right = {arm: column(found, arm, "right") for arm in arms(how)}
    headline = _headline(how, found, best)
    rows = []
    for arm in arms(how):
        team, name = arm.split("/")
        end = summarise("", "", ends[arm])
        cells = [f"{x:.1%}" for x in spikes[arm].mean(axis=0)] + [
            f"{x:.2f}" for x in column(found, arm, "moment").mean(axis=0)
        ]
        rows.append(
            [
                team,
                name,
                f"{end.mean:.3f} ({end.low:.3f} to {end.high:.3f})",
                f"{right[arm].mean():.2f}",
                *cells,
                f"{found.arms[arm][0]['rate']:g}",
            ]
        )
    head = [
        "team",
        "credit",
        "success",
        "critic right",
        *(f"{r}: spikes" for r in ROLES),
        *(f"{r}: second moment" for r in ROLES),
        "rate",
    ]
    at = np.linspace(0, how.updates, how.looks + 1).round().tolist()
    curves = [lines_of(c, at, column(found, f"{three}/{c}", "value")) for c in how.credits]
    block = max(1, how.updates // 50)

    def smooth(c: str) -> F:
        lengths = column(found, f"{three}/{c}", "critic")[:, : how.updates // block * block]
        top: F = lengths.reshape(len(lengths), -1, block).max(axis=2)
        return top

    at_block = (np.arange(how.updates // block) * block).tolist()
    norms = [lines_of(c, at_block, smooth(c)) for c in ("grpo", "dr_mas", "mean only") if c in how.credits]
    panels = [
        Panel("success, three roles", "updates", curves, {"optimum": best}, low=0.8),
        Panel(f"length of the critic's gradient, longest of {block} updates", "updates", norms),
    ]
    return Report(
        headline, {"arms": table(head, rows)}, picture("Dr. MAS and GRPO with roles of unequal frequency", panels)
    )


register("study", "dr_mas")(Experiment(How, arms, measure, report))
