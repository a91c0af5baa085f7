"""One training of a language model, as a process of its own: `python -m bench.lm_jobs '{"kind": "world", ...}'` prints a line of JSON for what it was
before, one for each iteration, and one for what it is after so many seconds. `bench.lm_results` runs several of them side by side.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np
import torch

from bench.lm_credit import fidelity
from experiments.lm.exact import exact, sure_teams
from experiments.lm.explore import Practice, greedy_scores
from experiments.lm.practice import Coach, Lecture, paced, practised
from podium.audit.exactness import CLASSES, exactness
from podium.credit import Credit
from podium.credit.forest import copies
from podium.engine.local import engines_of
from podium.engine.models import PolicyTeam, policy_team
from podium.engine.protocol import Completion, Engine, Request, dice
from podium.envs.draws import seeds
from podium.envs.planted import Planted
from podium.envs.world import World, make, worlds
from podium.graph import critical_steps
from podium.learn.evaluate import Judged, beside
from podium.learn.lm.live import LiveTeam, earned, judge_live
from podium.learn.lm.live_run import find_live
from podium.learn.lm.losses import update_of
from podium.learn.lm.policy import LmPolicy
from podium.learn.lm.settings import Settings, generating, prepared
from podium.learn.lm.text_world import PlaySettings, TextWorlds, record
from podium.learn.lm.token_credit import TokenCredit
from podium.learn.loop import Rollouts, Source, learn
from podium.learn.params import TEST
from podium.learn.regimes import agents_of
from podium.methods import METHODS, Method
from podium.trace.columns import F, Text, Trace, concat
from podium.trace.vocabulary import DECISIONS, event

__all__ = ["ARMS", "JOBS", "LIVE_OURS", "OURS", "TRAJECTORY", "WORLDS", "Job", "ran"]

Line = dict[str, Any]
AT_ONCE = 128  # episodes of a look
LOOK = 5  # iterations between looks at what costs something to see
OURS, LIVE_OURS, TRAJECTORY = "branching_policy", "branching_turns", "grpo"


@dataclass(frozen=True)
class Job:
    """What one process does."""

    kind: str  # of JOBS
    name: str  # the world, the team or the task
    method: str = OURS
    seed: int = 0
    seconds: float = 120.0  # of training; getting ready and judging come on top
    model: str = "smollm2"
    device: str = "cuda"
    tiny: bool = False
    set: Mapping[str, Any] = field(default_factory=dict)  # settings of language models, instead of those here
    judged: int = 1_000  # episodes of each judgement
    most: int = 1_000_000  # iterations
    look: bool = False  # to choose settings by: judged on prices of training, not on those that are held out
    memory: float = (
        1.0  # of the card that it may take: what needs more does with less at once, and no other suffers
    )

    @property
    def id(self) -> str:
        more = "".join(f" {k}={v}" for k, v in self.set.items() if k in ("share", "lora"))
        return f"{self.kind} {self.name} {self.method}{more} seed {self.seed}"


# ---- settings

SMOL = Settings(
    rate=1e-4,
    warm=5,
    entropy=0.2,
    even=0.5,
    epochs=1,  # the update is what takes time: rather other episodes than the same again
    parts=12,
    digits=3,
    dtype="bfloat16",
    device="cuda",
    most_tokens=2_048,  # about 1 MiB each: many processes share the card
    rows=256,
    width=32,
    threads=2,
)
TINY = Settings(rate=3e-3, entropy=0.1, epochs=2, parts=4, digits=2, episodes=32, most=8)


def settings_of(job: Job, **more: Any) -> Settings:
    """The model's own settings, then those of the task, then those of the job."""
    base = TINY if job.tiny else SMOL
    given = {**({} if job.tiny else more), "model": "tiny" if job.tiny else job.model, **job.set}
    return replace(base, **given, **({} if job.tiny else {"device": job.device}))


# ---- time


def timed(job: Job, policy: LmPolicy, once: Callable[[float], Line]) -> Iterator[Line]:
    """Iterations for so many seconds, the last of which may end a little later; `once` is told how many there will be in all."""
    start, seconds = perf_counter(), job.seconds
    while (gone := perf_counter() - start) < seconds and policy.iteration < job.most:
        last = policy.iteration * seconds / gone if policy.iteration else float("inf")
        line = once(last)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # others are on the card
        yield {"event": "iteration", "clock": perf_counter() - start, **line}


