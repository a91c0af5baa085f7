"""A learner on disk: all that the next step depends on, written whole or not at all."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from podium.learn.train import Learner
from podium.trace.store import sync

__all__ = ["load", "save"]

TABLES = ("w", "m", "v", "held")


def save(learner: Learner, path: Path) -> None:
    """Writes beside the path first and then takes its place, so that a crash leaves the one before."""
    arrays: dict[str, Any] = {f"{t}:{k}": x for t in TABLES for k, x in getattr(learner, t).items()}
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


def load(path: Path) -> Learner:
    """The learner that was saved, to the bit."""
    held: Any
    with np.load(path, allow_pickle=False) as held:
        tables: dict[str, Any] = {
            t: {k.removeprefix(f"{t}:"): held[k] for k in held.files if k.startswith(f"{t}:")} for t in TABLES
        }
        numbers: dict[str, Any] = {k: held[k].item() for k in held.files if ":" not in k}
    return Learner(**tables, **numbers)
