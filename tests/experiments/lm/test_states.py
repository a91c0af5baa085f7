"""Text worlds by the state: the odds are those of the trace's way, each prompt is weighed once, credit is pooled as it says, and a world is learned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from experiments.lm import states  # noqa: E402
from experiments.lm.explore import Practice, Taken, explored, greedy_scores, sampled  # noqa: E402
from experiments.lm.practice import (  # noqa: E402
    Pay,
    paced,
    practised,
    some_of,
    state_loss,
    trajectory_pay,
)
from experiments.lm.states import Book, Prompt, side_by_side  # noqa: E402
from podium.engine.models import BadModel, OutOfMemory, PolicyTeam, policy_team  # noqa: E402
from podium.envs.draws import seeds  # noqa: E402
from podium.envs.world import make, play  # noqa: E402
from podium.learn.lm.policy import LmPolicy, own_weights  # noqa: E402
from podium.learn.lm.settings import Settings  # noqa: E402
from podium.learn.lm.text_world import PlaySettings, record, scores  # noqa: E402

SETTINGS = Settings(digits=3, most=3, most_tokens=2_048)
SMALL = Practice(budget=10_000, learned=2_000, at_least=2, at_most=64, step=1_000)


@pytest.fixture(scope="module")
def tiny() -> PolicyTeam:
    return policy_team("tiny", ["lead", "mate 1", "mate 2"])


def odds(world: Any, crew: PolicyTeam, n: int = 4) -> tuple[Book, Taken]:
    book = Book(world, crew, SETTINGS)
    return book, side_by_side([book], [sampled(book, seeds(0, n))])[0]


@pytest.mark.parametrize("name", ["scouts", "relay", "costly_search"])
def test_odds_are_those_of_the_trace_where_an_agent_begins(name: str, tiny: PolicyTeam) -> None:
    world = make(name)
    _, actor = record(world, tiny, seeds(0, 4), PlaySettings(digits=3, most=3), version="0", task="a")
    book, _ = odds(world, tiny)
    view = world.view(world.start(seeds(0, 4)))
    assert view is not None
    for i, state in enumerate(book.note(view).tolist()):
        turn = actor.turns[i][0]
        assert turn is not None
        told = [sum(way) for way in turn.answer.option_logp]
        np.testing.assert_allclose(book.logp[state][view.allowed[i]], told, atol=2e-5)
        assert np.isneginf(book.logp[state][~view.allowed[i]]).all()


def test_the_likeliest_is_the_same_both_ways_in_a_world_of_one_turn(tiny: PolicyTeam) -> None:
    world, dice = make("jury", m=5, s=3), seeds(3, 24)
    by_state = greedy_scores(world, tiny, SETTINGS, dice)
    np.testing.assert_array_equal(by_state, scores(world, tiny, dice, PlaySettings(digits=3)))


def test_states_that_do_not_fit_are_weighed_by_halves(tiny: PolicyTeam, monkeypatch: pytest.MonkeyPatch) -> None:
    world, dice = make("jury", m=5, s=3), seeds(3, 24)
    expected, real, sizes = greedy_scores(world, tiny, SETTINGS, dice), states.log_odds, list[int]()

    def small(policy: Any, some: Any) -> Any:
        sizes.append(len(some))
        if len(some) > 3:
            raise torch.OutOfMemoryError("no room")
        return real(policy, some)

    monkeypatch.setattr(states, "log_odds", small)
    np.testing.assert_array_equal(greedy_scores(world, tiny, SETTINGS, dice), expected)
    assert max(sizes) > 3

    def full(policy: Any, some: Any) -> Any:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(states, "log_odds", full)
    with pytest.raises(OutOfMemory, match=r"out of memory in reading one context of \d+ tokens"):
        greedy_scores(world, tiny, SETTINGS, dice)


def test_a_prompt_is_weighed_once(tiny: PolicyTeam, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []
    plain = states.log_odds

    def counted(policy: Any, some: Any) -> Any:
        asked.extend(prompt for prompt, _ in some)
        return plain(policy, some)

    monkeypatch.setattr(states, "log_odds", counted)
    _, taken = odds(make("relay", n=2), tiny, 64)
    assert len(set(asked)) == len(asked) < len(taken.state) / 2


def test_worlds_side_by_side_are_as_each_alone(tiny: PolicyTeam) -> None:
    made = [make("costly_search", c=c) for c in (0.03, 0.06)]
    alone = [
        side_by_side([b], [explored(b, seeds(0, 8), SMALL, 1.0)])[0]
        for b in (Book(w, tiny, SETTINGS) for w in made)
    ]
    books = [Book(w, tiny, SETTINGS) for w in made]
    beside = side_by_side(books, [explored(b, seeds(0, 8), SMALL, 1.0) for b in books])
    for one, other in zip(alone, beside, strict=True):
        np.testing.assert_array_equal(one.state, other.state)
        np.testing.assert_array_equal(one.earned, other.earned)


def test_a_branch_earns_what_its_option_earns_by_the_same_dice(tiny: PolicyTeam) -> None:
    """In a world of one turn it is what the option is worth there."""
    world, dice = make("jury", m=5, s=3), seeds(5, 16)
    book = Book(world, tiny, SETTINGS)
    tried = side_by_side([book], [explored(book, dice, SMALL, 1.0)])[0]
    for option in (0, 1):
        sure = play(world, lambda view, k=option: np.full(len(view), k), dice.copy()).score
        np.testing.assert_array_equal(tried.earned[:, option], sure)


def test_trajectories_are_paid_alike_in_all_their_decisions() -> None:
    taken = Taken(np.array([0, 1, 0]), np.array([0, 1, 1]), np.array([0, 0, 1]), np.array([1.0, 0.0]), 3)
    pay = trajectory_pay(taken, 2)
    np.testing.assert_allclose(pay.up, [[1, 0], [0, 1]], atol=1e-5)
    np.testing.assert_allclose(pay.down, [[0, -1], [0, 0]], atol=1e-5)
    assert pay.met.tolist() == [2.0, 1.0]


def test_the_loss_pushes_by_what_is_paid_and_no_further_than_its_bound() -> None:
    old = torch.log(torch.tensor([[0.999999, 0.000001]]))
    logits = old.clone().requires_grad_()
    up, down, met = torch.tensor([[0.0, 0.5]]), torch.tensor([[-0.5, 0.0]]), torch.ones(1)
    state_loss(logits.log_softmax(1), old, up, down, met, clip=0.3, doubt=0.0).backward()
    assert logits.grad is not None
    np.testing.assert_allclose(logits.grad.numpy(), [[0.5, -0.5]], atol=1e-5)  # however rare the better option is
    far = torch.log(torch.tensor([[0.5, 0.5]])).requires_grad_()
    state_loss(far.log_softmax(1), old, up, down, met, clip=0.3, doubt=0.0).backward()
    assert far.grad is not None
    assert not far.grad.any()


def test_states_are_drawn_so_that_they_count_as_all_would() -> None:
    book: Any = type("book", (), {"prompts": [Prompt("all", (0,) * 10, (0, 1))] * 200})()
    met = np.arange(1.0, 201.0)
    pay = Pay(np.arange(200), np.ones((200, 2)), -np.ones((200, 2)), met)
    some = [some_of(pay, book, 500, np.random.default_rng(i)) for i in range(300)]
    assert abs(np.mean([len(one.state) for one in some]) - 50) < 2
    assert abs(np.mean([one.met.sum() for one in some]) / met.sum() - 1) < 0.02


def test_episodes_are_as_many_as_the_tokens_that_are_wanted() -> None:
    first = paced(SMALL, None)
    told: Any = type("told", (), {"episodes": 8, "weighed": SMALL.budget // 2, "tokens": SMALL.budget // 2})()
    assert (first, paced(SMALL, told)) == (2 * SMALL.at_least, 4)
    told.weighed = told.tokens = 1
    assert paced(SMALL, told) == 24


def test_an_iteration_repeats() -> None:
    def once() -> tuple[Any, Any]:
        crew = policy_team("tiny", ["lead"])
        learner = LmPolicy(crew, 0, SETTINGS, 1.0)
        told = practised(learner, replace(SETTINGS, worlds=2), SMALL, lambda i, k: make("sprt"), float("inf"), 4)
        return told._replace(seconds={}), {k: w.detach().clone() for k, w in own_weights(crew).items()}

    (one, weights), (other, again) = once(), once()
    assert one == other
    assert all(torch.equal(w, again[k]) for k, w in weights.items())
    assert one.learned > 0
    assert one.steps > 0


def test_what_earns_more_becomes_likelier() -> None:
    """Where one vote may be bought, which is right nine times in ten, to buy it."""
    settings = Settings(digits=2, most=1, rate=1e-3, entropy=0.01, even=0.5, epochs=1, most_tokens=8_192)
    crew, world = policy_team("tiny", ["lead"]), make("sprt", p=0.9, c=0.01)
    learner, how = LmPolicy(crew, 0, settings, 1.0), replace(SMALL, at_least=32)

    def odds_now() -> float:
        book = Book(world, crew, settings)
        side_by_side([book], [sampled(book, seeds(0, 1))])
        return float(book.logp[0, world.options.index("go on")])

    before = odds_now()
    for _ in range(6):
        practised(learner, settings, how, lambda i, k: world, float("inf"), 64)
    assert odds_now() > max(before, np.log(0.8))


def test_what_does_not_fit_into_a_context_is_said(tiny: PolicyTeam) -> None:
    policy = tiny.policies["all"]
    book, _ = odds(make("jury"), tiny, 1)
    ids, fan = book.asked(0)
    with pytest.raises(BadModel, match="takes"):
        states.log_odds(policy, [(ids * 100, fan)])
