"""How fast other people's logs become checked traces: `python -m bench.exchange [--full] [--json]`.

The comparison is `json.loads` over the same lines, which makes nothing of them. At full size the logs are the real
sessions of ../shared/data/logs, uncompressed, where they are there; else, and at the small size, sessions written
here in their shape.
"""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.exchange_otlp import measure_otlp
from bench.table import Row, at_least, at_most, best, calibration, command, fact
from podium.trace.files import read
from podium.trace.vocabulary import EVENT_TYPES

__all__ = ["measure"]

LOGS = Path(__file__).parents[2] / "shared/data/logs"
PEAK = """
import sys
from podium.trace.files import read
def peak():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
for _ in read(sys.argv[1]):
    pass
before = peak()
for path in sys.argv[2:]:
    for _ in read(path):
        pass
print(peak() - before)
"""


def session(number: int, turns: int) -> bytes:
    """A session of so many turns: a call, a result as long as real ones are on average, progress in between."""
    lines, name, clock = [], f"{number:08}-0000-4000-8000-000000000000", 0

    def add(type: str, **fields: Any) -> None:
        nonlocal clock
        clock += 1
        stamp = f"2026-02-05T{clock // 3600:02}:{clock // 60 % 60:02}:{clock % 60:02}.000Z"
        about = {
            "parentUuid": f"u{clock - 1}",
            "isSidechain": False,
            "userType": "external",
            "cwd": "/home/ann/work",
            "sessionId": name,
        }
        lines.append(
            {**about, "version": "2.1.31", "type": type, **fields, "uuid": f"u{clock}", "timestamp": stamp}
        )

    add("user", message={"role": "user", "content": "fix the bug"})
    usage = {
        "input_tokens": 3,
        "cache_creation_input_tokens": 900,
        "cache_read_input_tokens": 90000,
        "output_tokens": 7,
    }
    for turn in range(turns):
        call = {
            "type": "tool_use",
            "id": f"toolu_{turn}",
            "name": "Bash",
            "input": {"command": f"grep -rn word{turn} src"},
        }
        for block in ({"type": "text", "text": "I look into it. " * 20}, call):
            message = {
                "id": f"msg_{turn}",
                "model": "claude-x",
                "role": "assistant",
                "content": [block],
                "usage": usage,
            }
            add("assistant", message=message, requestId=f"req_{turn}")
        add("progress", data={"type": "hook_progress", "hookEvent": "PostToolUse"}, parentToolUseID=f"toolu_{turn}")
        text = f"src/file_{turn}.py:12: a line of the program\\n" * 60
        result = {"type": "tool_result", "tool_use_id": f"toolu_{turn}", "content": text}
        add(
            "user",
            message={"role": "user", "content": [result]},
            toolUseResult={"stdout": text, "stderr": "", "interrupted": False},
        )
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)


def logs(full: bool, folder: Path) -> list[Path]:
    """The sessions to import, as uncompressed files."""
    real = sorted((LOGS / "claude_code").glob("*.jsonl.xz")) if full else []
    data = {p.name.removesuffix(".xz"): lzma.decompress(p.read_bytes()) for p in real}
    data = data or {f"{i:08}.jsonl": session(i, 400 if full else 40) for i in range(20 if full else 3)}
    for name, content in data.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in data]


def loaded(lines: list[bytes]) -> None:
    for line in lines:
        with suppress(ValueError):  # two objects on one line, in one of the real ones
            json.loads(line)


def imported(paths: list[Path], keep: bool = False) -> tuple[int, int]:
    """How many runs and calls there were."""
    traces = [one.trace for path in paths for one in read(path, keep=keep) if one.trace is not None]
    return len(traces), sum(int((t.type_e == EVENT_TYPES.index("tool_call")).sum()) for t in traces)


def measure(full: bool) -> list[Row]:
    with TemporaryDirectory() as folder:
        paths = logs(full, Path(folder))
        lines = [line for path in paths for line in path.read_bytes().split(b"\n") if line]
        size = sum(path.stat().st_size for path in paths)
        calls = len({(i, c) for i, path in enumerate(paths) for c in _calls(path.read_bytes())})
        runs, imported_calls = imported(paths)
        by_json, ours, with_content = best(
            7 if full else 2, lambda: loaded(lines), lambda: imported(paths), lambda: imported(paths, keep=True)
        )
        largest = max(paths, key=lambda p: p.stat().st_size)
        others = [p for p in paths if p != largest]
        peak = subprocess.run(
            [sys.executable, "-c", PEAK, str(largest), *map(str, others)],
            capture_output=True,
            text=True,
            check=True,
        )
        return [
            at_most(
                "25.1.1",
                "Claude Code: sessions and calls that were not imported",
                len(paths) - runs + calls - imported_calls,
                0,
                "exact",
            ),
            at_least("25.3.1", "Claude Code JSONL, MB/s, content off", size / ours / 1e6, 150, "time"),
            at_least("25.3.2", "times as fast as json.loads over the same lines", by_json / ours, 1, "time"),
            fact("25.3.3", "MB/s with content, redacted", size / with_content / 1e6),
            fact("25.3.4", "MB/s of json.loads", size / by_json / 1e6),
            at_most(
                "25.3.5", "memory that other runs need after the longest, MB", float(peak.stdout) / 1e6, 16, "size"
            ),
            fact("25.3.6", "MB of logs", size / 1e6),
            *measure_otlp(full, Path(folder)),
            calibration("25.3", full),
        ]


def _calls(data: bytes) -> set[str]:
    """The ids of calls, by the plainest way: every object anywhere that says it is one."""
    ids: set[str] = set()

    def look(value: Any) -> None:
        if isinstance(value, dict):
            if value.get("type") == "tool_use" and isinstance(value.get("id"), str):
                ids.add(value["id"])
            for name, inner in value.items():
                if name not in ("input", "toolUseResult", "normalizedMessages"):
                    look(inner)
        elif isinstance(value, list):
            for inner in value:
                look(inner)

    scan = json.JSONDecoder()
    for line in data.decode().split("\n"):
        at = 0
        while at < len(line):
            value, at = scan.raw_decode(line, at)
            look(value)
    return ids


if __name__ == "__main__":
    command(measure, __doc__)
