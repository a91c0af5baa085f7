"""Generation: tokens a second of many agents at once and of branches that share their beginnings, beside transformers on the same work.

    python -m bench.lm_generate [--full] [--json]           the same answers on the CPU, a small ratio, and what was recorded on a GPU
    python -m bench.lm_generate --gpu [--only PART ...]     on a GPU, as promised; a line of JSON for each figure

On the GPU: SmolLM2-135M's size, random weights, bfloat16, 64 new tokens drawn at temperature 1 from the whole vocabulary, reading the
prompts included; the median of three calls after one that is not counted. *many* is 256 agents with prompts of 128 tokens, *prefix* 16
prefixes of 2,000 tokens with 16 branches each, which go on with 8 tokens of their own. transformers is asked for tokens only; here
log-probabilities and seeds by address are in the price. Its `generate` has its default cache, or its static cache, which it compiles; its continuous
batching is as it comes, made ready before it is timed. Each part is a process of its own with a limit of time. A part that fails says why and the others go on.
Lines of runs are kept in docs/results/lm_generate*.jsonl, from which the promises are read where there is no GPU.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from inspect import signature
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch

from bench.lm_packed import commits_of, machine, model_of, recorded, wait
from bench.table import Row, at_least, at_most, fact, show
from podium.engine import pool
from podium.engine.generate import Pending, complete_free
from podium.engine.models import Frame, Model, PolicyModel, adapted
from podium.engine.reader import Reader
from podium.envs.draws import seeds

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "docs" / "results"
NEW = 64
Prompts = list[list[int]]


def many(agents: int = 256, length: int = 128, vocabulary: int = 49_152) -> Prompts:
    return np.random.default_rng(0).integers(3, vocabulary, (agents, length)).tolist()  # type: ignore[no-any-return]


def branches(
    prefixes: int = 16, length: int = 2_000, each: int = 16, own: int = 8, vocabulary: int = 49_152
) -> Prompts:
    rng = np.random.default_rng(1)
    trunk = rng.integers(3, vocabulary, (prefixes, length)).tolist()
    return [t + rng.integers(3, vocabulary, own).tolist() for t in trunk for _ in range(each)]


SHAPES: dict[str, Callable[[], Prompts]] = {"many": many, "prefix": branches}


# ---- who generates


def policy_of(module: Any, adapter: str | None = None) -> PolicyModel:
    """A policy without a tokenizer, of which no token ends an answer."""
    return PolicyModel("all", Model("random weights", module, None, Frame((), (), -1, ())), adapter)


def ours(
    policy: PolicyModel,
    prompts: Prompts,
    new: int,
    *,
    rows: int,
    policies: Sequence[PolicyModel] = (),
    first: int = 0,
    **how: Any,
) -> list[Any]:
    """Answers to prompts, by one policy or by several in turn; `first` is the number of the first prompt."""
    reader = Reader(policy, rows, runner=policy.model.runner(rows, **how))
    threads = reader.threads(len(prompts))
    if policies:
        threads = np.concatenate([reader.threads(1, policies[i % len(policies)]) for i in range(len(prompts))])
    ends = reader.read(threads, prompts)
    dice = zip(seeds(0, len(prompts), first).tolist(), range(first, first + len(prompts)), strict=True)
    pending = [Pending(thread, at, new, False) for thread, at in zip(threads.tolist(), dice, strict=True)]
    return complete_free(reader, pending, ends)


def sampled(**more: Any) -> Any:
    from transformers import GenerationConfig

    return GenerationConfig(
        do_sample=True, temperature=1.0, top_k=0, top_p=1.0, eos_token_id=None, pad_token_id=0, **more
    )


def generate(module: Any, prompts: Prompts, new: int, cache: str | None = None) -> Any:
    """transformers' own; all prompts are of one length, so nothing is padded."""
    ids = torch.tensor(prompts, device=module.device)
    more = {} if cache is None else {"cache_implementation": cache}
    out = module.generate(
        ids, attention_mask=torch.ones_like(ids), generation_config=sampled(max_new_tokens=new, **more)
    )
    if out.shape[1] != ids.shape[1] + new:
        raise RuntimeError(f"{out.shape[1] - ids.shape[1]} new tokens, not {new}")
    return out[:, ids.shape[1] :].tolist()


