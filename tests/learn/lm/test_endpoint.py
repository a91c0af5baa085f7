"""Policies behind an endpoint: one that serves the tiny model as it is, and one that misbehaves in every way. The run goes on, or says in a line why not and resumes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("httpx")

from podium.engine import endpoint  # noqa: E402
from podium.engine.endpoint import BadEndpoint, EndpointEngine  # noqa: E402
from podium.engine.models import policy_team, tiny  # noqa: E402
from podium.engine.protocol import Completion, Context, Request  # noqa: E402
from podium.envs.draws import seeds  # noqa: E402
from podium.envs.world import make  # noqa: E402
from podium.learn.folder import BadRecipe  # noqa: E402
from podium.learn.lm.policy import own_weights  # noqa: E402
from podium.learn.lm.run import LmRun, connect, read_world_recipe  # noqa: E402
from podium.learn.lm.settings import Settings  # noqa: E402
from podium.learn.lm.text_world import PlaySettings, record, scores, with_branches  # noqa: E402
from podium.trace.files import load  # noqa: E402
from podium.trace.rules import check  # noqa: E402
from tests.learn.lm.steps import in_world  # noqa: E402

MODEL = tiny()
SEARCH = make("costly_search", c=0.05, most=3)
REMOTE = PlaySettings(digits=1, most=9, longest=6, remote=True)


class Fake:
    """An endpoint that serves the tiny model. `mode` says how, `until` how many requests it answers so before it is dead."""

    def __init__(self) -> None:
        self.mode, self.until, self.asked, self.lock = "options", 1 << 30, list[dict[str, Any]](), threading.Lock()
        fake, self.key = self, None

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with fake.lock:
                    fake.asked.append(body)
                    fake.key = self.headers["authorization"]
                    number = len(fake.asked)
                    mode = fake.mode if number <= fake.until else "drops"
                    mode = {"flaky": ("500", "options")[number % 2], "half": "options"}.get(mode, mode)
                    if fake.mode == "half" and body["seed"] % 2:
                        mode = "drops"
                    status, said = fake.answer(mode, body)
                if mode == "stalls":
                    time.sleep(1.0)
                if mode in ("drops", "stalls"):
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("content-length", str(len(said) + 99 * (mode == "breaks off")))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, mode: str, body: dict[str, Any]) -> tuple[int, bytes]:
        if mode in ("500", "404", "429"):
            return int(mode), b'{"error": {"message": "no\\n luck"}}'
        if mode == "nonsense":
            return 200, b"<html>hello</html>"
        words = {"options": ("stop", "go on")[body["seed"] % 2], "garbage": "bla"}.get(mode)
        ids, logp = said(body, words)
        choice: dict[str, Any] = {
            "text": MODEL.text(ids),
            "token_ids": ids,
            "prompt_token_ids": body["prompt"],
            "logprobs": {"token_logprobs": logp},
        }
        choice |= {
            "no logprobs": {"logprobs": None},
            "fewer logprobs": {"logprobs": {"token_logprobs": logp[1:]}},
            "null logprobs": {"logprobs": {"token_logprobs": [None] * len(ids)}},
            "no ids": {"token_ids": None, "prompt_token_ids": None},
            "no prompt ids": {"prompt_token_ids": None},
            "other prompt": {"prompt_token_ids": [1, *body["prompt"]]},
            "other text": {"text": "xyz"},
            "other ids": {"token_ids": [70_000] * len(ids)},
        }.get(mode, {})
        return 200, json.dumps({"object": "text_completion", "choices": [choice]}).encode()


def said(body: dict[str, Any], words: str | None) -> tuple[list[int], list[float]]:
    """What the tiny model says by the seed, or these words; with its own log-probabilities."""
    start, ids, dice = len(body["prompt"]), list(body["prompt"]), np.random.default_rng(body["seed"])
    if words is not None:
        ids += [*MODEL.ids(words), MODEL.frame.end][: body["max_tokens"]]
    while words is None and len(ids) < start + body["max_tokens"] and MODEL.frame.end not in ids[start:]:
        odds = odds_of(ids)[-1]
        ids.append(int(odds.argmax() if not body["temperature"] else dice.choice(len(odds), p=np.exp(odds))))
    odds_k = odds_of(ids)[start - 1 : -1]
    return ids[start:], odds_k[np.arange(len(odds_k)), ids[start:]].tolist()


def odds_of(ids: list[int]) -> Any:
    """The log-probabilities of what follows each token."""
    with torch.no_grad():
        return torch.log_softmax(MODEL.module(input_ids=torch.tensor([ids])).logits[0].double(), -1).numpy()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    monkeypatch.setattr(endpoint, "REST", 0.01)
    made = Fake()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield made
    torch.set_num_threads(before)
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def crew(fake: Fake, **how: Any) -> Any:
    made = policy_team("tiny", ["lead"])
    connect(made, Settings(endpoint=fake.url, **how))
    return made


def hello(fake: Fake, many: int = 1, longest: int = 6, **how: Any) -> tuple[EndpointEngine, list[Completion]]:
    """An engine, and what it says to so many greetings."""
    engine = EndpointEngine(fake.url, MODEL, **how)
    context = Context(MODEL.ids("hello"))
    return engine, engine.complete([Request(context, (0,), longest=longest)] * many)


def told(trace: Any, name: str) -> list[Any]:
    rows = np.flatnonzero(trace.decision_e >= 0)
    return [None if (x := trace.extra_e[name][r]) is None else msgspec.json.decode(str(x)) for r in rows.tolist()]


@pytest.mark.parametrize("mode", ["good", "options"])
def test_what_was_said_is_recorded_as_it_came(fake: Fake, mode: str) -> None:
    """Contexts are sent as ids; what the trace holds along a path is what was sent, and log-probabilities are those of the weights there."""
    fake.mode = mode
    made = crew(fake)
    trace, actor = record(SEARCH, made, seeds(0, 6), REMOTE, version="3", task="t")
    forest = with_branches(trace, actor, 1.0)
    assert check(forest) == []
    assert set(told(trace, "sampling")) == {"free"}
    sent = {tuple(body["prompt"]) for body in fake.asked}
    for row in np.flatnonzero(forest.decision_e >= 0).tolist():
        ids, up = [], row
        while up >= 0:
            ids, up = [*forest.token_k[forest.owner_k == up].tolist(), *ids], int(forest.context_e[up])
        here = forest.owner_k == row
        count = int((here & (forest.mask_k == 1)).sum())
        if not count:
            continue  # forced
        assert tuple(ids[:-count]) in sent
        mine = odds_of(ids)[-count - 1 : -1][np.arange(count), ids[-count:]]
        np.testing.assert_allclose(forest.logp_k[here & (forest.mask_k == 1)], mine, atol=1e-4)
    rows = np.flatnonzero(trace.decision_e >= 0)
    assert {str(trace.version_e[r]) for r in rows.tolist()} == {"all@endpoint"}
    if mode == "options":
        assert (trace.valid_e[rows] == 1).sum() > 3
        assert len(rows) > 6  # some went on, and were told what changed
    body = fake.asked[0]
    assert (body["max_tokens"], body["temperature"], body["return_token_ids"]) == (6, 1.0, True)
    again, _ = record(SEARCH, made, seeds(0, 6)[2:4], REMOTE, version="3", task="t")
    np.testing.assert_array_equal(again.token_k, trace[2:4].token_k)  # dice have an address


def test_the_update_corrects_by_the_ratio_to_the_endpoint(fake: Fake) -> None:
    """The endpoint has other weights than those trained: old log-probabilities are its own, and only the local weights change."""
    settings = Settings(episodes=6, digits=1, epochs=1, parts=1)
    made = crew(fake)
    with torch.no_grad():
        for w in own_weights(made).values():
            w.mul_(1.1)
    before = {k: w.detach().clone() for k, w in own_weights(made).items()}
    line = in_world(made, settings, REMOTE, SEARCH, "rloo").step()
    assert line.rows > 0
    assert line.gradient > 0
    assert any(not torch.equal(before[k], w) for k, w in own_weights(made).items())
    asked = len(fake.asked)
    assert not np.isnan(scores(SEARCH, made, seeds(0, 4), replace(REMOTE, remote=False))).any()
    assert len(fake.asked) == asked  # what is trained is judged by its own weights


def test_a_frozen_policy_speaks_through_its_endpoint_while_another_learns(fake: Fake, tmp_path: Path) -> None:
    fake.mode = "good"
    recipe = f"""
