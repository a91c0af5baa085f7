"""AdamW over named weights, and a learner on disk: all that the next step depends on, written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

__all__ = ["adamw", "load", "save", "shortened"]


def shortened(grad: Mapping[str, Any], norm: float, most: float) -> None:
    """Gradients whose length together is `norm`, in place no longer than `most`."""
    if norm > most:
        for g in grad.values():
            g.mul_(most / norm)


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
    """w -= rate (m̂ / (√v̂ + 1e-8) + decay w), in place.   from: Loshchilov & Hutter 2019."""
    with torch.no_grad():
        for name, g in grad.items():
            g = g.float()
            m[name].mul_(alpha).add_(g, alpha=1 - alpha)
            v[name].mul_(beta).addcmul_(g, g, value=1 - beta)
            way = (m[name] / (1 - alpha**step)) / ((v[name] / (1 - beta**step)).sqrt() + 1e-8)
            weights[name].sub_(rate * (way + decay * weights[name]))


def save(path: Path, tables: Mapping[str, Mapping[str, Any]], numbers: Mapping[str, int]) -> None:
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
    with beside.open("rb") as held:
        os.fsync(held.fileno())
    os.replace(beside, path)


def load(path: Path) -> tuple[dict[str, dict[str, Any]], dict[str, int]]:
    """The tables and numbers that were saved, to the bit. Raises OSError, KeyError or ValueError."""
    tables: dict[str, dict[str, Any]] = {}
    try:
        with safe_open(path, "pt") as held:
            for key in held.keys():  # noqa: SIM118 (not a dict)
                table, _, name = key.partition("/")
                tables.setdefault(table, {})[name] = held.get_tensor(key)
            numbers = msgspec.json.decode((held.metadata() or {})["numbers"], type=dict[str, int])
    except SafetensorError as error:
        raise ValueError(str(error)) from None
    return tables, numbers
