"""A spawned agent's folder lies in its parent's, whatever its name is and whatever its parent has put there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from podium.harness import Budget, Call, Delegate, Ran, Return, See, Spawn, Stop, Team, run, tool
from podium.harness.commands import file_tools
from podium.harness.types import Caller


def looked(tmp_path: Path, *acts: Any) -> Ran:
    """A run whose lead does this and then tells what its worker could read, or why not."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("secret")

    @tool(caller=True)
    def link(caller: Caller, name: str) -> None:
        """Stands for a command of the agent's own: it puts a link in place of a name in its folder."""
        assert caller.folder is not None
        if (caller.folder / name).is_dir():
            (caller.folder / name).rmdir()
        os.symlink(tmp_path / "outside", caller.folder / name)

    async def lead(see: See) -> Any:
        if see.turn < len(acts):
            return acts[see.turn]
        return Stop(answer=[i.fault or i.content for i in (*see.items("result"), *see.items("return"))])

    async def worker(see: See) -> Any:
        if see.turn == 0:
            return Call(tool="read_file", args={"path": "secret.txt"})
        return Return(content=see.new[0].fault or see.new[0].content)

    team = Team("looks", lead, {"worker": worker}, [*file_tools(), link], budget=Budget(steps=20))
    return run(team, "look", folder=tmp_path / "run", folders=True)


@pytest.mark.parametrize("name", [".", "..", "a/b", "", "a\0b", "a\nb", "x" * 300])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    ran = looked(tmp_path, Spawn(role="worker", name=name, task="read"))
    assert ran.answer == ["name"]
    assert ran.metrics["refusals"] == 1


def test_a_link_in_its_place_is_not_its_folder(tmp_path: Path) -> None:
    ran = looked(tmp_path, Call(tool="link", args={"name": "worker-1"}), Spawn(role="worker", task="read"))
    assert ran.answer == [None, "no file"]


def test_a_folder_that_has_become_a_link_is_not_used(tmp_path: Path) -> None:
    swap = [Spawn(role="worker"), Call(tool="link", args={"name": "worker-1"})]
    ran = looked(tmp_path, swap, Delegate(to="worker-1", task="read"))
    assert ran.answer == [None, "symlink"]
    assert ran.metrics["refusals"] == 1
