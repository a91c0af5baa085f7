"""The report card: the five points of the survey's checklist, and which dimensions are reported."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from scripted import run

from podium.envs.draws import seeds
from podium.envs.world import make, play
from podium.metrics import card, measure
from podium.trace.columns import Text, Trace, concat


def small() -> Trace:
    return run(
        ("decide lead", (), {"role": "lead", "end": 1.0, "tokens_in": 10.0, "tokens_out": 1.0}),
        ("spawn lead>ann", [(0, "spawn")]),
        ("call ann", [1], {"role": "worker", "tokens_in": 4.0, "tokens_out": 5.0}),
        ("result web", [(2, "return")], {"trusted": 0}),
        ("message ann>lead", [3], {"trusted": 1}),
        ("return ann>lead", [3]),
        ("human_intervention boss", [5]),
        ("aggregate lead", [(5, "aggregate")], {"t": 7.0, "end": 9.0}),
        reward={"team": 1.0},
    )


def test_the_time_of_a_run_is_what_it_states_or_else_from_its_first_start_to_its_last_end() -> None:
    starts = run("decide lead", ("message lead", [0], {"t": 5.0}), reward={"team": 1.0})
    both = concat([small(), small(), starts])
    stated = replace(both, cost_n={"wall_clock_s": np.array([20.0, np.nan, np.nan])})
    assert card(stated)["2 trace scale"]["wall clock a run, s"] == pytest.approx((20.0 + 9.0 + 5.0) / 3)


def test_the_five_points_by_hand() -> None:
    got = card(small())
    assert got["1 topology and roles"] == {
        "topologies": {"not recorded": 1},
        "active roles": ["lead", "worker"],
        "spawns a run": 1.0,
        "despawns a run": 0.0,
        "team": "dynamic",
    }
    assert got["2 trace scale"] == {
        "runs": 1,
        "events a run": 8.0,
        "messages a run": 1.0,
        "tool calls a run": 1.0,
        "sub-agents a run": 1.0,
        "wall clock a run, s": 9.0,
        "tokens a run": 20.0,
        "edges that were inferred": 0,
    }
    assert got["3 reward channels"] == {
        "on runs": ["team"],
        "on events": [],
        "expression": None,
        "auxiliaries annealed": None,
    }
    assert got["4 credit unit"] == {"finest unit paid": "team (rewards on runs only)"}
    assert got["5 safety instrumentation"] == {
        "tool output": {"events": 1, "marked trusted or not": 1},
        "messages between agents": {"events": 2, "marked trusted or not": 1},
        "shared memory": {"events": 0, "marked trusted or not": 0},
        "human interventions": 1,
        "untrusted": 1,
    }


def test_three_dimensions_of_four_are_native() -> None:
    got = card(small())
    assert [d for d, one in got["dimensions"].items() if one["reported"]] == ["E1", "E2", "E4"]
    assert got["native"] is True
    assert got["dimensions"]["E3"]["silent"] == ["message redundancy", "consensus", "diversity", "resolution"]
    assert "what-if headroom" in got["dimensions"]["E2"]["assuming"]


def test_of_nothing_nothing_is_reported() -> None:
    for empty in (Trace.of(trace_id_n=Text.of([])), Trace.of(trace_id_n=Text.of(["silent"]))):
        got = card(empty)
        assert got["native"] is False
        assert not any(one["reported"] for one in got["dimensions"].values())
        assert got["2 trace scale"]["tokens a run"] is None
        assert got["2 trace scale"]["wall clock a run, s"] is None
        assert got["4 credit unit"] == {"finest unit paid": None}


@pytest.mark.parametrize(
    ("reward", "annealed", "unit"),
    [
        ("outcome", False, "team"),
        ("outcome + anneal(0.1 * finish)", True, "team"),
        ("outcome - 0.1 * invalid_calls", False, "tool_call"),
        ("said + step", False, "message"),  # finer than a turn, though not later in the alphabet
    ],
)
def test_what_the_record_cannot_say_is_told(reward: str, annealed: bool, unit: str) -> None:
    got = card(small(), reward=reward)
    assert got["3 reward channels"]["expression"] == reward
    assert got["3 reward channels"]["auxiliaries annealed"] is annealed
    assert got["4 credit unit"]["finest unit paid"] == unit
    assert card(small(), credit="token")["4 credit unit"]["finest unit paid"] == "token"


def test_rewards_on_events_are_said_to_be() -> None:
    one = run(("call ann", (), {"reward": {"step": 1.0, "judge": np.nan}}))
    assert card(one)["3 reward channels"]["on events"] == ["step"]
    assert card(one)["4 credit unit"]["finest unit paid"].startswith("event")


def test_a_channel_of_some_events_is_a_channel() -> None:
    one = run(("call ann", (), {"reward": {"step": 1.0}}), ("call bob", (), {}))
    assert card(one)["3 reward channels"]["on events"] == ["step"]


def test_what_one_wrote_and_another_read_is_shared_memory() -> None:
    world = make("expedition", poison=1, leg_price=0.1)
    policy = world._same(1, 0, 1, 2, 2)  # two legs of three briefed scouts, each of whom reads the note
    trace = world.trace(play(world, policy, seeds(0, 5), log=True).state)
    shared = card(trace)["5 safety instrumentation"]["shared memory"]
    assert shared == {"events": 30, "marked trusted or not": 30}  # poisoned from the first leg on


def test_a_card_may_be_given_what_was_measured_and_is_plain_json() -> None:
    trace = concat([small(), small()])
    assert card(trace, measure(trace)) == card(trace)
    assert msgspec.json.decode(msgspec.json.encode(card(trace))) == card(trace)
