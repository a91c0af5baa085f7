"""How fast credit is, whether it obeys its laws and whether it is what the peers' own packages compute.

    python -m bench.credit [--full] [--json]

5.1 compares with verl, TRL and CoMLRL, 5.2 counts the laws (both are the tests of those names, run here), 5.5 measures. The peers are
prepared first if they are not there (`bench/peers.py`); in the quick sizes what needs them is left out then.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

from bench import generate, peers
from bench.table import Row, at_least, at_most, best, calibration, command, exponent, fact
from podium.credit import Credit, apply
from podium.methods import METHODS, Method, credit_of
from podium.rewards.ledger import Now
from podium.trace.columns import Text, Trace, concat
from podium.trace.vocabulary import event

__all__ = ["measure", "tested"]

SIZES, RUNS, AGENTS = (10_000, 100_000, 1_000_000), 8, 1000
SMALL_SIZES = (400, 1_600)
ROWS, GROUP = 100_000, 8
SECONDS, TIMES, EXPONENT = 1.0, 20.0, 1.1
CHANNELS = "step verdict judge tests agent score verifier critic ema role language".split()
TESTS = Path(__file__).parents[1] / "tests" / "credit"
ESTIMATORS = {
    "grpo": 'zscore(by="task", alone="raw")',
    "dr_grpo": 'center(by="task", alone="raw")',
    "rloo": 'leave_one_out(by="task", alone="raw")',
    "opo": 'length_weighted(by="task", alone="raw")',
    "pass_at_k": 'best_only(by="task")',
}


def measure(full: bool) -> list[Row]:
    """Seconds of every method that needs neither branches nor a critic, growth, and ratios to verl's own functions."""
    if full:
        peers.prepare()
    rows = [*_speed(full)]
    if peers.ready():
        rows += _verl()
    if full:
        rows += tested("5.1.parity", "comparisons with verl, TRL and CoMLRL to 1e-6", "test_parity.py")
        rows += tested(
            "5.2.laws", "laws of steps and methods, and liars that each breaks one", "test_credit_laws.py"
        )
    return [
        *rows,
        calibration("5.5", full),
    ]


def runs_alone(method: Method) -> bool:
    """Whether it needs no branches (masked runs are branches) and nothing fitted."""
    return bool(method.credit) and not {"branches", "masks", "critic"} & set(method.needs)


def _speed(full: bool) -> Iterator[Row]:
    """Seconds by the clock; growth in seconds of the processor, because only long runs are interrupted by other programs."""
    names = sorted(name for name, method in METHODS.items() if runs_alone(method))
    clock: dict[str, float] = {}
    work: dict[str, list[float]] = {name: [] for name in names}
    sizes = SIZES if full else SMALL_SIZES
    for size in sizes:
        trace = batch(size)
        for name in names:
            took = [_took(partial(_credited, trace, name)) for _ in range(5 if full else 1)]
            clock[name] = min(wall for wall, _ in took)
            work[name].append(min(busy for _, busy in took))
    for name, seconds in clock.items():
        what = f"seconds for the credit of {name}, {sizes[-1]:,} events of {AGENTS:,} agents"
        yield at_most(f"5.5.{name}.s", what, seconds, SECONDS, "time")
    growth = {name: exponent(list(sizes), busy) for name, busy in work.items()}
    steepest = max(growth, key=lambda name: growth[name])
    yield at_most(
        "5.5.exponent", f"growth of the method that grows most ({steepest})", growth[steepest], EXPONENT, "time"
    )


def _took(call: Callable[[], object]) -> tuple[float, float]:
    wall, busy = perf_counter(), process_time()
    call()
    return perf_counter() - wall, process_time() - busy


def _credited(trace: Trace, name: str) -> Credit:
    """Of a trace that nothing is known of: a copy, so that no unit is remembered."""
    return credit_of(replace(trace), name, Now(progress=0.5))


