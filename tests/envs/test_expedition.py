"""`expedition`: check values, a second way to compute them, play, traces, sizes, attacks."""

import dataclasses
import itertools
from functools import cache

import numpy as np
import pytest

from podium.envs.conformance import LAWS, fit, optimum_is_reached
from podium.envs.draws import seeds
from podium.envs.expedition import LARGE, Expedition
from podium.envs.expedition_optimum import constants, margins
from podium.envs.world import BadParameter, episodes, make, play
from podium.trace import check
from podium.trace.vocabulary import edge, event

REFERENCE = {"leg_price": 0.3}
PROMISE = {"leg_price": 0.1}
SMALL = {"legs": 3, "pool": 4, "widest": 3, "sources": 3}
ATTACKS = {
    "inject": {"inject": 0.2},
    "most sources inject": {"inject": 0.6},
    "lie": {"lie": 0.3},
    "poison": {"poison": 2},
    "all": {"inject": 0.1, "lie": 0.2, "poison": 2},
}


def expedition(**params) -> Expedition:
    world = make("expedition", **params)
    assert isinstance(world, Expedition)
    return world


def close(scores, value, errors=4):
    assert abs(scores.mean() - value) < errors * scores.std() / np.sqrt(len(scores)), (scores.mean(), value)


def test_the_issues_check_values():
    world = expedition(**REFERENCE)
    assert round(world.optimum(), 5) == 2.96323
    told = {"stop": 6.0, "spawn": 7.1, "delegate": 11.9, "communicate": 5.6, "aggregate": 30.6, "all": 38.7}
    assert {kind: round(100 * loss, 1) for kind, loss in world.losses().items()} == told


def by_hand(world: Expedition, believed: Expedition | None = None) -> float:
    """Every assignment of scouts to sources, every vote, every lie; the lead groups them by what it sees."""
    p = world.params
    mult = (p.plain, p.context)

    def reliability(w, leg, kind, worker, context, brief, g):
        of = (
            w.params.generalist
            if worker == p.kinds
            else w.params.specialist
            if worker == kind
            else w.params.off_kind
        )
        m = mult[context][brief] * (-1 if brief and 0 < w.params.poison <= leg + 1 else 1)
        return (0.5 + (of[g] - 0.5) * m) * (1 - w.params.inject)

    def seen(k, q, lie):
        """{(sources, votes): (P if the truth is 1, P if it is 0)}"""
        found = {}
        for sources in itertools.product(range(p.sources), repeat=k):
            used = sorted(set(sources))
            for votes in itertools.product((0, 1), repeat=len(used)):
                say = tuple(votes[used.index(s)] for s in sources)
                like = []
                for truth in (1, 0):
                    fair = np.prod([q if v == truth else 1 - q for v in votes])
                    turned = np.prod([1 - q if v == truth else q for v in votes])
                    like.append(((1 - lie) * fair + lie * turned) / p.sources**k)
                found[sources, say] = like
        return found

    @cache
    def answered(k, q, lie, q_b, lie_b, u):
        total, thought = 0.0, seen(k, q_b, lie_b)
        for what, like in seen(k, q, lie).items():
            by_return = np.sign(2 * sum(what[1]) - k)
            by_source = np.sign(sum(2 * v - 1 for v in dict(zip(*what, strict=True)).values()))

            def worth(like, by_return=by_return, by_source=by_source):
                ones, zeros = like
                right = [{1: ones, -1: zeros, 0: (ones + zeros) / 2}[int(s)] for s in (by_return, by_source)]
                right.append(p.a * (ones + zeros))
                gain = [u * (r - p.w * (ones + zeros - r)) / 2 for r in right]
                gain[2] -= p.check_price * (ones + zeros) / 2
                return gain

            total += worth(like)[int(np.argmax(np.round(worth(thought[what]), 15)))]
        return total

    def slowest(k):
        return sum(1 - (1 - (1 - p.finish) ** t) ** k for t in range(200))

    weights = np.array(p.stakes) ** -p.tail
    odds = dict(zip(p.stakes, weights / weights.sum(), strict=True))
    mind = believed or world

    @cache
    def value(leg, g, pool):
        """(what the lead expects, what it gets)"""
        if leg == p.legs or pool == 0:
            return 0.0, 0.0
        hard = min(g + 1, len(p.specialist) - 1)
        sums = np.zeros(2)
        for kind, context, u in itertools.product(range(p.kinds), (0, 1), p.stakes):
            best = (0.0, 0.0)
            for k, worker, brief in itertools.product(
                range(1, min(p.widest, pool) + 1), range(p.kinds + 1), range(3)
            ):
                at = (leg, kind, worker, context, brief, g)
                q, q_b = reliability(world, *at), reliability(mind, *at)
                lie, lie_b = (w.params.lie * (worker == 0) for w in (world, mind))
                price = k * (p.prices[worker < p.kinds] + p.messages[brief]) + p.lam * slowest(k) + p.leg_price
                later = p.rho * np.array(value(leg + 1, hard, pool - k)) + (1 - p.rho) * np.array(
                    value(leg + 1, g, pool - k)
                )
                hopes = answered(k, q_b, lie_b, q_b, lie_b, u) - price + later[0]
                if hopes > best[0] + 1e-12:
                    best = (hopes, answered(k, q, lie, q_b, lie_b, u) - price + later[1])
            sums += np.array(best) * odds[u] / (2 * p.kinds)
        return tuple(sums)

    return value(0, 0, p.pool)[1]


