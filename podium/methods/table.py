"""What there is to say of every method: how much of it runs, and how true its credit was found to be."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import msgspec

from podium.methods.method import METHODS, Method

__all__ = ["Extent", "counted", "described", "extent", "fidelity"]

FIDELITY = Path(__file__).parent / "fidelity.json"
Extent = Literal["all", "part", "card"]


def extent(method: Method) -> Extent:
    """How much of a method runs: all, the part that is public and is credit, or nothing (a card)."""
    if not method.credit:
        return "card"
    return "part" if method.unknown or method.known != "formula" else "all"


def fidelity() -> dict[str, list[dict[str, Any]]]:
    """For each method what `podium bench fidelity` found: env, unit, spearman, interval and rollouts."""
    if not FIDELITY.exists():
        return {}
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in msgspec.json.decode(FIDELITY.read_bytes(), type=dict[str, list[dict[str, Any]]])["rows"]:
        rows.setdefault(row["method"], []).append({k: v for k, v in row.items() if k != "method"})
    return rows


def described() -> list[dict[str, Any]]:
    """Every method: its row, how much of it runs, and its measured fidelity."""
    measured = fidelity()
    return [
        {"method": name, "runs": extent(row), **asdict(row), "fidelity": measured.get(name)}
        for name, row in sorted(METHODS.items())
    ]


def counted() -> dict[Extent, int]:
    """How many methods run in full, how many in part, how many are cards."""
    kinds = [extent(row) for row in METHODS.values()]
    return {"all": kinds.count("all"), "part": kinds.count("part"), "card": kinds.count("card")}
