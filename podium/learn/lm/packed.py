"""Log-probabilities and gradients of a token tree: every shared prefix is computed once.

    log p_k = logits(hidden of k's parent)[token_k] - logsumexp over all ids, or over those it was sampled among

The hidden state of a branch point serves all its children. Logits are made only where a child was sampled, once for
each parent, some rows at a time, and again backwards, so they are never all in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from podium.engine.tensors import head_logits, send
from podium.learn.lm import attention
from podium.learn.lm.tree import Tree, inner, join, part_of, partition, take

__all__ = ["Done", "hidden_states", "log_probs", "loss_and_backward", "picked"]

I64 = NDArray[np.int64]
Loss = Callable[[Tensor, I64], Tensor]  # of the log-probabilities of some sampled nodes, and which they are

ROWS = 4096  # of logits at a time: 0.8 GB at 49,152 ids


def hidden_states(model: Any, tree: Tree, way: str | None = None) -> Tensor:
    """[k, width] after the last norm, each node having seen itself and what is above it; `way` as in
    `attention.plan`."""
    decoder = model.get_decoder()
    weight = decoder.get_input_embeddings().weight
    device = weight.device
    dtype = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else weight.dtype
    token, position = (c[None] for c in send(device, tree.token, tree.position))
    plan = attention.plan(tree, device, dtype, way)
    out = decoder(input_ids=token, position_ids=position, use_cache=False, **plan)
    hidden: Tensor = out.last_hidden_state[0]  # where the rest is autocast it is float32, and so is the head
    return hidden


# ---- the head


def _score(logits: Tensor, row: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
    lse = logits.logsumexp(1)
    return logits[row, token] - lse[row], lse


def _slope(logits: Tensor, lse: Tensor, row: Tensor, token: Tensor, grad: Tensor, dtype: torch.dtype) -> Tensor:
    """dL/dlogits_uv = Σ_{i of row u} g_i (1[token_i = v] - p_uv), where (row, token) are all different."""
    total = torch.zeros_like(lse).index_add(0, row, grad)
    slope = (-(logits - lse[:, None]).exp() * total[:, None]).to(dtype)
    own = grad - (logits[row, token] - lse[row]).exp() * total[row]
    return slope.index_put((row, token), own.to(dtype))


class _Picked(torch.autograd.Function):  # type: ignore[misc]
    """log softmax(hidden weightᵀ)[row, token] without keeping logits. (row, token) are all different and row does
    not fall."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, row: Tensor, token: Tensor, cuts: list[tuple[int, int, int, int]]
    ) -> Tensor:
        head = weight.to(hidden.dtype)
        score = attention.fused(_score, hidden)
        with torch.autocast(hidden.device.type, enabled=False):
            parts = [score(head_logits(hidden[a:b], head), row[i:j] - a, token[i:j]) for a, b, i, j in cuts]
        ctx.save_for_backward(hidden, weight, row, token, *(lse for _, lse in parts))
        ctx.cuts = cuts
        return torch.cat([p for p, _ in parts])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, row, token, *lses = ctx.saved_tensors
        head = weight.to(hidden.dtype)
        slope_of = attention.fused(_slope, hidden)
        dhidden, dweight = torch.empty_like(hidden), None
        with torch.autocast(hidden.device.type, enabled=False):
            for (a, b, i, j), lse in zip(ctx.cuts, lses, strict=True):
                logits = head_logits(hidden[a:b], head)
                slope = slope_of(logits, lse, row[i:j] - a, token[i:j], grad[i:j], hidden.dtype)
                dhidden[a:b] = slope @ head
                if ctx.needs_input_grad[1]:
                    more = head_logits(slope.t(), hidden[a:b].t())
                    dweight = more if dweight is None else dweight.add_(more)
        return dhidden, None if dweight is None else dweight.to(weight.dtype), None, None, None


