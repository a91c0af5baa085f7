"""What packing token trees saves: forward and backward of a tree against its branches as separate sequences.

    python bench/lm_packed.py [--json]              exactness and a small ratio on the CPU, and what was recorded on a GPU
    python bench/lm_packed.py --gpu [--only PART]   on a GPU: exactness, three shapes at two sizes, TRL's GRPOTrainer; a line of JSON each

rho is tokens if branches were separate / unique tokens. The bound is what counting multiply-adds allows, attention and head included:
those of separate branches / those of the tree. Both sides are compiled, attend by flash kernels in bfloat16 and make the same
log-probabilities by the same head. Each side is at its best micro-batch of the same numbers of tokens, for which it takes as many trees, or
rows of as many trees, as fit; there is no optimiser step. Weights are random. TRL is given the same numbers of tokens and its best of some options.
TRL and what it needs come from .peers-gpu/*.tar.xz, wheels for the GPU machine's Python unpacked into archives.
Lines of the run on the GPU are kept in docs/results/lm_packed.jsonl, which the promises are read from where there is no GPU.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import date
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
if "--gpu" in sys.argv:
    UNPACKED = tempfile.mkdtemp()
    for archive in (ROOT / ".peers-gpu").glob("*.tar.xz"):
        subprocess.run(["tar", "xf", archive, "-C", UNPACKED], check=True)
    sys.path.append(UNPACKED)

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402
from transformers.models.llama import modeling_llama  # noqa: E402

from bench.table import Kind, Row, at_least, at_most, fact, show  # noqa: E402
from podium.learn.lm import packed  # noqa: E402
from podium.learn.lm.tree import Tree, join, tree_of  # noqa: E402

VOCABULARY = 49_152
SIZES = {  # hidden, layers, heads, groups, ffn
    "smol": (576, 30, 9, 3, 1_536),  # SmolLM2-135M
    "wide": (2_048, 24, 32, 32, 8_192),  # SmolLM2-1.7B
    "tiny": (128, 4, 4, 2, 384),
    "probe": (256, 2, 4, 2, 512),
}
SHAPES = {  # tokens of a segment at each level, and how many segments hang from each of the level above
    "4096 -> 16 x 128": ((4_096, 1), (128, 16)),
    "1024 -> 8 x 256": ((1_024, 1), (256, 8)),
    "2048 -> 4 x 512 -> 4 x 128": ((2_048, 1), (512, 4), (128, 4)),
}
SMALL_SHAPE = ((384, 1), (24, 8))
AT_ONCE = {  # tokens of a micro-batch, on either side
    "smol": (32_768, 65_536, 131_072),
    "wide": (12_288, 24_576, 36_864),
}
GPU_WAYS = ("dense", "flex", "flex in parts")
ENOUGH = {"smol": 0.65, "wide": 0.8}  # of the bound

RECORD = ROOT / "docs" / "results" / "lm_packed.jsonl"
MACHINE = "H200"  # the promises of speed are of one
Promise = tuple[str, Callable[[str, str, float, float, Kind], Row], float, Kind]
PROMISES: dict[
    str, Promise
] = {  # of a line that the run on a GPU prints: what, at least or at most, what, and its kind
    **{
        f"9.1-gpu-{w}": (f"packed gradient against every branch alone, float32, {w}", at_most, 1e-5, "exact")
        for w in GPU_WAYS
    },
    "9.1-gpu-bf16-parts": ("its error in bfloat16 / that of separate branches in bfloat16", at_most, 1.5, "exact"),
    **{
        f"9.2-{n} {x}": (f"{n}, {x}: of the bound", at_least, least, "time")
        for n, least in ENOUGH.items()
        for x in SHAPES
    },
    "9.2-trl-smol": ("times TRL's branch tokens a second in the update, at rho 11", at_least, 4.0, "time"),
}


def model_of(size: str, dtype: torch.dtype, device: str, vocabulary: int = VOCABULARY) -> Any:
    hidden, layers, heads, groups, ffn = SIZES[size]
    config = LlamaConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        head_dim=hidden // heads,
        intermediate_size=ffn,
        vocab_size=vocabulary,
        max_position_embeddings=8_192,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )
    torch.manual_seed(0)
    with torch.device(device):
        return LlamaForCausalLM(config).to(dtype).train()


def tree_like(shape: tuple[tuple[int, int], ...], rng: np.random.Generator, vocabulary: int = VOCABULARY) -> Tree:
    """A random tree of a shape: the first level is given, all under it sampled, a segment an event."""
    events = iter(range(10**9))
    branches: list[list[tuple[int, np.ndarray]]] = [[]]
    for level, (length, count) in enumerate(shape):
        branches = [
            [*above, (next(events) if level else -1, rng.integers(0, vocabulary, length))]
            for above in branches
            for _ in range(count)
        ]
    ids = [np.concatenate([s for _, s in b]) for b in branches]
    owner = [np.concatenate([np.full(len(s), e) for e, s in b]) for b in branches]
    credit = np.random.default_rng(1).normal(size=next(events))
    weight = [np.where(o >= 0, credit[o], 0.0) for o in owner]
    return tree_of(ids, weight, weight, [o >= 0 for o in owner], owner)


def random_tree(rng: np.random.Generator, levels: int, vocabulary: int, first: int = 300, most: int = 120) -> Tree:
    """A first segment, and others under it of any length, also of none; few different ids, so that branches repeat each other's tokens; sampled or given."""
    rows: list[tuple[list[int], list[int]]] = []

    def grow(ids: list[int], owner: list[int], level: int) -> None:
        length = int(rng.integers(0, most)) if level else first
        event = len(rows) if level and rng.random() < 0.7 else -1
        ids, owner = ids + rng.integers(0, vocabulary, length).tolist(), owner + [event] * length
        rows.append((ids, owner))
        for _ in range(int(rng.integers(1, 4)) if level < levels else 0):
            grow(ids, owner, level + 1)

    grow([], [], 0)
    credit = rng.normal(size=len(rows) + 1)
    weight = [[credit[o] if o >= 0 else 0.0 for o in owner] for _, owner in rows]
    return tree_of(
        [ids for ids, _ in rows],
        weight,
        weight,
        [[o >= 0 for o in owner] for _, owner in rows],
        [o for _, o in rows],
    )


