"""Every figure that Podium promises, measured: `make proofs`, or `python -m bench.proofs [--quick] [--json] [NAME...]`.

A promise has an id that starts with the number of its issue. The exit status is 0 only if all hold.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys

from bench.table import Row, show

BENCHES = ("trace", "store", "record", "graph")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("names", nargs="*", help=f"which of {', '.join(BENCHES)}; all unless told")
    options.add_argument("--quick", action="store_true", help="smaller sizes; the verdicts are then only a hint")
    options.add_argument("--json", action="store_true", help="one line of JSON at the end instead of a table")
    args = options.parse_args()
    if unknown := set(args.names) - set(BENCHES):
        options.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    rows: list[Row] = []
    for name in args.names or BENCHES:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        rows += importlib.import_module(f"bench.{name}").measure(not args.quick)
    if args.json:
        print(json.dumps({"rows": rows}))
    else:
        show(rows)
    sys.exit(1 if any(row["ok"] is False for row in rows) else 0)


if __name__ == "__main__":
    main()
