"""Record a small scripted team, check the record, and see what its graph says.

A lead spawns three researchers and a critic. They search, one of them reads a page that nobody vouches for, they
answer, the critic objects once, the lead aggregates and stops. The clock is simulated, so the record is the same
every time.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from podium import Recorder

OUT = Path("out")
RUN = OUT / "demo-run"


class Clock:
    """Seconds of a simulated day."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def research(
    record: Recorder, clock: Clock, name: str, start: float, asked: tuple[str, int], searches: list[float]
):
    """One researcher: searches one after the other, each a call and its result, then an answer to the lead."""
    clock.now, cause = start, asked
    for number, seconds in enumerate(searches):
        call = record.add(
            "tool_call",
            name,
            tool="search",
            after=[("tool_dependency", cause)],
            end=clock.now + seconds,
            tokens_out=40,
        )
        clock.now += seconds
        vouched = not (name == "researcher-3" and number == 1)
        cause = record.add(
            "tool_result", "search", tool="search", after=[("return", call)], trusted=None if vouched else False
        )
    answer = record.add(
        "return", name, to="lead", after=[("causal", cause)], end=clock.now + 1.5, tokens_in=900, tokens_out=120
    )
    clock.now += 1.5
    return answer


def main() -> None:
    shutil.rmtree(RUN, ignore_errors=True)
    clock = Clock()
    team = {"researcher-1": [3.0, 2.0], "researcher-2": [4.0], "researcher-3": [2.0, 6.0, 1.5]}
    with Recorder(
        RUN, clock=clock, task_id="which-library", topology="centralized", system="scripted demo", seed=0
    ) as record:
        plan = record.decide(
            "lead", "spawn", "3", options=["0", "1", "2", "3"], logp=-0.4, role="lead", end=1.0, tokens_out=60
        )
        clock.now = 1.0
        hired = {n: record.add("spawn", "lead", to=n, role="researcher", after=[("spawn", plan)]) for n in team}
        answers = [research(record, clock, n, 1.0 + 0.2 * i, hired[n], team[n]) for i, n in enumerate(team)]
        clock.now = 12.4
        doubt = record.decide(
            "lead", "communicate", "ask the critic", options=["ask the critic", "answer"], after=answers, end=12.9
        )
        clock.now = 12.9
        critic = record.add("spawn", "lead", to="critic", role="critic", after=[("spawn", doubt)])
        with record.span(
            "message", "critic", to="lead", role="critic", after=[("spawn", critic)], tokens_out=80
        ) as objection:
            clock.now += 2.6
        with record.span("aggregate", "lead", role="lead", tokens_out=200) as merged:
            merged.set(after=[("message", objection.name), *(("aggregate", a) for a in answers)])
            merged.set(votes=[{"value": "msgspec"}, {"value": "msgspec"}, {"value": "orjson"}])
            clock.now += 2.0
        record.decide(
            "lead", "stop", "stop", options=["stop", "go on"], after=[("temporal", merged.name)], logp=-0.1
        )
        for name in [*team, "critic"]:
            record.add("despawn", "lead", to=name, after=[("temporal", merged.name)])
        record.outcome(rewards={"team": 1.0}, costs={"tokens": 3300, "wall_clock_s": clock.now})
    say(f"Recorded a team of five into {RUN}: one line of JSON an event, as it happened.\n")
    say("1. Does the record keep the rules?      podium check out/demo-run")
    podium("check", RUN)
    say("\n2. Who did what, when, and what took the time?      podium show out/demo-run")
    podium("show", RUN, "--html", OUT / "demo.html")
    say("\n3. The same record in the survey's format:      podium convert out/demo-run out/demo.json")
    podium("convert", RUN, OUT / "demo.json")
    say(f"\nOpen {OUT / 'demo.html'} in a browser for the picture.")
    say("To go on: source .venv/bin/activate, then podium --help.")


def say(text: str) -> None:
    print(text, flush=True)


def podium(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "podium.cli", *map(str, words)], check=True)


if __name__ == "__main__":
    main()
