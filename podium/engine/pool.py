"""Attention of contexts that are being written: keys and values lie in one pool for all, and what contexts share is
there once.

A context is a *trunk*, which others may have too, and what is its *own* behind that; both are runs of places in the
pool. Two exact ways:

*flash*  A plain flash kernel for each part, in which a sequence of keys may begin anywhere in the pool: queries of
all contexts that share a
         trunk on that, and queries of each on its own. Parts are combined by their log-sum-exps, as in `attention`.
*dense*  Keys of each context are gathered in their order and masked: for float32, and where results must be the
same bits however
         contexts share their beginnings.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

__all__ = [
    "NAME",
    "Dense",
    "Flash",
    "Pool",
    "Runs",
    "along",
    "kernels_for",
    "merged",
    "packed",
    "places",
    "unpacked",
]

NAME = "podium_pool"


@cache
def _kernels() -> Any:
    """The module of kernels in Triton, or None where there is no Triton."""
    try:
        from podium.engine import kernels
    except ImportError:
        return None
    return kernels


def kernels_for(x: Tensor) -> Any:
    """`kernels`, where x is on a GPU and there is Triton; else None."""
    return _kernels() if x.is_cuda else None


@dataclass
class Pool:
    """Keys and values of each layer [places, groups, width], made when the first are written."""

    size: int
    layers: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def write(self, layer: int, at: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Puts new keys and values [tokens, groups, width] to their places; all of the layer."""
        if layer not in self.layers:
            self.layers[layer] = (
                key.new_zeros(self.size, *key.shape[1:]),
                value.new_zeros(self.size, *value.shape[1:]),
            )
        keys, values = self.layers[layer]
        keys.index_copy_(0, at, key)
        values.index_copy_(0, at, value)
        return keys, values

    def placed(
        self, layer: int, at: Tensor, q: Tensor, k: Tensor, v: Tensor, times: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `write`; and queries [tokens, heads, width] packed, so many times one after another: [times tokens
        heads / groups, groups, width]."""
        if layer in self.layers and (kernels := kernels_for(q)):
            return *self.layers[layer], kernels.placed(q, k, v, at, *self.layers[layer], times)
        queries = q.unflatten(1, (k.shape[1], -1)).transpose(1, 2).expand(times, -1, -1, -1, -1).flatten(0, 2)
        return *self.write(layer, at, k, v), queries

    def grow(self, size: int) -> None:
        """More places behind those that there are."""
        for layer, pair in self.layers.items():
            more = [x.new_zeros(max(size, len(x)), *x.shape[1:]) for x in pair]
            for new, old in zip(more, pair, strict=True):
                new[: len(old)] = old
            self.layers[layer] = more[0], more[1]
        self.size = size

    def copy(self, source: Tensor, target: Tensor) -> None:
        for x in (x for layer in self.layers.values() for x in layer):
            x.index_copy_(0, target, x.index_select(0, source))


def places(trunk: Tensor, trunk_length: Tensor, own: Tensor, own_length: Tensor, new: Tensor, keys: int) -> Tensor:
    """Of each row [rows, keys] the places of its context in order: its trunk, its own, what is new.

    >>> one = lambda n: torch.tensor([n])
    >>> places(one(100), one(2), one(200), one(3), one(300), 7).tolist()
    [[100, 101, 200, 201, 202, 300, 301]]
    """
    at = torch.arange(keys, device=trunk.device)[None]
    first, second = trunk_length[:, None], (trunk_length + own_length)[:, None]
    behind = torch.where(at < second, own[:, None] + at - first, new[:, None] + at - second)
    return torch.where(at < first, trunk[:, None] + at, behind)


@dataclass
class Dense:
    """Rows of the same number of tokens, each row on its own keys."""

    pool: Pool
    at: Tensor  # [rows * width] where new keys go
    index: Tensor  # [rows, keys] places of a row's keys in order; waste paper behind them
    mask: Tensor  # [rows, 1, width, keys]: 0 or -inf

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """q [tokens, heads, width] and k, v [tokens, groups, width]: out as q."""
        rows, keys = self.index.shape
        whole = self.pool.write(layer, self.at, k, v)
        key, value = (
            x.index_select(0, self.index.flatten()).view(rows, keys, *x.shape[1:]).transpose(1, 2) for x in whole
        )
        query = q.view(rows, -1, *q.shape[1:]).transpose(1, 2)
        out = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=self.mask, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
        )
        return out.transpose(1, 2).reshape(q.shape)


class Runs(NamedTuple):
    """Sequences of queries, each on a run of keys: in the pool, or where `start` is None on the new keys beside it,
    causally."""

    of: Tensor  # int32 [sequences + 1]: offsets of the queries of each
    start: Tensor | None  # int32 [sequences + 1]: where the keys of each begin; the last is not read
    used: Tensor | None  # int32 [sequences]: how many there are
    longest_q: int
    longest_k: int
    times: int = 1  # that queries are there, one time after another


@dataclass
class Flash:
    """Tokens one after another, by parts."""

    pool: Pool
    at: Tensor
    parts: list[Runs]
    _packed: list[Runs] = field(default_factory=list, init=False)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        queries, heads = q.shape[:2]
        if not self._packed:  # by the first layer, for all
            self._packed = [packed(part, heads // k.shape[1]) for part in self.parts]
        times = max((part.times for part in self._packed if part.start is not None), default=0)
        keys, values, packed_q = self.pool.placed(layer, self.at, q, k, v, times)
        by, part_out = (_kernel if q.is_cuda else _by_hand), None
        for part in self._packed:
            if part.start is None:
                part_out = by(q, k, v, part, scale)
            else:
                part_out = _merged(q)(part_out, *by(packed_q, keys, values, part, scale), queries, heads)
        assert part_out is not None, "a plan has a part at least"
        return part_out[0]


def packed(runs: Runs, heads: int) -> Runs:
    """Runs of the pool whose queries are those of so many heads of a group, side by side: keys are the same for
    them, and a kernel works on many queries at once."""
    return runs if runs.start is None else runs._replace(of=runs.of * heads, longest_q=runs.longest_q * heads)


def _kernel(q: Tensor, key: Tensor, value: Tensor, runs: Runs, scale: float) -> tuple[Tensor, Tensor]:
    new = runs.start is None
    more = {} if new else {"seqused_k": runs.used}
    out, lse, *_ = torch.ops.aten._flash_attention_forward(
        q,
        key,
        value,
        runs.of,
        runs.of if new else runs.start,
        runs.longest_q,
        runs.longest_k,
        0.0,
        new,
        False,
        scale=scale,
        **more,
    )
    return out, lse


def _by_hand(q: Tensor, key: Tensor, value: Tensor, runs: Runs, scale: float) -> tuple[Tensor, Tensor]:
    """The same without a flash kernel, sequence by sequence: what the kernel is tested against."""
    out, lse = torch.zeros_like(q), q.new_full((q.shape[1], q.shape[0]), torch.inf, dtype=torch.float32)
    for i, (a, b) in enumerate(zip(runs.of.tolist(), runs.of.tolist()[1:], strict=False)):
        span = slice(a, b)
        if runs.start is not None and runs.used is not None:
            span = slice(int(runs.start[i]), int(runs.start[i]) + int(runs.used[i]))
        if a == b or span.start == span.stop:
            continue
        k, v = (x[span].repeat_interleave(q.shape[1] // x.shape[1], 1).float() for x in (key, value))
        score = torch.einsum("qhd,khd->hqk", q[a:b].float(), k) * scale
        if runs.start is None:
            score = score + torch.full((b - a, b - a), -torch.inf, device=q.device).triu(1)
        lse[:, a:b] = score.logsumexp(-1)
        out[a:b] = torch.einsum("hqk,khd->qhd", score.softmax(-1), v).to(q.dtype)
    return out, lse


Part = tuple[Tensor, Tensor]  # out [queries, heads, width] and its log-sum-exp [heads, queries]


def merged(first: Part | None, more: Tensor, more_lse: Tensor, queries: int, heads: int) -> Part:
    """lse = log Σ_p exp(lse_p), out = Σ_p exp(lse_p - lse) out_p, of what there is before, if anything, and of each
    time of a packed part; kernels say +inf where there were no keys."""
    each = [x.float() for x in unpacked(more, queries, heads)]
    lses = [x[..., 0] for x in unpacked(more_lse.t()[..., None], queries, heads)]
    if first is not None:
        each, lses = [first[0].float(), *each], [first[1].t(), *lses]
    lses = [torch.where(x == torch.inf, -torch.inf, x) for x in lses]
    both = reduce(torch.logaddexp, lses)
    total = reduce(torch.add, (x * (y - both).exp().unsqueeze(-1) for x, y in zip(each, lses, strict=True)))
    return total.to(more.dtype), both.t()


def _merged(x: Tensor) -> Any:
    """`merged`, as one kernel where that can be."""
    return kernels.combined if (kernels := kernels_for(x)) else merged


def unpacked(x: Tensor, queries: int, heads: int) -> Tensor:
    """[times queries heads / groups, groups, width] as [times, queries, heads, width]."""
    rows, groups, _ = x.shape
    times = rows * groups // (queries * heads)
    return x.unflatten(0, (times, queries, heads // groups)).transpose(2, 3).flatten(2, 3)


# ---- as an attention function of transformers

_now: list[Dense | Flash] = []  # by which the model attends just now


@contextmanager
def along(plan: Dense | Flash) -> Iterator[None]:
    """Models whose attention is called NAME attend by this plan."""
    _now.append(plan)
    try:
        yield
    finally:
        _now.pop()


@torch.library.custom_op("podium::pool_attention", mutates_args=())  # type: ignore[untyped-decorator]
def pool_attention(q: Tensor, k: Tensor, v: Tensor, layer: Tensor, scale: float) -> Tensor:
    """A plan as one operation, for the compiler; the pool that it writes is nobody else's business."""
    return _now[-1](int(layer), q, k, v, scale)


@pool_attention.register_fake  # type: ignore[untyped-decorator]
def _(q: Tensor, k: Tensor, v: Tensor, layer: Tensor, scale: float) -> Tensor:
    return q.new_empty(q.shape)


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
        raise NotImplementedError("a window or a cap on attention is not laid out in the pool")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    q, k = q.to(v.dtype), k.to(v.dtype)
    if torch.compiler.is_compiling():
        return pool_attention(q.contiguous(), k.contiguous(), v.contiguous(), module.pool_layer, scale)[None], None
    return _now[-1](int(module.layer_idx), q, k, v, scale)[None], None


AttentionInterface.register(NAME, _attend)
