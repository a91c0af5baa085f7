"""The pictures of the page in `docs/img`, from runs that it records itself: `python -m docs.screenshots` (after `make browser`)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.view import chromium

ROOT = Path(__file__).parents[1]
IMG = ROOT / "docs/img"
RECIPE = 'world = "scouts"\niterations = 12\nrows = 1200\nepisodes = 96\n'
VIEWS = {  # the name of a picture: where it looks, its size, light or dark
    "run": ("screen=run/0&event=8&panel=event", (1280, 720), "light"),
    "dark": ("screen=run/0&panel=summary", (1280, 720), "dark"),
    "credit": ("screen=run/0&panel=credit&method=puppeteer", (1280, 720), "light"),
    "safety": ("screen=run/0&panel=safety&colour=safety", (1280, 720), "light"),
    "list": ("screen=run/1&panel=list&search=return", (1280, 720), "light"),
    "runs": ("screen=runs", (1280, 560), "light"),
    "compare": ("screen=compare&a=1&b=2", (1280, 860), "light"),
    "train": ("screen=train/0", (1280, 860), "light"),
    "phone": ("screen=run/0", (390, 844), "light"),
}


def podium(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "podium.cli", *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    IMG.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "scouts.toml").write_text(RECIPE)
        subprocess.run(
            [sys.executable, ROOT / "examples/record_a_team.py"], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
        podium("run", "swarm", "--out", folder / "primes")
        podium("replay", folder / "primes", "--at", 0, "--do", "choose=none", "--out", folder / "primes-2")
        podium("train", folder / "scouts.toml", "--out", folder / "scouts")
        page = folder / "page.html"
        runs = (folder / "out/demo-run", folder / "primes", folder / "primes-2", folder / "scouts")
        podium("view", *runs, "--method", "puppeteer", "--method", "dr_mas", "--html", page)
        for picture, (view, (width, height), scheme) in VIEWS.items():
            with chromium(width, height, color_scheme=scheme) as tab:
                tab.goto(f"{page.as_uri()}#{view}")
                tab.wait_for_selector("body[data-ready]", state="attached")
                time.sleep(1.0)
                tab.screenshot(path=str(IMG / f"{picture}.png"))
                print(IMG / f"{picture}.png")


if __name__ == "__main__":
    main()
