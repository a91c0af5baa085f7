"""Many runs of a team at once, and one server that answers what all their agents ask a model.

An agent's step asks for one of some options (`RunHandle.speak`) or for free text (`RunHandle.write`). When nobody
has anything to do but wait, the server puts all that waits to the engines together, and the runs go on. What was
read and said goes with the step, so that the trace holds every token."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np

from podium.engine.chat import ToolCall
from podium.engine.dialogue import BadConversation, Dialogue, Message, Past, Prompt, keys, message_of
from podium.engine.endpoint import BadEndpoint
from podium.engine.local import engines_of
from podium.engine.models import PolicyTeam
from podium.engine.protocol import BadEngine, Completion, Context, Engine, Request
from podium.harness import Fault
from podium.harness.types import Said, See
from podium.trace.tokens import extend, spelled
from podium.trace.vocabulary import Decision

__all__ = ["BatchServer", "ModelStep", "RunHandle", "SpeechSettings", "Written", "team_with"]

CALM = 16  # rounds of the event loop without another question, after which all that waits is answered


def team_with(make: Callable[..., Any], speak: Any, write: Any) -> Any:
    """A team from a function that takes who speaks for its agents, or who speaks and who writes."""
    return make(speak, write) if len(signature(make).parameters) > 1 else make(speak)


class SpeechSettings(Protocol):
    """How models speak, as the server reads it."""

    @property
    def longest(self) -> int: ...  # tokens of a free answer
    @property
    def rows(self) -> int: ...  # contexts that are read at once ...
    @property
    def width(self) -> int: ...  # ... and tokens of each
    @property
    def remote(self) -> bool: ...  # whether policies that are trained speak through their endpoints too


class ModelStep(NamedTuple):
    """What an agent's model was given and said in a step."""

    policy: str
    context: Context
    options: tuple[str, ...]
    answer: Completion
    past: Past | None = None  # of free text, the conversation

    @property
    def start(self) -> int:
        """Tokens of the context that comes before what was given."""
        return self.context.length - len(self.context.ids)


class Written(NamedTuple):
    """What a model wrote: its text, the tools that it calls, why it ended, and its tokens for `Did(said=...)`."""

    text: str
    calls: list[ToolCall]
    finish: str  # stop, length, tool_calls
    said: Said


class Conversation(NamedTuple):
    """What free text is asked for with."""

    messages: list[Message]
    tools: Sequence[dict[str, Any]]
    stop: tuple[str, ...]
    most: int  # tokens
    grammar: dict[str, Any] | None  # as `Dialogue.grammar` takes it


class Question(NamedTuple):
    """An agent that waits for an answer: one of some options, or free text."""

    handle: RunHandle
    see: See
    kind: Decision
    prompt: str
    options: tuple[str, ...]
    policy: str
    before: ModelStep | None  # the step of the same agent whose context it extends
    answer: asyncio.Future[Any]
    conversation: Conversation | None = None


@dataclass(eq=False)
class RunHandle:
    """A run at the server: what its agents have said, and in a branch what one of them is made to say."""

    server: BatchServer
    parent: RunHandle | None = None
    forced: tuple[str, int, str] | None = None  # the agent, its step, the option
    fresh: tuple[str, int, int] | None = None  # the agent, its step of free text, and which other answer it gives
    steps: dict[tuple[str, int], ModelStep] = field(default_factory=dict)
    answered: set[int] = field(default_factory=set)  # the seeds of steps that asked, each the step's own
    since: dict[str, int] = field(default_factory=dict)  # the step from which an agent is live here

    async def speak(self, see: See, kind: Decision, prompt: str, options: Sequence[str]) -> tuple[str, Said]:
        """One of the options, and what the model read and said for it."""
        self.since.setdefault(see.name, see.turn)
        if self.forced is not None and self.forced[:2] == (see.name, see.turn):
            return self._force(see, kind, self.forced[2])
        answer: tuple[str, Said] = await self.server.ask(self, see, kind, prompt, tuple(options))
        return answer

    async def write(
        self,
        see: See,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[dict[str, Any]] = (),
        stop: str | Sequence[str] = (),
        most: int = 0,
        schema: dict[str, Any] | None = None,
        call: bool = False,
    ) -> Written:
        """Free text that answers a conversation, in the form of OpenAI's chats, through the model's own template.

        It ends at a text of `stop`, or after `most` tokens (the settings' `longest` if 0). With a `schema` it is
        JSON of that schema, with `call` a call of one of the `tools`. Raises Fault for a conversation that cannot
        be put to the model."""
        self.since.setdefault(see.name, see.turn)
        texts = (stop,) if isinstance(stop, str) else tuple(stop)
        grammar: dict[str, Any] | None = {"tools": list(tools)} if call else None
        if schema is not None:
            grammar = {"schema": schema}
        try:
            plain = [message_of(message) for message in messages]
        except BadConversation as error:
            raise Fault("nonsense", str(error)) from None
        given = Conversation(plain, tools, texts, most or self.server.settings.longest, grammar)
        written: Written = await self.server.ask(self, see, "communicate", "", (), given)
        return written

    def before(self, agent: str, turn: int) -> ModelStep | None:
        """What an agent said last: here, or where this run branched off, in steps that are on record."""
        own = [t for name, t in self.steps if name == agent and t < turn]
        if own:
            return self.steps[agent, max(own)]
        return None if self.parent is None else self.parent.before(agent, self.since.get(agent, turn))

    def at(self, agent: str, turn: int) -> ModelStep:
        """What an agent said in a step."""
        if (agent, turn) in self.steps:
            return self.steps[agent, turn]
        assert self.parent is not None
        return self.parent.at(agent, turn)

    def _force(self, see: See, kind: Decision, option: str) -> tuple[str, Said]:
        """It was made to say this; how likely it was to is known."""
        assert self.parent is not None
        step = self.parent.at(see.name, see.turn)
        k, model = step.options.index(option), self.server.team.policies[step.policy].model
        ids = (*model.ids(option), model.end)
        step = step._replace(answer=step.answer._replace(ids=ids, logp=step.answer.option_logp[k], option=k))
        self.steps[see.name, see.turn] = step
        return option, recorded(step, kind, option, "forced", digests([step])[0])


