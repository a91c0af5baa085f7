"""What a real model learns on one GPU, each part by one command:

    python -m bench.lm_results worlds|roles|credit|parl|live [--seeds 3] [--seconds 120] [--only NAME...] [--model FOLDER] [--out FILE]

    worlds   SmolLM2-135M in five text worlds, and costly_search, at fixed small sizes, seeds side by side; trajectory-level credit beside it
    roles    Dr. MAS against GRPO, and an adapter for each role against one for all, in a three-role team
    credit   C3 against MAGRPO at equal tokens, and how true credit is in the text world `planted`
    parl     a PARL run: how wide the model spawns, and the critical steps
    live     a planner, a worker with a tool and a critic, run by the harness

Every job is a process (`bench.lm_jobs`), --together side by side, each with its share of the card's memory. Each line that one prints is appended to FILE at once, so a run that is cut short
leaves what it had, and goes on with --again. With --tiny all of it is in this process, on the CPU, from random weights, and shows only that it runs.
Lines of runs on the GPU are kept in docs/results/lm_*.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.lm_jobs import ARMS, LIVE_OURS, OURS, TRAJECTORY, WORLDS, Job, ran
from bench.lm_packed import commit
from bench.table import Row, at_least, at_most, fact

__all__ = ["PARTS", "main", "measure"]

ROOT = Path(__file__).parents[1]
Line = dict[str, Any]
FREE = 0.92  # of the card that is shared out; the rest is contexts
SEEN = {  # what was looked at before the lines that are kept
    "sprt": " (at the price that the issue fixes, which looks of earlier sessions saw; settings were chosen at others)",
    "jury": " (with 2 sources, which nobody had looked at, and with 4, which looks of earlier sessions at another method saw)",
}
GRACE = 420.0  # seconds that a job may take on top of training: to start, to compile, to judge


@dataclass(frozen=True)
class Asked:
    """The command."""

    part: str
    seeds: int
    seconds: float
    only: tuple[str, ...]
    model: str
    device: str
    tiny: bool
    beside: int  # seeds of what ours is held against
    judged: int
    set: dict[str, Any]
    together: int = 8  # processes at once on the one GPU
    first: int = 0  # the first seed
    memory: float = 0.0  # of the card for each process; all of them the same, and something left over, if 0
    commit: str = ""  # of the code
    look: bool = False  # on prices of training

    @property
    def all(self) -> range:
        """Its seeds."""
        return range(self.first, self.first + self.seeds)

    def job(self, kind: str, name: str, method: str, seed: int, **more: Any) -> Job:
        return Job(
            kind,
            name,
            method,
            seed,
            self.seconds,
            self.model,
            self.device,
            self.tiny,
            {**more, **self.set},
            self.judged,
            memory=self.memory or min(1.0, FREE / self.together),
            look=self.look,
        )


# ---- jobs side by side


class Kept:
    """Lines of JSON in a file, each as soon as it comes; and all of them."""

    def __init__(self, path: Path, quiet: bool = False, again: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._lock, self._quiet = path, threading.Lock(), quiet
        held = path.read_text().splitlines() if again and path.exists() else []
        self.lines: list[Line] = [json.loads(line) for line in held]  # of a run that was cut short, and goes on

    @property
    def ended(self) -> set[str]:
        """Jobs that came to their end."""
        return {line["id"] for line in self.lines if line.get("event") == "ended"}

    def add(self, line: Line) -> None:
        with self._lock:
            self.lines.append(line)
            with self._path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            if not self._quiet:
                print(brief(line), file=sys.stderr, flush=True)

    def of(self, event: str) -> dict[str, Line]:
        """The last line of an event, by job."""
        return {line["id"]: line for line in self.lines if line.get("event") == event}


SHOWN = (
    "iteration",
    "clock",
    "score",
    "entropy",
    "value",
    "optimum",
    "share",
    "regret",
    "rank",
    "success",
    "width",
)


def brief(line: Line) -> str:
    """What people see of a line while it runs."""
    figures = [f"{k} {line[k]:.4g}" for k in SHOWN if isinstance(line.get(k), int | float)]
    return "  ".join(
        [str(line.get("id")), str(line.get("event", "")), *figures, str(line.get("error", ""))]
    ).strip()


def side_by_side(jobs: Sequence[Job], kept: Kept, together: int) -> None:
    """These jobs, but for those that have ended, each a process, so many at once; in this process, one after the other, if tiny."""
    jobs = [job for job in jobs if job.id not in kept.ended]
    if all(job.tiny for job in jobs):
        for job in jobs:
            for line in ran(job):
                kept.add(line)
            kept.add({"id": job.id, "event": "ended"})
        return
    with ThreadPoolExecutor(max(1, min(together, len(jobs)))) as pool:
        list(pool.map(lambda i: _alone(jobs[i], kept, 1.0 * i if i < together else 0.0), range(len(jobs))))


def _alone(job: Job, kept: Kept, wait: float) -> None:
    """One job in a process of its own, after a while, so that not all need most memory at once. One that fails, or does not end, says so in a line."""
    sleep(wait)
    env = {**os.environ, "OMP_NUM_THREADS": "2", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    env["TOKENIZERS_PARALLELISM"] = "false"
    child = subprocess.Popen(
        [sys.executable, "-m", "bench.lm_jobs", json.dumps(asdict(job))],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    late = threading.Timer(job.seconds + GRACE, child.kill)
    late.start()
    said: list[str] = []
    reads = threading.Thread(target=lambda: said.extend(child.stderr or ()), daemon=True)
    reads.start()
    try:
        for text in child.stdout or ():
            if text.startswith("{"):
                kept.add(json.loads(text))
    finally:
        late.cancel()
        code = child.wait()
        reads.join(5)
        for pipe in filter(None, (child.stdout, child.stderr)):
            pipe.close()
    if code:
        kept.add({"id": job.id, "event": "failed", "error": f"exit {code}: " + "".join(said)[-2000:]})
    else:
        kept.add({"id": job.id, "event": "ended"})


def machine(asked: Asked) -> Line:
    import torch
    import transformers

    there = torch.cuda.is_available() and not asked.tiny
    return {
        "id": "machine",
        "part": asked.part,
        "device": torch.cuda.get_device_name() if there else "cpu",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "date": str(date.today()),
        "asked": asdict(asked),
    }


# ---- tables


def over(lines: Iterable[Line], key: str) -> str:
    """The mean of some jobs, and from where to where they go."""
    found = [line[key] for line in lines if isinstance(line.get(key), int | float)]
    if not found:
        return "-"
    ends = f" ({min(found):.3f} to {max(found):.3f})" if len(found) > 1 else ""
    return f"{np.mean(found):.3f}{ends}"


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    made = Table(*columns, title=title, box=None)
    for row in rows:
        made.add_row(*row)
    return made


def chosen(names: Sequence[str], only: tuple[str, ...]) -> list[str]:
    if unknown := [name for name in only if name not in names]:
        raise SystemExit(f"no {unknown[0]!r} here; there are {', '.join(names)}")
    return [name for name in names if not only or name in only]


# ---- the parts


def worlds(asked: Asked, kept: Kept) -> Iterator[Table]:
    """Seeds of ours and of trajectory-level credit at the same time, world after world, so that both have the same budget."""
    rows = []
    names = chosen(WORLDS, asked.only)
    made = {
        name: (
            [asked.job("world", name, OURS, seed) for seed in asked.all],
            [asked.job("world", name, TRAJECTORY, seed) for seed in range(asked.beside)],
        )
        for name in names
    }
    side_by_side([job for both in made.values() for jobs in both for job in jobs], kept, asked.together)
    for name, (ours, flat) in made.items():
        before, after = kept.of("before"), kept.of("after")
        mine, theirs = ([after[job.id] for job in jobs if job.id in after] for jobs in (ours, flat))
        first = [before[job.id] for job in ours if job.id in before]
        rows.append(
            [
                name,
                over(first, "value"),
                over(mine, "value"),
                over(theirs, "value"),
                over(mine, "trivial"),
                over(mine, "optimum"),
                over(mine, "regret"),
                over(mine, "share"),
                over(theirs, "share"),
                over(mine, "iterations"),
            ]
        )
    columns = "world, before, after, trajectory, trivial, optimum, regret, share, its share, iterations"
    yield table("text worlds, held-out prices", columns.split(", "), rows)


def arms(asked: Asked, kept: Kept, made: dict[str, list[Job]]) -> dict[str, list[Line]]:
    """The last lines of jobs by arm."""
    side_by_side([job for jobs in made.values() for job in jobs], kept, asked.together)
    after = kept.of("after")
    return {name: [after[job.id] for job in jobs if job.id in after] for name, jobs in made.items()}


def firsts(kept: Kept, jobs: Sequence[Job]) -> list[Line]:
    before = kept.of("before")
    return [before[job.id] for job in jobs if job.id in before]


def by_role(lines: Sequence[Line], key: str) -> str:
    """The mean over seeds of a figure of each role."""
    roles = dict.fromkeys(role for line in lines for role in line.get("roles", {}))
    told = {r: np.mean([line["roles"][r][key] for line in lines if r in line.get("roles", {})]) for r in roles}
    return ", ".join(f"{role} {figure:.2f}" for role, figure in told.items())


def teams(asked: Asked, kept: Kept, title: str, made: dict[str, list[Job]]) -> Iterator[Table]:
    found = arms(asked, kept, made)
    yield table(
        title,
        (
            "arm",
            "success before",
            "after",
            "reward before",
            "after",
            "optimum",
            "credit by role",
            "gradient by role",
        ),
        [
            [
                name,
                over(firsts(kept, made[name]), "success"),
                over(lines, "success"),
                over(firsts(kept, made[name]), "value"),
                over(lines, "value"),
                over(lines, "optimum"),
                by_role(lines, "credit"),
                by_role(lines, "gradient"),
            ]
            for name, lines in found.items()
        ],
    )


def live(asked: Asked, kept: Kept) -> Iterator[Table]:
    """A live team of the harness, by our credit, and by trajectory-level credit at the same time."""
    made = {LIVE_OURS: asked.all, TRAJECTORY: range(asked.beside)}
    jobs = {m: [asked.job("live", "office", m, seed) for seed in seeds] for m, seeds in made.items() if seeds}
    yield from teams(asked, kept, "a live team: planner, worker with a tool, critic", jobs)


LORA = {"lora": 16, "rate": 5e-4}


def roles(asked: Asked, kept: Kept) -> Iterator[Table]:
    """Dr. MAS against GRPO, both with one adapter for all and with one for each role, in the live team."""
    small = {"lora": 4} if asked.tiny else LORA
    jobs = {
        f"{method}, {words}": [
            asked.job("live", "office", method, seed, share=share, **small) for seed in asked.all
        ]
        for share, words in (("one", "one adapter"), ("role", "one a role"))
        for method in ("dr_mas", "grpo")
    }
    chosen_ = chosen(list(jobs), asked.only)
    yield from teams(asked, kept, "three roles, adapters", {name: jobs[name] for name in chosen_})


def credit(asked: Asked, kept: Kept) -> Iterator[Table]:
    """First how true the credit of each method is in planted teams, then what the model learns by C3, MAGRPO and ours."""
    many = 1 if asked.tiny else max(asked.seeds, 3)
    judged = [asked.job("fidelity", f"planted {n}", "all", 0) for n in range(many)]
    jobs = {
        m: [asked.job("planted", "planted 0", m, seed) for seed in asked.all]
        for m in chosen(("c3", "magrpo", OURS), asked.only)
    }
    found = arms(asked, kept, {"fidelity": judged, **jobs})
    lines = [line for line in kept.lines if line.get("event") == "fidelity"]
    names = dict.fromkeys(line["method"] for line in lines)
    yield table(
        "credit of SmolLM2's decisions against exact credit, planted teams",
        ("method", "rank correlation", "tokens generated", "decisions"),
        [
            [n, *(over([x for x in lines if x["method"] == n], k) for k in ("rank", "tokens", "decisions"))]
            for n in names
        ],
    )
    found.pop("fidelity")
    budget = min((line.get("spoken", 0) for some in found.values() for line in some), default=0)
    yield table(
        "learning in a planted team, exact values",
        ("method", "before", "after", f"at {budget} tokens", "trivial", "optimum", "tokens"),
        [
            [
                m,
                over(firsts(kept, jobs[m]), "value"),
                over(some, "value"),
                over([at_tokens(kept, job, budget) for job in jobs[m]], "value"),
                over(some, "trivial"),
                over(some, "optimum"),
                over(some, "spoken"),
            ]
            for m, some in found.items()
        ],
    )


def at_tokens(kept: Kept, job: Job, budget: int) -> Line:
    """The last look at a job before it had generated more than so many tokens."""
    looks = [x for x in kept.lines if x["id"] == job.id and x.get("event") in ("look", "after")]
    inside = [x for x in looks if x.get("spoken", 0) <= budget]
    return inside[-1] if inside else {}


def parl(asked: Asked, kept: Kept) -> Iterator[Table]:
    """PARL's reward against the outcome alone, with an entropy bonus, and with pay for instantiation that is not annealed."""
    jobs = {
        m: [asked.job("parl", "scouts", m, seed) for seed in asked.all] for m in chosen(tuple(ARMS), asked.only)
    }
    found = arms(asked, kept, jobs)
    rows = []
    for m, some in found.items():
        first = firsts(kept, jobs[m])
        ways: dict[str, list[float]] = {job.id: [] for job in jobs[m]}
        for x in kept.lines:
            if x["id"] in ways and x.get("event") == "iteration":
                ways[x["id"]].append(x["width"])
        top = [{"width": max(some)} for some in ways.values() if some]
        columns = [over(first, "width"), over(top, "width"), over(some, "width")]
        columns += [over(first, "critical"), over(some, "critical"), over(first, "value"), over(some, "value")]
        rows.append([m, *columns, over(some, "optimum")])
    yield table(
        "scouts, 6 at once are best",
        (
            "reward",
            "width before",
            "widest",
            "after",
            "critical steps before",
            "after",
            "score before",
            "after",
            "optimum",
        ),
        rows,
    )


