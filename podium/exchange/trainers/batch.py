"""Advantages for other trainers: rows as they have them in, one advantage for each row or token out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from podium.credit.credit import apply, read_credit
from podium.exchange.trainers.fields import FIELDS
from podium.exchange.trainers.rows import (
    BadBatch,
    Batch,
    check_mask,
    columns_of,
    flat_mask,
    lengths_of,
    listed,
    trace_of_rows,
)
from podium.expression import Call, Node, Scaled, Sum, Then, calls, spell
from podium.graph import units
from podium.methods.choose import lacking
from podium.methods.method import Method, named, scored
from podium.registry import facts, kind_of
from podium.rewards.ledger import Now, read_reward, score
from podium.trace.columns import F, Trace

__all__ = ["advantages"]

N64 = NDArray[np.int64]
FREE = {"outcome", "zscore", "center", "leave_one_out", "best_only", "to"}  # scores and steps that count no tokens
BLOCK = 1 << 17  # numbers that stay in a cache


def advantages(
    batch: Batch,
    method: Method | str = "dr_mas",
    *,
    per: Literal["row", "token"] | None = None,
    fields: Mapping[str, str] | str | None = None,
    unpaid: float = np.nan,
    rollouts: int | None = None,
    now: Now = Now(),  # noqa: B008 (immutable)
) -> Any:
    """The advantage of every row or token by a method: what it pays the row's unit, broadcast, in the order of
    rows.

    `batch` is a dict of columns, a list of dicts, a data frame, a Hugging Face data set or verl's DataProto, of
    lists, arrays or tensors. Each row has a `task` (rollouts of one task are compared) and the `reward` of its
    rollout, and may have:

        rollout        which rollout it belongs to. Unless given, each row is one
        agent, role    who generated it; one agent called "agent" unless given
        turn           its place in the rollout; rows with one number came at once. Unless given, in order
        tokens, mask   its token ids, and of each token 1 if the policy sampled it, else 0; or only `length`
        prompt         how many tokens at its beginning are the prompt, which the mask may not train
        parent         the rollout that its rollout branched from, whose earlier turns it shares
        branch         how many rows of the parent come before; unless given, those of earlier turns
        valid          whether it could be used: False is an invalid action; not stated unless given
        run.NAME       a number is a reward of the rollout of that name; else a column of the trace (run.seed)
        others         a column of the trace (type, tool, stage, model, ...); else a number is a reward or fitted
                       value of that name (step, value) and anything else a label (anchor)

    `fields` says what the batch calls them ({"task": "uid"}), or names a trainer
    (`podium.exchange.trainers.fields`). `per` is "token" if rows have tokens, else "row"; tokens come as wide as
    the mask or the longest row. What is paid nothing, and what is no token of the policy's, gets `unpaid`.
    `rollouts` is how many every task must have. Where a column is a torch tensor, so is the answer.

    >>> rows = {"task": ["q", "q"], "rollout": [0, 1], "reward": [1.0, 0.0]}
    >>> advantages(rows, "rema").round(3).tolist()
    [0.707, -0.707]
    """
    row = named(method) if isinstance(method, str) else method
    if per not in (None, "row", "token"):
        raise BadBatch(f"per must be row or token, got {per!r}")
    if isinstance(fields, str) and fields not in FIELDS:
        raise BadBatch(f"fields must be a dict or one of {', '.join(FIELDS)}, got {fields!r}")
    if fields is None and hasattr(batch, "non_tensor_batch"):
        fields = "verl"
    source = columns_of(batch, FIELDS[fields].of(batch) if isinstance(fields, str) else fields)
    table = {name: column for name, column in source.items() if column is not None}
    has_tokens = bool({"length", "mask", "tokens"} & set(table))
    if row.counts == "tokens" and not has_tokens:
        raise BadBatch(f"{row.name} counts tokens: expected the field length or mask, got {', '.join(table)}")
    if rollouts is not None:
        _check_groups(table, rollouts)
    values, by_token = _paid(table, row, now)
    per = per or ("token" if has_tokens else "row")
    if per == "row":
        return _as_it_came(_one_each(values, row) if by_token else values, batch, unpaid)
    return _as_it_came(_padded(values, table) if by_token else values, batch, unpaid, table)


def _paid(table: dict[str, Any], row: Method, now: Now) -> tuple[Any, bool]:
    """The advantage of each row; or, where tokens of a row may differ, a list of those of its tokens."""
    head = None if {"edges", "type"} & set(table) else before_tokens(row)
    tokens = (head is None and row.pays == "token") or bool({"edges", "type"} & set(table))
    trace, place = trace_of_rows(table, tokens, head is None or _counts_tokens(row, head))
    short = lacking(trace)
    if head is not None:
        short.pop("tokens", None)
    if why := [f"{need} ({short[need]})" for need in row.needs if need in short]:
        raise BadBatch(f"{row.name} needs {' and '.join(why)} in the batch")
    credit = apply(scored(trace, row, now), row.credit if head is None else head)
    if len(place) and np.isnan(credit.value).all():
        raise BadBatch(f"{row.name} pays no row of this batch{_why(trace, row, table, now)}")
    if credit.unit != "token":
        values: F = np.append(credit.value, np.nan)[units.place(trace, credit.unit)[place]]
        return values, False
    first = np.searchsorted(trace.owner_k, place)
    end = np.searchsorted(trace.owner_k, place, "right")
    return [credit.value[a:b] for a, b in zip(first.tolist(), end.tolist(), strict=True)], True


def before_tokens(method: Method) -> Node | None:
    """A method's expression up to where credit goes down to tokens, if nothing after it changes the credit; the
    whole of it where it pays no tokens; None if tokens must be looked at."""
    tree = read_credit(method.credit) if method.credit else None
    if tree is None or method.pays != "token":
        return tree
    if not isinstance(tree, Then):
        return None
    down = [i for i, part in enumerate(tree.parts) if isinstance(part, Call) and _is_to_token(part)]
    if not down or any(not _keeps(part) for part in tree.parts[down[-1] + 1 :]):
        return None
    parts = tree.parts[: down[-1]]
    return parts[0] if len(parts) == 1 else Then(parts) if parts else None


def _counts_tokens(method: Method, head: Node) -> bool:
    """Whether a method may ask how many tokens were written; of what is not known here, yes."""
    names = [call.name for call in calls(head)] + [call.name for call in calls(read_reward(method.reward))]
    return not set(names) <= FREE or any(call.options and call.name == "to" for call in calls(head))


def _is_to_token(call: Call) -> bool:
    return call.name == "to" and call.args == ("token",) and not call.options


def _keeps(node: Node) -> bool:
    return isinstance(node, Call) and node.name in ("sampled", "weigh")


def _check_groups(table: Mapping[str, Any], rollouts: int) -> None:
    runs: dict[Any, set[Any]] = {}
    for task, run in zip(listed(table["task"]), listed(table["rollout"]), strict=True):
        runs.setdefault(task, set()).add(run)
    for i, task in enumerate(listed(table["task"])):
        if len(runs[task]) != rollouts:
            raise BadBatch(f"row {i}, task: {task!r} has {len(runs[task])} rollouts, expected {rollouts}")


def _why(trace: Trace, method: Method, table: Mapping[str, Any], now: Now) -> str:
    """Which roles no row has, or which scores of the reward are absent in all rows, and what they need."""
    reward = read_reward(method.reward)
    roles = {word for tree in (reward, read_credit(method.credit)) for word in _roles(tree)}
    there = {word for word in trace.role_e.strings() if word is not None}
    if roles and not roles & there:
        has = f"has {', '.join(sorted(there))}" if there else "is not stated" if "role" not in table else "is empty"
        return f"; it pays the roles {', '.join(sorted(roles))}, and the field role {has}"
    absent = [
        call
        for call in calls(reward)
        if kind_of(call.name, "score", "shape") == "score" and np.isnan(score(trace, call, now=now)).all()
    ]
    return "".join(f"; `{spell(c)}` needs {facts('score', c.name).get('needs', 'more')}" for c in absent)


def _roles(node: Node) -> list[str]:
    """The roles that an expression names: in only("role", ...) and for_role(..., role)."""
    words: list[str] = []
    match node:
        case Call(name="only", args=("role", who)):
            words += [who] if isinstance(who, str) else [w for w in who if isinstance(w, str)]
        case Call(name="for_role", args=(_, str(who))):
            words.append(who)
        case Scaled(part=part):
            words += _roles(part)
        case Sum(parts=parts) | Then(parts=parts):
            words += [word for part in parts for word in _roles(part)]
    return words


def _one_each(values: list[F], method: Method) -> F:
    """One advantage a row, where all its sampled tokens have the same."""
    column = np.full(len(values), np.nan)
    for i, tokens in enumerate(values):
        known = tokens[~np.isnan(tokens)]
        if len(known) and known.min() < known.max():
            raise BadBatch(f"{method.name} pays tokens of row {i} differently: ask for per='token'")
        if len(known):
            column[i] = known[0]
    return column


def _padded(values: list[F], table: Mapping[str, Any]) -> F:
    lengths = lengths_of(table)
    width = int(lengths.max(initial=0))
    tokens = np.full((len(values), width), np.nan)
    for i, one in enumerate(values):
        tokens[i, : len(one)] = one
    return tokens


def _as_it_came(values: F, batch: Batch, unpaid: float, table: Mapping[str, Any] | None = None) -> Any:
    """As an array or a tensor; with the table, an advantage of a row is broadcast to its sampled tokens."""
    example = _tensor_of(batch)
    if table is None or values.ndim == 2:
        column = np.where(np.isnan(values), unpaid, values) if unpaid == unpaid else values
        return column if example is None else _tensor(column, example)
    mask = table.get("mask")
    if not (isinstance(mask, np.ndarray) and mask.ndim == 2):
        mask = _mask(table)
    column = np.where(np.isnan(values), unpaid, values)
    return _broadcast(column, mask, unpaid, example)


def _broadcast(column: F, mask: NDArray[Any], unpaid: float, example: Any) -> Any:
    """The advantage of each row at its sampled tokens; block by block, so that the mask is read once."""
    n, width = mask.shape
    tokens = np.empty(
        (n, width), np.float64 if example is None else _tensor(column[:0], example).cpu().numpy().dtype
    )
    column = column.astype(tokens.dtype)
    step = max(BLOCK // max(width, 1), 1)
    for i in range(0, n, step):
        block, part = mask[i : i + step], tokens[i : i + step]
        check_mask(block, i)
        if unpaid == 0.0:
            np.multiply(column[i : i + step, None], block, out=part)
        else:
            part[:] = np.where(block, column[i : i + step, None], unpaid)
    return tokens if example is None else sys.modules["torch"].from_numpy(tokens).to(example.device)


def _mask(table: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Which tokens of each row the policy sampled, as wide as the longest row."""
    lengths = lengths_of(table)
    inside = np.arange(int(lengths.max(initial=0))) < lengths[:, None]
    inside[inside] = flat_mask(table, lengths) == 1
    return inside


def _tensor_of(batch: Batch) -> Any:
    """A tensor of the batch, if there is one: the answer is on its device."""
    if "torch" not in sys.modules:
        return None
    tensors: Any = getattr(batch, "batch", None) if hasattr(batch, "non_tensor_batch") else batch
    columns = list(tensors.values()) if hasattr(tensors, "values") and hasattr(tensors, "keys") else []
    return next((column for column in columns if hasattr(column, "detach")), None)


def _tensor(values: NDArray[Any], example: Any) -> Any:
    torch = sys.modules["torch"]
    return torch.as_tensor(values, dtype=torch.get_default_dtype(), device=example.device)
