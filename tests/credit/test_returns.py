"""What a unit led to: numbers by hand, and what each return is in a simpler case."""

from __future__ import annotations

import numpy as np
import pytest
from grown import NAN, near, on, paid, run, runs

from podium.credit import BadCredit, Credit, apply
from podium.trace.columns import Trace

ALONG = ("rollout", "agent", "player", "round", "edges")


def turns(trace: Trace, expression: str) -> np.ndarray:
    return paid(trace, expression, "turn", "step")


def talk(*rewards: float, who: str = "abababab", **more: object) -> Trace:
    return run(
        *(on(f"say {w}", step=r, stage=i // 2) for i, (w, r) in enumerate(zip(who, rewards, strict=False))), **more
    )  # type: ignore[arg-type]


def test_reward_to_go() -> None:
    # 4; 2 + 4 / 2; 1 + 4 / 2
    near(turns(runs(talk(1, 2, 4)), "togo('rollout', 0.5)"), [3, 4, 4])
    # a: 1 + 4 / 2, 4; b: 2
    near(turns(runs(talk(1, 2, 4)), "togo('agent', 0.5)"), [3, 2, 4])
    # rounds (1, 2) and (4, 8): each its own, and half of what the next round earned
    near(turns(runs(talk(1, 2, 4, 8)), "togo('round', 0.5)"), [7, 8, 4, 8])


def test_what_happens_at_once_is_not_after_itself() -> None:
    trace = runs(run(on("say a", step=1.0, t=0.0), on("say b", step=2.0, t=0.0), on("say c", step=4.0, t=1.0)))
    near(turns(trace, "togo('rollout', 0.5)"), [3, 4, 4])


def test_along_edges_an_effect_pays_its_causes() -> None:
    # 0 -> 1, 0 -> 2, 1 -> 3, 2 -> 3: 3 is worth 8 and pays 4 to each of 1 and 2
    trace = runs(
        run(
            on("say a", step=1.0),
            on("say b", step=2.0, after=[0]),
            on("say c", step=4.0, after=[0]),
            on("say d", step=8.0, after=[1, 2]),
        )
    )
    near(turns(trace, "togo('edges')"), [1 + 6 + 8, 2 + 4, 4 + 4, 8])
    near(turns(trace, "togo('edges', 0.5)"), [1 + 2 + 3, 2 + 2, 4 + 2, 8])
    with pytest.raises(BadCredit, match="no way along them at unit team"):
        paid(trace, "togo('edges')")


@pytest.mark.parametrize("along", ALONG)
def test_without_a_future_it_is_the_reward(along: str) -> None:
    trace = runs(talk(1, 2, 4, 8), talk(3, 5))
    near(turns(trace, f"togo('{along}', 0.0)"), turns(trace, "clip(-99, 99)"))


def test_of_tokens() -> None:
    trace = runs(run(on("say a", tokens=3), team=1.0))
    near(paid(trace, "to('turn') >> last_token >> togo('rollout', 0.5)"), [0.25, 0.5, 1])


def test_decay_counts_what_is_left() -> None:
    near(turns(runs(talk(1, 2, 4)), "decay('rollout', 0.5)"), [0.25, 1, 4])
    near(turns(runs(talk(1, 2, 4)), "decay('agent', 0.5)"), [0.5, 2, 4])
    near(turns(runs(talk(1, 2, 4)), "decay()"), [1, 2, 4])


def valued(rewards: tuple[float, ...], values: tuple[float, ...], who: str = "ababab") -> Trace:
    return runs(run(*(on(f"say {w}", step=r, v=v) for w, r, v in zip(who, rewards, values, strict=False))))


def test_generalised_advantage() -> None:
    trace = valued((0.0, 0.0, 1.0), (0.5, 0.25, 0.75))
    # δ with γ = 0.8: 0.2 - 0.5, 0.6 - 0.25, 1 - 0.75;  A with λ = 0.5, so γλ = 0.4
    d = (0.2 - 0.5, 0.6 - 0.25, 0.25)
    near(turns(trace, "gae('v', 'rollout', 0.8, 0.5)"), [d[0] + 0.4 * (d[1] + 0.4 * d[2]), d[1] + 0.4 * d[2], d[2]])
    near(turns(trace, "td('v', 'rollout', 0.8)"), d)
    # a's own chain: the first and the third
    near(turns(trace, "td('v', 'agent', 0.8)"), [0.6 - 0.5, -0.25, 0.25])


def test_with_lambda_1_it_is_the_return_less_the_value() -> None:
    dice = np.random.default_rng(2)
    trace = valued(tuple(dice.random(6)), tuple(dice.random(6)))
    near(turns(trace, "gae('v', 'rollout', 0.9, 1.0)"), turns(trace, "togo('rollout', 0.9) >> minus('v')"))


def test_of_several_at_once_the_mean_comes_next() -> None:
    trace = runs(
        run(
            on("say a", step=0.0, v=1.0, t=0.0),
            on("say b", step=0.0, v=2.0, t=1.0),
            on("say c", step=0.0, v=4.0, t=1.0),
        )
    )
    near(turns(trace, "td('v')"), [3 - 1, -2, -4])


def test_a_node_is_worth_the_runs_that_pass_through_it() -> None:
    trace = runs(
        run("say a", "say b", "say a", team=1.0),
        run("say a", "say b", "say a", team=0.0, parent="run0", branch=1),
        run("say a", "say b", "say a", team=0.5, parent="run0", branch=2),
    )
    # the first turn is of all three, the second of runs 0 and 2, the third is each run's own
    near(paid(trace, "to('turn') >> subtree_mean()").reshape(3, 3), [[0.5, 0.75, 1], [0.5, 0, 0], [0.5, 0.75, 0.5]])
    near(paid(trace[:1], "to('turn') >> subtree_mean()"), [1, 1, 1])


def test_backing_up_a_tree() -> None:
    trace = runs(talk(1, 2, 4), talk(1, 2, 8, parent="run0", branch=2), talk(1, 6, 0, parent="run0", branch=1))
    # γ = 0.5: 2 + 0.5 * mean(4, 8) = 5;  1 + 0.5 * mean(5, 6) = 3.75
    near(turns(trace, "tree_backup(0.5)").reshape(3, 3), [[3.75, 5, 4], [3.75, 5, 8], [3.75, 6, 0]])
    near(turns(runs(talk(1, 2, 4)), "tree_backup(0.5)"), turns(runs(talk(1, 2, 4)), "togo('rollout', 0.5)"))


def test_all_of_a_moment_lead_to_what_follows() -> None:
    def at_once(then: float, **more: object) -> Trace:
        return run(
            on("say a", step=1.0, t=0.0), on("say b", step=2.0, t=0.0), on("say a", step=then, t=1.0), **more
        )  # type: ignore[arg-type]

    trace = runs(at_once(4.0), at_once(8.0, parent="run0", branch=2))
    near(turns(trace, "tree_backup()").reshape(2, 3), [[7, 8, 4], [7, 8, 8]])
    # a branch that changed b only: a leads to both futures, each b to its own
    other = runs(at_once(4.0), at_once(8.0, parent="run0", branch=1))
    near(turns(other, "tree_backup()").reshape(2, 3), [[7, 6, 4], [7, 10, 8]])


def test_what_peers_say_later() -> None:
    trace = runs(talk(1.0, 0.0, 0.5, 0.25))
    # γ = 0.5, later mean 0.375: (1 + 0.1875) / 1.5, (0 + 0.1875) / 1.5; the last round is itself
    near(turns(trace, "peers_ahead(0.5)"), [1.1875 / 1.5, 0.1875 / 1.5, 0.5, 0.25])
    near(turns(trace, "peers_ahead(0.5, 'own')"), [1.25 / 1.5, 0.125 / 1.5, 0.5, 0.25])
    near(turns(trace, "peers_ahead(0.5, 'last')"), [0.375] * 4)
    near(turns(trace, "peers_ahead(0.0)"), turns(trace, "clip(-9, 9)"))
    with pytest.raises(BadCredit, match="all, own or last"):
        turns(trace, "peers_ahead(0.5, 'none')")


@pytest.mark.parametrize(
    "step",
    ["togo()", "togo('agent', 0.9)", "togo('round')", "togo('edges')", "decay('rollout', 0.9)", "subtree_mean()", "tree_backup()", "own_backup()", "peers_ahead()", "peers_ahead(0.3, 'last')", "gae('step')"],
)  # fmt: skip
def test_edges(step: str) -> None:
    """What is not known makes what led to it unknown, in its own run; and nothing comes of nothing."""
    trace = runs(talk(1, 2, 4, 8), talk(1, NAN, 4, 8))
    made = turns(trace, step).reshape(2, 4)
    assert not np.isnan(made[0]).any()
    assert np.isnan(made[1, 1])
    assert len(turns(trace[:0], step)) == 0


def test_along_edges_credit_passes_through_events_that_are_no_units() -> None:
    trace = runs(run("say ann", "decide bob", "say ann", team=0.0))
    start = Credit(trace, "message", np.array([1.0, 4.0]))
    # the second message pays half to the decision, which passes half of that on
    near(apply(start, 'togo("edges", 0.5)').value, [1.0 + 0.5 * 0.5 * 4.0, 4.0])