def batching(module: Any, prompts: Prompts, new: int) -> list[list[int]]:
    """Its continuous batching, whose manager is kept from one call to the next."""
    known = signature(module.generate_batch).parameters
    more = {k: v for k, v in {"progress_bar": False, "persistent_manager": True}.items() if k in known}
    found = module.generate_batch(inputs=prompts, generation_config=sampled(max_new_tokens=new), **more)
    said = [one.generated_tokens for one in found.values()]
    if [len(one) for one in said] != [new] * len(prompts):
        raise RuntimeError(f"{len(said)} answers of {sorted({len(one) for one in said})} tokens")
    return said


def timed(call: Callable[[], Any], repeats: int = 3) -> tuple[float, float]:
    """Seconds of the first call, and the median of some after it."""
    taken = []
    for _ in range(1 + repeats):
        wait()
        start = perf_counter()
        call()
        wait()
        taken.append(perf_counter() - start)
    return taken[0], median(taken[1:])


# ---- on a GPU


def rate(name: str, prompts: Prompts, call: Callable[[], Any], repeats: int = 3) -> dict[str, Any]:
    """A line: new tokens a second; or why there is none."""
    try:
        torch.cuda.reset_peak_memory_stats()
        first, each = timed(call, repeats)
        memory = torch.cuda.max_memory_allocated() / 2**30
    except Exception:
        return {"id": name, "error": traceback.format_exc()[-1500:]}
    return {
        "id": name,
        "tokens_per_second": len(prompts) * NEW / each,
        "seconds": each,
        "first_seconds": first,
        "gib": memory,
    }


def half() -> Any:
    return endless(model_of("smol", torch.bfloat16, "cuda"))


def endless(module: Any) -> Any:
    """No token ends what it says."""
    module.generation_config.eos_token_id = module.config.eos_token_id = None
    return module.eval()


def ours_lines(compiled: bool) -> Iterator[dict[str, Any]]:
    policy = policy_of(half())
    label = " compiled" if compiled else ""
    for shape, make in SHAPES.items():
        prompts = make()
        call = partial(ours, policy, prompts, NEW, rows=256, compiled=compiled)
        yield rate(f"{shape} ours{label}", prompts, call)
        yield {"id": f"{shape} parts{label}", **parts_of(policy, prompts, compiled)}


def parts_of(policy: PolicyModel, prompts: Prompts, compiled: bool) -> dict[str, float]:
    """Where the time goes: reading, and a step of decoding."""
    engine = policy.model.runner(256, compiled=compiled)
    reader = Reader(policy, runner=engine)
    threads = reader.threads(len(prompts))
    wait()
    start = perf_counter()
    reader.read(threads, prompts)
    wait()
    read = perf_counter() - start
    reader.room(threads, np.full(len(prompts), engine.stride + 1))
    rows = [reader.row(thread, (5,)) for thread in threads.tolist()]
    u = np.full((engine.stride, len(rows)), 0.5)
    return {"read_seconds": read, "step_seconds": timed(lambda: engine.decode(rows, u), 5)[1] / engine.stride}


def adapters_lines() -> Iterator[dict[str, Any]]:
    """Four adapters of rank 8 in one batch; and the same answers as each alone."""
    names = [f"role_{k}" for k in range(4)]
    module = adapted(half(), names, 8, 0)
    for name, weight in module.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.02)
    model = policy_of(module).model
    policies = [PolicyModel(name, model, name) for name in names]
    prompts = many()
    yield rate("many ours adapters", prompts, lambda: ours(policies[0], prompts, NEW, rows=256, policies=policies))