PARTS: dict[str, Callable[[Asked, Kept], Iterator[Table]]] = {
    "worlds": worlds,
    "roles": roles,
    "credit": credit,
    "parl": parl,
    "live": live,
}


# ---- what is promised

RECORDS = ROOT / "docs" / "results"
MACHINE = "H200"
WITHIN, HALF, QUARTER, TWICE, SEEDS = 0.02, 0.5, 0.25, 2.0, 3


def recorded(part: str, lines: Iterable[str]) -> list[Line]:
    """The lines of the last run of a part on the promised machine, and of those after it that were of some of its jobs; each with the commit of its run."""
    found: list[Line] = []
    there, by = False, ""
    for what in map(json.loads, filter(str.strip, lines)):
        if what["id"] == "machine":
            there, by = MACHINE in what["device"] and what.get("part") == part, what["asked"].get("commit", "")
            whole = what["asked"]["only"] == [] and not what["asked"].get("first")
            found = [] if there and whole else found
        elif there:
            found.append(what | {"commit": by})
    return found


def commits(lines: Iterable[Line]) -> str:
    """Of the runs in which jobs last came to a result."""
    newest = {line["id"]: line["commit"] for line in lines if line.get("event") == "after"}
    return ", ".join(dict.fromkeys(filter(None, newest.values())))


