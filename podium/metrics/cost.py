"""What a rollout costs at the user's prices, by the survey's formula, and predicted for other sizes of team.

    C = Σ_i (L_i c_tok + T_i c_tool) + C_orch      over the K sub-agents; L_i tokens, T_i tool calls

C_orch is the same sum for everyone else, and a price for each decision, spawn and message where those have one. A
total that a run states is used as it is, never multiplied by K.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from podium.graph.grouping import count_by, total_by
from podium.graph.steps import spawned
from podium.interval import Estimate, estimate
from podium.metrics.table import BadMetrics
from podium.metrics.views import count, sub_agents
from podium.rewards.outcome import spent
from podium.trace.columns import F, I, Trace
from podium.trace.vocabulary import event

__all__ = ["Bill", "Forecast", "Model", "Prices", "bill", "fit_model", "forecast", "price_list"]

CALL, SPAWN, MESSAGE = event("tool_call"), event("spawn"), event("message")
DECISION = event("orchestrator_decision")


@dataclass(frozen=True)
class Prices:
    """What each thing costs, in any one currency."""

    token_in: float = 0.0  # read
    token_out: float = 0.0  # written
    tool_call: float = 0.0
    decision: float = 0.0
    spawn: float = 0.0
    message: float = 0.0

    def __post_init__(self) -> None:
        for f in fields(self):
            if not 0 <= getattr(self, f.name) < np.inf:
                raise BadMetrics(f"the price of {f.name} must be 0 or more, got {getattr(self, f.name)!r}")


def price_list(text: str) -> Prices:
    """Prices as one writes them on a command line.

    >>> price_list("token_in=3e-6, token_out=1.5e-5, tool_call=0.001")
    Prices(token_in=3e-06, token_out=1.5e-05, tool_call=0.001, decision=0.0, spawn=0.0, message=0.0)
    """
    given: dict[str, float] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in (known := [f.name for f in fields(Prices)]):
            raise BadMetrics(f"there is no price of {name!r}; there are {', '.join(known)}")
        try:
            given[name] = float(value)
        except ValueError:
            raise BadMetrics(f"the price of {name} must be a number, got {value!r}") from None
    return Prices(**given)


class Bill(NamedTuple):
    """What each rollout cost. A price is exact or NaN; a rollout without an exact price has a lower bound.

    NaN everywhere where tokens have a price and the record says nothing of them.
    """

    agents_n: F  # its sub-agents
    orchestration_n: F  # everyone else, and coordination
    total_n: F  # both; from the totals that the run states, where its events do not add up
    stated_n: F  # what the run states that it cost
    agents_least_n: F  # lower bounds of the first three, equal to them where they are known
    orchestration_least_n: F
    total_least_n: F
    agents_lacking_n: I  # events that state one count of tokens and lack the other, which has a price
    orchestration_lacking_n: I

    @property
    def lacking_n(self) -> I:
        return self.agents_lacking_n + self.orchestration_lacking_n


def bill(trace: Trace, prices: Prices) -> Bill:
    """What each rollout cost at these prices, from its events; from its stated totals where events do not say.

    An event that states neither count spent no tokens, in a rollout in which others state theirs. One that states
    one kind only has spent at least that: the rollout has a lower bound, unless the missing kind is free or both
    totals are stated.
    """
    n, born_e = len(trace), sub_agents(trace)[trace.agent_e]
    unread_e, unwritten_e = np.isnan(trace.tokens_in_e), np.isnan(trace.tokens_out_e)
    says_e = ~(unread_e & unwritten_e)
    lacks_e = says_e & ((unread_e & (prices.token_in > 0)) | (unwritten_e & (prices.token_out > 0)))
    known_e = np.where(trace.type_e == CALL, prices.tool_call, 0.0)
    for kind, price in _coordination(prices):
        known_e += np.where(trace.type_e == kind, price, 0.0)
    known_e += np.nan_to_num(trace.tokens_in_e) * prices.token_in
    known_e += np.nan_to_num(trace.tokens_out_e) * prices.token_out
    priced = prices.token_in > 0 or prices.token_out > 0
    silent_n = count(trace, says_e if priced else np.ones(trace.n_events, np.bool_)) == 0
    least, exact, lacking = [], [], []
    for which_e in (born_e, ~born_e):
        lacking.append(count(trace, lacks_e & which_e))
        cost_n = total_by(np.where(which_e, trace.rollout_e, -1), known_e, n)
        least.append(np.where(silent_n, np.nan, cost_n))
        exact.append(np.where(lacking[-1] > 0, np.nan, least[-1]))
    by_totals_n, by_totals_least_n = _by_totals(trace, prices)
    both_n = exact[0] + exact[1]
    total_n = np.where(np.isnan(both_n), by_totals_n, both_n)
    total_least_n = np.where(np.isnan(total_n), np.fmax(least[0] + least[1], by_totals_least_n), total_n)
    return Bill(
        exact[0], exact[1], total_n, spent(trace, "cost"), least[0], least[1], total_least_n, lacking[0], lacking[1]
    )


def _coordination(prices: Prices) -> tuple[tuple[int, float], ...]:
    return (DECISION, prices.decision), (SPAWN, prices.spawn), (MESSAGE, prices.message)


def _by_totals(trace: Trace, prices: Prices) -> tuple[F, F]:
    """The cost by the totals that a run states for its team as a whole, and a lower bound of it.

        exact    read c_in + written c_out,   or tokens c where c_in = c_out = c
        least    read c_in + written c_out + (tokens - read - written) min(c_in, c_out),   by the known counts

    A total below what the events add up to is not believed, and a kind without a price need not be known.
    """
    other_n = spent(trace, "tool_calls") * prices.tool_call
    for kind, price in _coordination(prices):
        other_n = other_n + count(trace, trace.type_e == kind) * price
    unknown_n, kinds, columns = np.full(len(trace), np.nan), ("tokens_in", "tokens_out", "tokens"), trace.cost_n
    stated_in_n, stated_out_n, tokens_n = (columns.get(kind, unknown_n) for kind in kinds)
    events = (np.nan_to_num(trace.tokens_in_e), np.nan_to_num(trace.tokens_out_e))
    events_in_n, events_out_n = (total_by(trace.rollout_e, t_e, len(trace)) for t_e in events)
    in_n, out_n = np.fmax(stated_in_n, events_in_n), np.fmax(stated_out_n, events_out_n)
    known_n = in_n * prices.token_in + out_n * prices.token_out
    rest_n = np.maximum(np.nan_to_num(tokens_n) - in_n - out_n, 0.0)
    says_n = ~(np.isnan(tokens_n) & np.isnan(stated_in_n) & np.isnan(stated_out_n))
    least_n = np.where(says_n, known_n + rest_n * min(prices.token_in, prices.token_out), np.nan)
    both_n = (stated_in_n >= events_in_n) | (prices.token_in == 0)
    both_n &= (stated_out_n >= events_out_n) | (prices.token_out == 0)
    alike_n = (tokens_n >= events_in_n + events_out_n) & (prices.token_in == prices.token_out)
    exact_n = np.where(says_n & alike_n, tokens_n * prices.token_in, np.where(says_n & both_n, known_n, np.nan))
    return other_n + exact_n, other_n + least_n


class Model(NamedTuple):
    """The formula with its terms as averages: what a sub-agent costs, orchestration as a line in their number."""

    agent: float  # L c_tok + T c_tool of one sub-agent
    base: float  # C_orch(K) = base + each K
    each: float

    def __call__(self, k_n: F) -> F:
        return k_n * self.agent + self.base + self.each * k_n


def fit_model(trace: Trace, prices: Prices) -> Model:
    """The average cost of a sub-agent over these runs, and the least-squares line of what orchestration cost."""
    costs, k_n = bill(trace, prices), _team(trace)
    known = ~(np.isnan(costs.agents_n) | np.isnan(costs.orchestration_n))
    k, own, rest = k_n[known], costs.agents_n[known], costs.orchestration_n[known]
    if not len(k):
        return Model(np.nan, np.nan, np.nan)
    apart = k - k.mean()
    each = float((apart * rest).sum() / (apart**2).sum()) if (apart != 0).any() else 0.0
    agent = float(own.sum() / k.sum()) if k.sum() else 0.0
    return Model(agent, float(rest.mean() - each * k.mean()), each)


def _team(trace: Trace) -> F:
    return count_by(trace.rollout_a, spawned(trace), len(trace)).astype(np.float64)


class Forecast(NamedTuple):
    """Costs that the formula predicts for runs it has not seen, from the number of their sub-agents alone."""

    measured: Estimate  # of a run
    predicted: Estimate
    error: Estimate  # |predicted - measured| / measured of a run
    model: Model  # of all runs


def forecast(trace: Trace, prices: Prices) -> Forecast:
    """Each half of the runs, every second one, is predicted from the other."""
    total_n, k_n = bill(trace, prices).total_n, _team(trace)
    predicted_n = np.full(len(trace), np.nan)
    for half in (0, 1) if len(trace) > 1 else ():
        mine, others = np.arange(half, len(trace), 2), np.arange(1 - half, len(trace), 2)
        predicted_n[mine] = fit_model(trace[others], prices)(k_n[mine])
    with np.errstate(invalid="ignore", divide="ignore"):
        error_n = np.where(total_n > 0, np.abs(predicted_n - total_n) / total_n, np.nan)
    return Forecast(estimate(total_n), estimate(predicted_n), estimate(error_n), fit_model(trace, prices))
