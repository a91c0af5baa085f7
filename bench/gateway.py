"""Teams that write, and programs behind the gateway: exact tokens, nothing lost, idle clients, overhead, two programs that learn.

python -m bench.gateway [--json]
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

import httpx
import numpy as np
import torch

from bench import table
from bench.table import Row, at_least, at_most, fact
from podium.audit.exactness import exactness
from podium.engine.dialogue import Dialogue
from podium.engine.local import LocalEngine, engines_of
from podium.engine.models import policy_team
from podium.engine.protocol import Request
from podium.gateway.serve import serving
from podium.gateway.service import Gateway
from podium.learn.recipe import open_run
from podium.trace.columns import Trace
from podium.trace.files import load

ROOT = Path(__file__).parents[1]
CLIENTS = ROOT / ".venv" / "clients" / "bin" / "python"
CHAT = "/v1/chat/completions"


def ask(url: str, messages: list[dict[str, Any]], **more: Any) -> Any:
    answer = httpx.post(url + CHAT, json={"messages": messages, "max_tokens": 8, **more}, timeout=120)
    answer.raise_for_status()
    return answer.json()["choices"][0]["message"]


def conversation(url: str, turns: int) -> None:
    talk = [{"role": "user", "content": "hello"}]
    for number in range(turns):
        talk += [ask(url, talk), {"role": "user", "content": f"and {number}?"}]


def path(trace: Trace, row: int) -> list[int]:
    ids: list[int] = []
    while row >= 0:
        ids = trace.token_k[trace.owner_k == row].tolist() + ids
        row = int(trace.context_e[row])
    return ids


def farthest(trace: Trace, module: Any) -> float:
    """How far a log-probability on record is from that of one plain forward of all ids."""
    far = 0.0
    for row in np.unique(trace.owner_k).tolist():
        ids, own = path(trace, row), trace.logp_k[(trace.owner_k == row) & (trace.mask_k == 1)]
        with torch.no_grad():
            logp = torch.log_softmax(module(torch.tensor([ids])).logits[0].double(), -1)
        places = range(len(ids) - len(own), len(ids))
        far = max(far, *(abs(float(logp[at - 1, ids[at]]) - p) for at, p in zip(places, own.tolist(), strict=True)))
    return far


def exact(full: bool) -> list[Row]:
    """Conversations of several turns, at once."""
    team = policy_team("tiny", ["lead"])
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        gateway = Gateway(Path(folder) / "out", team, lambda: engines_of(team, "0", 8, 32, False), longest=64)
        stack.callback(gateway.close)
        url = stack.enter_context(serving(gateway))
        for number in range(4 if full else 2):
            conversation(f"{url}/run/r/agent/a{number}", 5 if full else 3)
        idle = [socket.create_connection(tuple(url[7:].split(":"))) for _ in range(1000 if full else 50)]  # type: ignore[arg-type]
        ask(f"{url}/run/idle", [{"role": "user", "content": "x"}])
        answered = 1
        for one in idle:
            one.close()
        seconds = overhead(url, team, 60 if full else 5)
        trace = load(gateway.end("r"))
    judged = exactness(trace)
    return [
        at_most("27.1.logp", "farthest log-probability from a plain forward, behind the gateway", farthest(trace, team.model.module), 1e-5, "exact"),
        at_most("27.1.clean", "answers of conversations that are not clean", len(judged.row_g) - judged.count("clean"), 0, "exact"),
        at_least("27.4.idle", f"requests answered beside {len(idle):,} idle connections", answered, 1, "exact"),
        at_most("27.4.overhead", "p50 of a request over the engine's own time, in ms, CPU", 1e3 * seconds, 5, "time"),
    ]  # fmt: skip


def overhead(url: str, team: Any, times: int) -> float:
    """Seconds of a request beyond what the engine takes for the same."""
    messages = [{"role": "user", "content": "how are you?"}]
    context = Dialogue(team.model).prompt(messages).context
    served, own = [], []
    with httpx.Client() as client:
        for number in range(times):
            begun = perf_counter()
            body = {"messages": messages, "max_tokens": 8, "temperature": 0}
            client.post(f"{url}/run/o{CHAT}", json=body, timeout=60)
            served.append(perf_counter() - begun)
            engine = LocalEngine(team.policies["all"])
            begun = perf_counter()
            engine.complete([Request(context, (number,), longest=8, greedy=True)])
            own.append(perf_counter() - begun)
    return median(served) - median(own)


def killed(full: bool) -> list[Row]:
    """A gateway is killed right after its answers came: those that are not on record."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "podium.cli",
            "gateway",
            "--model",
            "tiny",
            "--out",
            folder,
            "--port",
            "0",
            "--json",
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            url, count = json.loads(process.stdout.readline())["url"], 20 if full else 4
            for number in range(count):
                ask(f"{url}/run/r", [{"role": "user", "content": f"{number}"}])
            process.send_signal(signal.SIGKILL)
        sleep(0.1)
        recorded = len(np.unique(load(Path(folder) / "r").owner_k))
    return [
        at_most(
            "27.4.killed",
            f"of {count} answers that came, not on record after SIGKILL",
            count - recorded,
            0,
            "exact",
        )
    ]


def programs(full: bool) -> list[Row]:
    """The programs of `examples`, as they are, trained on this machine."""
    if not full or not CLIENTS.exists():
        return [fact("27.3.programs", "programs trained (full size, with `make clients`)", 0)]
    rows = []
    for name in ("openai", "langgraph"):
        text = (ROOT / f"examples/names_{name}.toml").read_text().replace("python examples", f"{CLIENTS} examples")
        with tempfile.TemporaryDirectory() as folder:
            recipe, begun = Path(folder) / "recipe.toml", perf_counter()
            recipe.write_text(re.sub(r"^#.*\n", "", text))
            run = open_run(recipe, Path(folder) / "run", policy="lm")
            scores = [line["score"] for line in run.iterations()]
            run.played()
            gain = run.told()["after"]["reward"] - run.told()["before"]["reward"]
        rows += [
            at_least(f"27.3.{name}", f"reward gained on held-out topics by the program in {name}", gain, 0.3, "sampled"),
            at_most(f"27.3.{name}.seconds", "seconds of that, on CPU", perf_counter() - begun, 180, "time"),
            fact(f"27.3.{name}.drawn", "mean reward gained by what is drawn, last iteration against first", scores[-1] - scores[0]),
        ]  # fmt: skip
    return rows


def measure(full: bool = True) -> list[Row]:
    """All of it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [*exact(full), *killed(full), *programs(full)]
    finally:
        torch.set_num_threads(before)


if __name__ == "__main__":
    table.command(measure, __doc__)