def last(lines: Iterable[Line], start: str, event: str = "after") -> list[Line]:
    """The last line of an event of each job whose name starts so."""
    return list({x["id"]: x for x in lines if x["id"].startswith(start) and x.get("event") == event}.values())


def mean(lines: Sequence[Line], key: str) -> float:
    return float(np.mean([x[key] for x in lines])) if lines else float("nan")


def over_seeds(lines: Sequence[Line], key: str) -> float:
    """The mean over the seeds that were promised; NaN if there are fewer."""
    return mean(lines, key) if len(lines) >= SEEDS else float("nan")


def of_seeds(lines: Sequence[Line], key: str) -> str:
    """What is said of figures over fewer seeds, which count for nothing."""
    few = ", ".join(f"{line[key]:.3g}" for line in lines) or "none"
    return f" of {len(lines)} seeds" + ("" if len(lines) >= SEEDS else f", too few ({few})")


def world_rows(lines: list[Line]) -> list[Row]:
    share = {}
    rows = []
    seeds = [len(last(lines, f"world {name} {OURS} ")) for name in WORLDS]
    rows.append(
        at_least(
            "10.2.seeds", "worlds: seeds that came to their end, the fewest of any", min(seeds), SEEDS, "exact"
        )
    )
    for name in WORLDS:
        mine, theirs = (last(lines, f"world {name} {method} ") for method in (OURS, TRAJECTORY))
        start = last(lines, f"world {name} {OURS} ", "before")
        moved = f"from {mean(start, 'value'):.3g} to {mean(mine, 'value'):.3g}"
        if name == "costly_search":
            what = f"{name}: regret{of_seeds(mine, 'regret')}, {moved}{SEEN.get(name, '')}"
            rows.append(at_most("10.2.costly_search", what, over_seeds(mine, "regret"), WITHIN, "sampled"))
        else:
            share[name] = over_seeds(mine, "share")
            what = f"{name}: share of the gap{of_seeds(mine, 'share')}, {moved}{SEEN.get(name, '')}"
            rows.append(at_most(f"10.2.{name}", what, share[name], HALF, "sampled"))
        flat = mean(theirs, "regret" if name == "costly_search" else "share")
        what = f"the same by trajectory-level credit at about the same budget, seeds: {len(theirs)}"
        rows.append(fact(f"10.2.{name}.trajectory", what, flat))
    third = float(np.sort(list(share.values()))[2])  # NaN comes last
    return [
        *rows,
        at_most("10.2.three", "the third smallest share of the gap of the others", third, QUARTER, "sampled"),
    ]


