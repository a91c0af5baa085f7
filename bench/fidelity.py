"""How true credit is, against exact credit: `python -m bench.fidelity [--full] [--json] [--write]`.

`--write` measures at full size and writes what `podium methods` prints (podium/methods/fidelity.json), the tables of docs/fidelity.md and its
pictures.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np

from bench.table import Row, at_least, at_most, command, fact
from experiments.fidelity import Found, row
from experiments.report import Study, pictures, study
from podium.methods import METHODS

__all__ = ["measure", "rows", "write"]

ROOT = Path(__file__).parents[1]


def measure(full: bool) -> list[Row]:
    return rows(study(full))


def rows(found: Study) -> list[Row]:
    """What is promised, and beside it what the same runs gave otherwise."""

    def rho(name: str) -> float:
        return found.designs[name].mean().mean

    made = [
        at_least("5.4.every_option", "rank correlation, every option 16 times, pooled by state", rho("branching, pooled by state (every option)"), 0.9, "sampled"),
        fact("5.4.every_option.alone", "the same without pooling", rho("branching (every option)")),
        at_least("5.4.sampled", "rank correlation, 8 sampled alternatives 16 times, pooled by state", rho("branching, pooled by state (sampled)"), 0.85, "sampled"),
        fact("5.4.sampled.alone", "the same without pooling", rho("branching (sampled)")),
        fact("5.4.sampled.c3", "C3's leave-one-out at that price", rho("c3 (sampled)")),
        at_least("5.4.few", "rank correlation, 8 continuations in all, without pooling", rho("branching (8 in all)"), 0.5, "sampled"),
        fact("5.4.few.pooled", "the same pooled by state", rho("branching, pooled by state (8 in all)")),
        fact("5.4.few.c3", "C3's leave-one-out at that price (published on language models: 0.27)", rho("c3 (8 in all)")),
        fact("5.4.broadcast", "the outcome less its mean, for nothing", rho("broadcast")),
    ]  # fmt: skip
    for name in ("branching, pooled by state (every option)", "branching (8 in all)", "c3 (8 in all)"):
        made.append(
            fact(f"5.4.false.{name}", "inert decisions that get credit", found.designs[name].mean("false").mean)
        )
    for one in found.asked:
        made.append(fact(f"5.4.{one.method}", "8 branches a decision, asked for by `credit.asks`", one.mean().mean))
    for kind in ("spawn", "stop"):
        made.append(
            at_most(
                f"5.4.{kind}.error",
                f"{kind} effects, 95 of 100 are off by less",
                found.errors[kind],
                0.02,
                "sampled",
            )
        )
        held = found.coverage[kind]
        made.append(
            at_least(
                f"5.4.{kind}.covers", "1,000 intervals of 95 %, share that hold the truth", held, 0.93, "sampled"
            )
        )
        made.append(at_most(f"5.4.{kind}.covers.most", "the same, not too wide either", held, 0.97, "sampled"))
    slope = np.polyfit(
        np.log([d.length for d in found.diffused]), np.log([d.broadcast for d in found.diffused]), 1
    )[0]
    made.append(
        fact("5.4.diffusion.slope", "signal to noise of broadcast credit over length, both log", float(slope))
    )
    bare = found.identified[-1]
    made.append(
        fact("5.4.identify.policy", "error of a spawn's effect from the policy's runs, no coverage", bare.policy)
    )
    made.append(fact("5.4.identify.branches", "the same from same-prefix branches", bare.branches))
    made.append(
        fact(
            "5.4.methods", "methods of the table that were measured", float(len({f.method for f in found.methods}))
        )
    )
    return made


# what is written


def write(found: Study) -> None:
    told = [_short(f) for f in found.methods if f.method in METHODS]
    text = json.dumps({"rows": told}, allow_nan=False).replace(', {"method"', ',\n{"method"')
    (ROOT / "podium/methods/fidelity.json").write_text(text + "\n")
    folder = ROOT / "docs/fidelity"
    folder.mkdir(exist_ok=True)
    for name, drawn in pictures(found).items():
        (folder / f"{name}.svg").write_text(drawn)
    page = ROOT / "docs/fidelity.md"
    tables = {
        "designs": _designs(found),
        "methods": _methods(found),
        "refused": _refused(found),
        "identified": _identified(found),
        "promises": _promises(found),
    }
    page.write_text(
        re.sub(
            r"<!-- measured: (\w+) -->.*?<!-- end measured -->",
            lambda m: f"<!-- measured: {m[1]} -->\n{tables[m[1]]}\n<!-- end measured -->",
            page.read_text(),
            flags=re.DOTALL,
        )
    )


def _short(found: Found) -> dict[str, object]:
    def number(v: float) -> float | None:
        return None if v != v else round(v, 4)

    made = row(found)
    return {
        "method": made["method"],
        "env": made["env"],
        "unit": made["unit"],
        "spearman": number(made["spearman"]),
        "interval": [number(v) for v in made["interval"]],
        "rollouts": number(made["rollouts"]),
        "paid": number(made["paid"]),
    }


def _table(head: str, lines: list[str]) -> str:
    return "\n".join([f"| {head} |", "|" + "---|" * (head.count("|") + 1), *lines])


def _cells(found: Found) -> str:
    rho = found.mean()
    return f"{rho.mean:.2f} | {rho.low:.2f} to {rho.high:.2f} | {found.mean('price').mean:.3g}"


def _designs(found: Study) -> str:
    lines = [
        f"| {name} | {_cells(f)} | {f.mean('error').mean:.3f} | {f.mean('false').mean:.0%} |"
        for name, f in [*found.designs.items(), *((f.method, f) for f in found.asked)]
    ]
    return _table("estimate | rank correlation | interval | continuations a decision | error | false credit", lines)


def _methods(found: Study) -> str:
    ordered = sorted(found.methods, key=lambda f: (f.env, f.unit, -f.mean().mean))
    lines = [
        f"| `{f.method}` | {f.env} | {f.unit} | {_cells(f)} | {f.mean('paid').mean:.0%} |{' exact critic' if 'critic' in METHODS[f.method].needs else ''} |"
        for f in ordered
    ]
    return _table("method | world | unit | rank correlation | interval | rollouts | paid | note", lines)


def _refused(found: Study) -> str:
    lines = [f"| `{name}` | {why.replace('|', '/')} |" for name, why in sorted(found.refused.items())]
    return _table("method | why not", lines)


def _identified(found: Study) -> str:
    lines = [
        f"| {i.coverage:g} | {i.policy:.3f} | {'not known' if i.states != i.states else f'{i.states:.3f}'} | {i.told:.0%} | {i.branches:.3f} |"
        for i in found.identified
    ]
    return _table(
        "coverage | spawned less not spawned | inside states | runs in states with both | same-prefix branches",
        lines,
    )


def _promises(found: Study) -> str:
    verdict = {True: "holds", False: "**misses**", None: ""}
    lines = [
        f"| `{r['id']}` | {r['what']} | {r['figure']:.3g} | {r['target']} | {verdict[r['ok']]} |"
        for r in rows(found)
    ]
    return _table("id | what | figure | target | ", lines)


if __name__ == "__main__":
    if "--write" in sys.argv:
        write(study(True))
    else:
        command(measure, __doc__)
