"""Real clients against the gateway, each in the environment that `make clients` builds; one trace a run, as they saw it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from podium.audit.exactness import exactness  # noqa: E402
from podium.engine.local import engines_of  # noqa: E402
from podium.engine.models import policy_team  # noqa: E402
from podium.gateway.serve import serving  # noqa: E402
from podium.gateway.service import Gateway  # noqa: E402
from podium.trace.files import load  # noqa: E402
from podium.trace.rules import check  # noqa: E402
from podium.trace.vocabulary import event  # noqa: E402
from tests.engine.templates import dialogue, goes_on  # noqa: E402

HERE = Path(__file__).parent
CLIENTS = HERE.parents[1] / ".venv" / "clients"
PYTHON = CLIENTS / "bin" / "python"
TEAM = policy_team("tiny", ["lead"])

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="the clients are not installed: make clients")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, str]]:
    torch.set_num_threads(1)
    service = Gateway(
        tmp_path_factory.mktemp("runs"), TEAM, lambda: engines_of(TEAM, "0", 16, 32, False), longest=64
    )
    with serving(service) as url:
        yield service, url
    service.close()


@pytest.mark.parametrize("name", ["chat", "responses", "messages", "agents", "graph"])
def test_a_client_gives_one_trace_of_what_it_saw(name: str, gateway: tuple[Gateway, str]) -> None:
    service, url = gateway
    done = subprocess.run([PYTHON, HERE / "clients.py", name, url], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    saw: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    trace = load(service.end(name))
    assert [problem for problem in check(trace) if problem.level == "error"] == []
    judged = exactness(trace)
    assert judged.count("unknown") == judged.count("realigned") == 0
    rows = judged.row_g
    assert len(rows) == saw["calls"]
    assert sorted(trace.tokens_in_e[rows].tolist()) == sorted(saw["in"])
    assert sorted(trace.tokens_out_e[rows].tolist()) == sorted(saw["out"])
    assert sorted({str(trace.name_a[trace.agent_e[row]]) for row in rows}) == saw["agents"]
    assert int((trace.type_e == event("tool_call")).sum()) == saw["tools"]


CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
LLAMA = '{"name": "add", "parameters": {"a": 1}}'
AND, RESULT = [{"role": "user", "content": "and?"}], [{"role": "tool", "tool_call_id": "call_0_0", "content": "3"}]
HEADS = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>")


@pytest.mark.parametrize(
    ("name", "end", "special", "said", "more", "link"),
    [
        ("qwen3", "<|im_end|>", ("<|im_start|>",), "hi", AND, "clean"),
        ("qwen3", "<|im_end|>", ("<|im_start|>",), CALL, RESULT, "clean"),
        ("qwen3", "<|im_end|>", ("<|im_start|>",), "<think>\nhm\n</think>\n\nyes", AND, "fork"),
        ("llama3_1", "<|eot_id|>", HEADS, "hi", AND, "clean"),
        ("llama3_1", "<|eot_id|>", HEADS, " hi ", AND, "realigned"),
        ("llama3_1", "<|eot_id|>", HEADS, LLAMA, RESULT, "clean"),
        ("llama3_1", "<|eot_id|>", HEADS, LLAMA.replace(": ", ":"), RESULT, "realigned"),
        ("deepseek_r1_distill", "<｜end▁of▁sentence｜>", ("<｜begin▁of▁sentence｜>",), "hi", AND, "fork"),
    ],
)
def test_real_templates_go_on_by_ids_or_fork(
    name: str, end: str, special: tuple[str, ...], said: str, more: list[Any], link: str
) -> None:
    """The templates of these models as TRL ships them."""
    (template,) = CLIENTS.glob(f"lib/*/site-packages/trl/chat_templates/{name}.jinja")
    prompt = goes_on(dialogue(template.read_text(), end, special), said, more)
    assert prompt.link == link
    assert bool(prompt.why) == (link == "fork")
