"""Mates who each see a little and pay for every word; a lead who hears what they say and answers.

What a mate says may depend on its own level alone. Silence is free and tells something too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement, islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.envs.draws import U, uniform
from podium.envs.log import Log
from podium.envs.world import LEAD, BadParameter, Params, Policy, State, View, World, param, register
from podium.trace.columns import B, F

__all__ = ["Relay", "Team"]

COIN, LEVEL = range(2)  # what a draw is about
SILENT, BRIEF, FULL, ZERO, ONE = range(5)
REFERENCE = (0.04, 0.10, 0.16, 0.20, 0.22, 0.28)

N64 = NDArray[np.int64]


@dataclass(frozen=True)
class RelayParams(Params):
    n: int = param(2, "a whole number from 1 to 7: the mates", lambda n: isinstance(n, int) and 1 <= n <= 7)
    E: int = param(6, "a whole number from 2 to 8: the levels", lambda n: isinstance(n, int) and 2 <= n <= 8)
    c: float = param(
        0.02, "a price of 0 or more for a brief message, half that of a full one", lambda c: 0 <= c < 1e9
    )
    p: tuple[float, ...] = param(
        (),
        "the probability of each level where the coin shows 1, summing to 1; or () for the reference curve",
        lambda p: not p or (all(0 <= x <= 1 for x in p) and abs(sum(p) - 1) < 1e-9),
    )

    def __post_init__(self) -> None:
        if isinstance(self.p, list):  # as JSON has it
            object.__setattr__(self, "p", tuple(self.p))
        super().__post_init__()
        if self.p and len(self.p) != self.E:
            raise BadParameter(f"p must be E={self.E} probabilities, got {self.p!r}")
        if self.E * (self.n - 1) > 12:
            raise BadParameter(
                f"n must be at most {1 + 12 // self.E} for E={self.E}: the optimum needs 3^(E(n-1)) rules, "
                f"3^12 at most are computed; got {self.n!r}"
            )

    def levels(self) -> F:
        """P(level given the coin) [coin, level]: reversed where it shows 0. The reference curve is cut into E
        parts."""
        if self.p:
            one = np.array(self.p)
        else:
            steps = np.linspace(0, len(REFERENCE), self.E + 1)
            one = np.diff(np.interp(steps, np.arange(len(REFERENCE) + 1), np.cumsum((0.0, *REFERENCE))))
        return np.stack([one[::-1], one])


@dataclass
class Relaying(State):
    coin: N64  # hidden
    level: N64  # [episode, mate], -1 before it is drawn
    words: N64  # [episode, mate]: silent, brief, full
    at: N64  # who decides: a mate, or the lead after them
    heard: N64  # handles of what the lead has from each mate [episode, mate]
    spawned: N64


@register
class Relay(World):
    """Score = 1 if the lead's answer is the coin's, else 0, - c for each brief and 2c for each full message."""

    name = "relay"
    Params = RelayParams
    decides = ("communicate", "aggregate")
    facts = ("price", "levels", "mates", "mate", "level")  # mate 0 is the lead, who sees no level (0)
    items = ("mate", "words", "told")  # words 0, 1, 2; told: nothing (0), the half (1, 2), or the level (from 1)
    options = ("silent", "brief", "full", "0", "1")

    def __init__(self, params: RelayParams) -> None:
        super().__init__(params)
        self.mates = tuple(f"mate {i}" for i in range(1, params.n + 1))
        self._below = np.cumsum(params.levels(), axis=1)[:, :-1]

    def start(self, seed: U, log: Log | None = None) -> Relaying:
        n, mates = len(seed), self.params.n
        coin = (uniform(seed, COIN) < 0.5).astype(np.int64)
        state = Relaying(
            seed,
            np.ones(n, np.bool_),
            np.zeros(n),
            log,
            np.full(n, np.nan),
            coin,
            np.full((n, mates), -1),
            np.zeros((n, mates), np.int64),
            np.zeros(n, np.int64),
            np.full((n, mates), -1),
            np.full((n, mates), -1),
        )
        self._see(state, np.arange(n), 0)
        if log is not None:
            for i, mate in enumerate(self.mates):
                state.spawned[:, i] = log.add(np.arange(n), "spawn", LEAD, 0.0, to=mate, role="lead")
        return state

    def _see(self, state: Relaying, row: N64, mate: int) -> None:
        u = uniform(state.seed[row], LEVEL, mate)
        state.level[row, mate] = (u[:, None] >= self._below[state.coin[row]]).sum(1)

    def view(self, state: Relaying) -> View | None:
        row = np.flatnonzero(state.open)
        if not len(row):
            return None
        p, i = self.params, int(state.at[row].min())
        row = row[state.at[row] == i]
        lead = i == p.n
        facts = np.zeros((len(row), 5))
        facts[:, :3] = p.c, p.E, p.n
        if not lead:
            facts[:, 3], facts[:, 4] = i + 1, state.level[row, i] + 1
        allowed: B = np.broadcast_to(np.array([not lead] * 3 + [lead] * 2), (len(row), 5))

        def items() -> tuple[F, N64]:
            if not lead:
                return np.zeros((0, 3)), np.zeros(0, np.int64)
            words = state.words[row]
            message = _told(words, state.level[row], p.E)
            mate = np.broadcast_to(np.arange(1, p.n + 1), words.shape)
            heard = np.stack([mate, words, message], 2).reshape(-1, 3).astype(float)
            return heard, np.repeat(np.arange(len(row)), p.n)

        if lead:
            return View(row, "aggregate", LEAD, facts, allowed, items)
        return View(row, "communicate", self.mates[i], facts, allowed, items)

    def act(self, state: Relaying, view: View, choice: N64) -> None:
        row, p = view.row, self.params
        i = int(state.at[row[0]])
        if i < p.n:
            state.words[row, i] = choice
            self._log_mate(state, row, i, choice)
            state.at[row] += 1
            if i + 1 < p.n:
                self._see(state, row, i + 1)
            return
        state.open[row] = False
        state.score[row] = (choice - ZERO == state.coin[row]) - p.c * state.words[row].sum(1)
        self._log_lead(state, row, choice)

    def _log_mate(self, state: Relaying, row: N64, i: int, choice: N64) -> None:
        log = state.log
        if log is None:
            return
        mate, labels = self.mates[i], np.array(self.options, object)
        after: list[tuple[Any, N64]] = [("spawn", state.spawned[row, i])]
        decision = log.decide(
            row, "communicate", mate, 1.0, self.options[:3], labels[choice], state.logp[row], after, role="mate"
        )
        speaks = np.flatnonzero(choice != SILENT)
        content = _told(choice, state.level[row, i], self.params.E)[speaks]
        halves = ["lower half", "upper half"]
        words = np.array([*halves, *(f"level {x + 1}" for x in range(self.params.E))], object)
        decision[speaks] = log.add(
            row[speaks],
            "message",
            mate,
            2.0,
            [("causal", decision[speaks])],
            to=LEAD,
            role="mate",
            cost=self.params.c * choice[speaks],
            content_ref=words[np.where(choice[speaks] == BRIEF, content - 1, content + 1)],
        )
        state.heard[row, i] = decision

    def _log_lead(self, state: Relaying, row: N64, choice: N64) -> None:
        log = state.log
        if log is None:
            return
        causes: list[tuple[Any, N64]] = []
        for i in range(self.params.n):  # who was silent is seen as well, without a message
            spoke = state.words[row, i] != SILENT
            causes += [("message", np.where(spoke, state.heard[row, i], -1))]
            causes += [("causal", np.where(spoke, -1, state.heard[row, i]))]
        answer = np.array(self.options, object)[choice]
        decision = log.decide(
            row, "aggregate", LEAD, 3.0, self.options[3:], answer, state.logp[row], causes, role="lead"
        )
        log.add(row, "aggregate", LEAD, 4.0, [("aggregate", decision)], role="lead", content_ref=answer)

    def optimum(self) -> float:
        """The best of all deterministic rules, one a mate, with a lead who answers by Bayes' rule:

            V = max over rules of  sum over what may be heard of max_y P(y, heard)  -  expected price

        A team gains nothing by dice: the score is linear in each mate's own chances, so some deterministic rules
        are best among all that mates can do who cannot talk otherwise.
        """
        return _solved(self.params).value

    def optimal(self) -> Policy:
        return self.team(_solved(self.params).rules)

    def team(self, rules: N64) -> Policy:
        """Mates that follow the rules [mate, level], and a lead who knows them and answers by Bayes' rule."""
        p = self.params
        log_ratio = np.stack([_ratios(rule, p) for rule in rules])  # [mate, what is heard]

        def policy(view: View) -> N64:
            if view.kind == "communicate":
                mate, level = view.facts[:, 3:].astype(np.int64).T
                lengths: N64 = rules[mate - 1, level - 1]
                return lengths
            heard, owner = view.items()
            mate, words, told = heard.astype(np.int64).T
            for_one = np.bincount(owner, log_ratio[mate - 1, _heard(words, told)], len(view))
            return np.where(for_one > 0, ONE, ZERO)

        return policy

    def trivial(self) -> dict[str, Policy]:
        """Every mate says the same length whatever it sees: none, all brief, all full, and the best lengths there
        are, one a mate; the lead knows it and answers by Bayes' rule. And everything at random."""
        p, dice = self.params, np.random.default_rng(0)

        def fixed(words: tuple[int, ...]) -> N64:
            return np.repeat(np.array(words)[:, None], p.E, 1)

        def dices(view: View) -> N64:
            low, high = (SILENT, FULL) if view.kind == "communicate" else (ZERO, ONE)
            return dice.integers(low, high + 1, size=len(view))

        best = max(
            combinations_with_replacement((SILENT, BRIEF, FULL), p.n), key=lambda w: value_of_rules(fixed(w), p)
        )
        alike = {f"all {self.options[w]}": self.team(fixed((w,) * p.n)) for w in (SILENT, BRIEF, FULL)}
        return alike | {
            "always " + ", ".join(self.options[w] for w in best): self.team(fixed(best)),
            "random": dices,
        }

    @classmethod
    def held_out(cls, dice: np.random.Generator) -> Mapping[str, Any]:
        return {"n": int(dice.integers(2, 4)), "c": float(np.round(dice.uniform(0.022, 0.05), 4))}

    @classmethod
    def training(cls, dice: np.random.Generator) -> Mapping[str, Any]:
        return {"n": int(dice.integers(2, 4)), "c": float(dice.uniform(0.02, 0.055))}


