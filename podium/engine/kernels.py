# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# Triton takes annotations for its own.
"""What generation does on a GPU in one kernel each, where torch takes several (Triton, which comes with torch for
CUDA; imported only there).

Each does what `pool` or `engine` does in torch where there is no GPU: copies to the bit, sums in another order.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

__all__ = ["chunks", "combined", "placed"]


@triton.jit
def _placed(
    q,
    k,
    v,
    at,
    keys,
    values,
    asked,
    q_token,
    q_head,
    k_token,
    k_head,
    v_token,
    v_head,
    tokens,
    heads: tl.constexpr,
    groups: tl.constexpr,
    width: tl.constexpr,
    times: tl.constexpr,
    wide: tl.constexpr,
):
    """A token: its keys and values to their places, its queries to theirs."""
    i = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, wide)
    inside = lane < width
    place = tl.load(at + i)
    for group in tl.static_range(groups):
        to = (place * groups + group) * width + lane
        tl.store(keys + to, tl.load(k + i * k_token + group * k_head + lane, inside), inside)
        tl.store(values + to, tl.load(v + i * v_token + group * v_head + lane, inside), inside)
    each: tl.constexpr = heads // groups
    for head in tl.static_range(heads):
        query = tl.load(q + i * q_token + head * q_head + lane, inside)
        for time in tl.static_range(times):
            row = (time * tokens + i) * each + head % each
            tl.store(asked + (row * groups + head // each) * width + lane, query, inside)


def placed(q: Tensor, k: Tensor, v: Tensor, at: Tensor, keys: Tensor, values: Tensor, times: int) -> Tensor:
    """Puts keys and values [tokens, groups, width] to their places in the pool; the queries [tokens, heads, width],
    so many times one after another, packed as [times tokens heads / groups, groups, width]."""
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    (tokens, heads, width), groups = q.shape, k.shape[1]
    queries = q.new_empty(times * tokens * heads // groups, groups, width)
    strides = [n for x in (q, k, v) for n in x.stride()[:2]]
    wide = triton.next_power_of_2(width)
    _placed[(tokens,)](
        q, k, v, at, keys, values, queries, *strides, tokens, heads, groups, width, times, wide, num_warps=1
    )
    return queries


@triton.jit
def _combined(
    out,
    lse,
    more,
    more_lse,
    total,
    total_lse,
    queries,
    rows,
    heads: tl.constexpr,
    groups: tl.constexpr,
    width: tl.constexpr,
    times: tl.constexpr,
    before: tl.constexpr,
    wide: tl.constexpr,
):
    """A query of a head."""
    i, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    lane = tl.arange(0, wide)
    inside = lane < width
    each: tl.constexpr = heads // groups
    group = head // each
    row = i * each + head % each
    most = tl.full((), float("-inf"), tl.float32)
    if before:
        most = tl.load(lse + head * queries + i)
        most = tl.where(most == float("inf"), float("-inf"), most)
    for time in tl.static_range(times):
        part_lse = tl.load(more_lse + group * rows + time * queries * each + row)
        most = tl.maximum(most, tl.where(part_lse == float("inf"), float("-inf"), part_lse))
    base = tl.where(most == float("-inf"), 0.0, most)
    total_out = tl.zeros((wide,), tl.float32)
    share = tl.full((), 0.0, tl.float32)
    if before:
        part_lse = tl.load(lse + head * queries + i)
        weight = tl.where(part_lse == float("inf"), 0.0, tl.exp(part_lse - base))
        share += weight
        total_out += weight * tl.load(out + (i * heads + head) * width + lane, inside, 0.0).to(tl.float32)
    for time in tl.static_range(times):
        part_lse = tl.load(more_lse + group * rows + time * queries * each + row)
        weight = tl.where(part_lse == float("inf"), 0.0, tl.exp(part_lse - base))
        share += weight
        at = ((time * queries * each + row) * groups + group) * width + lane
        total_out += weight * tl.load(more + at, inside, 0.0).to(tl.float32)
    tl.store(
        total + (i * heads + head) * width + lane,
        (total_out / tl.where(share > 0, share, 1.0)).to(total.dtype.element_ty),
        inside,
    )
    tl.store(total_lse + head * queries + i, base + tl.log(share))


def combined(
    first: tuple[Tensor, Tensor] | None, more: Tensor, more_lse: Tensor, queries: int, heads: int
) -> tuple[Tensor, Tensor]:
    """`pool.merged` of what there is before, [queries, heads, width] and [heads, queries], if anything, and of all
    times of packed parts."""
    rows, groups, width = more.shape
    total = more.new_empty(queries, heads, width)
    total_lse = more_lse.new_empty(heads, queries)
    out, lse = first or (total, total_lse)
    _combined[(queries * heads,)](
        out.contiguous(),
        lse.contiguous(),
        more,
        more_lse,
        total,
        total_lse,
        queries,
        rows,
        heads,
        groups,
        width,
        rows * groups // (queries * heads),
        first is not None,
        triton.next_power_of_2(width),
        num_warps=1,
    )
    return total, total_lse


@triton.jit
def _chunks(z, top, sums, size: tl.constexpr):
    """A chunk."""
    i = tl.program_id(0).to(tl.int64)
    chunk = tl.load(z + i * size + tl.arange(0, size))
    most = tl.max(chunk, 0)
    tl.store(top + i, most)
    tl.store(sums + i, tl.sum(tl.exp(chunk - tl.where(most == float("-inf"), 0.0, most)), 0))


def chunks(z: Tensor) -> tuple[Tensor, Tensor]:
    """Of each chunk of float32 [rows, chunks, a power of two] the greatest, and Σ exp(z - the greatest)."""
    top, sums = z.new_empty(z.shape[:2]), z.new_empty(z.shape[:2])
    _chunks[(top.numel(),)](z.contiguous(), top, sums, z.shape[2], num_warps=1)
    return top, sums
