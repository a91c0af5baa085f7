"""What happens in a batch of episodes, collected step by step for all of them at once, as a trace in the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.trace.columns import COLUMNS, Names, Text, Trace
from podium.trace.vocabulary import Decision, EdgeType, EventType, decision, edge, event

__all__ = ["Log", "Spelled"]

_KIND = {c.name: c.kind for c in COLUMNS}


class Spelled(Sequence[str]):
    """Numbers as words, spelled when somebody asks.

    >>> list(Spelled("run-{}", np.array([3, 4])))
    ['run-3', 'run-4']
    """

    def __init__(self, form: str, numbers: NDArray[Any]) -> None:
        self._form, self._numbers = form, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, code: Any) -> Any:
        return self._form.format(self._numbers[code].item())


class Log:
    """Events of many episodes. `add` takes one event for each of some episodes and gives back their handles, which
    later events name as causes."""

    def __init__(self, n: int) -> None:
        self.n = n
        self._agents: dict[str, int] = {}
        self._words: dict[str, dict[str, int]] = {}
        self._events: list[tuple[NDArray[np.int64], dict[str, Any]]] = []
        self._edges: list[tuple[NDArray[np.int64], NDArray[np.int64], int]] = []
        self._options: list[tuple[NDArray[np.int64], ...]] = []  # handles, options of each, their labels
        self._menus: dict[tuple[str, ...], NDArray[np.int64]] = {}
        self._offers: list[tuple[Any, ...]] = []
        self.decided = np.full(n, -1)  # of each episode: the handle of its latest decision
        self._count = 0

    def add(
        self,
        rows: NDArray[np.int64],
        kind: EventType,
        agent: str | Sequence[str] | NDArray[Any],
        t: Any,
        after: Sequence[tuple[EdgeType, NDArray[np.int64]]] = (),
        **columns: Any,
    ) -> NDArray[np.int64]:
        """One event in each of the episodes `rows` (an episode may stand there several times).

        `agent` and `to` are names, one for all or one a row. `after` are (edge type, handles), a handle of -1 is no
        cause. Other columns are those of a trace without their suffix: end, tokens_in, cost, role, tool, trusted,
        stage, valid, ..., a value for all or one a row (strings also as a Text); absent is NaN, -1 or None. `value` is
        what was found, said or voted, and becomes a field of that name on the event.
        """
        handles = np.arange(self._count, self._count + len(rows))
        self._count += len(rows)
        data: dict[str, Any] = {"type": event(kind), "t": t, "agent": self._codes(agent)}
        for name, values in columns.items():
            if name in ("to", "from"):
                data[name] = self._codes(values)
            elif name == "value":
                data[name] = np.asarray(values, np.float64)
            elif _KIND[f"{name}_e"] == "text":
                data[name] = self._coded(name, values)
            else:
                data[name] = values
        self._events.append((np.asarray(rows, np.int64), data))
        for word, causes in after:
            there = np.asarray(causes) >= 0
            self._edges.append((np.asarray(causes)[there], handles[there], edge(word)))
        return handles

    def decide(
        self,
        rows: NDArray[np.int64],
        kind: Decision,
        agent: Any,
        t: Any,
        options: Sequence[str] | Sequence[Sequence[str]],
        chosen: Sequence[str] | NDArray[Any] | Text,
        logp: Any = np.nan,
        after: Sequence[tuple[EdgeType, NDArray[np.int64]]] = (),
        **columns: Any,
    ) -> NDArray[np.int64]:
        """A labelled decision: the options there were (one list for all, or one a row), the one chosen, its logp."""
        more = {"decision": decision(kind), "chosen": chosen, "logp": logp}
        handles = self.add(rows, "orchestrator_decision", agent, t, after, **more, **columns)
        self.decided[rows] = handles
        if len(options):
            self._options.append((handles.copy(), *self._listed(options, len(rows))))
        return handles

    def _listed(self, options: Sequence[str] | Sequence[Sequence[str]], n: int) -> tuple[NDArray[np.int64], ...]:
        """How many options each of n decisions has, and the codes of their labels, one decision after the other."""
        if isinstance(options[0], str):
            codes = self._labels(tuple(map(str, options)))
            return np.full(n, len(codes)), np.tile(codes, n)
        parts = [self._labels(tuple(some)) for some in options]
        return np.array([len(p) for p in parts]), np.concatenate(parts)

    def _labels(self, labels: tuple[str, ...]) -> NDArray[np.int64]:
        if labels not in self._menus:
            words = self._words.setdefault("label", {})
            self._menus[labels] = np.array([words.setdefault(label, len(words)) for label in labels], np.int64)
        return self._menus[labels]

    def offer(
        self, rows: NDArray[np.int64], number: NDArray[np.int64], logp: NDArray[Any], item: Any = None
    ) -> None:
        """What is known of the options of the latest decision of each of these episodes, one entry an option, in their order:
        its number in the world, its log-probability under the policy, the item that it is about."""
        self._offers.append((self.decided[rows], number, np.asarray(logp, np.float64), item))

    def _codes(self, names: Any) -> Any:
        if isinstance(names, str):
            return self._agents.setdefault(names, len(self._agents))
        return np.array([self._agents.setdefault(str(n), len(self._agents)) for n in names], np.int64)

    def _coded(self, name: str, values: Any) -> Any:
        words = self._words.setdefault(name, {})
        if values is None:
            return -1
        if isinstance(values, str):
            return words.setdefault(values, len(words))
        if isinstance(values, Text):
            return np.array([*(words.setdefault(w, len(words)) for w in values.words), -1], np.int64)[values.codes]
        if isinstance(values, np.ndarray) and values.dtype.kind == "U":
            found, place = np.unique(values, return_inverse=True)
            return np.array([words.setdefault(str(v), len(words)) for v in found], np.int64)[place]
        return np.array([-1 if v is None else words.setdefault(str(v), len(words)) for v in values], np.int64)

    def trace(self, **rollouts: Any) -> Trace:
        """Everything as a trace: a rollout an episode, causes first, times non-decreasing along rows.

        `rollouts` are its columns `_n`: trace_id_n, task_id_n, env_n, params_n, seed_n, reward_n, cost_n, ...
        """
        episode = np.concatenate([rows for rows, _ in self._events]) if self._events else np.zeros(0, np.int64)
        names = dict.fromkeys(name for _, data in self._events for name in data)
        flat = {name: self._flat(name) for name in names}
        order = np.lexsort((np.arange(len(episode)), flat["t"], episode)) if len(episode) else episode
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        src, dst, kind = (np.concatenate(p) if p else np.zeros(0, np.int64) for p in self._joined())
        by_effect = np.argsort(rank[dst], kind="stable")
        src, dst, kind = rank[src][by_effect], rank[dst][by_effect], kind[by_effect]
        if (src >= dst).any():
            raise AssertionError("a world logged an effect before its cause")
        rollout, sorted_ = episode[order], {name: values[order] for name, values in flat.items()}
        agents, name_a, rollout_a = self._cast(rollout, sorted_)
        first = np.searchsorted(rollout, np.arange(self.n))
        found = sorted_.pop("value", None)
        columns = {f"{k}_e": self._typed(k, v) for k, v in (sorted_ | agents).items()}
        if found is not None:
            columns["extra_e"] = {"value": _as_json(found)}
        return Trace.of(
            rollout_e=rollout,
            id_e=Names(Text.constant("e", len(order)), np.arange(len(order)) - first[rollout]),
            src_x=src,
            dst_x=dst,
            type_x=kind,
            name_a=name_a,
            rollout_a=rollout_a,
            **self._option_axis(rank),
            **columns,
            **rollouts,
        )

    def _option_axis(self, rank: NDArray[np.int64]) -> dict[str, Any]:
        """The options of decisions, by the row of their event."""
        if not self._options:
            return {}
        handles, counts, codes = (np.concatenate(part) for part in zip(*self._options, strict=True))
        event = np.repeat(rank[handles], counts)
        order = np.argsort(event, kind="stable")
        columns: dict[str, Any] = {
            "event_o": event[order],
            "label_o": Text(codes[order], tuple(self._words["label"])),
        }
        if self._offers:
            columns |= self._offered(columns["event_o"], rank)
        return columns

    def _offered(self, event_o: NDArray[np.int64], rank: NDArray[np.int64]) -> dict[str, Any]:
        """What was offered, at the options it belongs to: an event's entries are in the order of its options."""
        handle, number, logp, item = zip(*self._offers, strict=True)
        event = rank[np.concatenate(handle)]
        order = np.argsort(event, kind="stable")
        event = event[order]
        place = np.searchsorted(event_o, event) + np.arange(len(event)) - np.searchsorted(event, event)
        if not np.array_equal(event_o[np.minimum(place, len(event_o) - 1)], event):
            raise AssertionError("a world logged other options than it allowed")
        n = len(event_o)
        number_o, item_o, logp_o = np.full(n, -1), np.full(n, -1), np.full(n, np.nan)
        number_o[place] = np.concatenate(number)[order]
        logp_o[place] = np.concatenate(logp)[order]
        if any(part is not None for part in item):
            parts = [np.full(len(h), -1) if i is None else i for h, i in zip(handle, item, strict=True)]
            item_o[place] = np.concatenate(parts)[order]
        return {"number_o": number_o, "item_o": item_o, "logp_o": logp_o}

    def _flat(self, name: str) -> NDArray[Any]:
        absent: Any = np.nan if name in ("t", "value") or _KIND[f"{name}_e"] == "float" else -1
        return np.concatenate([np.broadcast_to(data.get(name, absent), len(rows)) for rows, data in self._events])

    def _joined(self) -> tuple[list[Any], list[Any], list[Any]]:
        return (
            [s for s, _, _ in self._edges],
            [d for _, d, _ in self._edges],
            [np.full(len(d), k) for _, d, k in self._edges],
        )

    def _typed(self, name: str, values: NDArray[Any]) -> Any:
        return Text(values, tuple(self._words[name])) if _KIND[f"{name}_e"] == "text" else values

    def _cast(self, rollout: Any, columns: dict[str, Any]) -> tuple[dict[str, Any], Text, NDArray[np.int64]]:
        """The agents of each episode: whoever is named in it, by code."""
        size = max(len(self._agents), 1)
        named = [c for c in ("agent", "from", "to") if c in columns]
        keys = {c: np.where(columns[c] >= 0, rollout * size + columns[c], -1) for c in named}
        if self.n * size <= 16 * len(rollout) + 1024:  # a table of everyone who could be named
            there = np.zeros(self.n * size + 1, np.bool_)
            for key in keys.values():
                there[key] = True
            there[-1] = False
            cast, place = np.flatnonzero(there), np.where(there, np.cumsum(there) - 1, -1)
            placed: dict[str, Any] = {c: place[key] for c, key in keys.items()}
        else:
            cast = np.unique(np.concatenate([np.zeros(0, np.int64), *(key[key >= 0] for key in keys.values())]))
            placed = {c: np.where(key >= 0, np.searchsorted(cast, key), -1) for c, key in keys.items()}
        return placed, Text(cast % size, tuple(self._agents)), np.asarray(cast // size, np.int64)


def _as_json(values: NDArray[np.float64]) -> Text:
    """Numbers as a column of JSON; none where there is NaN."""
    there = ~np.isnan(values)
    different, which = np.unique(values[there], return_inverse=True)
    codes = np.full(len(values), -1, np.int32)
    codes[there] = which
    return Text(codes, Spelled("{!r}", different))
