"""Programs as sources of rollouts: functions and commands behind the gateway, trained by the one loop."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from podium.audit.exactness import exactness  # noqa: E402
from podium.engine.models import policy_team  # noqa: E402
from podium.gateway.program import program_of  # noqa: E402
from podium.gateway.serve import BadGateway  # noqa: E402
from podium.harness.team import BadTeam  # noqa: E402
from podium.learn.folder import BadRecipe  # noqa: E402
from podium.learn.lm.live import earned  # noqa: E402
from podium.learn.lm.live_run import LiveRun, read_team_recipe  # noqa: E402
from podium.learn.lm.text_world import PlaySettings  # noqa: E402
from podium.trace.columns import Trace, concat  # noqa: E402
from podium.trace.files import load  # noqa: E402
from podium.trace.rules import check  # noqa: E402

FUNCTIONS = """
import asyncio

def tasks(n, seed, held_out):
    return [["tea", "rain"][i % 2] for i in range(n)]

def verify(task, answer):
    return sum("a" <= letter <= "z" for letter in answer or "") / 6

async def solve(task, client):
    async def name(i):
        agent = client.agent(f"writer {i}")
        talk = [{"role": "user", "content": task}]
        first = await agent.chat(talk, most=4)
        talk += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "more"}]
        return (await agent.chat(talk, most=6)).text
    return (await asyncio.gather(name(1), name(2)))[0]

async def slow(task, client):
    await asyncio.sleep(30)

def fails(task, client):
    raise RuntimeError("no idea")

def silent(task, client):
    return "quiet"
"""
COMMAND = """
import json, os, sys, urllib.request

def ask(text):
    body = json.dumps({"messages": [{"role": "user", "content": text}], "max_tokens": 5}).encode()
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, body, {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]

word = ask(sys.argv[1])
if sys.argv[2:] == ["fails"]:
    sys.exit("it fails")
if sys.argv[2:] == ["hangs"]:
    import time; time.sleep(60)
open(os.environ["PODIUM_REWARD"], "w").write("0.25")
print(len(word), sys.argv[1])
"""
TEAM = policy_team("tiny", ["lead"])
HOW = PlaySettings(rows=8, width=32, longest=6)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    (tmp_path / "command.py").write_text(COMMAND)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)


def played(spec: str, tasks: list[Any], **table: Any) -> list[Trace]:
    program = program_of(spec, {"tasks": "mine.py:tasks", "jail": False, **table}, "here")
    return program.play(TEAM, HOW, "3", tasks, 5, ["g"] * len(tasks))


def test_a_function_is_recorded_token_by_token_with_its_agents() -> None:
    traces = played("function: mine.py:solve", ["tea", "tea"], verify="mine.py:verify")
    for trace in traces:
        assert check(trace) == []
        judged = exactness(trace)
        assert judged.count("clean") == len(judged.row_g) == 4
        assert {str(name) for name in trace.name_a.strings()} == {"user", "writer 1", "writer 2", "program"}
        assert set(trace.version_e.take(judged.row_g).strings()) == {"all@3"}
    assert not np.isnan(earned(concat(traces))).any()
    words = [trace.token_k[trace.mask_k == 1].tolist() for trace in traces]
    assert words[0] != words[1]  # each run has its own dice ...
    again = played("function: mine.py:solve", ["tea", "tea"], verify="mine.py:verify")
    for a, b in zip(traces, again, strict=True):  # ... and the same again
        assert sorted(a.token_k.tolist()) == sorted(b.token_k.tolist())


def test_a_command_finds_the_gateway_in_its_environment_and_writes_its_reward() -> None:
    traces = played("command: python command.py {task}", ["a b", {"x": 1}])
    assert earned(concat(traces)).tolist() == [0.25, 0.25]
    assert [str(t.task_id_n[0]) for t in traces] == ["g", "g"]
    ends = [str(t.extra_e["content"][t.n_events - 1]) for t in traces]
    assert "a b" in ends[0]
    assert '{\\"x\\":1}' in ends[1]


@pytest.mark.parametrize(
    ("spec", "why"),
    [("function: mine.py:slow", "more than 1 s"), ("function: mine.py:fails", "no idea"),
     ("command: python command.py {task} fails", "it fails"), ("command: python command.py {task} hangs", "more than 1 s")],
)  # fmt: skip
def test_what_comes_to_nothing_is_a_fault_on_record_and_judged_as_no_answer(spec: str, why: str) -> None:
    trace = played(spec, ["tea"], verify="mine.py:verify", seconds=1.0)[0]
    assert why in str(trace.extra_e["fault"][trace.n_events - 1])
    assert earned(trace).tolist() == [0.0]


RECIPE = """
team = "function: mine.py:solve"
method = "grpo"
[program]
tasks = "mine.py:tasks"
verify = "mine.py:verify"
at_once = 64
{program}
[lm]
iterations = 5
episodes = 32
worlds = 16
longest = 6
rate = 1e-2
parts = 2
judged = 4
keep = 5
"""


def test_a_program_learns_by_the_one_loop() -> None:
    run = LiveRun(read_team_recipe(RECIPE.format(program=""), "here"), Path("out"))
    scores = [line["score"] for line in run.iterations()]
    assert max(scores[3:]) > scores[0] + 0.1
    trace = load(Path("out/traces/0.0.jsonl"))
    assert exactness(trace).count("clean") == len(np.unique(trace.owner_k)) == 128
    run.played(2)
    assert run.told()["after"]["tasks"] == 4


@pytest.mark.parametrize(
    ("team", "program", "why"),
    [("command: python x.py {task}", "", "jail = false"), ("command: python x.py", "jail = false", "{task}"),
     ("function: mine.py:nobody", "", "nobody"), ("function: mine.py:solve", "much = 3", "much"),
     ("function: mine.py:solve", "seconds = 0.0", "seconds"), ("function: mine.py:silent", "", "no agent said anything")],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused_before_anything_is_written(team: str, program: str, why: str) -> None:
    recipe = RECIPE.format(program=program).replace("function: mine.py:solve", team)
    with pytest.raises((BadGateway, BadRecipe, BadTeam), match=why):
        LiveRun(read_team_recipe(recipe, "here"), Path("out"))
    assert not Path("out").exists()


def test_a_method_that_needs_branches_is_refused() -> None:
    with pytest.raises(BadRecipe, match="a program is not replayed"):
        LiveRun(
            read_team_recipe(RECIPE.format(program="").replace('"grpo"', '"c3_reward_only"'), "here"), Path("out")
        )
