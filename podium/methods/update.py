"""Updates and schedules as expressions: what credit is used in, and who learns when.

    clip(token, 0.2, 0.28) + kl(0.2)
    truncated(2) >> clip(sequence)
    alternate(lead, others, every=5)

An update is one *loss*, plus weighted *penalties*, after *filters* (`>>`) that say which rows count and how much.
Every name is a registered function that checks its arguments: its signature lists them, its docstring has the
formula. Each learner evaluates the terms that it can and refuses the others by name (`refusal`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from podium.errors import WrongUse
from podium.expression import BadExpression, Call, Node, Scaled, Sum, Then, parse, spell
from podium.registry import alternatives, entries, facts, find, kind_of, register

__all__ = ["BadUpdate", "Over", "Schedule", "Term", "Update", "read_schedule", "read_update", "refusal"]

Over = Literal[
    "token", "turn", "sequence"
]  # what a ratio π / π_old is of: the token, the turn's product, its geometric mean
Part = Literal["loss", "penalty", "filter"]
Fn = TypeVar("Fn", bound=Callable[..., None])


class BadUpdate(WrongUse, ValueError):
    """An update or a schedule that cannot be read, or that a learner cannot do; says which part."""


@dataclass(frozen=True)
class Term:
    """A named part of an update or schedule, all its arguments by name."""

    name: str
    arguments: Mapping[str, Any]
    weight: float = 1.0

    def __getitem__(self, argument: str) -> Any:
        return self.arguments[argument]


@dataclass(frozen=True)
class Update:
    """An update: one loss, penalties that are added to it, and filters that come before."""

    text: str  # as `spell` prints it
    loss: Term
    penalties: tuple[Term, ...] = ()
    filters: tuple[Term, ...] = ()

    @property
    def terms(self) -> tuple[Term, ...]:
        """All parts."""
        return (*self.filters, self.loss, *self.penalties)

    def penalty(self, name: str) -> float:
        """The weight of the penalties of that name, 0 if there is none."""
        return float(sum(term.weight * term["weight"] for term in self.penalties if term.name == name))


@dataclass(frozen=True)
class Schedule:
    """A schedule: stages that follow each other, of which most methods have one."""

    text: str
    stages: tuple[Term, ...]

    @property
    def terms(self) -> tuple[Term, ...]:
        """All stages."""
        return self.stages


def read_update(text: str) -> Update:
    """The update that an expression describes. Raises BadUpdate.

    >>> update = read_update("truncated(2) >> clip(sequence) + kl(.2)")
    >>> update.loss.name, update.loss["over"], update.penalty("kl"), update.filters[0]["most"], update.text
    ('clip', 'sequence', 0.2, 2, 'truncated(2) >> clip(sequence) + kl(0.2)')
    """
    tree = _tree(text)
    *before, last = tree.parts if isinstance(tree, Then) else (tree,)
    filters = tuple(_term("update", part, text, "filter") for part in before)
    parts = [_term("update", part, text) for part in (last.parts if isinstance(last, Sum) else (last,))]
    losses = [term for term in parts if facts("update", term.name)["part"] == "loss"]
    if len(losses) != 1:
        raise BadUpdate(f"expected one loss such as clip(token), got {len(losses)} in {text!r}")
    if losses[0].weight != 1.0:
        raise BadUpdate(f"expected a loss of weight 1 (the learning rate scales it), got {text!r}")
    if late := [term.name for term in parts if facts("update", term.name)["part"] == "filter"]:
        raise BadUpdate(
            f"{late[0]} is a filter: expected it before the loss, {late[0]} >> clip(token), got {text!r}"
        )
    return Update(spell(tree), losses[0], tuple(term for term in parts if term is not losses[0]), filters)


def read_schedule(text: str) -> Schedule:
    """The schedule that an expression describes. Raises BadUpdate.

    >>> read_schedule("alternate(lead, others, every=5)").stages[0].arguments
    {'turns': ('lead', 'others'), 'every': 5}
    """
    tree = _tree(text)
    return Schedule(
        spell(tree),
        tuple(_term("schedule", part, text) for part in (tree.parts if isinstance(tree, Then) else (tree,))),
    )


def refusal(asked: Update | Schedule, can: Collection[str], who: str) -> str:
    """Why a learner that can do so many terms cannot do what is asked; empty if it can.

    >>> refusal(read_update("dpo"), ("clip", "kl"), "the small network")
    "the small network cannot do dpo (in the update 'dpo'); it can do clip, kl"
    """
    lacks = [term.name for term in asked.terms if term.name not in can]
    what = "update" if isinstance(asked, Update) else "schedule"
    if not lacks:
        return ""
    return (
        f"{who} cannot do {' and '.join(lacks)} (in the {what} {asked.text!r}); it can do {', '.join(sorted(can))}"
    )


def _tree(text: str) -> Node:
    try:
        return parse(text)
    except BadExpression as error:
        raise BadUpdate(str(error).replace("outcome - 0.1 * invalid_calls", "clip(token) + kl(0.2)")) from None


def _term(kind: str, node: Node, text: str, part: Part | None = None) -> Term:
    weight, node = (node.weight, node.part) if isinstance(node, Scaled) else (1.0, node)
    if not isinstance(node, Call):
        raise BadUpdate(f"expected a name with arguments, got {spell(node)!r} in {text!r}")
    if kind_of(node.name, kind) is None:
        raise BadUpdate(f"no {kind} called {node.name!r}; {alternatives(node.name, sorted(entries(kind)))}")
    if part is not None and facts(kind, node.name)["part"] != part:
        raise BadUpdate(f"expected a {part} before >>, got {node.name} in {text!r}")
    function = find(kind, node.name)
    try:
        bound = inspect.signature(function).bind(*map(_word, node.args), **{k: _word(v) for k, v in node.options})
    except TypeError as error:
        raise BadUpdate(f"{spell(node)}: {error}") from None
    bound.apply_defaults()
    function(*bound.args, **bound.kwargs)
    return Term(node.name, dict(bound.arguments), weight)


def _word(value: Any) -> Any:
    """A bare name as a string: `token` is "token"."""
    return value.name if isinstance(value, Call) and not value.args and not value.options else value


def _check(name: str, value: Any, allowed: str, fine: bool) -> None:
    if not fine:
        raise BadUpdate(f"{name} must be {allowed}, got {value!r}")


def _number(name: str, value: Any, least: float = 0.0) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    _check(name, value, f"a number from {least:g} on", number and value >= least)


def _over(over: Any) -> None:
    _check("over", over, ", ".join(get_args(Over)), over in get_args(Over))


def _bounds(low: Any, high: Any) -> None:
    for name, value in (("low", low), ("high", high)):
        if value is not None:
            _number(name, value)


# ---- losses. ρ = π / π_old, A the credit, w the weight of a row


@register("update", "any", part="loss")
def _any() -> None:
    """The learner's own loss: clip(token)."""