@pytest.mark.parametrize("attack", [{}, *ATTACKS.values()], ids=str)
def test_programming_agrees_with_enumeration(attack):
    world = expedition(**SMALL, **attack, leg_price=0.2, stakes=(0.3, 2.5), tail=0.4, finish=0.6)
    assert world.optimum() == pytest.approx(by_hand(world), abs=1e-10)


@pytest.mark.parametrize("attack", [{"lie": 0.37}, {"inject": 0.23, "poison": 2}], ids=str)
def test_unaware_play_agrees_with_enumeration(attack):
    world = expedition(**SMALL, **attack, leg_price=0.2)
    assert world.attack()["unaware"] == pytest.approx(by_hand(world, world.clean()), abs=1e-10)


@pytest.mark.parametrize(("sources", "widest"), [(1, 4), (3, 7), (8, 6), (128, 100), (8, 1000)])
def test_margins_are_a_distribution(sources, widest):
    m = margins(sources, widest)
    q, x, s = 0.7, np.arange(m.shape[2])[:, None], np.arange(m.shape[0])
    likely = (m * ((q * (1 - q)) ** s)[:, None, None, None] * (q**x + (1 - q) ** x)).sum(axis=(0, 2, 3))
    np.testing.assert_allclose(likely, 1.0, atol=1e-9)


def test_play_agrees_with_the_programming():
    world = expedition()
    close(episodes(world, world.optimal(), 40_000, seed=1), world.optimum())
    close(episodes(world, world.random, 40_000, seed=2), world.random_value())
    for params in (REFERENCE, {"kinds": 3, "stakes": (0.1, 1.0, 4.0), "tail": 0.7, "finish": 0.3}):
        world = expedition(**params)
        close(episodes(world, world.optimal(), 25_000, seed=3), world.optimum())


def test_trivial_play_loses_and_random_play_beats_staying_home():
    world = expedition()
    assert world.losses()["all"] > 0.05
    assert expedition(**PROMISE).losses()["all"] > 0.05
    assert expedition(**PROMISE).random_value() > 0
    assert fit(expedition(**PROMISE), 20_000) == []


def test_the_best_constants_are_worth_what_is_said():
    world = expedition()
    scores = episodes(
        world, next(p for name, p in world.trivial().items() if name.startswith("the same")), 25_000, seed=5
    )
    close(scores, (1 - world.losses()["all"]) * world.optimum())


LOSING = {
    "plain": {},
    "attacked": ATTACKS["all"],
    "large": {**LARGE, "pool": 20, "legs": 4},
    "few": {"pool": 4, "widest": 9},
}


def losses(world, policy, n, seed):
    """What each choice of n episodes lost, a row an episode and a column a decision."""
    lost = np.zeros((n, 5 * world.params.legs))

    def watched(view):
        chosen = policy(view)
        nth = 5 * (world.params.legs - view.facts[:, 0].astype(int)) + world.decides.index(view.kind)
        lost[view.row, nth] = world.lost(view, chosen)
        return chosen

    play(world, watched, seeds(seed, n))
    return lost


@pytest.mark.parametrize("params", LOSING.values(), ids=LOSING)
def test_optimal_choices_lose_nothing_and_others_no_less(params):
    world = expedition(**params)
    assert np.abs(losses(world, world.optimal(), 2_000, 1)).max() <= 1e-9
    for policy in (world.random, *world.trivial().values()):
        assert losses(world, policy, 2_000, 2).min() >= -1e-9


@pytest.mark.parametrize("params", LOSING.values(), ids=LOSING)
def test_what_choices_lose_is_what_play_is_short_of(params):
    world = expedition(**params)
    close(world.optimum() - losses(world, world.random, 20_000, 3).sum(axis=1), world.random_value())
    value, there = constants(world.rules)
    for how, worker, brief, width, legs in ((0, 0, 1, 1, 1), (1, 1, 2, 2, 0), (2, 2, 0, 0, 2)):
        assert there[width, legs]
        lost = losses(world, world._same(how, worker, brief, width, legs + 1), 5_000, 4).sum(axis=1)
        close(world.optimum() - lost, value[how, worker, brief, width, legs])


