"""Live teams of the harness, played by language models: many runs at once, what all their agents ask answered together, every token on record.

An agent's step asks the *door* for one of some options (`Seat.say`). When nobody has anything to do but wait for an answer, the door reads all prompts in a few forward
passes, weighs the options, draws by the dice of each step, and the runs go on. A branch is the harness' own replay of a run from a step on, in which another option is
said there. What comes out is a trace of the harness with the tokens on its events: credit and update read nothing else (`lifted`, then `train.learned`).
Time on record is counted, not measured (`counted`), so that the same seed gives the same bytes.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from podium.audit.permissions import role_of_agents
from podium.credit import apply
from podium.envs.draws import U, seeds, uniform
from podium.harness import Fault, play
from podium.harness.replay import replayed
from podium.harness.run import to_the_end
from podium.harness.team import BadTeam
from podium.harness.team import Team as Staff
from podium.harness.types import Said, See
from podium.learn.lm.endpoint import BadEndpoint, Request
from podium.learn.lm.generate import SPEECH, picked
from podium.learn.lm.losses import Update
from podium.learn.lm.models import BadModel, Mind, Team, in_parts, role_of
from podium.learn.lm.office import Speak
from podium.learn.lm.play import Manner, Pick, likeliest_of, options_of, reader_of, weighed
from podium.learn.lm.reader import Reader
from podium.learn.lm.train import Learner, Lesson, Settings, learned, paid, role_gradients, speaking
from podium.learn.loop import Stopwatch
from podium.learn.mix import shares
from podium.learn.requirements import with_step_rewards
from podium.methods import Method, scored
from podium.rewards.ledger import Now
from podium.trace.columns import F, Text, Trace, concat
from podium.trace.files import load
from podium.trace.tokens import digest
from podium.trace.vocabulary import DECISIONS, Decision

__all__ = [
    "Door",
    "Live",
    "Seat",
    "branched",
    "earned",
    "judged",
    "lifted",
    "listed",
    "live_step",
    "played",
    "success",
]

CALM = 16  # rounds of the event loop without another question, after which all that were asked are answered
MARK = 0x11FE  # the address of what is drawn for branches
TICK = 1e-3  # seconds on record from one thing that happens to the next


class Spoke(NamedTuple):
    """What an agent's model was given and said in a step."""

    before: Spoke | None  # the step of the same agent whose context it extends
    home: Seat  # whose thread it is in
    thread: int
    length: int  # tokens of the thread before what was said ...
    state: int  # ... and the reader's state there
    given: tuple[int, ...]
    options: tuple[str, ...]
    said: tuple[int, ...]
    ways: tuple[tuple[float, ...], ...]  # log-probabilities of the tokens of each option

    @property
    def start(self) -> int:
        """Tokens of the context that comes before."""
        return 0 if self.before is None else self.before.end

    @property
    def end(self) -> int:
        return self.start + len(self.given) + len(self.said)

    def context(self) -> tuple[int, ...]:
        """All tokens up to what was said, as they were given and said."""
        above = () if self.before is None else self.before.context()
        return (*above, *self.given, *self.said)


class Ask(NamedTuple):
    """A question that waits."""

    seat: Seat
    see: See
    mind: Mind
    kind: Decision
    before: Spoke | None
    given: tuple[int, ...]
    options: tuple[str, ...]
    answer: asyncio.Future[tuple[str, Said]]


@dataclass(eq=False)
class Seat:
    """A run at the door: what its agents have said, and in a branch what one of them is made to say."""

    door: Door
    parent: Seat | None = None
    forced: tuple[str, int, str] | None = None  # the agent, its step, the option
    spoke: dict[tuple[str, int], Spoke] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)  # the step from which an agent is live here

    async def say(self, see: See, kind: Decision, prompt: str, options: Sequence[str]) -> tuple[str, Said]:
        """One of the options, and what the model read and said for it."""
        self.since.setdefault(see.name, see.turn)
        if self.forced is not None and self.forced[:2] == (see.name, see.turn):
            return self._forced(see, kind, self.forced[2])
        return await self.door.asked(self, see, kind, prompt, tuple(options))

    def before(self, agent: str, turn: int) -> Spoke | None:
        """What an agent said last: here, or where this run branched off, in steps that are on record."""
        own = [t for name, t in self.spoke if name == agent and t < turn]
        if own:
            return self.spoke[agent, max(own)]
        return None if self.parent is None else self.parent.before(agent, self.since.get(agent, turn))

    def _forced(self, see: See, kind: Decision, option: str) -> tuple[str, Said]:
        """It was made to say this; how likely it was to is known."""
        assert self.parent is not None
        was = self.parent.at(see.name, see.turn)
        mind = self.door.mind(see)
        k = was.options.index(option)
        told = was._replace(said=options_of(mind, was.options).paths[k])
        self.spoke[see.name, see.turn] = told
        return option, self.door.told(mind, told, kind, option, "forced")

    def at(self, agent: str, turn: int) -> Spoke:
        if (agent, turn) in self.spoke:
            return self.spoke[agent, turn]
        assert self.parent is not None
        return self.parent.at(agent, turn)


