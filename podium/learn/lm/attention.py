"""Attention of each token of a tree to itself and the tokens above it: q sees k exactly if k <= q < end_k.

Three exact ways, chosen by `plan`:

*parts*  A segment's tokens see each other causally, and all its descendants see all of it. So attention is one
causal pass over segments and
         one full pass for each level, every pass a plain flash kernel over sequences of different lengths, and
         passes are combined by their log-sum-exps: lse = log Σ_p exp(lse_p), out = Σ_p exp(lse_p - lse) out_p.
         Backwards every pass is given the combined out and lse, for then its P = exp(S - lse) and dS = P (dP -
         rowsum(dout out)) are those of the whole, and gradients simply add.
*flex*
One FlexAttention kernel with a block mask that is read off the intervals: for trees of many levels, and for float32
on a GPU. *dense*  One masked product, for small trees where the rest is overhead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from transformers import AttentionInterface

from podium.engine.tensors import send
from podium.learn.lm.tree import Tree, segments

__all__ = ["NAME", "block_mask", "fused", "passes", "plan", "using"]

NAME = "podium_tree"
SMALL = 1024  # tokens up to which the dense product costs less than several passes
LEVELS = 4  # passes up to which flash kernels beat one block-sparse kernel
BLOCK = 128

I64 = NDArray[np.int64]


def plan(tree: Tree, device: torch.device, dtype: torch.dtype, way: str | None = None) -> dict[str, Any]:
    """What the model's attention is told of a tree, as keyword arguments of its forward pass; `way` to choose for
    it."""
    way = way or _way(tree, device, dtype)
    if way == "parts":
        rows, sizes = passes(tree)
        return {"tree_rows": send(device, rows)[0], "tree_sizes": torch.from_numpy(sizes)}
    if way == "flex":
        return {"tree_block": block_mask(send(device, tree.end)[0])}
    if way == "dense":
        k = np.arange(len(tree))
        return {"tree_mask": send(device, (k <= k[:, None]) & (k[:, None] < tree.end))[0]}
    raise ValueError(f"attention goes by parts, flex or dense, not {way!r}")


def _way(tree: Tree, device: torch.device, dtype: torch.dtype) -> str:
    if len(tree) <= SMALL:
        return "dense"
    if device.type == "cuda" and (dtype == torch.float32 or segments(tree).level.max() > LEVELS):
        return "flex"
    return "parts"


# ---- by parts


def _ranges(first: I64, stop: I64) -> I64:
    """first_0 .. stop_0 - 1, first_1 .. stop_1 - 1, ..."""
    length = stop - first
    return np.repeat(first - np.cumsum(length) + length, length) + np.arange(length.sum())


def passes(tree: Tree) -> tuple[NDArray[np.int32], I64]:
    """Pass 0 is of all segments on themselves; pass 1 + l of what is under the segments of level l on these.

    `sizes` has for each pass how many sequences, queries and keys there are and the longest of both; `rows` the
    offsets of the sequences among queries and keys and, from pass 1 on, which nodes these are.
    """
    s = segments(tree)
    length = s.stop - s.first
    ends = np.append(0, s.stop)
    rows: list[I64] = [ends, ends]
    sizes = [[len(length), len(tree), len(tree), length.max(), length.max()]]
    for level in range(int(s.level.max()) + 1):
        of = (s.level == level) & (s.end > s.stop)
        under, on = (s.end - s.stop)[of], length[of]
        if not of.any():
            continue
        rows += [np.append(0, np.cumsum(under)), np.append(0, np.cumsum(on))]
        rows += [_ranges(s.stop[of], s.end[of]), _ranges(s.first[of], s.stop[of])]
        sizes.append([len(on), under.sum(), on.sum(), under.max(), on.max()])
    return np.concatenate(rows).astype(np.int32), np.array(sizes, np.int64).ravel()


Pass = tuple[Tensor, Tensor, Any, Any, int, int]  # which nodes: tensors, or None for all


def _passes(rows: Tensor, sizes: Tensor) -> Iterator[Pass]:
    """Offsets of queries and of keys, which nodes they are, and the longest of both, for each pass."""
    at = 0

    def take(n: int) -> Tensor:
        nonlocal at
        at += n
        return rows[at - n : at]

    for i, (sequences, queries, keys, longest_q, longest_k) in enumerate(sizes.view(-1, 5).tolist()):
        of_q, of_k = take(sequences + 1), take(sequences + 1)
        q, k = (take(queries), take(keys)) if i else (None, None)
        yield of_q, of_k, q, k, longest_q, longest_k


def _some(x: Tensor, rows: Tensor | None) -> Tensor:
    return x if rows is None else x.index_select(0, rows)


def _forward(q: Tensor, k: Tensor, v: Tensor, p: Pass, scale: float) -> tuple[Tensor, Tensor]:
    """One pass: out [queries, heads, width] and its log-sum-exp [heads, queries]."""
    of_q, of_k, at_q, _, longest_q, longest_k = p
    causal = at_q is None
    if q.is_cuda:
        out, lse, *_ = torch.ops.aten._flash_attention_forward(
            q, k, v, of_q, of_k, longest_q, longest_k, 0.0, causal, False, scale=scale
        )
        return out, lse
    pairs = [
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*each, 0.0, causal, scale=scale)
        for each in zip(_sequences(q, of_q), _sequences(k, of_k), _sequences(v, of_k), strict=True)
    ]
    return torch.cat([o[0].transpose(0, 1) for o, _ in pairs]), torch.cat([lse[0] for _, lse in pairs], 1)


def _backward(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, p: Pass, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of one pass, given what all passes make together."""
    of_q, of_k, at_q, _, longest_q, longest_k = p
    causal = at_q is None
    if q.is_cuda:
        seed = torch.empty(2, dtype=torch.uint64, device=q.device)  # of a dropout that there is not
        dq, dk, dv = torch.ops.aten._flash_attention_backward(
            dout, q, k, v, out, lse, of_q, of_k, longest_q, longest_k, 0.0, causal, seed, seed, scale=scale
        )
        return dq, dk, dv
    by_head = [c[None] for c in torch.split(lse, np.diff(of_q.numpy()).tolist(), 1)]
    columns = [_sequences(x, o) for x, o in ((dout, of_q), (q, of_q), (k, of_k), (v, of_k), (out, of_q))]
    grads = [
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(*each, 0.0, causal, scale=scale)
        for each in zip(*columns, by_head, strict=True)
    ]
    dq, dk, dv = (torch.cat([g[0].transpose(0, 1) for g in gs]) for gs in zip(*grads, strict=True))
    return dq, dk, dv


