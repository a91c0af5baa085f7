"""Live teams of the harness as a source of rollouts: runs played by language models, branches, and what is learned
from them.

A branch is the harness' own replay of a run from a step on, in which another option is said there. What comes out
is a trace of the harness with the tokens on its events: credit and update read nothing else
(`choices_as_decisions`). Time on record is counted, not measured (`counted_clock`), so that the same seed gives the
same bytes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from podium.engine.models import PolicyTeam, in_parts
from podium.envs.draws import U, seeds, uniform
from podium.gateway.program import Program
from podium.harness import Team, play
from podium.harness.batch_server import BatchServer, RunHandle, team_with
from podium.harness.branching import branch_points
from podium.harness.choices import choice_of, choices_as_decisions
from podium.harness.replay import replayed
from podium.harness.run import to_the_end
from podium.harness.team import BadTeam
from podium.learn.lm.settings import Settings, generating
from podium.learn.lm.text_world import PlaySettings, rollouts_of
from podium.learn.loop import Rollouts
from podium.methods import Method
from podium.trace.columns import F, Trace, concat
from podium.trace.files import load

__all__ = [
    "Live",
    "LiveTeam",
    "branch_runs",
    "choices_as_decisions",
    "counted_clock",
    "earned",
    "judge_live",
    "play_runs",
    "play_settings",
    "tasks_from",
]

MARK = 0x11FE  # the address of what is drawn for branches
TICK = 1e-3  # seconds on record from one thing that happens to the next

Questions = Callable[[int, int, bool], list[Any]]  # so many tasks by a seed; held out, or to learn from


class Live(NamedTuple):
    """A live team that can be trained."""

    name: str
    make: Callable[..., Team]  # the team, given who speaks for its agents, and who writes if it takes two
    agents: tuple[str, ...]  # the roles that a model speaks for, "lead" among them if it does
    questions: Questions
    optimum: float = float("nan")  # what the best team earns, if that is known


def tasks_from(learn: Sequence[Any], held_out: Sequence[Any]) -> Questions:
    """Tasks out of two lists: those to learn from are drawn by the seed, those held out come in their order, again
    and again.

    >>> tasks_from(["a", "b"], ["c", "d"])(3, 0, True)
    ['c', 'd', 'c']
    """
    if not learn or not held_out:
        raise BadTeam(f"expected tasks to learn from and others held out, got {len(learn)} and {len(held_out)}")

    def questions(n: int, seed: int, held: bool) -> list[Any]:
        if held:
            return [held_out[i % len(held_out)] for i in range(n)]
        return [learn[i] for i in np.random.default_rng([seed, 0x7A5C]).integers(len(learn), size=n).tolist()]

    return questions


def counted_clock() -> Callable[[], float]:
    """A clock that shows how often it was asked, in milliseconds: what is recorded by it is the same whenever it
    happens.

    >>> clock = counted_clock()
    >>> clock(), clock()
    (0.0, 0.001)
    """
    ticks = count()
    return lambda: next(ticks) * TICK


def without_limits(make: Callable[..., Team], handle: RunHandle) -> Team:
    """The team of a run. Its steps may take any time: they wait until all others have been asked."""
    team: Team = team_with(make, handle.speak, handle.write)
    cast = {name: replace(role, seconds=None) for name, role in team.cast.items()}
    return replace(team, lead=replace(team.leader, seconds=None), roles=cast)


def earned(trace: Trace) -> F:
    """What each run earned; NaN where nobody could say."""
    return np.asarray(trace.reward_n.get("team", np.full(len(trace), np.nan)), np.float64)


def _scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder for records that are read at once, in memory where there is such a place."""
    shm = Path("/dev/shm")
    return tempfile.TemporaryDirectory(prefix="podium-", dir=shm if shm.is_dir() else None)


def play_runs(
    server: BatchServer,
    make: Callable[..., Team],
    tasks: Sequence[Any],
    seed: U,
    groups: Sequence[str],
    first: int = 0,
) -> tuple[list[Trace], list[RunHandle]]:
    """Runs of a team, one a task, all at once: their traces, numbered from `first`, and their handles at the
    server, from which branches can go on."""
    handles = [RunHandle(server) for _ in tasks]
    with _scratch() as scratch:
        folders = [Path(scratch) / f"{i}" for i in range(len(tasks))]
        work = [
            play(
                without_limits(make, handle),
                task,
                folder=folder,
                clock=counted_clock(),
                seed=int(s >> np.uint64(16)),
                task_id=group,
                trace_id=f"{group}#{i}",
            )
            for i, (handle, task, folder, s, group) in enumerate(
                zip(handles, tasks, folders, seed, groups, strict=True), first
            )
        ]
        to_the_end(server.serve(work))
        return [load(folder) for folder in folders], handles


