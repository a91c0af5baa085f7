"""Episodes of a world's text face under language models, as traces that hold every token; and the source of them.

A decision is a generation: its event owns the tokens that were given to the model for it, then those that the model
said. An agent that decides again goes on with its own context: it is given what changed. No token is made text and
tokenised again.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from podium.credit.forest import copies, roots
from podium.engine.endpoint import BadEndpoint
from podium.engine.local import engines_of
from podium.engine.models import PolicyModel, PolicyTeam, in_parts, role_of
from podium.engine.protocol import Completion, Context, Engine, Request
from podium.envs import text
from podium.envs.branch import branch, choices
from podium.envs.draws import U, seeds, uniform
from podium.envs.world import BadParameter, View, World, play
from podium.harness.choices import spoken
from podium.learn.collect import MARK
from podium.learn.lm.settings import Settings, generating
from podium.learn.loop import Rollouts
from podium.learn.mix import Tally, tally_of
from podium.learn.requirements import with_step_rewards
from podium.methods import Method
from podium.trace.columns import F, Text, Trace, concat, ranges
from podium.trace.do import Do
from podium.trace.options import chosen_options
from podium.trace.tokens import DIGEST, extend, spelled

__all__ = [
    "PlaySettings",
    "TextActor",
    "TextWorlds",
    "Turn",
    "check_endpoints",
    "own_decisions",
    "record",
    "record_in_parts",
    "rollouts_of",
    "rounded",
    "scores",
    "tally",
    "with_branches",
]

N64 = NDArray[np.int64]
Worlds = Callable[[int, int], World]


@dataclass(frozen=True)
class PlaySettings:
    """How a team plays in text."""

    free: bool = False  # any text, read by the world's grammar; else only texts of the grammar can be said
    longest: int = 16  # tokens of a free answer
    digits: int = -1  # of figures in prompts, after the point; as they are if below 0
    most: int = 100  # decisions of an episode, after which it stops where it can
    rows: int = 32  # contexts that are read at once ...
    width: int = 32  # ... and tokens of each
    remote: bool = False  # policies that are trained speak through their endpoints too; frozen ones always do


class Turn(NamedTuple):
    """One decision in words."""

    agent: str
    policy: str
    before: int  # the turn of its episode whose context it extends, -1 if none
    context: Context  # all that was given to the model and said before the answer
    prompt: str
    how: str  # constrained, free, forced, or lost: an endpoint that did not answer
    answer: Completion
    fault: str | None = None


class TextActor:
    """A policy of a world made of language models, and what was said in each episode."""

    def __init__(
        self,
        world: World,
        team: PolicyTeam,
        seed: U,
        settings: PlaySettings,
        *,
        version: str = "0",
        greedy: bool = False,
        engines: dict[str, Engine] | None = None,
    ) -> None:
        self.world, self.team, self.seed, self.settings, self.greedy = world, team, seed, settings, greedy
        self.engines = engines or engines_of(team, version, settings.rows, settings.width, settings.remote)
        self.turns: list[list[Turn | None]] = [[] for _ in seed]  # None: nothing was said
        self.latest: dict[tuple[int, str], int] = {}  # of each episode and agent the turn that it spoke in last
        self.home = world.options.index("stop") if "stop" in world.options else -1
        self._options: dict[tuple[str, bytes], tuple[N64, tuple[tuple[int, ...], ...]]] = {}

    def __call__(self, view: View) -> tuple[N64, F]:
        number = np.array([len(self.turns[row]) for row in view.row.tolist()])
        late = np.zeros(len(view), bool)
        if self.home >= 0:
            late = (number >= self.settings.most) & view.allowed[:, self.home]
        chosen, logp = np.full(len(view), self.home), np.zeros(len(view))
        for row in view.row[late].tolist():
            self.turns[row].append(None)
        if len(open_rows := np.flatnonzero(~late)):
            chosen[open_rows], logp[open_rows] = self._decide(view.take(open_rows), number[open_rows])
        return chosen, logp

    def endpoints(self) -> dict[str, list[Turn]]:
        """Of each policy that an endpoint speaks for, its turns."""
        turns: dict[str, list[Turn]] = {}
        remote = {name for name, engine in self.engines.items() if not engine.constrained}
        for turn in chain.from_iterable(self.turns) if remote else ():
            if turn is not None and turn.policy in remote:
                turns.setdefault(turn.policy, []).append(turn)
        return turns

    def _decide(self, view: View, number: N64) -> tuple[N64, F]:
        """What each row of a view chooses, and its log-probability."""
        name = self.team.of(view.agent)
        engine, policy = self.engines[name], self.team.policies[name]
        rows, prompts = view.row.tolist(), text.prompts(self.world, rounded(view, self.settings.digits))
        free = self.settings.free or not engine.constrained
        contexts = self._contexts(policy, rows, view.agent, prompts)
        listed = [((), ())] * len(rows) if free else self._allowed(policy, view.allowed)
        seed = self.seed[view.row].tolist()
        answers = engine.complete(
            [
                Request(context, (s, n), options, self.settings.longest, self.greedy)
                for (_, context), s, n, (_, options) in zip(contexts, seed, number.tolist(), listed, strict=True)
            ]
        )
        chosen, logp = np.zeros(len(view), np.int64), np.full(len(view), np.nan)
        for i, ((before, context), answer) in enumerate(zip(contexts, answers, strict=True)):
            turn = Turn(view.agent, name, before, context, prompts[i], "constrained", answer)
            if free:
                chosen[i], turn = self._understand(view, i, turn, policy)
            else:
                chosen[i] = listed[i][0][answer.option]
            if turn.fault is None:
                logp[i] = sum(answer.logp)
            self.latest[rows[i], view.agent] = len(self.turns[rows[i]])
            self.turns[rows[i]].append(turn)
        return chosen, logp

    def _contexts(
        self, policy: PolicyModel, rows: list[int], agent: str, prompts: list[str]
    ) -> list[tuple[int, Context]]:
        """What each row is to answer to: its prompt, or what changed since its agent spoke last."""
        frame, longest = policy.model.frame, policy.model.longest - self._room(policy)
        last: list[Turn | None] = []
        shown = list(prompts)
        for i, row in enumerate(rows):
            before = self.latest.get((row, agent), -1)
            last.append(self.turns[row][before] if before >= 0 else None)
            if (turn := last[i]) is not None:
                shown[i] = text.change(self.world, turn.prompt, prompts[i])
        contexts = []
        for i, (row, ids) in enumerate(zip(rows, policy.model.ids_of(shown), strict=True)):
            if (turn := last[i]) is not None:
                whole = Context(turn.answer.ids, turn.context)
                context = Context((*frame.again, *ids, *frame.ask), whole)
                if context.length <= longest:
                    contexts.append((self.latest[row, agent], context))
                    continue
                ids = policy.model.ids(prompts[i])  # begun anew where it was full
            contexts.append((-1, Context((*frame.open, *ids, *frame.ask))))
        return contexts

    def _allowed(self, policy: PolicyModel, allowed: NDArray[np.bool_]) -> list[tuple[N64, Any]]:
        """Of each row the options that it may take: their numbers, and their ids."""
        listed = []
        for row in allowed:
            key = policy.name, row.tobytes()
            if key not in self._options:
                numbers = np.flatnonzero(row)
                labels = [self.world.options[k] for k in numbers.tolist()]
                self._options[key] = numbers, tuple(policy.model.ids_of(labels))
            listed.append(self._options[key])
        return listed

    def _room(self, policy: PolicyModel) -> int:
        """Tokens that an answer may take."""
        return max(self.settings.longest, *map(len, policy.model.ids_of(self.world.options))) + 1

    def _understand(self, view: View, i: int, turn: Turn, policy: PolicyModel) -> tuple[int, Turn]:
        """Free text, read by the grammar. What cannot be read, or was not said, is a fault: it stops, if it can, or
        takes the first option."""
        allowed, answer = view.allowed[i], turn.answer
        default = self.home if self.home >= 0 and allowed[self.home] else int(np.argmax(allowed))
        if answer.fault is not None:
            return default, turn._replace(how="lost", fault=answer.fault)
        turn = turn._replace(how="free")
        try:
            return text.action(self.world, view, i, policy.model.text(answer.ids)), turn
        except BadParameter as error:
            long = f", and did not end in {self.settings.longest} tokens"
            return default, turn._replace(fault=str(error) if answer.ended else f"{error}{long}")

    def forced(self, sources: Sequence[int], numbers: Sequence[int], options: Sequence[str]) -> TextActor:
        """The same talk in branches: of each its episode, the decision where it parts, and its option."""
        actor = TextActor(
            self.world,
            self.team,
            self.seed[list(sources)],
            self.settings,
            greedy=self.greedy,
            engines=self.engines,
        )
        for i, (source, number, option) in enumerate(zip(sources, numbers, options, strict=True)):
            turn = self.turns[source][number]
            assert turn is not None  # where nothing was said there is nothing to say instead
            actor.turns[i] = [*self.turns[source][:number], self.force(turn, option)]
            for k, past in enumerate(actor.turns[i]):
                if past is not None:
                    actor.latest[i, past.agent] = k
        return actor

    def force(self, turn: Turn, option: str) -> Turn:
        """A turn in which another option is said; how likely that was is known if its options were weighed."""
        model = self.team.policies[turn.policy].model
        ids = (*model.ids(option), model.end)
        labels = [line[2:].partition(" (about ")[0] for line in turn.prompt.split("\n") if line.startswith("- ")]
        odds = turn.answer.option_logp
        logp = odds[labels.index(option)] if odds else (float("nan"),) * len(ids)
        return turn._replace(how="forced", answer=turn.answer._replace(ids=ids, logp=logp, fault=None), fault=None)


def rounded(view: View, digits: int) -> View:
    """A view whose figures have so many digits after the point; as it is where that is below 0."""
    if digits < 0:
        return view

    def items() -> tuple[F, N64]:
        values, owner = view.items()
        return np.round(values, digits), owner

    return replace(view, facts=np.round(view.facts, digits), items=items)


# ---- traces


def record(
    world: World,
    team: PolicyTeam,
    seed: U,
    settings: PlaySettings,
    *,
    version: str,
    task: str,
    greedy: bool = False,
    engines: dict[str, Engine] | None = None,
) -> tuple[Trace, TextActor]:
    """Episodes, one a seed, as a trace; and who acted in them, from whom branches can go on (`with_branches`)."""
    actor = TextActor(world, team, seed, settings, version=version, greedy=greedy, engines=engines)
    trace = world.trace(play(world, actor, seed.copy(), log=True).state)
    trace = replace(trace, task_id_n=Text.constant(task, len(trace)))
    return with_tokens(trace, actor), actor


def record_in_parts(world: World, team: PolicyTeam, seed: U, settings: PlaySettings, **how: Any) -> Trace:
    """Episodes as `record` has them: in parts where all at once do not fit into memory."""
    return concat(in_parts(team, len(seed), lambda part: record(world, team, seed[part], settings, **how)[0]))


def with_branches(trace: Trace, actor: TextActor, share: float) -> Trace:
    """The episodes and branches of a share of their decisions: every other option, then the policy, with the same
    dice."""
    rows, _ = choices(actor.world, trace)
    run = trace.rollout_e[rows]
    number = np.arange(len(rows)) - np.searchsorted(run, run)
    spoken = np.array([turn is not None for turns in actor.turns for turn in turns], np.bool_)
    marked = np.flatnonzero(spoken & (uniform(actor.seed[run], MARK, number) < share))
    first, count = trace.options_of(rows[marked])
    option, of = ranges(first, count), np.repeat(marked, count)
    other = ~np.isin(option, chosen_options(trace, rows[marked]))
    if not other.any():
        return trace
    of, names = of[other], list(map(str, trace.label_o.take(option[other]).strings()))
    dos = [Do(row, "choose", name) for row, name in zip(rows[of].tolist(), names, strict=True)]
    talk = actor.forced(run[of].tolist(), number[of].tolist(), names)
    return concat([trace, with_tokens(branch(actor.world, trace, dos, talk), talk)])


def with_tokens(trace: Trace, actor: TextActor) -> Trace:
    """The trace with what was said: who generated it, from which context, token by token."""
    every, _ = choices(actor.world, trace)
    first = np.searchsorted(trace.rollout_e[every], np.arange(len(trace))).tolist()
    numbered = [
        (first[run], number, turn)
        for run, some in enumerate(actor.turns)
        for number, turn in enumerate(some)
        if turn is not None
    ]
    begun, number = np.array([(at, nth) for at, nth, _ in numbered], np.int64).reshape(-1, 2).T
    turns = [turn for _, _, turn in numbered]
    rows, before = every[begun + number], np.array([turn.before for turn in turns], np.int64)
    given = np.array([len(turn.context.ids) for turn in turns], np.int64)
    answered = np.array([len(turn.answer.ids) for turn in turns], np.int64)
    start = np.array([turn.context.length for turn in turns], np.int64) - given
    own = np.array(
        [turn.how != "forced" for turn in turns], np.bool_
    )  # what it was made to say was given to it too
    token: list[int] = []
    for turn in turns:
        token += turn.context.ids
        token += turn.answer.ids
    said_k = np.repeat(np.tile([False, True], len(turns)), np.stack([given, answered], 1).ravel())
    logp_k = np.full(len(token), np.nan)
    logp_k[said_k] = np.fromiter(chain.from_iterable(turn.answer.logp for turn in turns), np.float64)
    return replace(
        trace,
        context_e=_put(trace, rows, np.where(before >= 0, every[begun + np.maximum(before, 0)], -1), -1),
        start_e=_put(trace, rows, start, -1),
        valid_e=_put(trace, rows, [turn.fault is None for turn in turns], np.array(trace.valid_e, np.int64)),
        tokens_in_e=_put(
            trace, rows, start + given + np.where(own, 0, answered), np.array(trace.tokens_in_e, float)
        ),
        tokens_out_e=_put(trace, rows, np.where(own, answered, 0), np.array(trace.tokens_out_e, float)),
        model_e=_words(trace, rows, [actor.engines[turn.policy].model for turn in turns]),
        version_e=_words(trace, rows, [_version(actor, turn) for turn in turns]),
        extra_e={**trace.extra_e, **_fields(trace, rows, turns)},
        owner_k=np.repeat(rows, given + answered),
        token_k=np.array(token, np.int64),
        logp_k=logp_k,
        mask_k=(said_k & np.repeat(own, given + answered)).astype(np.int64),
        logp_o=_option_logp(trace, rows, turns),
    )


def _version(actor: TextActor, turn: Turn) -> str:
    """Of the policy that speaks; nobody knows which one an endpoint has."""
    engine = actor.engines[turn.policy]
    return engine.version if engine.constrained else f"{turn.policy}@{engine.version}"


def _put(trace: Trace, rows: N64, values: Any, around: Any) -> Any:
    """A column of events with these values in some rows."""
    column = np.full(trace.n_events, around) if np.isscalar(around) else around
    column[rows] = values
    return column


def _words(trace: Trace, rows: N64, values: Sequence[str | None]) -> Text:
    words = Text.of(values)
    return Text(_put(trace, rows, words.codes, -1), words.words)


def _fields(trace: Trace, rows: N64, turns: Sequence[Turn]) -> dict[str, Text]:
    """How each answer came about, what was wrong with it, and the digest of all ids read and said."""
    faults = [None if t.fault is None else msgspec.json.encode(t.fault).decode() for t in turns]
    length, h1, h2 = np.array([t.answer.read or (-1, 0, 0) for t in turns], np.int64).reshape(-1, 3).T
    known = length >= 0
    whole = spelled(*extend(np.maximum(length, 0), h1, h2, [t.answer.ids for t in turns]))
    digests = [f'"{one}"' if there else None for one, there in zip(whole, known.tolist(), strict=True)]
    columns = {
        "sampling": _words(trace, rows, [f'"{t.how}"' for t in turns]),
        "fault": _words(trace, rows, faults),
        DIGEST: _words(trace, rows, digests),
    }
    return {name: column for name, column in columns.items() if column.words}


def _option_logp(trace: Trace, rows: N64, turns: Sequence[Turn]) -> F:
    """The log-probabilities of options, where they were weighed."""
    logp_o: F = np.array(trace.logp_o)
    weighed = [i for i, turn in enumerate(turns) if turn.answer.option_logp]
    if weighed:
        first, count = trace.options_of(rows[weighed])
        each = chain.from_iterable(map(sum, turns[i].answer.option_logp) for i in weighed)
        logp_o[ranges(first, count)] = np.fromiter(each, np.float64)
    return logp_o


# ---- scores


def scores(world: World, team: PolicyTeam, seed: U, settings: PlaySettings) -> F:
    """What episodes earn when the likeliest is always said; NaN where an endpoint did not answer. In parts where
    memory is short."""
    parts = in_parts(team, len(seed), lambda part: _scores(world, team, seed[part], settings))
    check_endpoints([turns for _, turns in parts])
    return np.concatenate([np.zeros(0), *(score for score, _ in parts)])


def _scores(world: World, team: PolicyTeam, seed: U, settings: PlaySettings) -> tuple[F, dict[str, list[Turn]]]:
    """What episodes earn, all at once, and what endpoints said in them."""
    actor = TextActor(world, team, seed, settings, version="judged", greedy=True)
    score = play(world, actor, seed.copy()).score
    lost = [any(turn is not None and turn.how == "lost" for turn in some) for some in actor.turns]
    return np.where(lost, np.nan, score), actor.endpoints()


def check_endpoints(some: Sequence[dict[str, list[Turn]]]) -> None:
    """Raises BadEndpoint if one of these turns by policy (`TextActor.endpoints`) are all without an answer."""
    for name in {name: None for turns_of in some for name in turns_of}:
        turns = [turn for turns_of in some for turn in turns_of.get(name, ())]
        if all(turn.how == "lost" for turn in turns):
            raise BadEndpoint(
                f"the endpoint of policy {name!r} gave none of {len(turns)} answers, at last: {turns[-1].fault}; "
                "nothing was learned from this, and the same command goes on when it is back"
            )


# ---- rollouts


@contextmanager
def collector_off() -> Iterator[None]:
    """Without the collector of cycles: what rollouts make has none, and to look takes a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def own_decisions(trace: Trace) -> N64:
    """The events of decisions and of whatever else a model said, without their copies in branches."""
    rows = np.flatnonzero((trace.decision_e >= 0) | spoken(trace))
    return rows[~copies(trace, rows)]


