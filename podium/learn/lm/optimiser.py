"""AdamW over named weights, and a learner on disk: all that the next step depends on, written whole or not at
all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

__all__ = ["adamw", "load_tables", "save_tables", "shortened"]


def shortened(grad: Mapping[str, Any], norm: float, most: float) -> None:
    """Gradients whose length together is `norm`, in place no longer than `most`."""
    if norm > most:
        torch._foreach_mul_(list(grad.values()), most / norm)


def adamw(
    weights: Mapping[str, Any],
    grad: Mapping[str, Any],
    m: Mapping[str, Any],
    v: Mapping[str, Any],
    step: int,
    rate: float,
    alpha: float = 0.9,
    beta: float = 0.99,
    decay: float = 0.0,
) -> None:
    """w -= rate (m̂ / (√v̂ + 1e-8) + decay w), in place, all weights by a few calls.
    from: Loshchilov & Hutter 2019."""
    if not grad:
        return
    own, first, second = ([table[name] for name in grad] for table in (weights, m, v))
    given = [g.float() for g in grad.values()]
    with torch.no_grad():
        torch._foreach_mul_(first, alpha)
        torch._foreach_add_(first, given, alpha=1 - alpha)
        torch._foreach_mul_(second, beta)
        torch._foreach_addcmul_(second, given, given, value=1 - beta)
        under = torch._foreach_div(second, 1 - beta**step)
        torch._foreach_sqrt_(under)
        torch._foreach_add_(under, 1e-8)
        if decay:
            torch._foreach_mul_(own, 1 - rate * decay)
        torch._foreach_addcdiv_(own, first, under, value=-rate / (1 - alpha**step))


def save_tables(path: Path, tables: Mapping[str, Mapping[str, Any]], numbers: Mapping[str, int]) -> None:
    """Writes beside the path first and then takes its place, so that a crash leaves the one before."""
    beside = path.with_name(path.name + ".part")
    flat = {
        f"{table}/{k}": x.detach().cpu().contiguous().clone()
        for table, some in tables.items()
        for k, x in some.items()
    }
    save_file(
        flat, beside, {"numbers": msgspec.json.encode(numbers).decode()}
    )  # one key: their order would not be the same twice
    with beside.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(beside, path)


def load_tables(path: Path) -> tuple[dict[str, dict[str, Any]], dict[str, int]]:
    """The tables and numbers that were saved, to the bit. Raises OSError, KeyError or ValueError."""
    tables: dict[str, dict[str, Any]] = {}
    try:
        with safe_open(path, "pt") as file:
            for key in file.keys():  # noqa: SIM118 (not a dict)
                table, _, name = key.partition("/")
                tables.setdefault(table, {})[name] = file.get_tensor(key)
            numbers = msgspec.json.decode((file.metadata() or {})["numbers"], type=dict[str, int])
    except SafetensorError as error:
        raise ValueError(str(error)) from None
    return tables, numbers
