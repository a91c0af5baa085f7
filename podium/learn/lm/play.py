"""Episodes of a world's text face under language models, as traces that hold every token.

A decision is a generation: its event owns the tokens that were given to the model for it, then those that the model said. An agent that decides
again goes on with its own context: it is told what changed. Nothing here becomes text and tokens again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from podium.envs import text
from podium.envs.branch import branch, choices
from podium.envs.draws import U, uniform
from podium.envs.world import BadParameter, View, World, play
from podium.learn.collect import MARK
from podium.learn.lm.endpoint import BadEndpoint, Request, Voice
from podium.learn.lm.generate import SPEECH, Options, Spoken, likeliest, picked, speak
from podium.learn.lm.models import Mind, Team, in_parts
from podium.learn.lm.reader import Reader
from podium.trace.columns import F, Text, Trace, concat
from podium.trace.do import Do
from podium.trace.tokens import DIGEST, digest

__all__ = [
    "Manner",
    "Talk",
    "Turn",
    "answered",
    "grown",
    "likeliest_of",
    "options_of",
    "reader_of",
    "recorded",
    "recorded_in_parts",
    "scores",
    "weighed",
]

N64 = NDArray[np.int64]
Pick = Callable[[F, F], N64]


@dataclass(frozen=True)
class Manner:
    """How a team speaks."""

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
    before: int  # the turn of its episode whose context it extends, -1 if none
    start: int  # tokens of that context
    given: tuple[int, ...]
    said: tuple[int, ...]
    logp: tuple[float, ...]  # of the tokens said, under the distribution they were drawn from
    prompt: str
    state: int  # of the reader, once it has read what was given ...
    how: str  # constrained, free, forced, or lost: an endpoint that did not answer
    ways: tuple[
        tuple[float, ...], ...
    ] = ()  # of each option that could be said, the log-probabilities of its tokens
    fault: str | None = None
    thread: int = 0  # ... into this thread of it


def reader_of(readers: dict[str, Reader], team: Team, mind: Mind, manner: Manner) -> Reader:
    """The reader of a policy, made when it first speaks. Policies on one model have one."""
    if mind.name not in readers:
        same = (readers[name] for name in readers if team.minds[name].model is mind.model)
        readers[mind.name] = next(same, None) or Reader(mind, manner.rows, manner.width)
    return readers[mind.name]


class Talk:
    """A policy of a world made of language models, and what was said in each episode."""

    def __init__(
        self,
        world: World,
        team: Team,
        seed: U,
        manner: Manner,
        pick: Pick = picked,
        readers: dict[str, Reader] | None = None,
    ) -> None:
        self.world, self.team, self.seed, self.manner, self.pick = world, team, seed, manner, pick
        self.readers = {} if readers is None else readers
        self.turns: list[list[Turn | None]] = [[] for _ in seed]  # None: nothing was said
        self.threads: dict[tuple[int, str], int] = {}
        self.home = world.options.index("stop") if "stop" in world.options else -1

    def __call__(self, view: View) -> tuple[N64, F]:
        number = np.array([len(self.turns[row]) for row in view.row.tolist()])
        late = (
            (number >= self.manner.most) & view.allowed[:, self.home]
            if self.home >= 0
            else np.zeros(len(view), bool)
        )
        chosen, logp = np.full(len(view), self.home), np.zeros(len(view))
        for row in view.row[late].tolist():
            self.turns[row].append(None)
        if len(here := np.flatnonzero(~late)):
            chosen[here], logp[here] = self._decided(view.take(here), number[here])
        return chosen, logp

    def _decided(self, view: View, number: N64) -> tuple[N64, F]:
        mind = self.team.minds[self.team.of(view.agent)]
        rows, prompts = view.row.tolist(), text.prompts(self.world, rounded(view, self.manner.digits))
        asked = [self._asked(mind, row, view.agent, shown) for row, shown in zip(rows, prompts, strict=True)]
        if (voice := self.voice(mind)) is not None:
            return self._remote(view, voice, mind, number, asked)
        reader = reader_of(self.readers, self.team, mind, self.manner)
        threads = self._threads(reader, mind, rows, asked)
        news = [self._news(row, turn) for row, turn in zip(rows, asked, strict=True)]
        first = reader.read(threads, news, columns=None if self.manner.free else self._columns(mind))
        read = zip(asked, reader.state[threads].tolist(), threads.tolist(), strict=True)
        turns = [turn._replace(state=state, thread=thread) for turn, state, thread in read]
        answer = self._free if self.manner.free else self._constrained
        return answer(view, mind, reader, first, number, turns)

    def voice(self, mind: Mind) -> Voice | None:
        """The endpoint that speaks for a policy here, if one does."""
        return mind.voice if mind.frozen or self.manner.remote else None

    def heard(self) -> dict[str, list[Turn]]:
        """Of each policy that an endpoint speaks for, its turns."""
        found: dict[str, list[Turn]] = {}
        for turn in (turn for made in self.turns for turn in made if turn is not None):
            mind = self.team.minds[self.team.of(turn.agent)]
            if self.voice(mind) is not None:
                found.setdefault(mind.name, []).append(turn)
        return found

    def _asked(self, mind: Mind, row: int, agent: str, shown: str) -> Turn:
        """The turn as far as it was given."""
        frame, ids, made = mind.model.frame, mind.model.ids, self.turns[row]
        before = next((k for k in range(len(made) - 1, -1, -1) if (turn := made[k]) and turn.agent == agent), -1)
        if before >= 0:
            last = made[before]
            assert last is not None
            given = (*frame.again, *ids(text.change(self.world, last.prompt, shown)), *frame.ask)
            start = last.start + len(last.given) + len(last.said)
            if start + len(given) + self._room(mind) <= mind.model.longest:
                return Turn(agent, before, start, given, (), (), shown, 0, "")
        given = (*frame.open, *ids(shown), *frame.ask)  # begun, or begun anew where it was full
        return Turn(agent, -1, 0, given, (), (), shown, 0, "")

    def _threads(self, reader: Reader, mind: Mind, rows: list[int], turns: list[Turn]) -> N64:
        """The context that each goes on with; a new one where it begins, or begins anew."""
        fresh = iter(reader.threads(sum(turn.before < 0 for turn in turns), mind).tolist())
        for row, turn in zip(rows, turns, strict=True):
            if turn.before < 0:
                self.threads[row, turn.agent] = next(fresh)
        return np.array([self.threads[row, turn.agent] for row, turn in zip(rows, turns, strict=True)])

    def _news(self, row: int, turn: Turn) -> tuple[int, ...]:
        """The tokens to read for a turn: what was said last, and what is new."""
        if turn.before < 0:
            return turn.given
        last = self.turns[row][turn.before]
        assert last is not None
        return (*last.said, *turn.given)

    def _context(self, row: int, turn: Turn) -> tuple[int, ...]:
        """All tokens before an answer, as they were given and said."""
        parts, at = [turn.given], turn.before
        while at >= 0:
            last = self.turns[row][at]
            assert last is not None
            parts += [last.said, last.given]
            at = last.before
        return tuple(token for part in reversed(parts) for token in part)

    def _columns(self, mind: Mind) -> list[int]:
        """The tokens that anything in this world is said with."""
        return options_of(mind, self.world.options).ids

    def _room(self, mind: Mind) -> int:
        """Tokens that an answer may take."""
        return max(self.manner.longest, *(len(mind.model.ids(option)) for option in self.world.options)) + 1

    def _constrained(
        self, view: View, mind: Mind, reader: Reader, first: Any, number: N64, turns: list[Turn]
    ) -> tuple[N64, F]:
        """One of the options, drawn by the probability of its tokens where at each only those of options can come."""
        chosen, logp = np.zeros(len(view), np.int64), np.zeros(len(view))
        dice, threads = uniform(self.seed[view.row], SPEECH, number), np.array([turn.thread for turn in turns])
        for allowed in np.unique(view.allowed, axis=0):
            here = np.flatnonzero((view.allowed == allowed).all(axis=1))
            numbers = np.flatnonzero(allowed)
            options = options_of(mind, [self.world.options[k] for k in numbers.tolist()])
            tokens, total = weighed(options, reader, threads[here], first[here], self._columns(mind))
            pick = self.pick(total, dice[here])
            chosen[here], logp[here] = numbers[pick], total[np.arange(len(here)), pick]
            listed = [some.tolist() for some in tokens]
            for i, k in enumerate(pick.tolist()):
                row, ways = int(view.row[here[i]]), tuple(tuple(some[i]) for some in listed)
                turn = turns[int(here[i])]._replace(
                    said=options.paths[k], logp=ways[k], how="constrained", ways=ways
                )
                self.turns[row].append(turn)
        return chosen, logp

    def _free(
        self, view: View, mind: Mind, reader: Reader, first: Any, number: N64, turns: list[Turn]
    ) -> tuple[N64, F]:
        """Whatever is said, read by the grammar."""
        threads, greedy = np.array([turn.thread for turn in turns]), self.pick is likeliest_of
        spoken = speak(reader, threads, first, self.seed[view.row], number, self.manner.longest, greedy)
        return self._understood(view, mind, turns, spoken)

    def _remote(self, view: View, voice: Voice, mind: Mind, number: N64, turns: list[Turn]) -> tuple[N64, F]:
        """Whatever an endpoint says, read by the grammar. It is given ids and a seed with an address."""
        seeds = (uniform(self.seed[view.row], SPEECH, number) * 2**31).astype(np.int64).tolist()
        asked = [
            Request(self._context(row, turn), seed)
            for row, turn, seed in zip(view.row.tolist(), turns, seeds, strict=True)
        ]
        temperature = 0.0 if self.pick is likeliest_of else 1.0
        spoken = voice.answers(mind.model, asked, self.manner.longest, temperature, self.manner.rows)
        return self._understood(view, mind, turns, spoken)

    def _understood(self, view: View, mind: Mind, turns: list[Turn], spoken: list[Spoken]) -> tuple[N64, F]:
        """What the grammar cannot read, or was not said, is a fault, and the first option that ends or else is allowed is taken."""
        chosen, logp = np.zeros(len(view), np.int64), np.full(len(view), np.nan)
        for i, (said, turn) in enumerate(zip(spoken, turns, strict=True)):
            if said.fault is not None:
                chosen[i] = default(view.allowed[i], self.home)
                self.turns[int(view.row[i])].append(turn._replace(how="lost", fault=said.fault))
                continue
            fault = None
            answer = mind.model.text(said.ids)
            try:
                chosen[i], logp[i] = text.action(self.world, view, i, answer), float(np.sum(said.logp))
            except BadParameter as error:
                fault = str(error) if said.ended else f"{error}, and did not end in {self.manner.longest} tokens"
                chosen[i] = default(view.allowed[i], self.home)
            told = turn._replace(said=tuple(said.ids), logp=tuple(said.logp), how="free", fault=fault)
            self.turns[int(view.row[i])].append(told)
        return chosen, logp

    def forced(self, sources: Sequence[int], numbers: Sequence[int], options: Sequence[str]) -> Talk:
        """The same talk in branches: of each its episode here, the decision at which it parts, and the option that it is made to take."""
        talk = Talk(self.world, self.team, self.seed[list(sources)], self.manner, self.pick, self.readers)
        moves: dict[str, list[tuple[int, int, Turn]]] = {}
        for i, (source, number, option) in enumerate(zip(sources, numbers, options, strict=True)):
            turn = self.turns[source][number]
            assert turn is not None  # where nothing was said there is nothing to say instead
            mind = self.team.minds[self.team.of(turn.agent)]
            talk.turns[i] = [*self.turns[source][:number], _forced(turn, mind, option)]
            for agent in {t.agent: None for t in talk.turns[i] if t}:
                if self.voice(self.team.minds[self.team.of(agent)]) is not None:
                    continue  # what it is given is put together from turns
                last = next(t for t in reversed(talk.turns[i]) if t and t.agent == agent)
                moves.setdefault(self.team.of(agent), []).append((i, last.thread, last))
        for name, some in moves.items():
            reader = self.readers[name]
            new = reader.threads(len(some), self.team.minds[name])
            reader.copy(np.array([thread for _, thread, _ in some]), new)
            reader.rewind(
                new, np.array([t.start + len(t.given) for _, _, t in some]), np.array([t.state for _, _, t in some])
            )
            for thread, (i, _, last) in zip(new.tolist(), some, strict=True):
                talk.threads[i, last.agent] = thread
        return talk


def _forced(turn: Turn, mind: Mind, option: str) -> Turn:
    """A turn in which another option is said, because it was told to. How likely the policy was to say it is known if its options were weighed."""
    ids = (*mind.model.ids(option), mind.model.frame.end)
    labels = [line[2:].partition(" (about ")[0] for line in turn.prompt.split("\n") if line.startswith("- ")]
    logp = turn.ways[labels.index(option)] if turn.ways else (float("nan"),) * len(ids)
    return turn._replace(said=ids, logp=logp, how="forced", fault=None)


def options_of(mind: Mind, labels: Sequence[str]) -> Options:
    """What may be said, as tokens of a model."""
    return Options([mind.model.ids(label) for label in labels], mind.model.frame.end)


def weighed(
    options: Options, reader: Reader, threads: N64, first: Any, columns: Sequence[int]
) -> tuple[list[F], F]:
    """Of each option the log-probabilities of its tokens [threads, tokens], and of all options their sums [threads, options].

    `first` are the logits of `columns` at the ends of threads.
    """
    parted = options.score(reader, threads, first, columns)
    tokens = [
        np.broadcast_to(options.logp(k, parted), (len(threads), len(path))) for k, path in enumerate(options.paths)
    ]
    return tokens, np.stack([some.sum(axis=1) for some in tokens], 1)


def default(allowed: NDArray[np.bool_], home: int) -> int:
    """What is done where nobody understands what was said: to stop, or else the first option."""
    return home if home >= 0 and allowed[home] else int(np.argmax(allowed))


def rounded(view: View, digits: int) -> View:
    """A view whose figures have so many digits after the point; as it is where that is below 0."""
    if digits < 0:
        return view

    def items() -> tuple[F, N64]:
        values, owner = view.items()
        return np.round(values, digits), owner

    return replace(view, facts=np.round(view.facts, digits), items=items)


def recorded(
    world: World, team: Team, seed: U, manner: Manner, *, version: str, task: str, pick: Pick = picked
) -> tuple[Trace, Talk]:
    """Episodes, one a seed, as a trace; and the talk, from which branches can go on (`grown`)."""
    talk = Talk(world, team, seed, manner, pick)
    trace = world.trace(play(world, talk, seed.copy(), log=True).state)
    trace = replace(trace, task_id_n=Text.constant(task, len(trace)))
    return _tokened(trace, talk, version), talk


def recorded_in_parts(
    world: World, team: Team, seed: U, manner: Manner, *, version: str, task: str, pick: Pick = picked
) -> Trace:
    """Episodes as `recorded` has them, without the talk: in parts where all at once do not fit into memory."""

    def some(part: slice) -> Trace:
        return recorded(world, team, seed[part], manner, version=version, task=task, pick=pick)[0]

    return concat(in_parts(team, len(seed), some))


def grown(trace: Trace, talk: Talk, share: float, *, version: str) -> Trace:
    """The episodes and branches of a share of their decisions: every option that was not taken, then the policy, with the same dice."""
    asked = zip(*others(talk.world, trace, talk.seed, share), strict=True)
    said = [(do, run, nth) for do, run, nth in asked if talk.turns[run][nth]]  # where something was
    if not said:
        return trace
    dos, source, number = zip(*said, strict=True)
    other = talk.forced(source, number, [str(do.value) for do in dos])
    return concat([trace, _tokened(branch(talk.world, trace, dos, other), other, version)])


def likeliest_of(logp: F, u: F) -> N64:
    """Picks the likeliest, whatever the dice."""
    return likeliest(logp)


def scores(world: World, team: Team, seed: U, manner: Manner) -> F:
    """What episodes earn when the likeliest is always said; NaN where an endpoint did not answer. In parts where all at once do not fit into memory."""
    parts = in_parts(team, len(seed), lambda part: _scores(world, team, seed[part], manner))
    answered([heard for _, heard in parts])
    return np.concatenate([np.zeros(0), *(score for score, _ in parts)])


def _scores(world: World, team: Team, seed: U, manner: Manner) -> tuple[F, dict[str, list[Turn]]]:
    """What episodes earn, all at once, and what endpoints said in them."""
    greedy = Talk(world, team, seed, manner, likeliest_of)
    found = play(world, greedy, seed.copy()).score
    lost = [any(turn is not None and turn.how == "lost" for turn in made) for made in greedy.turns]
    return np.where(lost, np.nan, found), greedy.heard()


def answered(heard: Sequence[dict[str, list[Turn]]]) -> None:
    """Raises BadEndpoint if one that was asked in these talks (`Talk.heard`) gave no answer at all."""
    for name in {name: None for some in heard for name in some}:
        turns = [turn for some in heard for turn in some.get(name, ())]
        if all(turn.how == "lost" for turn in turns):
            raise BadEndpoint(
                f"the endpoint of policy {name!r} gave none of {len(turns)} answers, at last: {turns[-1].fault}; "
                "nothing was learned from this, and the same command goes on when it is back"
            )


def _tokened(trace: Trace, talk: Talk, version: str) -> Trace:
    """The trace with what was said: who generated it, from which context, token by token."""
    rows, _ = choices(talk.world, trace)
    first = np.searchsorted(trace.rollout_e[rows], np.arange(len(trace)))
    n = trace.n_events
    context, start, valid = np.full(n, -1), np.full(n, -1), np.array(trace.valid_e, np.int64)
    heard, spoken = np.array(trace.tokens_in_e, np.float64), np.array(trace.tokens_out_e, np.float64)
    words: dict[str, list[str | None]] = {k: [None] * n for k in ("model", "version", "sampling", "fault", DIGEST)}
    logp_o = np.array(trace.logp_o)
    owner: list[N64] = []
    token: list[int] = []
    logp: list[float] = []
    mask: list[int] = []
    digests: dict[tuple[str, int, tuple[int, ...]], str] = {}  # copies in branches hold the same
    for run, made in enumerate(talk.turns):
        for number, turn in enumerate(made):
            if turn is None:
                continue
            row = int(rows[first[run] + number])
            mind = talk.team.minds[talk.team.of(turn.agent)]
            context[row] = rows[first[run] + turn.before] if turn.before >= 0 else -1
            start[row], valid[row] = turn.start, int(turn.fault is None)
            own = 0 if turn.how == "forced" else len(turn.said)  # what it was made to say was given to it too
            heard[row], spoken[row] = turn.start + len(turn.given) + len(turn.said) - own, own
            voice = talk.voice(mind)  # nobody knows which version of the weights it has
            words["model"][row] = mind.model.name if voice is None else voice.served or mind.model.name
            words["version"][row] = f"{mind.name}@{version if voice is None else 'endpoint'}"
            words["sampling"][row] = f'"{turn.how}"'
            if turn.ways:
                (at,), (many,) = trace.options_of(np.array([row]))
                logp_o[at : at + many] = [sum(some) for some in turn.ways]
            words["fault"][row] = None if turn.fault is None else msgspec.json.encode(turn.fault).decode()
            if voice is None:
                key = mind.name, turn.state, turn.said
                if key not in digests:
                    digests[key] = f'"{digest(np.array([*talk.readers[mind.name].held(turn.state), *turn.said]))}"'
                words[DIGEST][row] = digests[key]
            owner.append(np.full(len(turn.given) + len(turn.said), row))
            token += [*turn.given, *turn.said]
            logp += [*[np.nan] * len(turn.given), *turn.logp]
            mask += [*[0] * len(turn.given), *[int(turn.how != "forced")] * len(turn.said)]
    text_of = {k: Text.of(v) for k, v in words.items()}
    extra: dict[str, Any] = {k: v for k in ("sampling", "fault", DIGEST) if (v := text_of[k]).words}
    return replace(
        trace,
        context_e=context,
        start_e=start,
        valid_e=valid,
        tokens_in_e=heard,
        tokens_out_e=spoken,
        model_e=text_of["model"],
        version_e=text_of["version"],
        extra_e={**trace.extra_e, **extra},
        owner_k=np.concatenate([np.zeros(0, np.int64), *owner]),
        token_k=np.array(token, np.int64),
        logp_k=np.array(logp, np.float64),
        mask_k=np.array(mask, np.int64),
        logp_o=logp_o,
    )


def others(world: World, trace: Trace, seed: U, share: float) -> tuple[list[Do], list[int], list[int]]:
    """Every option that was not taken at a share of decisions, drawn by address; and of each the run and the decision, by number."""
    dos, source, number = [], [], []
    rows, _ = choices(world, trace)
    rollout = trace.rollout_e[rows]
    at = np.arange(len(rows)) - np.searchsorted(rollout, rollout)
    for row, run, nth in zip(rows.tolist(), rollout.tolist(), at.tolist(), strict=True):
        if float(uniform(seed[run], MARK, nth)) < share:
            for option in trace.options(row):
                if option != trace.chosen_e[row]:
                    dos.append(Do(row, "choose", option))
                    source.append(run)
                    number.append(nth)
    return dos, source, number
