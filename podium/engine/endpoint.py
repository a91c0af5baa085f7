"""A policy behind an OpenAI-compatible completions endpoint, such as vLLM's: ids go there, ids and
log-probabilities come back.

What cannot be had now (no connection, one that breaks, a server that fails, stalls or talks nonsense) is asked for
again, and then it is a completion with a fault and without ids. What would make a trace untrue (no ids, no
log-probabilities, ids that are not those of this tokenizer) is a BadEndpoint. Needs httpx
(`pip install 'podium[serve]'`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from podium.engine.client import LARGEST, Client, EndpointFault, patiently, wait_for
from podium.engine.keys import login
from podium.engine.protocol import BadEngine, Completion, Context, Request, Vocabulary, dice
from podium.trace.depth import TOO_DEEP, is_deep

__all__ = ["BadEndpoint", "EndpointEngine"]

TRIES, REST = 4, 0.25  # seconds before the second; twice as many before each that follows
GIVEN_UP = 16  # answers lost in a row, after which each is asked for only once


class BadEndpoint(BadEngine):
    """An endpoint that cannot be used; says what was expected, what came, and where."""


class EndpointEngine:
    """An engine behind `url`, what /v1/completions is under. Its key is read from a variable of the environment
    when it is needed.

    `vocabulary` is the model's whose ids are sent: what comes back must be in it.
    """

    version, constrained = "endpoint", False

    def __init__(
        self,
        url: str,
        vocabulary: Vocabulary,
        *,
        served: str = "",
        key_from: str = "",
        seconds: float = 60.0,
        at_once: int = 32,
    ) -> None:
        _check_address(login(url).url)
        self.vocabulary, self.served, self.at_once = vocabulary, served, at_once
        address = url.rstrip("/").removesuffix("/v1")
        self.client = Client(address, key_from=key_from or None, seconds=seconds, largest=LARGEST)
        self.url = self.client.url
        self.lost = 0  # answers, in a row

    @property
    def model(self) -> str:
        """The name of the model there, if it was given."""
        return self.served or self.vocabulary.name

    def prove(self, ids: Sequence[int]) -> None:
        """Asks for one token: an endpoint that is not there, or that leaves out what is needed, says so before
        anything runs."""
        request = Request(Context(tuple(ids)), (0,), longest=1)
        if (fault := self.complete([request])[0].fault) is not None:
            raise BadEndpoint(fault)

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """What the endpoint says to each; without ids and with a fault where it said nothing. Raises
        BadEndpoint."""
        if any(one.options for one in requests):
            raise BadEndpoint(f"{self.url} says free text: nobody can tell how likely it would say each option")
        if any(one.grammar is not None for one in requests):
            raise BadEndpoint(
                f"{self.url} says free text: nobody can tell how likely each token is under a grammar"
            )
        try:
            return wait_for(self._all(requests))
        except BadEndpoint as error:
            raise BadEndpoint(self.client.hide(str(error))) from None

    async def _all(self, requests: Sequence[Request]) -> list[Completion]:
        limit = asyncio.Semaphore(self.at_once)
        seeds = (dice(requests) * 2**31).astype(int).tolist()

        async def one(request: Request, seed: int) -> Completion:
            async with limit:
                return await self._complete(request, seed)

        try:
            async with self.client:
                work = [asyncio.ensure_future(one(r, s)) for r, s in zip(requests, seeds, strict=True)]
                try:
                    return list(await asyncio.gather(*work))
                finally:
                    for task in work:
                        task.cancel()
        except EndpointFault as fault:  # what no next try would mend
            raise BadEndpoint(self._words(fault)) from None

    async def _complete(self, request: Request, seed: int) -> Completion:
        body = msgspec.json.encode(self._body(request, seed))
        ids = request.context.all_ids()
        tries = 1 if self.lost >= GIVEN_UP else TRIES
        try:
            choice = await patiently(lambda: self._choice(body), tries, REST)
        except EndpointFault as fault:
            if not fault.retry:
                raise
            self.lost += 1
            why = f"endpoint {fault} ({self.url}, tried {tries} times)"
            return Completion((), (), False, self.version, fault=why)
        self.lost = 0
        spoken, logp = self._check(ids, choice)
        stopped = any(words in choice.text for words in request.stop)
        return Completion(spoken, logp, spoken[-1:] == (self.vocabulary.end,), self.version, stopped=stopped)

    def _body(self, request: Request, seed: int) -> dict[str, Any]:
        named = {"model": self.served} if self.served else {}
        temperature = 0.0 if request.greedy else 1.0
        stop = {"stop": request.stop, "include_stop_str_in_output": True} if request.stop else {}
        return (
            named
            | stop
            | {"prompt": request.context.all_ids(), "max_tokens": request.longest, "temperature": temperature}
            | {"seed": seed, "logprobs": 1, "return_token_ids": True, "stop_token_ids": [self.vocabulary.end]}
            # a server may have other defaults, and then log-probabilities would not be of what was drawn from
            | {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
        )

    async def _choice(self, body: bytes) -> _Choice:
        answer = await self.client.post("/v1/completions", body) or b""
        if is_deep(answer):
            raise EndpointFault("nonsense", f"expected a completion, got JSON that is {TOO_DEEP}", True)
        try:
            return msgspec.json.decode(answer, type=_Answer).choices[0]
        except (msgspec.MsgspecError, UnicodeDecodeError, IndexError) as error:
            why = f"expected a completion, got {answer[:60]!r}: {error}"
            raise EndpointFault("nonsense", why, True) from None

    def _words(self, fault: EndpointFault) -> str:
        if fault.kind == "missing":
            return fault.why
        what = f"{self.url} refused /v1/completions" if "status" in fault.why else self.url
        return f"{what}: {fault.why}"

    def _check(self, sent: tuple[int, ...], choice: _Choice) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """The ids and log-probabilities of an answer, if they are there and are those of this tokenizer. It fails
        closed."""
        ids, odds = self._checked_ids(sent, choice), choice.logprobs
        logp = None if odds is None else odds.token_logprobs
        if logp is None or len(logp) != len(ids) or not all(p is not None and p < 1e-3 for p in logp):
            came = "none" if logp is None else f"{sum(p is not None and p < 1e-3 for p in logp)} that are some"
            raise BadEndpoint(
                f"{self.url} returns no log-probabilities: expected one of each of {len(ids)} tokens in "
                f'logprobs.token_logprobs, got {came}; the request says "logprobs": 1, which vLLM follows unless '
                "--max-logprobs is 0"
            )
        mine = _plain(self.vocabulary.text([t for t in ids if t != self.vocabulary.end]))
        if mine != (theirs := _plain(choice.text)):
            raise BadEndpoint(
                f"{self.url} says other ids than its text: {_difference(mine, theirs)} (characters); its ids are "
                f"{mine[:60]!r} here, its text is {theirs[:60]!r}; expected a server with the tokenizer of "
                f"{self.vocabulary.name}"
            )
        return ids, tuple(min(p, 0.0) for p in logp if p is not None)

    def _checked_ids(self, sent: tuple[int, ...], choice: _Choice) -> tuple[int, ...]:
        ids, echo = choice.token_ids, choice.prompt_token_ids
        if ids is None or echo is None:
            missing = "prompt_token_ids" if ids is not None else "token_ids"
            raise BadEndpoint(
                f"{self.url} returns no token ids: expected prompt_token_ids and token_ids beside the text, got no "
                f'{missing}; the request says "return_token_ids": true, which vLLM follows from 0.10.2 on'
            )
        if tuple(echo) != sent:
            raise BadEndpoint(
                f"{self.url} read other ids than those sent: {_difference(sent, echo)}; expected the prompt as it "
                "is, "
                "nothing put before it"
            )
        for at, token in enumerate(ids):
            if not 0 <= token < self.vocabulary.size:
                raise BadEndpoint(
                    f"{self.url} says id {token} at place {at}, and {self.vocabulary.name} has "
                    f"{self.vocabulary.size} tokens; expected a server with the tokenizer of this model"
                )
        return tuple(ids)


def _check_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        good = False
    if not good:
        raise BadEndpoint(f"expected the address of an endpoint such as http://localhost:8000, got {url!r}")


class _Odds(msgspec.Struct):
    token_logprobs: list[float | None] | None = None


class _Choice(msgspec.Struct):
    text: str
    logprobs: _Odds | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]


def _plain(text: str) -> str:
    """A text without what servers treat otherwise: spaces at its ends, and bytes that are no characters, which some
    hold back.

    >>> _plain(" go on" + chr(0xFFFD))
    'go on'
    """
    return text.replace("\ufffd", "").strip()


def _difference(sent: Sequence[Any], came: Sequence[Any]) -> str:
    """Where two sequences differ first.

    >>> _difference((1, 2, 3), (1, 5))
    'at place 1 expected 2, got 5'
    """
    at = next((i for i, (a, b) in enumerate(zip(sent, came, strict=False)) if a != b), min(len(sent), len(came)))
    a, b = (repr(some[at]) if at < len(some) else "nothing" for some in (sent, came))
    return f"at place {at} expected {a}, got {b}"