class BatchServer:
    """Where agents of live teams ask what to say. One server is one set of weights: after an update there is
    another."""

    def __init__(self, team: PolicyTeam, settings: SpeechSettings, version: str, greedy: bool = False) -> None:
        self.team, self.settings, self.greedy = team, settings, greedy
        self.engines: dict[str, Engine] = engines_of(team, version, settings.rows, settings.width, settings.remote)
        self.waiting: list[Question] = []
        self.failed: BaseException | None = None  # what ends everything
        self.lost = self.remote = 0  # answers of endpoints: those that did not come, and all

    async def ask(
        self,
        handle: RunHandle,
        see: See,
        kind: Decision,
        prompt: str,
        options: tuple[str, ...],
        conversation: Conversation | None = None,
    ) -> Any:
        """Waits for an answer, which an agent may ask for once a step. Raises Fault where there is none."""
        if see.seed in handle.answered:
            raise Fault("nonsense", "an agent asks its model once a step, and this is the second time")
        if self.failed is not None:
            raise Fault("endpoint", "the server has ended")
        handle.answered.add(see.seed)
        try:
            policy, before = self.team.of(see.role), handle.before(see.name, see.turn)
        except BadEngine as error:  # to the harness it were one more fault of an agent
            self.failed = error
            raise Fault("endpoint", str(error)) from None
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting.append(Question(handle, see, kind, prompt, options, policy, before, answer, conversation))
        return await answer

    async def serve(self, work: Sequence[Any]) -> None:
        """Does all of this at once, answering whatever is asked meanwhile. Raises what ended it: a model or an
        endpoint that cannot be used."""
        tasks = [asyncio.ensure_future(one) for one in work]
        everything = asyncio.gather(*tasks)
        calm, count = 0, 0
        try:
            while not everything.done():
                await asyncio.sleep(0)
                calm, count = (calm + 1, count) if len(self.waiting) == count else (0, len(self.waiting))
                if self.waiting and calm >= CALM:
                    self._answer()
                    calm, count = 0, 0
                elif not self.waiting and calm >= 4 * CALM:
                    await asyncio.sleep(1e-3)  # somebody waits for a clock
            await everything
        finally:
            for task in tasks:
                task.cancel()
        if self.failed is not None:
            raise self.failed
        if self.remote and self.lost == self.remote:
            raise BadEndpoint(f"endpoints gave none of {self.remote} answers; nothing was learned from this")

    def _answer(self) -> None:
        """Answers all that waits, policy by policy."""
        questions, self.waiting = [q for q in self.waiting if not q.answer.cancelled()], []
        for name in dict.fromkeys(q.policy for q in questions):
            some = [q for q in questions if q.policy == name]
            try:
                if self.failed is None and (choices := [q for q in some if q.conversation is None]):
                    self._complete(name, choices)
                if self.failed is None and (texts := [q for q in some if q.conversation is not None]):
                    self._write(name, texts)
            except BadEngine as error:
                self.failed = error
            for question in some:
                if not question.answer.done():
                    question.answer.set_exception(Fault("endpoint", str(self.failed or "no answer")))

    def _complete(self, name: str, questions: list[Question]) -> None:
        engine, model = self.engines[name], self.team.policies[name].model
        prompts = model.ids_of([q.prompt for q in questions])
        listed = [tuple(model.ids_of(q.options)) if engine.constrained else () for q in questions]
        contexts = [_context(q.before, ids, model.frame) for q, ids in zip(questions, prompts, strict=True)]
        requests = [
            Request(context, (int(q.see.seed),), options, self.settings.longest, self.greedy)
            for context, q, options in zip(contexts, questions, listed, strict=True)
        ]
        answers = engine.complete(requests)
        steps = [
            ModelStep(name, context, q.options, answer)
            for context, q, answer in zip(contexts, questions, answers, strict=True)
        ]
        for question, step, digest in zip(questions, steps, digests(steps), strict=True):
            if engine.constrained:
                option = step.options[step.answer.option]
                self._set(question, step, option, recorded(step, question.kind, option, "constrained", digest))
            else:
                self._read_free(question, step, model)

    def _write(self, name: str, questions: list[Question]) -> None:
        """Answers in free text; a conversation that cannot be put to the model is its agent's fault."""
        engine, model = self.engines[name], self.team.policies[name].model
        dialogue, open_asks = Dialogue(model), list[tuple[Question, Prompt, Request]]()
        for question in questions:
            try:
                open_asks.append((question, *self._request(question, dialogue)))
            except BadEngine as error:
                question.answer.set_exception(Fault("nonsense", str(error)))
        answers = engine.complete([request for _, _, request in open_asks])
        steps = [ModelStep(name, p.context, (), one) for (_, p, _), one in zip(open_asks, answers, strict=True)]
        for (question, prompt, _), step, digest in zip(open_asks, steps, digests(steps), strict=True):
            answer, given = step.answer, question.conversation
            self.remote += not engine.constrained
            if answer.fault is not None or given is None:
                self.lost += 1
                question.answer.set_exception(Fault("endpoint", answer.fault or "no answer"))
                continue
            spoken = dialogue.spoken(answer, given.tools, given.stop)
            past = Past(prompt, answer, spoken)
            past.key = [*keys([*given.messages, message_of(spoken.message())], given.tools)][-1]
            question.handle.steps[question.see.name, question.see.turn] = step._replace(past=past)
            how = "free" if given.grammar is None else "grammar"
            generation = msgspec.structs.replace(
                recorded(step, None, "", how, digest), finish=spoken.finish, link=prompt.link, grammar=given.grammar
            )
            question.answer.set_result(Written(spoken.content, spoken.calls, spoken.finish, generation))

    def _request(self, question: Question, dialogue: Dialogue) -> tuple[Prompt, Request]:
        """What is put to the engine for free text. Raises BadEngine."""
        given, see, past = question.conversation, question.see, question.before and question.before.past
        assert given is not None
        goes_on = past is not None and past.key in keys(given.messages, given.tools)
        prompt = dialogue.prompt(given.messages, given.tools, past if goes_on else None)
        if question.before is not None and not goes_on:
            prompt = prompt._replace(link="fork", why="another conversation than before")
        if (room := dialogue.model.longest - prompt.context.length) < given.most:
            raise BadEngine(
                f"a conversation of {prompt.context.length} tokens and {given.most} more; "
                f"{dialogue.model.name} takes {dialogue.model.longest}, so {max(room, 0)} are left"
            )
        fresh = question.handle.fresh
        other = (fresh[2],) if fresh is not None and fresh[:2] == (see.name, see.turn) else ()
        grammar = None if given.grammar is None else dialogue.grammar(given.grammar)
        address = (int(see.seed), *other)
        return prompt, Request(prompt.context, address, (), given.most, self.greedy, given.stop, grammar)

    def _set(self, question: Question, step: ModelStep, option: str, said: Said) -> None:
        question.handle.steps[question.see.name, question.see.turn] = step
        question.answer.set_result((option, said))

    def _read_free(self, question: Question, step: ModelStep, model: Any) -> None:
        """Whatever an endpoint says, if it is one of the options; else a fault."""
        self.remote += 1
        fault = step.answer.fault
        words = model.text([t for t in step.answer.ids if t != model.end]).strip()
        if fault is None and words in step.options:
            self._set(question, step, words, recorded(step, question.kind, words, "free", None))
            return
        self.lost += fault is not None
        why = fault or f"{words!r} is not an option here; expected one of: {', '.join(step.options)}"
        question.answer.set_exception(Fault("endpoint" if fault else "nonsense", why))