def multiply_adds(config: Any, tokens: int, pairs: int, logits: int) -> float:
    """Of one forward pass: linear layers by the token, attention by the pair of tokens, the head by the row of logits."""
    width, head = config.hidden_size, config.head_dim
    linear = width * head * (2 * config.num_attention_heads + 2 * config.num_key_value_heads)
    layer = tokens * (linear + 3 * width * config.intermediate_size) + 2 * pairs * config.num_attention_heads * head
    return float(config.num_hidden_layers * layer + logits * width * config.vocab_size)


def bound(config: Any, tree: Tree) -> float:
    """Multiply-adds of all branches alone / those of the tree."""
    length = np.diff(tree.row_start)
    alone = multiply_adds(
        config, len(tree.node), int((length * (length + 1) // 2).sum()), tree.sampled[tree.node].sum()
    )
    parents = len(np.unique(tree.parent[tree.sampled]))
    return alone / multiply_adds(config, len(tree), int((tree.position + 1).sum()), parents)


def forget(model: Any) -> None:
    for p in model.parameters():
        p.grad = None


def seconds(call: Callable[[], Any], repeats: int = 5, warm: int = 2) -> float:
    """The median of some calls, after some that are not counted, each until the device has done it."""
    taken = []
    for i in range(warm + repeats):
        wait()
        start = perf_counter()
        call()
        wait()
        if i >= warm:
            taken.append(perf_counter() - start)
    return median(taken)


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def packed_step(model: Any, trees: list[Tree], way: str | None = None) -> Callable[[], Any]:
    """Gradients of Σ -w log p of some trees, packed together."""
    forest = join(trees)
    weight = torch.tensor(forest.weight[forest.sampled], dtype=torch.float32, device=model.device)

    def step() -> None:
        forget(model)
        packed.loss_and_backward(model, [forest], lambda logp, _: -(weight * logp).sum(), way=way)

    return step


def plain_step(model: Any, trees: list[Tree], rows: int) -> Callable[[], Any]:
    """The same of the first branches of some trees, each a sequence of its own: a token's weight is divided among those that pass through it."""
    tree = join(trees)
    nodes = np.stack(tree.node_of[:rows])
    ids = torch.from_numpy(tree.token[nodes]).to(model.device)
    counted = np.flatnonzero(tree.sampled[nodes].ravel())
    share = (tree.weight / tree.through)[nodes].ravel()[counted]
    weight = torch.tensor(share, dtype=torch.float32, device=model.device)
    token = tree.token[nodes].ravel()[counted]

    def step() -> None:
        forget(model)
        hidden = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
        logp = packed.picked(hidden.flatten(0, 1), model.get_output_embeddings().weight, counted - 1, token)
        (-(weight * logp).sum()).backward()

    return step


def many_of(tokens: int, at_once: Iterable[int]) -> list[int]:
    """How many of so many tokens each make the micro-batches.

    >>> many_of(4_224, (2_048, 4_096, 32_768))
    [1, 7]
    """
    return sorted({max(n // tokens, 1) for n in at_once})


def best_of(
    steps: Mapping[int, Callable[[], Callable[[], Any]]], **how: int
) -> tuple[float, int, dict[int, float]]:
    """The least seconds for one of what is done so many at a time, how many that is, and all of them; what does not fit is left out."""
    each = {}
    for many, make in steps.items():
        with suppress(torch.OutOfMemoryError):
            each[many] = seconds(make(), **how) / many
        gc.collect()  # what a step that did not fit still holds
        torch.cuda.empty_cache()
    many = min(each, key=each.__getitem__)
    return each[many], many, each


def gradient(model: Any) -> torch.Tensor:
    return torch.cat([p.grad.flatten().double() for p in model.parameters()])


def reference(model: Any, tree: Tree) -> torch.Tensor:
    """Every branch alone through the model's own forward pass, each token's loss times its weight / how many branches pass through it."""
    forget(model)
    share = np.where(tree.sampled, tree.weight / tree.through, 0.0)
    for nodes in tree.node_of:
        ids = torch.from_numpy(tree.token[nodes]).to(model.device)
        logp = model(ids[None]).logits[0, :-1].float().log_softmax(-1).gather(1, ids[1:, None])[:, 0]
        (-(torch.from_numpy(share[nodes][1:]).to(logp) * logp).sum()).backward()
    return gradient(model)


def gradient_error(model: Any, tree: Tree, way: str | None, most_tokens: int | None = None) -> tuple[float, int]:
    """‖packed - reference‖ / ‖reference‖ over all parameters, and how many tokens were not counted once if sampled and never if given."""
    expected = reference(model, tree)
    forget(model)
    weight = torch.tensor(tree.weight, dtype=torch.float32, device=model.device)
    counted = np.zeros(len(tree), int)

    def loss(logp: torch.Tensor, of: np.ndarray) -> torch.Tensor:
        np.add.at(counted, of, 1)
        return -(weight[of] * logp).sum()

    packed.loss_and_backward(model, [tree], loss, most_tokens, way=way)
    off = float((gradient(model) - expected).norm() / expected.norm())
    return off, int((counted != tree.sampled).sum())


def worst_of(model: Any, trees: list[Tree], ways: Iterable[str]) -> dict[str, tuple[float, int]]:
    """The worst of `gradient_error` by each way, "in parts" being in about three."""
    worst = dict.fromkeys(ways, (0.0, 0))
    for tree in trees:
        few = int(max(tree.position.max() + 1, len(tree) // 3))
        for way, (off, wrong) in worst.items():
            found = gradient_error(model, tree, way.split()[0], few if way.endswith("in parts") else None)
            worst[way] = max(off, found[0]), wrong + found[1]
    return worst


# ---- on a GPU


def random_trees(seeds: int, **how: int) -> list[Tree]:
    """Of 3 and more levels; those of odd seeds of four ids only."""
    return [random_tree(np.random.default_rng(s), 3 + s, 4 if s % 2 else 512, **how) for s in range(seeds)]


def exactness() -> Iterator[dict[str, Any]]:
    model = model_of("probe", torch.float32, "cuda", 512)
    for way, (off, wrong) in worst_of(model, random_trees(3), GPU_WAYS).items():
        yield {**promised(f"9.1-gpu-{way}", off), "counted_wrongly": wrong}
    tree = tree_like(((600, 1), (100, 4), (50, 4)), np.random.default_rng(0), 512)
    expected = reference(model, tree)
    half = model_of("probe", torch.bfloat16, "cuda", 512)
    alone = float((reference(half, tree) - expected).norm() / expected.norm())
    forget(half)
    packed_step(half, [tree], "parts")()
    together = float((gradient(half) - expected).norm() / expected.norm())
    yield dict(fact("9.1-gpu-bf16-alone", "separate branches in bfloat16 against float32", alone))
    yield dict(at_most("9.1-gpu-bf16-parts", "packed in bfloat16 against float32", together, 1.5 * alone, "exact"))


def speed(size: str, shapes: Iterable[str] = SHAPES) -> Iterator[dict[str, Any]]:
    """Each shape: packed against separate, both compiled, at their best micro-batch."""
    torch._dynamo.reset()
    model = model_of(size, torch.bfloat16, "cuda")
    packed.compile_layers(model)
    forests = {name: forest_of(name, AT_ONCE[size]) for name in shapes}
    how = {"repeats": 3, "warm": 1}
    together = {}
    for name, trees in forests.items():
        start = perf_counter()
        many = many_of(len(trees[0]), AT_ONCE[size])
        together[name] = best_of({n: partial(packed_step, model, trees[:n]) for n in many}, **how)
        yield {"id": f"{size} packed {name}", "seconds": together[name], "took": perf_counter() - start}
    alone: dict[str, tuple[float, int, dict[int, float]]] = {}
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        torch._dynamo.reset()
        try:
            with sdpa_kernel([backend]):
                for name, trees in forests.items():
                    start, rows = perf_counter(), len(trees[0].row_start) - 1
                    many = many_of(len(trees[0].node) // rows, AT_ONCE[size])
                    steps = {n: partial(plain_step, model, trees[: -(-n // rows)], n) for n in many}
                    found = best_of(steps, **how)
                    found = found[0] * rows, found[1], found[2]
                    alone[name] = min(alone.get(name, found), found)
                    label = f"{size} separate {name} {backend.name}"
                    yield {"id": label, "seconds": found, "took": perf_counter() - start}
        except Exception as error:
            yield {"id": f"{size} separate {backend.name}", "error": repr(error)[:1000]}
    for name, trees in ((n, ts) for n, ts in forests.items() if n in alone):
        tree, most = trees[0], bound(model.config, trees[0])
        faster = alone[name][0] / together[name][0]
        row = promised(f"9.2-{size} {name}", faster / most)
        sampled = int(tree.sampled[tree.node].sum()) / together[name][0]
        yield {**row, "rho": tree.rho, "bound": most, "faster": faster, "branch_tokens_per_second": sampled}


def forest_of(shape: str, at_once: Iterable[int]) -> list[Tree]:
    """As many trees of a shape as the largest micro-batch takes."""
    tree = tree_like(SHAPES[shape], np.random.default_rng(0))
    more = range(1, max(many_of(len(tree), at_once)))
    return [tree, *(tree_like(SHAPES[shape], np.random.default_rng(i)) for i in more)]


def flex(size: str) -> Iterator[dict[str, Any]]:
    """The block-sparse kernel on the same tree, to see what passes of flash kernels are worth."""
    torch._dynamo.reset()
    model = model_of(size, torch.bfloat16, "cuda")
    packed.compile_layers(model)
    trees = [tree_like(SHAPES["4096 -> 16 x 128"], np.random.default_rng(0)) for _ in range(2)]
    for way in ("flex", "parts"):
        yield {"id": f"{size} by {way}", "seconds": seconds(packed_step(model, trees, way)) / 2}


TRL_OPTIONS = {
    "default": "as it comes, without gradient checkpointing",
    "compiled": "the same, its layers compiled as ours are",
    "liger": "the same, not compiled, use_liger_kernel",
}


@contextmanager
def trainer(model: Any, rows: int, option: str = "default") -> Iterator[Any]:
    """TRL's GRPOTrainer around the model, made to update and not to generate: bfloat16, no checkpointing, its own chunked head."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from transformers.integrations.liger import apply_liger_kernel
    from trl import GRPOConfig, GRPOTrainer

    words = Tokenizer(models.WordLevel({"<pad>": 0, "a": 1}, unk_token="a"))
    llama = dict(vars(modeling_llama))  # liger changes what later models are made of
    with tempfile.TemporaryDirectory() as folder:
        grpo = GRPOTrainer(
            model=model,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=rows,
                num_generations=rows,
                gradient_checkpointing=False,
                bf16=torch.cuda.is_available(),
                use_cpu=not torch.cuda.is_available(),
                use_liger_kernel=option == "liger",
                report_to=[],
            ),
            train_dataset=Dataset.from_dict({"prompt": ["a"] * rows}),
            processing_class=PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<pad>"),
        )
        try:
            if option == "liger":
                apply_liger_kernel(grpo.model, grpo.args.liger_kernel_config)  # as its train() does first
            if option == "compiled":
                packed.compile_layers(grpo.model)
            yield grpo
        finally:
            vars(modeling_llama).update(llama)


def trl_step(grpo: Any, trees: list[Tree], rows: int, prompt: int) -> Callable[[], Any]:
    """Its loss of the first branches of some trees as it makes it of prompts and completions, and backward."""
    model, tree = grpo.model, join(trees)
    ids = torch.from_numpy(tree.token[np.stack(tree.node_of[:rows])]).to(model.device)
    given = {
        "prompt_ids": ids[:, :prompt],
        "prompt_mask": torch.ones_like(ids[:, :prompt]),
        "completion_ids": ids[:, prompt:],
        "completion_mask": torch.ones_like(ids[:, prompt:]),
        "advantages": torch.linspace(-1, 1, rows, device=model.device),
        "num_items_in_batch": torch.tensor(float(ids[:, prompt:].numel()), device=model.device),
    }
    grpo.current_gradient_accumulation_steps = 1
    model.train()

    def step() -> None:
        forget(model)
        with grpo.compute_loss_context_manager():
            loss = grpo.compute_loss(model, given)
        grpo.accelerator.backward(loss)

    return step


def against_trl(size: str, shape: str = "4096 -> 16 x 128") -> Iterator[dict[str, Any]]:
    """Branch tokens a second in the update, the same model, prompts and completions, against the fastest of TRL's options."""
    torch._dynamo.reset()
    trees = forest_of(shape, AT_ONCE[size])
    tree, prompt = trees[0], SHAPES[shape][0][0]
    rows = len(tree.row_start) - 1
    tokens = int(tree.sampled[tree.node].sum())
    how = {"repeats": 3, "warm": 1}

    model = model_of(size, torch.bfloat16, "cuda")
    packed.compile_layers(model)
    many = many_of(len(tree), AT_ONCE[size])
    each, at, every = best_of({n: partial(packed_step, model, trees[:n]) for n in many}, **how)
    ours = tokens / each
    yield {"id": f"{size} packed for trl", "tokens_per_second": ours, "micro_batch": at, "all": every}

    theirs: dict[str, float] = {}
    many = many_of(len(tree.node) // rows, AT_ONCE[size])
    for option, said in TRL_OPTIONS.items():
        start = perf_counter()
        torch._dynamo.reset()
        try:
            with trainer(model_of(size, torch.bfloat16, "cuda"), rows, option) as grpo:
                steps = {n: partial(trl_step, grpo, trees[: -(-n // rows)], n, prompt) for n in many}
                each, at, every = best_of(steps, **how)
        except Exception as error:
            yield {"id": f"{size} trl {option}", "options": said, "error": repr(error)[:1000]}
            continue
        theirs[option] = tokens / (each * rows)
        found = {"tokens_per_second": theirs[option], "micro_batch": at, "all": every}
        yield {"id": f"{size} trl {option}", "options": said, **found, "took": perf_counter() - start}
        best = max(theirs, key=theirs.__getitem__)
        row = promised(f"9.2-trl-{size}", ours / theirs[best])
        yield {**row, "rho": tree.rho, "against": best, "all": {option: ours / it for option, it in theirs.items()}}


PARTS: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
    "exact": exactness,
    "smol": lambda: speed("smol"),
    "trl": lambda: against_trl("smol"),
    "wide": lambda: speed("wide"),
    "wide-short": lambda: speed("wide", ["1024 -> 8 x 256"]),
    "flex": lambda: flex("smol"),
}


def machine() -> dict[str, Any]:
    names = [n for n in ("transformers", "trl", "liger-kernel") if importlib.util.find_spec(n.replace("-", "_"))]
    versions = {n: importlib.metadata.version(n) for n in names}
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "date": str(date.today())}
    return {"id": "machine", **about, **versions, "commit": commit()}


def commit() -> str:
    """Of the code that runs: as a copy without git says in a file, or as git does."""
    if (told := ROOT / "COMMIT").exists():
        return told.read_text().strip()
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return found.stdout.strip()


def commits_of(lines: Iterable[str]) -> str:
    """The commits that lines about a machine name."""
    told = [what for line in filter(str.strip, lines) if (what := json.loads(line))["id"] == "machine"]
    return ", ".join(dict.fromkeys(what["commit"] for what in told if what.get("commit")))


def lines_of(names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The figures of some parts; a part that fails says why, and the others go on."""
    for name in names:
        start = perf_counter()
        try:
            yield from PARTS[name]()
        except Exception:
            yield {"id": name, "error": traceback.format_exc()[-3000:]}
        gc.collect()
        torch.cuda.empty_cache()
        yield {"id": f"{name} took", "seconds": perf_counter() - start}


def on_gpu(names: list[str]) -> None:
    """A line of JSON for each figure as soon as there is one."""
    out = Path(os.environ.get("OUT", ROOT / "out"))
    out.mkdir(parents=True, exist_ok=True)
    with (out / "lm_packed.jsonl").open("a") as file:
        for what in chain([machine()], lines_of(names)):
            line = json.dumps(what)
            print(line, flush=True)
            file.write(line + "\n")
            file.flush()


# ---- what is promised


def promised(name: str, figure: float) -> Row:
    what, verdict, target, kind = PROMISES[name]
    return verdict(name, what, figure, target, kind)


def recorded(lines: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The last line of each id, of those that follow a line saying that the machine is the promised one."""
    found: dict[str, dict[str, Any]] = {}
    there = False
    for line in filter(str.strip, lines):
        what = json.loads(line)
        if what["id"] == "machine":
            there = MACHINE in what["device"]
        elif there:
            found[what["id"]] = what
    return found


def short(name: str) -> str:
    """The id of a row.

    >>> short("9.2-smol 4096 -> 16 x 128"), short("9.1-gpu-flex in parts")
    ('9.2.smol-4096-16x128', '9.1.gpu-flex-in-parts')
    """
    return name.replace("-", ".", 1).replace(" -> ", "-").replace(" x ", "x").replace(" ", "-")


def rows_of(lines: dict[str, dict[str, Any]], where: str) -> list[Row]:
    """What is promised of a GPU, judged by its figures; a figure that is not there is missed."""
    rows = []
    for name, (what, verdict, target, kind) in PROMISES.items():
        line = lines.get(name, {})
        figure = line.get("figure", math.nan)
        if name == "9.1-gpu-bf16-parts":
            figure /= lines.get("9.1-gpu-bf16-alone", {}).get("figure", math.nan)
        more = "{faster:.3g} times faster, the bound is {bound:.3g} and rho {rho:.3g}" if "faster" in line else ""
        said = [what, more.format_map(line), where if line else f"NOT THERE, {where}"]
        rows.append(verdict(short(name), ", ".join(filter(None, said)), figure, target, kind))
    return rows


def on_gpu_rows(full: bool) -> list[Row]:
    """Measured if there is a GPU, of a short measurement exactness only; else as recorded. So is TRL where it is not installed."""
    where = f"as recorded on an {MACHINE}, {RECORD.relative_to(ROOT)}"
    rows = rows_of(recorded(RECORD.read_text().splitlines() if RECORD.exists() else []), where)
    if not torch.cuda.is_available():
        return rows
    parts = ["exact", "smol", "wide", *(["trl"] if importlib.util.find_spec("trl") else [])] if full else ["exact"]
    lines = {what["id"]: what for what in lines_of(parts)}
    now = rows_of(lines, f"measured on {torch.cuda.get_device_name()}")
    starts = {"exact": "9.1.gpu", "smol": "9.2.smol", "wide": "9.2.wide", "trl": "9.2.trl"}
    fresh = tuple(starts[p] for p in parts)
    return [new if new["id"].startswith(fresh) else old for old, new in zip(rows, now, strict=True)]


def measure(full: bool) -> list[Row]:
    """On the CPU one thread, float32 and small models; then what is promised of a GPU."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return on_cpu_rows(full) + on_gpu_rows(full)
    finally:
        torch.set_num_threads(before)


def on_cpu_rows(full: bool) -> list[Row]:
    ways = ("dense", "parts", "parts in parts")
    probe = model_of("probe", torch.float32, "cpu", 512)
    worst = worst_of(probe, random_trees(5 if full else 3, first=40, most=24), ways)
    model = model_of("tiny", torch.float32, "cpu", 1_024)
    tree = tree_like(SMALL_SHAPE, np.random.default_rng(0), 1_024)
    alone = seconds(plain_step(model, [tree], len(tree.row_start) - 1), 5 if full else 2, 1)
    together = seconds(packed_step(model, [tree]), 5 if full else 2, 1)
    most = bound(model.config, tree)
    return [
        *(
            at_most(
                short(f"9.1-cpu-{way}"),
                f"packed gradient against every branch alone, float32, {way}",
                off,
                1e-5,
                "exact",
            )
            for way, (off, _) in worst.items()
        ),
        at_most("9.1.cpu-once", "tokens that were not counted once", sum(n for _, n in worst.values()), 0, "exact"),
        fact("9.2.cpu-rho", "tokens of separate branches / unique tokens, prefix 384 and 8 of 24", tree.rho),
        fact("9.2.cpu-bound", "multiply-adds of separate branches / of the tree", most),
        fact("9.2.cpu-speed", "times faster than separate branches, one thread", alone / together),
        fact("9.2.cpu-share", "of the bound", alone / together / most),
    ]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--gpu", action="store_true", help="on the GPU, as promised")
    options.add_argument("--only", nargs="+", choices=list(PARTS), help="some parts of it")
    options.add_argument("--json", action="store_true", help="lines of JSON instead of a table")
    args = options.parse_args()
    if args.gpu:
        on_gpu(args.only or list(PARTS))
    elif args.json:
        print(json.dumps({"rows": measure(True)}))
    else:
        show(measure(True))


if __name__ == "__main__":
    main()
