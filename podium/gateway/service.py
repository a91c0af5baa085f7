"""The gateway without HTTP: requests of programs in, answers of the engines out, all of it recorded.

Requests of all runs join one batch of the engine as they come, which runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import queue
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from podium.engine.chat import ChatEndpoint
from podium.engine.client import EndpointFault
from podium.engine.dialogue import Dialogue, Past, Prompt, Spoken
from podium.engine.protocol import BadEngine, Completion, Context, Engine, Request
from podium.gateway.dialects import Answer, Ask, BadRequest
from podium.gateway.runs import Caller, Run, Turn, error_words

if TYPE_CHECKING:
    from podium.engine.models import PolicyModel, PolicyTeam

__all__ = ["EngineThread", "Gateway", "Limits"]

LONGEST = 512  # tokens of an answer, where nobody says
GATHER = 0.002  # seconds in which requests that come together begin together
Made = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Completion]"]


class Limits(NamedTuple):
    """What one gateway does at once, and for how long it remembers."""

    waiting: int = 1024  # requests without an answer
    body: int = 8 << 20  # bytes of a request
    tokens: int = 1 << 21  # of contexts that an engine remembers, after which it begins anew
    runs: int = 4096  # open at once
    idle: float = 3600.0  # seconds after which a run that nobody uses is closed
    retries: int = 4096  # answers that are given again to who asks again


class EngineThread:
    """Engines of policies, each driven by all requests that wait for it, in one thread."""

    def __init__(self, make: Callable[[], Mapping[str, Engine]], tokens: int = Limits().tokens) -> None:
        self.make, self.tokens = make, tokens
        self.engines = make()
        self._queue: queue.SimpleQueue[tuple[str, Request, Made] | None] = queue.SimpleQueue()
        self._waiting: dict[tuple[str, int], Made] = {}
        self._read = 0  # tokens since the engines were made
        self._thread = threading.Thread(target=self._serve, daemon=True, name="podium-engine")
        self._thread.start()

    async def complete(self, name: str, request: Request) -> Completion:
        """The answer of a policy. Raises BadEngine."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Completion] = loop.create_future()
        self._queue.put((name, request, (loop, future)))
        return await future

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (some := self._gathered()) is not None:
            for name in dict.fromkeys(one[0] for one in some):
                self._begin(name, [one for one in some if one[0] == name])
            for name in dict.fromkeys(name for name, _ in self._waiting):
                self._step(name)
            if self._read > self.tokens and not self._waiting:
                self.engines, self._read = self.make(), 0

    def _gathered(self) -> list[tuple[str, Request, Made]] | None:
        """What waits; where nothing is under way, it waits for something."""
        some, idle = list[tuple[str, Request, Made]](), not self._waiting
        if self._waiting and self._read > self.tokens:
            return some  # memory is given back first
        while True:
            try:
                one = (
                    self._queue.get(block=idle and not some) if not some else self._queue.get(timeout=GATHER * idle)
                )
            except queue.Empty:
                return some
            if one is None:
                return None
            some.append(one)

    def _begin(self, name: str, some: list[tuple[str, Request, Made]]) -> None:
        engine: Any = self.engines[name]
        requests = [request for _, request, _ in some]
        self._read += sum(r.context.length + r.longest for r in requests)
        try:
            if hasattr(engine, "submit"):
                numbers = engine.submit(requests)
                self._waiting |= {(name, n): made for n, (_, _, made) in zip(numbers, some, strict=True)}
                return
            for answer, (_, _, made) in zip(engine.complete(requests), some, strict=True):
                _settle(made, answer)
        except Exception as error:  # whatever a model does, requests are answered
            for _, _, made in some:
                _settle(made, error)

    def _step(self, name: str) -> None:
        engine: Any = self.engines[name]
        try:
            for number, answer in engine.step().items():
                _settle(self._waiting.pop((name, number)), answer)
        except Exception as error:
            for key in [key for key in self._waiting if key[0] == name]:
                _settle(self._waiting.pop(key), error)
            self.engines, self._read = self.make(), 0