def credit_rows(lines: list[Line]) -> list[Row]:
    def ranks(method: str) -> list[Line]:
        return [x for x in lines if x.get("event") == "fidelity" and x["method"] == method]

    ours, theirs = ranks("ours, pooled by state"), ranks("c3, leave one out")
    return [
        fact("10.2.credit.ours", "rank correlation with exact credit, text planted", mean(ours, "rank")),
        fact("10.2.credit.c3", "the same of C3's leave-one-out", mean(theirs, "rank")),
        at_least("10.2.credit", "ours / C3's", mean(ours, "rank") / mean(theirs, "rank"), TWICE, "sampled"),
        at_most(
            "10.2.credit.tokens",
            "tokens, ours / C3's",
            mean(ours, "tokens") / mean(theirs, "tokens"),
            1.0,
            "sampled",
        ),
        *(
            fact(f"10.c.{m}", f"planted team learned by {m}", mean(last(lines, f"planted planted 0 {m} "), "value"))
            for m in ("c3", "magrpo", OURS)
        ),
    ]


def live_rows(lines: list[Line]) -> list[Row]:
    mine, start = last(lines, f"live office {LIVE_OURS} "), last(lines, f"live office {LIVE_OURS} ", "before")
    gain = over_seeds(mine, "success") - mean(start, "success")
    return [
        at_least(
            "10.3.seeds", "a live team of three roles with a tool, trained on the GPU: seeds", len(mine), 3, "exact"
        ),
        fact("10.3.before", "its success before", mean(start, "success")),
        at_least("10.3.gain", f"its success after{of_seeds(mine, 'success')}, less that", gain, 0.1, "sampled"),
        at_least(
            "10.3.roles",
            "roles whose credit and gradient are told",
            min((len(x["roles"]) for x in mine), default=0),
            3,
            "exact",
        ),
    ]


