"""The headline of every study of the survey's questions, as rows: `python -m bench.study --full [--json]`.

What `docs/studies` has is read if this code and recipe made it, and measured if not (minutes each; kept in out/study). A study that has no result there
yet promises nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.table import Row, at_least, at_most, command, fact
from podium.study.question import SHIPPED, Says, answered, names, read

__all__ = ["measure"]

ROOT = Path(__file__).parents[1]


def measure(full: bool) -> list[Row]:
    """All studies; the quick size, which `tests/study` holds instead, has no rows."""
    rows: list[Row] = []
    for name in names() if full else ():
        if not (SHIPPED / f"{name}.json").exists():
            continue
        print(f"study {name} ...", file=sys.stderr, flush=True)
        for s in answered(read(name), ROOT / "out" / "study").headline:
            rows += _rows(f"7.{name}.{s.id}", s)
    return rows


def _rows(id: str, s: Says) -> list[Row]:
    if s.least is not None:
        made = at_least(id, s.what, s.mean, s.least)
    elif s.most is not None:
        made = at_most(id, s.what, s.mean, s.most)
    else:
        made = fact(id, s.what, s.mean)
    if s.low != s.low:
        return [made]
    ends = (("low", s.low, "from"), ("high", s.high, "to"))
    return [made, *(fact(f"{id}.{end}", f"the same, 95 % interval over seeds {word}", v) for end, v, word in ends)]


if __name__ == "__main__":
    command(measure, __doc__)
