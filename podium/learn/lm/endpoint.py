"""Policies behind an OpenAI-compatible completions endpoint, such as vLLM's: ids go there, ids and log-probabilities come back. Needs httpx (`pip install 'podium[serve]'`).

What cannot be had now (no connection, one that breaks, a server that fails, stalls or talks nonsense) is asked for again, and then it is an answer with
a fault and without tokens. What would make a trace untrue (no ids, no log-probabilities, ids that are not those of this tokenizer) is a BadEndpoint.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from podium.learn.lm.generate import Spoken
from podium.learn.lm.models import BadModel, Model, Team

if TYPE_CHECKING:
    import httpx

__all__ = ["BadEndpoint", "Request", "Voice", "connect"]

AGAIN = (408, 425, 429)  # refused now; all from 500 on too
TRIES, REST = 4, 0.25  # seconds before the second; twice as many before each that follows
LARGEST = 1 << 24  # bytes of an answer
GIVEN_UP = 16  # answers lost in a row, after which each is asked for only once


class BadEndpoint(BadModel):
    """An endpoint that cannot be used; says what was expected, what came, and where."""


class _Lost(Exception):
    """No answer now; there may be one the next time."""


class Request(NamedTuple):
    """What is to be continued, and by which dice."""

    ids: tuple[int, ...]
    seed: int


@dataclass
class Voice:
    """An endpoint that speaks for a policy: `url` is what /v1/completions is under. Its key is read from a variable of the environment when it is needed."""

    url: str
    served: str = ""  # the name of the model there; not said if empty
    key_from: str = ""  # the variable that holds its key, if it wants one
    seconds: float = 60.0  # that an answer may take
    lost: int = field(default=0, compare=False)  # answers, in a row

    def __post_init__(self) -> None:
        try:
            import httpx
        except ImportError:
            raise BadEndpoint(
                "an endpoint needs httpx, which is not installed: pip install 'podium[serve]'"
            ) from None
        self.url = self.url.rstrip("/").removesuffix("/v1")
        try:
            there = httpx.URL(self.url)
            good = there.scheme in ("http", "https") and bool(there.host)
        except httpx.InvalidURL:
            good = False
        if not good:
            raise BadEndpoint(
                f"expected the address of an endpoint such as http://localhost:8000, got {self.url!r}"
            )

    def proven(self, model: Model) -> None:
        """Asks for one token: an endpoint that is not there, or that leaves out what is needed, says so before anything runs."""
        ids = (*model.frame.open, *model.ids("ready?"), *model.frame.ask)
        if (fault := self.answers(model, [Request(ids, 0)], 1)[0].fault) is not None:
            raise BadEndpoint(fault)

    def answers(
        self, model: Model, asked: Sequence[Request], longest: int, temperature: float = 1.0, at_once: int = 32
    ) -> list[Spoken]:
        """What the endpoint says to each, of at most `longest` tokens; without tokens and with a fault where it said nothing. Raises BadEndpoint."""
        import httpx

        headers = {"content-type": "application/json"}
        if self.key_from:
            if not (key := os.environ.get(self.key_from)):
                raise BadEndpoint(f"{self.url}: expected its key in the variable {self.key_from}, which is not set")
            headers["authorization"] = f"Bearer {key}"
        near = not self.url.startswith("https:")  # no proxy to a plain address nearby
        with (
            httpx.Client(timeout=self.seconds, headers=headers, trust_env=not near) as client,
            ThreadPoolExecutor(at_once) as pool,
        ):
            return list(pool.map(lambda one: self._answer(client, model, one, longest, temperature), asked))

    def _answer(self, client: httpx.Client, model: Model, one: Request, longest: int, temperature: float) -> Spoken:
        end = model.frame.end
        body = msgspec.json.encode(
            ({"model": self.served} if self.served else {})
            | {"prompt": one.ids, "max_tokens": longest, "temperature": temperature, "seed": one.seed}
            | {"logprobs": 1, "return_token_ids": True, "stop_token_ids": [end]}
            # a server may have other defaults, and then log-probabilities would not be of what was drawn from
            | {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
        )
        tries, why = 1 if self.lost >= GIVEN_UP else TRIES, ""
        for number in range(tries):
            if number:
                time.sleep(REST * 2 ** (number - 1))
            try:
                choice = _read(self._posted(client, body))
            except _Lost as error:
                why = str(error)
                continue
            self.lost = 0
            ids, logp = self._checked(model, one.ids, choice)
            return Spoken(ids, logp, bool(ids) and ids[-1] == end)
        self.lost += 1
        return Spoken([], [], False, f"endpoint {why} ({self.url}, tried {tries} times)")

    def _posted(self, client: httpx.Client, body: bytes) -> bytes:
        """The body of an answer that was given."""
        import httpx

        until, whole = time.monotonic() + self.seconds, bytearray()
        try:
            with client.stream("POST", f"{self.url}/v1/completions", content=body) as answer:
                for piece in answer.iter_bytes():
                    whole += piece
                    if len(whole) > LARGEST:
                        raise _Lost(f"nonsense: an answer of more than {LARGEST} bytes")
                    if time.monotonic() > until:
                        raise _Lost(f"stalled: no whole answer within {self.seconds:g} s")
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise _Lost(f"unreachable: {error}") from None
        except httpx.TimeoutException:
            raise _Lost(f"stalled: not a word for {self.seconds:g} s") from None
        except httpx.HTTPError as error:
            raise _Lost(f"dropped: {error}") from None
        if answer.status_code == 200:
            return bytes(whole)
        said = f"status {answer.status_code}: {' '.join(whole[:300].decode(errors='replace').split())}"
        if answer.status_code in AGAIN or answer.status_code >= 500:
            raise _Lost(f"failed: {said}")
        raise BadEndpoint(f"{self.url} refused /v1/completions: {said}")

    def _checked(self, model: Model, sent: tuple[int, ...], choice: _Choice) -> tuple[list[int], list[float]]:
        """The ids and log-probabilities of an answer, if they are there and are those of this tokenizer. It fails closed."""
        ids, echo, odds = choice.token_ids, choice.prompt_token_ids, choice.logprobs
        if ids is None or echo is None:
            missing = "prompt_token_ids" if ids is not None else "token_ids"
            raise BadEndpoint(
                f"{self.url} returns no token ids: expected prompt_token_ids and token_ids beside the text, got no {missing}; "
                'the request says "return_token_ids": true, which vLLM follows from 0.10.2 on'
            )
        if tuple(echo) != sent:
            raise BadEndpoint(
                f"{self.url} read other ids than those sent: {_apart(sent, echo)}; expected the prompt as it is, nothing put before it"
            )
        for at, token in enumerate(ids):
            if not 0 <= token < len(model.tokenizer):
                raise BadEndpoint(
                    f"{self.url} says id {token} at place {at}, and {model.name} has {len(model.tokenizer)} tokens; "
                    "expected a server with the tokenizer of this model"
                )
        logp = None if odds is None else odds.token_logprobs
        if logp is None or len(logp) != len(ids) or not all(p is not None and p < 1e-3 for p in logp):
            came = "none" if logp is None else f"{sum(p is not None and p < 1e-3 for p in logp)} that are some"
            raise BadEndpoint(
                f"{self.url} returns no log-probabilities: expected one of each of {len(ids)} tokens in logprobs.token_logprobs, got {came}; "
                'the request says "logprobs": 1, which vLLM follows unless --max-logprobs is 0'
            )
        mine, theirs = _plain(model.text([t for t in ids if t != model.frame.end])), _plain(choice.text)
        if mine != theirs:
            raise BadEndpoint(
                f"{self.url} says other ids than its text: {_apart(mine, theirs)} (characters); "
                f"its ids are {mine[:60]!r} here, its text is {theirs[:60]!r}; expected a server with the tokenizer of {model.name}"
            )
        return ids, [min(p, 0.0) for p in logp if p is not None]


def connect(team: Team, endpoint: str | Mapping[str, str], **how: Any) -> None:
    """Policies of a team speak through an endpoint: all, or those named, each through its own. `how` are settings of `Voice`."""
    places = dict.fromkeys(team.minds, endpoint) if isinstance(endpoint, str) else endpoint
    for name, url in places.items():
        if name not in team.minds:
            raise BadEndpoint(f"no policy {name!r} to speak through an endpoint; there are {', '.join(team.minds)}")
        team.minds[name].voice = Voice(url, **how)


class _Odds(msgspec.Struct):
    token_logprobs: list[float | None] | None = None


class _Choice(msgspec.Struct):
    text: str
    logprobs: _Odds | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]


def _read(body: bytes) -> _Choice:
    try:
        return msgspec.json.decode(body, type=_Answer).choices[0]
    except (msgspec.MsgspecError, UnicodeDecodeError, IndexError) as error:
        raise _Lost(f"nonsense: expected a completion, got {bytes(body[:60])!r}: {error}") from None


def _plain(text: str) -> str:
    """A text without what servers treat otherwise: spaces at its ends, and bytes that are no characters, which some hold back.

    >>> _plain(" go on" + chr(0xFFFD))
    'go on'
    """
    return text.replace("\ufffd", "").strip()


def _apart(sent: Sequence[Any], came: Sequence[Any]) -> str:
    """Where two sequences differ first.

    >>> _apart((1, 2, 3), (1, 5))
    'at place 1 expected 2, got 5'
    """
    at = next((i for i, (a, b) in enumerate(zip(sent, came, strict=False)) if a != b), min(len(sent), len(came)))
    a, b = (repr(some[at]) if at < len(some) else "nothing" for some in (sent, came))
    return f"at place {at} expected {a}, got {b}"
