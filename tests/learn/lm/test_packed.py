"""The packed gradient against the reference: every branch alone, each token's loss times weight over the number of branches through it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from podium.learn import tape  # noqa: E402
from podium.learn.lm import attention, losses, packed  # noqa: E402
from podium.learn.lm.losses import update_of  # noqa: E402
from podium.learn.lm.tree import Tree, join, tree_of  # noqa: E402
from tests.learn import rules as update  # noqa: E402
from tests.learn.lm.test_tree import above, random_tree  # noqa: E402


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=16,
        max_position_embeddings=256,
        initializer_range=0.2,
    )
    return transformers.LlamaForCausalLM(config)


def gradient(model: Any) -> Any:
    return torch.cat([p.grad.flatten().double() for p in model.parameters()])


def reference(model: Any, tree: Tree) -> Any:
    """Decision 6 of the design, by the model's own forward pass on one branch at a time."""
    model.zero_grad()
    share = np.where(tree.sampled, tree.weight / tree.through, 0.0)
    for nodes in tree.node_of:
        if len(nodes) > 1:
            ids = torch.from_numpy(tree.token[nodes])
            logp = model(ids[None]).logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0]
            (-(torch.from_numpy(share[nodes][1:]).float() * logp).sum()).backward()
    return gradient(model)


def packed_gradient(model: Any, trees: list[Tree], **how: Any) -> Any:
    model.zero_grad()
    weight = torch.from_numpy(join(trees).weight).float()
    done = packed.loss_and_backward(model, trees, lambda logp, of: -(weight[of] * logp).sum(), **how)
    assert done.sampled == sum(int(t.sampled.sum()) for t in trees)
    return gradient(model)


def off(a: Any, b: Any) -> float:
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("way", ["dense", "parts"])
@pytest.mark.parametrize("seed", range(6))
def test_the_packed_gradient_is_that_of_every_branch_alone(model: Any, seed: int, way: str) -> None:
    tree = random_tree(seed, levels=4)
    expected = reference(model, tree)
    assert off(packed_gradient(model, [tree], way=way), expected) < 1e-5
    longest = int(tree.position.max()) + 1
    for most in (longest, (longest + len(tree)) // 2):
        assert off(packed_gradient(model, [tree], way=way, most_tokens=most), expected) < 1e-5


def test_counting_a_shared_token_once_for_each_branch_is_another_gradient(model: Any) -> None:
    """The reference bites: the mistake that others have made is far from it."""
    tree = random_tree(2, levels=4)
    expected = reference(model, tree)
    assert tree.through[tree.sampled].max() > 1
    wrong = Tree(**{**tree.__dict__, "weight": tree.weight * tree.through})
    assert off(packed_gradient(model, [wrong]), expected) > 0.1


def test_trees_together_are_the_sum_of_each_and_gradients_accumulate(model: Any) -> None:
    trees = [random_tree(s) for s in range(3)]
    expected = sum(reference(model, t) for t in trees)
    assert off(packed_gradient(model, trees), expected) < 1e-5
    assert off(packed_gradient(model, trees, most_tokens=40, way="parts"), expected) < 1e-5
    model.zero_grad()
    for tree in trees:
        weight = torch.from_numpy(tree.weight).float()
        packed.loss_and_backward(model, [tree], lambda logp, of, w=weight: -(w[of] * logp).sum())
    assert off(gradient(model), expected) < 1e-5


def test_checkpointing_changes_nothing_and_the_model_attends_as_before_afterwards(model: Any) -> None:
    tree = random_tree(1)
    before, plain = model.config._attn_implementation, packed_gradient(model, [tree])
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    try:
        assert off(packed_gradient(model, [tree]), plain) < 1e-6
    finally:
        model.gradient_checkpointing_disable()
        model.eval()
    assert model.config._attn_implementation == before


@pytest.mark.parametrize("way", ["dense", "parts"])
def test_bfloat16_is_computed_on_float32_weights(model: Any, way: str) -> None:
    tree = random_tree(2)
    exact = packed_gradient(model, [tree])
    with torch.autocast("cpu", torch.bfloat16):
        half = packed_gradient(model, [tree], way=way)
    assert model.lm_head.weight.grad.dtype == torch.float32
    assert 1e-5 < off(half, exact) < 0.05


def test_log_probs_are_those_of_each_row_alone(model: Any) -> None:
    tree = random_tree(5, levels=4)
    found = packed.log_probs(model, tree)
    assert torch.equal(found[~torch.from_numpy(tree.sampled)], torch.zeros(int((~tree.sampled).sum())))
    in_parts = packed.log_probs(model, tree, most_tokens=int(tree.position.max()) + 1)
    torch.testing.assert_close(in_parts, found, rtol=1e-5, atol=1e-5)
    for nodes in tree.node_of:
        if len(nodes) > 1:
            ids = torch.from_numpy(tree.token[nodes])
            logp = model(ids[None]).logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0]
            own = torch.from_numpy(tree.sampled[nodes][1:])
            torch.testing.assert_close(found[torch.from_numpy(nodes[1:])][own], logp[own], rtol=1e-4, atol=1e-5)


