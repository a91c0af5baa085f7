"""The same inputs give the same numbers as the peers' own packages: verl's core algorithms, TRL's trainers, CoMLRL's.

They live in an environment of their own, .peers: `python -m bench.peers` prepares it, and `make proofs` does so by itself.
"""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
from grown import on, paid, run, runs

from bench import peers
from podium.methods import METHODS, credit_of
from podium.trace.columns import Trace

pytestmark = pytest.mark.skipif(
    not peers.ready(), reason="the peers are not there; prepare them with: python -m bench.peers"
)
WITHIN = {"rtol": 0, "atol": 1e-6}


def same(ours: object, theirs: object) -> None:
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), **WITHIN)


# verl


@cache
def answers() -> tuple[dict[str, np.ndarray], Trace]:
    """Answers of up to 6 tokens, one run each, in groups of 1 to 5; some tokens were given to the policy."""
    dice = np.random.default_rng(0)
    sizes = (1, 2, 3, 5, 4, 1, 5, 2)
    index = np.repeat(np.arange(len(sizes)), sizes)[dice.permutation(sum(sizes))]
    n, longest = len(index), 6
    length = dice.integers(1, longest + 1, n)
    mask = (np.arange(longest) < length[:, None]) * (dice.random((n, longest)) < 0.8)
    mask[np.arange(n), length - 1] = 1  # the last is sampled, and rewarded
    given = {
        "reward": dice.uniform(-1, 1, n).round(3),  # of a group of one verl's GRPO gives it over 1 + 1e-6
        "greedy": dice.normal(size=n).round(3),
        "value": dice.normal(size=(n, longest)).round(3),
        "mask": mask.astype(float),
        "index": index,
        "several": np.isin(index, [g for g, size in enumerate(sizes) if size > 1]),
    }
    parts = [
        run(
            on(
                "say a",
                mask=mask[i, : length[i]].astype(int).tolist(),
                tokens_out=float(mask[i].sum()),
                values=given["value"][i, : length[i]].tolist(),
                reward=float(given["reward"][i]),
            ),
            task=f"q{index[i]}",
            team=float(given["reward"][i]),
            greedy=float(given["greedy"][i]),
        )
        for i in range(n)
    ]
    return given, runs(*parts)


@cache
def verl() -> dict[str, np.ndarray]:
    return peers.ask("verl", **answers()[0])


