"""All that is promised of traces: reading and checking, the store, recording, the graph:
`python -m bench.trace [--full] [--json]`."""

from __future__ import annotations

from bench import graph, load, record, store
from bench.table import Row, command

__all__ = ["PARTS", "measure"]

PARTS = {"load": load, "store": store, "record": record, "graph": graph}


def measure(full: bool) -> list[Row]:
    return [row for part in PARTS.values() for row in part.measure(full)]


if __name__ == "__main__":
    command(measure, __doc__)
