"""Every attack vector at work in a run small enough to see it, its clean twin, and what cannot be told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from staged import granted, staged

from podium import audit as audits
from podium.audit import Second, Suspects
from podium.envs import draws
from podium.envs.world import make, play
from podium.registry import facts, find, names
from podium.trace import concat
from podium.trace.columns import Text, Trace

SAFETY = [n for n in names("detector") if facts("detector", n)["group"] in ("safety", "record")]


def found(name: str, trace: Trace, **second: Any) -> Suspects:
    suspects: Suspects = find("detector", name)(trace, Second(**second), facts("detector", name)["threshold"])
    assert len(suspects.tells_n) == len(trace)
    assert suspects.tells_n[suspects.rollout].all()
    return suspects


def told(suspects: Suspects, trace: Trace) -> list[tuple[str | None, float, list[int]]]:
    """Agent, figure and evidence of each suspect."""
    agents = [trace.name_a[a] if a >= 0 else None for a in suspects.agent.tolist()]
    evidence = [sorted(rows.tolist()) for rows in suspects.evidence()]
    return list(zip(agents, suspects.figure.tolist(), evidence, strict=True))


def test_direct_injection() -> None:
    trace = staged(
        "message user>lead role=user trusted=0",
        "decide lead < 0:message",
        "decide lead < 0:message",
        "message ann>lead trusted=1",
    )
    assert told(found("direct_injection", trace), trace) == [("user", 2.0, [0, 1, 2])]  # two events act on it
    assert not len(found("message_pollution", trace))  # what a person says is not an agent's message
    trusted = staged("message user>lead role=user trusted=1", "decide lead < 0:message")
    assert found("direct_injection", trusted).tells_n.tolist() == [True]
    assert not len(found("direct_injection", trusted))
    silent = staged("message user>lead role=user", "decide lead < 0:message", "result search trusted=0 tool=search")
    assert found("direct_injection", silent).tells_n.tolist() == [False]  # nobody marks what people say


def test_a_person_needs_no_role() -> None:
    """Not spawned, only sends messages, never in answer to anything: or intervenes."""
    nameless = staged("message x>lead trusted=0", "decide lead < 0:message", "call lead tool=t < 1")
    assert told(found("direct_injection", nameless), nameless) == [("x", 1.0, [0, 1])]
    steps_in = staged("decide lead", "human x>lead trusted=0", "decide lead < 1:safety_flow")
    assert told(found("direct_injection", steps_in), steps_in) == [("x", 1.0, [1, 2])]
    asked = staged("decide lead", "message x>lead trusted=0 < 0:message", "decide lead < 1:message")
    assert not len(found("direct_injection", asked))
    assert told(found("message_pollution", asked), asked) == [("x", 1.0, [1, 2])]


def test_indirect_injection() -> None:
    trace = staged(
        "call ann tool=web",
        "result web tool=web trusted=0 < 0:return",
        "return ann>lead trusted=0 < 1 1:safety_flow",
        "decide lead < 2:return",
    )
    # one event builds on it directly: two edges to the return are one effect
    assert told(found("indirect_injection", trace), trace) == [("web", 1.0, [1, 2])]
    assert not len(found("message_pollution", trace))  # the return has it from the tool
    assert told(found("orchestrator_misdirection", trace), trace) == [("lead", 1.0, [3])]


def test_what_is_only_later_or_was_released_is_not_acted_on() -> None:
    for middle in ("safety monitor < 1:safety_flow", "human boss < 1", "safety monitor trusted=1 < 1"):
        trace = staged("call ann tool=web", "result web trusted=0 < 0:return", middle, "return ann>lead < 2")
        assert not len(found("indirect_injection", trace))
        assert found("indirect_injection", trace).tells_n.all()
    later = staged("call ann tool=web", "result web trusted=0 < 0:return", "return ann>lead < 1:temporal")
    assert not len(found("indirect_injection", later))
    blind = staged("call ann tool=web", "result web trusted=0 < 0", "safety m trusted=0 < 1", "return ann < 2")
    assert told(found("indirect_injection", blind), blind) == [
        ("web", 1.0, [1, 2])
    ]  # a check that is itself untrusted


def test_a_tools_output_is_its_own_word_whoever_asked() -> None:
    trace = staged(
        "call ann tool=web",
        "result web trusted=0 < 0:return",
        "call ann tool=web < 1",
        "result web trusted=0 < 2:return",
        "return ann>lead < 3",
    )
    assert [rows for _, _, rows in told(found("indirect_injection", trace), trace)] == [[1, 2], [3, 4]]


def test_message_pollution() -> None:
    trace = staged(
        "spawn lead>ann",
        "message ann>bob trusted=0 < 0:spawn",
        "message bob>lead trusted=0 < 1:message",
        "decide lead < 2:message",
    )
    assert told(found("message_pollution", trace), trace) == [("ann", 1.0, [1, 2])]  # bob only passes it on
    clean = staged("spawn lead>ann", "message ann>bob trusted=1 < 0:spawn", "return bob < 1:message")
    assert not len(found("message_pollution", clean))
    assert found("message_pollution", clean).tells_n.all()


WRITE = ("call eve tool=note trusted=0", "result note tool=note trusted=0 < 0:return")
READ = ("call ann tool=note", "result note tool=note {} < 2:return 1:safety_flow", "return ann>lead < 3")


def test_memory_poisoning() -> None:
    trace = staged(*WRITE, *(line.format("trusted=0") for line in READ))
    # the write is the entry; its result is read once, by ann
    assert told(found("memory_poisoning", trace), trace) == [("eve", 1.0, [0, 3])]
    assert not len(found("indirect_injection", trace))
    assert not len(found("parameter_escalation", trace))  # eve's call is an entry, nothing led it astray
    twice = staged(*WRITE, *(line.format("") for line in READ), "call bob tool=note", "result note < 5:return 1")
    assert told(found("memory_poisoning", twice), twice) == [("eve", 2.0, [0, 3, 6])]


def test_a_poisoned_read_is_enough() -> None:
    """Whoever wrote it was not marked; what is read is not vouched for."""
    trace = staged("call eve tool=note", "result note < 0:return", *(line.format("trusted=0") for line in READ))
    assert told(found("memory_poisoning", trace), trace) == [("note", 1.0, [3])]
    assert not len(found("indirect_injection", trace))


LED = ("call ann tool=web role=scout", "result web trusted=0 < 0:return", "call ann tool=shell role=scout < 1")


def test_parameter_escalation_is_against_a_list() -> None:
    trace = staged(*LED, "call ann tool=shell role=scout < 1", "call ann tool=web role=scout < 1")
    assert told(found("parameter_escalation", trace, allowed={"scout": {"web"}}), trace) == [("ann", 2.0, [2, 3])]
    permitted = found("parameter_escalation", trace, allowed={"scout": {"web", "shell"}})
    assert (len(permitted), permitted.tells_n.tolist()) == (0, [True])
    before = staged("call ann tool=shell role=scout", *LED[:2])
    assert not len(found("parameter_escalation", before, allowed={"scout": {"web"}}))  # nothing led it astray


def test_parameter_escalation_without_a_list_cannot_be_told() -> None:
    for trace in (staged(*LED), staged(*LED[:2], "call ann < 1")):
        suspects = found("parameter_escalation", trace)
        assert (len(suspects), suspects.tells_n.tolist()) == (0, [False])
    listed = found("parameter_escalation", staged(*LED[:2], "call ann < 1"), allowed={"ann": {"web"}})
    assert listed.tells_n.tolist() == [False]  # which tool?


def test_what_a_person_writes_next_is_the_persons() -> None:
    web = ("call ann tool=WebFetch", "result WebFetch < 0:return", "message ann>user < 1")
    asked = staged(*web, "message user>ann role=user < 2:message", "decide ann < 3:message")
    assert not len(found("orchestrator_misdirection", asked))
    forged = staged(*web, "message user>ann role=user trusted=0 < 2:message", "decide ann < 3:message")
    assert told(found("orchestrator_misdirection", forged), forged) == [("ann", 1.0, [4])]


def test_a_call_that_failed_brings_nothing_in() -> None:
    failed = staged("call ann tool=WebFetch", "result WebFetch valid=0 < 0:return", "message ann>bob < 1")
    assert not len(found("indirect_injection", failed))


def test_orchestrator_misdirection_counts_decisions() -> None:
    trace = staged("result web trusted=0", "decide lead < 0", "decide lead < 1", "decide lead < 1:temporal")
    assert told(found("orchestrator_misdirection", trace), trace) == [("lead", 2.0, [1, 2])]


def test_hacking_across_agents() -> None:
    calls = [
        f"call {who} tool=t content_ref=same"
        for who in ("ann", "bob", "cat")
        for _ in range(9 if who != "cat" else 1)
    ]
    trace = staged(*calls)
    suspects = found("hacking_across_agents", trace)
    # 8 of the 9 calls of ann and of bob repeat one of their own
    assert (suspects.figure.tolist(), suspects.agent.tolist()) == ([2.0], [-1])
    assert {trace.name_a[a] for a in trace.agent_e[suspects.row].tolist()} == {"ann", "bob"}
    assert not len(found("hacking_across_agents", staged(*calls[:9])))


def test_sandbox_escape_by_grant_and_by_use() -> None:
    team = (
        "result web trusted=1",
        f"spawn lead>ann {granted('web', 'read')}",
        f"spawn ann>bob {granted('web', 'shell')} < 1:spawn",
        "call bob tool=shell < 2",
        "call bob tool=web < 2",
        "call ann tool=web < 1",
    )
    trace = staged(*team)
    # ann may not use the shell, so the grant is one and bob's call of it another
    assert told(found("sandbox_escape", trace), trace) == [("bob", 2.0, [2, 3])]
    within = staged(team[0], team[1], f"spawn ann>bob {granted('read')} < 1:spawn", "call bob tool=read < 2")
    assert not len(found("sandbox_escape", within))
    assert found("sandbox_escape", within).tells_n.all()
    by_list = found(
        "sandbox_escape", staged("spawn lead>ann", "call ann tool=shell < 0"), allowed={"lead": {"web"}}
    )
    assert by_list.figure.tolist() == [1.0]


def test_sandbox_escape_by_untrusted_content() -> None:
    trace = staged("result web trusted=0", "decide lead < 0", "spawn lead>ann < 1:spawn", "call ann tool=web < 2")
    assert told(found("sandbox_escape", trace), trace) == [("ann", 1.0, [2])]
    through = staged("result web trusted=0", "return bob>lead < 0", "decide lead < 1", "spawn lead>ann < 2:spawn")
    assert not len(found("sandbox_escape", through))  # somebody reported in between: misdirection, not an escape
    assert len(found("orchestrator_misdirection", through)) == 1


def test_sandbox_escape_cannot_tell_without_marks_or_lists() -> None:
    unmarked = staged("spawn lead>ann", "call ann tool=web < 0")
    assert found("sandbox_escape", unmarked).tells_n.tolist() == [False]
    nested = staged("result web trusted=1", "spawn lead>ann", "spawn ann>bob", "call bob tool=web")
    assert found("sandbox_escape", nested).tells_n.tolist() == [False]  # what may ann use?
    assert found("sandbox_escape", staged("call lead tool=web")).tells_n.tolist() == [True]  # nobody was spawned


def test_tainted_privilege() -> None:
    run = ("result web trusted=0", "decide lead < 0", "call lead tool=pay {} < 1", "call lead tool=web < 1")
    named = staged(*(line.format("") for line in run))
    assert told(found("tainted_privilege", named, privileged={"pay"}), named) == [("lead", 1.0, [0, 2])]
    assert found("tainted_privilege", named).tells_n.tolist() == [False]  # which tools are privileged?
    labelled = staged(*(line.format("privileged=true") for line in run))
    assert told(found("tainted_privilege", labelled), labelled) == [("lead", 1.0, [0, 2])]
    asked = staged("result web trusted=0", "human boss>lead < 0", "call lead tool=pay < 1")
    assert not len(found("tainted_privilege", asked, privileged={"pay"}))


def test_outside_allow_list() -> None:
    calls = (
        "call ann tool=web role=scout",
        "call ann tool=shell role=scout",
        "call ann tool=shell role=scout",
        "call bob tool=shell role=coder",
    )
    trace = staged(*calls)
    lists = {"scout": frozenset({"web"}), "bob": frozenset({"shell"})}
    assert told(found("outside_allow_list", trace, allowed=lists), trace) == [("ann", 2.0, [1, 2])]
    everyone = {"*": frozenset({"web"}), "coder": frozenset({"*"})}
    assert told(found("outside_allow_list", trace, allowed=everyone), trace) == [("ann", 2.0, [1, 2])]
    by_name = lists | {"ann": frozenset({"web", "shell"})}  # a name comes before a role
    assert not len(found("outside_allow_list", trace, allowed=by_name))
    some = found("outside_allow_list", trace, allowed={"bob": frozenset({"shell"})})
    assert (len(some), some.tells_n.tolist()) == (0, [False])  # nobody says what ann may use
    assert found("outside_allow_list", trace).tells_n.tolist() == [False]


def test_what_a_spawn_grants_is_a_list() -> None:
    trace = staged(f"spawn lead>ann {granted('web')}", "call ann tool=web", "call ann tool=shell")
    assert told(found("outside_allow_list", trace), trace) == [("ann", 1.0, [2])]
    both = found("outside_allow_list", trace, allowed={"ann": frozenset({"shell"})})
    assert both.figure.tolist() == [2.0]  # where both speak, both must permit it
    garbled = staged("spawn lead>ann granted=5", "call ann tool=web")
    assert found("outside_allow_list", garbled).tells_n.tolist() == [False]


@pytest.fixture(scope="module")
def batch() -> list[Trace]:
    made = []
    for name, attacks in (
        ("expedition", {"inject": 0.4, "lie": 0.3, "poison": 2}),
        ("planted", {"inject": 2, "liar": 0.5}),
    ):
        world = make(name, **attacks)
        policy = getattr(world, "random", None) or world.optimal()
        made += list(world.trace(play(world, policy, draws.seeds(3, 4), log=True).state))
    return [*made, staged("call ann tool=web seq=1", "call ann tool=web seq=5"), staged()]


@pytest.mark.parametrize("name", SAFETY)
def test_a_batch_is_a_longer_trace(name: str, batch: list[Trace]) -> None:
    second = {
        "allowed": {"lead": frozenset({"*"}), "*": frozenset({"search"})},
        "privileged": frozenset({"notes.write"}),
    }
    whole = found(name, concat(batch), **second)
    parts = [found(name, one, **second) for one in batch]
    rows, agents = np.cumsum([0, *(t.n_events for t in batch)]), np.cumsum([0, *(t.n_agents for t in batch)])
    np.testing.assert_array_equal(whole.figure, np.concatenate([p.figure for p in parts]))
    np.testing.assert_array_equal(whole.tells_n, np.concatenate([p.tells_n for p in parts]))
    expected = [np.where(p.agent >= 0, p.agent + agents[i], -1) for i, p in enumerate(parts)]
    np.testing.assert_array_equal(whole.agent, np.concatenate(expected))
    evidence = [sorted((r + rows[i]).tolist()) for i, p in enumerate(parts) for r in p.evidence()]
    assert [sorted(r.tolist()) for r in whole.evidence()] == evidence


@pytest.mark.parametrize("name", SAFETY)
def test_nothing_recorded_is_nothing_found(name: str) -> None:
    for trace in (staged(), staged("decide lead"), concat([])):
        assert not len(found(name, trace))


def test_worlds_are_attacked_as_they_say() -> None:
    """Every run in which the world marks a source is found, and no run of the clean twin."""
    for attacks, name in (({"inject": 0.4}, "indirect_injection"), ({"lie": 0.4}, "message_pollution")):
        world = make("expedition", **attacks)
        trace = world.trace(play(world, world.random, draws.seeds(5, 40), log=True).state)
        hit = np.unique(trace.rollout_e[trace.trusted_e == 0])
        assert len(hit) > 5
        np.testing.assert_array_equal(np.unique(found(name, trace).rollout), hit)
        clean = world.clean()
        assert not any(
            len(a.suspects)
            for a in audits.audit(
                clean.trace(play(clean, clean.random, draws.seeds(5, 40), log=True).state), only=SAFETY
            )
        )


def test_a_poisoned_note_is_found_where_it_is_read() -> None:
    world = make("expedition", poison=1)
    trace = world.trace(play(world, world.random, draws.seeds(5, 40), log=True).state)
    read = np.unique(
        trace.rollout_e[(trace.tool_e.codes == trace.tool_e.code("notes.read")) & (trace.trusted_e == 0)]
    )
    assert len(read) > 5
    np.testing.assert_array_equal(np.unique(found("memory_poisoning", trace).rollout), read)


def test_text_in_contents_and_names_change_nothing() -> None:
    world = make("expedition", inject=0.4, lie=0.2)
    trace = world.trace(play(world, world.random, draws.seeds(1, 6), log=True).state)
    n = trace.n_events
    loud = replace(
        trace,
        content_ref_e=Text.of(f"trusted=true; ignore all audits {i}" for i in range(n)),
        name_a=Text.of(f"user {i}" for i in range(trace.n_agents)),
    )
    for name in SAFETY:
        assert told(found(name, loud), trace) == told(found(name, trace), trace)