def role_rows(lines: list[Line]) -> list[Row]:
    rows = []
    for method in ("dr_mas", "grpo"):
        for share, words in (("one", "one adapter"), ("role", "one a role")):
            arm = f"live office {method} share={share} "
            start, end = last(lines, arm, "before"), last(lines, arm)
            what = f"{method}, {words}: success{of_seeds(end, 'success')}, from {mean(start, 'success'):.3g}"
            rows.append(fact(f"10.b.{method}.{share}", what, mean(end, "success")))
    return rows


def parl_rows(lines: list[Line]) -> list[Row]:
    rows = []
    for method in ARMS:
        start, end = (last(lines, f"parl scouts {method} ", event) for event in ("before", "after"))
        for key, words in (("width", "width"), ("critical", "critical steps"), ("value", "score")):
            what = f"{method}: {words}{of_seeds(end, key)}, from {mean(start, key):.3g}"
            rows.append(fact(f"10.d.{method}.{key}", what, mean(end, key)))
    return rows


ROWS: dict[str, Callable[[list[Line]], list[Row]]] = {
    "worlds": world_rows,
    "credit": credit_rows,
    "live": live_rows,
    "roles": role_rows,
    "parl": parl_rows,
}


def measure(full: bool, where: Path = RECORDS) -> list[Row]:
    """What was recorded on the GPU, part by part; a part that was never run there has no rows.

    A promise that was missed there is a row of the full measurement, `make proofs`: a small size here says nothing of it.
    """
    rows = []
    for part, made in ROWS.items():
        path = where / f"lm_{part}.jsonl"
        if path.exists() and (lines := recorded(part, path.read_text().splitlines())):
            by = commits(lines)
            rows += [row | {"what": f"{row['what']}, as recorded on an {MACHINE} at {by}"} for row in made(lines)]
    told = [row for row in rows if row["target"] or row["figure"] == row["figure"]]
    return [row for row in told if full or row["ok"] is not False]