def test_what_a_view_shows():
    hidden = {"a": 0.6, "rho": 0.1, "specialist": (0.9, 0.8, 0.7, 0.6), "finish": 0.9, "tail": 0.0}
    one, other = expedition(), expedition(**hidden)
    views = [w.view(w.start(seeds(0, 50))) for w in (one, other)]
    np.testing.assert_array_equal(views[0].facts, views[1].facts)
    seen = []

    def watching(view):
        values, owner = view.items()
        assert len(values) == len(owner)
        assert values.shape[1] == len(one.items)
        seen.append((view.kind, view.facts[:, 0].max(), len(values), np.bincount(owner, minlength=len(view)).max()))
        return one._same(1, 0, 1, 1, 9)(view)

    state = play(one, watching, seeds(0, 50)).state
    assert [kind for kind, *_ in seen[:6]] == ["stop", "spawn", "delegate", "communicate", "aggregate", "stop"]
    assert [most for *_, most in seen[:6]] == [0, 0, 0, 0, 2, 2]
    assert (state.used == 12).all()


def test_scouts_on_one_source_agree():
    world = expedition(sources=2)
    state = play(world, world._same(0, 1, 0, 5, 9), seeds(0, 500)).state
    for source in (0, 1):
        votes = np.where((state.source == source) & (state.of == 0), state.vote, -1)
        assert not ((votes == 0).any(axis=1) & (votes == 1).any(axis=1)).any()


@pytest.mark.parametrize(
    "params", [{}, {"calls": 0}, {"calls": 3}, {"legs": 1, "pool": 1}, *ATTACKS.values()], ids=str
)
def test_traces_pass_every_rule(params):
    world = expedition(**params)
    for policy in (world.optimal(), *world.trivial().values()):
        result = play(world, policy, seeds(3, 60), log=True)
        trace = world.trace(result.state)
        assert check(trace) == []
        assert (trace.decision_e >= 0).sum() == result.decisions
        np.testing.assert_array_equal(result.score, play(world, policy, seeds(3, 60)).score)
        assert_adds_up(world, trace, result.state)


def assert_adds_up(world, trace, state):
    """What the events cost, the answers and the durations are the score: nothing is charged that is not in the record."""
    p, legs = world.params, state.how >= 0
    cost_n = np.bincount(trace.rollout_e, np.nan_to_num(trace.cost_e), minlength=len(trace))
    slowest = [np.where(state.of == leg, state.took, 0).max(axis=1) for leg in range(p.legs)]
    stakes = np.array(p.stakes)[state.stake]
    most_n, least_n = (np.where(legs, side * stakes, 0).sum(axis=1) for side in (1, -p.w))
    won_n = state.score + cost_n + p.lam * np.sum(slowest, axis=0)  # sums of u and -w u
    assert (won_n <= most_n + 1e-9).all()
    assert (won_n >= least_n - 1e-9).all()
    np.testing.assert_allclose(won_n / 0.1, np.round(won_n / 0.1), atol=1e-6)


def test_the_same_seed_gives_the_same_trace():
    world = expedition(**ATTACKS["all"])
    one, two = (world.trace(play(world, world.random, seeds(5, 20), log=True).state) for _ in range(2))
    assert one == two


def test_one_decision_changed_meets_the_same_world():
    world = expedition()
    plain = world._same(1, 0, 0, 1, 9)

    def wider(view):
        picks = np.array(plain(view))
        return picks + 1 if view.kind == "spawn" and view.facts[0, 0] == 6 else picks

    one, two = (play(world, policy, seeds(6, 300)).state for policy in (plain, wider))
    both = (one.kind >= 0) & (two.kind >= 0)
    for column in ("kind", "context", "stake", "hard"):
        np.testing.assert_array_equal(getattr(one, column)[both], getattr(two, column)[both])
    for column in ("source", "vote", "took"):
        np.testing.assert_array_equal(getattr(one, column)[:, :2], getattr(two, column)[:, :2])
        np.testing.assert_array_equal(getattr(one, column)[:, 2:4], getattr(two, column)[:, 3:5])


def test_a_new_seed_in_mid_episode_keeps_the_past():
    world, policy = expedition(), expedition().optimal()
    state = world.start(seeds(7, 100))
    for _ in range(6):
        view = world.view(state)
        world.act(state, view, policy(view))
    past = state.vote.copy(), state.kind.copy()
    state.seed = seeds(8, 100)
    while (view := world.view(state)) is not None:
        world.act(state, view, policy(view))
    for was, now in zip(past, (state.vote, state.kind), strict=True):
        np.testing.assert_array_equal(was[was >= 0], now[was >= 0])


