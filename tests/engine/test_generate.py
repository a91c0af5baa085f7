"""Generation: what a context yields is what a plain forward gives, and the same bits whatever is read beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from podium.engine.generate import score  # noqa: E402
from podium.engine.models import BadModel, PolicyModel, tiny  # noqa: E402
from podium.engine.options import Options, draw, log_softmax  # noqa: E402
from podium.engine.protocol import BadEngine  # noqa: E402
from podium.engine.reader import Reader  # noqa: E402
from podium.envs.draws import seeds  # noqa: E402
from tests.engine.answers import free_answers as speak  # noqa: E402

END = 256


@pytest.fixture(scope="module")
def policy() -> PolicyModel:
    return PolicyModel("all", tiny())


@pytest.fixture(scope="module")
def rows() -> list[tuple[int, ...]]:
    dice = np.random.default_rng(0)
    return [tuple(dice.integers(0, 256, n).tolist()) for n in (1, 2, 31, 32, 33, 64, 65, 90, 5, 17)]


def plain(policy: PolicyModel, ids: Any) -> Any:
    with torch.no_grad():
        return policy.activate()(input_ids=torch.tensor([list(ids)])).logits[0].numpy()


def test_read_is_a_plain_forward_however_it_is_cut(policy: PolicyModel, rows: list[tuple[int, ...]]) -> None:
    reader = Reader(policy, rows=4, width=8)
    threads = reader.threads(len(rows))
    found = reader.read(threads, rows)
    for got, ids in zip(found, rows, strict=True):
        np.testing.assert_allclose(got, plain(policy, ids)[-1], atol=1e-5)
    more = [ids[:7] for ids in rows[::-1]]
    found = reader.read(threads, more)
    for got, ids, then in zip(found, rows, more, strict=True):
        np.testing.assert_allclose(got, plain(policy, ids + then)[-1], atol=1e-5)


@pytest.mark.parametrize("some", [[3], [9, 1, 4], [0, 2, 3, 4, 5, 6, 7, 8]])
def test_the_same_bits_beside_any_others(policy: PolicyModel, rows: list[tuple[int, ...]], some: list[int]) -> None:
    every, few = Reader(policy, rows=4), Reader(policy, rows=4)
    all_of = every.read(every.threads(len(rows)), rows)
    few.threads(2)  # so that threads have other numbers
    assert np.array_equal(few.read(few.threads(len(some)), [rows[i] for i in some]), all_of[some])


def test_what_is_the_same_is_computed_once(policy: PolicyModel) -> None:
    reader = Reader(policy, rows=4)
    threads, before = reader.threads(6), reader.runner.tokens
    reader.read(threads, [(1, 2, 3)] * 6)
    assert reader.runner.tokens - before == 3
    apart = reader.read(threads, [(4, 5)] * 3 + [(4, 6)] * 3)
    assert reader.runner.tokens - before == 7
    np.testing.assert_allclose(apart[5], plain(policy, (1, 2, 3, 4, 6))[-1], atol=1e-5)


def test_threads_are_copied_and_rewound(policy: PolicyModel) -> None:
    reader = Reader(policy, rows=4)
    one = reader.threads(1)
    then = reader.read(one, [(1, 2, 3)])
    length, state = reader.length[one].copy(), reader.state[one].copy()
    reader.read(one, [(4, 5, 6)])
    two = reader.threads(1)
    reader.copy(one, two)
    reader.rewind(two, length, state)
    assert np.array_equal(reader.read(two, [(9, 8)]), Reader_of(policy, (1, 2, 3), (9, 8)))
    assert np.array_equal(then, Reader_of(policy, (1, 2, 3)))


def Reader_of(policy: PolicyModel, *parts: tuple[int, ...]) -> Any:  # noqa: N802
    reader = Reader(policy, rows=4)
    thread = reader.threads(1)
    for part in parts:
        last = reader.read(thread, [part])
    return last


def test_options_are_a_distribution_by_the_masked_product(policy: PolicyModel) -> None:
    """Against brute force: the full softmax, cut down at each token to what options can go on with."""
    labels = ["stop", "spawn 1", "spawn 10", "spawn 2"]
    options = Options([policy.model.ids(label) for label in labels], END)
    prompt = policy.model.ids("how many?\n> ")
    reader = Reader(policy, rows=4)
    thread = reader.threads(1)
    parted = score(options, reader, thread, reader.read(thread, [prompt]))
    total = np.array([options.logp(k, parted).sum() for k in range(4)])
    assert np.isclose(np.exp(total).sum(), 1.0)
    for k, path in enumerate(options.paths):
        logits = plain(policy, prompt + path)
        by_hand = 0.0
        for i, among in enumerate(options.among(k)):
            z = logits[len(prompt) - 1 + i].astype(np.float64)
            by_hand += z[path[i]] - np.log(np.exp(z[list(among)]).sum())
        assert np.isclose(total[k], by_hand, atol=1e-5)
    assert reader.length[thread] == len(prompt)  # the thread is as it was
    with pytest.raises(BadEngine, match="two options are the same tokens"):
        Options([(1, 2), (1, 2)], END)


def test_free_answers_carry_the_log_probabilities_of_their_tokens(policy: PolicyModel) -> None:
    prompts = [policy.model.ids(f"say {k}\n> ") for k in range(5)]

    def said(some: list[int]) -> list[Any]:
        reader = Reader(policy, rows=4)
        threads = reader.threads(len(some))
        first = reader.read(threads, [prompts[i] for i in some])
        return speak(reader, threads, first, seeds(0, 5)[some], np.array(some), 6)

    every = said([0, 1, 2, 3, 4])
    assert said([3, 1]) == [every[3], every[1]]  # ids and log-probabilities, to the bit
    for prompt, answer in zip(prompts, every, strict=True):
        assert len(answer.ids) == 6 or answer.ended
        logp = log_softmax(plain(policy, (*prompt, *answer.ids)).astype(np.float64))
        own = logp[np.arange(len(answer.ids)) + len(prompt) - 1, answer.ids]
        np.testing.assert_allclose(answer.logp, own, atol=1e-5)


def test_an_answer_ends_with_its_token() -> None:
    model = tiny()
    with torch.no_grad():
        model.module.get_input_embeddings().weight[END] *= 100  # tied with the head
    reader = Reader(PolicyModel("all", model), rows=4)
    threads = reader.threads(8)
    first = reader.read(threads, [(k + 1,) for k in range(8)])
    answers = speak(reader, threads, first, seeds(0, 8), np.zeros(8, np.int64), 4, greedy=True)
    assert any(a.ended and a.ids[-1] == END for a in answers)


def test_draws_follow_the_probabilities() -> None:
    logp = np.log(np.tile([0.2, 0.5, 0.3], (30_000, 1)))
    share = np.bincount(draw(logp, np.random.default_rng(0).random(30_000)), minlength=3) / 30_000
    np.testing.assert_allclose(share, [0.2, 0.5, 0.3], atol=0.01)
    assert draw(np.log([[0.5, 0.5]]), np.array([1.0 - 2**-53])).tolist() == [1]


def test_damaged_weights_and_full_contexts_are_said() -> None:
    model = tiny()
    reader = Reader(PolicyModel("all", model), rows=4)
    model.module.config.max_position_embeddings = 8
    with pytest.raises(BadModel, match="a context of 9 tokens; tiny takes 8"):
        reader.read(reader.threads(1), [(1,) * 9])
    with torch.no_grad():
        model.module.model.norm.weight.fill_(float("nan"))
    with pytest.raises(BadModel, match="logits that are not numbers"):
        reader.read(reader.threads(1), [(1, 2)])