def learned(
    policy: LmPolicy,
    source: Source,
    method: Method,
    update: str,
    last: float,
    keep: Callable[[int, Sequence[Rollouts], Sequence[Credit]], None] | None = None,
) -> Line:
    """One iteration of the loop, `last` of which there are: the rate falls to 0 until then."""
    policy.iterations = last
    iterations = policy.iteration + 1 if last == float("inf") else max(policy.iteration + 1, round(last))
    return next(learn(source, policy, method, update_of(update), iterations, keep)).line()


# ---- (a) text worlds

SIZES: dict[str, dict[str, Any]] = {  # what the issue fixes; prices are drawn
    "costly_search": {"most": 12},
    "sprt": {"p": 0.7, "most": 20},
    "scouts": {"widest": 9},
    "crew": {"W": 3, "N": 6},
    "relay": {"n": 2},
    "jury": {"m": 5},
}
WORLDS = tuple(SIZES)
TRAINED: dict[str, Callable[[np.random.Generator], Mapping[str, Any]]] = {
    **{name: world.training for name, world in worlds().items()},
    "costly_search": lambda d: {"c": float(np.exp(d.uniform(np.log(0.02), np.log(0.08))))},
    "jury": lambda d: {"s": int(d.choice([3, 5]))},
}
HELD_OUT: dict[str, list[dict[str, Any]]] = {"sprt": [{"c": 0.01}], "jury": [{"s": 2}, {"s": 4}]}
LEARNED: dict[str, dict[str, Any]] = {
    "scouts": {"most": 8}
}  # rounds while it learns: later ones are few, and long to read
JUDGED = {
    "costly_search": 3,
    "sprt": 2,
    "relay": 8,
    "jury": 24,
}  # times as many episodes at the end: outcomes are coins
LOOK = 0x100C  # the seed of prices to look at
UNSEEN = 100  # held-out draws before this were seen while settings were chosen
FAR = 30  # decisions of an episode that is judged, at most


def trained_on(name: str, seed: int, iteration: int, number: int) -> World:
    """A world to learn in: sizes are fixed, prices by address."""
    dice = np.random.default_rng([seed, iteration, number])
    return make(name, **{**TRAINED[name](dice), **SIZES[name]})


def judged_in(name: str, many: int, look: bool = False) -> list[World]:
    """Worlds to be judged in, which nobody learns in: the same sizes, prices as the world itself holds them out. For a look, prices as in training."""
    if look:
        return [trained_on(name, LOOK, 0, number) for number in range(many)]
    numbers = range(UNSEEN, UNSEEN + many)
    drawn = [dict(worlds()[name].held_out(np.random.default_rng([TEST, number]))) for number in numbers]
    return [make(name, **{**given, **SIZES[name]}) for given in HELD_OUT.get(name, drawn)]


def judged(job: Job, of: PolicyTeam, settings: Settings, episodes: int, many: int) -> list[Judged]:
    """The likeliest answers in held-out worlds."""
    how = replace(settings, most=settings.most if job.tiny else FAR)
    with generating(settings):
        return [
            beside(world, lambda dice, world=world: greedy_scores(world, of, how, dice), episodes)
            for world in judged_in(job.name, many, job.look)
        ]


def told(found: list[Judged]) -> Line:
    """Means over worlds, and the worlds."""
    return {
        **{
            k: float(np.mean([getattr(j, k) for j in found]))
            for k in ("value", "optimum", "trivial", "regret", "share")
        },
        "se": float(np.sqrt(np.mean([j.error**2 for j in found]) / len(found))),
        "worlds": [j._asdict() for j in found],
    }


def play_settings(settings: Settings) -> PlaySettings:
    return PlaySettings(digits=settings.digits, most=settings.most or 30, rows=settings.rows, width=settings.width)


def team_of(job: Job, settings: Settings, agents: Sequence[str]) -> PolicyTeam:
    how: Any = settings.share
    made = policy_team(settings.model, agents, share=how, lora=settings.lora, seed=job.seed, device=settings.device)
    return prepared(made, settings)


def lessons(
    job: Job,
    settings: Settings,
    method: Method,
    made: PolicyTeam,
    drawn: Callable[[int, int], World],
    seen: Callable[[Trace], Line] = lambda trace: {},
) -> Iterator[Line]:
    """Learning in worlds for so many seconds, a line an iteration: what it did, and what is `seen` of its traces."""
    update = settings.update or method.update
    policy = LmPolicy(made, job.seed, settings, 1.0, update_of(update))
    source = TextWorlds(settings, play_settings(settings), drawn, method, job.seed)
    looked: Line = {}

    def keep(number: int, rollouts: Sequence[Rollouts], credit: Sequence[Credit]) -> None:
        looked.update(seen(rollouts[0].trace))

    if not job.tiny:
        start = perf_counter()
        ready = LmPolicy(made, job.seed, replace(settings, rate=0.0), 1.0, update_of(update))
        learned(ready, source, method, update, float("inf"))  # kernels are compiled; nothing is learned
        yield {"event": "ready", "seconds": perf_counter() - start}
    yield from timed(job, policy, lambda last: learned(policy, source, method, update, last, keep) | looked)


