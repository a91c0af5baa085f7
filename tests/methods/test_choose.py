"""The four questions, and which methods can be paid."""

from __future__ import annotations

import numpy as np
import pytest
from handmade import on, run, runs

from podium.credit import apply
from podium.methods import METHODS, choose, scored, table
from podium.methods.choose import ASKS, LONG, SUITS, answers, lacking
from podium.trace.columns import Trace


def says(trace: Trace) -> list[str]:
    return [one.says for one in answers(trace)]


def traits(trace: Trace) -> list[str]:
    return [trait for one in answers(trace) for trait in one.traits]


def test_a_lone_talker_is_nothing_special() -> None:
    trace = runs(run(on("say ann worker", end=1.0), on("say bob worker", end=5.0), team=1.0))
    assert says(trace) == ["no", "no", "no", "neither"]
    assert traits(trace) == []
    assert answers(trace)[1].because == "20% of the critical path is the lead's"  # ann acts first: 1 of 5 seconds


def test_spawns_make_the_set_of_agents_dynamic() -> None:
    trace = runs(run("decide lead", "spawn lead>w", team=1.0), run("decide lead", team=1.0))
    assert answers(trace)[0] == (
        "Is the set of agents dynamic?",
        "yes",
        "1 of 2 runs spawn; 1 to 2 agents a run",
        ("dynamic",),
    )


def test_a_lead_that_works_half_the_path_is_the_bottleneck() -> None:
    def team(lead: float, worker: float) -> Trace:
        return runs(run(on("decide lead", t=0, end=lead), on("say w", t=lead, end=lead + worker), team=1.0))

    assert [says(team(*work))[1] for work in ((3, 1), (1, 1), (1, 3))] == ["yes", "yes", "no"]


def test_without_ends_the_path_is_guessed_and_says_so() -> None:
    trace = runs(run("decide lead", "decide lead", on("say w", t=1.5)))
    # from the causes: 0, 1 and .5 seconds, of which the lead's are 1 of 1.5
    assert answers(trace)[1].because == "67% of the critical path is the lead's, guessed from when events began"
    still = runs(run(on("decide lead", t=0), on("say w", t=0)))
    assert answers(still)[1].says == "cannot tell"


def test_a_hundred_turns_are_long() -> None:
    def turns(n: int) -> Trace:
        return runs(run(*(on(f"say {'ab'[i % 2]}", after=[(i - 1, "message")] if i else []) for i in range(n))))

    assert LONG == 100
    assert [says(turns(n))[2] for n in (LONG - 1, LONG)] == ["no", "yes"]


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (["say a>b planner", "say b>a critic"], "roles"),
        (["decide l lead", "say a>b", "say b>a"], "debate"),
        (["decide l lead", "say a>b pro", "say b>a con"], "both"),
        (["decide l lead", "say a>l lead", "say l>a lead"], "neither"),  # answering the lead is no debate
        (["decide l lead", "say a>a lead"], "neither"),  # nor is talking to oneself
        (["decide l lead", "spawn a>b", "return b>a"], "neither"),  # nor is doing what one was told to
        (["say a"], "cannot tell"),
        (["say a", on("aggregate b", votes=[(0, "x")])], "debate"),
    ],
)
def test_roles_and_debates(events: list[object], said: str) -> None:
    assert says(runs(run(*events, team=1.0)))[3] == said  # type: ignore[arg-type]


def test_pairs_that_answer_each_other_are_counted() -> None:
    """Two pairs do; a third is asked and says nothing."""
    talk = ["decide l lead", "say a>b", "say b>a", "say c>d", "say d>c", "say e>f"]
    assert "2 pairs of peers answer each other" in answers(runs(run(*talk, team=1.0)))[3].because


def test_credit_differs_where_one_unit_of_one_run_gets_a_little_more() -> None:
    """Dr. MAS compares turns of an agent among runs: `a` speaks in three, `b` in two that end alike."""
    talk = ["say a", on("say b", after=[(0, "message")])]
    trace = runs(run("say a", team=1.0), run(*talk, team=0.9), run(*talk, team=0.9))
    given = apply(scored(trace, METHODS["dr_mas"]), METHODS["dr_mas"].credit).value
    assert np.nanmax(given) - np.nanmin(given) > 0
    fits = {fit.method: fit.differs for fit in choose.choose(trace).fits}
    assert (fits["dr_mas"], fits["sirius"]) == (True, False)