def sampled(column: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """What verl has for the tokens that were sampled, one after the other."""
    mask = answers()[0]["mask"] > 0
    return column[mask if rows is None else mask[rows]]


@pytest.mark.parametrize(
    "name", ["grpo", "dr_grpo", "rloo", "opo", "remax", "reinforce_pp", "reinforce_pp_baseline"]
)
def test_verl(name: str) -> None:
    made = credit_of(answers()[1], name).value
    same(made[~np.isnan(made)], sampled(verl()[name]))


def test_verl_pays_the_best_of_a_group_of_two_or_more() -> None:
    given, trace = answers()
    for name, credit in (
        ("pass_at_k", METHODS["pass_at_k"].credit),
        ("pass_at_k_std", 'best_only(std=True) >> to("token") >> sampled'),
    ):
        made = paid(trace, credit)
        assert np.isnan(made[~given["several"][trace.rollout_of("k")]]).all()  # verl refuses groups of one
        same(made[~np.isnan(made)], sampled(verl()[name], given["several"]))


def test_verl_generalised_advantage_passes_over_tokens_that_were_given() -> None:
    _, trace = answers()
    made = paid(trace, 'last_token >> token_gae("values", 0.9, 0.8) >> whiten()', "turn", "step('reward')")
    same(made[~np.isnan(made)], sampled(verl()["gae"]))


# TRL


@cache
def trl() -> tuple[dict[str, np.ndarray], Trace]:
    reward = np.random.default_rng(1).normal(size=24).round(3)
    reward[8:12] = 0.5  # a group that teaches nothing
    trace = runs(*(run("say a", task=f"q{i // 4}", team=float(r)) for i, r in enumerate(reward)))
    return peers.ask("trl", reward=reward, n=4), trace


def test_trl_grpo() -> None:
    theirs, trace = trl()
    same(paid(trace, "zscore(eps=1e-4)"), theirs["grpo_group"])
    same(paid(trace, "center()"), theirs["grpo_none"])
    spread = np.std(trace.reward_n["team"], ddof=1)  # of rewards, over the batch
    same(paid(trace, "center()") / (spread + 1e-4), theirs["grpo_batch"])


def test_trl_rloo() -> None:
    theirs, trace = trl()
    same(paid(trace, "leave_one_out()"), theirs["rloo"])


def test_trl_leaves_out_what_was_not_scored() -> None:
    """It has NaN there as we do, and writes 0 over it in the line after."""
    reward = np.array([1.0, np.nan, 0.0, 0.25, np.nan, np.nan, np.nan, 1.0])
    theirs = peers.ask("trl", reward=reward, n=4)
    trace = runs(*(run("say a", task=f"q{i // 4}", team=float(r)) for i, r in enumerate(reward)))
    for name, credit in (("grpo_group", "zscore(eps=1e-4)"), ("rloo", "leave_one_out()")):
        made = paid(trace, credit)
        assert np.isnan(made[4:]).all()  # one is scored: alone
        same(made, theirs[name])


# CoMLRL

BASELINES = {"mean": "center", "rloo": "leave_one_out", "max": "below_best"}


@cache
def comlrl() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    dice = np.random.default_rng(2)
    given = {"first": dice.random(3), "second": dice.random((3, 3)), "crossed": dice.random((3, 3))}
    return given, peers.ask("comlrl", **given)


def grown_tree(first: np.ndarray, second: np.ndarray) -> Trace:
    """Two agents act at once, twice; of what they did first, three things were tried, and after each three more."""
    parts = []
    for j, k in product(range(3), range(3)):
        turns = [
            on(f"say {who}", step=float(r), t=float(t), after=[] if t == 0 else [2 * t - 2, 2 * t - 1])
            for t, r in enumerate((first[j], second[j, k]))
            for who in "ab"
        ]
        left = {"parent": f"{j}.0", "branch": 2} if k else {}
        parts.append(run(*turns, name=f"{j}.{k}", **left))  # type: ignore[arg-type]
    return runs(*parts)


@pytest.mark.parametrize("how", ["mean", "raw", "max", "rloo"])
def test_comlrl_aligned_samples(how: str) -> None:
    given, theirs = comlrl()
    trace = grown_tree(given["first"], given["second"])
    credit = "own_backup(1.0)" + (f' >> once({BASELINES[how]}(by=("parent", "agent")))' if how in BASELINES else "")
    made = paid(trace, credit, "turn", "step").reshape(3, 3, 2, 2)  # first, second, turn, agent
    assert (
        f"own_backup(0.9){credit[15:]}"
        == METHODS[{"raw": "mareinforce", "mean": "magrpo", "max": "maremax", "rloo": "marloo"}[how]].credit
    )
    for agent in range(2):
        nodes = theirs[f"aligned_{how}_{agent}"]  # the root, then what follows each of its samples
        same(made[:, :, 0, agent], np.repeat(nodes[0][:, None], 3, axis=1))
        same(made[:, :, 1, agent], nodes[1:])


def test_comlrl_crossed_samples() -> None:
    given, theirs = comlrl()
    parts = [
        run(
            on("say a", content_ref=f"a{i}", step=float(given["crossed"][i, j]), after=[]),
            on("say b", content_ref=f"b{j}", step=float(given["crossed"][i, j]), after=[]),
        )
        for i, j in product(range(3), range(3))
    ]
    made = np.reshape(credit_of(runs(*parts), "magrpo_cross").value, (3, 3, 2))
    same(made[:, 0, 0], theirs["crossed_mean_0"][0])
    same(made[0, :, 1], theirs["crossed_mean_1"][0])


def test_comlrl_critics() -> None:
    dice = np.random.default_rng(3)
    given = {"reward": dice.random((2, 4)).round(3), "value": dice.random((2, 4)).round(3), "gamma": 0.9}
    theirs = peers.ask("comlrl_critic", **given)
    turns = [
        on(f"say {'ab'[a]}", t=float(t), step=float(given["reward"][a, t]), value_joint=float(given["value"][a, t]), value_local=float(given["value"][a, t]))
        for t in range(4)
        for a in range(2)
    ]  # fmt: skip
    trace = runs(run(*turns))
    for peer, ours in (("maac", "collm_cc"), ("iac", "collm_dc")):
        same(np.reshape(credit_of(trace, ours).value, (4, 2)).T, theirs[peer])
