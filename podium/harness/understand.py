"""What an agent answered, understood: actions with all their fields, or a fault that says what was wrong."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from podium.harness.types import ACTIONS, Action, Did, Fault, Return, Said, Stop, Wait
from podium.trace.depth import is_deep
from podium.trace.rules import ROUNDING

__all__ = ["LEVELS", "Understood", "content_of", "from_record", "understood", "usage_amount"]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Action).decode
_any = msgspec.json.Decoder().decode
_ENDS = (Stop, Return)
LEVELS = 100  # in which content may be nested; an event that holds it is a few levels more
_USAGE = ("tokens_in", "tokens_out", "cost", "model", "version", "trusted", "said")
_NONE: dict[str, Any] = {}


class Understood(NamedTuple):
    """Actions, each as it is recorded too, and what it took to come to them."""

    actions: list[Action]
    raws: list[Raw]
    usage: dict[str, Any]


def understood(answer: Any) -> Understood:
    """What an agent's answer says. Raises Fault("nonsense") where it says nothing that can be done.

    >>> understood("42").actions
    [Return(content='42', logp=None)]
    >>> understood(7)
    Traceback (most recent call last):
        ...
    podium.harness.types.Fault: expected an action, a list of actions or a string, got int: 7
    """
    usage = _NONE
    if isinstance(answer, Did):
        usage = {name: value for name in _USAGE if (value := getattr(answer, name)) is not None}
        _check_usage(usage)
        answer = answer.actions
    listed = answer if isinstance(answer, list) else [answer]
    actions: list[Action] = []
    raws = []
    for one in listed or [None]:
        raw = _spelt(one)
        try:
            action = _decode(raw)
        except msgspec.ValidationError as error:
            raise Fault("nonsense", f"{type(one).__name__} with fields that make no sense: {error}") from None
        _check_logp(action.logp)
        actions.append(action)
        raws.append(Raw(raw))
        if isinstance(action, _ENDS):
            break  # nothing comes after
    return Understood(actions, raws, usage)


def from_record(raws: list[bytes], usage: dict[str, Any]) -> Understood:
    """What an agent's recorded answer said."""
    return Understood([_decode(raw) for raw in raws], [Raw(raw) for raw in raws], usage)


def content_of(value: Any) -> Any:
    """A copy that shares nothing, as JSON has it. Raises Fault("nonsense") for what JSON cannot say, and for what
    is nested too deeply."""
    if value is None or value.__class__ is bool or (value.__class__ is str and value.isascii()):
        return value
    return _any(_encoded(value, "content"))


def _spelt(one: Any) -> bytes:
    if one is None:
        one = Wait()
    elif one.__class__ is str:
        one = Return(content=one)
    elif not isinstance(one, ACTIONS):
        raise Fault("nonsense", f"expected an action, a list of actions or a string, got {_shown(one)}")
    return _encoded(one, f"{type(one).__name__} with content")


def _encoded(value: Any, what: str) -> bytes:
    """As JSON, nested in at most `LEVELS` levels: all who read or record it can, however they do it."""
    try:
        text = _encode(value)
    except RecursionError:
        text = None
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise Fault("nonsense", f"{what} that JSON cannot say: {error}") from None
    if text is None or is_deep(text, LEVELS):
        raise Fault("nonsense", f"{what} that is nested more than {LEVELS} levels deep")
    return text


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = "(it cannot be shown)"
    text = re.sub(r" at 0x[0-9a-f]+", "", text)  # the same in every run
    return f"{type(value).__name__}: {text if len(text) <= 80 else text[:77] + '...'}"


def _check_usage(usage: dict[str, Any]) -> None:
    for name in ("tokens_in", "tokens_out", "cost"):
        if name in usage:
            usage[name] = usage_amount(name, usage[name])
    for name in ("model", "version"):
        if not isinstance(usage.get(name, ""), str):
            raise Fault("nonsense", f"{name} must be a string, got {_shown(usage[name])}")
    if (said := usage.get("said")) is not None and not (
        isinstance(said, Said) and len(said.tokens) == len(said.logps) == len(said.mask) > 0
    ):
        expected = "said must be tokens with a log-probability and a mask each"
        raise Fault("nonsense", f"{expected}, got {_shown(said)}")
    _check_logp(max((p for p in said.logps if p is not None), default=None) if said is not None else None)
    if not isinstance(usage.get("trusted", False), bool):
        raise Fault("nonsense", f"trusted must be True, False or None, got {_shown(usage['trusted'])}")


def _check_logp(logp: float | None) -> None:
    if logp is not None and logp > ROUNDING:
        raise Fault("nonsense", f"a log-probability must be at most 0, got {logp:g}")


def usage_amount(name: str, value: Any) -> float:
    """A number of tokens, or of money. Raises Fault("nonsense") for anything else."""
    if not (isinstance(value, int | float) and 0 <= value < float("inf")):
        raise Fault("nonsense", f"{name} must be a number of 0 or more, got {_shown(value)}")
    return float(value)