def test_a_token_sampled_among_some_is_weighed_against_these(model: Any) -> None:
    rows, owner = [[1, 2, 3], [1, 2, 4]], [[-1, 0, 0], [-1, 0, 1]]
    among = [[None, None, [3, 4, 9]], [None, None, None]]
    zeros = [[0.0] * 3] * 2
    tree = tree_of(rows, zeros, zeros, [[0, 1, 1]] * 2, owner, among)
    found = packed.log_probs(model, tree)
    logits = model(torch.tensor([[1, 2]])).logits[0]
    some = logits[1, [3, 4, 9]].log_softmax(0)[0]
    everything = logits.log_softmax(1)
    expected = torch.stack([everything[0, 2], some, everything[1, 4]])
    torch.testing.assert_close(found[[*tree.node_of[0].tolist()[1:], int(tree.node_of[1][2])]], expected)
    wrong = tree_of(rows, zeros, zeros, [[0, 1, 1]] * 2, owner, [[None, None, [4, 9]], None])
    with pytest.raises(ValueError, match="not sampled among"):
        packed.log_probs(model, wrong)


def test_logits_some_rows_at_a_time_are_the_same() -> None:
    torch.manual_seed(0)
    parent, token = np.array([4, 0, 2, 2, 2, 4]), np.array([1, 1, 5, 5, 3, 0])  # one twice
    grads = []
    for rows in (1, 2, 100, 0):
        torch.manual_seed(1)
        hidden, weight = torch.randn(5, 8, requires_grad=True), torch.randn(7, 8, requires_grad=True)
        plain = (hidden @ weight.t()).log_softmax(1)[parent, token]
        logp = packed.picked(hidden, weight, parent, token, rows) if rows else plain
        torch.testing.assert_close(logp, plain)
        (logp * torch.arange(6.0)).sum().backward()
        grads.append(torch.cat([hidden.grad.flatten(), weight.grad.flatten()]))
    for grad in grads[:-1]:
        torch.testing.assert_close(grad, grads[-1])


