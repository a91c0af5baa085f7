"""A person at the door of a run, simulated through what a person uses: the terminal program, at a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["Person"]


class Person(threading.Thread):
    """Someone who comes to the door and does as they please. What goes wrong for them is raised to whoever joins them."""

    def __init__(self, at: Path, act: Callable[[Callable[[str], list[str]]], None]) -> None:
        super().__init__()
        self.at, self.act = at, act
        self.wrong: BaseException | None = None

    def run(self) -> None:
        try:
            wait_for(self.at)
            master, slave = pty.openpty()
            command = [sys.executable, "-m", "podium.harness.human", str(self.at)]
            with subprocess.Popen(command, stdin=slave, stdout=subprocess.PIPE, text=True) as process:
                os.close(slave)
                assert process.stdout
                assert "help lists" in process.stdout.readline()  # it knows a terminal when it sees one

                def say(line: str) -> list[str]:
                    os.write(master, line.encode() + b"\n")
                    heard: list[str] = []
                    assert process.stdout
                    for answer in process.stdout:
                        heard.append(answer.rstrip("\n"))
                        if heard[-1] == "ok" or heard[-1].startswith("no: ") or heard[-1] == "the run is over":
                            break
                    return heard

                try:
                    self.act(say)
                finally:
                    os.write(master, b"quit\n")
                    process.wait(120)
                    os.close(master)
        except BaseException as error:
            self.wrong = error


def wait_for(at: Path) -> None:
    for _ in range(12_000):
        if at.exists():
            return
        time.sleep(0.01)
    raise TimeoutError(f"no door at {at}")
