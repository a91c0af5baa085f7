"""Every world obeys every law, and every law is broken by a world that lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from podium.envs.conformance import faults, fit
from podium.envs.costly_search import GO_ON, CostlySearch, SearchParams
from podium.envs.draws import seeds
from podium.envs.world import BadParameter, Policy, View, checked, make, play, worlds
from podium.trace.columns import F


@pytest.mark.parametrize("name", worlds())
def test_a_world_obeys_every_law(name: str) -> None:
    assert faults(make(name)) == []


@pytest.mark.parametrize("name", worlds())
def test_what_it_promises_on_is_fit_for_a_promise(name: str) -> None:
    assert fit(make(name, **worlds()[name].promise)) == []


@pytest.mark.parametrize("name", worlds())
def test_held_out_parameters_are_allowed_and_others(name: str) -> None:
    dice = np.random.default_rng(0)
    drawn = [worlds()[name].held_out(dice) for _ in range(5)]
    for params in drawn:
        assert np.isfinite(make(name, **params).optimum())
    assert any(p != drawn[0] for p in drawn)


class Liar(CostlySearch):
    """An honest world; each test makes it lie in one way."""


def lying(**lies: Any) -> CostlySearch:
    return type("Lying", (Liar,), lies)(SearchParams())


def test_who_is_honest_has_no_faults() -> None:
    assert faults(lying()) == []


def test_an_agent_that_nobody_spawned() -> None:
    def _log(self: Any, state: Any, view: View, choice: Any) -> None:
        CostlySearch._log(self, state, view, choice)
        if state.log is not None:
            state.log.add(view.row, "message", "stranger", 3.0 * state.count[view.row] + 0.5)

    assert any("nobody spawned: stranger" in f for f in faults(lying(_log=_log)))


def test_an_agent_that_leaves_a_world_without_spawns() -> None:
    def _log(self: Any, state: Any, view: View, choice: Any) -> None:
        CostlySearch._log(self, state, view, choice)
        if state.log is not None:
            done = view.row[choice != GO_ON]
            state.log.add(done, "despawn", "lead", 3.0 * state.count[done] + 1.5, to="lead")

    assert "an agent leaves an episode in which nobody was spawned" in faults(lying(_log=_log))


def test_a_decision_that_is_not_in_the_trace() -> None:
    def _log(self: Any, state: Any, view: View, choice: Any) -> None:
        if state.log is not None:
            state.log.add(view.row, "message", "lead", 3.0 * state.count[view.row])

    found = faults(lying(_log=_log))
    assert any("decisions were made, 0 are in the traces" in f for f in found)


def test_a_trace_that_breaks_a_rule() -> None:
    def _log(self: Any, state: Any, view: View, choice: Any) -> None:
        CostlySearch._log(self, state, view, choice)
        if state.log is not None:
            state.log.add(view.row, "tool_result", "ghost", 3.0 * state.count[view.row] + 2, tool="ghost")

    assert any("break a rule: orphan-result" in f for f in faults(lying(_log=_log)))


def test_an_episode_that_looks_at_its_neighbours() -> None:
    def act(self: Any, state: Any, view: View, choice: NDArray[np.int64]) -> None:
        CostlySearch.act(self, state, view, choice)
        state.score[~state.open] += 1e-3 * len(state.seed)

    assert "an episode depends on those that are played beside it" in faults(lying(act=act))


def test_dice_that_nobody_can_throw_again() -> None:
    dice = np.random.default_rng(0)

    def act(self: Any, state: Any, view: View, choice: NDArray[np.int64]) -> None:
        CostlySearch.act(self, state, view, choice)
        state.score += dice.random(len(state.score))

    assert any("the same seeds give other traces" in f for f in faults(lying(act=act)))


def test_a_replay_that_draws_by_order() -> None:
    class State:
        drawn = 0

    def act(self: Any, state: Any, view: View, choice: NDArray[np.int64]) -> None:
        CostlySearch.act(self, state, view, choice)
        State.drawn += 1
        state.score[~state.open] = (State.drawn * 0.37) % 1.0

    assert any("gives another history" in f or "other traces" in f for f in faults(lying(act=act)))


def test_an_option_that_opens_by_what_nobody_sees() -> None:
    def view(self: Any, state: Any) -> View | None:
        seen = CostlySearch.view(self, state)
        if seen is not None:
            seen.allowed = seen.allowed & np.stack(
                [np.ones(len(seen), bool), state.seed[seen.row] % np.uint64(2) == 0], 1
            )
        return seen

    assert any("depends on more than the agent" in f for f in faults(lying(view=view)))


def test_a_text_that_hides_something() -> None:
    def view(self: Any, state: Any) -> View | None:
        seen = CostlySearch.view(self, state)
        if seen is not None:
            honest, calls = seen.items, iter((0.0, 1.0) * 1000)

            def items() -> tuple[F, NDArray[np.int64]]:
                values, owner = honest()
                return values + next(calls), owner

            seen.items = items
        return seen

    assert "its text does not say what its arrays say" in faults(lying(view=view))


def test_an_optimum_that_is_not() -> None:
    assert any("the optimum is said to be" in f for f in faults(lying(optimum=lambda self: 0.9)))
    low = faults(lying(optimum=lambda self: 0.5))
    assert any("beats the optimum" in f for f in low)


def test_a_world_that_never_ends() -> None:
    def view(self: Any, state: Any) -> View | None:
        seen = CostlySearch.view(self, state)
        if seen is not None:
            seen.allowed = np.zeros_like(seen.allowed)
        return seen

    from podium.envs.conformance import ends

    assert list(ends(lying(view=view))) == ["somebody must decide and may do nothing"]


def test_recording_that_changes_the_score() -> None:
    def act(self: Any, state: Any, view: View, choice: NDArray[np.int64]) -> None:
        CostlySearch.act(self, state, view, choice)
        if state.log is not None:
            state.score[~state.open] = 0.0

    assert "an episode scores otherwise when it is recorded" in faults(lying(act=act))


def test_a_set_that_is_not_fit() -> None:
    def trivial(self: Any) -> dict[str, Policy]:
        return {"cheat": self.optimal()}

    assert any("'cheat' loses only" in f for f in fit(lying(trivial=trivial)))


def test_mistakes_are_told() -> None:
    with pytest.raises(BadParameter, match="no world called 'nope'; there are"):
        make("nope")
    with pytest.raises(BadParameter, match="has no parameter 'q'; there are c, most"):
        make("costly_search", q=1)
    for wrong in (-1.0, float("nan"), "x", None):
        with pytest.raises(BadParameter, match="c must be a price above 0, got"):
            make("costly_search", c=wrong)
    world = make("costly_search", most=1)
    with pytest.raises(BadParameter, match="expected 3 option numbers"):
        play(world, lambda view: np.zeros(1, int), seeds(0, 3))
    with pytest.raises(BadParameter, match="row 0 may choose stop; got option 1"):
        play(world, lambda view: np.full(len(view), GO_ON), seeds(0, 3))
    view = world.view(world.start(seeds(0, 2)))
    assert view is not None
    with pytest.raises(BadParameter, match="got option 7"):
        checked(world, view, np.array([7, 0]))


def test_lambda_is_a_name_that_a_user_may_give() -> None:
    assert make("crew", **{"lambda": 0.2}).params == make("crew", lam=0.2).params


@pytest.mark.parametrize("name", ["costly_search", "cayley_moser", "secretary", "sprt", "scouts", "pandora"])
def test_what_was_found_is_in_the_trace_as_it_is_in_the_view(name: str) -> None:
    world = make(name)
    played = play(world, world.optimal(), seeds(1, 50), log=True)
    trace = world.trace(played.state)
    column = {"pandora": 3, "scouts": 1}.get(name, 0)  # where the view keeps it
    played.state.open[:] = True
    view = world.view(played.state)
    assert view is not None
    items, owner = view.items()
    for i, one in enumerate(trace):
        mine = items[owner == i]
        seen = mine[mine[:, 2] > 0, column] if name == "pandora" else mine[:, column]  # of boxes that were opened
        found = [float(v) for v in one.extra_e["value"].strings() if v is not None]
        assert sorted(found) == sorted(seen[~np.isnan(seen)].tolist())