def ended(lines: Iterator[Line], sums: dict[str, int]) -> Iterator[Line]:
    """The lines, counting what all iterations took."""
    for line in lines:
        if line["event"] == "iteration":
            sums["iterations"] = sums.get("iterations", 0) + 1
            for name in ("decisions", "weighed", "tokens", "spoken"):
                sums[name] = sums.get(name, 0) + line.get(name, 0)
        yield line


def flat(settings: Settings, method: Method, times: int) -> Settings:
    """Without branches as many more runs, so that about as much is generated."""
    return settings if "branches" in method.needs else replace(settings, episodes=settings.episodes * times)


def world_job(job: Job) -> Iterator[Line]:
    """A text world, by the state: before, while it learns, after. By trajectory-level credit as many tokens are read in an iteration, of more episodes."""
    given = {k: v for k, v in job.set.items() if k in Practice.__dataclass_fields__}
    ours = job.method == OURS
    mine = {"budget": 260_000, "learned": 65_000} if ours else {"rehearsed": 0}
    small = {"budget": 10_000, "learned": 2_000, "at_least": 2, "at_most": 16, "step": 1_000, "fits": 4}
    tiny = {**small, "rehearsed": 300 if ours else 0} if job.tiny else {}
    how = replace(Practice(), **{**mine, **tiny, **given})
    rest = {k: v for k, v in job.set.items() if k not in given}
    settings = settings_of(
        replace(job, set=rest),
        worlds=4 if ours else 2,
        rate=5e-5,
        warm=4 if ours else 8,
        entropy=0.1,
        most_tokens=16_384,
        **LEARNED.get(job.name, {}),
    )
    first = trained_on(job.name, job.seed, 0, 0)
    made = team_of(job, settings, agents_of(first))
    coach = Coach(first, settings, how, job.seed, apart=not job.tiny) if how.rehearsed else None
    yield {"event": "before", **told(judged(job, made, settings, max(job.judged // 4, 50), 1))}
    policy = LmPolicy(made, job.seed, settings, 1.0)
    lecture: Lecture | None = None

    def once(last: float) -> Line:
        nonlocal lecture
        drawn, each = (lambda i, k: trained_on(job.name, job.seed, i + 1, k)), paced(how, lecture)
        lecture = practised(policy, settings, how, drawn, last, each, coach)
        return lecture._asdict()

    sums: dict[str, int] = {}
    yield from ended(timed(job, policy, once), sums)
    if coach is not None:
        coach.aside.end()
    start = perf_counter()
    many = job.judged if job.tiny else job.judged * JUDGED.get(job.name, 1)
    after = told(judged(job, made, settings, many, 2))
    told_how = {"settings": asdict(settings), "practice": asdict(how)}
    yield {"event": "after", **after, **sums, "judging": perf_counter() - start, **told_how}


# ---- (c) credit


def planted_of(job: Job) -> Planted:
    """The team of the job's name, "planted NUMBER", among those whose credit is known exactly."""
    number = int(job.name.split()[-1])
    return sure_teams(number + 1, *((2, 5) if job.tiny else (3, 8)))[number]


def method_of(name: str) -> Method:
    """C3 at the decisions that are branched: of several in one turn each is an alternative of its own."""
    if name == "c3":
        return replace(METHODS["c3_reward_only"], unit="orchestrator", pays="orchestrator")
    return METHODS[name]


def fidelity_job(job: Job) -> Iterator[Line]:
    """How true credit is, by the model as it comes."""
    world, settings = planted_of(job), settings_of(job)
    made, play = team_of(job, settings, agents_of(world)), play_settings(settings)
    with generating(settings):
        for line in fidelity(world, made, play, 8 if job.tiny else 32, 4, job.seed):
            yield {"event": "fidelity", **line}


def planted_job(job: Job) -> Iterator[Line]:
    """A planted team: what the policy is worth exactly, before, after, and at some iterations, with the tokens that were generated until then."""
    world, method = planted_of(job), method_of(job.method)
    settings = flat(settings_of(job, episodes=64, parts=4), method, 2)
    made, play = team_of(job, settings, agents_of(world)), play_settings(settings)
    bounds = {"optimum": world.optimum(), "trivial": world.plan[1]}

    def worth() -> float:
        with generating(settings):
            return exact(world, made, play).start

    yield {"event": "before", "value": worth(), **bounds}
    sums: dict[str, int] = {}
    for line in ended(lessons(job, settings, method, made, lambda i, k: world, said_in), sums):
        yield line
        if line["event"] == "iteration" and not line["iteration"] % LOOK:
            yield {"event": "look", "value": worth(), "spoken": sums["spoken"], "clock": line["clock"]}
    yield {"event": "after", "value": worth(), **bounds, **sums, "settings": asdict(settings)}


def said_in(trace: Trace) -> Line:
    """Tokens that the model said, none of them twice."""
    rows = np.arange(trace.n_events)
    own = ~copies(trace, rows) & (trace.version_e.codes >= 0)
    return {"spoken": int(np.nansum(trace.tokens_out_e[own]))}


# ---- (d) width

SERIAL = {"c": 0.013, "latency": 0.05, "widest": 9}  # a round costs as much as four workers: six at once are best
PARL, CONSTANT = "parl(1.0, 0.1, most=12, end=0.5)", "outcome + 1.0 * instantiate(12) + 0.1 * finish(none=0.0)"
ARMS: dict[str, tuple[str, float, bool]] = {  # reward, entropy, and whether it begins at one scout at a time
    "parl": (PARL, 0.0, True),
    "plain": ("outcome", 0.0, True),
    "entropy": ("outcome", 0.3, True),
    "constant": (CONSTANT, 0.0, True),
    "own_parl": (PARL, 0.0, False),
    "own_plain": ("outcome", 0.0, False),
}
SELDOM, ENOUGH = 0.05, 0.25  # of whom it imitates: another width than one, and to stop once there is an answer
IMITATED = 6  # iterations


class Serial:
    """An engine that says what a lead would that nearly always spawns one scout, whatever the model would say: where training begins,
    as in the structured world."""

    constrained = True

    def __init__(self, engine: Engine, end: int) -> None:
        self.engine, self.end, self.model, self.version = engine, end, engine.model, engine.version

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """What it says to each, and how likely the model was to say it."""
        answers = []
        for request, answer, u in zip(requests, self.engine.complete(requests), dice(requests), strict=True):
            stop, many = ENOUGH if request.context.parent else 0.0, len(request.options)
            odds = np.array([stop, (1 - stop) * (1 - SELDOM)] + [(1 - stop) * SELDOM / (many - 2)] * (many - 2))
            k = min(int(np.searchsorted(np.cumsum(odds), u, side="right")), many - 1)
            ids, logp = (*request.options[k], self.end), answer.option_logp[k]
            answers.append(answer._replace(ids=ids, logp=logp, option=k))
        return answers


def imitated(job: Job, settings: Settings, made: PolicyTeam, world: World, play: PlaySettings) -> None:
    """The model learns to say what `Serial` picks."""
    how = replace(settings, warm=0, entropy=0.0, kl=0.0)
    policy = LmPolicy(made, job.seed, how, 1.0)
    for i in range(1 if job.tiny else IMITATED):
        luck = seeds(job.seed * 1_000_003 + 0x57A7, settings.episodes, i * settings.episodes)
        every = engines_of(made, "0", play.rows, play.width, False)
        engines: dict[str, Engine] = {name: Serial(one, made.model.end) for name, one in every.items()}
        with generating(settings):
            trace, _ = record(world, made, luck, play, version="0", task="start", engines=engines)
        said = ((trace.mask_k == 1) & (trace.logp_k != 0.0)).astype(np.float64)
        policy.iterations = float("inf")
        policy.gradient_steps(update_of("reinforce"), [(trace, TokenCredit(said, said, trace.logp_k, None))])
        policy.iteration += 1


def parl_job(job: Job) -> Iterator[Line]:
    """Scouts, by PARL's credit, with the rewards of `ARMS`: how wide and how deep the model's teams are, from a start at which it mostly spawns one scout at
    a time, as in the structured world, or from the model as it comes."""
    reward, entropy, taught = ARMS[job.method]
    method = replace(METHODS["parl"], reward=job.set.get("reward", reward))
    rest = {k: v for k, v in job.set.items() if k != "reward"}
    how = {"episodes": 128, "entropy": entropy, "most": 8, "parts": 8, "most_tokens": 8_192}
    settings = settings_of(replace(job, set=rest), **how)
    world = make("scouts", **SERIAL)
    made, play = team_of(job, settings, agents_of(world)), play_settings(settings)

    def spread(many: int) -> Line:
        some = [seeds(1, min(AT_ONCE, many - i), i) for i in range(0, many, AT_ONCE)]
        with generating(settings):
            traces = [record(world, made, luck, play, version="0", task="look")[0] for luck in some]
        trace = concat([replace(t, trace_id_n=named_apart(t, i)) for i, t in enumerate(traces)])
        return shape(trace) | {"value": float(trace.reward_n["team"].mean())}

    best: Any = world
    bounds = {"optimum": world.optimum(), "best width": best.best_width()}
    if taught:
        yield {"event": "untaught", **spread(job.judged // 4)}
        imitated(job, settings, made, world, play)
    yield {"event": "before", **spread(job.judged // 4), **bounds}
    sums: dict[str, int] = {}
    yield from ended(lessons(job, settings, method, made, lambda i, k: world, shape), sums)
    yield {
        "event": "after",
        **spread(job.judged),
        **bounds,
        **sums,
        "settings": asdict(settings),
        "reward": method.reward,
    }


def named_apart(trace: Trace, number: int) -> Text:
    """The names of runs that were played `number` calls later."""
    return Text.of([f"{number}/{name}" for name in trace.trace_id_n.strings()])


def shape(trace: Trace) -> Line:
    """Scouts in a round, rounds, and steps with what is parallel counted once; means over episodes, as the policy speaks."""
    spawns = float((trace.type_e == event("spawn")).sum())
    rounds = float((trace.decision_e == DECISIONS.index("spawn")).sum())
    return {
        "width": spawns / max(rounds, 1.0),
        "rounds": rounds / len(trace),
        "critical": float(critical_steps(trace).mean()),
    }


# ---- (b) and live teams


def live_job(job: Job) -> Iterator[Line]:
    """A live team of the harness: before, while it learns, after; what each role is paid and the length of its gradient."""
    live, method = find_live(job.name), METHODS[job.method]
    given = {"episodes": 128, "worlds": 8, "parts": 8, "entropy": 0.5}  # eight runs of each question
    settings = flat(settings_of(job, **given), method, 3)
    settings = replace(settings, worlds=4) if job.tiny else settings
    update, made = settings.update or method.update, team_of(job, settings, live.agents)
    many = max(job.judged // 4, 20)

    def success(seed: int = 0) -> Line:
        return succeeded(earned(judge_live(made, settings, live, many, seed)))

    yield {"event": "before", **success(), "optimum": live.optimum}
    policy = LmPolicy(made, job.seed, settings, 1.0, update_of(update))
    source = LiveTeam(settings, live, method, job.seed)
    exactly: Line = {}

    def keep(number: int, rollouts: Sequence[Rollouts], credit: Sequence[Credit]) -> None:
        if not number % LOOK:
            exactly["exact"] = classes(rollouts[0].trace)

    def once(last: float) -> Line:
        policy.look_at_roles = not policy.iteration % LOOK
        line = learned(policy, source, method, update, last, keep)
        return line | (exactly if policy.look_at_roles else {})

    if not job.tiny:
        start = perf_counter()
        ready = LmPolicy(made, job.seed, replace(settings, rate=0.0), 1.0, update_of(update))
        learned(ready, source, method, update, float("inf"))
        yield {"event": "ready", "seconds": perf_counter() - start}
    roles: Line = {}
    sums: dict[str, int] = {}
    for line in ended(timed(job, policy, once), sums):
        roles = line.get("roles") or roles
        yield line
    after = success(seed=1)
    yield {
        "event": "after",
        **after,
        "optimum": live.optimum,
        **sums,
        "runs": sums.get("iterations", 0) * settings.episodes,
        "roles": roles,
        "settings": asdict(settings),
    }


def succeeded(reward: F) -> Line:
    """The mean reward, and the share of runs whose answer was right."""
    return {"value": float(reward.mean()), "success": float((reward > 0.5).mean()), "episodes": len(reward)}


def classes(trace: Trace) -> dict[str, int]:
    """How exact the tokens of a trace are, as `podium check --tokens` counts it."""
    found = exactness(trace)
    return {name: found.count(name) for name in CLASSES}


JOBS: dict[str, Callable[[Job], Iterator[Line]]] = {
    "world": world_job,
    "fidelity": fidelity_job,
    "planted": planted_job,
    "parl": parl_job,
    "live": live_job,
}


def ran(job: Job) -> Iterator[Line]:
    """The lines of a job, each with its name."""
    torch.set_num_threads(1 if job.tiny else 2)
    if not job.tiny:
        torch.set_float32_matmul_precision("high")
    if job.device == "cuda" and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(job.memory)
    for line in JOBS[job.kind](job):
        if line["event"] == "after" and torch.cuda.is_available():
            line["gib"] = torch.cuda.max_memory_reserved() / 2**30
        yield {"id": job.id, **line}


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    for line in ran(job):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
