"""Every figure that Podium promises, measured: `make proofs`, or `python -m bench.proofs [--quick] [--json] [NAME...]`.

A promise has an id that starts with the number of its issue. The exit status is 0 only if all hold.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
from datetime import date
from pathlib import Path

from bench.table import Row, figure, missed, show

BENCHES = (
    "cli",
    "size",
    "outside",
    "trace",
    "exchange",
    "screen",
    "exchange_mutants",
    "envs",
    "inputs",
    "metrics",
    "parl",
    "detectors",
    "judged",
    "shapley",
    "credit",
    "fidelity",
    "harness",
    "harness_doors",
    "harness_jail",
    "demo",
    "learn",
    "one_loop",
    "regret",
    "counterfactual",
    "sb3",
    "study",
    "lm",
    "lm_packed",
    "lm_generate",
    "lm_results",
    "lm_loop",
    "gateway",
    "view",
    "mutation",
    "trainer_rows",
)


def page(rows: list[Row], old: str = "") -> str:
    """The table as markdown, with where and when it was measured; after the rows of an old page that were not measured again."""
    verdicts = {True: "holds", False: "**misses**", None: ""}
    again = {f"| `{r['id']}`" for r in rows}
    lines = [line for line in old.splitlines() if line.startswith("| `") and line.split(" | ")[0] not in again]
    lines += [f"| `{r['id']}` | {r['what']} | {figure(r)} | {r['target']} | {verdicts[r['ok']]} |" for r in rows]
    return (
        f"""# Speed and size

Every figure that is promised, as `make proofs` printed it. `make test` runs each benchmark at a very small size and judges only what is exact: counts, errors
with their tolerance, laws. Times, sizes and what is learned are judged here alone. Written by `python -m bench.proofs --page docs/speed.md` on
{date.today()}: {os.cpu_count()} cores, {platform.processor() or platform.machine()}, Python {platform.python_version()}.

| id | what | figure | target | |
|---|---|---|---|---|
"""
        + "\n".join(lines)
        + "\n"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("names", nargs="*", help=f"which of {', '.join(BENCHES)}; all unless told")
    options.add_argument("--quick", action="store_true", help="smaller sizes; the verdicts are then only a hint")
    options.add_argument("--json", action="store_true", help="one line of JSON at the end instead of a table")
    options.add_argument(
        "--page",
        type=Path,
        help="also write the table as a page of the docs; with names, into the one that is there",
    )
    args = options.parse_args()
    if unknown := set(args.names) - set(BENCHES):
        options.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    rows: list[Row] = []
    for name in args.names or BENCHES:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        rows += importlib.import_module(f"bench.{name}").measure(not args.quick)
    if args.page:
        args.page.write_text(page(rows, args.page.read_text() if args.names and args.page.exists() else ""))
    if args.json:
        print(json.dumps({"rows": rows}))
    else:
        show(rows)
    sys.exit(1 if missed(rows) else 0)


if __name__ == "__main__":
    main()