def _half(level: Any, levels: int) -> Any:
    """0 for the lower half of the scale, 1 for the upper; the level in the middle of an odd scale is in the
    upper."""
    return (np.asarray(level) >= levels // 2).astype(np.int64)


def _told(words: N64, level: N64, levels: int) -> N64:
    """What a mate lets the lead know: nothing 0, the half 1 or 2, the level from 1."""
    codes: N64 = np.where(words == BRIEF, _half(level, levels) + 1, np.where(words == FULL, level + 1, 0))
    return codes


def _heard(words: Any, told: Any) -> Any:
    """One number for what was heard from a mate: silence 0, a half 1 or 2, a level from 3."""
    return np.where(words == FULL, told + 2, told)


def _chances(rule: N64, p: RelayParams) -> F:
    """P(what is heard given the coin) of a mate that follows a rule [coin, what is heard]."""
    level = np.arange(p.E)
    heard = _heard(rule, _told(rule, level, p.E))
    return np.stack([np.bincount(heard, chance, p.E + 3) for chance in p.levels()])


def _ratios(rule: N64, p: RelayParams) -> F:
    zero, one = _chances(rule, p)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: F = np.nan_to_num(np.log(one) - np.log(zero), nan=0.0, posinf=1e6, neginf=-1e6)
    return ratio


def value_of_rules(rules: N64, p: RelayParams) -> float:
    """The expected score of rules [mate, level] with a lead who answers by Bayes' rule, by summing over all that
    may be heard."""
    joint = np.full((2, 1), 0.5)
    for rule in rules:
        joint = (joint[:, :, None] * _chances(rule, p)[:, None, :]).reshape(2, -1)
    return float(joint.max(0).sum() - p.c * (rules @ p.levels().mean(0)).sum())


class Team(NamedTuple):
    """The best rules [mate, level], each level's choice silent 0, brief 1 or full 2, and what they are worth."""

    value: float
    rules: N64


def every_rule(levels: int) -> N64:
    """All 3^E rules of a mate [rule, level]."""
    return np.stack(np.meshgrid(*[np.arange(3)] * levels, indexing="ij"), -1).reshape(-1, levels)


def _blocks(rules: N64) -> N64:
    """What is heard at each level: levels that sound the same are one block [rule, level]."""
    level, levels = np.arange(rules.shape[1]), rules.shape[1]
    heard: N64 = _heard(rules, _told(rules, level, levels))
    return heard


def frugal(p: RelayParams) -> N64:
    """The rules that are enough: none tells levels apart that another, no dearer, tells apart as well and more.

    Nothing is lost by the others: a lead who hears more answers no worse (Blackwell), at a price no higher.
    """
    rules = every_rule(p.E)
    price = rules @ p.levels().mean(0)
    rules, price = rules[np.argsort(price, kind="stable")], np.sort(price, kind="stable")
    block = _blocks(rules)
    same = (block[:, :, None] == block[:, None, :]).reshape(len(rules), -1)
    _, first = np.unique(same, axis=0, return_index=True)  # the cheapest of those that tell the same apart
    first = np.sort(first)
    rules, price, same = rules[first], price[first], same[first].astype(np.float32)
    finer = same @ (1 - same).T == 0  # [one, other]: one tells apart whatever the other does
    np.fill_diagonal(finer, False)
    enough: N64 = rules[~(finer & (price[:, None] <= price[None, :] + 1e-13)).any(0)]
    return enough


@lru_cache(maxsize=32)
def _solved(p: RelayParams) -> Team:
    """All rules of all mates but the last, up to the order of mates, each with every rule of the last mate.

    A rule hears levels in blocks. Given the chances a (coin 1) and b (coin 0) of what the others let the lead hear,
    a block B of the last mate adds g(B) = sum over what is heard of max(a P(B given 1), b P(B given 0)), so all its
    rules are weighed by one product of g with which blocks each has.
    """
    rules = frugal(p)
    chances = np.stack([_chances(rule, p) for rule in rules])
    price = p.c * (rules @ p.levels().mean(0))
    member = np.arange(1 << p.E)[:, None] >> np.arange(p.E) & 1
    zero, one = p.levels() @ member.T  # of each block
    has = np.zeros((1 << p.E, len(rules)))
    for heard in range(p.E + 3):
        np.add.at(has, ((_blocks(rules) == heard) @ (1 << np.arange(p.E)), np.arange(len(rules))), 1.0)
    best = Team(-np.inf, rules[:0])
    for at in _teams(len(rules), p):
        joint = np.full((len(at), 2, 1), 0.5)
        for i in range(p.n - 1):
            joint = (joint[:, :, :, None] * chances[at[:, i]][:, :, None, :]).reshape(len(at), 2, -1)
        g = np.maximum(joint[:, 0, :, None] * zero, joint[:, 1, :, None] * one).sum(1)
        value = g @ has - price - price[at].sum(1)[:, None]
        top, last = np.unravel_index(np.argmax(value), value.shape)
        if value[top, last] > best.value:
            best = Team(float(value[top, last]), np.concatenate([rules[at[top]], rules[last][None]]))
    return best


def _teams(rules: int, p: RelayParams) -> Iterator[N64]:
    """The rules of all mates but the last, in any order, some teams at a time."""
    some = max(1, 1_000_000 // ((p.E + 3) ** (p.n - 1) << p.E))
    teams = combinations_with_replacement(range(rules), p.n - 1)
    while batch := list(islice(teams, some)):
        yield np.array(batch, np.int64).reshape(len(batch), p.n - 1)