def picked(hidden: Tensor, weight: Tensor, parent: I64, token: I64, rows: int = ROWS) -> Tensor:
    """log softmax(hidden weightᵀ)[parent_i, token_i] for each i; logits of a parent are made once."""
    pairs, pair = np.unique(parent * len(weight) + token, return_inverse=True)
    used, row = np.unique(pairs // len(weight), return_inverse=True)
    starts = np.arange(0, len(used), rows)
    firsts = np.searchsorted(row, starts)
    stops = np.append(starts[1:], len(used))
    cuts = np.stack([starts, stops, firsts, np.append(firsts[1:], len(row))], 1).tolist()

    used_t, row_t, token_t, pair_t = send(hidden.device, used, row, pairs % len(weight), pair)
    out: Tensor = _Picked.apply(hidden.index_select(0, used_t), weight, row_t, token_t, cuts)
    return out.index_select(0, pair_t)


def _picked_among(hidden: Tensor, weight: Tensor, parent: I64, token: I64, among: list[I64]) -> Tensor:
    """logit[token_i] - logsumexp of the logits of the ids among_i."""
    length = np.array([len(a) for a in among])
    of = np.repeat(np.arange(len(among)), length)
    ids = np.concatenate(among)
    chosen = np.flatnonzero(ids == token[of])
    if len(chosen) != len(among):
        raise ValueError("a token was not sampled among the ids it is said to be, or is there twice")
    at, which, row, own, many = send(hidden.device, of, ids, parent[of], chosen, length)
    with torch.autocast(hidden.device.type, enabled=False):
        logits = (hidden.index_select(0, row).float() * weight.index_select(0, which).float()).sum(1)
        most = torch.segment_reduce(logits.detach(), "max", lengths=many)
        total = logits.new_zeros(len(among)).index_add(0, at, (logits - most[at]).exp())
        return logits[own] - most - total.log()


# ---- the tree


def _sampled(model: Any, tree: Tree, way: str | None = None) -> Tensor:
    """log p of the sampled nodes, in order."""
    nodes = np.flatnonzero(tree.sampled)
    nodes_in = inner(tree)
    place = np.full(len(tree), -1, np.int64)
    place[nodes_in] = np.arange(len(nodes_in))
    hidden = hidden_states(model, take(tree, nodes_in), way)
    head = model.get_output_embeddings()
    if type(head) is not nn.Linear or head.bias is not None:
        raise NotImplementedError(f"the head must be one matrix, and is {head!r}")
    parent, token = place[tree.parent[nodes]], tree.token[nodes]
    few = np.diff(tree.among_start)[nodes] > 0
    out = hidden.new_zeros(len(nodes), dtype=torch.float32)
    if not few.all():
        free = picked(hidden, head.weight, parent[~few], token[~few])
        out = out.index_copy(0, send(out.device, np.flatnonzero(~few))[0], free)
    if few.any():
        among = [tree.among[tree.among_start[k] : tree.among_start[k + 1]] for k in nodes[few]]
        bound = _picked_among(hidden, head.weight, parent[few], token[few], among)
        out = out.index_copy(0, send(out.device, np.flatnonzero(few))[0], bound)
    return out


def log_probs(model: Any, tree: Tree, *, most_tokens: int | None = None, way: str | None = None) -> Tensor:
    """[k] log p(token_k | what is above it) of the sampled nodes, 0 elsewhere. Differentiable, which in parts keeps
    what all of them need."""
    parts, nodes = [], []
    with attention.using(model.get_decoder().config):
        for part in partition(tree, most_tokens):
            piece = part_of(tree, part)
            if piece.sampled.any():
                parts.append(_sampled(model, piece, way))
                nodes.append(part.first - len(part.above) + np.flatnonzero(piece.sampled))
    device = model.get_output_embeddings().weight.device
    out = torch.zeros(len(tree), dtype=torch.float32, device=device)
    if not parts:
        return out
    return out.index_copy(0, send(device, np.concatenate(nodes))[0], torch.cat(parts))


@dataclass(frozen=True)
class Done:
    """What an accumulation of gradients was made of."""

    loss: float
    sampled: int  # tokens whose log-probability entered the loss
    tokens: int  # unique tokens
    computed: int  # tokens computed, those of prefixes that parts repeat counted each time
    parts: int


def loss_and_backward(
    model: Any,
    trees: Sequence[Tree],
    loss_fn: Loss,
    most_tokens: int | None = None,
    *,
    whole: bool = False,
    way: str | None = None,
) -> Done:
    """Adds to the gradients of the model those of the loss of all trees, at most `most_tokens` computed at a time.

    loss_fn(logp_i, node_i) is given the log-probabilities of sampled nodes, numbered through all trees (`join`),
    and is called once a part; the loss is the sum. That is exact if its terms are each of one token. For terms that
    couple tokens (a turn's or a sequence's ratio) say `whole`: they are then differentiated once over all
    log-probabilities, and parts are given L = Σ_k dL/dlogp_k logp_k, as exact under any partition, for one more
    forward pass if there are several parts.
    """
    tree = join(trees)
    parts = partition(tree, most_tokens)
    losses, computed = [], 0
    if whole and len(parts) > 1:
        nodes = np.flatnonzero(tree.sampled)
        with torch.no_grad():
            logp = log_probs(model, tree, most_tokens=most_tokens, way=way)
        (at,) = send(logp.device, nodes)
        leaf = logp[at].requires_grad_()
        value = loss_fn(leaf, nodes)
        slope = torch.zeros_like(logp)
        slope[at] = torch.autograd.grad(value, leaf)[0]

        def linear(x: Tensor, of: I64) -> Tensor:
            return (slope[send(x.device, of)[0]] * x).sum()

        done = loss_and_backward(model, [tree], linear, most_tokens, way=way)
        return Done(float(value.detach()), len(nodes), len(tree), 2 * done.computed, len(parts))
    with attention.using(model.get_decoder().config):
        for part in parts:
            piece = part_of(tree, part)
            if not piece.sampled.any():
                continue
            of = part.first - len(part.above) + np.flatnonzero(piece.sampled)
            value = loss_fn(_sampled(model, piece, way), of)
            value.backward()
            losses.append(value.detach())  # read at the end: reading waits for the device
            computed += len(inner(piece))
    loss = float(sum(losses)) if losses else 0.0
    return Done(loss, int(tree.sampled.sum()), len(tree), computed, len(parts))
