"""What a run costs, with bills worked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scripted import run

from podium.envs.draws import seeds
from podium.envs.world import make, play
from podium.metrics import BadMetrics, Prices, bill, forecast
from podium.metrics.cost import fit_model, price_list
from podium.trace.columns import Text, Trace, concat

PRICES = Prices(token_in=0.01, token_out=0.1, tool_call=0.5, decision=0.2, spawn=0.05, message=0.3)


def team(workers: int, read: float = 90.0, wrote: float = 10.0, calls: int = 2, lead: float = 50.0) -> Trace:
    """A lead that decides once and reads so many tokens; workers that make calls and return."""
    events: list[object] = [("decide lead", (), {"tokens_in": lead, "tokens_out": 0.0})]
    events += [(f"spawn lead>w{w}", [0]) for w in range(workers)]
    for w in range(workers):
        events += [(f"call w{w}", [1 + w])] * calls
        events += [(f"return w{w}>lead", [1 + w], {"tokens_in": read, "tokens_out": wrote})]
    return run(*events)


def test_a_bill_by_hand() -> None:
    # A worker: 90 x .01 + 10 x .1 + 2 x .5 = 2.9. The lead: 50 x .01, a decision at .2, a spawn a worker at .05.
    got = bill(team(3), PRICES)
    assert got.agents_n == pytest.approx([3 * 2.9])
    assert got.orchestration_n == pytest.approx([0.5 + 0.2 + 3 * 0.05])
    assert got.total_n == pytest.approx([8.7 + 0.85])
    assert np.isnan(got.stated_n).all()


def test_totals_are_never_multiplied_by_the_number_of_agents_again() -> None:
    """The same work in all, by one worker and by six: the same bill."""
    free = replace(PRICES, spawn=0.0)
    one, many = bill(team(1, read=540, wrote=60, calls=12), free), bill(team(6), free)
    assert one.total_n == pytest.approx(many.total_n)
    assert one.total_n == pytest.approx([6 * 2.9 + 0.7])


def test_a_total_that_a_run_states_is_used_as_it_is_whatever_its_team() -> None:
    prices = Prices(token_in=0.01, token_out=0.01, tool_call=0.5)
    for workers in (1, 5):
        events = team(workers, read=np.nan, wrote=np.nan, lead=np.nan)
        events = replace(events, tokens_out_e=np.full(events.n_events, np.nan))
        stated = replace(events, cost_n={"tokens": np.array([1000.0]), "tool_calls": np.array([7.0])})
        assert np.isnan(bill(events, prices).total_n).all()
        assert bill(stated, prices).total_n == pytest.approx([10.0 + 3.5])


def test_a_count_that_is_absent_leaves_a_lower_bound_and_no_price() -> None:
    """The lead says what it read and not what it wrote; the first of two workers says what it wrote and not what it read."""
    trace = team(2)
    read_e, wrote_e = trace.tokens_in_e.copy(), trace.tokens_out_e.copy()
    lead, first = np.flatnonzero(~np.isnan(wrote_e))[:2]
    wrote_e[lead] = read_e[first] = np.nan
    partial = replace(trace, tokens_in_e=read_e, tokens_out_e=wrote_e)
    got = bill(partial, PRICES)
    for exact_n in (got.agents_n, got.orchestration_n, got.total_n):
        assert np.isnan(exact_n).all()
    # 2 x 2.9 less what the first read, 90 x .01; the lead wrote nothing that anybody counted
    assert got.agents_least_n == pytest.approx([5.8 - 0.9])
    assert got.orchestration_least_n == pytest.approx([0.5 + 0.2 + 2 * 0.05])
    assert got.total_least_n == pytest.approx([4.9 + 0.8])
    assert (got.agents_lacking_n.tolist(), got.orchestration_lacking_n.tolist(), got.lacking_n.tolist()) == (
        [1],
        [1],
        [2],
    )
    # what is free need not be counted
    free = bill(partial, replace(PRICES, token_in=0.0))
    assert free.agents_n == pytest.approx([5.8 - 2 * 0.9])
    assert (free.lacking_n.tolist(), np.isnan(free.orchestration_n).tolist()) == ([1], [True])
    # a forecast is not made from lower bounds
    assert fit_model(concat([partial, team(2)]), PRICES) == pytest.approx(fit_model(team(2), PRICES))
    assert forecast(concat([partial, team(2)]), PRICES).measured.n == 1


def test_where_everything_is_counted_the_lower_bound_is_the_price() -> None:
    got = bill(team(3), PRICES)
    assert got.total_least_n.tolist() == got.total_n.tolist()
    assert got.agents_least_n.tolist() == got.agents_n.tolist()
    assert got.lacking_n.tolist() == [0]


@pytest.mark.parametrize(
    ("stated", "exact", "least"),
    [
        ({}, np.nan, 1.0),  # the events: 100 read
        ({"tokens": 300.0}, np.nan, 1.0 + 200 * 0.01),  # the rest may all have been read
        ({"tokens": 300.0, "tokens_out": 50.0}, np.nan, 1.0 + 50 * 0.1 + 150 * 0.01),
        ({"tokens_in": 200.0, "tokens_out": 50.0}, 2.0 + 5.0, 7.0),
        ({"tokens_in": 50.0, "tokens_out": 50.0}, np.nan, 1.0 + 5.0),  # fewer than the events read: not believed
        ({"tokens": 60.0}, np.nan, 1.0),
        ({"tokens_in": 200.0}, np.nan, 2.0),
        ({"tokens_out": 50.0}, np.nan, 1.0 + 5.0),
    ],
)
def test_totals_are_charged_as_far_as_they_say(stated: dict[str, float], exact: float, least: float) -> None:
    trace = replace(
        run(("decide lead", (), {"tokens_in": 100.0})), cost_n={k: np.array([v]) for k, v in stated.items()}
    )
    got = bill(trace, Prices(token_in=0.01, token_out=0.1))
    assert got.total_n == pytest.approx([exact], nan_ok=True)
    assert got.total_least_n == pytest.approx([least])


@pytest.mark.parametrize(("kind", "least"), [("tokens_in", 2.0), ("tokens_out", 20.0), ("tokens", 2.0)])
def test_one_total_of_a_run_whose_events_say_nothing_is_a_lower_bound(kind: str, least: float) -> None:
    silent = run("decide lead")
    assert np.isnan(bill(silent, Prices(token_in=0.01, token_out=0.1)).total_least_n).all()
    told = bill(replace(silent, cost_n={kind: np.array([200.0])}), Prices(token_in=0.01, token_out=0.1))
    assert told.total_least_n == pytest.approx([least])
    assert np.isnan(told.total_n).all()
    free = Prices(token_in=0.01) if kind == "tokens_in" else Prices(token_out=0.1)  # the other kind has no price
    exact = bill(replace(silent, cost_n={kind: np.array([200.0])}), free).total_n
    assert exact == pytest.approx([np.nan if kind == "tokens" else least], nan_ok=True)


def test_a_total_of_both_kinds_is_a_price_where_both_cost_the_same() -> None:
    trace = replace(run(("decide lead", (), {"tokens_in": 100.0})), cost_n={"tokens": np.array([300.0])})
    assert bill(trace, Prices(token_in=0.1, token_out=0.1)).total_n == pytest.approx([30.0])
    less = replace(trace, cost_n={"tokens": np.array([99.0])})
    assert np.isnan(bill(less, Prices(token_in=0.1, token_out=0.1)).total_n).all()


def test_a_model_by_hand() -> None:
    # Every worker costs 2.9; orchestration is .7 and .05 a worker.
    model = fit_model(concat([team(2), team(3), team(5)]), PRICES)
    assert model == pytest.approx((2.9, 0.7, 0.05))
    assert model(np.array([10.0])) == pytest.approx([29 + 0.7 + 0.5])


def test_a_forecast_is_from_the_other_half_of_the_runs() -> None:
    # Runs 0 and 2 have workers at 2.9, runs 1 and 3 at 3.9 (10 tokens more written): each half is predicted by the other's.
    runs = concat([team(2), team(2, wrote=20.0), team(4), team(4, wrote=20.0)])
    got = forecast(runs, PRICES)
    cheap, dear = [2 * 2.9 + 0.8, 4 * 2.9 + 0.9], [2 * 3.9 + 0.8, 4 * 3.9 + 0.9]
    off = [(d - c) / c for c, d in zip(cheap, dear, strict=True)] + [
        (d - c) / d for c, d in zip(cheap, dear, strict=True)
    ]
    assert got.measured.mean == pytest.approx((sum(cheap) + sum(dear)) / 4)
    assert got.predicted.mean == pytest.approx(got.measured.mean)
    assert got.error.mean == pytest.approx(sum(off) / 4)


def test_where_every_worker_costs_the_same_the_forecast_is_right() -> None:
    got = forecast(concat([team(k) for k in (1, 2, 3, 4, 5, 2)]), PRICES)
    assert got.error.mean == pytest.approx(0.0, abs=1e-12)


def test_tokens_that_are_not_recorded_are_not_free() -> None:
    silent = Trace.of(trace_id_n=Text.of(["silent"]))
    plain = run("decide lead", ("call ann", [0]), ("return ann>lead", [1]))
    got = bill(concat([team(2), plain, silent]), PRICES)
    assert np.isnan(got.total_n).tolist() == [False, True, True]


def test_without_a_price_of_tokens_nobody_asks_for_them() -> None:
    plain = run("spawn lead>ann", ("call ann", [0]), ("call lead", [0]), ("return ann>lead", [1]))
    got = bill(plain, Prices(tool_call=2.0))
    assert (got.agents_n.tolist(), got.orchestration_n.tolist(), got.total_n.tolist()) == ([2.0], [2.0], [4.0])


def test_no_runs_and_one() -> None:
    assert all(len(column) == 0 for column in bill(Trace.of(trace_id_n=Text.of([])), PRICES))
    assert forecast(team(2), PRICES).predicted.n == 0  # there is no other run to learn from


def test_prices_as_one_writes_them() -> None:
    assert price_list("token_in=1e-6, tool_call=2") == Prices(token_in=1e-6, tool_call=2.0)
    assert price_list("") == Prices()
    for text, said in (
        ("gold=1", "no price of 'gold'"),
        ("spawn=x", "must be a number"),
        ("spawn=-1", "0 or more"),
    ):
        with pytest.raises(BadMetrics, match=said):
            price_list(text)


def test_in_a_world_the_model_is_right_on_average_and_off_by_a_fifth_a_run() -> None:
    """It knows how many sub-agents there were, not how much each had to read."""
    world = make("expedition", leg_price=0.1)
    trace = world.trace(play(world, world.optimal(), seeds(2, 2000), log=True).state)
    got = forecast(trace, Prices(token_in=3e-6, token_out=1.5e-5, tool_call=0.001))
    assert got.predicted.mean == pytest.approx(got.measured.mean, rel=0.02)
    assert 0.1 < got.error.mean < 0.3