world = "relay"
iterations = 1
[lm]
params = {{ n = 2 }}
share = "role"
frozen = ["mate"]
endpoint = {{ mate = "{fake.url}/v1/" }}
served = "a-model"
episodes = 4
digits = 1
longest = 3
watched = 2
judged = 4
keep = 1
"""
    run = LmRun(read_world_recipe(recipe, "here"), tmp_path / "run")
    lines = list(run.iterations())
    assert list(lines[0]["gradients"]) == ["lead"]
    assert {body["temperature"] for body in fake.asked} == {0.0, 1.0}  # judged by its likeliest answers
    assert {body["model"] for body in fake.asked} == {"a-model"}
    trace = load(tmp_path / "run" / "traces" / "0.0.jsonl")
    rows = np.flatnonzero(trace.decision_e >= 0).tolist()
    seen = {(str(trace.version_e[r]), str(trace.extra_e["sampling"][r])) for r in rows}
    assert ("mate@endpoint", '"free"') in seen
    assert ("lead@0", '"constrained"') in seen
    with pytest.raises(BadEndpoint, match="no policy 'judge' to speak through an endpoint; there are mate, lead"):
        LmRun(read_world_recipe(recipe.replace("mate = ", "judge = "), "here"), tmp_path / "other")


@pytest.mark.parametrize(("mode", "tries"), [("flaky", 2), ("429", 4), ("500", 4)])
def test_what_fails_is_asked_again(fake: Fake, mode: str, tries: int) -> None:
    fake.mode = mode
    fake.asked.append({})  # the next is the second
    answer = hello(fake)[1][0]
    assert len(fake.asked) - 1 == tries
    if mode == "flaky":
        assert (MODEL.text(answer.ids), answer.ended, answer.fault) == ("stop", True, None)
    else:
        assert answer.ids == ()
        assert answer.fault is not None
        kind = "busy" if mode == "429" else "failed"
        assert answer.fault.startswith(
            f'endpoint {kind}: status {mode}: {{"error": {{"message": "no\\n luck"}}}} ('
        )


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("drops", "endpoint dropped: "),
        ("stalls", "endpoint stalled: no whole answer within 0.3 s"),
        ("breaks off", "endpoint dropped: "),
        ("nonsense", "endpoint nonsense: expected a completion, got b'<html>"),
    ],
)
def test_a_lost_answer_is_a_fault_that_says_why(fake: Fake, mode: str, says: str) -> None:
    fake.mode = mode
    limit = 0.3 if mode == "stalls" else 60.0  # short only if no answer comes
    engine, (answer,) = hello(fake, seconds=limit)
    assert (answer.ids, answer.logp) == ((), ())
    assert answer.fault is not None
    assert answer.fault.startswith(says)
    with pytest.raises(BadEndpoint, match=says.split(":")[0]):
        engine.prove(MODEL.ids("hello"))


def test_an_endpoint_that_is_dead_is_not_asked_four_times_for_everything(fake: Fake) -> None:
    fake.mode = "drops"
    engine, answers = hello(fake, 40, at_once=2)
    assert all(answer.fault for answer in answers)
    assert 16 * 4 + 20 < len(fake.asked) < 16 * 4 + 40
    fake.mode = "options"
    engine.complete([Request(Context(MODEL.ids("hello")), (0,))])
    assert engine.lost == 0


def test_with_some_answers_lost_the_run_goes_on(fake: Fake) -> None:
    """A lost answer is a fault of its event, without tokens; the episode goes on with the option that ends, and the step learns from the rest."""
    fake.mode = "half"
    settings = Settings(episodes=12, digits=1, epochs=1, parts=1, branched=1.0)
    made = crew(fake)
    trainer = in_world(made, settings, REMOTE, SEARCH, "branching")
    line = trainer.step()
    assert line.faults > 0
    assert line.gradient > 0
    trace = trainer.rollouts[0].trace
    assert check(trace) == []
    lost = [r for r in np.flatnonzero(trace.decision_e >= 0).tolist() if trace.extra_e["sampling"][r] == '"lost"']
    assert lost
    for row in lost:
        assert trace.valid_e[row] == 0
        assert "endpoint dropped" in str(trace.extra_e["fault"][row])
        assert trace.chosen_e[row] == "stop"
        assert (trace.mask_k[trace.owner_k == row] == 0).all()
    made.policies["all"].frozen = True  # a judgement leaves out episodes in which an answer was lost
    fake.mode, fake.until = "options", len(fake.asked) + 3
    found = scores(SEARCH, made, seeds(0, 6), replace(REMOTE, rows=1))
    assert 0 < np.isnan(found).sum() < 6


def test_garbage_is_a_fault_and_the_run_goes_on(fake: Fake) -> None:
    fake.mode = "garbage"
    trace, _ = record(SEARCH, crew(fake), seeds(0, 4), REMOTE, version="0", task="t")
    assert check(trace) == []
    assert all("bla" in fault for fault in told(trace, "fault"))
    assert (trace.valid_e[np.flatnonzero(trace.decision_e >= 0)] == 0).all()
    settings = Settings(episodes=4, digits=1, epochs=1, parts=1)
    assert in_world(crew(fake), settings, REMOTE, SEARCH, "rloo").step().faults == 4


WRONG = {
    "no logprobs": "returns no log-probabilities: expected one of each of 1 tokens in logprobs.token_logprobs, got none; "
    'the request says "logprobs": 1, which vLLM follows unless --max-logprobs is 0',
    "fewer logprobs": "returns no log-probabilities",
    "null logprobs": "got 0 that are some",
    "no ids": "returns no token ids: expected prompt_token_ids and token_ids beside the text, got no token_ids; "
    'the request says "return_token_ids": true, which vLLM follows from 0.10.2 on',
    "no prompt ids": "got no prompt_token_ids",
    "other prompt": "read other ids than those sent: at place 0 expected 81, got 1",
    "other text": "says other ids than its text: at place 0 expected",
    "other ids": "says id 70000 at place 0, and tiny has 258 tokens",
    "404": 'refused /v1/completions: status 404: {"error"',
    "drops": "endpoint dropped: ",
}
RECIPE = """
world = "costly_search"
iterations = 4
method = "rloo"
[lm]
params = { c = 0.05, most = 3 }
endpoint = "URL"
seconds = 5
free = true
longest = 6
episodes = 6
digits = 1
epochs = 1
parts = 1
watched = 4
judged = 20
"""


@pytest.mark.parametrize("mode", WRONG)
def test_what_would_be_untrue_is_said_before_anything_is_written(fake: Fake, tmp_path: Path, mode: str) -> None:
    fake.mode = mode
    with pytest.raises(BadEndpoint) as caught:
        LmRun(read_world_recipe(RECIPE.replace("URL", fake.url), "here"), tmp_path / "run")
    assert WRONG[mode] in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def run_of(fake: Fake, folder: Path) -> LmRun:
    return LmRun(read_world_recipe(RECIPE.replace("URL", fake.url), "here"), folder)


@pytest.mark.parametrize("mode", ["other prompt", "drops"])
def test_a_run_that_an_endpoint_ended_resumes_to_the_same_end(fake: Fake, tmp_path: Path, mode: str) -> None:
    whole = run_of(fake, tmp_path / "whole")
    assert len(list(whole.iterations())) == 4
    ended = run_of(fake, tmp_path / "ended")
    lines = ended.iterations()
    next(lines)
    fake.mode = mode
    before = {k: w.detach().clone() for k, w in own_weights(ended.learner.team).items()}
    with pytest.raises(BadEndpoint) as caught:
        next(lines)
    says = (
        "the endpoint of policy 'all' gave none of 6 answers, at last: endpoint dropped"
        if mode == "drops"
        else WRONG[mode][:20]
    )
    assert says in str(caught.value)
    assert ended.learner.iteration == 1
    assert all(torch.equal(before[k], w) for k, w in own_weights(ended.learner.team).items())  # nothing was learned
    with pytest.raises(BadEndpoint):
        run_of(fake, tmp_path / "ended")  # not yet
    fake.mode = "options"
    back = run_of(fake, tmp_path / "ended")
    assert len(list(back.iterations())) == 3
    for name in ("iterations.jsonl", "learner.safetensors", "asked.json"):
        assert (whole.folder / name).read_bytes() == (back.folder / name).read_bytes()


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        (
            'endpoint = "nowhere"',
            "expected the address of an endpoint such as http://localhost:8000, got 'nowhere'",
        ),
        ('endpoint = "http://"', "expected the address of an endpoint"),
        ('endpoint = "http://[::1"', "expected the address of an endpoint"),
        (
            'endpoint = "http://127.0.0.1:9"\nkey_from = "NO_SUCH_KEY"',
            "in the variable NO_SUCH_KEY, which is not set",
        ),
        ('endpoint = "http://127.0.0.1:9"', "endpoint unreachable: "),
        ('endpoint = "http://127.0.0.1:9"\nmethod', "pays by the probabilities of options, and free text has none"),
        ("endpoint = 3", "expected `str | object`, got `int`"),
        ('endpoint = "http://127.0.0.1:9"\nseconds = 0', "lm.seconds must be above 0, got 0"),
    ],
)
def test_wrong_settings_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, says: str) -> None:
    monkeypatch.setattr(endpoint, "REST", 0.01)
    recipe = RECIPE.replace(
        'endpoint = "URL"\nseconds = 5' if "seconds" in setting else 'endpoint = "URL"', setting
    )
    if "method" in setting:
        recipe = recipe.replace("\nmethod\n", "\n").replace('"rloo"', '"branching_policy"')
    with pytest.raises((BadRecipe, BadEndpoint)) as caught:
        LmRun(read_world_recipe(recipe, "here"), tmp_path / "run")
    assert says in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_key_is_sent_and_kept_nowhere(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "sesame")
    run = LmRun(
        read_world_recipe(RECIPE.replace('"URL"', f'"{fake.url}"\nkey_from = "A_KEY"'), "here"), tmp_path / "run"
    )
    assert fake.key == "Bearer sesame"
    assert b"sesame" not in (run.folder / "asked.json").read_bytes()


def test_without_httpx_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(
        BadEndpoint, match=r"an endpoint needs httpx, which is not installed: pip install 'podium\[serve\]'"
    ):
        LmRun(read_world_recipe(RECIPE.replace("URL", "http://127.0.0.1:9"), "here"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def podium(*argv: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.argv = ['podium', *{list(argv)!r}]; from podium.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_from_the_command_line(fake: Fake, tmp_path: Path) -> None:
    """No traceback reaches the user: when it dies within the run; then the same command ends."""
    (tmp_path / "recipe.toml").write_text(
        RECIPE.replace("URL", fake.url).replace("iterations = 4", "iterations = 2")
    )
    argv = ("train", str(tmp_path / "recipe.toml"), "--policy", "lm", "--out", str(tmp_path / "run"), "--json")
    fake.until = 1  # it proves itself, and dies
    done = podium(*argv)
    assert done.returncode == 2
    assert "the endpoint of policy 'all' gave none of 6 answers, at last: endpoint dropped" in done.stderr
    assert "Traceback" not in done.stderr
    fake.until = 1 << 30
    done = podium(*argv)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["iterations"] == 2
