"""The page in a real browser: how soon it paints, how smoothly it pans, how much memory and disk it takes.

Needs Chromium (Debian's package) and playwright: `make browser`. Rendering is by software, as
no machine of ours has a screen.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import podium
from bench.table import Row, at_least, at_most
from podium.trace.columns import Text, Trace
from podium.trace.vocabulary import edge, event
from podium.view.answers import Library
from podium.view.page import file_page
from podium.view.serve import Server

__all__ = ["chromium", "large_run", "measure"]

TYPES = ("orchestrator_decision", "message", "tool_call", "tool_result", "return")


def large_run(events: int, agents: int, seed: int = 0) -> Trace:
    """A run of agents who work in parallel, with tool calls, messages and returns, one thing after the other."""
    dice = np.random.default_rng(seed)
    agent = np.sort(np.concatenate([np.arange(agents), dice.integers(0, agents, events - agents)]))
    first = np.searchsorted(agent, np.arange(agents))
    kind = np.array([event(t) for t in TYPES])[dice.integers(0, len(TYPES), events)]  # type: ignore[arg-type]
    length = dice.exponential(2.0, events)
    gap = dice.exponential(0.5, events)
    own = np.cumsum(length + gap)
    t = own - own[first][agent] + np.sort(dice.random(agents) * events / agents)[agent]
    kind[first[1:]] = event("orchestrator_decision")
    order = np.argsort(t, kind="stable")
    place = np.empty(events, np.int64)
    place[order] = np.arange(events)
    inside = np.flatnonzero(agent[1:] == agent[:-1])
    src, dst = [place[inside]], [place[inside + 1]]
    far = dice.integers(0, events, events // 4), dice.integers(0, events, events // 4)
    a, b = np.minimum(place[far[0]], place[far[1]]), np.maximum(place[far[0]], place[far[1]])
    there = a < b
    src.append(a[there])
    dst.append(b[there])
    edges = np.lexsort((np.concatenate(src), np.concatenate(dst)))
    types = np.repeat([edge("temporal"), edge("causal")], [len(inside), int(there.sum())])
    tools = ("read", "grep", "edit", "bash", "search")
    is_call = kind[order] == event("tool_call")
    tokens = np.where(dice.random(events) < 0.5, dice.integers(1, 4000, events), np.nan)
    return Trace.of(
        trace_id_n=Text.of([f"large-{events}"]),
        task_id_n=Text.of(["a task"]),
        reward_n={"team": np.array([1.0])},
        rollout_a=np.zeros(agents, np.int32),
        name_a=Text.of(f"agent-{i}" for i in range(agents)),
        rollout_e=np.zeros(events, np.int32),
        id_e=podium.trace.columns.Names(Text.constant("e", events), np.arange(events)),
        t_e=t[order],
        end_e=(t + length)[order],
        type_e=kind[order].astype(np.int8),
        agent_e=agent[order].astype(np.int32),
        tool_e=Text(np.where(is_call, np.arange(events) % len(tools), -1), tools),
        tokens_in_e=tokens,
        tokens_out_e=tokens / 8 // 1,
        src_x=np.concatenate(src)[edges].astype(np.int32),
        dst_x=np.concatenate(dst)[edges].astype(np.int32),
        type_x=types[edges].astype(np.int8),
    )


@contextmanager
def chromium(width: int = 1280, height: int = 800, **context: Any) -> Iterator[Any]:
    """A page of Debian's Chromium, headless, by software."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            yield browser.new_context(viewport={"width": width, "height": height}, **context).new_page()
        finally:
            browser.close()


def opened(page: Any, address: str) -> float:
    """Seconds until the lanes were painted, from when the address was asked for."""
    start = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.wait_for_selector("body[data-painted]", state="attached", timeout=60_000)
    return time.perf_counter() - start


PAN = """async () => {
  const board = window.podium.screen().lanes;
  const times = [];
  for (const zoom of [0.3, 0.03]) {
    const { low, high } = board.run;
    board.show(low, low + (high - low) * zoom);
    let last = performance.now();
    for (let i = 0; i < 45; i++) {
      board.pan(0.01);
      if (i % 3 === 0) board.scroll(9);
      await new Promise(requestAnimationFrame);
      const now = performance.now();
      times.push(now - last);
      last = now;
    }
  }
  return times.slice(2);
}"""


def renderer_memory() -> float:
    """Megabytes of the largest renderer of a browser that this process started."""
    sizes = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
            if b"--type=renderer" in words and b"chrom" in words:
                rollup = (folder / "smaps_rollup").read_text()
                sizes.append(next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")))
        except (OSError, StopIteration):
            continue
    return max(sizes, default=0) / 1024


@contextmanager
def served(trace: Trace) -> Iterator[str]:
    server = Server(Library((), [("memory", trace)]))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.address
    finally:
        server.shutdown()
        server.server_close()


def measure(full: bool) -> list[Row]:
    """The rows of `make proofs`."""
    events, agents, million = (20_000, 1_000, 1_000_000) if full else (500, 20, 2_000)
    page = file_page([("memory", large_run(events, agents))])
    size = len(page.encode()) / 1e6
    with tempfile.TemporaryDirectory() as folder, chromium() as tab:
        file = Path(folder) / "page.html"
        file.write_text(page, encoding="utf-8")
        paint = min(opened(tab, file.as_uri()) for _ in range(3))
        pan = 1e3 / float(np.median(tab.evaluate(PAN)))
    with served(large_run(million, agents)) as address, chromium() as tab:
        first = opened(tab, address)
        loaded = renderer_memory()
        many_pan = 1e3 / float(np.median(tab.evaluate(PAN)))
        memory = max(loaded, renderer_memory())
    return [
        at_most("26.file", f"MB of the file of {events:,} events", size, 3.0, "size"),
        at_most("26.paint", f"s until {events:,} events of {agents:,} agents are painted", paint, 1.5, "time"),
        at_least("26.pan", "frames a second while it pans, median", pan, 30.0, "time"),
        at_most("26.million", f"s until {million:,} events are painted", first, 4.0, "time"),
        at_least("26.million_pan", "frames a second while these pan, median", many_pan, 30.0, "time"),
        at_most("26.memory", "MB of the renderer with these, loaded and panning", memory, 600.0, "size"),
    ]
