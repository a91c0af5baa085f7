"""A learner on disk: all that the next step depends on, written whole or not at all."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from podium.learn.train import Learner
from podium.trace.store import sync

__all__ = ["load_learner", "save_learner"]

TABLES = {"w": "w", "m": "m", "v": "v", "memory": "held"}  # of a learner, by their names in the file


def save_learner(learner: Learner, path: Path) -> None:
    """Writes beside the path first and then takes its place, so that a crash leaves the one before."""
    tables = {name: getattr(learner, t) for t, name in TABLES.items()}
    arrays: dict[str, Any] = {f"{name}:{k}": x for name, table in tables.items() for k, x in table.items()}
    numbers: dict[str, Any] = {
        f.name: np.array(getattr(learner, f.name)) for f in fields(learner) if f.name not in TABLES
    }
    beside = path.with_name(path.name + ".part")
    with beside.open("wb") as out:
        np.savez(out, allow_pickle=False, **arrays, **numbers)
        out.flush()
        os.fsync(out.fileno())
    os.replace(beside, path)
    sync(path.parent)


def load_learner(path: Path) -> Learner:
    """The learner that was saved, to the bit."""
    arrays: Any
    with np.load(path, allow_pickle=False) as arrays:
        tables: dict[str, Any] = {
            t: {k.removeprefix(f"{name}:"): arrays[k] for k in arrays.files if k.startswith(f"{name}:")}
            for t, name in TABLES.items()
        }
        numbers: dict[str, Any] = {k: arrays[k].item() for k in arrays.files if ":" not in k}
    return Learner(**tables, **numbers)
