"""The laws hold for every step and every method, and each law catches the function that breaks it, and only it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import count

import numpy as np
import pytest
from credit_laws import LAWS, Judged, _luck, _spans, faults, judged, split
from grown import near, on, run, runs
from teams import forest, plain, solo

from podium import rewards
from podium.audit.score_laws import renamed, reordered
from podium.credit import Credit, apply
from podium.credit.forest import nodes, roots
from podium.credit.routing import broadcast
from podium.graph import units
from podium.methods import METHODS, Method
from podium.registry import facts, find, names
from podium.rewards.ledger import Now
from podium.trace.columns import Trace
from podium.trace.rules import check
from podium.trace.vocabulary import event


@cache
def traces() -> tuple[Trace, ...]:
    return (*(plain(seed) for seed in range(3)), *(forest(seed) for seed in (10, 11)), solo())


def test_the_traces_are_varied_and_valid() -> None:
    for trace in traces():
        assert not [finding for finding in check(trace) if finding.level == "error"]
    kinds = ("orchestrator_decision", "message", "tool_call", "tool_result", "spawn", "aggregate", "return")
    assert {event(kind) for kind in kinds} <= {int(k) for trace in traces() for k in np.unique(trace.type_e)}
    assert sum(int((trace.parent_n.codes >= 0).sum()) for trace in traces()) > 20


# every method


def as_judged(method: Method) -> Judged:
    def start(trace: Trace) -> Credit:
        return Credit(trace, method.unit, rewards.score(trace, method.reward, method.unit, Now(progress=0.5)))

    return Judged(
        method.name,
        start,
        lambda credit: apply(credit, method.credit),
        counts=method.counts,
        scales=method.scales,
        conserves="closed(" in method.credit,
        moves="along_spawns" in method.credit,
    )


RUNNABLE = sorted(name for name, method in METHODS.items() if method.credit)


@pytest.mark.parametrize("name", RUNNABLE)
def test_every_method_obeys_the_laws_and_its_claims(name: str) -> None:
    assert faults(as_judged(METHODS[name]), traces()) == []


@pytest.mark.parametrize("name", [name for name in RUNNABLE if not METHODS[name].scales])
def test_a_method_that_does_not_claim_to_scale_does_not(name: str) -> None:
    told = as_judged(METHODS[name])._replace(scales=True)
    assert any(why for trace in traces() for why in LAWS["scale"](told, trace))


@pytest.mark.parametrize("name", ["dr_mas", "marshal", "gigpo", "ippo"])
def test_a_method_that_counts_rows_sees_a_span_that_is_recorded_as_two(name: str) -> None:
    told = as_judged(METHODS[name])._replace(counts="rollouts")
    assert any(why for trace in traces() for why in LAWS["splitting"](told, trace))


@pytest.mark.parametrize(
    "name", [n for n in RUNNABLE if METHODS[n].counts == "tokens" and METHODS[n].pays == "token"]
)
def test_a_method_that_counts_tokens_weighs_a_longer_answer_more(name: str) -> None:
    trace = plain(0)  # of one batch
    made = apply(as_judged(METHODS[name]).start(trace), METHODS[name].credit)
    weight = np.ones(len(made.value)) if made.weight is None else np.where(np.isnan(made.value), 0.0, made.weight)
    of_runs = np.bincount(made.rollout, weight)
    wrote = np.bincount(made.rollout, ~np.isnan(made.value))
    if wrote.any():
        assert np.argmax(of_runs) == np.argmax(wrote)


@pytest.mark.parametrize("name", [name for name in RUNNABLE if "group" in METHODS[name].needs])
def test_a_group_of_one_is_never_silent(name: str) -> None:
    """Nobody to compare with: no credit, unless the row itself says what it gives."""
    row = METHODS[name]
    made = apply(as_judged(row).start(solo()), row.credit)
    assert np.isnan(made.value).all() or "alone=" in row.credit


# every step


EXAMPLES: dict[str, tuple[str, str]] = {  # steps that need to be told something, or are for other units than turns
    "along_spawns": ("along_spawns()", "agent"),
    "aligned_zscore": ("aligned_zscore()", "agent"),
    "at_end": ("at_end()", "turn"),
    "clip": ("clip(-0.5, 0.5)", "turn"),
    "closed": ('closed(to("agent"))', "team"),
    "gae": ('gae("value", "rollout", 0.9, 0.8)', "turn"),
    "last_token": ("last_token() >> sampled()", "turn"),
    "leave_one_out": ('leave_one_out(by=("task", "agent"), weight="weight")', "turn"),
    "majority_mixture": ("majority_mixture()", "message"),
    "masked": ('masked("agent")', "team"),
    "minus": ('minus("value")', "turn"),
    "once": ('once(center(by=("parent", "agent")))', "turn"),
    "only": ('only("role", "solver")', "turn"),
    "own_action": ("own_action()", "orchestrator"),
    "per_critique": ("per_critique()", "message"),
    "plugged": ('plugged("value")', "turn"),
    "plus_tools": ("plus_tools()", "agent"),
    "pooled_prefix": ("pooled_prefix()", "orchestrator"),
    "qmix": ('qmix("q", "mixer")', "turn"),
    "rank_gaussian": ('rank_gaussian(by=("task", "agent"), tau=0.5)', "turn"),
    "resample": ('resample(by=("task", "role"), d=4)', "turn"),
    "same_prefix": ('same_prefix(same="option")', "orchestrator"),
    "sampled": ("sampled()", "token"),
    "scored": ('scored("outcome")', "turn"),
    "shapley": ("shapley()", "team"),
    "spawn_shapley": ("spawn_shapley()", "team"),
    "stopping": ('to("orchestrator") >> stopping()', "team"),
    "td": ('td("value", "agent", 0.9)', "turn"),
    "to": ('to("agent", "share", "tokens")', "team"),
    "togo": ('togo("agent", 0.9)', "turn"),
    "token_gae": ('token_gae("values", 0.99, 0.95)', "token"),
    "vdn": ('vdn("q")', "turn"),
    "weigh": ('weigh("agent")', "turn"),
    "zscore_against": ('zscore_against("outcome", by="task")', "turn"),
}
MORE = (
    *((f'weigh("{by}", longest=9)', unit) for by in ("token", "sequence", "agent", "rollout", "root", "constant") for unit in ("turn", "token", "agent")),
    *((f'togo("{along}", 0.9)', unit) for along in ("rollout", "player", "round", "edges") for unit in ("turn", "message")),
    *((f'decay("{along}", 0.9)', "turn") for along in ("rollout", "agent", "round")),
    *((f'zscore(by=("task", "{key}"), count="{count}")', "turn") for key in ("agent", "role", "player", "turn", "anchor", "model") for count in ("row", "rollout", "unique")),
    *((f'center(by="{key}", alone="zero")', "turn") for key in ("context", "tree", "upstream", "parent", "rollout")),
    *((f'only("{what}")', "turn") for what in ("lead", "spawned", "failed", "last", "orchestrator")),
    *((f'peers_ahead(0.3, "{who}")', "turn") for who in ("all", "own", "last")),
    ('togo("rollout", 0.9)', "token"),
    ('togo("agent", 0.9)', "token"),
    ("best_only(std=True)", "turn"),
    ("whiten(shift=False)", "turn"),
    ('to("turn")', "team"),
    ('to("team", "sum")', "turn"),
    ('to("agent", "mean")', "turn"),
    ('to("role")', "team"),
    ('to("turn")', "role"),
    ('masked("message")', "team"),
    ('same_prefix("mean")', "turn"),
    ("revote()", "agent"),
)  # fmt: skip
MOVES = ("along_spawns", "to", "once")


def example(step: str) -> tuple[str, str]:
    """How a step is asked for: as its facts say, as the table says, or by its name alone, at turns."""
    told = facts("step", step)
    return (
        (told["example"], told.get("unit", "turn"))
        if "example" in told
        else EXAMPLES.get(step, (f"{step}()", "turn"))
    )


@pytest.mark.parametrize("step", names("step"))
def test_every_step_obeys_the_laws(step: str) -> None:
    expression, unit = example(step)
    assert faults(judged(expression, unit, moves=step in MOVES), traces()) == []


@pytest.mark.parametrize(("expression", "unit"), MORE)
def test_so_does_it_with_other_options(expression: str, unit: str) -> None:
    assert faults(judged(expression, unit), traces()) == []


@pytest.mark.parametrize(
    ("expression", "unit"),
    [
        ('to("agent", "share")', "team"),
        ('to("turn", "share", "time")', "team"),
        ('to("token", "share", "tokens")', "team"),
        ('to("team", "sum")', "turn"),
        ('to("agent", "sum")', "turn"),
        ('closed(masked("agent"))', "team"),
    ],
)
def test_what_moves_credit_conserves_it(expression: str, unit: str) -> None:
    assert faults(judged(expression, unit, conserves=True, scales=True), traces()) == []


@pytest.mark.parametrize(
    ("unit", "finer"),
    [("team", "agent"), ("team", "turn"), ("turn", "token"), ("agent", "turn"), ("message", "token")],
)
def test_what_goes_down_as_an_advantage_is_broadcast(unit: str, finer: str) -> None:
    def down_to(credit: Credit) -> Credit:
        return broadcast(credit, finer)

    claims = {"broadcasts": True, "scales": True}
    assert faults(judged(f'to("{finer}")', unit, **claims), traces()) == []
    assert faults(judged("center()", unit, **claims)._replace(of=down_to), traces()) == []


def test_every_step_says_what_it_does() -> None:
    for step in names("step"):
        assert find("step", step).__doc__, step


# liars: each breaks one law


def _liar(of: Callable[[Credit], Credit], **claims: object) -> Judged:
    return judged("center()", "turn", **claims)._replace(name=of.__name__, of=of)


def too_short(credit: Credit) -> Credit:
    return credit.of(credit.value[:-1])


def over_all(credit: Credit) -> Credit:
    """Compares with whatever lies in the same trace."""
    return credit.of(credit.value - np.nanmean(credit.value)) if len(credit.value) else credit


def weighs_over_all(credit: Credit) -> Credit:
    return replace(credit, weight=np.full(len(credit.value), 1.0 / max(len(credit.value), 1)))


def by_place(credit: Credit) -> Credit:
    """What comes further down the log counts less."""
    first = np.searchsorted(credit.rollout, credit.rollout)
    return credit.of(credit.value / (1.0 + np.arange(len(credit.value)) - first))


def by_name(credit: Credit) -> Credit:
    length = np.array([*map(len, credit.trace.name_a.words), 0])
    return credit.of(credit.value * length[find("key", "agent")(credit.trace, credit.unit)])


def by_id(credit: Credit) -> Credit:
    """An agent that the log numbers first counts more."""
    agents = units.agents(credit.trace, credit.unit)
    first = np.searchsorted(credit.trace.rollout_a, np.arange(len(credit.trace)))
    return credit.of(credit.value * (1.0 + agents - first[credit.rollout]))


def fills(credit: Credit) -> Credit:
    return credit.of(np.nan_to_num(credit.value))


def fills_from_peers(credit: Credit) -> Credit:
    """Of a run that was scored, whoever was not gets the mean of the others."""
    mean = apply(credit.of(np.nan_to_num(credit.value)), "to('team', 'mean') >> to('turn')").value
    known = np.bincount(credit.rollout, ~np.isnan(credit.value), minlength=len(credit.trace)) > 0
    return credit.of(np.where(np.isnan(credit.value) & known[credit.rollout], mean, credit.value))


def counts_turns(credit: Credit) -> Credit:
    """A mean over turns, that says it counts rollouts."""
    return apply(credit, "center(by='task', count='row', alone='zero')")


def adds_one(credit: Credit) -> Credit:
    return credit.of(credit.value + 1.0)


def copies(credit: Credit) -> Credit:
    """Everything to everyone."""
    return apply(credit, "to('team', 'sum') >> to('turn')")


def shares(credit: Credit) -> Credit:
    """Divides an advantage by what is inside."""
    return apply(credit, "to('token', 'share')")


def weighs_more_what_is_longer(credit: Credit) -> Credit:
    """Broadcasts the advantage, and the weight too."""
    moved = broadcast(credit, "token")
    return moved if credit.weight is None else replace(moved, weight=moved.of(np.ones(len(moved.value))).value)


def pays_no_end(credit: Credit) -> Credit:
    return credit.of(np.where(np.arange(len(credit.value)) == 1, np.inf, credit.value))


def weighs_no_end(credit: Credit) -> Credit:
    return replace(credit, weight=np.full(len(credit.value), np.inf))


def weighs_too_few(credit: Credit) -> Credit:
    return replace(credit, weight=np.ones(len(credit.value))[:-1])


def restless(credit: Credit) -> Credit:
    return credit.of(credit.value + next(TICKS))


def weighs_restlessly(credit: Credit) -> Credit:
    return replace(credit, weight=np.full(len(credit.value), float(next(TICKS))))


def weighs_by_place(credit: Credit) -> Credit:
    return replace(credit, weight=by_place(credit.of(np.ones(len(credit.value)))).value)


def hardly_by_place(credit: Credit) -> Credit:
    """By one part in a million."""
    return credit.of((1.0 - 1e-6) * credit.value + 1e-6 * by_place(credit).value)


def minutely_by_place(credit: Credit) -> Credit:
    return credit.of(2e-9 * by_place(credit).value)


def of_halves(credit: Credit) -> Credit:
    return replace(credit, value=credit.value.astype(np.float32))  # type: ignore[arg-type]


def of_nothing_something(credit: Credit) -> Credit:
    return credit if len(credit.trace) else replace(credit, weight=np.ones(1))


def adds_a_little(credit: Credit) -> Credit:
    return credit.of(credit.value + 0.001)


def rounds_to_powers_of_2(credit: Credit) -> Credit:
    """Twice the reward is twice the credit; three times it is not three times."""
    return credit.of(_power(credit.value, 2.0))


def rounds_to_powers_of_3(credit: Credit) -> Credit:
    return credit.of(_power(credit.value, 3.0))


def _power(value: np.ndarray, base: float) -> np.ndarray:
    """The next power of the base; a little is added, so that powers themselves stay on one side."""
    with np.errstate(divide="ignore"):
        size = base ** np.floor(np.log(np.abs(value)) / np.log(base) + 1e-9)
    return np.sign(value) * size


def loses_the_last(credit: Credit) -> Credit:
    """What the last run of a trace was paid."""
    return credit.of(np.where(credit.rollout == len(credit.trace) - 1, 0.0, credit.value))


def weighs_by_name(credit: Credit) -> Credit:
    return replace(credit, weight=by_name(credit.of(np.ones(len(credit.value)))).value)


def weighs_turns(credit: Credit) -> Credit:
    """Every turn alike, though it says that it counts agents."""
    return replace(credit, weight=np.ones(len(credit.value)))


TICKS = count()
LIARS: dict[Judged, str] = {
    _liar(too_short): "one number a unit",
    _liar(pays_no_end): "one number a unit",
    _liar(weighs_no_end): "one number a unit",
    _liar(weighs_too_few): "one number a unit",
    _liar(restless): "one number a unit",
    _liar(weighs_restlessly): "one number a unit",
    _liar(weighs_by_place): "interleaving",
    _liar(hardly_by_place): "interleaving",
    _liar(minutely_by_place): "interleaving",
    _liar(of_halves): "one number a unit",
    _liar(of_nothing_something): "one number a unit",
    _liar(adds_a_little, scales=True): "scale",
    _liar(rounds_to_powers_of_2, scales=True): "scale",
    _liar(rounds_to_powers_of_3, scales=True): "scale",
    _liar(weighs_by_name): "names and ids",
    _liar(weighs_turns, counts="agents"): "splitting",
    _liar(over_all): "batch",
    _liar(weighs_over_all): "batch",
    _liar(by_place): "interleaving",
    _liar(by_name): "names and ids",
    _liar(by_id): "names and ids",
    _liar(fills): "NaN in NaN out",
    _liar(fills_from_peers): "NaN in NaN out",
    _liar(counts_turns, counts="rollouts"): "splitting",
    _liar(adds_one, scales=True): "scale",
    _liar(copies, conserves=True): "conservation",
    _liar(shares, broadcasts=True): "broadcast",
    _liar(weighs_more_what_is_longer, broadcasts=True): "broadcast",
}


@pytest.mark.parametrize("liar", LIARS, ids=lambda liar: liar.name)
def test_each_law_bites_and_no_other(liar: Judged) -> None:
    assert [fault.split(":")[0] for fault in faults(liar, traces())] == [LIARS[liar]]


@pytest.mark.parametrize("run", [0, 2, 4])
def test_whichever_run_is_paid_though_it_was_not_scored(run: int) -> None:
    def fills_one(credit: Credit) -> Credit:
        return credit.of(np.where(credit.rollout == run, np.nan_to_num(credit.value), credit.value))

    assert "pays a run that was not scored" in [*LAWS["NaN in NaN out"](_liar(fills_one), plain(0))]


def test_whichever_run_loses_reward() -> None:
    assert [*LAWS["conservation"](_liar(loses_the_last, conserves=True), plain(0))] == ["mints or loses reward"]


def test_what_moves_credit_may_pay_a_unit_that_was_not_scored() -> None:
    assert not [*LAWS["NaN in NaN out"](_liar(fills_from_peers, moves=True), plain(0))]


def test_a_run_that_is_given_nothing_loses_nothing() -> None:
    def silent(credit: Credit) -> Credit:
        return credit.of(np.where(credit.rollout == 1, np.nan, credit.value))

    assert not [*LAWS["conservation"](_liar(silent, conserves=True), plain(0))]


def test_the_number_of_an_agent_is_none_of_its_credit() -> None:
    def by_number(credit: Credit) -> Credit:
        nth = np.arange(len(credit.value)) - credit.trace.first_of("a")[credit.rollout]
        return credit.of(credit.value + nth)

    def by_reward(credit: Credit) -> Credit:
        return replace(credit, weight=np.abs(credit.value))

    def weighs_by_number(credit: Credit) -> Credit:
        return replace(credit, weight=by_number(credit).value)

    law, agents = LAWS["names and ids"], judged("center()", "agent")
    for liar in (by_number, weighs_by_number):
        assert [*law(agents._replace(of=liar), plain(0))] == ["depends on names or ids"]
    assert not [*law(agents._replace(of=by_reward), plain(0))]


def test_a_weight_that_is_shared_by_both_parts_of_a_span_is_no_fault() -> None:
    def weighs_tokens(credit: Credit) -> Credit:
        place, wrote = units.place(credit.trace, "turn"), credit.trace.tokens_out_e
        weight = np.bincount(place[place >= 0], wrote[place >= 0], minlength=len(credit.value))
        return replace(credit, weight=weight.astype(np.float64))

    truth, liar = (_liar(f, counts="agents") for f in (weighs_tokens, weighs_turns))
    assert not [*LAWS["splitting"](truth, plain(0))]
    wrong = [*LAWS["splitting"](liar, plain(0))]
    assert wrong
    assert set(wrong) == {"weighs a span of work otherwise if it is recorded as two"}


def test_every_law_has_its_liar() -> None:
    assert set(LIARS.values()) == set(LAWS)


def test_the_truth_passes() -> None:
    def itself(credit: Credit) -> Credit:
        return credit

    claims = {"counts": "rollouts", "scales": True, "conserves": True, "broadcasts": True}
    assert faults(_liar(itself, **claims), traces()) == []


# the other forms of a trace are what they say


def test_a_span_recorded_as_two_is_a_valid_trace_of_the_same_work() -> None:
    trace = plain(0)
    row = int(np.flatnonzero((trace.type_e == event("return")) & (trace.agent_e != trace.agent_e[0]))[0])
    other, old = split(trace, row)
    assert not [finding for finding in check(other) if finding.level == "error"]
    assert other.n_events == trace.n_events + 1
    assert old[row] == old[row + 1] == row
    assert units.turn(other)[row] != units.turn(other)[row + 1]
    assert len(units.rows(other, "turn")) == len(units.rows(trace, "turn")) + 1
    for unit in ("team", "agent", "token", "message", "orchestrator"):
        assert len(units.rows(other, unit)) == len(units.rows(trace, unit))
    np.testing.assert_allclose(np.nansum(other.tokens_out_e), np.nansum(trace.tokens_out_e))
    np.testing.assert_allclose(other.reward_e["step"].sum(), trace.reward_e["step"].sum())


def test_a_span_recorded_as_two_by_hand() -> None:
    """Its tokens, time and cost are shared; its reward stays with the first; what it led to follows the second."""
    work = on("return bob", t=2.0, end=6.0, tokens=5, cost=1.0, step=0.5)
    trace = runs(
        run("decide ann", "say bob", work, on("say ann", after=[2]), team=1.0), run("decide ann", team=0.0)
    )
    other, old = split(trace, 2)
    assert old.tolist() == [0, 1, 2, 2, 3, 4]
    near(other.t_e[2:4], [2.0, 4.0])
    near(other.end_e[2:4], [4.0, 6.0])
    near(other.tokens_out_e[2:4], [2.0, 3.0])
    near(other.cost_e[2:4], [0.5, 0.5])
    near(other.reward_e["step"][2:4], [0.5, 0.0])
    assert other.owner_k.tolist() == [2, 2, 3, 3, 3]
    edges = list(zip(other.src_x.tolist(), other.dst_x.tolist(), strict=True))
    assert edges == [(0, 1), (1, 2), (2, 3), (0, 3), (3, 4)]
    assert other.id_e.strings() == ["0", "1", "2", "2, the rest", "3", "0"]
    silent = runs(run("decide ann", "say bob", on("return bob", t=2.0, tokens_out=5.0), team=1.0))
    other, _ = split(silent, 2)
    near(other.tokens_out_e[2:4], [2.5, 2.5])  # which are counted and not recorded one by one
    near(other.t_e[2:4], [2.0, 2.0])


def test_work_that_may_be_recorded_as_two() -> None:
    """A return or an aggregate without votes, of whoever does not begin the run; none where runs branched."""
    trace = runs(
        run("decide ann", "return ann", "return bob", "say bob", on("aggregate bob", votes=[(2, "x")]), team=1.0),
        run("decide bob", "return bob", "aggregate ann", "return ann", team=0.0),
    )
    assert _spans(trace).tolist() == [2, 7, 8]
    assert _spans(forest(10)).tolist() == []


def test_luck_is_shared_by_copies_and_leaves_what_was_branched_at_where_it_is() -> None:
    trace = forest(10)
    luck, node = _luck(trace, np.random.default_rng(0)), nodes(trace, np.arange(trace.n_events))
    assert len(np.unique(luck)) == len(np.unique(node)) == len(np.unique(np.stack([luck, node]), axis=1).T)
    assert luck.min() >= 0.0
    assert luck.max() < 1.0  # so that runs stay apart
    local, root = np.arange(trace.n_events) - trace.first_of("e")[trace.rollout_e], roots(trace)
    for n in np.flatnonzero(trace.parent_n.codes >= 0).tolist():
        family, at = root[trace.rollout_e] == root[n], trace.branch_n[n]
        before, there, after = (luck[family & where] for where in (local < at, local == at, local > at))
        assert before.max(initial=-1.0) < there.min()
        assert there.max() < after.min(initial=1.0)


def test_under_other_names_branches_name_their_parents_and_masks_their_agents() -> None:
    trace = forest(10)
    other, _ = renamed(trace, np.random.default_rng(0))
    runs_ = dict(zip(trace.trace_id_n.strings(), other.trace_id_n.strings(), strict=True))
    assert other.parent_n.strings() == [name and runs_[name] for name in trace.parent_n.strings()]
    masked = [json.loads(text) for text in other.do_n.strings() if text and '"mask"' in text]
    assert masked
    people = set(other.name_a.strings())
    assert all(who in people for do in masked for who in do["value"])


def test_in_another_order_events_keep_their_options() -> None:
    trace = plain(0)
    other, old = reordered(trace, np.random.default_rng(0))
    assert not np.array_equal(old, np.arange(trace.n_events))
    assert [other.options(row) for row in range(len(old))] == [trace.options(row) for row in old.tolist()]