@register("update", part="loss")
def reinforce() -> None:
    """L = -Σ w A log π.   from: Williams 1992."""


@register("update", "clip", part="loss")
def clip_ratio(over: Over = "token", low: float | None = None, high: float | None = None) -> None:
    """L = -Σ w min(ρ A, clip(ρ, 1 - low, 1 + high) A), ρ of a token, a turn or a sequence.

    Bounds are the learner's own unless given.   from: PPO; DAPO for two sides; GSPO for `sequence`.
    """
    _over(over)
    _bounds(low, high)


@register("update", part="loss")
def dual_clip(over: Over = "token", low: float | None = None, high: float | None = None, most: float = 3.0) -> None:
    """As `clip`, where A < 0 at least most A: L = -Σ w max(min(ρ A, clip(ρ) A), most A).   from: Ye et al. 2020."""
    _over(over)
    _bounds(low, high)
    _number("most", most, 1.0)


@register("update", part="loss")
def mirror(low: float = 0.5, high: float = 2.0, tau: float = 0.1) -> None:
    """L = -Σ w [clip(ρ, low, high) A - τ (log ρ)²]: outside the bounds A teaches nothing.   from: Kimi K2.5."""
    _bounds(low, high)
    _number("tau", tau)


@register("update", part="loss")
def sft(on: str = "successes") -> None:
    """L = -Σ w log π of what was good.   from: filtered behaviour cloning, STaR, SiriuS."""


@register("update", part="loss")
def dpo(pairs: str = "siblings", beta: float = 0.1) -> None:
    """L = -Σ log σ(β [(log π_b - old_b) - (log π_w - old_w)]) over ranked pairs.   from: Rafailov et al. 2023."""
    _number("beta", beta)


@register("update", part="loss")
def match_ranks() -> None:
    """Ranks of the policy matched to those of the credit, near the SFT policy (SoftRankPO).   from: MPDF."""


