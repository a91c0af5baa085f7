"""Rehearsals: the imitation does what the model does, the critic learns what options are worth, and a model learns by what it says, the same in a process of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from experiments.lm.critic import Critic, Found, Imitation  # noqa: E402
from experiments.lm.explore import Practice, sampled  # noqa: E402
from experiments.lm.practice import Coach, Lecture, critic_pay, practised  # noqa: E402
from experiments.lm.rehearse import Aside, Rehearsal, Sketch, imitable, lessons_of  # noqa: E402
from experiments.lm.states import Book, lots, side_by_side  # noqa: E402
from podium.engine.models import policy_team  # noqa: E402
from podium.envs.draws import seeds  # noqa: E402
from podium.envs.world import World, make  # noqa: E402
from podium.learn.lm.policy import LmPolicy  # noqa: E402
from podium.learn.lm.settings import Settings  # noqa: E402

SETTINGS = Settings(digits=3, most=6, most_tokens=8_192)
SMALL = Practice(
    budget=10_000, learned=2_000, at_least=2, at_most=64, step=1_000, rehearsed=600, stages=2, fits=10, rows=64
)


def rehearsal(world: World, how: Practice = SMALL) -> Rehearsal:
    return Rehearsal(Imitation(world, 1, 4), Critic(world, 0, 8), SETTINGS, how, 0)


def played(world: World, n: int, go: Any) -> Sketch:
    """Episodes by a policy that is a function of what is seen."""
    teller: Any = type("Teller", (), {"says": staticmethod(go)})()
    book = Sketch(world, SETTINGS, teller, Critic(world, 0, 4))
    side_by_side([book], [sampled(book, seeds(0, n))])
    return book


def votes(seen: Any) -> Any:
    """Goes on with .9 before the first vote, else with .2."""
    go = np.where(seen.facts[:, 2] + seen.facts[:, 3] == 0, 0.9, 0.2)
    return np.log(np.column_stack([1 - go, go]).ravel())


def test_an_imitation_does_what_the_model_does() -> None:
    world = make("sprt", p=0.7, c=0.01, most=4)
    book = played(world, 60, votes)
    found = [f for f in imitable(book) if len(f.seen)]
    assert sum(float(f.stands.sum()) for f in found) == book.visits.sum() >= 60
    imitation = Imitation(world, 0, 4)
    imitation.add(found)
    imitation.fit(150, 64, 3e-3)
    for at, seen, _ in book.seen(np.arange(len(book))):
        both = seen.start[1:] - seen.start[:-1] == 2
        said, meant = (np.exp(x[seen.start[:-1]][both]) for x in (imitation.says(seen), votes(seen)))
        weight = book.visits[at][both]
        assert float((weight * np.abs(said - meant)).sum() / weight.sum()) < 0.05


def test_what_was_found_by_hand() -> None:
    """Two decisions in one state, at which options earned 1, 0 and 0, 0, stand for one row; an option that was not tried has no value."""
    world = make("scouts", c=0.03, latency=0.01, widest=2)
    book = played(world, 4, lambda seen: np.full(len(seen.option), -np.log(3.0)))
    earned = np.array([[1.0, 0.0, np.nan], [0.0, 0.0, np.nan], [0.0, 3.0, 0.0]])
    found = lessons_of(book, np.array([0, 0, 0]), earned)
    assert len(found) == 1
    rows = {tuple(tried): (value, n) for tried, value, n in zip(*_shaped(found[0]), strict=True)}
    np.testing.assert_allclose(rows[1.0, 1.0, 0.0][0], [0.25, -0.25, 0.0])
    np.testing.assert_allclose(rows[1.0, 1.0, 1.0][0], [-1.0, 2.0, -1.0])
    assert (rows[1.0, 1.0, 0.0][1], rows[1.0, 1.0, 1.0][1]) == (2.0, 1.0)


def _shaped(found: Found) -> tuple[Any, Any, Any]:
    return found.tried.reshape(-1, 3).tolist(), found.value.reshape(-1, 3), found.stands


def test_a_critic_learns_what_options_are_worth() -> None:
    """One vote that is right nine times in ten and costs .01 is worth .9 - .01 - .5 more than none."""
    world = make("sprt", p=0.9, c=0.01, most=1)
    rehearsed = rehearsal(world, replace(SMALL, fits=40, lean=10.0))
    uniform = played(
        world, 8, lambda seen: -np.log(np.repeat(np.diff(seen.start), np.diff(seen.start)).astype(float))
    )
    for _ in range(6):
        told = rehearsed.once([world, world], imitable(uniform))
    (_, seen, _), *_ = uniform.seen(np.zeros(1, np.int64))
    above = rehearsed.critic.says(seen) * told.unit
    np.testing.assert_allclose(above, [-0.195, 0.195], atol=0.06)


def test_pay_of_a_critic_by_hand() -> None:
    book: Any = type("book", (), {})()
    book.logp = np.array([[-0.7, -0.7, -np.inf], [-1.6, -1.2, -0.7], [0.0, -np.inf, -np.inf]])
    book.hint, book.visits = (
        np.array([[1.0, -1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
        np.array([2.0, 5.0, 1.0]),
    )
    pay = critic_pay(book, np.arange(3), heat=0.5)
    assert pay.state.tolist() == [0]  # nothing is at stake elsewhere
    unit = np.sqrt(2 * 2 / (2 * 2 + 5 * 3 + 1))
    odds = np.exp(np.array([0.0, -2.0]) / (0.5 * unit))
    np.testing.assert_allclose(pay.met, [2 * min(2 / unit, 3.0)])
    np.testing.assert_allclose(pay.up[0], [*(pay.met[0] * odds / odds.sum()), 0.0])
    assert not pay.down.any()


def run(apart: bool, iterations: int = 2) -> list[Lecture]:
    crew = policy_team("tiny", ["lead"])
    settings = replace(SETTINGS, worlds=2)
    learner = LmPolicy(crew, 0, settings, 1.0)
    coach = Coach(make("sprt"), settings, SMALL, 0, apart=apart)
    try:
        worlds = [make("sprt", c=c) for c in (0.01, 0.02, 0.015, 0.025)]
        told = [
            practised(learner, settings, SMALL, lambda i, k: worlds[k], float("inf"), 3, coach)
            for _ in range(iterations)
        ]
    finally:
        coach.aside.end()
    return [one._replace(seconds={}) for one in told]


def test_an_iteration_with_a_critic_repeats_and_is_the_same_in_a_process_of_its_own() -> None:
    here = run(False)
    assert here == run(False) == run(True)
    assert all(one.learned > 0 < one.steps for one in here)
    assert here[0].rehearsal["decisions"] > 0


def test_a_model_learns_by_its_critic() -> None:
    """Where one vote may be bought, which is right nine times in ten, to buy it."""
    settings = Settings(digits=2, most=1, rate=1e-3, epochs=1, most_tokens=8_192)
    crew, world = policy_team("tiny", ["lead"]), make("sprt", p=0.9, c=0.01)
    learner, how = LmPolicy(crew, 0, settings, 1.0), replace(SMALL, at_least=16, fits=20)
    coach = Coach(world, settings, how, 0)
    for _ in range(8):
        practised(learner, settings, how, lambda i, k: world, float("inf"), 16, coach)
    book = Book(world, crew, settings)
    side_by_side([book], [sampled(book, seeds(0, 1))])
    assert book.logp[0, world.options.index("go on")] > np.log(0.8)


@pytest.mark.parametrize("most", [300, 2_000, 50_000])
def test_every_state_is_in_one_lot_and_lots_fit(most: int) -> None:
    world, crew = make("costly_search", c=0.02), policy_team("tiny", ["lead"])
    book = Book(world, crew, replace(SETTINGS, most_tokens=1 << 20))
    side_by_side([book], [sampled(book, seeds(0, 12))])
    places = [(book, s) for s in range(len(book))]
    made = list(lots(places, most))
    assert sorted(s for lot in made for _, s in lot) == list(range(len(book)))
    for lot in made:
        longest = max(len(book.prompts[s].ids) for _, s in lot)
        assert len(lot) == 1 or len(lot) * longest <= most


def test_a_rehearsal_keeps_to_its_number_of_decisions() -> None:
    world = make("crew", W=3, N=6)
    rehearsed = rehearsal(world)
    aside = Aside(rehearsed, apart=False)
    uniform = played(world, 4, lambda seen: np.full(len(seen.option), -np.log(3.0)))
    told = [aside.begin([world, world], imitable(uniform)).result() for _ in range(4)]
    assert abs(told[-1].decisions / SMALL.rehearsed - 1) < 0.6
    assert told[0].late is not told[1].late