def branch_runs(
    server: BatchServer,
    make: Callable[..., Team],
    traces: Sequence[Trace],
    handles: Sequence[RunHandle],
    seed: U,
    share: float,
    fresh: int = 1,
    tokens: int = 0,
) -> list[Trace]:
    """Branches of a share of what was said: each other option, or `fresh` other texts (`branch_points` within so
    many `tokens`), in the harness' own replay from that step on, with the same dice. What an endpoint chose is not
    branched: nobody weighed what else it could have chosen."""
    branches: list[tuple[int, int, RunHandle]] = []
    texts: list[tuple[int, int, str, int]] = []
    for i, (trace, handle) in enumerate(zip(traces, handles, strict=True)):
        for row, agent, turn in model_steps(trace):
            step = handle.at(agent, turn)
            if float(uniform(seed[i], MARK, row)) >= share or not (step.answer.option_logp or step.past):
                continue
            if step.past is not None:
                texts.append((i, row, agent, turn))
                continue
            choice = choice_of(trace, row)
            others = [option for option in choice["options"] if option != choice["chosen"]]
            branches += [(i, row, RunHandle(server, handle, (agent, turn, option))) for option in others]
    for i, row, agent, turn in (texts[at] for at in branch_points(traces, [t[:2] for t in texts], fresh, tokens)):
        again = (RunHandle(server, handles[i], fresh=(agent, turn, k)) for k in range(1, fresh + 1))
        branches += [(i, row, handle) for handle in again]
    with _scratch() as scratch:
        folders = [Path(scratch) / f"{k}" for k in range(len(branches))]
        work = [
            replayed(
                without_limits(make, handle), traces[i], row, None, None, folder, f"{traces[i].trace_id_n[0]}/{k}"
            )
            for k, ((i, row, handle), folder) in enumerate(zip(branches, folders, strict=True))
        ]
        to_the_end(server.serve(work))
        return [load(folder) for folder in folders]


def model_steps(trace: Trace) -> list[tuple[int, str, int]]:
    """Of each event of one run that a model spoke in: its row, the agent, and the number of its step."""
    rows = [] if not len(trace.token_k) else np.unique(trace.owner_k).tolist()
    steps = [msgspec.json.decode(str(trace.extra_e["step"][row])) for row in rows]
    return [
        (row, str(trace.name_a[trace.agent_e[row]]), step["turn"]) for row, step in zip(rows, steps, strict=True)
    ]


# ---- the source


def play_settings(settings: Settings) -> PlaySettings:
    """How a live team speaks."""
    return PlaySettings(
        rows=settings.rows, width=settings.width, longest=settings.longest, remote=bool(settings.endpoint)
    )


@dataclass
class LiveTeam:
    """A source: runs of a live team, `settings.worlds` of each task, and branches where the method needs them."""

    settings: Settings
    live: Live | Program
    method: Method
    seed: int

    def rollouts(self, policy: Any) -> list[Rollouts]:
        """The runs of the next iteration, of all its tasks together."""
        settings, address = self.settings, self.seed * 1_000_003 + policy.iteration
        group = max(2, settings.worlds)
        many = max(1, settings.episodes // group)
        tasks = [task for task in self.live.questions(many, address, False) for _ in range(group)]
        groups = [f"{self.live.name} {policy.iteration}.{k}" for k in range(many) for _ in range(group)]
        dice = seeds(address, len(tasks))
        branches = list[Trace]()
        if isinstance(self.live, Program):
            how_to = play_settings(settings), str(policy.iteration)
            traces = self.live.play(policy.team, *how_to, tasks, address, groups)
            return self._rollouts(traces, branches)
        server = BatchServer(policy.team, play_settings(settings), str(policy.iteration))
        with generating(settings):
            traces, handles = play_runs(server, self.live.make, tasks, dice, groups)
            if "branches" in self.method.needs:
                how = settings.branched, settings.fresh, settings.branch_tokens
                branches = branch_runs(server, self.live.make, traces, handles, dice, *how)
        return self._rollouts(traces, branches)

    def _rollouts(self, traces: list[Trace], branches: list[Trace]) -> list[Rollouts]:
        score = earned(concat(traces))
        return [rollouts_of(choices_as_decisions(concat([*traces, *branches])), score[~np.isnan(score)])]


def judge_live(
    team: PolicyTeam, settings: Settings, live: Live | Program, n: int, seed: int = 0, held_out: bool = True
) -> Trace:
    """Runs on held-out tasks in which the likeliest is always said; in parts where all at once do not fit into
    memory."""
    tasks, dice = live.questions(n, seed, held_out), seeds(0x0DD + seed, n)

    def some(part: slice) -> list[Trace]:
        if isinstance(live, Program):
            groups = [live.name] * len(tasks[part])
            return live.play(team, play_settings(settings), "judged", tasks[part], seed, groups, True)
        server, own = BatchServer(team, play_settings(settings), "judged", greedy=True), tasks[part]
        return play_runs(server, live.make, own, dice[part], [live.name] * len(own), part.start)[0]

    with generating(settings):
        return concat([trace for traces in in_parts(team, n, some) for trace in traces])
