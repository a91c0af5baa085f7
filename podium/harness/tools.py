"""A tool: a Python callable that says what calling it again would do."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from threading import current_thread, main_thread
from typing import Any, overload

from podium.harness.bounded import Bounded, in_thread, interrupted
from podium.harness.types import Caller, Effect, Fault, Result, crash, shown
from podium.harness.understand import content_of, usage_amount

__all__ = ["Tool", "begin", "finish", "held", "result", "tool"]


@dataclass(frozen=True, slots=True)
class Tool:
    """A callable that agents may call by its exact name, with arguments by name.

    `effect` is what a replay may do: call it at will (`pure`: same arguments, same result), call it where the
    record does not answer (`replayable`), or never call it (`once`: it must not be repeated). `outside`: its
    results come from outside the team and are recorded as untrusted. `caller`: it is handed a Caller as its first
    argument.
    """

    name: str
    run: Callable[..., Any]
    effect: Effect = "replayable"
    about: str = ""
    params: dict[str, Any] | None = None  # JSON Schema of its arguments, for a model
    outside: bool = False
    caller: bool = False
    thread: bool = False  # it blocks: run it in a thread beside the event loop
    seconds: float | None = 60.0  # that it may take


@overload
def tool(run: Callable[..., Any], /) -> Tool: ...
@overload
def tool(**settings: Any) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(run: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
    """A function as a tool, named as it is and told of by its first line.

    >>> @tool(effect="pure")
    ... def add(a: int, b: int) -> int:
    ...     "The sum of two numbers."
    ...     return a + b
    >>> add.name, add.effect, add.about
    ('add', 'pure', 'The sum of two numbers.')
    """
    if run is None:
        return lambda function: tool_of(function, **settings)
    return tool_of(run)


def tool_of(run: Callable[..., Any], **settings: Any) -> Tool:
    fields: dict[str, Any] = {"name": getattr(run, "__name__", "tool")}
    fields["about"] = (inspect.getdoc(run) or "").split("\n")[0]
    return Tool(run=run, **(fields | settings))


def begin(tool: Tool, args: dict[str, Any], caller: Caller) -> Any:
    """What the tool answers, or what to await for it. Whatever goes wrong comes as a Fault."""
    given = (caller,) if tool.caller else ()
    try:
        if tool.thread or not (inspect.iscoroutinefunction(tool.run) or current_thread() is main_thread()):
            return in_thread(partial(tool.run, *given, **args))
        with interrupted(tool.seconds, tool.name):
            return tool.run(*given, **args)
    except Fault:
        raise
    except asyncio.CancelledError:  # by itself: nothing else can cancel what does not wait
        raise Fault("cancelled", f"{tool.name} was cancelled", retry=True) from None
    except Exception as error:
        raise _fault(tool, args, error) from None
    except BaseException as error:
        raise crash(error) from None


async def finish(tool: Tool, args: dict[str, Any], answer: Any, bounded: Bounded) -> Any:
    """What a tool that is awaited answers, in time."""
    try:
        return await bounded.run(held(answer), tool.seconds, tool.name)
    except Fault:
        raise
    except Exception as error:
        raise _fault(tool, args, error) from None
    except GeneratorExit as error:
        raise crash(error) from None


def result(tool: Tool, answer: Any) -> Result:
    """An answer as what it is, with whether to trust it."""
    whole = answer if isinstance(answer, Result) else Result(answer)
    if tool.outside and whole.trusted is None:
        whole.trusted = False
    if isinstance(answer, Result):
        for name in ("tokens_in", "tokens_out", "cost"):
            if (value := getattr(whole, name)) is not None:
                setattr(whole, name, usage_amount(name, value))
        if not isinstance(whole.trusted, bool | None) or not isinstance(whole.source, str | None):
            raise Fault(
                "nonsense", f"{tool.name}: trusted must be True, False or None, and source a string or None"
            )
    whole.content = content_of(whole.content)
    return whole


def _fault(tool: Tool, args: dict[str, Any], error: Exception) -> Fault:
    if isinstance(error, TypeError):
        return Fault("exception", f"{tool.name}({', '.join(args)}): {shown(error)}")
    return Fault("exception", f"{tool.name}: {shown(error)}")


async def held(answer: Awaitable[Any]) -> Any:
    """What it comes to; whatever would end the event loop, out of a task, is a crash."""
    try:
        result = await answer
        return await result if inspect.isawaitable(result) else result
    except (Exception, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        raise crash(error) from None