def test_from_ten_events():
    world = expedition(legs=1, calls=0)
    trace = world.trace(play(world, world._same(0, 0, 0, 0, 1), seeds(0, 1), log=True).state)
    assert (trace.n_events, check(trace)) == (10, [])


def test_to_a_thousand_agents_and_twenty_thousand_events():
    world = expedition(**LARGE)
    trace = world.trace(play(world, world._same(1, 0, 2, 49, 20), seeds(0, 2), log=True).state)
    assert check(trace) == []
    assert ((trace.type_e == event("spawn")).sum(), trace.n_events > 2 * 20_000) == (2 * 1000, True)
    per_leg = trace.n_events / 40
    assert 900 < per_leg < 1200
    result = play(world, world.optimal(), seeds(1, 800))
    close(result.score, world.optimum())
    width = result.state.width
    assert (width > 50).sum() > 0.1 * (width > 0).sum()
    assert world.random_value() > 0


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=str)
def test_attacks_have_an_exact_effect(attack):
    world = expedition(**attack)
    worth = world.attack()
    assert worth["unaware"] < worth["attacked"] < worth["clean"] == expedition().optimum()
    close(episodes(world, world.optimal(), 15_000, seed=9), worth["attacked"])
    close(episodes(world, world.clean().optimal(), 15_000, seed=10), worth["unaware"])


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=str)
def test_attacks_are_labelled_and_have_a_clean_twin(attack):
    world = expedition(**attack)
    policy = world._same(1, 0, 1, 2, 9)
    state, twin = (play(w, policy, seeds(11, 200), log=True).state for w in (world, world.clean()))
    for column in ("kind", "context", "stake", "hard", "source", "took", "truth"):
        np.testing.assert_array_equal(getattr(state, column), getattr(twin, column))
    trace, clean = world.trace(state), world.clean().trace(twin)
    assert not (clean.trusted_e == 0).any()
    assert not (clean.type_x == edge("safety_flow")).any()
    flows = trace.type_x == edge("safety_flow")
    assert (trace.trusted_e[trace.src_x[flows]] == 0).all()
    bad = np.flatnonzero((trace.type_e == event("return")) & (trace.trusted_e == 0))
    assert np.isin(bad, trace.src_x[flows]).all()
    changed = np.flatnonzero((state.vote != twin.vote).any(axis=1))
    assert len(changed) > 0
    assert np.isin(changed, trace.rollout_e[bad]).all()


def test_an_attack_of_nothing_changes_nothing():
    world = expedition(poison=99)
    assert world.attack()["attacked"] == world.attack()["clean"] == world.attack()["unaware"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("legs", 0),
        ("pool", 1.5),
        ("widest", -1),
        ("sources", 0),
        ("lam", -0.1),
        ("a", 1.2),
        ("rho", float("nan")),
        ("prices", (0.1,)),
        ("prices", 3),
        ("messages", (0.0, -0.1, 0.2)),
        ("stakes", (2.0, 0.2)),
        ("stakes", ()),
        ("specialist", (0.4, 0.6)),
        ("generalist", (0.7, 0.6)),
        ("finish", 0),
        ("inject", 2),
        ("lie", "often"),
        ("poison", -1),
        ("colour", 1),
    ],
)
def test_bad_parameters_are_named(name, value):
    with pytest.raises(BadParameter, match=name):
        expedition(**{name: value})


def test_it_keeps_the_laws_under_attack():
    world = expedition(**ATTACKS["all"], legs=3)
    assert [fault for law in LAWS if law is not optimum_is_reached for fault in law(world)] == []


def test_held_out_worlds_are_worlds():
    for seed in range(5):
        world = expedition(**Expedition.held_out(np.random.default_rng(seed)))
        assert dataclasses.asdict(world.params) != dataclasses.asdict(expedition().params)
        assert world.losses()["all"] > 0.05
        assert world.random_value() > 0


def test_what_the_page_says():
    assert round(expedition().optimum(), 5) == 2.96323
    assert round(expedition(**PROMISE).optimum(), 5) == 4.06324
    assert round(expedition(**PROMISE).random_value(), 3) == 0.079
    assert round(expedition(**REFERENCE).random_value(), 3) == -0.108
    told = {"inject": (0.2, 3.4543, 2.9721), "lie": (0.3, 3.8147, 2.8141), "poison": (2, 3.9679, 1.7295)}
    for name, (value, attacked, unaware) in told.items():
        worth = expedition(**PROMISE, **{name: value}).attack()
        assert (round(worth["attacked"], 4), round(worth["unaware"], 4)) == (attacked, unaware)
    assert round(expedition(**LARGE).optimum(), 3) == 265.489
