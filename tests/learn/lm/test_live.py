"""Live teams of the harness played by language models: their traces are exact, branches are the harness' own, and the team learns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from podium.audit.exactness import exactness  # noqa: E402
from podium.credit.forest import copies  # noqa: E402
from podium.engine.endpoint import BadEndpoint, EndpointEngine  # noqa: E402
from podium.engine.models import BadModel, PolicyTeam, policy_team  # noqa: E402
from podium.engine.protocol import Completion  # noqa: E402
from podium.engine.reader import Reader  # noqa: E402
from podium.engine.runner import ModelRunner  # noqa: E402
from podium.envs.draws import seeds  # noqa: E402
from podium.harness import office, replay  # noqa: E402
from podium.harness.batch_server import BatchServer  # noqa: E402
from podium.learn.lm.live import branch_runs, choices_as_decisions, judge_live, play_runs  # noqa: E402
from podium.learn.lm.live_run import find_live  # noqa: E402
from podium.learn.lm.policy import own_weights  # noqa: E402
from podium.learn.lm.settings import Settings  # noqa: E402
from podium.learn.lm.text_world import PlaySettings  # noqa: E402
from podium.trace import files  # noqa: E402
from podium.trace.columns import Trace, concat, differences  # noqa: E402
from podium.trace.rules import check  # noqa: E402
from tests.learn.lm.steps import with_team  # noqa: E402

OFFICE = find_live("office")
MANNER = PlaySettings(rows=16, width=32)


@pytest.fixture(scope="module")
def tiny() -> PolicyTeam:
    return policy_team("tiny", office.AGENTS)


class Ran:
    """Some runs with all branches of some of what was said in them."""

    def __init__(self, made: PolicyTeam, runs: int = 4) -> None:
        self.dice = seeds(0, runs)
        self.server = BatchServer(made, MANNER, "0")
        tasks = office.questions(runs, 0)
        self.traces, self.handles = play_runs(self.server, office.office, tasks, self.dice, ["a"] * runs)
        self.branches = branch_runs(self.server, office.office, self.traces, self.handles, self.dice, 0.6)
        self.whole = concat([*self.traces, *self.branches])


@pytest.fixture(scope="module")
def ran(tiny: PolicyTeam) -> Ran:
    return Ran(tiny)


def choice(trace: Trace, row: int) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.json.decode(str(trace.extra_e["choice"][row]))
    return told


def test_every_token_is_on_record_and_exact(ran: Ran, tmp_path: Path) -> None:
    assert check(ran.whole) == []
    found = exactness(ran.whole)
    assert found.count("clean") == len(found.row_g) > 20
    files.save(ran.whole, tmp_path / "trace.jsonl")
    again = files.load(tmp_path / "trace.jsonl")
    assert exactness(again).count("clean") == len(found.row_g)
    spoken = tiny_words(ran)
    assert any("question: " in text and "- sum" in text for text in spoken)


def tiny_words(ran: Ran) -> list[str]:
    model = ran.server.team.model
    trace = ran.traces[0]
    return [model.text(trace.token_k[trace.owner_k == row].tolist()) for row in np.unique(trace.owner_k)]


def test_runs_are_the_same_whatever_is_played_beside_them(tiny: PolicyTeam, ran: Ran) -> None:
    server = BatchServer(tiny, MANNER, "0")
    alone, _ = play_runs(server, office.office, office.questions(4, 0)[1:2], ran.dice[1:2], ["a"])
    both = (alone[0], ran.traces[1])
    assert len({tuple(t.token_k.tolist()) for t in both}) == 1
    assert len({tuple(np.nan_to_num(t.logp_k).tolist()) for t in both}) == 1


def test_a_branch_says_another_option_and_shares_all_that_came_before(ran: Ran) -> None:
    parents = {str(t.trace_id_n[0]): t for t in ran.traces}
    assert len(ran.branches) > 4
    for one in ran.branches:
        parent, row = parents[str(one.parent_n[0])], int(one.branch_n[0])
        here, there = choice(one, row), choice(parent, row)
        assert here["options"] == there["options"]
        assert here["chosen"] != there["chosen"]
        assert str(one.extra_e["sampling"][row]) == '"forced"'
        assert not one.mask_k[one.owner_k == row].any()
        before = one.owner_k < row
        assert one.token_k[before].tolist() == parent.token_k[: before.sum()].tolist()
    roles = {str(one.role_e[int(one.branch_n[0])]) for one in ran.branches}
    assert roles == {"lead", "worker", "critic"}


def test_a_recorded_run_replays_from_its_record_with_its_tokens(ran: Ran) -> None:
    async def nobody(*_: Any) -> Any:
        raise AssertionError("the record has it all")

    again = replay(office.office(nobody), ran.traces[0])
    assert again.token_k.tolist() == ran.traces[0].token_k.tolist()
    assert again.context_e.tolist() == ran.traces[0].context_e.tolist()


def test_what_a_branch_says_of_an_option_is_what_the_model_says(tiny: PolicyTeam, ran: Ran) -> None:
    """Log-probabilities of what was said live in branches, by reading their contexts anew."""
    trace = ran.whole
    live_rows = [
        row
        for row in np.unique(trace.owner_k).tolist()
        if not copies(trace, np.array([row]))[0] and trace.context_e[row] >= 0
    ]
    assert live_rows
    policy = tiny.policies["all"]
    for row in live_rows[:4]:
        path, at = [], row
        while at >= 0:
            path.append(trace.token_k[trace.owner_k == at])
            at = int(trace.context_e[at])
        ids = np.concatenate(path[::-1])
        own = trace.owner_k == row
        said = int((~np.isnan(trace.logp_k[own])).sum())
        reader = Reader(policy, 16, 32)
        logits = reader.read(reader.threads(1), [ids[:-said].tolist()])[0].float().cpu().numpy()
        options = {policy.model.ids(o)[0] for o in choice(trace, row)["options"]}
        first = int(ids[-said])
        if len(options) == len(choice(trace, row)["options"]):
            want = logits[first] - np.log(sum(np.exp(logits[t]) for t in options))
            assert np.isclose(trace.logp_k[own][-said], want, atol=1e-4)


def test_every_choice_is_a_decision_once_choices_as_decisions(ran: Ran) -> None:
    view = choices_as_decisions(ran.whole)
    said = np.flatnonzero(ran.whole.extra_e["choice"].codes >= 0)
    assert (view.decision_e[said] >= 0).all()
    assert (view.valid_e[said] == 1).all()
    assert {str(view.chosen_e[r]) for r in said} <= {
        "sum",
        "difference",
        "product",
        *office.TOOLS,
        "accept",
        "send back",
    }


def settings(**more: Any) -> Settings:
    return replace(Settings(episodes=16, worlds=4, rows=16, parts=2, epochs=1, rate=3e-3), **more)


@pytest.mark.parametrize(
    ("method", "how"),
    [("branching_turns", {}), ("dr_mas", {"share": "role", "lora": 4}), ("c3_reward_only", {}), ("grpo", {})],
)
def test_a_step_moves_the_weights_and_tells_of_each_role(method: str, how: dict[str, Any]) -> None:
    used = settings(branched=0.3, **how)
    share: Any = used.share
    trainer = with_team(policy_team("tiny", office.AGENTS, share=share, lora=used.lora), used, OFFICE, method)
    before = {k: w.detach().clone() for k, w in own_weights(trainer.policy.team).items()}
    line = trainer.step()
    assert line.tokens > 0
    assert line.faults == 0
    assert np.isfinite(line.gradient)
    assert set(line.roles) == {"lead", "worker", "critic"}
    assert all(np.isfinite(of["gradient"]) and of["tokens"] > 0 for of in line.roles.values())
    trace = trainer.rollouts[0].trace
    assert exactness(trace).count("clean") == len(exactness(trace).row_g)
    assert any(not torch.equal(before[k], w) for k, w in own_weights(trainer.policy.team).items())
    if how:
        assert set(line.gradients) == {"lead", "worker", "critic"}


def test_the_best_that_the_office_can_do_is_its_optimum() -> None:
    """Agents that do what their words say, without a model."""

    async def by_the_book(see: Any, kind: str, prompt: str, options: Sequence[str]) -> tuple[str, Any]:
        lines = dict(line.split(": ", 1) for line in prompt.split("\n") if ": " in line)
        if see.role == "lead":
            option = next(ask for ask, words in office.WORDS.items() if see.task["word"] in words)
        elif see.role == "worker":
            option = list(office.TOOLS)[office.ASKS.index(lines["asked"].split()[0])]
        else:
            option = "send back" if "?" in lines["report"] else "accept"
        return option, None

    from podium.harness import run

    tasks = office.questions(300, 1, held_out=True)
    team_ = office.office(by_the_book)
    earned = [run(team_, task, seed=i).reward for i, task in enumerate(tasks[:150])]
    assert abs(np.mean([e or 0.0 for e in earned]) - office.optimum()) < 0.06


def test_an_endpoint_that_fails_is_a_fault_on_record(tiny: PolicyTeam, monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(self: EndpointEngine, requests: Any) -> list[Completion]:
        ids = tiny.model.ids("sum")
        fine = Completion((*ids, tiny.model.end), (-0.1,) * (len(ids) + 1))
        lost = Completion((), (), False, fault="endpoint dropped")
        return [fine if i % 2 else lost for i in range(len(requests))]

    monkeypatch.setattr(EndpointEngine, "complete", answers)
    monkeypatch.setattr(tiny.policies["all"], "endpoint", EndpointEngine("http://localhost:1", tiny.model))
    server = BatchServer(tiny, replace(MANNER, remote=True), "0")
    traces, _ = play_runs(server, office.office, office.questions(4, 0), seeds(0, 4), ["a"] * 4)
    faults = [str(f) for t in traces if "fault" in t.extra_e for f in t.extra_e["fault"].words]
    assert any("endpoint dropped" in f for f in faults)
    assert any("is not an option here" in f for f in faults)  # what is no option of the worker
    assert check(concat(traces)) == []


def test_an_endpoint_that_gives_nothing_or_lies_ends_the_step_with_a_line(
    tiny: PolicyTeam, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(self: EndpointEngine, requests: Any) -> list[Completion]:
        return [Completion((), (), False, fault="endpoint dropped") for _ in requests]

    def lies(self: EndpointEngine, requests: Any) -> list[Completion]:
        raise BadEndpoint("it returns no log-probabilities")

    monkeypatch.setattr(tiny.policies["all"], "endpoint", EndpointEngine("http://localhost:1", tiny.model))
    for how, words in ((nothing, "none of"), (lies, "no log-probabilities")):
        monkeypatch.setattr(EndpointEngine, "complete", how)
        server = BatchServer(tiny, replace(MANNER, remote=True), "0")
        with pytest.raises(BadEndpoint, match=words):
            play_runs(server, office.office, office.questions(2, 0), seeds(0, 2), ["a"] * 2)


def test_a_judgement_that_does_not_fit_goes_on_by_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    made = policy_team("tiny", office.AGENTS)  # whose memory nobody else holds anything of
    expected, real, refused = judge_live(made, settings(), OFFICE, 6), ModelRunner.take, list[int]()

    def take(self: ModelRunner, length: int) -> tuple[int, int]:
        if self._held >= 12:
            refused.append(length)
            raise torch.OutOfMemoryError("no room")
        return real(self, length)

    monkeypatch.setattr(ModelRunner, "take", take)
    assert differences(judge_live(made, settings(), OFFICE, 6), expected) == []
    assert refused


def test_out_of_memory_in_generation_is_one_clear_line(tiny: PolicyTeam, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(ModelRunner, "read", full)
    with pytest.raises(BadModel, match="out of memory in generation"):
        judge_live(tiny, settings(), OFFICE, 2)
