"""A training run of a live team of the harness on disk: a recipe that names a team instead of a world.

The folder is that of other runs of language models (`podium.learn.lm.run`). A line of an iteration tells of each
role how large its credit was and how long its part of the gradient (`roles`). Times on record are counted
(`live.counted_clock`): the same seed gives the same bytes, as far as the team's own tools do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from podium.engine.models import PolicyTeam
from podium.envs.draws import seeds
from podium.gateway.program import KINDS, Program, program_of
from podium.harness import office
from podium.harness.batch_server import BatchServer, team_with
from podium.harness.find import find
from podium.harness.team import LEAD, BadTeam, Team
from podium.harness.types import shown
from podium.harness.understand import content_of
from podium.learn.folder import BadRecipe, check_least, check_method, check_names, converted, table_of
from podium.learn.lm.live import (
    Live,
    LiveTeam,
    branch_runs,
    choices_as_decisions,
    earned,
    judge_live,
    play_runs,
    play_settings,
)
from podium.learn.lm.run import ModelRun, settings_of
from podium.learn.lm.settings import Settings, generating
from podium.learn.lm.token_credit import token_credit
from podium.learn.loop import Source
from podium.learn.requirements import with_step_rewards
from podium.methods import METHODS, credit_of
from podium.rewards.ledger import Now
from podium.trace import files
from podium.trace.columns import F, Trace, concat

__all__ = ["TEAMS", "LiveRecipe", "LiveRun", "find_live", "read_team_recipe"]

OURS = "branching_turns"  # pays whatever an agent says
WORLDLY = ("params", "digits", "free", "most")  # settings that are about the text of worlds
TEAMS = {"office": lambda: Live("office", office.office, office.AGENTS, office.questions, office.optimum())}


def find_live(spec: str, program: Mapping[str, Any] | None = None) -> Live | Program:
    """A live team by its name: `office`, `my_team.py:name` or `package.module:name`. What is named is a Live, or a
    function without arguments that makes one. Or a program: `command: ... {task}` or `function: FILE.py:NAME`.

    >>> find_live("office").agents
    ('lead', 'worker', 'critic')
    """
    if spec.startswith(KINDS):
        return program_of(spec, program or {}, "the recipe")
    return find(spec, Live, TEAMS)


# ---- the recipe


@dataclass(frozen=True)
class LiveRecipe:
    """A recipe for a live team."""

    team: str
    lm: Settings = field(default_factory=Settings)
    method: str = OURS
    seed: int = 0
    patience: int = 0  # looks at the regret without a better one, after which it ends; 0: never
    iterations: int = 40
    program: dict[str, Any] = field(default_factory=dict)  # how a program is run and paid (`ProgramSettings`)


def read_team_recipe(recipe: str | Mapping[str, Any], where: str, model: str | None = None) -> LiveRecipe:
    """A recipe, TOML or a table: `team`, and whatever of the rest is not as it is by default. Raises BadRecipe.

    >>> recipe = read_team_recipe('team = "office"\\n[lm]\\niterations = 9', "a recipe")
    >>> recipe.team, recipe.method, recipe.iterations
    ('office', 'branching_turns', 9)
    """
    table = table_of(recipe, where)
    known = [f.name for f in fields(LiveRecipe)]
    check_names(table, known, where, " for a live team")
    lm = table.pop("lm", {})
    parsed = converted(table, LiveRecipe, where)
    check_method(parsed.method, where)
    settings = _fitting(settings_of(lm, parsed.method, where, model), parsed.method, where)
    parsed = replace(parsed, iterations=settings.iterations or parsed.iterations, lm=settings)
    check_least(parsed, {"iterations": 1, "seed": 0, "patience": 0}, where)
    return parsed


def _fitting(how: Settings, method: str, where: str) -> Settings:
    """The settings, if a live team can be trained by them."""
    if other := [name for name in WORLDLY if getattr(how, name) != getattr(Settings(), name)]:
        raise BadRecipe(f"{where}: lm.{other[0]} is about a world's text; a live team makes its own prompts")
    if how.share == "agent":
        raise BadRecipe(
            f'{where}: agents of a live team come and go; expected lm.share = "one" or "role", got "agent"'
        )
    if how.episodes < max(2, how.worlds):
        raise BadRecipe(
            f"{where}: lm.episodes must be {max(2, how.worlds)} or more, the runs of one task (lm.worlds), "
            f"got {how.episodes}"
        )
    if isinstance(how.endpoint, str) and how.endpoint and "branches" in METHODS[method].needs:
        raise BadRecipe(
            f"{where}: {method} needs branches, and nobody knows what else an endpoint could have said; expected "
            'another method, such as method = "grpo"'
        )
    return how


# ---- the run


class LiveRun(ModelRun):
    """A training run of a live team in a folder: begun, after a rehearsal, or gone on with where it was."""

    asked: LiveRecipe
    look_at_roles = True

    def __init__(self, recipe: LiveRecipe, path: Path, keep: bool = False, source: Path | None = None) -> None:
        self.live = sound(find_live(recipe.team, recipe.program), recipe.team, recipe.lm)
        if recipe.patience and np.isnan(self.live.optimum):
            raise BadRecipe(
                f"{recipe.team} does not say its optimum, so there is no regret to be patient with: expected "
                f"patience = 0, got {recipe.patience}"
            )
        super().__init__(recipe, path, keep, source)
        if not (path / "asked.json").exists():
            with self._threads():
                rehearse(self.live, recipe, self.learner.team)
        self._open()

    def _agents(self) -> Sequence[str]:
        return self.live.agents

    @property
    def acting(self) -> Source:
        """Runs of the team."""
        return LiveTeam(self.settings, self.live, self.method, self.asked.seed)

    def _look(self) -> float:
        """(V* - V) / |V*| on tasks to learn from; NaN where nobody knows V*."""
        if np.isnan(self.live.optimum):
            return float("nan")
        trace = judge_live(self.learner.team, self.settings, self.live, self.settings.watched, held_out=False)
        return _regret(self.live.optimum, success_and_reward(earned(trace))["reward"])

    def played(self, most: int = 3) -> tuple[Trace, Trace]:
        """Runs on held-out tasks before training and after, their likeliest answers; a few of each are kept as
        traces, and what all earned as judged.json."""
        with self._threads():
            before, after = (
                judge_live(of, self.settings, self.live, self.settings.judged)
                for of in (self.fresh(), self.learner.team)
            )
        rows = {"before": success_and_reward(earned(before)), "after": success_and_reward(earned(after))}
        bounds = {"optimum": self.live.optimum, "regret": _regret(self.live.optimum, rows["after"]["reward"])}
        files.write_whole(self.folder / "judged.json", msgspec.json.encode(rows | bounds) + b"\n")
        return self._sampled(before, after, most)

    def told(self) -> dict[str, Any]:
        """The run in the end: success and reward before and after, the optimum, credit and gradient by role."""
        judgement = msgspec.json.decode((self.folder / "judged.json").read_bytes())
        lines = self.lines
        return {
            "team": self.asked.team,
            "method": self.asked.method,
            "seed": self.asked.seed,
            "iterations": self.learner.iteration,
            "model": self.settings.model,
            "judged_in": f"{judgement['after']['tasks']} held-out tasks",
            **judgement,
            "roles": {"first": lines[0]["roles"], "last": lines[-1]["roles"]} if lines else {},
            "folder": str(self.folder),
        }


def success_and_reward(reward_n: F) -> dict[str, float]:
    """The share of runs that earned more than one half, and the mean that they earned; of those that were scored.

    >>> success_and_reward(np.array([1.0, 0.9, 0.0, np.nan]))["success"]
    0.6666666666666666
    """
    known = reward_n[~np.isnan(reward_n)]
    mean = float(known.mean()) if len(known) else float("nan")
    return {"success": float((known > 0.5).mean()) if len(known) else mean, "reward": mean, "tasks": len(known)}


def _regret(optimum: float, value: float) -> float:
    return (optimum - value) / abs(optimum) if optimum else float("nan")


def sound(live: Live | Program, where: str, how: Settings) -> Live | Program:
    """The live team, if it has a Team, roles that are in it, one who judges, and enough tasks. Raises BadTeam."""
    if isinstance(live, Program):
        _tasks(live, where, how.judged, True)
        return live
    try:
        team: Any = team_with(live.make, _nobody, _nobody)
    except Exception as error:
        raise BadTeam(f"{where}: its team cannot be made: {shown(error)}") from None
    if not isinstance(team, Team):
        raise BadTeam(f"{where}: expected a function from speak to a Team, got one to {type(team).__name__}")
    if team.verify is None:
        raise BadTeam(f"{where}: nobody says what an answer is worth; expected Team(..., verify=...)")
    roles = (LEAD, *team.cast)
    if not live.agents or not set(live.agents) <= set(roles):
        came = ", ".join(live.agents) or "none"
        raise BadTeam(f"{where}: expected roles that a model speaks for, out of {', '.join(roles)}, got {came}")
    if not isinstance(live.optimum, int | float):
        raise BadTeam(f"{where}: expected a number for its optimum, or none, got {live.optimum!r}")
    _tasks(live, where, max(how.episodes, how.watched), False)
    _tasks(live, where, how.judged, True)
    return live


async def _nobody(*_: Any) -> Any:
    raise AssertionError("a team that is only looked at says nothing")


def _tasks(live: Live | Program, where: str, n: int, held_out: bool) -> list[Any]:
    """So many tasks."""
    kind = "held out" if held_out else "to learn from"
    try:
        tasks = [content_of(task) for task in live.questions(n, 0, held_out)]
    except Exception as error:
        raise BadTeam(f"{where}: it gives no tasks {kind}: {shown(error)}") from None
    if len(tasks) != n:
        raise BadTeam(f"{where}: expected as many tasks {kind} as asked for, {n}, got {len(tasks)}")
    return tasks


def rehearse(live: Live | Program, recipe: LiveRecipe, team: PolicyTeam) -> None:
    """Two runs of one task, their branches and their credit, by the untrained model: what cannot be trained says so
    before anything is written."""
    where, method, dice = recipe.team, METHODS[recipe.method], seeds(recipe.seed, 2)
    server, branches = BatchServer(team, play_settings(recipe.lm), "0"), list[Trace]()
    if isinstance(live, Program):
        if "branches" in method.needs:
            raise BadRecipe(
                f'{where}: {method.name} needs branches, and a program is not replayed; expected "grpo"'
            )
        traces = live.play(team, play_settings(recipe.lm), "0", _tasks(live, where, 1, False) * 2, 0, ["a"] * 2)
    else:
        with generating(recipe.lm):
            tasks = _tasks(live, where, 1, False) * 2
            traces, handles = play_runs(server, live.make, tasks, dice, [live.name] * 2)
            if "branches" in method.needs:
                branches = branch_runs(server, live.make, traces, handles, dice, 1.0)
    forest = choices_as_decisions(concat([*traces, *branches]))
    if not len(forest.token_k):
        raise BadTeam(
            f"{where}: no agent said anything by a model; expected some that await speak(...) or write(...) and "
            f"act by Did(..., said=...){_fault(forest)}"
        )
    if np.isnan(earned(concat(traces))).any():
        raise BadTeam(
            f"{where}: a run has no reward; expected verify(task, answer) to give a number for any answer"
            f"{_fault(forest)}"
        )
    half: F = np.arange(len(forest), dtype=np.float64) % 2  # a method may pay nothing where all earn alike
    mixed = with_step_rewards(replace(forest, reward_n={"team": half}))
    try:
        pay = token_credit(mixed, credit_of(mixed, method, Now(0.0, ())))
    except ValueError as error:
        raise BadRecipe(f"{where}: {method.name} cannot be paid here: {error}") from None
    if not pay.share_k.any():
        raise BadRecipe(
            f"{where}: {method.name} pays nothing that is said here; expected another method, such as {OURS}"
        )


def _fault(trace: Trace) -> str:
    """What went wrong first in some runs, if anything did."""
    faults = trace.extra_e["fault"].strings() if "fault" in trace.extra_e else []
    return next((f" (a fault on record: {msgspec.json.decode(words)['why']})" for words in faults if words), "")