@pytest.mark.parametrize("seed", range(4))
def test_blocks_say_what_intervals_say(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 4: nothing seen is left out, and of full blocks everything is seen."""
    monkeypatch.setattr(attention, "BLOCK", 4)
    tree = random_tree(seed, levels=5)
    sees = np.pad(above(tree), ((0, -len(tree) % 4),) * 2)
    blocks = sees.reshape(len(sees) // 4, 4, -1, 4)
    real = np.pad(np.ones((len(tree), len(tree)), bool), ((0, -len(tree) % 4),) * 2).reshape(blocks.shape)
    mask = attention.block_mask(torch.from_numpy(tree.end))
    found = [np.zeros(blocks.shape[::2], bool) for _ in range(2)]
    for kind, number, which in (
        (0, mask.kv_num_blocks, mask.kv_indices),
        (1, mask.full_kv_num_blocks, mask.full_kv_indices),
    ):
        for q, n in enumerate(number[0, 0].tolist()):
            found[kind][q, which[0, 0, q, :n].tolist()] = True
    full = (blocks | ~real).all((1, 3))
    assert np.array_equal(found[0] | found[1], blocks.any((1, 3)))
    assert (found[1] <= full).all()
    assert not (found[0] & found[1]).any()


def test_a_loss_that_couples_tokens_is_exact_in_parts(model: Any) -> None:
    """GSPO's ratio of a whole sequence, cut by parts: differentiated over all log-probabilities first."""
    tree = random_tree(4, levels=4)
    old = torch.from_numpy(np.random.default_rng(0).normal(-2, 0.3, len(tree))).float()
    group = torch.from_numpy(np.unique(tree.owner, return_inverse=True)[1])

    def gspo(logp: Any, of: Any) -> Any:
        one = torch.ones(len(of))
        return losses.loss(update_of("clip(sequence)"), logp, old[of], one, one, group[of] - 1)

    grads = []
    for most in (None, int(tree.position.max()) + 1):
        model.zero_grad()
        done = packed.loss_and_backward(model, [tree], gspo, most, whole=True)
        grads.append(gradient(model))
    assert done.parts > 1
    assert off(grads[1], grads[0]) < 1e-5


UPDATES = {
    "reinforce": "reinforce",
    "clip": "clip(token, 0.1, 0.3)",
    "dual": "dual_clip(token, most=1.5)",
    "mirror": "mirror(0.7, 1.4)",
    "truncated": "truncated(1.2) >> reinforce",
}


@pytest.mark.parametrize("name", UPDATES)
def test_losses_of_tokens_are_those_of_the_method_table(name: str) -> None:
    rng = np.random.default_rng(0)
    logp, old, credit = rng.normal(-1, 0.5, 40), rng.normal(-1, 0.5, 40), rng.normal(size=40)
    weight = rng.random(40)
    var = tape.Var(logp)
    rho = update.ratio(var, old)
    expected = {
        "reinforce": lambda: update.reinforce(var, credit, weight),
        "clip": lambda: update.clipped(rho, credit, weight, 0.1, 0.3),
        "dual": lambda: update.dual_clipped(rho, credit, weight, 0.2, 0.2, 1.5),
        "mirror": lambda: update.masked_mirror(var, old, credit, weight, 0.7, 1.4, 0.1),
        "truncated": lambda: update.truncated(var, old, credit, weight, 1.2),
    }[name]()
    mine = torch.from_numpy(logp).requires_grad_()
    found = losses.loss(update_of(UPDATES[name]), mine, *(torch.from_numpy(x) for x in (old, credit, weight)))
    compare(found, mine, expected, var)


@pytest.mark.parametrize("level", ["turn", "sequence"])
def test_losses_of_turns_and_sequences_are_those_of_the_method_table(level: Any) -> None:
    rng = np.random.default_rng(0)
    first = np.array([0, 3, 10, 12, 20])
    length = np.diff(first)
    logp, old, credit = rng.normal(-1, 0.1, 20), rng.normal(-1, 0.1, 20), rng.normal(size=4)
    var = tape.Var(logp)
    rho = update.ratio(var, old, first, mean=level == "sequence")
    expected = update.clipped(rho, credit, np.ones(4) if level == "turn" else length.astype(float))
    mine = torch.from_numpy(logp).requires_grad_()
    group = np.repeat(np.arange(4), length)
    columns = (torch.from_numpy(x) for x in (old, credit[group], np.ones(20), group))
    compare(losses.loss(update_of(f"clip({level})"), mine, *columns), mine, expected, var)


def compare(found: Any, mine: Any, expected: Any, var: Any) -> None:
    found.backward()
    assert float(found.detach()) == pytest.approx(float(tape.value_of(expected)))
    tape.backward(expected)
    np.testing.assert_allclose(mine.grad.numpy(), var.grad, atol=1e-12)
