"""The divergence from a reference policy against plain numpy: by its formula, by the exact KL it estimates, and along a token tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from podium.learn.lm import packed  # noqa: E402
from podium.learn.lm.losses import divergence  # noqa: E402
from tests.learn.lm.test_tree import random_tree  # noqa: E402


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def in_numpy(logp: np.ndarray, reference: np.ndarray, share: np.ndarray) -> float:
    """Σ_i w_i [q_i / p_i - log(q_i / p_i) - 1], by probabilities and one token at a time."""
    total = 0.0
    for p, q, w in zip(np.exp(logp), np.exp(reference), share, strict=True):
        total += w * (q / p - np.log(q / p) - 1)
    return total


def three_columns(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return -rng.exponential(2, 50), -rng.exponential(2, 50), rng.random(50)


def test_worked_numbers() -> None:
    logp, reference = torch.log(torch.tensor([0.5, 0.25])), torch.log(torch.tensor([0.25, 0.5]))
    halved, doubled = 0.5 + np.log(2) - 1, 2 - np.log(2) - 1
    assert float(divergence(logp, reference, torch.tensor([1.0, 0.0]))) == pytest.approx(halved, abs=1e-6)
    assert float(divergence(logp, reference, torch.tensor([1.0, 3.0]))) == pytest.approx(halved + 3 * doubled)


@pytest.mark.parametrize("seed", range(5))
def test_it_and_its_slope_are_those_of_numpy(seed: int) -> None:
    logp, reference, share = three_columns(seed)
    leaf = torch.tensor(logp, requires_grad=True)
    found = divergence(leaf, torch.tensor(reference), torch.tensor(share))
    assert found.item() == pytest.approx(in_numpy(logp, reference, share), rel=1e-12)
    found.backward()
    each = zip(logp[:, None], reference[:, None], share[:, None], strict=True)  # each alone: none drowns another
    slope = [(in_numpy(p + 1e-6, q, w) - in_numpy(p - 1e-6, q, w)) / 2e-6 for p, q, w in each]
    np.testing.assert_allclose(leaf.grad.numpy(), slope, rtol=1e-6, atol=1e-8)


def test_it_is_never_negative_and_nothing_of_a_policy_from_itself() -> None:
    logp, reference, _ = (torch.tensor(c) for c in three_columns(9))
    each = [float(divergence(a, b, torch.ones(()))) for a, b in zip(logp, reference, strict=True)]
    assert min(each) > 0
    assert float(divergence(logp, logp, torch.ones(50))) == 0


def test_its_mean_over_what_is_sampled_is_the_exact_divergence() -> None:
    """Σ_v p_v [q_v / p_v - log(q_v / p_v) - 1] = Σ_v p_v log(p_v / q_v)."""
    p, q = (log_softmax(np.random.default_rng(s).normal(size=30)) for s in (1, 2))
    found = divergence(*(torch.tensor(c) for c in (p, q, np.exp(p))))
    assert float(found) == pytest.approx(float((np.exp(p) * (p - q)).sum()), rel=1e-12)


def test_along_a_tree_it_is_that_of_every_branch_alone() -> None:
    """Tokens that branches share are counted once; log-probabilities by numpy of each branch's logits."""
    tree = random_tree(3, levels=3)

    def model_of(seed: int) -> Any:
        torch.manual_seed(seed)
        size = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
        config = transformers.LlamaConfig(**size, vocab_size=16, initializer_range=0.3)
        return transformers.LlamaForCausalLM(config)

    def alone(model: Any) -> np.ndarray:
        logp = np.zeros(len(tree))
        for nodes in tree.node_of:
            if len(nodes) > 1:
                with torch.no_grad():
                    logits = model(torch.from_numpy(tree.token[nodes])[None]).logits[0].double().numpy()
                logp[nodes[1:]] = log_softmax(logits)[np.arange(len(nodes) - 1), tree.token[nodes[1:]]]
        return logp

    policy, before = model_of(0), model_of(1)
    share = np.random.default_rng(0).random(len(tree))
    with torch.no_grad():
        reference = packed.log_probs(before, tree)
    done = packed.loss_and_backward(
        policy,
        [tree],
        lambda logp, of: divergence(logp, reference[of], torch.from_numpy(share[of]).float()),
        most_tokens=int(tree.position.max()) + 1,
    )
    assert done.parts > 1
    which = tree.sampled
    expected = in_numpy(alone(policy)[which], alone(before)[which], share[which])
    assert done.loss == pytest.approx(expected, rel=1e-4)
