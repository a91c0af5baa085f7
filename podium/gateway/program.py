"""Programs that are trained: any command or function that speaks to a model through the gateway, run many at once.

A command finds the gateway in its environment (OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL,
ANTHROPIC_API_KEY); a function is given a client. What it prints, or gives back, is its answer. What the answer is
worth is said by a `verify` in Python, by the program itself in the file $PODIUM_REWARD, or by a judge.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from inspect import isawaitable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from podium.engine.chat import Reply
from podium.engine.dialogue import message_of
from podium.engine.judge import ChatJudge
from podium.engine.judges import Silent
from podium.engine.local import engines_of
from podium.engine.models import PolicyTeam
from podium.gateway.dialects import Ask
from podium.gateway.runs import Caller
from podium.gateway.serve import BadGateway, serving
from podium.gateway.service import Gateway
from podium.outside import BadFile, importing_beside, load_module
from podium.trace.columns import Trace
from podium.trace.files import load

__all__ = ["KINDS", "Client", "Outcome", "Program", "ProgramSettings", "program_of"]

KINDS = ("command:", "function:")
PRINTED = 1 << 20  # bytes of what a command prints that are kept
KEY = "podium"


class ProgramSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a program is run and paid: the table `[program]` of a recipe."""

    tasks: str = ""  # FILE.py:NAME of a function (n, seed, held_out) -> tasks
    verify: str = ""  # FILE.py:NAME of a function (task, answer) -> what it is worth; none: the file $PODIUM_REWARD
    judge: dict[str, Any] = {}  # instead: url, model and instruction of a judge (`podium.engine.judge.ChatJudge`)
    roles: tuple[str, ...] = ("lead",)  # of the agents that it names in its base URLs, for policies by role
    seconds: float = 60.0  # of a run
    at_once: int = 4  # runs
    jail: bool = True  # whether it is confined


class Outcome(NamedTuple):
    """What a run of a program came to."""

    answer: Any
    fault: str = ""  # why it came to nothing


class Client:
    """A model, for functions in this process: conversations in, replies out."""

    def __init__(self, gateway: Gateway, run: str, agent: str = "") -> None:
        self._gateway, self._caller = gateway, Caller(run, agent)

    def agent(self, name: str) -> Client:
        """The same model, asked by an agent of this name."""
        return Client(self._gateway, self._caller.run, name)

    async def chat(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] = (),
        *,
        most: int | None = None,
        schema: dict[str, Any] | None = None,
        stop: Sequence[str] = (),
    ) -> Reply:
        """The answer to a conversation, in the form of OpenAI's chats."""
        grammar = None if schema is None else {"schema": schema}
        ask = Ask("", [message_of(m) for m in messages], list(tools), most, tuple(stop), grammar=grammar)
        answer = await self._gateway.answer(ask, self._caller)
        spoken = answer.choices[0]
        return Reply(
            text=spoken.content,
            calls=spoken.calls,
            finish=spoken.finish,
            tokens_in=answer.tokens_in,
            tokens_out=answer.tokens_out,
        )


