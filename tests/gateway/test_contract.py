"""What real clients sent to the gateway once (`contract.jsonl`, written by `python -m tests.gateway.test_contract` in a checkout
with `make clients`) is answered in the shape that they read then."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from podium.engine.local import engines_of  # noqa: E402
from podium.engine.models import policy_team  # noqa: E402
from podium.gateway import http  # noqa: E402
from podium.gateway.serve import serving  # noqa: E402
from podium.gateway.service import Gateway  # noqa: E402
from podium.trace.files import load  # noqa: E402

CONTRACT = Path(__file__).with_name("contract.jsonl")
ROOT = Path(__file__).parents[2]
HEADERS = ("content-type", "user-agent", "anthropic-version", "x-stainless-lang", "x-stainless-package-version")


def opened(folder: str) -> Gateway:
    team = policy_team("tiny", ["lead"])
    return Gateway(Path(folder) / "out", team, lambda: engines_of(team, "0", 16, 32, False), longest=64)


def shape(answer: httpx.Response) -> Any:
    """The names of what an answer has: of its fields, or of its events in order, repeats left out."""
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return sorted(answer.json())
    names = []
    for block in answer.text.strip().split("\n\n"):
        data = block.split("data: ", 1)[1]
        value = {} if data == "[DONE]" else json.loads(data)
        names.append(value.get("type") or value.get("object") or data)
    return [name for i, name in enumerate(names) if i == 0 or name != names[i - 1]]


def replay(url: str, one: dict[str, Any]) -> httpx.Response:
    return httpx.post(url + one["path"], json=one["body"], headers=one["headers"], timeout=60)


def test_what_clients_sent_is_answered_as_they_read_it(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    recorded = [json.loads(line) for line in CONTRACT.read_text().splitlines()]
    assert {one["client"] for one in recorded} == {"chat", "responses", "messages", "agents", "graph"}
    gateway = opened(str(tmp_path))
    with serving(gateway) as url:
        for one in recorded:
            answer = replay(url, one)
            assert (answer.status_code, shape(answer)) == (200, one["shape"]), one["path"]
    gateway.close()


CLAUDE_CODE = {  # as its documentation and its logs have it
    "model": "claude-sonnet", "max_tokens": 32000, "stream": True, "temperature": 1,
    "metadata": {"user_id": "user_x_session_y"},
    "thinking": {"type": "enabled", "budget_tokens": 31999},
    "system": [{"type": "text", "text": "You are Claude Code.", "cache_control": {"type": "ephemeral"}}],
    "tools": [{"name": "Bash", "description": "Runs.", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "$schema": "x"}}],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "<system-reminder>x</system-reminder>"}, {"type": "text", "text": "ls", "cache_control": {"type": "ephemeral"}}]}],
}  # fmt: skip
CODEX = {
    "model": "gpt-codex", "stream": True, "store": False, "instructions": "You are Codex.", "tool_choice": "auto",
    "parallel_tool_calls": False, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k",
    "reasoning": {"effort": "medium", "summary": "auto"}, "text": {"verbosity": "medium"},
    "tools": [{"type": "function", "name": "shell", "strict": False, "parameters": {"type": "object", "properties": {"command": {"type": "array", "items": {"type": "string"}}}}},
              {"type": "web_search"}, {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}}],
    "input": [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "rules"}]},
              {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "ls"}]}],
}  # fmt: skip


def test_requests_of_claude_code_and_codex_are_understood(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    gateway = opened(str(tmp_path))
    with serving(gateway) as url:
        first = httpx.post(
            f"{url}/run/claude/v1/messages?beta=true",
            json=CLAUDE_CODE,
            headers={"anthropic-beta": "x", "x-api-key": "k"},
            timeout=60,
        )
        assert shape(first)[0] == "message_start"
        assert shape(first)[-1] == "message_stop"
        text = "".join(
            json.loads(b.split("data: ", 1)[1])["delta"].get("text", "")
            for b in first.text.strip().split("\n\n")
            if "content_block_delta" in b
        )
        moved: Any = json.loads(json.dumps(CLAUDE_CODE))
        del moved["messages"][0]["content"][1]["cache_control"]  # it moves to the latest message
        moved["messages"] += [
            {"role": "assistant", "content": [{"type": "text", "text": text}]},
            {"role": "user", "content": [{"type": "text", "text": "more", "cache_control": {"type": "ephemeral"}}]},
        ]
        count = httpx.post(
            f"{url}/run/claude/v1/messages/count_tokens?beta=true",
            json={k: moved[k] for k in ("model", "system", "tools", "messages")},
        )
        assert count.json()["input_tokens"] > 0
        httpx.post(f"{url}/run/claude/v1/messages?beta=true", json=moved, timeout=60)
        codex = httpx.post(
            f"{url}/run/codex/v1/responses", json=CODEX, headers={"accept": "text/event-stream"}, timeout=60
        )
        assert shape(codex)[0] == "response.created"
        assert "response.output_item.done" in shape(codex)
        assert shape(codex)[-1] in ("response.completed", "response.incomplete")
    trace = load(gateway.end("claude"))
    links = [json.loads(str(trace.extra_e["link"][row])) for row in np.unique(trace.owner_k).tolist()]
    assert links == ["start", "clean" if text else "fork"]  # and to count is no turn
    gateway.close()


def record() -> None:
    """Writes down what the clients of `tests/doors/clients.py` send."""
    torch.set_num_threads(1)
    heard: list[dict[str, Any]] = []
    plain = http._Door._body

    async def body(door: Any, request: Any) -> bytes:
        given: bytes = await plain(door, request)
        headers = {name: request.headers[name] for name in HEADERS if name in request.headers}
        heard.append({"path": request.url.path, "headers": headers, "body": json.loads(given)})
        return given

    http._Door._body = body  # type: ignore[method-assign]
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        gateway = opened(folder)
        with serving(gateway) as url:
            for client in ("chat", "responses", "messages", "agents", "graph"):
                python = ROOT / ".venv/clients/bin/python"
                subprocess.run(
                    [python, ROOT / "tests/doors/clients.py", client, url], check=True, stdout=subprocess.DEVNULL
                )
                lines += [{"client": client, **one} for one in heard]
                heard.clear()
            for one in lines:
                one["shape"] = shape(replay(url, one))
        gateway.close()
    CONTRACT.write_text("".join(json.dumps(one) + "\n" for one in lines))


if __name__ == "__main__":
    record()