def exact_lines() -> Iterator[dict[str, Any]]:
    """The kernels against sums by hand, and generation against plain forwards."""
    torch.manual_seed(0)
    for heads, groups in ((9, 3), (4, 4)):
        q = torch.randn(6, heads, 64, device="cuda", dtype=torch.bfloat16)
        k, v = (torch.randn(6, groups, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        keys, values = (torch.randn(4_096, groups, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        whole = {"dtype": torch.int32, "device": "cuda"}
        shapes = {
            "own": pool.Runs(
                torch.arange(7, **whole),
                torch.tensor([64, 640, 128, 0, 1000, 3000, 0], **whole),
                torch.tensor([1, 70, 300, 1, 2000, 5], **whole),
                1,
                4_096,
            ),
            "trunks": pool.Runs(
                torch.tensor([0, 3, 5, 6, 6, 6, 6], **whole),
                torch.tensor([640, 64, 0, 0, 0, 0, 0], **whole),
                torch.tensor([2000, 100, 0, 0, 0, 0], **whole),
                6,
                4_096,
            ),
            "new": pool.Runs(torch.tensor([0, 4, 6], **whole), None, None, 4, 4),
        }
        for name, runs in shapes.items():
            asked = pool.packed(runs, heads // groups)
            found = attended(q, k, v, keys, values, asked)
            key, value = (k, v) if runs.start is None else (keys, values)
            expected = pool._by_hand(q, key, value, runs, 0.125)
            there = expected[1] != torch.inf
            off = float((found[0] - expected[0]).abs().max()), float((found[1] - expected[1])[there].abs().max())
            none = bool((found[1][~there].abs() == torch.inf).all())
            yield {
                "id": f"kernel {name} {heads}/{groups}",
                "out_off": off[0],
                "lse_off": off[1],
                "empty_is_inf": none,
            }
        del keys, values
    yield from answers_lines()


def attended(q: Any, k: Any, v: Any, keys: Any, values: Any, runs: pool.Runs) -> tuple[Any, Any]:
    """As a plan attends by one of its parts: out and its log-sum-exp."""
    if runs.start is None:
        return pool._kernel(q, k, v, runs, 0.125)
    held = pool.Pool(len(keys), {0: (keys, values)})
    at = len(keys) - 1 - torch.arange(len(q), device=q.device)  # behind all that the runs have
    asked = held.placed(0, at, q, k, v, 1)[2]
    found: tuple[Any, Any] = pool._merged(q)(None, *pool._kernel(asked, keys, values, runs, 0.125), *q.shape[:2])
    return found


def answers_lines() -> Iterator[dict[str, Any]]:
    """Log-probabilities of answers against forwards of whole sequences: in float32, and how far those in bfloat16 are from it."""
    module = half()
    prompts = branches(2, 300, 8) + many(8, 40)
    said = ours(policy_of(module), prompts, 40, rows=256)
    full = model_of("smol", torch.float32, "cuda").eval()
    full.load_state_dict({k: v.float() for k, v in module.state_dict().items()})
    off, plain = [], []
    for prompt, answer in zip(prompts, said, strict=True):
        ids = torch.tensor([[*prompt, *answer.ids]], device="cuda")
        with torch.no_grad():
            logp = [m(ids).logits[0, len(prompt) - 1 : -1].float().log_softmax(-1) for m in (full, module)]
        exact, rough = (x.gather(1, ids[0, len(prompt) :, None])[:, 0].cpu() for x in logp)
        off.append((torch.tensor(answer.logp) - exact).abs().mean().item())
        plain.append((rough - exact).abs().mean().item())
    yield {
        "id": "10.1-exact",
        "figure": float(np.mean(off) / np.mean(plain)),
        "ours": np.mean(off),
        "plain": np.mean(plain),
    }
    again = ours(policy_of(module), prompts, 40, rows=256)
    alone = [ours(policy_of(module), [prompt], 40, rows=256)[0] for prompt in prompts[:1]]
    yield {
        "id": "same answers",
        "again": float(np.mean([a.ids == b.ids for a, b in zip(said, again, strict=True)])),
        "alone": int(alone[0].ids == said[0].ids),
    }


def peer_lines(name: str, call: Callable[..., Any], **how: Any) -> Iterator[dict[str, Any]]:
    for shape, make in SHAPES.items():
        prompts, module = make(), half()
        yield rate(f"{shape} {name}", prompts, partial(call, module, prompts, NEW, **how))
        with suppress(Exception):
            module.destroy_cached_continuous_batching_manager()
        gc.collect()
        torch.cuda.empty_cache()


PARTS: dict[str, tuple[float, Callable[[], Iterator[dict[str, Any]]]]] = {  # with the seconds each may take
    "ours": (90, lambda: ours_lines(False)),
    "generate": (75, lambda: peer_lines("generate", generate)),
    "batching": (75, lambda: peer_lines("batching", batching)),
    "exact": (60, exact_lines),
    "adapters": (60, adapters_lines),
    "compiled": (120, lambda: ours_lines(True)),
    "static": (120, lambda: peer_lines("static", generate, cache="static")),
}


def part_lines(name: str) -> Iterator[dict[str, Any]]:
    """A part in a process of its own, ended when its time is over; what it printed until then counts."""
    limit, start = PARTS[name][0], perf_counter()
    command = [sys.executable, "-m", "bench.lm_generate", "--part", name]
    try:
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit)
        said, why = ran.stdout, "" if ran.returncode == 0 else f"exit status {ran.returncode}: {ran.stderr[-1500:]}"
    except subprocess.TimeoutExpired as error:
        said = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        why = f"not done in {limit:g} seconds"
    yield from (json.loads(line) for line in said.splitlines() if line.startswith('{"id"') and line.endswith("}"))
    if why:
        yield {"id": name, "error": why}
    yield {"id": f"{name} took", "seconds": perf_counter() - start}


def lines_of(names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The figures of parts as they come, then what is promised of them."""
    found = {}
    for name in names:
        for line in part_lines(name):
            found[line["id"]] = line
            yield line
    told = [row for row in ratios(found) if row["figure"] == row["figure"]]  # what was not asked for has no ratio
    yield from ({"id": row["id"], "figure": row["figure"]} for row in told)


def on_gpu(names: list[str]) -> None:
    out = Path(os.environ.get("OUT", ROOT / "out"))
    out.mkdir(parents=True, exist_ok=True)
    with (out / "lm_generate.jsonl").open("a") as file:
        for line in (x for lines in ([machine()], lines_of(names)) for x in lines):
            said = json.dumps(line, default=float)
            print(said, flush=True)
            file.write(said + "\n")
            file.flush()


# ---- what is promised


PROMISES = {  # of each: of what work, whose tokens a second against whose, and how many times as many at least
    "10.1.many": ("many", "ours", "generate", "256 agents, 64 new tokens: times transformers' generate", 4.0),
    "10.1.many-batching": (
        "many",
        "ours",
        "batching",
        "256 agents, 64 new tokens: times its continuous batching",
        1.0,
    ),
    "10.1.prefix": (
        "prefix",
        "ours",
        "generate",
        "16 prefixes of 2,000 x 16 branches: times transformers' generate",
        6.0,
    ),
}
FACTS = {
    "10.1.many-compiled": (
        "many",
        "ours compiled",
        "generate",
        "256 agents, compiled: times transformers' generate",
    ),
    "10.1.prefix-compiled": (
        "prefix",
        "ours compiled",
        "generate",
        "16 x 16 branches, compiled: times transformers' generate",
    ),
    "10.1.many-static": ("many", "ours", "static", "256 agents: times its static compiled cache"),
    "10.1.prefix-static": ("prefix", "ours", "static", "16 x 16 branches: times its static compiled cache"),
    "10.1.prefix-batching": ("prefix", "ours", "batching", "16 x 16 branches: times its continuous batching"),
}
RATES = ("ours", "ours compiled", "ours adapters", "generate", "static", "batching")


def rate_of(found: dict[str, dict[str, Any]], shape: str, who: str) -> float:
    return float(found.get(f"{shape} {who}", {}).get("tokens_per_second", float("nan")))


def ratios(found: dict[str, dict[str, Any]], where: str = "") -> list[Row]:
    """Ours against theirs; what is promised, as it comes, not compiled. Where theirs has no figure its error is the row's text, and nothing is claimed."""
    rows = []
    for id, (shape, mine, who, what, *least) in {**PROMISES, **FACTS}.items():
        figure = rate_of(found, shape, mine) / rate_of(found, shape, who)
        error = found.get(f"{shape} {who}", {}).get("error", "").strip().splitlines()
        said = ", ".join(filter(None, [what, error[-1][:200] if error else "", where]))
        rows.append(at_least(id, said, figure, least[0], "time") if least else fact(id, said, figure))
    return [row for row in rows if row["target"] or row["figure"] == row["figure"]]


def rows_of(found: dict[str, dict[str, Any]], where: str) -> list[Row]:
    """What is promised of a GPU, and the tokens a second that it is made of."""
    each = [
        fact(
            f"10.1.{shape}.{who.replace(' ', '-')}",
            f"{shape}, {who}: tokens a second, {where}",
            rate_of(found, shape, who),
        )
        for shape in SHAPES
        for who in RATES
        if f"{shape} {who}" in found and rate_of(found, shape, who) > 0
    ]
    exact = found.get("10.1-exact", {}).get("figure", float("nan"))
    off = "log-probabilities in bfloat16 against float32: error / that of a plain forward"
    return [*ratios(found, where), at_most("10.1.exact", f"{off}, {where}", exact, 1.5, "exact"), *each]


def on_gpu_rows(full: bool) -> list[Row]:
    """Measured if there is a GPU and time; else as recorded, if that was done."""
    if full and torch.cuda.is_available():
        return rows_of({line["id"]: line for line in lines_of(PARTS)}, f"on {torch.cuda.get_device_name()}")
    rows: dict[str, Row] = {}
    # the newest last: what it lacks is of a run before, each row of one run
    for record in sorted(RECORDS.glob("lm_generate*.jsonl")):
        lines = record.read_text().splitlines()
        found = rows_of(recorded(lines), f"as recorded on an H200 at {commits_of(lines)}")
        rows |= {row["id"]: row for row in found}
    return list(rows.values())


# ---- on the CPU


def on_cpu_rows(full: bool) -> list[Row]:
    """The same answers beside others, sharing or not; and a small ratio."""
    module, vocabulary, new = endless(model_of("tiny", torch.float32, "cpu", 1_024)), 1_024, 16
    policy = policy_of(module)
    prompts = branches(2, 192, 4, 4, vocabulary) + many(4, 96, vocabulary)
    every = ours(policy, prompts, new, rows=8)
    alone = [ours(policy, [prompt], new, rows=8, first=i)[0] for i, prompt in enumerate(prompts)]
    off = []
    for prompt, answer in zip(prompts, every, strict=True):
        with torch.no_grad():
            logp = (
                module(torch.tensor([[*prompt, *answer.ids]]))
                .logits[0, len(prompt) - 1 : -1]
                .double()
                .log_softmax(-1)
            )
        off.append(
            float((logp.gather(1, torch.tensor(answer.ids)[:, None])[:, 0] - torch.tensor(answer.logp)).abs().max())
        )
    work = branches(4, 384, 8, 4, vocabulary)
    engine = policy.model.runner(32)
    before = engine.tokens
    ours(policy, work, new, rows=32)
    read = engine.tokens - before - len(work) * (new - 1)
    repeats = 3 if full else 1
    here = timed(lambda: ours(policy, work, new, rows=32), repeats)[1]
    there = timed(lambda: generate(module, work, new), repeats)[1]
    return [
        at_most(
            "10.1.cpu-beside",
            "answers that differ by a bit when said alone",
            sum(a != b for a, b in zip(every, alone, strict=True)),
            0,
            "exact",
        ),
        at_most("10.1.cpu-exact", "log-probabilities against a plain forward, float32", max(off), 1e-4, "exact"),
        fact(
            "10.1.cpu-read",
            "tokens of prompts / tokens read, 4 prefixes of 384 x 8 branches",
            sum(map(len, work)) / read,
        ),
        fact("10.1.cpu-speed", "times transformers' generate on these, one thread, 16 new tokens", there / here),
    ]


def measure(full: bool) -> list[Row]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return on_cpu_rows(full) + on_gpu_rows(full)
    finally:
        torch.set_num_threads(before)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--gpu", action="store_true", help="on the GPU, as promised")
    options.add_argument("--only", nargs="+", choices=list(PARTS), help="some parts of it")
    options.add_argument("--part", choices=list(PARTS), help="one part, here and without a limit")
    options.add_argument("--full", action="store_true", help="more repeats, and the GPU if there is one")
    options.add_argument("--json", action="store_true", help="one line of JSON instead of a table")
    args = options.parse_args()
    if args.part:
        for line in PARTS[args.part][1]():
            print(json.dumps(line, default=float), flush=True)
    elif args.gpu:
        on_gpu(args.only or list(PARTS))
    elif args.json:
        print(json.dumps({"rows": measure(args.full)}))
    else:
        show(measure(args.full))


if __name__ == "__main__":
    main()