@register("update", part="loss")
def q_learning(double: bool = False) -> None:
    """L = ½ Σ (Q_tot - R - γ max Q_tot')².   from: VDN, QMIX."""


@register("update", part="loss")
def deterministic(through: str = "team") -> None:
    """∇ Q(s, μ(s)): the gradient of a critic, or of the agent's own term, through the action.   from: MADDPG."""


@register("update", part="loss")
def edit_prompts() -> None:
    """Prompts are rewritten in words; no parameter changes."""


@register("update", part="loss")
def none() -> None:
    """Nothing is learned."""


# ---- penalties


@register("update", part="penalty")
def kl(weight: float) -> None:
    """weight x KL(π, π_ref), π_ref the policy at the start."""
    _number("weight", weight)


@register("update", part="penalty")
def entropy(weight: float = 0.01, by: str = "batch") -> None:
    """-weight x the policy's entropy, averaged over the batch or over each role."""
    _number("weight", weight)
    _check("by", by, "batch or role", by in ("batch", "role"))


# ---- filters


@register("update", part="filter")
def truncated(most: float = 2.0) -> None:
    """A row counts min(π / π_behaviour, most) times.   from: truncated importance sampling, Yao et al. 2025."""
    _number("most", most, 1.0)


@register("update", part="filter")
def skip_zeros() -> None:
    """Rows of credit 0 are left out."""


@register("update", part="filter")
def cap_log_ratio(most: float) -> None:
    """log ρ is at most so much."""
    _number("most", most)


@register("update", part="filter")
def stop_beyond(kl: float) -> None:
    """The epochs end where the divergence from the policy that acted exceeds so much.   from: MARFT."""
    _number("kl", kl)


@register("update", part="filter")
def mean_over(what: str) -> None:
    """The loss is a mean over each `run` or over the `planner`'s runs, not over tokens."""
    _check("what", what, "run, planner or none", what in ("run", "planner", "none"))


# ---- schedules


@register("schedule", "any")
def _any_schedule() -> None:
    """The learner's own: joint."""


@register("schedule", "none")
def _no_schedule() -> None:
    """Nothing is learned."""


@register("schedule")
def joint(
    optimizer: str = "one", self_play: bool = False, order: str = "", redraw: str = "", roles: str = "together"
) -> None:
    """Everyone learns in every iteration. `redraw` names groups drawn anew, `order` which turn goes first."""


@register("schedule")
def alternate(*turns: str, every: int = 1) -> None:
    """The roles of one turn learn for so many iterations, then those of the next; `others` are in no turn."""
    _check("every", every, "a whole number from 1 on", isinstance(every, int) and every >= 1)
    _check("turns", turns, "two roles or more, such as lead, others", len(turns) != 1)


@register("schedule")
def round_robin(every: int = 1) -> None:
    """One role learns for so many iterations, then the next."""
    _check("every", every, "a whole number from 1 on", isinstance(every, int) and every >= 1)


@register("schedule")
def until_flat(every: int = 5, least: float = 0.0) -> None:
    """One role learns until  mean(last k returns) - mean(k before) <= least,  k = every; then the next."""
    _check("every", every, "a whole number from 1 on", isinstance(every, int) and every >= 1)


@register("schedule")
def frozen(who: str = "others") -> None:
    """The lead learns; `who` never does."""


@register("schedule")
def warm_up(what: str = "critic") -> None:
    """Only the critic is fitted at first."""


@register("schedule")
def supervised(on: str = "successes") -> None:
    """Supervised learning first."""


@register("schedule")
def decentralised(buffer: str = "agent") -> None:
    """Each agent learns from a buffer of its own."""


@register("schedule")
def decoupled() -> None:
    """Main and sub-agents learn apart, on servers of their own."""


@register("schedule")
def asynchronous(buffer: str = "shared", tree: str = "") -> None:
    """Rollouts and updates do not wait for each other."""


@register("schedule")
def pipeline(prefer: str = "") -> None:
    """Each role's outputs are learned from as soon as they are there."""


@register("schedule", "replay")
def from_buffer(target: bool = False) -> None:
    """From a buffer of earlier runs."""


@register("schedule")
def offline(rounds: int = 1, learns: str = "all", graph: str = "") -> None:
    """From runs that were collected before."""


@register("schedule")
def search(by: str = "") -> None:
    """Search at run time; no parameter changes."""