def _context(before: ModelStep | None, prompt: tuple[int, ...], frame: Any) -> Context:
    """A prompt, behind all that its agent read and said before."""
    if before is None:
        return Context((*frame.open, *prompt, *frame.ask))
    return Context((*frame.again, *prompt, *frame.ask), Context(before.answer.ids, before.context))


def digests(steps: Sequence[ModelStep]) -> list[str | None]:
    """Of each step the digest of all ids that went through the model and that it said; None where an endpoint
    spoke."""
    length, h1, h2 = np.array([s.answer.read or (-1, 0, 0) for s in steps], np.int64).reshape(-1, 3).T
    whole = spelled(*extend(np.maximum(length, 0), h1, h2, [s.answer.ids for s in steps]))
    return [one if n >= 0 else None for one, n in zip(whole, length.tolist(), strict=True)]


def recorded(step: ModelStep, kind: Decision | None, option: str, how: str, digest: str | None) -> Said:
    """A step's tokens as its event has them. What an agent was made to say was given to it."""
    given, answer = step.context.ids, step.answer
    odds = [float(np.exp(sum(some))) for some in answer.option_logp]
    return Said(
        [*given, *answer.ids],
        [*(None for _ in given), *answer.logp],
        [*(False for _ in given), *(how != "forced" for _ in answer.ids)],
        step.start,
        step.start > 0,
        how,
        digest,
        None if kind is None else {"kind": kind, "options": list(step.options), "chosen": option},
        odds or None,
    )