class Door:
    """Where agents of live teams ask what to say. One door is one set of weights: after an update there is another."""

    def __init__(self, team: Team, manner: Manner, version: str, pick: Pick = picked) -> None:
        self.team, self.manner, self.version, self.pick = team, manner, version, pick
        self.readers: dict[str, Reader] = {}
        self.waiting: list[Ask] = []
        self.failed: BaseException | None = None  # what ends everything
        self.lost = self.heard = 0  # answers of endpoints

    def mind(self, see: See) -> Mind:
        """The policy of whoever sees this: that of its role."""
        return self.team.minds[self.team.of(see.role)]

    async def asked(
        self, seat: Seat, see: See, kind: Decision, prompt: str, options: tuple[str, ...]
    ) -> tuple[str, Said]:
        """Waits for an answer. Raises Fault where there is none."""
        if self.failed is not None:
            raise Fault("endpoint", "the door is shut")
        try:
            mind, before = self.mind(see), seat.before(see.name, see.turn)
        except BadModel as error:  # to the harness it were one more fault of an agent
            self.failed = error
            raise Fault("endpoint", str(error)) from None
        frame, ids = mind.model.frame, mind.model.ids
        given = (*(frame.open if before is None else frame.again), *ids(prompt), *frame.ask)
        answer: asyncio.Future[tuple[str, Said]] = asyncio.get_running_loop().create_future()
        self.waiting.append(Ask(seat, see, mind, kind, before, given, options, answer))
        return await answer

    async def open(self, work: Sequence[Any]) -> None:
        """Does all of this at once, answering whatever is asked meanwhile. Raises what ended it: a model or an endpoint that cannot be used."""
        tasks = [asyncio.ensure_future(one) for one in work]
        everything = asyncio.gather(*tasks)
        calm, seen = 0, 0
        try:
            while not everything.done():
                await asyncio.sleep(0)
                calm, seen = (calm + 1, seen) if len(self.waiting) == seen else (0, len(self.waiting))
                if self.waiting and calm >= CALM:
                    self._answer()
                    calm, seen = 0, 0
                elif not self.waiting and calm >= 4 * CALM:
                    await asyncio.sleep(1e-3)  # somebody waits for a clock
            await everything
        finally:
            for task in tasks:
                task.cancel()
        if self.failed is not None:
            raise self.failed
        if self.heard and self.lost == self.heard:
            raise BadEndpoint(f"endpoints gave none of {self.heard} answers; nothing was learned from this")

    def _answer(self) -> None:
        """Answers all that waits, policy by policy."""
        asks, self.waiting = [ask for ask in self.waiting if not ask.answer.cancelled()], []
        for name in dict.fromkeys(ask.mind.name for ask in asks):
            some = [ask for ask in asks if ask.mind.name == name]
            try:
                if self.failed is None:
                    (self._remote if self._voice(some[0].mind) else self._local)(some)
            except BadModel as error:
                self.failed = error
            for ask in some:
                if not ask.answer.done():
                    ask.answer.set_exception(Fault("endpoint", str(self.failed or "no answer")))

    def _voice(self, mind: Mind) -> Any:
        return mind.voice if mind.frozen or self.manner.remote else None

    def _threads(self, reader: Reader, asks: list[Ask]) -> tuple[Any, list[tuple[int, ...]]]:
        """A thread of each, with all that comes before what is new; and what is new to read."""
        threads, news, moved = [], [], []
        for ask in asks:
            was = ask.before
            if was is None:
                thread = int(reader.threads(1, ask.mind)[0])
            elif was.home is ask.seat:
                thread = was.thread
                reader.rewind(np.array([thread]), np.array([was.length]), np.array([was.state]))
            else:
                thread = int(reader.threads(1, ask.mind)[0])
                moved.append((was, thread))
            threads.append(thread)
            news.append(ask.given if was is None else (*was.said, *ask.given))
        if moved:
            new = np.array([thread for _, thread in moved])
            reader.copy(np.array([was.thread for was, _ in moved]), new)
            reader.rewind(
                new, np.array([was.length for was, _ in moved]), np.array([was.state for was, _ in moved])
            )
        return np.array(threads), news

    def _local(self, asks: list[Ask]) -> None:
        mind = asks[0].mind
        reader = reader_of(self.readers, self.team, mind, self.manner)
        threads, news = self._threads(reader, asks)
        columns = sorted({token for some in {ask.options for ask in asks} for token in options_of(mind, some).ids})
        first = reader.read(threads, news, columns=columns)
        length, state = reader.length[threads].copy(), reader.state[threads].copy()
        dice = uniform(np.array([ask.see.seed for ask in asks], np.uint64), SPEECH)
        for listed in dict.fromkeys(ask.options for ask in asks):
            here = np.array([i for i, ask in enumerate(asks) if ask.options == listed])
            options = options_of(mind, listed)
            tokens, total = weighed(options, reader, threads[here], first[here], columns)
            rows = [some.tolist() for some in tokens]
            for j, (i, k) in enumerate(zip(here.tolist(), self.pick(total, dice[here]).tolist(), strict=True)):
                ways = tuple(tuple(some[j]) for some in rows)
                at = int(threads[i]), int(length[i]), int(state[i])
                self._spoken(asks[i], at, options.paths[k], ways, listed[k])
        reader.rewind(threads, length, state)

    def _spoken(self, ask: Ask, at: tuple[int, int, int], said: tuple[int, ...], ways: Any, option: str) -> None:
        told = Spoke(ask.before, ask.seat, *at, ask.given, ask.options, said, ways)
        ask.seat.spoke[ask.see.name, ask.see.turn] = told
        ask.answer.set_result((option, self.told(ask.mind, told, ask.kind, option, "constrained")))

    def told(self, mind: Mind, spoke: Spoke, kind: Decision, option: str, how: str) -> Said:
        """A step's tokens as its event has them. What an agent was made to say was given to it."""
        k, own = spoke.options.index(option), how != "forced"
        return Said(
            [*spoke.given, *spoke.said],
            [*(None for _ in spoke.given), *spoke.ways[k]],
            [*(False for _ in spoke.given), *(own for _ in spoke.said)],
            spoke.start,
            spoke.start > 0,
            how,
            digest(np.array([*self.readers[mind.name].held(spoke.state), *spoke.said])),
            {"kind": kind, "options": list(spoke.options), "chosen": option},
            [float(np.exp(sum(some))) for some in spoke.ways],
        )

    def _remote(self, asks: list[Ask]) -> None:
        """Whatever an endpoint says, if it is one of the options; else a fault."""
        mind = asks[0].mind
        voice, end = self._voice(mind), mind.model.frame.end
        seeds_ = [int(ask.see.seed) % 2**31 for ask in asks]
        above = [() if ask.before is None else ask.before.context() for ask in asks]
        sent = [Request((*a, *ask.given), s) for a, ask, s in zip(above, asks, seeds_, strict=True)]
        temperature = 0.0 if self.pick is likeliest_of else 1.0
        spoken = voice.answers(mind.model, sent, self.manner.longest, temperature, self.manner.rows)
        for ask, one in zip(asks, spoken, strict=True):
            self.heard += 1
            words = mind.model.text([t for t in one.ids if t != end]).strip()
            if one.fault is not None or words not in ask.options:
                self.lost += one.fault is not None
                why = one.fault or f"{words!r} is not an option here; expected one of: {', '.join(ask.options)}"
                ask.answer.set_exception(Fault("endpoint" if one.fault else "nonsense", why))
                continue
            told = Spoke(ask.before, ask.seat, -1, -1, -1, ask.given, ask.options, tuple(one.ids), ())
            ask.seat.spoke[ask.see.name, ask.see.turn] = told
            mask = [*(False for _ in ask.given), *(True for _ in one.ids)]
            choice = {"kind": ask.kind, "options": list(ask.options), "chosen": words}
            logps = [*(None for _ in ask.given), *one.logp]
            said = Said([*ask.given, *one.ids], logps, mask, told.start, told.start > 0, "free", None, choice)
            ask.answer.set_result((words, said))


