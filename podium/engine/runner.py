"""The machine that generation runs on: one model, its pool of keys and values, forwards over rows of all its
policies.

Reading takes many tokens of a row at once. Decoding takes one of each row, draws the next and feeds it back, some
steps without a look from the host; on a GPU the step is a CUDA graph, one for each size of batch, so that it costs
what the kernels cost and not their launching. The dense way (`pool`) always has the same shapes: `rows` rows of
`width` tokens, or of one. So what a row yields does not depend on what is beside it, to the bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from podium.engine.adapters import GenerationModule
from podium.engine.pool import Dense, Flash, Pool, Runs, along, kernels_for, places
from podium.engine.tensors import compile_layers, head_logits, send
from podium.trace.columns import F

__all__ = ["STEP", "ModelRunner", "Row", "drawn"]

N64 = NDArray[np.int64]
STEP = 64  # places of the smallest run; keys of the dense way come in multiples of it
AT_ONCE = 32_768  # tokens of a forward that reads, the flash way
STRIDE = 32  # steps of decoding between looks of the host, on a GPU
LONGEST = 4096  # keys by which a kernel guesses how to part its work; there may be more
LARGE = 1 << 17  # places of a pool that is kept, with the graphs of its steps, though nobody holds any
PIECES = 4  # that a trunk is attended to in, side by side, where one token of each row asks
CHUNK = 256  # tokens of the vocabulary whose probabilities are added up first


class Row(NamedTuple):
    """A context and what it is to read: runs of the pool as (first place, length), and the run that new tokens go
    to."""

    tokens: tuple[int, ...]
    trunk: tuple[int, int]
    own: tuple[int, int]
    new: int
    policy: int = -1
    done: int = 0  # tokens that are in the new run already

    @property
    def length(self) -> int:
        """Tokens it holds already."""
        return self.trunk[1] + self.own[1] + self.done


def drawn(logits: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Of each row of logits the token drawn by u, and its log-probability: the first whose cumulative probability
    is above u; where u < 0 the likeliest.

    Probabilities are added up in chunks, then chunks, then tokens in the chunk that u falls into.
    """
    rows, size = logits.shape
    z = logits.to(torch.float64 if logits.device.type == "cpu" else torch.float32)
    if size % CHUNK:
        z = torch.nn.functional.pad(z, (0, -size % CHUNK), value=-torch.inf)
    z = z.view(rows, -1, CHUNK)
    top, most, sums = _chunks(z)
    total = sums.cumsum(-1)
    goal = u.to(z.dtype) * total[:, -1]
    greedy = u < 0
    chunk = torch.where(greedy, top.argmax(-1), _first_above(total, goal))
    before = torch.where(chunk > 0, total.gather(1, (chunk - 1).clamp(min=0)[:, None])[:, 0], 0.0)
    inside = z.gather(1, chunk[:, None, None].expand(-1, 1, CHUNK))[:, 0] - most
    token = torch.where(greedy, inside.argmax(-1), _first_above(inside.exp().cumsum(-1), goal - before))
    return chunk * CHUNK + token, inside.gather(1, token[:, None])[:, 0] - total[:, -1].log()


