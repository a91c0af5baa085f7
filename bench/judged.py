"""How many of the audit's findings on real logs are right: a stated draw, each read by a person against the raw
log.

    python -m bench.judged [--full] [--json]     the shares that are right; fails if one of the draw is not judged
    python -m bench.judged --todo                what of the draw is not judged yet

The draw: of all findings on all logs in ../shared/data/logs, sorted by file, detector, agent and row, 100 by
`random.Random(25)`; where there are fewer, all of them, and observations by the same dice until there are 100 (or
all). Findings and observations are counted apart. Judgements lie in `judged_findings.json`: a verdict and a reason
in our own words for each. A finding is right if its evidence shows what it claims, an observation if what it says
of the evidence is true and worth knowing.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.table import Row, at_least, at_most, fact, show
from podium.audit.report import report
from podium.errors import WrongUse
from podium.interval import estimate
from podium.trace import files

__all__ = ["Claim", "claims", "draw", "measure"]

LOGS = Path(__file__).parents[2] / "shared/data/logs"
JUDGED = Path(__file__).parent / "judged_findings.json"
MANY, SEED, PROMISED = 100, 25, 0.9


class Claim(NamedTuple):
    """One suspect of an audit: where its evidence begins."""

    level: str
    file: str
    detector: str
    agent: str
    row: int


def claims(folders: Iterable[Path]) -> list[Claim]:
    """What the audit says of every run in these folders. Folders without a log that is read are passed over."""
    everything = []
    for folder in folders:
        try:
            for read in files.read(folder):
                if read.trace is not None:
                    name = str(Path(read.file).relative_to(folder.parent))
                    everything += _of_report(report(read.trace), name)
        except WrongUse:
            continue
    return sorted(everything)


def _of_report(audited: dict[str, Any], file: str) -> list[Claim]:
    return [
        Claim(part["level"], file, part["detector"], suspect["agent"] or "", min(suspect["rows"], default=-1))
        for part in audited["found"] + audited["observed"]
        for suspect in part["suspects"]
    ]


def draw(everything: list[Claim]) -> list[Claim]:
    """The findings that are judged: 100 of them, or all and observations."""
    dice = random.Random(SEED)
    parts = [[claim for claim in everything if claim.level == level] for level in ("finding", "observation")]
    findings = dice.sample(parts[0], min(MANY, len(parts[0])))
    return findings + dice.sample(parts[1], min(MANY - len(findings), len(parts[1])))


def judgements() -> dict[tuple[Any, ...], bool]:
    """The verdict on each claim, by its file, detector, agent and row."""
    stored = json.loads(JUDGED.read_text())["judgements"]
    if bad := [one for one in stored if not one["why"].strip() or not isinstance(one["right"], bool)]:
        raise ValueError(f"{JUDGED.name}: {len(bad)} judgements without a verdict or a reason, the first {bad[0]}")
    return {(one["file"], one["detector"], one["agent"], one["row"]): one["right"] for one in stored}


def measure(full: bool) -> list[Row]:
    """The shares that are right. The small size only reads the judgements."""
    known = judgements()
    rows = [fact("25.5.kept", "judgements that are kept, right or wrong", len(known))]
    if not full or not LOGS.is_dir():
        return rows
    everything = claims(sorted(path for path in LOGS.iterdir() if path.is_dir()))
    sample = draw(everything)
    verdicts: defaultdict[str, list[float]] = defaultdict(list)
    unjudged = 0
    for claim in sample:
        verdict = known.get(claim[1:])
        unjudged += verdict is None
        if verdict is not None:
            verdicts[claim.level].append(verdict)
            verdicts[f"{claim.level}: {claim.detector}"].append(verdict)
    findings = np.array(verdicts.pop("finding", [np.nan]))
    right = estimate(findings)
    count = sum(claim.level == "finding" for claim in everything)
    rows += [
        fact("25.5.findings", f"findings on all real logs, beside {len(everything) - count} observations", count),
        at_most("25.5.unjudged", f"of the {len(sample)} that were drawn, not judged", unjudged, 0, "sampled"),
        at_least("25.5.right", f"share of {right.n} findings that is right", right.mean, PROMISED, "sampled"),
        at_least(
            "25.5.drawn",
            "suspects that there are to draw: findings, then observations",
            len(sample),
            MANY,
            "sampled",
        ),
    ]
    every = estimate(np.append(findings, verdicts.get("observation", [])))
    rows.append(
        fact("25.5.all", f"share of all {every.n} suspects that is right, findings and observations", every.mean)
    )
    rows.append(fact("25.5.all.low", "the lower end of its 95 % interval (Wilson)", every.low))
    if right.n > 1:
        rows.append(fact("25.5.right.low", "the lower end of its 95 % interval (Wilson)", right.low))
    for name, values in sorted(verdicts.items()):
        slug = name.replace(": ", ".").replace("observation", "observed", 1)
        rows.append(fact(f"25.5.{slug}", f"share right of {len(values)}, {name}", float(np.mean(values))))
    return rows


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--full", action="store_true", help="audit all real logs; else only the judgements are read"
    )
    options.add_argument("--json", action="store_true", help="one line of JSON instead of a table")
    options.add_argument(
        "--todo", action="store_true", help="what of the draw is not judged, one line of JSON each"
    )
    args = options.parse_args()
    if (args.full or args.todo) and not LOGS.is_dir():
        sys.exit(f"the real logs are not at {LOGS}")
    if args.todo:
        known = judgements()
        for claim in draw(claims(sorted(path for path in LOGS.iterdir() if path.is_dir()))):
            if claim[1:] not in known:
                print(json.dumps(claim._asdict()))
        return
    rows = measure(args.full)
    print(json.dumps({"rows": rows})) if args.json else show(rows)
    sys.exit(1 if any(row["ok"] is False for row in rows) else 0)


if __name__ == "__main__":
    main()
