"""Masking agents of a planted team: everything before stays, nothing of theirs comes after."""

from __future__ import annotations

import numpy as np
import pytest

from podium.envs.branch import branch, luck
from podium.envs.draws import seeds
from podium.envs.planted import Planted
from podium.envs.world import BadParameter, make, play
from podium.trace import check
from podium.trace.columns import Trace
from podium.trace.do import Do


def played(n: int = 4) -> tuple[Planted, Trace, np.ndarray]:
    world = make("planted")
    assert isinstance(world, Planted)
    seed = seeds(11, n)
    return world, world.trace(play(world, world.behaviour(seed), seed, log=True).state), seed


def test_an_agent_is_silent_from_any_row_on_and_the_past_is_as_it_was() -> None:
    world, trace, seed = played()
    first = trace.first_of("e")
    rows = np.flatnonzero(trace.agent_e >= 0)[::3]
    names = {f"agent{a}" for a in (1, 2, 3)} | {"lead"}
    dos = [Do(int(r), "mask") for r in rows if trace.name_a[trace.agent_e[r]] in names]
    run = [int(trace.rollout_e[do.row]) for do in dos]
    for fresh in (None, seeds(4, len(dos))):
        policy = world.behaviour(seed[run] if fresh is None else fresh)
        grown = branch(world, trace, dos, policy, fresh)
        assert check(grown) == []
        for i, (do, n) in enumerate(zip(dos, run, strict=True)):
            one, local = grown[i], do.row - int(first[n])
            past = trace[n]
            assert one.branch_n[0] == local
            np.testing.assert_array_equal(one.type_e[:local], past.type_e[:local])
            np.testing.assert_array_equal(one.t_e[:local], past.t_e[:local])
            name = str(trace.name_a[trace.agent_e[do.row]])
            acts = [str(one.name_a[a]) for a in one.agent_e[local:]]
            gone = [
                str(one.name_a[a]) for a, k in zip(one.agent_e[local:], one.type_e[local:], strict=True) if k == 2
            ]
            assert [a for a in acts if a == name] == [a for a in gone if a == name]


def test_to_mask_nobody_is_the_same_run_again() -> None:
    world, trace, seed = played(1)
    grown = branch(world, trace, [Do(7, "mask", ())], world.behaviour(seed))
    for name in ("t_e", "type_e", "src_x", "dst_x"):
        np.testing.assert_array_equal(getattr(grown, name), getattr(trace, name))
    np.testing.assert_array_equal(grown.logp_e, trace.logp_e)
    assert grown.reward_n["team"] == trace.reward_n["team"]


def test_masks_and_choices_may_be_asked_for_together() -> None:
    world, trace, seed = played(1)
    dos = [Do(0, "mask", "agent1"), Do(int(np.flatnonzero(trace.decision_e >= 0)[0]), "choose", "0")]
    both = branch(world, trace, dos, world.behaviour(seed[[0, 0]]))
    for i, do in enumerate(dos):
        alone = branch(world, trace, [do], world.behaviour(seed))
        np.testing.assert_array_equal(both[i].type_e, alone.type_e)
        assert both.do_n[i] == alone.do_n[0]


def test_what_cannot_be_masked_is_refused_by_name() -> None:
    world, trace, seed = played(1)
    policy = world.behaviour(seed)
    with pytest.raises(BadParameter, match="no agent called 'nobody'"):
        branch(world, trace, [Do(0, "mask", "nobody")], policy)
    with pytest.raises(BadParameter, match="names of agents"):
        branch(world, trace, [Do(0, "mask", 3.0)], policy)
    with pytest.raises(BadParameter, match="no row 100000"):
        branch(world, trace, [Do(100_000, "mask", "lead")], policy)
    with pytest.raises(BadParameter, match="not delay"):
        branch(world, trace, [Do(0, "delay", 3.0)], policy)
    masked = branch(world, trace, [Do(0, "mask", "agent1")], policy)
    with pytest.raises(BadParameter, match="branch from its parent"):
        branch(world, masked, [Do(0, "mask", "agent2")], policy)
    jury = make("jury")
    sat = jury.trace(play(jury, jury.optimal(), seed, log=True).state)
    with pytest.raises(BadParameter, match="jury cannot mask"):
        branch(jury, sat, [Do(0, "mask", "voter 1")], jury.optimal())


def test_tries_of_one_number_share_their_luck() -> None:
    _, trace, seed = played(2)
    rows = np.flatnonzero(trace.decision_e >= 0)[:2]
    dos = [Do(int(rows[0]), "choose", o) for o in ("0", "1", "0", "1")] + [Do(int(rows[1]), "choose", "0")]
    drawn = luck(trace, dos, np.array([0, 0, 1, 1, 1]))
    assert drawn[0] == drawn[1] == seed[0]
    assert drawn[2] == drawn[3] != seed[0]
    assert drawn[4] != drawn[2]