def batch(n: int) -> Trace:
    """Runs of one task by teams of generated agents, with every channel and label that methods read, by dice."""
    whole = concat([generate.trace(n // RUNS, agents=AGENTS // RUNS, seed=s, tokens=True) for s in range(RUNS)])
    dice, events = np.random.default_rng(0), whole.n_events
    said = np.flatnonzero(whole.type_e == event("message"))
    combines = np.flatnonzero(whole.type_e == event("aggregate"))
    last = np.searchsorted(said, combines)
    heard = [said[np.maximum(last - k, 0)] for k in (1, 2, 3)]
    votes = np.concatenate([np.stack([combines, source]) for source in heard], axis=1)
    votes = votes[:, (whole.rollout_e[votes[0]] == whole.rollout_e[votes[1]]) & (votes[1] < votes[0])]
    votes = votes[:, np.argsort(votes[0], kind="stable")]
    answer = dice.integers(3, size=events)
    return replace(
        whole,
        batch_n=np.zeros(RUNS, int),
        reward_n={
            name: dice.random(RUNS).round(1) for name in ("team", "greedy", "judge", "harm", "refusal", "format")
        },
        stage_e=(np.arange(events) - whole.first_of("e")[whole.rollout_e]) // 1000,
        valid_e=np.where(dice.random(events) < 0.1, 0, 1),
        reward_e={
            **{name: dice.random(events).round(3) for name in CHANNELS},
            **{name: dice.integers(2, size=events) for name in ("correct", "verified", "format")},
        },
        extra_e={
            "anchor": Text(dice.integers(5000, size=events), [f'"s{i}"' for i in range(5000)]),
            "value": Text(np.where(whole.type_e == event("message"), answer, -1), ['"x"', '"y"', '"z"']),
            "graded": Text(dice.integers(5, size=events), [f"{i / 4}" for i in range(5)]),
        },
        event_v=votes[0],
        source_v=votes[1],
        value_v=Text(answer[votes[1]], ["x", "y", "z"]),
        weight_v=np.ones(votes.shape[1]),
    )


def _verl() -> Iterator[Row]:
    """Scores of many answers in groups: ours on runs of one event, verl's on answers of one token."""
    dice = np.random.default_rng(0)
    index, reward = dice.permutation(np.arange(ROWS) // GROUP), dice.random(ROWS).round(2)
    theirs = peers.ask("verl_seconds", index=index, reward=reward)
    trace = Trace.of(
        trace_id_n=Text.of(map(str, range(ROWS))),
        task_id_n=Text(index, [f"q{i}" for i in range(ROWS // GROUP)]),
        rollout_e=np.arange(ROWS),
        tokens_out_e=np.ones(ROWS),
    )
    ours = {name: best(7, partial(_applied, trace, reward, credit))[0] for name, credit in ESTIMATORS.items()}
    for name, took in ours.items():
        what = f"verl's own {name} over ours, {ROWS:,} rows in groups of {GROUP} (times faster)"
        yield at_least(f"5.5.verl.{name}.x", what, float(theirs[name]) / took, TIMES, "time")
    for name in ("grpo", "rloo"):
        what = f"verl's vectorised {name}, which it does not use unless told, over ours"
        yield fact(f"5.5.verl.{name}_vectorized.x", what, float(theirs[f"{name}_vectorized"]) / ours[name])


def _applied(trace: Trace, reward: np.ndarray, credit: str) -> Credit:
    return apply(Credit(replace(trace), "team", reward), credit)


def tested(id: str, what: str, file: str) -> list[Row]:
    """How many tests of a file hold, and that none does not. `file` is a path below tests/credit."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", TESTS / file], capture_output=True, text=True, cwd=TESTS.parents[1]
    )
    dots = "".join(re.findall(r"^([.FEsx]+)(?: *\[ *\d+%\])?$", done.stdout, re.M))
    missed = sum(map(dots.count, "FEs"))
    if not dots:
        raise RuntimeError(f"{file}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return [
        fact(f"{id}.held", f"{what}: that hold", dots.count(".")),
        at_most(f"{id}.missed", f"{what}: that do not", missed, 0, "exact"),
    ]


if __name__ == "__main__":
    command(measure, __doc__)