# ---- runs and branches


Questions = Callable[[int, int, bool], list[Any]]  # so many tasks by a seed; held out, or to learn from


class Live(NamedTuple):
    """A live team that can be trained."""

    name: str
    staff: Callable[[Speak], Staff]  # the team, given who speaks for its agents
    agents: tuple[str, ...]  # the roles that a model speaks for, "lead" among them if it does
    questions: Questions
    optimum: float = float("nan")  # what the best team earns, if that is known


def listed(learn: Sequence[Any], held_out: Sequence[Any]) -> Questions:
    """Tasks out of two lists: those to learn from are drawn by the seed, those held out come in their order, again and again.

    >>> listed(["a", "b"], ["c", "d"])(3, 0, True)
    ['c', 'd', 'c']
    """
    if not learn or not held_out:
        raise BadTeam(f"expected tasks to learn from and others held out, got {len(learn)} and {len(held_out)}")

    def questions(n: int, seed: int, held: bool) -> list[Any]:
        if held:
            return [held_out[i % len(held_out)] for i in range(n)]
        return [learn[i] for i in np.random.default_rng([seed, 0x7A5C]).integers(len(learn), size=n).tolist()]

    return questions


def counted() -> Callable[[], float]:
    """A clock that shows how often it was asked, in milliseconds: what is recorded by it is the same whenever it happens.

    >>> clock = counted()
    >>> clock(), clock()
    (0.0, 0.001)
    """
    ticks = count()
    return lambda: next(ticks) * TICK


