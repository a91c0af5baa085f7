"""Whether any input gets an answer or a clear error, and no input anything else: `python -m bench.inputs [--full] [--json]`.

Documents and logs with bytes changed, cut out, doubled or swapped; each is read as `podium check` reads it.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

from bench.generate import trace
from bench.table import Row, at_least, command, fact
from podium.envs.world import BadParameter, make, worlds
from podium.trace import Unreadable, log, survey
from podium.trace.files import check_paths

__all__ = ["measure"]

BAD = (-1.0, 0, 1.2, float("nan"), float("inf"), "many", None, (1, 2), 10**30)


def measure(full: bool) -> list[Row]:
    n = 20_000 if full else 150
    answered, slowest = _mutations(n)
    refused, tried = _parameters()
    return [
        at_least(
            "2.7.answered",
            f"share of {n:,} damaged files that get findings or a clear error",
            answered,
            1.0,
            "exact",
        ),
        fact("2.7.slowest.s", "seconds that the slowest of them took", slowest),
        at_least(
            "3.6.refused",
            f"share of {tried:,} odd parameters that make a world with an optimum or are refused by name",
            refused,
            1.0,
            "exact",
        ),
    ]


def _mutations(n: int) -> tuple[float, float]:
    dice = random.Random(0)
    run = trace(60, tokens=True, extras=True)
    texts = [survey.write(run), log.write(run), json.dumps(json.loads(survey.write(run)), indent=1).encode()]
    fine, slowest = 0, 0.0
    with TemporaryDirectory() as folder:
        path = Path(folder) / "damaged.json"
        for _ in range(n):
            path.write_bytes(_damaged(dice.choice(texts), dice))
            start = perf_counter()
            try:
                list(check_paths(path))
                fine += 1
            except Unreadable:
                fine += 1
            except Exception as error:  # what must not happen, counted
                print(f"{type(error).__name__}: {error}")
            slowest = max(slowest, perf_counter() - start)
    return fine / n, slowest


def _damaged(text: bytes, dice: random.Random) -> bytes:
    data = bytearray(text)
    for _ in range(dice.choice((1, 1, 1, 2, 5))):
        at, size = dice.randrange(len(data)), dice.choice((1, 1, 4, 40, 400))
        match dice.randrange(5):
            case 0:
                data[at] = dice.randrange(256)
            case 1:
                del data[at : at + size]
            case 2:
                data[at:at] = data[at : at + size]
            case 3:
                data[at : at + 1] = dice.choice(
                    (b"NaN", b"1e999", b"null", b"{}", b"[", b'"', b"\\u0000", b"-1", b"\xff")
                )
            case _:
                del data[at:]
        if not data:
            break
    return bytes(data)


def _parameters() -> tuple[float, int]:
    """Each parameter of each world set to each odd value: a world that knows its optimum, or an error that names the parameter."""
    fine = tried = 0
    for name, world in worlds().items():
        for parameter in world.Params.__dataclass_fields__:
            for value in BAD:
                tried += 1
                try:
                    fine += bool(np.isfinite(make(name, **{parameter: value}).optimum()))
                except BadParameter as error:
                    fine += parameter in str(error)
                except Exception as error:  # what must not happen, counted
                    print(f"{name}, {parameter}={value!r}: {type(error).__name__}: {error}")
    return fine / tried, tried


if __name__ == "__main__":
    command(measure, __doc__)
