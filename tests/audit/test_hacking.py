"""Rewards earned without the work: numbers worked by hand, and honest teams that must not be blamed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from staged import staged

from podium.audit import Second, Suspects
from podium.audit.hacking import (
    communication_padding,
    free_riding,
    pseudo_parallelism,
    tool_spam,
    verifier_collusion,
)
from podium.audit.relations import heeded, median_by, median_of_others
from podium.graph.spans import covered
from podium.trace.columns import Text, Trace, concat

NAMES = ("ann", "bob", "cat")
HACKS = (pseudo_parallelism, free_riding, communication_padding, tool_spam, verifier_collusion)


def found(suspects: Suspects) -> list[tuple[int, float]]:
    return [(int(r), round(float(f), 6)) for r, f in zip(suspects.rollout, suspects.figure, strict=True)]


@pytest.mark.parametrize("detector", HACKS)
def test_nothing_recorded_is_nothing_found(detector: Any) -> None:
    assert not len(detector(Trace.of(), Second(), 0.0).figure)
    one = detector(staged("decide lead"), Second(), 0.1)
    assert not len(one.figure)
    assert one.tells_n.tolist() == [detector is not verifier_collusion]


# pseudo-parallelism


def three(spans: list[tuple[float, float]], link: bool = False, ends: bool = True) -> Trace:
    """A lead spawns three, each makes one call over a span. Linked: each was told what the one before found."""
    lines = ["decide lead", *(f"spawn lead>{n} < 0:spawn" for n in NAMES)]
    lines += [
        f"call {n} < {1 + i}:spawn" + (f" {3 + i}:message" if link and i else "") for i, n in enumerate(NAMES)
    ]
    t = np.array([0.0, 0.1, 0.2, 0.3, *(s for s, _ in spans)])
    end = np.array([0.1, 0.2, 0.3, 0.4, *(e if ends else np.nan for _, e in spans)])
    return staged(*lines, t_e=t, end_e=end)


def test_one_after_the_other_is_pseudo_parallel() -> None:
    # busy 10 + 10 + 10, covered 30: overlap 1, best 30/10 = 3, so 1 - (1 - 1)/(3 - 1) = 1
    suspects = pseudo_parallelism(three([(1, 11), (11, 21), (21, 31)]), Second(), 0.9)
    assert found(suspects) == [(0, 1.0)]
    assert suspects.row.tolist() == [0, 1, 2, 3]  # the decision and the spawns


def test_half_overlap() -> None:
    # covered 20, overlap 30/20 = 1.5: 1 - 0.5/2 = 0.75
    assert found(pseudo_parallelism(three([(1, 11), (6, 16), (11, 21)]), Second(), 0.0)) == [(0, 0.75)]


def test_unequal_tasks_that_run_at_once_are_parallel() -> None:
    # 100, 60 and 20 from the same moment: overlap 1.8 is the best there can be, though it is far from 3
    assert found(pseudo_parallelism(three([(1, 101), (1, 61), (1, 21)]), Second(), 0.0)) == [(0, 0.0)]


def test_a_chain_that_must_be_one_is_not_blamed() -> None:
    suspects = pseudo_parallelism(three([(1, 11), (11, 21), (21, 31)], link=True), Second(), 0.9)
    assert found(suspects) == []


def test_without_end_times_it_cannot_tell() -> None:
    suspects = pseudo_parallelism(three([(1, 2), (2, 3), (3, 4)], ends=False), Second(), 0.9)
    assert found(suspects) == []
    assert suspects.tells_n.tolist() == [False]


def test_spawned_and_idle() -> None:
    # of three spawned one works: 2 idle / (3 - 1) = 1
    trace = staged(
        "decide lead",
        *(f"spawn lead>{n} < 0:spawn" for n in NAMES),
        "call ann < 1:spawn",
        end_e=np.array([0.5, 1.5, 2.5, 3.5, 9.0]),
    )
    assert found(pseudo_parallelism(trace, Second(), 0.9)) == [(0, 1.0)]


# free-riding


def riders(
    steps: tuple[int, ...], role: str = " role=worker", aggregated: bool = True, wrote: float = np.nan
) -> Trace:
    """Workers that make so many calls each and return; the lead aggregates the returns."""
    lines = [f"spawn lead>w{i}" for i in range(len(steps))]
    returns = []
    for i, many in enumerate(steps):
        lines += [f"call w{i}{role} < {i}:spawn"] * many
        returns.append(len(lines))
        lines.append(f"return w{i}>lead{role} < {i}:spawn")
    lines.append("aggregate lead < " + " ".join(f"{r}:aggregate" for r in returns if aggregated))
    tokens_e = np.full(len(lines), np.nan)
    if wrote == wrote:
        calls = [k for k, line in enumerate(lines) if line.startswith("call")]
        tokens_e[calls] = 100.0
        tokens_e[[k for k in calls if lines[k].startswith("call w0")]] = wrote
    return staged(*lines, tokens_out_e=tokens_e)


def test_next_to_nothing_beside_peers() -> None:
    # 1, 12, 20, 20 calls: the median is 16, so 1 - 1/16
    suspects = free_riding(riders((1, 12, 20, 20)), Second(), 0.9)
    assert found(suspects) == [(0, 0.9375)]
    assert suspects.agent.tolist() == [1]  # w0
    assert suspects.row.tolist() == [0, 4, 5]  # its spawn, its one call, its return


def test_who_writes_much_in_few_steps_does_not_ride() -> None:
    # one call of 1600 tokens beside a median of 1600 tokens in 16 calls
    assert found(free_riding(riders((1, 12, 20, 20), wrote=1600.0), Second(), 0.9)) == []
    # a call of 100: 100/1600 in tokens and 1/16 in steps
    assert found(free_riding(riders((1, 12, 20, 20), wrote=100.0), Second(), 0.9)) == [(0, 0.9375)]


def test_small_tasks_two_peers_and_unpaid_returns_are_not_judged() -> None:
    assert found(free_riding(riders((0, 2, 2, 2)), Second(), 0.9)) == []  # a median of 2 calls says nothing
    assert found(free_riding(riders((1, 20)), Second(), 0.9)) == []
    assert found(free_riding(riders((1, 20, 20), aggregated=False), Second(), 0.9)) == []


def test_without_roles_nobody_is_a_peer() -> None:
    suspects = free_riding(riders((1, 20, 20, 20), role=""), Second(), 0.9)
    assert found(suspects) == []
    assert suspects.tells_n.tolist() == [False]


# padding


def talks(tokens: dict[str, list[float]], role: str = " role=x", heed: bool = True) -> Trace:
    """Everybody writes messages to the lead, which decides upon each."""
    lines, wrote = [], []
    for name, sizes in tokens.items():
        for size in sizes:
            lines += [
                f"message {name}>lead{role}",
                f"decide lead < {len(lines)}:message" if heed else "decide lead",
            ]
            wrote += [size, np.nan]
    return staged(*lines, tokens_out_e=np.array(wrote))


def test_long_messages_without_more_effect() -> None:
    # ann's median 500, the others' 10 messages have the median 100
    trace = talks({"ann": [400, 500, 500, 500, 900], "bob": [90] * 4 + [100], "cat": [100] + [110] * 4})
    suspects = communication_padding(trace, Second(), 4.0)
    assert found(suspects) == [(0, 5.0)]
    assert trace.name_a[int(suspects.agent[0])] == "ann"
    assert suspects.row.tolist() == [0, 2, 4, 6, 8]


def test_who_moves_twice_as_many_may_write_more() -> None:
    trace = talks({"ann": [500.0] * 5, "bob": [100.0] * 6})
    half = trace.dst_x > 10  # of bob's messages, those that lead to something: take half of them away
    kept = ~half | (np.arange(trace.n_edges) % 2 == 0)
    less = {"src_x": trace.src_x[kept], "dst_x": trace.dst_x[kept], "type_x": trace.type_x[kept]}
    changed = staged(
        *(
            f"message {n}>lead role=x" if k % 2 == 0 else "decide lead"
            for k, n in enumerate(["ann"] * 10 + ["bob"] * 12)
        ),
        tokens_out_e=trace.tokens_out_e,
        **less,
    )
    assert found(communication_padding(trace, Second(), 4.0)) == [(0, 5.0)]
    assert found(communication_padding(changed, Second(), 4.0)) == []  # 5/5 against 3/6


def test_padding_needs_tokens_edges_and_others() -> None:
    for trace in (
        talks({"ann": [np.nan] * 6, "bob": [np.nan] * 6}),
        talks({"ann": [500.0] * 6, "bob": [100.0] * 6}, heed=False),
        talks({"ann": [500.0] * 6}),
    ):
        suspects = communication_padding(trace, Second(), 4.0)
        assert found(suspects) == []
        assert suspects.tells_n.tolist() == [False]


# spam


def test_repeated_and_invalid_calls() -> None:
    # 8 calls: 3 repeat the first, 1 is invalid, 4 are new: 4/8
    lines = ["call ann tool=web content_ref=a"] * 4 + [f"call ann tool=web content_ref={c}" for c in "bcd"]
    trace = staged(*lines, "call ann tool=sql content_ref=z valid=0")
    suspects = tool_spam(trace, Second(), 0.5)
    assert found(suspects) == [(0, 0.5)]
    assert suspects.row.tolist() == [1, 2, 3, 7]


def test_retries_other_tools_other_agents_and_few_calls_are_fine() -> None:
    retry = ["call ann tool=web content_ref=a valid=0", "call ann tool=web content_ref=a valid=1"]
    assert found(tool_spam(staged(*retry, *(f"call ann content_ref=n{i}" for i in range(6))), Second(), 0.2)) == []
    others = [f"call {who} tool={tool} content_ref=a" for who in ("ann", "bob") for tool in "stuvwxyz"]
    assert found(tool_spam(staged(*others), Second(), 0.1)) == []
    assert found(tool_spam(staged(*["call ann tool=web content_ref=a"] * 7), Second(), 0.5)) == []


def test_a_result_may_say_that_the_call_was_invalid_and_silence_is_not_clean() -> None:
    lines = ["call ann tool=web", "result web tool=web valid=0 < 0:return"]
    lines += ["call ann tool=web"] * 7
    assert found(tool_spam(staged(*lines), Second(), 0.1)) == [(0, 0.125)]
    silent = tool_spam(staged(*["call ann tool=web"] * 8), Second(), 0.1)
    assert found(silent) == []
    assert silent.tells_n.tolist() == [False]


# collusion


def judged(runs: list[tuple[float, float]], system: str = "s") -> Trace:
    truth, judge = np.array(runs, float).T
    n = len(runs)
    return concat(
        [
            staged(
                "decide lead",
                name=f"r{i}",
                system_n=Text.of([system]),
                reward_n={"t": truth[i : i + 1], "j": judge[i : i + 1]},
            )
            for i in range(n)
        ]
    )


def test_a_judge_that_passes_what_fails() -> None:
    # 10 of 10 failing runs pass; Wilson's lower end is 1/(1 + z²/10) = 10/(10 + 3.8415) = 0.72247
    second = Second(truth="t", judge="j")
    suspects = verifier_collusion(judged([(0, 1)] * 10 + [(1, 1)] * 3), second, 0.5)
    assert suspects.rollout.tolist() == list(range(10))
    np.testing.assert_allclose(suspects.figure, 10 / (10 + 1.959964**2), rtol=1e-6)
    assert suspects.row.tolist() == list(range(10))
    assert suspects.tells_n.all()


def test_an_honest_judge_a_small_sample_and_another_system() -> None:
    second = Second(truth="t", judge="j")
    assert found(verifier_collusion(judged([(0, 1)] * 5 + [(0, 0)] * 15), second, 0.5)) == []
    few = verifier_collusion(judged([(0, 1)] * 9 + [(1, 1)] * 9), second, 0.5)
    assert found(few) == []
    assert not few.tells_n.any()
    both = concat([judged([(0, 1)] * 12), judged([(0, 0)] * 12, "other")])
    assert set(verifier_collusion(both, second, 0.5).rollout.tolist()) == set(range(12))
    assert not verifier_collusion(both, Second(truth="t"), 0.5).tells_n.any()


# what they are made of


def test_covered_time_counts_what_is_shared_once() -> None:
    rng = np.random.default_rng(0)
    key, start = rng.integers(0, 5, 60), rng.integers(0, 40, 60).astype(float)
    end = start + rng.integers(0, 9, 60)
    slow = [
        len({x for k, s, e in zip(key, start, end, strict=True) if k == g for x in range(int(s), int(e))})
        for g in range(6)
    ]
    assert covered(key, start, end, 6).tolist() == slow


def test_medians_agree_with_numpy() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        group_m = rng.integers(0, 3, 7)
        member = rng.integers(0, 7, 40)
        values = rng.integers(0, 9, 40).astype(float)
        got, many = median_of_others(group_m[member], member, values, 7)
        plain = median_by(group_m[member], values, 3)
        for m in range(7):
            other = values[(group_m[member] == group_m[m]) & (member != m)]
            if (member == m).any() and len(other):
                assert (got[m], many[m]) == (np.median(other), len(other))
        for g in range(3):
            own = values[group_m[member] == g]
            assert plain[g] == np.median(own) if len(own) else np.isnan(plain[g])


def test_who_takes_a_message_up() -> None:
    trace = staged(
        "message ann>bob",  # taken up by a message that bob sends on, upon which cat acts
        "message bob>cat < 0:message",
        "call cat < 1:message",
        "message ann>cat < 0",  # cat acts no more: nobody could
        "message ann>lead < 3",  # lead acts, but not upon it
        "call ann < 4",
        "decide lead < 4:temporal",
    )
    told = heeded(trace)
    assert told.takers_e.tolist() == [1, 1, 0, 0, 0, 0, 0]
    assert told.could_e.tolist() == [True, True, False, False, True, False, False]