def seated(staff: Callable[[Speak], Staff], seat: Seat) -> Staff:
    """The team at its seat. Its steps may take any time: they wait until all others have been asked."""
    made = staff(seat.say)
    cast = {name: replace(role, seconds=None) for name, role in made.cast.items()}
    return replace(made, lead=replace(made.leader, seconds=None), roles=cast)


def earned(trace: Trace) -> F:
    """What each run earned; NaN where nobody could say."""
    return np.asarray(trace.reward_n.get("team", np.full(len(trace), np.nan)), np.float64)


def _desk() -> tempfile.TemporaryDirectory[str]:
    """A folder for records that are read at once, in memory where there is such a place."""
    shm = Path("/dev/shm")
    return tempfile.TemporaryDirectory(prefix="podium-", dir=shm if shm.is_dir() else None)


def played(
    door: Door,
    staff: Callable[[Speak], Staff],
    tasks: Sequence[Any],
    seed: U,
    groups: Sequence[str],
    first: int = 0,
) -> tuple[list[Trace], list[Seat]]:
    """Runs of a team, one a task, all at once: their traces, numbered from `first`, and their seats at the door, from which branches can go on."""
    seats = [Seat(door) for _ in tasks]
    with _desk() as desk:
        folders = [Path(desk) / f"{i}" for i in range(len(tasks))]
        work = [
            play(
                seated(staff, seat),
                task,
                folder=folder,
                clock=counted(),
                seed=int(s >> np.uint64(16)),
                task_id=group,
                trace_id=f"{group}#{i}",
            )
            for i, (seat, task, folder, s, group) in enumerate(
                zip(seats, tasks, folders, seed, groups, strict=True), first
            )
        ]
        to_the_end(door.open(work))
        return [load(folder) for folder in folders], seats


