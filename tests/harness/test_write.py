"""Teams that write: free text on the harness' record, its branches, and what is trained of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from podium.audit.exactness import exactness  # noqa: E402
from podium.credit.forest import copies  # noqa: E402
from podium.engine.dialogue import Dialogue  # noqa: E402
from podium.engine.models import PolicyTeam, policy_team  # noqa: E402
from podium.envs.draws import seeds  # noqa: E402
from podium.harness import Did, Return, Spawn, Stop, Team  # noqa: E402
from podium.harness.batch_server import BatchServer  # noqa: E402
from podium.harness.branching import branch_points  # noqa: E402
from podium.learn.lm import packed  # noqa: E402
from podium.learn.lm.live import branch_runs, choices_as_decisions, play_runs  # noqa: E402
from podium.learn.lm.text_world import PlaySettings  # noqa: E402
from podium.learn.lm.token_credit import TokenCredit, token_credit, trees  # noqa: E402
from podium.methods import METHODS, credit_of  # noqa: E402
from podium.rewards.ledger import Now  # noqa: E402
from podium.trace.columns import Trace, concat  # noqa: E402
from podium.trace.rules import check  # noqa: E402
from tests.engine.test_writing import plain_logp  # noqa: E402

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]},
    },
}
MANNER = PlaySettings(rows=16, width=32, longest=6)


def team(speak: Any, write: Any) -> Team:
    """A planner who writes twice and chooses once, workers who call a tool, a critic who writes what it likes."""

    async def lead(see: Any) -> Any:
        ask = {"role": "user", "content": f"plan {see.task}"}
        if see.turn == 0:
            plan = await write(see, [ask])
            return Did([Spawn(role="worker", task=plan.text), Spawn(role="critic", task=plan.text)], said=plan.said)
        plan_text = see.history[0][1][0].task
        if see.turn == 1:
            talk = [ask, {"role": "assistant", "content": plan_text}, {"role": "user", "content": "more"}]
            more = await write(see, talk, stop=["e", "a"], most=9)
            return Did([Spawn(role="worker", task=more.text)], said=more.said)
        if see.turn == 2:
            word, said = await speak(see, "delegate", "who else?", ["nobody", "worker"])
            return Did([Spawn(role="critic", task=word)], said=said)
        end = await write(see, [{"role": "user", "content": "again"}], most=4)
        return Did([Stop(answer=end.text)], said=end.said)

    async def worker(see: Any) -> Any:
        done = await write(see, [{"role": "user", "content": "do"}], tools=[ADD], call=True, most=60)
        return Did([Return(content=[call.args for call in done.calls])], said=done.said)

    async def critic(see: Any) -> Any:
        ask = {"role": "user", "content": str(see.task)}
        verdict = await write(see, [ask], schema={"enum": ["fine", "bad", "worse"]}, most=12)
        return Did([Return(content=verdict.text)], said=verdict.said)

    return Team(
        "writers", lead, {"worker": worker, "critic": critic}, verify=lambda task, answer: float(len(answer or ""))
    )


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Runs:
    def __init__(self, policies: PolicyTeam) -> None:
        self.policies, dice = policies, seeds(3, 3)
        self.server = BatchServer(policies, MANNER, "0")
        self.traces, self.handles = play_runs(self.server, team, ["x", "y", "x"], dice, ["x", "y", "x"])
        self.branches = branch_runs(self.server, team, self.traces, self.handles, dice, 1.0, fresh=2)
        self.forest = choices_as_decisions(concat([*self.traces, *self.branches]))


@pytest.fixture(scope="module")
def runs() -> Runs:
    return Runs(policy_team("tiny", ["lead", "worker", "critic"]))


def texts(trace: Trace) -> list[int]:
    rows: list[int] = np.flatnonzero(trace.extra_e["finish"].codes >= 0).tolist()
    return rows


def whole_context(trace: Trace, row: int) -> tuple[int, ...]:
    parts = []
    while row >= 0:
        parts.append(trace.token_k[trace.owner_k == row].tolist())
        row = int(trace.context_e[row])
    return tuple(token for part in reversed(parts) for token in part)


def among(trace: Trace, row: int, ids: list[int], policies: PolicyTeam) -> list[tuple[int, ...]] | None:
    if "grammar" in trace.extra_e and trace.extra_e["grammar"][row]:
        return Dialogue(policies.model).among(msgspec.json.decode(str(trace.extra_e["grammar"][row])), ids)
    if "choice" in trace.extra_e and trace.extra_e["choice"][row]:
        model = policies.model
        paths = [
            (*model.ids(o), model.end) for o in msgspec.json.decode(str(trace.extra_e["choice"][row]))["options"]
        ]
        return [
            tuple({path[i] for path in paths if path[:i] == tuple(ids[:i]) and len(path) > i})
            for i in range(len(ids))
        ]
    return None


def test_the_record_is_exact(runs: Runs) -> None:
    assert check(runs.forest) == []
    judged = exactness(runs.forest)
    forks = [row for row in texts(runs.forest) if runs.forest.extra_e["link"][row] == '"fork"']
    assert judged.count("clean") == len(judged.row_g) - len(forks) > 100
    assert judged.rows("fork") == forks
    assert len([row for row in texts(runs.forest) if runs.forest.extra_e["link"][row] == '"clean"']) > 10


def test_log_probabilities_are_those_of_a_plain_forward(runs: Runs) -> None:
    trace = runs.forest
    for row in np.unique(trace.owner_k).tolist():
        own = trace.owner_k == row
        said_ids = trace.token_k[own & (trace.mask_k == 1)].tolist()
        if not said_ids:
            continue  # it was made to say this
        plain = plain_logp(
            runs.policies.model,
            whole_context(trace, row),
            len(said_ids),
            among(trace, row, said_ids, runs.policies),
        )
        np.testing.assert_allclose(trace.logp_k[own & (trace.mask_k == 1)], plain, atol=1e-5)


def test_a_branch_writes_anew_where_it_parts_and_has_the_same_dice_elsewhere(runs: Runs) -> None:
    own, first = runs.traces[0], texts(runs.traces[0])[0]
    parted = [b for b in runs.branches if b.parent_n[0] == own.trace_id_n[0] and int(b.branch_n[0]) == first]
    assert len(parted) == 2
    words = [tuple(t.token_k[(t.owner_k == first) & (t.mask_k == 1)].tolist()) for t in (own, *parted)]
    assert len(set(words)) == 3
    again = Runs(runs.policies)
    for a, b in zip([*runs.traces, *runs.branches], [*again.traces, *again.branches], strict=True):
        assert a.token_k.tolist() == b.token_k.tolist()


def test_every_token_that_a_model_drew_is_trained_once_and_nothing_else(runs: Runs) -> None:
    forest = runs.forest
    value = np.random.default_rng(0).normal(size=forest.n_events)
    one = forest.owner_k
    trained_k = (forest.mask_k == 1) & (forest.logp_k != 0.0) & ~copies(forest, np.arange(forest.n_events))[one]
    pay = TokenCredit(np.where(trained_k, value[one], 0.0), trained_k.astype(float), forest.logp_k, None)
    policy, model = runs.policies.policies["all"], runs.policies.model.module
    built = trees(forest, pay, policy, runs.policies)
    assert built is not None
    tree, columns = built
    assert sorted(columns["place"][columns["share"] > 0].tolist()) == np.flatnonzero(trained_k).tolist()
    model.zero_grad()
    logp = packed.log_probs(model, tree)
    (logp * torch.tensor(columns["credit"] * columns["share"])).sum().backward()
    ours = {name: w.grad.clone() for name, w in model.named_parameters() if w.grad is not None}
    model.zero_grad()
    for row in np.unique(one[trained_k]).tolist():  # each generation alone, by a plain forward
        ids = whole_context(forest, row)
        own = np.flatnonzero((one == row) & (forest.mask_k == 1))
        sets = among(forest, row, forest.token_k[own].tolist(), runs.policies)
        logits = model(torch.tensor([ids])).logits[0]
        for i, k in enumerate(own.tolist()):
            if trained_k[k]:
                at = len(ids) - len(own) + i
                z = logits[at - 1]
                bound = z if sets is None else z[list(sets[i])]
                (value[row] * (z[ids[at]] - torch.logsumexp(bound, 0))).backward(retain_graph=True)
    for name, w in model.named_parameters():
        if w.grad is not None:
            torch.testing.assert_close(ours[name], w.grad, atol=2e-4, rtol=1e-3)
    model.zero_grad()


@pytest.mark.parametrize("method", ["grpo", "c3_reward_only"])
def test_methods_pay_what_was_written_and_never_what_was_given(runs: Runs, method: str) -> None:
    from podium.learn.requirements import with_step_rewards

    forest = with_step_rewards(runs.forest)
    pay = token_credit(forest, credit_of(forest, METHODS[method], Now(0.0, ())))
    drawn_k = forest.mask_k == 1  # beside a choice that was drawn the options count that were forced
    forced_e = np.array([words == '"forced"' for words in forest.extra_e["sampling"].strings()])
    assert not pay.share_k[~drawn_k & ~forced_e[forest.owner_k]].any()
    paid = pay.share_k > 0
    assert paid[np.isin(forest.owner_k, texts(forest))].any()
    assert not paid[copies(forest, np.arange(forest.n_events))[forest.owner_k]].any()


def test_where_to_branch_is_uncertain_and_matters_and_fits(runs: Runs) -> None:
    earned = [2.0, 9.0, 4.0]  # the two runs of x differ, that of y is alone
    traces = [replace(t, reward_n={"team": np.array([r])}) for t, r in zip(runs.traces, earned, strict=True)]
    rows = [(i, row) for i, t in enumerate(traces) for row in texts(t)]
    assert branch_points(traces, rows, 2, 0) == list(range(len(rows)))
    cost = [2 * int(((traces[i].mask_k == 1) & (traces[i].owner_k >= row)).sum()) for i, row in rows]
    surprise = [
        -np.nansum(traces[i].logp_k[traces[i].owner_k == row]) * (1e-3 if i == 1 else 1.0) for i, row in rows
    ]
    best = int(np.argmax(surprise))
    assert best in branch_points(traces, rows, 2, max(cost))
    for budget in (1, 60, 200, 10**6):
        chosen = branch_points(traces, rows, 2, budget)
        assert sum(cost[c] for c in chosen) <= budget
    assert len(branch_points(traces, rows, 2, 10**6)) == len(rows)


def test_what_cannot_be_put_to_the_model_is_the_agents_fault(runs: Runs) -> None:
    def of(messages: Any, **more: Any) -> Any:
        def make(speak: Any, write: Any) -> Team:
            async def lead(see: Any) -> Any:
                return Did([Stop(answer=(await write(see, messages, **more)).text)])

            return Team("one", lead, verify=lambda task, answer: 0.0)

        return make

    user = [{"role": "user", "content": "x"}]
    for messages, more, why in (
        ([{"role": "user", "content": [{"type": "image_url"}]}], {}, "image_url"),
        (user, {"most": 10**6}, "takes 4096"),
        (user, {"schema": {"type": "string", "pattern": "x"}}, "pattern"),
    ):
        server = BatchServer(runs.policies, MANNER, "0")
        trace = play_runs(server, of(messages, **more), ["t"], seeds(0, 1), ["t"])[0][0]
        assert any(why in str(words) for words in trace.extra_e["fault"].strings())


def test_an_agent_asks_once_a_step(runs: Runs) -> None:
    def make(speak: Any, write: Any) -> Team:
        async def lead(see: Any) -> Any:
            for _ in range(2):
                written = await write(see, [{"role": "user", "content": "x"}])
            return Did([Stop(answer=written.text)], said=written.said)

        return Team("twice", lead, verify=lambda task, answer: 0.0)

    trace = play_runs(BatchServer(runs.policies, MANNER, "0"), make, ["t"], seeds(0, 1), ["t"])[0][0]
    assert any("once a step" in str(words) for words in trace.extra_e["fault"].strings())