def _sequences(x: Tensor, offsets: Tensor) -> list[Tensor]:
    """Of [tokens, heads, width] each sequence as [1, heads, tokens, width]."""
    return [c.transpose(0, 1)[None] for c in torch.split(x, np.diff(offsets.numpy()).tolist())]


def _merge(out: Tensor, lse: Tensor, more: Tensor, more_lse: Tensor) -> tuple[Tensor, Tensor]:
    """lse = log(exp(lse_1) + exp(lse_2)), out = Σ exp(lse_p - lse) out_p; out is [n, heads, width] and lse [heads,
    n]."""
    both = torch.logaddexp(lse, more_lse)
    a, b = ((x - both).exp().t().unsqueeze(-1) for x in (lse, more_lse))
    return (a * out.float() + b * more.float()).to(out.dtype), both


def _merge_rows(out: Tensor, lse: Tensor, more: Tensor, more_lse: Tensor, rows: Tensor) -> None:
    """`_merge` into some rows, in place."""
    at = rows.long()
    out[at], lse[:, at] = _merge(out[at], lse[:, at], more, more_lse)


def _add_rows(x: Tensor, more: Tensor, rows: Tensor) -> None:
    """Adds to some rows, all different, in place."""
    at = rows.long()
    x[at] = x[at] + more


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(function)  # what was seen to change is then left open
    return compiled


def fused(function: Callable[..., Any], x: Tensor) -> Callable[..., Any]:
    """The same function as one kernel, where x is on a GPU."""
    return _compiled(function) if x.is_cuda else function


