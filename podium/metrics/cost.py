"""What a rollout costs at the user's prices: by the survey's formula from what agents did, and predicted for other sizes of team.

    C = Σ_i (L_i c_tok + T_i c_tool) + C_orch      over the K sub-agents; L_i tokens, T_i tool calls

C_orch is the same sum for everyone else, the lead first of all, and a price for each decision, spawn and message where those have one.
A total that a run states is used as it is: T = Σ T_i is never multiplied by K again.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from podium.interval import Estimate, estimate
from podium.metrics.table import BadMetrics
from podium.metrics.views import count, sub_agents
from podium.rewards.orchestration import spawned
from podium.rewards.outcome import spent, spent_by_events
from podium.trace.columns import F, Trace
from podium.trace.vocabulary import event

__all__ = ["Bill", "Forecast", "Model", "Prices", "bill", "fit", "forecast", "price_list"]

CALL, DECISION, SPAWN, MESSAGE = (
    event("tool_call"),
    event("orchestrator_decision"),
    event("spawn"),
    event("message"),
)


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
        known = [f.name for f in fields(Prices)]
        if name not in known:
            raise BadMetrics(f"there is no price of {name!r}; there are {', '.join(known)}")
        try:
            given[name] = float(value)
        except ValueError:
            raise BadMetrics(f"the price of {name} must be a number, got {value!r}") from None
    return Prices(**given)


class Bill(NamedTuple):
    """What each rollout cost. NaN where tokens have a price and the record does not say how many there were."""

    agents_n: F  # its sub-agents
    orchestration_n: F  # everyone else, and coordination
    total_n: F  # both; from the totals that the run states, where its events do not add up
    stated_n: F  # what the run states that it cost


def bill(trace: Trace, prices: Prices) -> Bill:
    """What each rollout cost at these prices, from its events; from its stated totals where events do not say.

    Totals of tokens that do not say how many were read and how many written are charged as read.
    """
    n, born_e = len(trace), sub_agents(trace)[trace.agent_e]
    cost_e = np.where(trace.type_e == CALL, prices.tool_call, 0.0)
    for kind, price in ((DECISION, prices.decision), (SPAWN, prices.spawn), (MESSAGE, prices.message)):
        cost_e += np.where(trace.type_e == kind, price, 0.0)
    tokens_e, says_e = spent_by_events(trace, "tokens")
    priced = prices.token_in > 0 or prices.token_out > 0
    if priced:
        known_e = (
            np.nan_to_num(trace.tokens_in_e) * prices.token_in
            + np.nan_to_num(trace.tokens_out_e) * prices.token_out
        )
        cost_e += np.where(says_e, np.where(np.isnan(tokens_e), np.nan, known_e), 0.0)
    own_n = np.bincount(trace.rollout_e[born_e], cost_e[born_e], minlength=n)
    rest_n = np.bincount(trace.rollout_e[~born_e], cost_e[~born_e], minlength=n)
    silent_n = count(trace, says_e if priced else np.ones(trace.n_events, np.bool_)) == 0
    agents_n, others_n = (np.where(silent_n, np.nan, c.astype(np.float64)) for c in (own_n, rest_n))
    total_n = agents_n + others_n
    return Bill(
        agents_n, others_n, np.where(np.isnan(total_n), _by_totals(trace, prices), total_n), spent(trace, "cost")
    )


def _by_totals(trace: Trace, prices: Prices) -> F:
    """The cost by the totals that a run states: of the team as a whole, so nothing is multiplied by its size."""
    tokens_n = trace.cost_n.get("tokens", np.full(len(trace), np.nan))
    cost_n = tokens_n * prices.token_in + spent(trace, "tool_calls") * prices.tool_call
    for kind, price in ((DECISION, prices.decision), (SPAWN, prices.spawn), (MESSAGE, prices.message)):
        cost_n = cost_n + count(trace, trace.type_e == kind) * price
    return cost_n


class Model(NamedTuple):
    """The formula with its terms as averages: what a sub-agent costs, and orchestration as a straight line in their number."""

    agent: float  # L c_tok + T c_tool of one sub-agent
    base: float  # C_orch(K) = base + each K
    each: float

    def __call__(self, k_n: F) -> F:
        return k_n * self.agent + self.base + self.each * k_n


def fit(trace: Trace, prices: Prices) -> Model:
    """The average cost of a sub-agent over these runs, and the line of least squares through what orchestration cost."""
    costs, k_n = bill(trace, prices), _team(trace)
    known = ~np.isnan(costs.agents_n + costs.orchestration_n)
    k, own, rest = k_n[known], costs.agents_n[known], costs.orchestration_n[known]
    if not len(k):
        return Model(np.nan, np.nan, np.nan)
    apart = k - k.mean()
    each = float((apart * rest).sum() / (apart**2).sum()) if (apart != 0).any() else 0.0
    agent = float(own.sum() / k.sum()) if k.sum() else 0.0
    return Model(agent, float(rest.mean() - each * k.mean()), each)


def _team(trace: Trace) -> F:
    return np.bincount(trace.rollout_a[spawned(trace)], minlength=len(trace)).astype(np.float64)


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
        predicted_n[mine] = fit(trace[others], prices)(k_n[mine])
    with np.errstate(invalid="ignore", divide="ignore"):
        error_n = np.where(total_n > 0, np.abs(predicted_n - total_n) / total_n, np.nan)
    return Forecast(estimate(total_n), estimate(predicted_n), estimate(error_n), fit(trace, prices))
