"""The runner: however contexts share, join, leave, and whichever policy each has, what is said is what each alone would say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from podium.engine import pool  # noqa: E402
from podium.engine import runner as runner_module  # noqa: E402
from podium.engine.adapters import GenerationModule, _join, fused_norms  # noqa: E402
from podium.engine.generate import Pending, RunningBatch, score  # noqa: E402
from podium.engine.models import BadModel, Model, PolicyModel, adapted, tiny  # noqa: E402
from podium.engine.options import Options  # noqa: E402
from podium.engine.protocol import Completion  # noqa: E402
from podium.engine.reader import Reader, trunks  # noqa: E402
from podium.engine.runner import STEP, ModelRunner, drawn  # noqa: E402
from podium.envs.draws import seeds  # noqa: E402
from podium.trace.tokens import digest, spelled  # noqa: E402
from tests.engine.answers import free_answers as speak  # noqa: E402

WAYS = ("dense", "flash")


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny()


@pytest.fixture(scope="module")
def prompts() -> list[tuple[int, ...]]:
    """Two beginnings with some branches each, one of them twice, and some that are alone."""
    dice = np.random.default_rng(0)

    def ids(n: int) -> tuple[int, ...]:
        return tuple(dice.integers(0, 256, n).tolist())

    a, b = ids(100), ids(70)
    found = [a + ids(5), b + ids(3), a + ids(40), ids(33), b + ids(90), a + ids(2), ids(1), a]
    return [*found, found[0]]


def reader_of(model: Model, way: str = "dense", rows: int = 4, **how: Any) -> Reader:
    return Reader(PolicyModel("all", model), runner=model.runner(rows, 8, way=way), **how)


def answers(
    reader: Reader, prompts: list[tuple[int, ...]], which: list[int], longest: int = 12
) -> list[Completion]:
    threads = reader.threads(len(which))
    first = reader.read(threads, [prompts[i] for i in which])
    return speak(reader, threads, first, seeds(0, len(prompts))[which], np.array(which), longest)


def logits_of(model: Model, ids: Any) -> Any:
    with torch.no_grad():
        return model.module(input_ids=torch.tensor([list(ids)])).logits[0]


# ---- sharing


@pytest.mark.parametrize("way", WAYS)
def test_what_is_shared_is_what_is_read_alone(model: Model, prompts: list[tuple[int, ...]], way: str) -> None:
    reader = reader_of(model, way)
    threads, before = reader.threads(len(prompts)), reader.runner.tokens
    found = reader.read(threads, prompts)
    for logits, ids in zip(found, prompts, strict=True):
        torch.testing.assert_close(logits, logits_of(model, ids)[-1], atol=1e-5, rtol=0)
    assert (reader._trunk[threads, 1] > 0).tolist() == [True, True, True, False, True, True, False, True, True]
    assert reader.runner.tokens - before < sum(map(len, prompts)) - 3 * 96  # of the branches of the first
    more = [ids[:9] for ids in prompts[::-1]]
    for logits, ids, then in zip(reader.read(threads, more), prompts, more, strict=True):
        torch.testing.assert_close(logits, logits_of(model, ids + then)[-1], atol=1e-5, rtol=0)


def test_the_cut_of_beginnings_saves_most() -> None:
    head, a, b = tuple(range(80)), (1,) * 900, (2,) * 900
    some = [head + a + (k,) * 3 for k in range(3)] + [head + b + (k,) * 3 for k in range(3)]
    assert trunks(some) == [(0, 980)] * 3 + [(3, 980)] * 3  # each with its own two, not 80 all together
    assert trunks(some, width=32) == [(0, 960)] * 3 + [(3, 960)] * 3
    flat = [head + (k,) * 90 for k in range(6)]
    assert trunks([*flat, head]) == [(0, 78)] * 7  # two tokens are left
    assert trunks([head[:40]] * 3) == [(0, 0), (1, 0), (2, 0)]


@pytest.mark.parametrize("way", WAYS)
def test_branches_share_what_their_source_held(model: Model, prompts: list[tuple[int, ...]], way: str) -> None:
    reader = reader_of(model, way)
    one = reader.threads(1)
    reader.read(one, [prompts[0]])
    half = reader.length[one].copy(), reader.state[one].copy()
    reader.read(one, [prompts[2][:80]])
    two, three = reader.threads(2), reader.threads(2)
    before = reader.runner.tokens
    reader.copy(np.repeat(one, 2), two)
    reader.rewind(two, np.repeat(half[0], 2), np.repeat(half[1], 2))
    reader.read(two, [(1, 2), (3, 4)])
    reader.copy(two[[0, 0]], three)  # a branch of a branch
    assert reader.runner.tokens - before == 4
    for thread, held in (
        (two[1:], prompts[0] + (3, 4)),
        (three[1:], prompts[0] + (1, 2)),
        (one, prompts[0] + prompts[2][:80]),
    ):
        logits = reader.read(thread, [(9, 8, 7)])
        torch.testing.assert_close(logits[0], logits_of(model, (*held, 9, 8, 7))[-1], atol=1e-5, rtol=0)
        assert spelled(*np.array(reader.digests(thread)).T) == [digest(np.array([*held, 9, 8, 7]))]
    with pytest.raises(ValueError, match="only be rewound to what it still holds"):
        reader.rewind(two, reader.length[two] + 1, reader.state[two])


def test_what_is_given_back_is_used_again(model: Model, prompts: list[tuple[int, ...]]) -> None:
    runner = ModelRunner(model.module, rows=4, width=8)
    tops = []
    for _ in range(3):
        reader = Reader(PolicyModel("all", model), runner=runner)
        threads = reader.threads(len(prompts))
        reader.read(threads, prompts)
        reader.drop(threads[:5])
        assert len(reader._runs) < 6
        reader.read(threads[:5], prompts[:5])
        tops.append(runner._top)
        held = sum(reader._runs.values())
        assert held + sum(size * len(some) for size, some in runner._free.items()) == tops[-1] - STEP
        del reader
    assert len(set(tops)) == 1
    assert (runner._top, runner._free, runner._held) == (STEP, {}, 0)  # as at the start


def test_a_large_pool_is_given_up_when_nobody_holds_any(
    model: Model, prompts: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "LARGE", 128)
    runner = ModelRunner(model.module, rows=4, width=8)
    before = []
    for _ in range(2):
        reader = Reader(PolicyModel("all", model), runner=runner)
        before.append(reader.read(reader.threads(len(prompts)), prompts))
        assert runner.pool.size > 128
        del reader
        assert runner.pool.size == 128
        assert not runner.pool.layers
    assert torch.equal(*before)


# ---- answers


@pytest.mark.parametrize("way", WAYS)
def test_answers_do_not_depend_on_the_batch(model: Model, prompts: list[tuple[int, ...]], way: str) -> None:
    every = answers(reader_of(model, way), prompts, list(range(len(prompts))))
    for which in ([3], [7, 0], [8, 5, 2, 1]):
        some = answers(reader_of(model, way), prompts, which)
        assert [a.ids for a in some] == [every[i].ids for i in which]
        if way == "dense":
            assert some == [every[i] for i in which]  # to the bit
    for prompt, answer in zip(prompts, every, strict=True):
        logp = logits_of(model, (*prompt, *answer.ids)).double().log_softmax(-1)[len(prompt) - 1 : -1]
        own = logp.gather(1, torch.tensor(answer.ids)[:, None])[:, 0]
        np.testing.assert_allclose(answer.logp, own, atol=1e-5)


def test_both_ways_say_the_same(model: Model, prompts: list[tuple[int, ...]]) -> None:
    dense, flash = (answers(reader_of(model, way), prompts, list(range(len(prompts)))) for way in WAYS)
    assert [a.ids for a in dense] == [a.ids for a in flash]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stride", [1, 5])
def test_answers_join_and_leave_a_running_batch(
    model: Model, prompts: list[tuple[int, ...]], way: str, stride: int
) -> None:
    """Of different lengths, some asked for while others are being said, more than there is room for."""
    runner = ModelRunner(model.module, rows=4, width=8, way=way)
    runner.stride = stride
    reader = Reader(PolicyModel("all", model), runner=runner, version="7")
    batch, longest, done = RunningBatch(reader), [3, 12, 1, 7, 2, 9, 5, 12, 4], {}
    which, sizes = {}, []
    for i, prompt in enumerate(prompts):
        thread = int(reader.threads(1)[0])
        which[batch.add(Pending(thread, (int(seeds(0, 9)[i]), i), longest[i], False, prompt))] = i
        if i % 2:
            done |= batch.step()
            sizes.append(len(batch._live))
    while batch:
        done |= batch.step()
        sizes.append(len(batch._live))
    assert max(sizes) <= 4
    assert {which[k] for k in done} == set(range(9))
    for k, answer in done.items():
        (alone,) = answers(reader_of(model, way), prompts, [which[k]], longest[which[k]])
        assert answer.ids == alone.ids
        assert answer.version == "7"
        np.testing.assert_allclose(answer.logp, alone.logp, atol=0 if way == "dense" else 1e-5)
    threads = np.arange(1, 10)
    assert reader.length[threads].tolist() == [len(p) for p in prompts]  # as they were when they had been read


def test_options_are_weighed_in_one_forward(model: Model, prompts: list[tuple[int, ...]]) -> None:
    options = Options([model.ids(label) for label in ("stop", "spawn 1", "spawn 12", "ask")], 256)
    found = []
    for way in WAYS:
        reader = reader_of(model, way)
        threads = reader.threads(len(prompts))
        first = reader.read(threads, prompts)
        length, runs = reader.length.copy(), dict(reader._runs)
        found.append(score(options, reader, threads, first))
        assert np.array_equal(reader.length, length)
        assert reader._runs == runs
    for at, among in options.choices:
        np.testing.assert_allclose(found[0][at], found[1][at], atol=1e-5)
        for row, prompt in zip(found[0][at], prompts, strict=True):
            z = logits_of(model, (*prompt, *at))[-1].double()[list(among)]
            np.testing.assert_allclose(row, z.log_softmax(-1), atol=1e-5)


# ---- draws


def test_draws_on_the_device_follow_the_probabilities() -> None:
    p = torch.tensor([0.2, 0.0, 0.5, 0.3] + [0.0] * 600).log()
    u = torch.linspace(0, 1, 10_001, dtype=torch.float64)[:-1]
    token, logp = drawn(p.expand(len(u), -1), u)
    np.testing.assert_allclose(np.bincount(token, minlength=4)[:4] / len(u), [0.2, 0.0, 0.5, 0.3], atol=2e-4)
    assert torch.equal(logp, p.double().log_softmax(-1)[token])
    wide = torch.randn(2_000, 1_000, generator=torch.Generator().manual_seed(0))
    u = torch.rand(2_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    token, _ = drawn(wide, u)
    total = wide.double().softmax(-1).cumsum(-1)
    assert torch.equal(token, (total <= u[:, None]).sum(-1))
    assert drawn(wide[:3], torch.tensor([-1.0, 1.0, 1.0 - 2**-53]))[0].tolist()[0] == int(wide[0].argmax())
    assert int(drawn(p[None], torch.tensor([1.0]))[0]) == 3  # the last that is possible


# ---- policies


@pytest.mark.parametrize("way", WAYS)
def test_each_row_has_its_own_adapter(prompts: list[tuple[int, ...]], way: str) -> None:
    model, names = tiny(), ["lead", "mate", "judge"]
    model.module = adapted(model.module, names, 2, 0)
    torch.manual_seed(1)
    for name, weight in model.module.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.3)
    policies = [PolicyModel(name, model, name) for name in names]
    reader = Reader(policies[0], runner=model.runner(4, 8, way=way))
    threads = np.concatenate([reader.threads(1, policies[i % 3]) for i in range(len(prompts))])
    first = reader.read(threads, prompts)
    said = speak(reader, threads, first, seeds(0, len(prompts)), np.arange(len(prompts)), 6)
    apart = []
    for i, prompt in enumerate(prompts):
        policies[i % 3].activate()
        torch.testing.assert_close(first[i], logits_of(model, prompt)[-1], atol=1e-4, rtol=0)
        alone = Reader(policies[i % 3], runner=model.runner(4, 8, way=way))
        thread = alone.threads(1)
        then = speak(alone, thread, alone.read(thread, [prompt]), seeds(0, len(prompts))[[i]], np.array([i]), 6)
        assert then[0].ids == said[i].ids
        apart.append(tuple(said[i].ids))
    assert len(set(apart)) > 6
    with torch.no_grad():
        for name, weight in model.module.named_parameters():
            if "lora_B.mate" in name:
                weight.zero_()
    fresh = Reader(policies[1], runner=model.runner(4, 8, way=way))
    thread = fresh.threads(1)
    policies[1].activate()
    torch.testing.assert_close(
        fresh.read(thread, [prompts[1]])[0], logits_of(model, prompts[1])[-1], atol=1e-4, rtol=0
    )
    with pytest.raises(BadModel, match="no adapter 'scout' on this model; there are lead, mate, judge"):
        fresh.threads(1, PolicyModel("scout", model, "scout"))


def test_norms_in_one_kernel_are_the_same(prompts: list[tuple[int, ...]]) -> None:
    one = tiny(2)
    with torch.no_grad():
        for part in one.module.modules():
            if hasattr(part, "variance_epsilon"):
                part.weight.copy_(torch.linspace(0.5, 2, 64))
    generation = GenerationModule(one.module)
    fused_norms(generation.module)
    assert {type(part).__name__ for part in generation.module.modules() if "Norm" in type(part).__name__} == {
        "Norm"
    }
    assert generation.module.model.norm.weight is one.module.model.norm.weight
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(generation.module.model.norm(x), one.module.model.norm(x), atol=1e-6, rtol=1e-5)


def test_layers_of_one_input_are_one_product(prompts: list[tuple[int, ...]]) -> None:
    model, names = tiny(3), ["lead", "mate"]
    model.module = adapted(model.module, names, 2, 0)
    for name, weight in model.module.named_parameters():
        if "lora_B" in name:
            torch.nn.init.constant_(weight, 0.1)
    policies = [PolicyModel(name, model, name) for name in names]
    runner = ModelRunner(model.module, names, rows=4, width=8, way="flash")
    joined = _join(runner.module)
    runner.generation._layers += joined
    assert len(joined) == 4  # two a layer
    with torch.no_grad():
        model.module.get_base_model().model.layers[0].self_attn.k_proj.base_layer.weight.mul_(2)
    reader = Reader(policies[0], runner=runner)  # which renews
    found = reader.read(np.concatenate([reader.threads(1, policy) for policy in policies]), prompts[:2])
    for policy, logits, ids in zip(policies, found, prompts, strict=False):
        policy.activate()
        torch.testing.assert_close(logits, logits_of(model, ids)[-1], atol=1e-5, rtol=0)
    x, y = torch.randn(2, 64), torch.randn(2, 64)
    _, k = joined[0].part(x, 0), joined[0].part(y, 1)  # of another input: not what was made of the first
    torch.testing.assert_close(k, torch.nn.functional.linear(y, joined[0].weight[64:128]))
    joined[0].part(y, 2)
    assert joined[0].made == ()  # nothing is held when all is taken


def test_another_dtype_is_a_copy_that_is_renewed(model: Model, prompts: list[tuple[int, ...]]) -> None:
    own = tiny(1)
    runner = own.runner(4, 8, dtype="bfloat16")
    assert runner.dtype == runner.module.model.layers[0].self_attn.q_proj.weight.dtype == torch.bfloat16
    assert own.module.model.layers[0].self_attn.q_proj.weight.dtype == torch.float32
    assert tiny(1).runner(4).module.get_input_embeddings().weight is not own.module.get_input_embeddings().weight
    same = own.runner(4, 8)
    assert same.module.get_input_embeddings().weight is own.module.get_input_embeddings().weight
    with torch.no_grad():
        own.module.model.norm.weight.mul_(2.0)
    found = []
    for some in (runner, same):
        reader = Reader(PolicyModel("all", own), runner=some)
        found.append(reader.read(reader.threads(1), [prompts[0]]))
    torch.testing.assert_close(found[0], found[1], atol=0.5, rtol=0.1)
    assert own.module.config._attn_implementation != runner.module.config._attn_implementation
    with torch.no_grad():
        own.module.model.layers[0].mlp.down_proj.weight.zero_()
    runner.renew()
    assert not runner.module.model.layers[0].mlp.down_proj.weight.any()


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_in_bfloat16_it_computes_as_the_update_does(prompts: list[tuple[int, ...]], way: str, lora: bool) -> None:
    own = tiny(4)
    if lora:
        own.module = adapted(own.module, ["lead"], 2, 0)
        torch.nn.init.constant_(own.module.get_base_model().model.layers[0].mlp.up_proj.lora_B.lead.weight, 0.1)
    with torch.no_grad():
        own.module.get_input_embeddings().weight.mul_(20.0)  # logits of some size
    policy = PolicyModel("lead", own, "lead" if lora else None)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        hidden = policy.activate()(
            input_ids=torch.tensor([list(prompts[2])]), output_hidden_states=True
        ).hidden_states[-1]
    update = (hidden[0, -1].float() @ own.module.get_output_embeddings().weight.t()).detach()
    exact = logits_of(own, prompts[2])[-1]
    reader = Reader(policy, runner=own.runner(4, 8, way=way, dtype="bfloat16"))
    with torch.autocast("cpu", torch.bfloat16):  # as within `speaking`
        found = reader.read(reader.threads(1), [prompts[2]])[0]
    assert reader.runner.generation.mixed
    assert found.dtype == torch.float32
    scale = float(exact.abs().max())
    assert float((found - update).abs().max()) < 0.01 * scale
    grain = torch.finfo(torch.bfloat16).eps * scale
    assert float((found.bfloat16().float() - found).abs().max()) > 0.01 * grain  # finer than bfloat16 has
    assert reader.runner.module.get_input_embeddings().weight is own.module.get_input_embeddings().weight


# ---- what goes wrong


@pytest.mark.parametrize("way", WAYS)
def test_out_of_memory_halves_what_is_live(
    model: Model, prompts: list[tuple[int, ...]], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = answers(reader_of(model, way), prompts, list(range(9)))
    runner = ModelRunner(model.module, rows=8, width=8, way=way)
    real, sizes = runner.decode, []

    def small(rows: Any, u: Any) -> Any:
        sizes.append(len(rows))
        if len(rows) > 2:
            raise torch.OutOfMemoryError("no room")
        return real(rows, u)

    monkeypatch.setattr(runner, "decode", small)
    reader = Reader(PolicyModel("all", model), runner=runner)
    found = answers(reader, prompts, list(range(9)))
    assert [a.ids for a in found] == [a.ids for a in expected]
    assert runner.rows == 2
    assert sizes[:3] == [8, 4, 2]
    monkeypatch.setattr(runner, "_forward", lambda *_: small([0] * 3, None))
    with pytest.raises(BadModel, match="out of memory in generation with 10 contexts of up to 160 tokens; fewer"):
        reader.read(reader.threads(1), [(1, 2)])


def test_the_parts_of_a_context_are_one_attention() -> None:
    """New keys, own and trunk by parts against one dense product."""
    torch.manual_seed(0)
    held = pool.Pool(64)
    q, k, v = torch.randn(5, 4, 8), torch.randn(5, 2, 8), torch.randn(5, 2, 8)
    held.layers[0] = torch.randn(64, 2, 8), torch.randn(64, 2, 8)

    def whole(*numbers: int) -> Any:
        return torch.tensor(numbers, dtype=torch.int32)

    parts = [
        pool.Runs(whole(0, 3, 5), None, None, 3, 3),
        pool.Runs(whole(0, 3, 5), whole(20, 30, 0), whole(4, 0), 3, 4),
        pool.Runs(whole(0, 5, 10), whole(40, 44, 0), whole(4, 3), 5, 4, times=2),
    ]
    at = torch.tensor([24, 25, 26, 30, 31])
    found = pool.Flash(held, at, parts)(0, q, k, v, 0.3)
    keys, values = held.layers[0]
    for row, (seen, queries) in enumerate(
        (([*range(40, 47), *range(20, 27)], range(3)), ([*range(40, 47), 30, 31], range(3, 5)))
    ):
        for i in queries:
            last = len(seen) - len(queries) + (i - queries[0]) + 1
            key, value = (x[seen[:last]].repeat_interleave(2, 1) for x in (keys, values))
            p = (torch.einsum("hd,khd->hk", q[i], key) * 0.3).softmax(-1)
            torch.testing.assert_close(
                found[i], torch.einsum("hk,khd->hd", p, value), atol=1e-5, rtol=0, msg=str(row)
            )