def _chunks(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of [rows, chunks, CHUNK] the greatest of each chunk and of each row, and Σ exp(z - that of the row) of each
    chunk."""
    if kernels := kernels_for(z):
        top, sums = kernels.chunks(z)
        most = top.amax(-1, keepdim=True)
        return top, most, sums * (top - most).exp()
    top = z.amax(-1)
    most = top.amax(-1, keepdim=True)
    return top, most, (z - most[:, :, None]).exp_().sum(-1)


def _first_above(total: Tensor, goal: Tensor) -> Tensor:
    """Of each row of growing numbers the first above the goal; the first of the greatest if none is."""
    return ((total <= goal[:, None]) & (total < total[:, -1:])).sum(-1)


class ModelRunner:
    """A model made ready to generate. `names` are the adapters of its policies, in the order of their numbers."""

    def __init__(
        self,
        module: Any,
        names: Sequence[str] = (),
        *,
        rows: int = 32,
        width: int = 32,
        dtype: str = "",
        compiled: bool = False,
        way: str = "",
    ) -> None:
        self.source = module
        self.generation = GenerationModule(module, names, getattr(torch, dtype) if dtype else None)
        self.module, self.chosen = self.generation.module, self.generation.chosen
        self.device, self.dtype = self.module.get_input_embeddings().weight.device, self.generation.dtype
        half = self.dtype in (torch.bfloat16, torch.float16)
        self.way = way or ("flash" if self.device.type == "cuda" and half else "dense")
        self.rows, self.width, self.at_once = rows, width, AT_ONCE
        self._most_rows = rows
        self.stride = STRIDE if self.device.type == "cuda" else 1
        self.pool = self._empty_pool()
        self._free: dict[int, list[int]] = {}  # first places of runs that were given back, by size
        self._top = STEP  # places from here on were never given; those before the first run are waste paper
        self._held = 0  # runs that are not given back
        self._steps: dict[tuple[int, int, int, int], _Step] = {}
        self._graphs: Any = None  # the memory that graphs share
        self.tokens = 0  # that went through the model
        if compiled:
            compile_layers(self.module)

    # ---- places

    def take(self, length: int) -> tuple[int, int]:
        """A run of at least so many places: its first, and its size."""
        size = STEP << max(0, (length - 1) // STEP).bit_length()
        self._held += 1
        if self._free.get(size):
            return self._free[size].pop(), size
        first = self._top
        if first + size > self.pool.size:
            self._forget()  # steps hold the pool that was
            try:
                self.pool.grow(max(first + size, self.pool.size + self.pool.size // 2))
            except RuntimeError:
                self._held -= 1
                raise
        self._top += size
        return first, size

    def give(self, first: int, size: int) -> None:
        """Gives a run back. With the last one all is as at the start, and a pool that has grown large is given
        up."""
        self._free.setdefault(size, []).append(first)
        self._held -= 1
        if not self._held:
            self._free.clear()
            self._top = STEP
            if self.pool.size > LARGE:
                self._forget()
                self.pool = Pool(LARGE)

    def copy(self, source: Sequence[int], target: Sequence[int], length: Sequence[int]) -> None:
        """The first so many places of runs to other runs."""
        each = [np.arange(n) for n in length]
        pairs = [
            np.concatenate([np.zeros(0, np.int64), *(a + e for a, e in zip(at, each, strict=True))])
            for at in (source, target)
        ]
        if len(pairs[0]):
            self.pool.copy(*send(self.device, *pairs))

    # ---- reading

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def read(self, rows: Sequence[Row], columns: Sequence[int] | None = None) -> Tensor:
        """The logits of what may follow each row's tokens, [rows, vocabulary] or of some `columns` of it; their
        keys and values go to their places."""
        only = None if columns is None else send(self.device, np.array(columns, np.int64))[0]
        if self.way == "flash":
            return torch.cat([self._read_packed(some, only) for some in _cut(rows, self.at_once)])
        logits: list[Any] = [None] * len(rows)
        for width in (1, self.width):
            numbers = [i for i, row in enumerate(rows) if (len(row.tokens) == 1) == (width == 1)]
            todo = {i: _blocks(rows[i], width) for i in numbers}
            while todo:
                for some in (list(todo)[i : i + self.rows] for i in range(0, len(todo), self.rows)):
                    blocks = [todo[i].pop(0) for i in some]
                    part = self._read_block(blocks, width, only)
                    for j, i in enumerate(some):
                        if not todo[i]:
                            logits[i] = part[j]
                todo = {i: left for i, left in todo.items() if left}
        return torch.stack(logits)

    def _forward(
        self,
        plan: Dense | Flash,
        token: Tensor,
        place: Tensor,
        policy: Tensor,
        last: Tensor,
        columns: Tensor | None = None,
    ) -> Tensor:
        """Logits of the tokens numbered `last`, in float32; of some columns in float64, each a sum of its own, so
        that others beside it change nothing."""
        self.chosen.choose(policy, self.dtype)
        cast = torch.autocast(self.device.type, enabled=False) if self.generation.mixed else nullcontext()
        with along(plan), cast:
            out = self.module.get_decoder()(input_ids=token[None], position_ids=place[None], use_cache=False)
            hidden = out.last_hidden_state[0].index_select(0, last)
            weight = self.module.get_output_embeddings().weight
            if columns is None:
                return head_logits(hidden, weight)
            wide = hidden.double()
            return torch.stack([(wide * w).sum(-1) for w in weight.index_select(0, columns).double()], -1)

    def _read_block(self, blocks: Sequence[Row], width: int, columns: Tensor | None) -> Tensor:
        """One forward of `rows` rows of `width` tokens, which lie where they lie in their context modulo the width;
        the rest is waste paper."""
        token = np.zeros((self.rows, width), np.int64)
        place, at = np.zeros_like(token), np.zeros_like(token)
        state, last = np.zeros((5, self.rows), np.int64), np.arange(self.rows) * width
        policy = np.full(self.rows, -1)
        for i, row in enumerate(blocks):
            n = len(row.tokens)
            span = slice(row.length % width, row.length % width + n)
            token[i, span], place[i, span] = row.tokens, row.length + np.arange(n)
            at[i, span] = row.new + row.done + np.arange(n)
            last[i] += row.length % width + n - 1
            state[:, i], policy[i] = (*row.trunk, *row.own, row.new), row.policy
            self.tokens += n
        keys = -(-(int(place.max()) + 1) // STEP) * STEP
        sent = send(self.device, token, place, at, state, last, policy)
        token_, place_, at_, state_, last_, policy_ = sent
        plan = self._dense(at_.flatten(), state_, place_, keys)
        policies = policy_.repeat_interleave(width)
        logits = self._forward(plan, token_.flatten(), place_.flatten(), policies, last_, columns)
        return logits[: len(blocks)]

    def _dense(self, at: Tensor, state: Tensor, place: Tensor, keys: int) -> Dense:
        """Each token sees its context up to its place."""
        trunk, trunk_length, own, own_length, new = state
        index = places(trunk, trunk_length, own, own_length, new, keys)
        number = torch.arange(keys, device=self.device)
        index = torch.where(number <= place.amax(1, keepdim=True), index, 0)
        mask = torch.where(number <= place[:, :, None], 0.0, -torch.inf).to(self.dtype)[:, None]
        return Dense(self.pool, at, index, mask)

    def _read_packed(self, rows: Sequence[Row], columns: Tensor | None) -> Tensor:
        """One forward of all tokens of some rows, one after another; those that share a trunk stand together."""
        order = sorted(range(len(rows)), key=lambda i: (*rows[i].trunk, i))
        some = [rows[i] for i in order]
        size = np.array([len(row.tokens) for row in some])
        of = np.append(0, np.cumsum(size))
        token = np.fromiter(chain.from_iterable(row.tokens for row in some), np.int64, of[-1])
        within = np.arange(of[-1]) - np.repeat(of[:-1], size)
        place = np.repeat([row.length for row in some], size) + within
        at = np.repeat([row.new for row in some], size) + within
        policy = np.repeat([row.policy for row in some], size)
        back = np.argsort(order)
        self.tokens += len(token)
        runs = [Runs(send(self.device, of.astype(np.int32))[0], None, None, int(size.max()), int(size.max()))]
        for group in _groups([row.own for row in some], of), _groups([row.trunk for row in some], of):
            if group[2].any():
                runs.append(self._runs(*group))
        token_, place_, at_, policy_, last_ = send(self.device, token, place, at, policy, of[1:][back] - 1)
        return self._forward(Flash(self.pool, at_, runs), token_, place_, policy_, last_, columns)

    def _runs(self, of: N64, start: N64, used: N64) -> Runs:
        sent = [send(self.device, x.astype(np.int32))[0] for x in (of, start, used)]
        return Runs(sent[0], sent[1], sent[2], int(np.diff(of).max()), int(used.max()))

    # ---- decoding

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def decode(self, rows: Sequence[Row], u: F) -> tuple[N64, F]:
        """From each row, whose one token is read first and goes behind its own, as many tokens as u [steps, rows]
        has numbers for, and their log-probabilities [steps, rows]."""
        steps, count = u.shape
        order = np.array(sorted(range(count), key=lambda i: (*rows[i].trunk, i)))
        some = [rows[i] for i in order]
        size = self.rows if self.way == "dense" else min(max(8, _power(count)), max(self.rows, count))
        longest = max(row.length for row in some) + steps
        many = STEP if self.device.type == "cpu" else 8 * STEP
        step = self._step(size, -(-longest // many) * many, *_shared([row.trunk for row in some], size))
        step.put(some, u[:, order])
        for _ in range(steps):
            step.run()
        self.tokens += steps * count
        token, logp = step.out_token[:steps, :count].cpu().numpy(), step.out_logp[:steps, :count].cpu().numpy()
        back = np.argsort(order)
        return token[:, back], logp[:, back].astype(np.float64)

    def _step(self, size: int, keys: int, trunks: int, widest: int) -> _Step:
        """The step for batches of a size; the flash way does not mind how many keys there are, but how many trunks,
        and how many rows share one."""
        key = (size, 0, trunks, widest) if self.way == "flash" else (size, keys, 0, 0)
        if key not in self._steps:
            if self.way == "dense" and self.device.type == "cpu":
                self._steps.clear()  # tensors only
            self._steps[key] = _Step(self, size, keys, *key[2:])
        return self._steps[key]

    def renew(self) -> None:
        """The weights as they are now."""
        self.generation.renew()

    def halve(self) -> bool:
        """Half as many rows and tokens at once from now on; False if there is nothing to halve."""
        if self.rows == 1 and self.at_once <= STEP:
            return False
        self.rows, self.at_once = max(1, self.rows // 2), max(STEP, self.at_once // 2)
        self._forget()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return True

    def recover(self) -> None:
        """As many rows and tokens at once as at the start; a pool that nobody holds places of is given up."""
        self.rows, self.at_once = self._most_rows, AT_ONCE
        self._forget()
        if not self._held:
            self.pool = self._empty_pool()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _empty_pool(self) -> Pool:
        return Pool(1 << 10 if self.device.type == "cpu" else 1 << 16)

    def _forget(self) -> None:
        """Steps that were made ready, and with the last graph the memory that graphs share."""
        self._steps.clear()
        self._graphs = None


class _Step:
    """One step of decoding for a batch of a size: tensors that stay where they are, and on a GPU the graph of what
    is done with them."""

    def __init__(self, runner: ModelRunner, size: int, keys: int, trunks: int, widest: int) -> None:
        self.runner, self.size, self.keys, self.trunks, self.widest = runner, size, keys, trunks, widest
        # how often a row is asked: on its own keys, and on each piece of its trunk
        self.times = 1 + PIECES if trunks else 1
        where = {"device": runner.device}
        # of each row: token, trunk, its length, own, its length, policy
        self.state = torch.zeros(6, size, dtype=torch.int64, **where)
        # of each piece of each trunk: offset of its rows, start, length
        self.runs = torch.zeros(3, PIECES * trunks + 1, dtype=torch.int32, **where)
        self.each = torch.arange(size + 1, dtype=torch.int32, **where)
        self.u = torch.zeros(runner.stride, size, dtype=torch.float64, **where)
        self.number = torch.zeros(1, dtype=torch.int64, **where)
        self.out_token = torch.zeros(runner.stride, size, dtype=torch.int64, **where)
        self.out_logp = torch.zeros(runner.stride, size, dtype=torch.float64, **where)
        self.graph: Any = None
        if runner.device.type == "cuda":
            self._capture()

    def put(self, rows: Sequence[Row], u: F) -> None:
        """What is decoded from; rows that are not there write on waste paper."""
        state = np.zeros((6, self.size), np.int64)
        state[5] = -1
        given = [(*r.tokens, *r.trunk, *r.own, r.policy) for r in rows]
        state[:, : len(rows)] = np.array(given, np.int64).reshape(-1, 6).T
        dice = np.zeros((len(self.u), self.size))
        dice[: len(u), : len(rows)] = u
        for own, new in ((self.state, state), (self.u, dice), (self.runs, self._pieces(rows))):
            own.copy_(send(own.device, new)[0], non_blocking=True)
        self.number.zero_()

    def _pieces(self, rows: Sequence[Row]) -> NDArray[np.int32]:
        """Trunks cut into pieces of about one length, all first pieces first. A piece is a sequence of the trunk's
        rows; these come behind the rows on their own keys."""
        runs = np.zeros((3, PIECES, self.trunks), np.int32)
        if self.trunks:
            of, start, used = _groups([row.trunk for row in rows], np.arange(len(rows) + 1))
            number, each = np.arange(PIECES)[:, None], -(-used // PIECES)
            runs[0] = self.size  # behind the last trunk there are none but the rows that are not there
            runs[0, :, : len(of)] = of
            runs[0] += self.size * (1 + number)
            runs[1, :, : len(used)] = start[:-1] + each * number
            runs[2, :, : len(used)] = np.clip(used - each * number, 0, each)
        end = np.array([[self.size * self.times], [0], [0]], np.int32)
        return np.concatenate([runs.reshape(3, -1), end], 1)

    def run(self) -> None:
        self._work() if self.graph is None else self.graph.replay()

    def _work(self) -> None:
        """Reads a token of each row, draws the next."""
        runner = self.runner
        token, trunk, trunk_length, own, own_length, policy = self.state
        at, place = own + own_length, trunk_length + own_length
        plan: Dense | Flash
        if runner.way == "flash":
            own_runs = (self.each[:-1], own, own_length + 1)
            of, start, used = (torch.cat(x).to(torch.int32) for x in zip(own_runs, self.runs, strict=True))
            parts = [Runs(of, start, used[:-1], max(1, self.widest), LONGEST, self.times)]
            plan = Flash(runner.pool, at, parts)
        else:
            plan = runner._dense(
                at, torch.stack([trunk, trunk_length, own, own_length, at]), place[:, None], self.keys
            )
        logits = runner._forward(plan, token, place, policy, self.each[:-1].long())
        new, logp = drawn(logits, self.u.index_select(0, self.number)[0])
        self.out_token.index_copy_(0, self.number, new[None])
        self.out_logp.index_copy_(0, self.number, logp.double()[None])
        token.copy_(new)
        own_length.add_(1)
        self.number.add_(1)

    def _capture(self) -> None:
        """Run once or twice for what is made at first use, then taken down as a graph."""
        runner = self.runner
        self.put([], np.zeros((1, 0)))
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._work()
        torch.cuda.current_stream().wait_stream(stream)
        self.put([], np.zeros((1, 0)))
        torch.cuda.synchronize()
        if runner._graphs is None:
            runner._graphs = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=runner._graphs):
            self._work()
        self.graph = graph


def _blocks(row: Row, width: int) -> list[Row]:
    """A row cut where its places are multiples of the width: however it came to be what it is, a token is in the
    same block.

    >>> [(r.tokens, r.length) for r in _blocks(Row((1, 2, 3, 4), (0, 0), (64, 3), 67), 4)]
    [((1,), 3), ((2, 3, 4), 4)]
    """
    blocks, done = [], 0
    while done < len(row.tokens):
        n = min(width - (row.length + done) % width, len(row.tokens) - done)
        blocks.append(row._replace(tokens=row.tokens[done : done + n], done=row.done + done))
        done += n
    return blocks


def _cut(rows: Sequence[Row], at_once: int) -> list[list[Row]]:
    """Rows in their order, so many tokens together; a row alone may have more."""
    parts: list[list[Row]] = [[]]
    count = 0
    for row in rows:
        if parts[-1] and count + len(row.tokens) > at_once:
            parts.append([])
            count = 0
        parts[-1].append(row)
        count += len(row.tokens)
    return parts


def _shared(trunks: Sequence[tuple[int, int]], size: int) -> tuple[int, int]:
    """Of rows in the order of their trunks: for how many trunks a step of a size is made, and for how many rows of
    one (a kernel has work for all of these); powers of two. Rows without a trunk, and those that are not there,
    count as if they shared one. 0 if none has any.

    >>> _shared([(9, 2)] * 40 + [(5, 1)], 64), _shared([(0, 0)], 8)
    ((8, 64), (0, 0))
    """
    if not any(length for _, length in trunks):
        return 0, 0
    many = Counter([*trunks, *[(-1, 0)] * (size - len(trunks))])
    return max(8, _power(len(many) + 1)), max(32, _power(max(many.values())))


def _power(n: int) -> int:
    """The least power of two that is not less."""
    return 1 << (n - 1).bit_length()


def _groups(runs: Sequence[tuple[int, int]], of: N64) -> tuple[N64, N64, N64]:
    """Neighbours on the same run as one sequence: offsets of its queries [sequences + 1], where the run begins
    [sequences + 1] and its length.

    >>> [x.tolist() for x in _groups([(9, 2), (9, 2), (5, 1)], np.array([0, 3, 4, 6]))]
    [[0, 4, 6], [9, 5, 0], [2, 1]]
    """
    run = np.array(runs, np.int64).reshape(-1, 2)
    new = np.append(True, (run[1:] != run[:-1]).any(axis=1))[: len(run)]
    return np.append(of[:-1][new], of[-1]), np.append(run[new, 0], 0), run[new, 1]