def _settle(made: Made, answer: Completion | Exception) -> None:
    loop, future = made

    def settle() -> None:
        if not future.done():
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    if not loop.is_closed():
        loop.call_soon_threadsafe(settle)


class Gateway:
    """Runs of programs, answered by the policies of a team, or passed on to an upstream."""

    def __init__(
        self,
        folder: Path,
        team: PolicyTeam | None = None,
        make: Callable[[], Mapping[str, Engine]] | None = None,
        *,
        upstream: ChatEndpoint | None = None,
        seed: int = 0,
        longest: int = LONGEST,
        greedy: bool = False,
        limits: Limits | None = None,
        secrets: tuple[str, ...] = (),
    ) -> None:
        self.folder, self.team, self.upstream, self.seed = folder, team, upstream, seed
        self.longest, self.greedy, self.limits, self.secrets = longest, greedy, limits or Limits(), secrets
        self.engines = None if make is None else EngineThread(make, self.limits.tokens)
        self.runs: dict[str, Run] = {}
        self.waiting = 0
        self._again: dict[str, asyncio.Future[Answer]] = {}
        self._dialogues: dict[int, Dialogue] = {}
        folder.mkdir(parents=True, exist_ok=True)

    # ---- runs

    def run(self, name: str, **fields: Any) -> Run:
        """The run of a name: the one that is open, or a new one."""
        if name not in self.runs:
            now = time.monotonic()
            for old in [n for n, r in self.runs.items() if now - r.used > self.limits.idle and not r.busy]:
                self.end(old)
            if len(self.runs) >= self.limits.runs:
                raise BadRequest(429, f"{self.limits.runs} runs are open; end some of them", 5.0)
            target, number = self.folder / name, 1
            while target.exists():
                number += 1
                target = self.folder / f"{name}-{number}"
            self.runs[name] = Run(name if number == 1 else target.name, target, fields)
        return self.runs[name]

    def end(self, name: str, rewards: dict[str, float] | None = None) -> Path:
        """Closes a run, with what it earned. Raises BadRequest where there is none."""
        if name not in self.runs:
            raise BadRequest(404, f"no run {name!r} is open")
        run = self.runs.pop(name)
        run.close(rewards)
        return run.folder

    def close(self) -> None:
        """Closes all runs and ends the engines."""
        for name in list(self.runs):
            self.end(name)
        if self.engines is not None:
            self.engines.close()

    # ---- answers

    async def answer(self, ask: Ask, caller: Caller, again: str = "", retried: bool = False) -> Answer:
        """The answer to a request, which is known by `again`; one that is `retried` is not done twice. Raises
        BadRequest."""
        caller.checked()
        if not again:
            return await self._answer(ask, caller)
        key = hashlib.blake2b(repr((caller, again)).encode(), digest_size=16).hexdigest()
        if not retried or key not in self._again:
            while len(self._again) >= self.limits.retries:
                self._again.pop(next(iter(self._again)))
            self._again[key] = asyncio.ensure_future(self._answer(ask, caller))
        future = self._again[key]
        try:
            return await asyncio.shield(future)
        except BaseException:
            if future.done() and (future.cancelled() or future.exception() is not None):
                self._again.pop(key, None)  # what failed is done anew
            raise

    async def _answer(self, ask: Ask, caller: Caller) -> Answer:
        if self.waiting >= self.limits.waiting:
            raise BadRequest(429, f"{self.waiting} requests wait for an answer already", 1.0)
        run = self.run(caller.run)
        seed = int.from_bytes(hashlib.blake2b(f"{self.seed}/{run.name}".encode(), digest_size=6).digest(), "little")
        self.waiting += 1
        turn = run.begin(ask, caller)
        try:
            pasts, facts = await (self._passed_on(ask) if self.upstream else self._generated(ask, run, turn, seed))
        except BaseException as error:
            words = error_words(error, self.secrets)
            run.cancel(turn, words or type(error).__name__)
            if isinstance(error, BadEngine | EndpointFault):
                status = 400 if isinstance(error, BadEngine) else 502
                raise BadRequest(status, words) from None
            raise
        finally:
            self.waiting -= 1
        if ask.more:
            facts["not_followed"] = dict(ask.more)
        number = run.end(ask, turn, pasts, facts)
        spoken = [past.spoken for past in pasts]
        name = hashlib.blake2b(f"{run.folder}/{number}".encode(), digest_size=12).hexdigest()
        tokens_out = sum(past.more.get("tokens_out", len(past.answer.ids)) for past in pasts)
        tokens_in = pasts[0].more.get("tokens_in", pasts[0].prompt.context.length)
        logp = [past.answer.logp for past in pasts]
        return Answer(name, int(time.time()), ask.model or "podium", spoken, tokens_in, tokens_out, number, logp)

    def policy(self, agent: str) -> PolicyModel:
        """The policy of an agent, by its role; the first where its role has none."""
        assert self.team is not None
        try:
            return self.team.policies[self.team.of(agent)]
        except BadEngine:
            return next(iter(self.team.policies.values()))

    def dialogue(self, policy: PolicyModel) -> Dialogue:
        return self._dialogues.setdefault(id(policy.model), Dialogue(policy.model))

    def count(self, ask: Ask, caller: Caller) -> int:
        """The tokens of a conversation."""
        if self.team is None:
            raise BadRequest(501, "an upstream counts its own tokens")
        try:
            return self.dialogue(self.policy(caller.agent)).prompt(ask.messages, ask.tools).context.length
        except BadEngine as error:
            raise BadRequest(400, str(error)) from None

    async def _generated(self, ask: Ask, run: Run, turn: Turn, seed: int) -> tuple[list[Past], dict[str, Any]]:
        """Answers of an engine of ours."""
        assert self.engines is not None
        policy = self.policy(turn.agent)
        dialogue = self.dialogue(policy)
        before = turn.before if turn.before is not None and turn.before.answer.ids else None
        prompt = dialogue.prompt(ask.messages, ask.tools, before)
        if before is None and turn.agent in run.last:
            prompt = prompt._replace(link="fork", why="another conversation than before")
        if (room := policy.model.longest - prompt.context.length) < 1:
            raise BadRequest(
                400, f"{prompt.context.length} tokens; {policy.model.name} takes {policy.model.longest}"
            )
        most = min(ask.most or self.longest, self.longest, room)
        grammar = None if ask.grammar is None else dialogue.grammar(ask.grammar)
        requests = [
            Request(
                prompt.context,
                run.address(ask, seed, at),
                longest=most,
                greedy=ask.greedy or self.greedy,
                stop=ask.stop,
                grammar=grammar,
            )
            for at in range(ask.choices)
        ]
        answers = await asyncio.gather(*(self.engines.complete(policy.name, one) for one in requests))
        pasts = []
        for answer in answers:
            if answer.fault is not None:
                raise BadRequest(502, answer.fault)
            spoken = dialogue.spoken(answer, ask.tools, ask.stop)
            pasts.append(Past(prompt, answer, spoken))
        return pasts, {"model": policy.model.name}

    async def _passed_on(self, ask: Ask) -> tuple[list[Past], dict[str, Any]]:
        """The answer of an upstream: nobody knows its tokens."""
        assert self.upstream is not None
        reply = await self.upstream.chat([_upstream_form(m) for m in ask.messages], ask.tools)
        finish = reply.finish if reply.finish in ("stop", "length", "tool_calls") else "stop"
        spoken = Spoken(reply.text, reply.calls, finish)
        past = Past(Prompt("", Context(()), "unknown"), Completion((), ()), spoken)
        past.more |= {"tokens_in": int(reply.tokens_in or 0), "tokens_out": int(reply.tokens_out or 0)}
        return [past], {"upstream": self.upstream.url, "exact": False}


def _upstream_form(message: dict[str, Any]) -> dict[str, Any]:
    """A message as OpenAI has it: the arguments of calls are text."""
    calls = [
        {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
        for call in message.get("tool_calls", ())
    ]
    return {**message, "tool_calls": calls} if calls else message
