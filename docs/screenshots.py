"""The pictures of the page in `docs/img`, from runs that it records itself: `python -m docs.screenshots` (after `make browser`)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import podium
from bench.view import chromium
from podium.envs.branch import branch
from podium.envs.conformance import random_policy
from podium.envs.draws import seeds
from podium.envs.world import make, play
from podium.trace.columns import concat
from podium.trace.do import Do

ROOT = Path(__file__).parents[1]
IMG = ROOT / "docs/img"
RECIPE = 'world = "scouts"\niterations = 12\nrows = 1200\nepisodes = 96\n'
BOARD = "compare --methods parl,dr_mas,branching,gigpo --envs scouts,crew --seeds 3 --iterations 30 --episodes 128 --out"
VIEWS = {  # the name of a picture: which page, where it looks, its size, light or dark
    "run": ("runs", "screen=run/0&event=8&panel=event", (1280, 720), "light"),
    "dark": ("runs", "screen=run/0&panel=summary", (1280, 720), "dark"),
    "credit": ("runs", "screen=run/0&panel=credit&method=puppeteer", (1280, 760), "light"),
    "safety": ("runs", "screen=run/0&panel=safety&colour=safety", (1280, 720), "light"),
    "decisions": ("train", "screen=run/41&panel=event&event=0", (1280, 620), "light"),
    "list": ("runs", "screen=run/1&panel=list&search=return", (1280, 720), "light"),
    "runs": ("runs", "screen=runs", (1280, 620), "light"),
    "compare": ("runs", "screen=compare&a=1&b=8", (1280, 1180), "light"),
    "train": ("train", "screen=train/0", (1280, 1000), "light"),
    "board": ("board", "", (1280, 900), "light"),
    "phone": ("runs", "screen=run/0", (390, 844), "light"),
}


def verb(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "podium.cli", *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def record_branches(path: Path) -> None:
    """An episode of a world, and every other option of its first two decisions."""
    world = make("scouts")
    trace = world.trace(play(world, random_policy(3), seeds(4, 1), log=True).state)
    rows = np.flatnonzero(trace.decision_e >= 0)[:2].tolist()
    others = [Do(row, "choose", o) for row in rows for o in trace.options(row) if o != trace.chosen_e[row]]
    podium.save(concat([trace, branch(world, trace, others, random_policy(1))]), path)


def write_pages(folder: Path) -> None:
    (folder / "scouts.toml").write_text(RECIPE)
    example = ROOT / "examples/record_a_team.py"
    subprocess.run([sys.executable, example], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    record_branches(folder / "branches.jsonl")
    verb("train", folder / "scouts.toml", "--out", folder / "scouts")
    verb("view", folder / "scouts", "--method", "puppeteer", "--html", folder / "train.html")
    runs = (folder / "out/demo-run", folder / "branches.jsonl")
    verb("view", *runs, "--method", "puppeteer", "--method", "dr_mas", "--html", folder / "runs.html")
    verb(*BOARD.split(), folder / "board")
    (folder / "board/board.html").rename(folder / "board.html")


def main() -> None:
    IMG.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pages(folder)
        for picture, (page, view, (width, height), scheme) in VIEWS.items():
            with chromium(width, height, color_scheme=scheme) as tab:
                tab.goto(f"{(folder / f'{page}.html').as_uri()}#{view}")
                tab.wait_for_selector("body[data-ready]", state="attached")
                time.sleep(1.0)
                tab.screenshot(path=str(IMG / f"{picture}.png"))
                print(IMG / f"{picture}.png")


if __name__ == "__main__":
    main()