def value(text: str) -> Any:
    """
    >>> value("3e-5"), value("true"), value("B")
    (3e-05, True, 'B')
    """
    try:
        return json.loads(text)
    except ValueError:
        return text


def read(words: Sequence[str] | None = None) -> tuple[Asked, Path, bool]:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("part", choices=list(PARTS))
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--first", type=int, default=0, help="the first seed: lines are added to those of others")
    options.add_argument("--seconds", type=float, default=120.0, help="of training, a job")
    options.add_argument("--only", nargs="+", default=(), help="some worlds, teams or methods")
    options.add_argument("--model", default="smollm2", help="smollm2, or a folder")
    options.add_argument("--device", default="cuda")
    options.add_argument("--tiny", action="store_true", help="the tiny model, on the CPU: shows that it runs")
    options.add_argument("--beside", type=int, default=None, help="seeds of what ours is held against; as many")
    options.add_argument("--together", type=int, default=8, help="processes at once")
    options.add_argument(
        "--memory", type=float, default=0.0, help="of the card for each, where other commands run too"
    )
    options.add_argument(
        "--look", action="store_true", help="judge worlds on prices of training: to choose settings by"
    )
    options.add_argument("--judged", type=int, default=1_000, help="episodes of a judgement")
    options.add_argument(
        "--set", nargs="+", default=(), metavar="NAME=VALUE", help="settings of [lm], such as rate=5e-5"
    )
    options.add_argument(
        "--again", action="store_true", help="go on with FILE: jobs that came to their end are not run again"
    )
    options.add_argument("--out", type=Path, default=None, help="lines of JSON go here")
    args = options.parse_args(words)
    given = dict(pair.split("=", 1) for pair in args.set)
    seeds = 1 if args.tiny and args.seeds == 3 else args.seeds
    asked = Asked(
        args.part,
        seeds,
        min(args.seconds, 3.0) if args.tiny else args.seconds,
        tuple(args.only),
        args.model,
        "cpu" if args.tiny else args.device,
        args.tiny,
        seeds if args.beside is None else args.beside,
        min(args.judged, 50) if args.tiny else args.judged,
        {k: value(v) for k, v in given.items()},
        args.together,
        args.first,
        args.memory,
        commit(),
        args.look,
    )
    where = Path(os.environ.get("OUT", ROOT / "out"))
    return asked, args.out or where / f"lm_{args.part}{'_tiny' if args.tiny else ''}.jsonl", args.again


def main(words: Sequence[str] | None = None) -> None:
    asked, path, again = read(words)
    kept, start, shown = Kept(path, again=again), perf_counter(), None
    if not kept.lines:
        kept.add(machine(asked))
    try:
        for shown in PARTS[asked.part](asked, kept):
            Console(width=150).print(shown)
    finally:
        kept.add({"id": asked.part, "event": "took", "seconds": perf_counter() - start})
        print(f"lines: {path}", file=sys.stderr)
    if any("error" in line and line["id"] not in kept.ended for line in kept.lines):
        sys.exit(1)


if __name__ == "__main__":
    main()