def branched(
    door: Door,
    staff: Callable[[Speak], Staff],
    traces: Sequence[Trace],
    seats: Sequence[Seat],
    seed: U,
    share: float,
) -> list[Trace]:
    """Branches of a share of what was said: each other option, in the harness' own replay from that step on, with the same dice. What an endpoint
    said is not branched: nobody weighed what else it could have said."""
    asked: list[tuple[int, int, Seat]] = []
    for i, (trace, seat) in enumerate(zip(traces, seats, strict=True)):
        for row, agent, turn in _said(trace):
            if float(uniform(seed[i], MARK, row)) >= share or not seat.at(agent, turn).ways:
                continue
            choice = _choice(trace, row)
            others = [option for option in choice["options"] if option != choice["chosen"]]
            asked += [(i, row, Seat(door, seat, (agent, turn, option))) for option in others]
    with _desk() as desk:
        folders = [Path(desk) / f"{k}" for k in range(len(asked))]
        work = [
            replayed(seated(staff, seat), traces[i], row, None, None, folder, f"{traces[i].trace_id_n[0]}/{k}")
            for k, ((i, row, seat), folder) in enumerate(zip(asked, folders, strict=True))
        ]
        to_the_end(door.open(work))
        return [load(folder) for folder in folders]


def _said(trace: Trace) -> list[tuple[int, str, int]]:
    """Of each event of one run with a choice of a model: its row, the agent, and the number of its step."""
    if "choice" not in trace.extra_e:
        return []
    rows = np.flatnonzero(trace.extra_e["choice"].codes >= 0).tolist()
    steps = [msgspec.json.decode(str(trace.extra_e["step"][row])) for row in rows]
    return [
        (row, str(trace.name_a[trace.agent_e[row]]), step["turn"]) for row, step in zip(rows, steps, strict=True)
    ]


def _choice(trace: Trace, row: int) -> dict[str, Any]:
    """What a model chose among, and what it chose: kind, options, chosen."""
    told: dict[str, Any] = msgspec.json.decode(str(trace.extra_e["choice"][row]))
    return told


def lifted(trace: Trace) -> Trace:
    """The trace as credit and update read it: every choice of a model is a decision, with the options that the model had.

    To the harness a call of a tool is a call, and a spawn a choice of a role; what the model chose among is in the field `choice`. The harness marks
    what was not valid; what it does not mark of a model's choices is. An agent whose name does not say its role is called by it, and by its number.
    """
    if "choice" not in trace.extra_e:
        return trace
    rows = np.flatnonzero(trace.extra_e["choice"].codes >= 0).tolist()
    decision, logp, valid = np.array(trace.decision_e), np.array(trace.logp_e), np.array(trace.valid_e)
    valid[rows] = np.where(valid[rows] < 0, 1, valid[rows])
    chosen, offered = (
        trace.chosen_e.strings(),
        {row: trace.options(row) for row in np.unique(trace.event_o).tolist()},
    )
    said_e = np.bincount(trace.owner_k, ~np.isnan(trace.logp_k), minlength=trace.n_events)
    first = np.searchsorted(trace.owner_k, np.arange(trace.n_events + 1))
    for row in rows:
        choice = _choice(trace, row)
        decision[row] = DECISIONS.index(choice["kind"])
        offered[row], chosen[row] = choice["options"], choice["chosen"]
        logp[row] = np.nansum(trace.logp_k[first[row] : first[row + 1]])
    none = np.full(sum(map(len, offered.values())), -1)
    return replace(
        trace,
        name_a=_by_roles(trace),
        decision_e=decision,
        chosen_e=Text.of(chosen),
        event_o=np.repeat(np.array(sorted(offered), np.int32), [len(offered[row]) for row in sorted(offered)]),
        label_o=Text.of(label for row in sorted(offered) for label in offered[row]),
        number_o=none,
        item_o=none,
        logp_o=np.full(len(none), np.nan),
        logp_e=logp,
        tokens_out_e=np.where(np.isnan(trace.tokens_out_e) & (said_e > 0), said_e, trace.tokens_out_e),
        valid_e=valid,
    )


def _by_roles(trace: Trace) -> Text:
    """Names from which `role_of` reads the role: "scout-2" is scout 2, if it is the second scout of its run."""
    role_a, met = [*trace.role_e.words, None], dict[tuple[int, str], int]()
    names = trace.name_a.strings()
    for a, (run, code) in enumerate(zip(trace.rollout_a.tolist(), role_of_agents(trace).tolist(), strict=True)):
        role = role_a[code]
        if role is None or role_of(str(names[a])) == role:
            continue
        met[run, role] = met.get((run, role), 0) + 1
        names[a] = f"{role} {met[run, role]}"
    return Text.of(names)


# ---- learning


