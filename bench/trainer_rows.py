"""Podium's credit inside other trainers: what issue 29 promises, measured.

    python -m bench.trainers            makes the trainers' environments, once
    python -m bench.trainer_rows --full the rows of 29; those of an environment that is not there are left out

The cost of advantages needs no trainer. What needs one runs in its environment (`bench/trainer_side.py`).
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import podium
from bench import trainer_compare, trainers
from bench.table import Row, at_least, at_most, best, command, fact
from bench.trainer_side import ROWS, TOKENS
from podium.credit.forest import copies
from podium.exchange.trainers.generations import token_credit
from podium.exchange.trainers.rows import rows_of_trace
from podium.methods import METHODS, credit_of
from podium.methods.choose import lacking
from podium.rewards.ledger import Now
from podium.trace.columns import Text

__all__ = ["measure"]

ROOT = Path(__file__).parents[1]
OTHERS = "dr_grpo rloo gspo opo pass_at_k dapo reinforce_pp dr_mas rema agent_lightning marshal".split()


def measure(full: bool) -> list[Row]:
    """A row a promise."""
    rows = [*as_traces(full), refusals(), *cost(full)]
    for name, what in BESIDE.items():
        if full and trainers.ready(name):
            print(f"measuring in the environment {name} ...", file=sys.stderr)
            rows += what()
    return rows + (trainer_compare.rows() if full else [])


def asked(name: str, function: str) -> dict[str, Any]:
    """The figures that a function of bench/trainer_side.py prints in an environment."""
    lines = trainers.ask(name, "bench/trainer_side.py", function).splitlines()
    figures: dict[str, Any] = json.loads(lines[-1])
    return figures


def as_traces(full: bool) -> list[Row]:
    """Every method over teams by dice: what rows are paid less what `credit_of` pays the trace of the same runs."""
    sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("credit", "methods")]
    import teams

    apart, compared, methods = 0.0, 0, set()
    for seed in range(8 if full else 1):
        for trace in (teams.plain(seed, length=24), teams.forest(seed + 10, 12)):
            unscored = np.arange(len(trace)) % 5 == 4
            scored = {k: np.where(unscored, np.nan, v) for k, v in trace.reward_n.items()}
            votes = Text.of({"x": "1", "y": "0"}.get(str(v)) for v in trace.value_v.strings())
            trace = replace(trace, reward_n=scored, cost_n={"tokens": np.arange(len(trace)) * 1e3}, value_v=votes)
            batch = rows_of_trace(trace)
            own = np.flatnonzero(~copies(trace, np.arange(trace.n_events)))
            lacks = lacking(trace)
            for name, row in METHODS.items():
                if not row.credit or set(row.needs) & set(lacks):
                    continue
                credit_k = token_credit(trace, row, Now(0.5, ()))
                if np.isnan(credit_of(trace, row, Now(0.5, ())).value).all():
                    continue
                paid = podium.advantages(batch, row, per="token", now=Now(0.5, ()))
                first, end = (np.searchsorted(trace.owner_k, own, side) for side in ("left", "right"))
                for i, (a, b) in enumerate(zip(first.tolist(), end.tolist(), strict=True)):
                    apart = max(apart, _apart(paid[i, : b - a], credit_k[a:b]))
                    compared += b - a
                methods.add(name)
    every = sum(bool(row.credit) for row in METHODS.values())
    what = f"tokens of rows ({compared:,}, over random teams and forests) less the credit of their trace"
    return [
        at_most("29.2", f"{what}: largest difference", apart, 1e-9, "exact"),
        at_least(
            "29.2.methods", f"of {every} methods that can be computed: compared", len(methods), every, "exact"
        ),
    ]


def _apart(a: np.ndarray, b: np.ndarray) -> float:
    if (np.isnan(a) != np.isnan(b)).any():
        return np.inf
    return float(np.nanmax(np.abs(a - b), initial=0.0))


WRONG: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"tokens": [[7], [7, 8]], "mask": [[1], [1]]}, "dr_grpo", "row 1, tokens"),
    ({"mask": [[1, 2], [1, 1]]}, "dr_grpo", "row 0, mask"),
    ({"mask": [[0, 1], [1, 1]], "prompt": [1, 1]}, "dr_grpo", "row 1, mask: trains"),
    ({"role": ["boss", "clerk"]}, "owl", "the field role has boss, clerk"),
    ({"rollout": [0, 0], "reward": [1.0, 1.0], "turn": [0, 0]}, "sirius", "row 1, turn"),
    ({"rollout": [0, 0], "reward": [1.0, 1.0], "tokens": [[7], [7]]}, "sirius", "row 1, tokens"),
    ({"rollout": [0, 0]}, "sirius", "row 1, reward"),
    ({"parent": [None, "z"], "turn": [0, 1]}, "hera", "row 1, parent"),
    ({"reward": [1.0, "x"]}, "hera", "row 1, reward"),
    ({"agent": ["ann"]}, "hera", "the field 'agent' has 1 rows"),
    ({"task": ["q", "p"]}, "hera", "row 0, task: 'q' has 1 rollouts, expected 2"),
)


def refusals() -> Row:
    """Batches that are wrong, each in one way, and whether the error names the row and the field."""
    named = 0
    for change, method, why in WRONG:
        try:
            podium.advantages(
                {"task": ["q", "q"], "reward": [1.0, 0.0]} | change,
                method,
                rollouts=2 if "task" in change else None,
            )
        except ValueError as error:
            named += why in str(error)
    return at_least("29.5", f"of {len(WRONG)} wrong batches: refused by row and field", named, len(WRONG), "exact")


def cost(full: bool) -> list[Row]:
    """Seconds for a batch of numpy's, GRPO beside one product; then other methods, of which some look at each token."""
    rows, width = (ROWS, TOKENS) if full else (64, 64)
    dice = np.random.default_rng(0)
    mask = (np.arange(width) < dice.integers(1, width, rows)[:, None]).astype(np.int64)
    batch = {"task": np.arange(rows) // 8, "reward": dice.random(rows), "mask": mask}
    a = dice.random(rows)
    seconds = best(9, lambda: podium.advantages(batch, "grpo", unpaid=0.0), lambda: a[:, None] * mask)
    what = f"advantages of {rows:,} rows of {width:,} tokens"
    made = [at_most("29.3.product", f"{what}: GRPO over one product", seconds[0] / seconds[1], 2.0, "time")]
    made.append(fact("29.3.grpo", f"{what}: GRPO, seconds", seconds[0]))
    for name in OTHERS if full else ():
        (took,) = best(1, lambda name=name: podium.advantages(batch, name, unpaid=0.0))  # type: ignore[misc]
        made.append(fact(f"29.3.{name}", f"{what}: {name}, seconds", took))
    return made


def _differences(id: str, what: str, name: str, function: str, most: float = 1e-6) -> list[Row]:
    """The largest difference for each method, and how many rows it was of."""
    found = asked(name, function)
    return [
        at_most(f"{id}.{method}", f"{what}, {method}: largest difference", one["apart"], most, "exact")
        for method, one in found.items()
    ]


def beside_verl() -> list[Row]:
    """Cost beside verl's vectorised GRPO, tensors of 32 bits, one thread; then verl's own way to advantages."""
    one = asked("verl", "verl_cost")
    return [
        at_most("29.3.verl", "GRPO over verl's vectorised GRPO, seconds", one["ours"] / one["verl"], 1.2, "time"),
        at_most("29.3.verl.apart", "largest difference between the two", one["apart"], 1e-6, "exact"),
        *_differences("29.1.verl", "verl 0.9.1, batch to advantages", "verl", "verl_advantages"),
    ]


def beside_trl() -> list[Row]:
    """Optimizer steps of TRL's trainer, their gradient beside ΣA·logp."""
    rows = []
    for method, one in asked("trl", "trl_gradient").items():
        what = f"TRL 1.16, {one['steps']} optimizer steps, {method}"
        rows.append(at_most(f"29.1.trl.{method}", f"{what}: gradient from ΣA·logp", one["apart"], 1e-6, "exact"))
        rows.append(fact(f"29.1.trl.{method}.size", f"{what}: largest entry of the gradient", one["size"]))
    return rows


def beside_verifiers() -> list[Row]:
    rows = []
    for method, one in asked("verifiers", "verifiers_nodes").items():
        what = f"verifiers 0.4, {one['nodes']} nodes, {method}"
        rows.append(at_most(f"29.1.verifiers.{method}", f"{what}: from credit_of", one["apart"], 0, "exact"))
        rows.append(
            at_most(
                f"29.1.verifiers.{method}.file", f"{what}: after its file of 4 decimals", one["file"], 5e-5, "exact"
            )
        )
        rows.append(
            at_most(f"29.1.verifiers.{method}.ids", f"{what}: lists of ids that changed", one["ids"], 0, "exact")
        )
    return rows


def beside_comlrl() -> list[Row]:
    rows = []
    for method, one in asked("comlrl", "comlrl_steps").items():
        what = f"CoMLRL 1.4.3, two agents, {one['updates']} updates, {method}"
        rows.append(
            at_most(f"29.1.comlrl.{method}", f"{what}: from its own advantages", one["apart"], 1e-6, "exact")
        )
        rows.append(
            at_least(f"29.1.comlrl.{method}.moved", f"{what}: weights moved by", one["moved"], 1e-6, "exact")
        )
    return rows


def beside_worlds() -> list[Row]:
    found = asked("worlds", "worlds_elsewhere")
    what = "PettingZoo 1.27 api_test and parallel_api_test pass in relay: agents"
    return [
        at_least("29.1.pettingzoo", what, found["relay"]["agents"], 3, "exact"),
        at_least(
            "29.1.sb3", "stable-baselines3 2.9 PPO in costly_search: steps", found["ppo"]["steps"], 256, "exact"
        ),
    ]


BESIDE = {
    "verl": beside_verl,
    "trl": beside_trl,
    "verifiers": beside_verifiers,
    "comlrl": beside_comlrl,
    "skyrl": lambda: _differences("29.1.skyrl", "SkyRL 0.3 dispatch", "skyrl", "skyrl_advantages"),
    "worlds": beside_worlds,
}


if __name__ == "__main__":
    command(measure, __doc__)
