"""The headline of every study of the survey's questions, as rows: `python -m bench.study --full [--json]`.

What `docs/studies` has is read if this code and recipe made it, and measured if not (minutes each; kept in out/study). A study that has no result there
yet promises nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.table import Row, at_least, at_most, command, fact
from podium.study.question import SHIPPED, Headline, load_measurements, read_study, report_or_measure, study_names

__all__ = ["measure", "of_all"]

ROOT = Path(__file__).parents[1]
CORES = 2


def measure(full: bool) -> list[Row]:
    """All studies; the quick size, which `tests/study` holds instead, has no rows."""
    rows: list[Row] = []
    for name in study_names() if full else ():
        if not (SHIPPED / f"{name}.json").exists():
            continue
        print(f"study {name} ...", file=sys.stderr, flush=True)
        for s in report_or_measure(read_study(name), ROOT / "out" / "study").headline:
            rows += _rows(f"7.{name}.{s.id}", s)
    return rows + of_all() if full else rows


def of_all() -> list[Row]:
    """How many studies have a result of this code, their fewest seeds, and how long the longest takes: its jobs share no state, so two cores take
    half of the seconds that they took on one."""
    minutes, seeds = {}, []
    for name in study_names():
        there = load_measurements(question := read_study(name))
        if there is not None and there[1]:
            minutes[name] = sum(map(sum, there[0].seconds.values())) / 60 / CORES
            seeds.append(len(question.seeds))
    many = at_least(
        "7.1.studies", "studies whose result in docs/studies is of this code and recipe", len(seeds), 14, "exact"
    )
    if not seeds:
        return [many]
    longest = max(minutes, key=lambda name: minutes[name])
    return [
        many,
        at_least("7.1.seeds", "seeds of a study, the fewest", min(seeds), 5, "exact"),
        at_most(
            "7.1.minutes",
            f"minutes of one core over {CORES}, the longest study ({longest})",
            minutes[longest],
            15,
            "time",
        ),
        *(
            fact(f"7.1.minutes.{name}", f"minutes of one core over {CORES}, {name}", m)
            for name, m in minutes.items()
        ),
    ]


def _rows(id: str, s: Headline) -> list[Row]:
    if s.least is not None:
        made = at_least(id, s.what, s.mean, s.least, "sampled")
    elif s.most is not None:
        made = at_most(id, s.what, s.mean, s.most, "sampled")
    else:
        made = fact(id, s.what, s.mean)
    if s.low != s.low:
        return [made]
    ends = (("low", s.low, "from"), ("high", s.high, "to"))
    return [made, *(fact(f"{id}.{end}", f"the same, 95 % interval over seeds {word}", v) for end, v, word in ends)]


if __name__ == "__main__":
    command(measure, __doc__)