def live_step(
    learner: Learner,
    settings: Settings,
    live: Live,
    method: Method,
    update: Update,
    last: float,
    kept: Callable[[Trace], None] | None = None,
    look: bool = True,
) -> tuple[Lesson, dict[str, dict[str, float]]]:
    """One iteration of `last`: runs of a live team, branches if the method needs them, credit, gradient steps. And, if one is to `look`, of each role its
    credit and its gradient.

    `settings.episodes` runs, `settings.worlds` of each task; `kept` is handed the trace as the harness recorded it.
    """
    watch = Stopwatch()
    group = max(2, settings.worlds)
    many = max(1, settings.episodes // group)
    tasks = live.questions(many, learner.seed * 1_000_003 + learner.iteration, False)
    tasks, numbers = [task for task in tasks for _ in range(group)], np.repeat(np.arange(many), group)
    dice = seeds(learner.seed * 1_000_003 + learner.iteration, len(tasks))
    groups = [f"{live.name} {learner.iteration}.{k}" for k in numbers.tolist()]
    door = Door(learner.team, manner_of(settings), str(learner.iteration))
    with speaking(settings):
        traces, seats = played(door, live.staff, tasks, dice, groups)
        grown = (
            branched(door, live.staff, traces, seats, dice, settings.branched) if "branches" in method.needs else []
        )
    whole = concat([*traces, *grown])
    score = float(np.nanmean(earned(concat(traces))))
    watch.lap("rollout")
    if kept is not None:
        kept(whole)
    forest = lifted(whole)
    roles = _by_role(learner, settings, forest, method, update, last) if look else {}
    watch.lap("graph")
    lesson = learned(learner, settings, [forest], [score], method, update, last, watch)
    return lesson._replace(mix=shares(decided for trace in traces for decided in _decided(trace))), roles


def _decided(trace: Trace) -> Iterator[tuple[str, dict[str, int]]]:
    """What models chose in a run: the kind of each choice, and its option."""
    for row, _, _ in _said(trace):
        choice = _choice(trace, row)
        yield choice["kind"], {choice["chosen"]: 1}


def manner_of(settings: Settings) -> Manner:
    return Manner(
        rows=settings.rows, width=settings.width, longest=settings.longest, remote=bool(settings.endpoint)
    )


def _by_role(
    learner: Learner, settings: Settings, forest: Trace, method: Method, update: Update, last: float
) -> dict[str, dict[str, float]]:
    """Of each role how large its credit is (root mean square, and the mean), how many tokens are paid, and the length of its part of the gradient."""
    pay = paid(
        forest, apply(scored(with_step_rewards(forest), method, Now(learner.iteration / last, ())), method.credit)
    )
    names = [role_of(str(name)) for name in forest.name_a.strings()]
    role_k = np.array(names)[forest.agent_e[forest.owner_k]] if len(forest.owner_k) else np.zeros(0, str)
    found = {}
    for role in sorted(set(names)):
        share: F = np.where(role_k == role, pay.share_k, 0.0)
        if not share.any():
            continue
        total = float(share.sum())
        found[role] = {
            "credit": float(np.sqrt((share * pay.credit_k**2).sum() / total)),
            "mean": float((share * pay.credit_k).sum() / total),
            "tokens": int((share > 0).sum()),
            "gradient": role_gradients(learner, settings, update, forest, pay._replace(share_k=share)),
        }
    return found


def judged(team: Team, settings: Settings, live: Live, n: int, seed: int = 0, held_out: bool = True) -> Trace:
    """Runs on held-out tasks in which the likeliest is always said; in parts where all at once do not fit into memory."""
    tasks, dice = live.questions(n, seed, held_out), seeds(0x0DD + seed, n)

    def some(part: slice) -> list[Trace]:
        door, here = Door(team, manner_of(settings), "judged", likeliest_of), tasks[part]
        return played(door, live.staff, here, dice[part], [live.name] * len(here), part.start)[0]

    with speaking(settings):
        return concat([trace for traces in in_parts(team, n, some) for trace in traces])


def success(team: Team, settings: Settings, live: Live, n: int, seed: int = 0, held_out: bool = True) -> F:
    """What runs on held-out tasks earn when the likeliest is always said."""
    return earned(judged(team, settings, live, n, seed, held_out))
