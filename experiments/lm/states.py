"""Prompts that each say all that their agent knows: a state of a world as a model meets it, weighed once, whoever
comes to it.

Plays of several worlds go on side by side: at each turn all that is new in any of them is weighed in one forward.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.lm.critic import Critic
from podium.engine.models import BadModel, OutOfMemory, PolicyModel, PolicyTeam, damaged, out_of_memory
from podium.engine.options import Options
from podium.envs import text
from podium.envs.world import View, World
from podium.learn.lm.settings import Settings
from podium.learn.lm.text_world import rounded
from podium.learn.policy import Seen, Words, entries_of, joined, seen_by, taken
from podium.trace.columns import F

__all__ = ["Asked", "Book", "Fan", "Place", "Play", "Prompt", "log_odds", "lots", "side_by_side", "weigh"]

N64 = NDArray[np.int64]
T = TypeVar("T")
Play = Generator[View, N64, T]  # episodes that show views and are told the states of their rows
PASS = 4_000  # a forward costs about as much as so many tokens more in another
GLIMPSE = 8  # times as many tokens are weighed at once as are learned: nothing is kept for a gradient


class Fan:
    """Options as places in rows of tokens: where in which row they part, and what each option takes at each of
    those places."""

    def __init__(self, options: Options) -> None:
        self.options = options
        afters = [after for after, _ in options.choices]
        longer = [a for a in afters if not any(b != a and b[: len(a)] == a for b in afters)]
        self.chains = longer or [()]  # what follows a prompt, one row each
        self.tokens = options.ids
        self.row = np.array(
            [next(i for i, c in enumerate(self.chains) if c[: len(a)] == a) for a in afters], np.int64
        )
        self.behind = np.array([len(a) for a in afters], np.int64)
        self.among = np.zeros((len(afters), len(self.tokens)), np.bool_)
        for i, (_, some) in enumerate(options.choices):
            self.among[i, [self.tokens.index(token) for token in some]] = True
        depth = max(1, max((sum(p[: len(a)] == a for a in afters) for p in options.paths), default=1))
        many = len(options.paths)
        self.at, self.take, self.counts = (np.zeros((many, depth), t) for t in (np.int64, np.int64, np.float32))
        self.take[:] = int(self.among[0].argmax()) if len(afters) else 0
        for k, path in enumerate(options.paths):
            for j, i in enumerate(i for i, a in enumerate(afters) if path[: len(a)] == a):
                self.at[k, j], self.take[k, j] = i, self.tokens.index(path[len(afters[i])])
                self.counts[k, j] = 1.0


Asked = tuple[tuple[int, ...], Fan]  # a prompt, and what may be answered


def log_odds(policy: PolicyModel, asked: Sequence[Asked]) -> list[tuple[N64, Any]]:
    """log π of all options, in one forward: for those asked who have their options in common, which they are and
    [asked, options]. Differentiable.

    The log-probability of an option is the sum over its tokens where others could come, each among those.
    """
    module = policy.activate()
    decoder, head = module.get_decoder(), module.get_output_embeddings().weight
    rows = [(*prompt, *chain) for prompt, fan in asked for chain in fan.chains]
    first = np.cumsum([0, *(len(fan.chains) for _, fan in asked)])
    longest = max(map(len, rows))
    if longest > policy.model.longest:
        raise BadModel(f"a prompt of {longest} tokens; {policy.model.name} takes {policy.model.longest}")
    ids = np.zeros((len(rows), longest), np.int64)  # what stands behind is seen by nobody
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    hidden = decoder(input_ids=torch.from_numpy(ids).to(head.device), use_cache=False).last_hidden_state
    kinds: dict[int, list[int]] = {}
    for i, (_, fan) in enumerate(asked):
        kinds.setdefault(id(fan), []).append(i)
    parts = []
    for some in kinds.values():
        fan, which = asked[some[0]][1], np.array(some)
        last = np.array([len(asked[i][0]) - 1 for i in some])[:, None] + fan.behind
        parts.append((which, _parted(hidden, head, fan, first[which][:, None] + fan.row, last)))
    return parts


def _parted(hidden: Any, head: Any, fan: Fan, row: N64, last: N64) -> Any:
    """log π [asked, options] from the hidden states at the places where options part."""
    if not len(fan.behind):  # nothing to choose
        return torch.zeros(len(row), len(fan.options.paths), device=head.device)
    given = row, last, fan.among, fan.at, fan.take, fan.counts
    row_t, last_t, among, at, take, counts = (torch.from_numpy(x).to(head.device) for x in given)
    with torch.autocast(head.device.type, enabled=False):
        ends = hidden[row_t, last_t].float()  # [asked, places, width]
        logits = ends @ head[torch.tensor(fan.tokens, device=head.device)].float().t()
        logp = logits.masked_fill(~among, -torch.inf).log_softmax(-1)
        return (logp[:, at, take] * counts).sum(-1)


class Prompt(NamedTuple):
    """A state as a model meets it."""

    policy: str
    ids: tuple[int, ...]
    options: tuple[int, ...]  # of the world, in order


class Book:
    """All states that episodes of a world came to, and the log-probabilities of options there as the weights are
    now.

    With a critic, `hint` is what it says that options earn above each other.
    """

    def __init__(
        self,
        world: World,
        team: PolicyTeam,
        settings: Settings,
        fans: dict[Any, Fan] | None = None,
        critic: Critic | None = None,
    ) -> None:
        self.world, self.team, self.settings, self.critic = world, team, settings, critic
        self.prompts: list[Prompt] = []
        self.logp: F = np.full((1 << 10, len(world.options)), -np.inf)
        self.hint: F = np.zeros((1 << 10, len(world.options)))
        self.visits: F = np.zeros(1 << 10)
        self.unweighed: list[Place] = []
        self._codes = Words(world.options).codes(world.options)
        self._seen: list[tuple[int, Seen, N64]] = []  # states from this number on, and the option of each entry
        self.tokens = 0  # that were weighed
        self._known: dict[bytes, int] = {}
        self._fans = {} if fans is None else fans

    def note(self, view: View) -> N64:
        """The state of each row. Those that are new are not weighed yet: `unweighed`."""
        shown = rounded(view, self.settings.digits)
        state, new = np.zeros(len(view), np.int64), []
        for i, key in enumerate(_keys(shown)):
            number = self._known.get(key)
            if number is None:
                number = self._known[key] = len(self._known)
                new.append(i)
            state[i] = number
        if new:
            first = len(self._known) - len(new)
            while len(self._known) > len(self.logp):
                self.logp = np.concatenate([self.logp, np.full_like(self.logp, -np.inf)])
                self.hint, self.visits = (np.concatenate([x, np.zeros_like(x)]) for x in (self.hint, self.visits))
            self._add(fresh := shown.take(np.array(new)))
            self._seen.append((first, *seen_by(fresh, self._codes)))
            self._describe(first, *self._seen[-1][1:])
        np.add.at(self.visits, state, 1.0)
        return state

    def _describe(self, first: int, seen: Seen, option: N64) -> None:
        """What there is to say of new states."""
        if self.critic is not None:
            self.hint[first + np.repeat(np.arange(len(seen)), np.diff(seen.start)), option] = self.critic.says(seen)

    def hear(self, critic: Critic) -> None:
        """What a critic says of all states, from now on."""
        self.critic = critic
        for first, states, option in self._seen:
            Book._describe(self, first, states, option)

    def __len__(self) -> int:
        return len(self._known)

    def seen(self, states: N64) -> list[tuple[N64, Seen, N64]]:
        """The figures behind some states, by kind: which of them, what is seen there, and the option of each
        entry."""
        groups: dict[tuple[str, str], list[tuple[N64, Seen, N64]]] = {}
        for first, shown, option in self._seen:
            at = np.flatnonzero((states >= first) & (states < first + len(shown)))
            if len(at):
                rows = states[at] - first
                part = at, taken(shown, rows), option[entries_of(shown, rows)]
                groups.setdefault((shown.kind, shown.role), []).append(part)
        return [
            (
                np.concatenate([x[0] for x in some]),
                joined([x[1] for x in some]),
                np.concatenate([x[2] for x in some]),
            )
            for some in groups.values()
        ]

    def _add(self, view: View) -> None:
        policy = self.team.policies[self.team.of(view.agent)]
        frame, ids = policy.model.frame, policy.model.ids
        for allowed, prompt in zip(view.allowed, text.prompts(self.world, view), strict=True):
            context = (*frame.open, *ids(prompt), *frame.ask)
            self.unweighed.append((self, len(self.prompts)))
            self.prompts.append(Prompt(policy.name, context, tuple(np.flatnonzero(allowed).tolist())))

    def asked(self, state: int) -> Asked:
        """A state as a model is asked."""
        one = self.prompts[state]
        policy = self.team.policies[one.policy]
        key = id(policy.model), tuple(self.world.options[k] for k in one.options)
        if key not in self._fans:
            self._fans[key] = Fan(Options(policy.model.ids_of(key[1]), policy.model.end))
        return one.ids, self._fans[key]


Place = tuple[Book, int]  # a state of a book


def lots(places: Sequence[Place], most_tokens: int) -> Iterator[list[Place]]:
    """States that are weighed together, of one policy and of like length: no more tokens at once than that, padding
    counted."""
    policies: dict[str, list[tuple[int, int, Place]]] = {}
    for book, state in places:
        ids, fan = book.asked(state)
        size = len(ids) + max(map(len, fan.chains))
        policies.setdefault(book.prompts[state].policy, []).append((size, len(fan.chains), (book, state)))
    for some in policies.values():
        some.sort(key=lambda one: one[0])
        for start, stop in _cuts([(size, many) for size, many, _ in some], most_tokens):
            yield [place for _, _, place in some[start:stop]]


def _cuts(sizes: Sequence[tuple[int, int]], most_tokens: int) -> list[tuple[int, int]]:
    """Where (length, rows) in ascending order are cut so that forwards and the tokens of all of them, padding
    counted, cost least.

    >>> _cuts([(10, 1), (10, 1), (500, 1)], 4_000), _cuts([(10, 60), (500, 60)], 60_000), _cuts([(10, 2)] * 2, 30)
    ([(0, 3)], [(0, 1), (1, 2)], [(0, 1), (1, 2)])
    """
    ends = [i for i in range(1, len(sizes)) if sizes[i][0] != sizes[i - 1][0]] + [len(sizes)]
    rows = np.cumsum([0, *(many for _, many in sizes)])
    best, back = {0: 0.0}, dict[int, int]()
    for j in ends:
        for i in [0, *(e for e in ends if e < j)]:
            cost = best[i] + (rows[j] - rows[i]) * sizes[j - 1][0] + PASS
            if j not in best or cost < best[j]:
                best[j], back[j] = float(cost), i
    cuts, j = list[tuple[int, int]](), len(sizes)
    while j:
        cuts.append((back[j], j))
        j = back[j]
    return [part for start, stop in reversed(cuts) for part in _parts(sizes, start, stop, most_tokens)]


def _parts(sizes: Sequence[tuple[int, int]], start: int, stop: int, most_tokens: int) -> Iterator[tuple[int, int]]:
    """Some in a row as evenly as that fits into memory."""
    total = sum(many for _, many in sizes[start:stop]) * sizes[stop - 1][0]
    each = total / max(1, -(-total // most_tokens))
    first, tokens = start, 0
    for i in range(start, stop):
        more = sizes[i][1] * sizes[stop - 1][0]
        if i > first and tokens + more > min(most_tokens, each + more / 2):
            yield first, i
            first, tokens = i, 0
        tokens += more
    yield first, stop


def weigh(places: Sequence[Place], most_tokens: int) -> None:
    """Reads the odds of states off their models, into their books. What does not fit into memory is tried by
    halves. Raises OutOfMemory where one state does not fit."""
    for lot in lots(places, most_tokens):
        book, state = lot[0]
        policy = book.team.policies[book.prompts[state].policy]
        try:
            with torch.no_grad():
                weighed = [(i, x.double().cpu().numpy()) for i, x in log_odds(policy, [b.asked(s) for b, s in lot])]
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            weighed = None  # the halves come when the error is gone, and with it what its frames held
        if weighed is None:
            if len(lot) == 1:
                size = len(book.prompts[state].ids)
                raise OutOfMemory(
                    f"out of memory in reading one context of {size} tokens; a smaller model would need less"
                )
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            weigh(lot, max(most_tokens // 2, 1))
            continue
        for which, logp in weighed:
            if not np.isfinite(logp).all():
                raise damaged(policy.model.name)
            for i, odds in zip(which.tolist(), logp, strict=True):
                book, state = lot[i]
                book.logp[state, list(book.prompts[state].options)] = odds
                book.tokens += len(book.prompts[state].ids)


def side_by_side(books: Sequence[Book], plays: Sequence[Play[T]]) -> list[T]:
    """What plays come to, one a book: at each turn all that is new in any of them is weighed at once."""
    ended: dict[int, T] = {}
    views = {i: next(play) for i, play in enumerate(plays)}
    while views:
        states = {i: books[i].note(view) for i, view in views.items()}
        weigh([place for i in views for place in books[i].unweighed], GLIMPSE * books[0].settings.most_tokens)
        for i, state in states.items():
            books[i].unweighed.clear()
            try:
                views[i] = plays[i].send(state)
            except StopIteration as end:
                ended[i] = end.value
                del views[i]
    return [ended[i] for i in range(len(plays))]


def _keys(view: View) -> list[bytes]:
    """Of each row all that its prompt says."""
    values, owner = view.items()
    columns = [view.facts, view.allowed] + ([] if view.about is None else [view.about])
    head = np.concatenate([np.asarray(c, np.float64) for c in columns], axis=1)
    wide, (bounds, listed) = (
        head.shape[1] * 8,
        (np.ascontiguousarray(x, np.float64).tobytes() for x in (head, values)),
    )
    tag, item = f"{view.agent}/{view.kind}/".encode(), 8 * (values.shape[1] if values.ndim > 1 else 1)
    first = (np.searchsorted(owner, np.arange(len(view) + 1)) * item).tolist()
    return [tag + bounds[i * wide : (i + 1) * wide] + listed[first[i] : first[i + 1]] for i in range(len(view))]