@dataclass(frozen=True)
class Program:
    """A program that can be trained, as a live team is."""

    name: str
    settings: ProgramSettings
    questions: Callable[[int, int, bool], list[Any]]
    command: tuple[str, ...] = ()
    function: Callable[[Any, Client], Any] | None = None
    verify: Callable[[Any, Any], float] | None = None
    optimum: float = float("nan")

    @property
    def agents(self) -> tuple[str, ...]:
        return self.settings.roles

    def play(
        self,
        team: PolicyTeam,
        how: Any,
        version: str,
        tasks: Sequence[Any],
        seed: int,
        groups: Sequence[str],
        greedy: bool = False,
    ) -> list[Trace]:
        """Runs of the program, one a task. `how` has the settings of generation: rows, width, longest, remote."""

        def make() -> Any:
            return engines_of(team, version, how.rows, how.width, how.remote)

        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="podium-")))
            gateway = Gateway(folder / "runs", team, make, seed=seed, longest=how.longest, greedy=greedy)
            stack.callback(gateway.close)
            url = "" if self.function is not None else stack.enter_context(serving(gateway))
            folders = asyncio.run(self._all(gateway, url, tasks, groups, folder))
            return [load(one) for one in folders]

    async def _all(
        self, gateway: Gateway, url: str, tasks: Sequence[Any], groups: Sequence[str], folder: Path
    ) -> list[Path]:
        limit = asyncio.Semaphore(self.settings.at_once)

        async def one(number: int, task: Any, group: str) -> Path:
            name = f"{number}"
            async with limit:
                run = gateway.run(name, task_id=group)
                outcome = await self._run(gateway, url, name, task, folder)
                run.finish(outcome.answer, outcome.fault)
                reward = await asyncio.to_thread(self._worth, task, outcome, folder / f"{name}.reward")
                return gateway.end(name, {} if reward is None else {"team": reward})

        work = [one(i, task, group) for i, (task, group) in enumerate(zip(tasks, groups, strict=True))]
        return list(await asyncio.gather(*work))

    async def _run(self, gateway: Gateway, url: str, name: str, task: Any, folder: Path) -> Outcome:
        try:
            async with asyncio.timeout(self.settings.seconds):
                if self.function is None:
                    return await self._started(url, name, task, folder / f"{name}.reward")
                answer = self.function(task, Client(gateway, name))
                return Outcome(await answer if isawaitable(answer) else answer)
        except TimeoutError:
            return Outcome(None, f"it took more than {self.settings.seconds:g} s")
        except Exception as error:  # whatever a function of somebody does
            return Outcome(None, f"{type(error).__name__}: {error}")

    async def _started(self, url: str, name: str, task: Any, reward: Path) -> Outcome:
        """A process, and what it prints. Nothing of its group is left when it has ended or its time is over."""
        text = task if isinstance(task, str) else msgspec.json.encode(task).decode()
        words = [word.replace("{task}", text) for word in self.command]
        address = f"{url}/run/{name}"
        environment = {
            **os.environ,
            "OPENAI_BASE_URL": f"{address}/v1",
            "OPENAI_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": address,
            "ANTHROPIC_API_KEY": KEY,
            "PODIUM_REWARD": str(reward),
            "PODIUM_TASK": text,
        }
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise BadGateway(f"{words[0]}: cannot be started: {error.strerror or error}") from None
        try:
            assert process.stdout
            assert process.stderr
            printed, complaint = await asyncio.gather(_last_of(process.stdout), _last_of(process.stderr))
            await process.wait()
        finally:
            _end_group(process.pid)
            await process.wait()
            process._transport.close()  # type: ignore[attr-defined]
        if process.returncode:
            last = complaint[-300:].decode(errors="replace").strip().splitlines()
            return Outcome(None, f"it ended with {process.returncode}: {last[-1] if last else 'no word'}")
        return Outcome(printed.decode(errors="replace").strip())

    def _worth(self, task: Any, outcome: Outcome, file: Path) -> float | None:
        """What a run is worth; None where nobody can say. One that came to nothing is judged as no answer."""
        if self.settings.judge:
            if outcome.fault:
                return float(self.settings.judge.get("low", 0.0))
            try:
                return ChatJudge(**self.settings.judge)([str(task), str(outcome.answer)])
            except Silent:
                return None
        if self.verify is not None:
            return float(self.verify(task, outcome.answer))
        try:
            return float(file.read_text())
        except (OSError, ValueError):
            return None


async def _last_of(stream: asyncio.StreamReader) -> bytes:
    """The end of what a program prints: one that prints without end fills no memory."""
    last = b""
    while piece := await stream.read(1 << 16):
        last = (last + piece)[-PRINTED:]
    return last


def _end_group(process: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)


def program_of(spec: str, table: Mapping[str, Any], where: str) -> Program:
    """The program of a recipe: `command: WORDS ... {task}` or `function: FILE.py:NAME`, and the table [program].
    Raises BadGateway."""
    try:
        settings = msgspec.convert(dict(table), ProgramSettings)
    except msgspec.ValidationError as error:
        raise BadGateway(f"{where}: [program]: {error}") from None
    kind, words = spec.split(":", 1)
    if settings.seconds <= 0 or settings.at_once < 1:
        raise BadGateway(f"{where}: [program]: seconds must be above 0, at_once 1 or more")
    if not settings.tasks:
        raise BadGateway(f'{where}: [program] says no tasks; expected tasks = "FILE.py:NAME"')
    questions = _thing(settings.tasks, where)
    verify = _thing(settings.verify, where) if settings.verify else None
    if kind == "function":
        return Program(words.strip(), settings, questions, (), _thing(words.strip(), where), verify)
    command = [sys.executable if word == "python" else word for word in shlex.split(words)]
    if not any("{task}" in word for word in command):
        raise BadGateway(f"{where}: expected a command with {{task}} in it, got {words.strip()!r}")
    if settings.jail:
        raise BadGateway(
            f"{where}: the jail has no network, so a command in it cannot reach the gateway; if you trust this "
            "program, say jail = false in [program]"
        )
    return Program(words.strip(), settings, questions, tuple(command), None, verify)


def _thing(spec: str, where: str) -> Any:
    """What a file or a module of the user has under a name."""
    place, _, name = spec.rpartition(":")
    try:
        with importing_beside(place):
            thing = getattr(load_module(place), name)
    except (BadFile, AttributeError) as error:
        raise BadGateway(f"{where}: {spec}: {error}; expected FILE.py:NAME") from None
    return thing
