"""Generation: what a context yields is what a plain forward gives, and the same bits whatever is read beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from podium.envs.draws import seeds  # noqa: E402
from podium.learn.lm.generate import Options, log_softmax, picked, speak  # noqa: E402
from podium.learn.lm.models import BadModel, Mind, tiny  # noqa: E402
from podium.learn.lm.reader import Reader  # noqa: E402

END = 256


@pytest.fixture(scope="module")
def mind() -> Mind:
    return Mind("all", tiny())


@pytest.fixture(scope="module")
def rows() -> list[tuple[int, ...]]:
    dice = np.random.default_rng(0)
    return [tuple(dice.integers(0, 256, n).tolist()) for n in (1, 2, 31, 32, 33, 64, 65, 90, 5, 17)]


def plain(mind: Mind, ids: Any) -> Any:
    with torch.no_grad():
        return mind.wake()(input_ids=torch.tensor([list(ids)])).logits[0].numpy()


def test_read_is_a_plain_forward_however_it_is_cut(mind: Mind, rows: list[tuple[int, ...]]) -> None:
    reader = Reader(mind, rows=4, width=8)
    threads = reader.threads(len(rows))
    found = reader.read(threads, rows)
    for got, ids in zip(found, rows, strict=True):
        np.testing.assert_allclose(got, plain(mind, ids)[-1], atol=1e-5)
    more = [ids[:7] for ids in rows[::-1]]
    found = reader.read(threads, more)
    for got, ids, then in zip(found, rows, more, strict=True):
        np.testing.assert_allclose(got, plain(mind, ids + then)[-1], atol=1e-5)


@pytest.mark.parametrize("some", [[3], [9, 1, 4], [0, 2, 3, 4, 5, 6, 7, 8]])
def test_the_same_bits_beside_any_others(mind: Mind, rows: list[tuple[int, ...]], some: list[int]) -> None:
    every, few = Reader(mind, rows=4), Reader(mind, rows=4)
    all_of = every.read(every.threads(len(rows)), rows)
    few.threads(2)  # so that threads have other numbers
    assert np.array_equal(few.read(few.threads(len(some)), [rows[i] for i in some]), all_of[some])


def test_what_is_the_same_is_computed_once(mind: Mind) -> None:
    reader = Reader(mind, rows=4)
    threads, before = reader.threads(6), reader.engine.tokens
    reader.read(threads, [(1, 2, 3)] * 6)
    assert reader.engine.tokens - before == 3
    apart = reader.read(threads, [(4, 5)] * 3 + [(4, 6)] * 3)
    assert reader.engine.tokens - before == 7
    np.testing.assert_allclose(apart[5], plain(mind, (1, 2, 3, 4, 6))[-1], atol=1e-5)


def test_threads_are_copied_and_rewound(mind: Mind) -> None:
    reader = Reader(mind, rows=4)
    one = reader.threads(1)
    then = reader.read(one, [(1, 2, 3)])
    length, state = reader.length[one].copy(), reader.state[one].copy()
    reader.read(one, [(4, 5, 6)])
    two = reader.threads(1)
    reader.copy(one, two)
    reader.rewind(two, length, state)
    assert np.array_equal(reader.read(two, [(9, 8)]), Reader_of(mind, (1, 2, 3), (9, 8)))
    assert np.array_equal(then, Reader_of(mind, (1, 2, 3)))


def Reader_of(mind: Mind, *parts: tuple[int, ...]) -> Any:  # noqa: N802
    reader = Reader(mind, rows=4)
    thread = reader.threads(1)
    for part in parts:
        last = reader.read(thread, [part])
    return last


def test_options_are_a_distribution_by_the_masked_product(mind: Mind) -> None:
    """Against brute force: the full softmax, cut down at each token to what options can go on with."""
    labels = ["stop", "spawn 1", "spawn 10", "spawn 2"]
    options = Options([mind.model.ids(label) for label in labels], END)
    prompt = mind.model.ids("how many?\n> ")
    reader = Reader(mind, rows=4)
    thread = reader.threads(1)
    parted = options.score(reader, thread, reader.read(thread, [prompt]))
    total = np.array([options.logp(k, parted).sum() for k in range(4)])
    assert np.isclose(np.exp(total).sum(), 1.0)
    for k, path in enumerate(options.paths):
        logits = plain(mind, prompt + path)
        by_hand = 0.0
        for i, among in enumerate(options.among(k)):
            z = logits[len(prompt) - 1 + i].astype(np.float64)
            by_hand += z[path[i]] - np.log(np.exp(z[list(among)]).sum())
        assert np.isclose(total[k], by_hand, atol=1e-5)
    assert reader.length[thread] == len(prompt)  # the thread is as it was
    with pytest.raises(BadModel, match="two options are the same tokens"):
        Options([(1, 2), (1, 2)], END)


def test_free_answers_carry_the_log_probabilities_of_their_tokens(mind: Mind) -> None:
    prompts = [mind.model.ids(f"say {k}\n> ") for k in range(5)]

    def said(some: list[int]) -> list[Any]:
        reader = Reader(mind, rows=4)
        threads = reader.threads(len(some))
        first = reader.read(threads, [prompts[i] for i in some])
        return speak(reader, threads, first, seeds(0, 5)[some], np.array(some), 6)

    every = said([0, 1, 2, 3, 4])
    assert said([3, 1]) == [every[3], every[1]]  # ids and log-probabilities, to the bit
    for prompt, answer in zip(prompts, every, strict=True):
        assert len(answer.ids) == 6 or answer.ended
        logp = log_softmax(plain(mind, (*prompt, *answer.ids)).astype(np.float64))
        own = logp[np.arange(len(answer.ids)) + len(prompt) - 1, answer.ids]
        np.testing.assert_allclose(answer.logp, own, atol=1e-5)


def test_an_answer_ends_with_its_token() -> None:
    model = tiny()
    with torch.no_grad():
        model.module.get_input_embeddings().weight[END] *= 100  # tied with the head
    reader = Reader(Mind("all", model), rows=4)
    threads = reader.threads(8)
    first = reader.read(threads, [(k + 1,) for k in range(8)])
    answers = speak(reader, threads, first, seeds(0, 8), np.zeros(8, np.int64), 4, greedy=True)
    assert any(a.ended and a.ids[-1] == END for a in answers)


def test_draws_follow_the_probabilities() -> None:
    logp = np.log(np.tile([0.2, 0.5, 0.3], (30_000, 1)))
    share = np.bincount(picked(logp, np.random.default_rng(0).random(30_000)), minlength=3) / 30_000
    np.testing.assert_allclose(share, [0.2, 0.5, 0.3], atol=0.01)
    assert picked(np.log([[0.5, 0.5]]), np.array([1.0 - 2**-53])).tolist() == [1]


def test_damaged_weights_and_full_contexts_are_said() -> None:
    model = tiny()
    reader = Reader(Mind("all", model), rows=4)
    model.module.config.max_position_embeddings = 8
    with pytest.raises(BadModel, match="a context of 9 tokens; tiny takes 8"):
        reader.read(reader.threads(1), [(1,) * 9])
    with torch.no_grad():
        model.module.model.norm.weight.fill_(float("nan"))
    with pytest.raises(BadModel, match="logits that are not numbers"):
        reader.read(reader.threads(1), [(1, 2)])
