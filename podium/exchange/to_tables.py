"""Runs as tables: `runs`, `agents`, `events` and `edges`, each a CSV or a Parquet file, for whatever reads tables.

Codes are words, rows of events count from 0 over all runs, and what was not recorded is empty.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from podium.registry import register
from podium.trace.columns import COLUMNS, Names, Text, Trace, concat
from podium.trace.findings import Unreadable
from podium.trace.vocabulary import DECISIONS, EDGE_TYPES, EVENT_TYPES, TOPOLOGIES

__all__ = ["tables", "to_csv", "to_parquet"]

AXES = {"runs": "n", "agents": "a", "events": "e", "edges": "x"}
WORDS = {"type_e": EVENT_TYPES, "type_x": EDGE_TYPES, "decision_e": DECISIONS, "topology_n": TOPOLOGIES}
Table = dict[str, list[Any]]


def tables(trace: Trace) -> dict[str, Table]:
    """The tables of some runs, by name; a column in which nothing was recorded is left out."""
    by_name: dict[str, Table] = {}
    for name, axis in AXES.items():
        table: Table = {}
        for column in COLUMNS:
            if column.axis == axis:
                values = getattr(trace, column.name)
                for key, part in values.items() if isinstance(values, Mapping) else [("", values)]:
                    words = _plain(trace, column.name, column.kind, part)
                    if any(word is not None for word in words):
                        table[column.name[:-2] + (f".{key}" if key else "")] = words
        by_name[name] = table
    return by_name


def _plain(trace: Trace, name: str, kind: str, values: Any) -> list[Any]:
    if isinstance(values, (Text, Names)):
        return list(values.strings())
    if kind == "agent":
        names = [*trace.name_a.strings(), None]
        return [names[code] for code in values.tolist()]
    if name in WORDS:
        words = [*WORDS[name], None]
        return [words[code] for code in values.tolist()]
    absent = np.isnan(values) if kind in ("float", "floats") else np.asarray(values) < 0
    return [None if gone else value for gone, value in zip(absent.tolist(), values.tolist(), strict=True)]


@register("exporter", "csv", title="tables, a CSV file each", suffixes=())
def to_csv(traces: Sequence[Trace]) -> dict[str, bytes]:
    """The files, by their names."""
    files = {}
    for name, table in tables(concat(traces)).items():
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
        files[f"{name}.csv"] = text.getvalue().encode()
    return files


@register("exporter", "parquet", title="tables, a Parquet file each", suffixes=())
def to_parquet(traces: Sequence[Trace]) -> dict[str, bytes]:
    """The files, by their names."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise Unreadable("--to parquet", "writing Parquet needs pyarrow: pip install 'podium[store]'") from None
    files = {}
    for name, table in tables(concat(traces)).items():
        sink = io.BytesIO()
        pq.write_table(pa.table(table), sink, compression="zstd")
        files[f"{name}.parquet"] = sink.getvalue()
    return files