def tally(trace: Trace) -> Tally:
    """What was chosen in runs that did not branch off another, of a live team by models: by kind of decision and
    word, how often."""
    rows = own_decisions(trace)
    if "choice" in trace.extra_e:
        rows = rows[trace.extra_e["choice"].codes[rows] >= 0]
    rows = rows[trace.decision_e[rows] >= 0]
    root = roots(trace)[trace.rollout_e[rows]] == trace.rollout_e[rows]
    return tally_of(trace, rows[root], lambda option: role_of(option) or option)


def rollouts_of(trace: Trace, score: F) -> Rollouts:
    """Runs as the loop takes them, all that is learned from on record."""
    rows = own_decisions(trace)
    return Rollouts(with_step_rewards(trace), None, score, len(rows), tally(trace), rows)


@dataclass
class TextWorlds:
    """A source: episodes of worlds drawn by iteration and number, and branches where the method needs them."""

    settings: Settings
    play: PlaySettings
    worlds: Worlds
    method: Method
    seed: int

    def rollouts(self, policy: Any) -> list[Rollouts]:
        """The runs of the next iteration; of `settings.worlds` worlds, one after another."""
        many = self.settings.worlds
        with generating(self.settings), collector_off():
            played = [self._play(policy, number) for number in range(many)]
        check_endpoints([turns for _, turns in played])
        return [one for one, _ in played]

    def _play(self, policy: Any, number: int) -> tuple[Rollouts, dict[str, list[Turn]]]:
        iteration, each = policy.iteration, max(2, self.settings.episodes // self.settings.worlds)
        world = self.worlds(iteration, number)
        dice = seeds(self.seed * 1_000_003 + iteration, each, number * each)
        task = f"{world.name} {iteration}.{number}"
        trace, actor = record(world, policy.team, dice, self.play, version=str(iteration), task=task)
        score: F = trace.reward_n["team"]
        forest = trace
        if "branches" in self.method.needs:
            forest = with_branches(trace, actor, self.settings.branched)
        return rollouts_of(forest, score), actor.endpoints()