def test_an_empty_record_tells_nothing() -> None:
    assert says(runs(run())) == ["cannot tell"] * 4


def test_needs_that_are_not_met_are_named() -> None:
    alone = runs(run("say a", team=1.0))
    assert set(lacking(alone)) == {"group", "branches", "masks", "votes", "roles", "tokens", "spawns", "labels"}
    rich = runs(
        run(
            on("decide a lead", tokens=2, value="x"), on("spawn a>b"), on("aggregate a", votes=[(0, "x")]), team=1.0
        ),
        run(on("decide a lead"), parent="run0", branch=0, do={"what": "mask", "value": "b"}, team=0.0),
    )
    assert lacking(rich) == {}


def test_every_method_fits_or_says_what_it_lacks() -> None:
    trace = runs(run("decide lead", "say w", team=1.0), run("decide lead", team=0.0))
    choice = choose.choose(trace)
    assert {fit.method for fit in choice.fits} | set(choice.lacks) == set(METHODS)
    assert not {fit.method for fit in choice.fits} & set(choice.lacks)
    assert choice.lacks["c3_reward_only"].startswith("no run branched from another")
    assert choice.lacks["latentmas"] == "cards, of which nothing runs"
    assert choice.lacks["vdn"].startswith("needs the column 'q'")
    assert all(fit.paid for fit in choice.fits)
    differs = {fit.method: fit.differs for fit in choice.fits}
    assert (differs["hera"], differs["paramanager"]) == (False, False)


def test_a_method_that_pays_everybody_nothing_does_not_fit() -> None:
    even = choose.choose(runs(run("decide lead", team=1.0), run("decide lead", team=1.0)))
    assert even.lacks["hera"] == "every run gets 0"
    assert even.lacks["stopping"].startswith("no ")
    assert "puppeteer" in {fit.method for fit in even.fits}


def test_the_best_suited_come_first_and_then_the_most_faithful(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"hera": [{"env": "planted", "unit": "team", "spearman": 0.4, "interval": [0.3, 0.5], "rollouts": 0}]}
    monkeypatch.setattr(choose, "fidelity", lambda: found)
    trace = runs(
        run(on("decide lead", end=9.0), on("decide lead", end=10.0), "spawn lead>w", team=1.0),
        run("decide lead", team=0.0),
    )
    fits = choose.choose(trace).fits
    suited = [len(fit.suits) for fit in fits]
    assert suited == sorted(suited, reverse=True)
    assert fits[0].pays == "orchestrator"
    same = [fit.method for fit in fits if len(fit.suits) == len(next(f for f in fits if f.method == "hera").suits)]
    assert same[0] == "hera"


def test_suits_are_read_off_the_row() -> None:
    assert not SUITS["dynamic"](METHODS["dr_mas"], True)
    assert SUITS["roles"](METHODS["dr_mas"], True)
    assert SUITS["roles"](METHODS["marshal"], True)  # by the player, whatever it whitens over afterwards
    assert SUITS["dynamic"](METHODS["parl"], False)
    assert SUITS["bottleneck"](METHODS["puppeteer"], True)
    assert SUITS["debate"](METHODS["debate_as_reward"], False)
    assert set(ASKS) == set(SUITS)


def test_only_whole_runs_are_tried_on_large_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "TRIED", 5)
    trace = runs(*(run("say a", "say b", team=float(i)) for i in range(4)))
    assert choose.choose(trace).tried == 2
    monkeypatch.setattr(choose, "TRIED", 1)
    assert choose.choose(trace).tried == 1


def test_fidelity_is_read_from_what_the_bench_wrote(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(tmp_path, type(table.FIDELITY))
    monkeypatch.setattr(table, "FIDELITY", tmp_path / "fidelity.json")
    assert table.fidelity() == {}
    row = {
        "method": "c3",
        "env": "planted",
        "unit": "turn",
        "spearman": 0.9,
        "interval": [0.8, 1.0],
        "rollouts": 16,
    }
    table.FIDELITY.write_text(f'{{"rows": [{str(row).replace(chr(39), chr(34))}]}}')
    assert table.fidelity() == {"c3": [{k: v for k, v in row.items() if k != "method"}]}


def test_counting_is_whole() -> None:
    assert sum(table.counted().values()) == len(METHODS)
    assert np.isin([row["runs"] for row in table.described()], ["all", "part", "card"]).all()