@torch.library.custom_op("podium::tree_attention", mutates_args=())  # type: ignore[untyped-decorator]
def tree_attention(
    q: Tensor, k: Tensor, v: Tensor, rows: Tensor, sizes: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention by parts of q [tokens, heads, width] on k and v [tokens, groups, width]: out as q, lse [heads,
    tokens]."""
    first, *others = _passes(rows, sizes)
    out, lse = _forward(q, k, v, first, scale)
    for p in others:
        more, more_lse = _forward(_some(q, p[2]), _some(k, p[3]), _some(v, p[3]), p, scale)
        fused(_merge_rows, q)(out, lse, more, more_lse, p[2])
    return out, lse


@tree_attention.register_fake  # type: ignore[untyped-decorator]
def _(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, sizes: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty(q.shape[1], q.shape[0], dtype=torch.float32)


@torch.library.custom_op("podium::tree_attention_backward", mutates_args=())  # type: ignore[untyped-decorator]
def tree_attention_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    rows: Tensor,
    sizes: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of attention by parts: those of each pass, added."""
    first, *others = _passes(rows, sizes)
    grads = _backward(dout, q, k, v, out, lse, first, scale)
    for p in others:
        at_q, at_k = p[2:4]
        given = _some(dout, at_q), _some(q, at_q), _some(k, at_k), _some(v, at_k), _some(out, at_q)
        more = _backward(*given, lse.index_select(1, at_q), p, scale)
        for total, part, at in zip(grads, more, (at_q, at_k, at_k), strict=True):
            fused(_add_rows, q)(total, part, at)
    return grads


@tree_attention_backward.register_fake  # type: ignore[untyped-decorator]
def _(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    rows: Tensor,
    sizes: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, rows, sizes, ctx.scale = inputs
    ctx.save_for_backward(q, k, v, *output, rows, sizes)
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, dout: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    return *tree_attention_backward(dout.contiguous(), *ctx.saved_tensors, ctx.scale), None, None, None


tree_attention.register_autograd(_gradients, setup_context=_keep)


# ---- by blocks


def block_mask(end: Tensor) -> BlockMask:
    """The block mask of intervals: of queries a > b all see some key of block b if max end_b > first query of a,
    all keys if min end_b > last."""
    count = len(end)
    blocks = -(-count // BLOCK)
    ends = nn.functional.pad(end, (0, blocks * BLOCK - count), value=0).view(blocks, BLOCK)
    filled = nn.functional.pad(end, (0, blocks * BLOCK - count), value=count).view(blocks, BLOCK)
    start = torch.arange(blocks, device=end.device)[:, None] * BLOCK
    after = start.t() < start
    full = after & (filled.amin(1) >= (start + BLOCK).clamp(max=count))
    part = ((after & (ends.amax(1) > start)) | (start == start.t())) & ~full

    def sees(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (k <= q) & (q < end[k])

    lengths = (count, count)
    return BlockMask.from_kv_blocks(
        *_listed(part), *_listed(full), BLOCK_SIZE=BLOCK, mask_mod=sees, seq_lengths=lengths
    )


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many key blocks each query block has, and which, these first."""
    number = blocks.sum(1, dtype=torch.int32)
    which = torch.argsort(blocks.to(torch.int8), dim=1, descending=True, stable=True).to(torch.int32)
    return number[None, None], which[None, None].contiguous()


# ---- as an attention function of transformers


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **given: Any,
) -> tuple[Tensor, None]:
    """query [1, heads, tokens, width], key and value [1, groups, tokens, width]; out [1, tokens, heads, width]."""
    if given.get("sliding_window") is not None or given.get("softcap") is not None:
        raise NotImplementedError("a window or a cap on attention is not laid out on trees")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    query, key = query.to(value.dtype), key.to(value.dtype)  # rotation leaves float32 where the rest is autocast
    shared = query.shape[1] != key.shape[1]
    if given.get("tree_rows") is not None:
        if shared and not query.is_cuda:
            key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
        q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
        out, _ = tree_attention(q, k, v, given["tree_rows"], given["tree_sizes"], scale)
        return out[None], None
    if given.get("tree_block") is not None:
        flex: Any = flex_attention if torch.compiler.is_compiling() else _compiled(flex_attention)
        out = flex(query, key, value, block_mask=given["tree_block"], scale=scale, enable_gqa=shared)
    else:
        out = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=given["tree_mask"], scale=scale, enable_gqa=shared
        )
    return out.transpose(1, 2), None


AttentionInterface.register(NAME, _attend)


@contextmanager
def using(config: Any) -> Iterator[None]:
    """A model of this config attends along trees; as before afterwards."""
    before = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before
