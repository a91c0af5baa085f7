from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from importlib import import_module

import pytest

import podium.audit
import podium.envs  # noqa: F401 (fills the tables)
from podium.errors import WrongUse
from podium.registry import PACKAGES, alternatives, find, names, register


def test_a_name_is_found_and_taken_once() -> None:
    def thing() -> int:
        return 1

    assert register("test-kind")(thing) is thing
    assert register("test-kind")(thing) is thing  # the same function again is no clash
    assert find("test-kind", "thing") is thing

    def other() -> int:
        return 2

    other.__name__ = "thing"
    with pytest.raises(KeyError, match="already taken"):
        register("test-kind")(other)


def test_an_unknown_name_lists_the_known_ones() -> None:
    @register("test-list")
    def alpha() -> None: ...

    @register("test-list")
    def beta() -> None: ...

    assert names("test-list") == ["alpha", "beta"]
    with pytest.raises(KeyError, match="there are alpha, beta"):
        find("test-list", "gamma")
    with pytest.raises(KeyError, match="there are none"):
        find("test-nothing", "gamma")


SCORES = """
import sys
from podium.registry import facts, find, names
assert "podium.metrics" not in sys.modules
print({how})
"""


@pytest.mark.parametrize(
    "how",
    [
        'find("score", "utilisation").__module__',
        'facts("score", "utilisation") and find("score", "utilisation").__module__',
        '"utilisation" in names("score") and find("score", "utilisation").__module__',
    ],
)
def test_scores_of_metrics_are_known_to_whoever_asks_first(how: str) -> None:
    """In a process of its own, which has imported nothing but the registry."""
    done = subprocess.run(
        [sys.executable, "-c", SCORES.format(how=how)], capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("podium.metrics.efficiency", "")


@pytest.mark.parametrize("package", ["podium.rewards", "podium.metrics", "podium.methods", "podium.audit"])
def test_every_package_can_be_the_first_to_be_imported(package: str) -> None:
    code = f"import {package}; from podium.registry import names; print(len(names('score')), len(names('step')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == ([str(len(names("score"))), str(len(names("step")))], "")


def test_a_reward_may_name_a_score_of_metrics() -> None:
    code = (
        "from podium.rewards import score; from podium.trace.columns import Text, Trace;"
        "print(score(Trace.of(trace_id_n=Text.of(['run'])), 'outcome - 0.1 * redundancy'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[nan]", "")


def test_every_package_that_registers_a_kind_is_on_the_list_of_that_kind() -> None:
    registered: dict[str, set[str]] = {}
    packages = {kind: some for kind, some in PACKAGES.items() if kind != "study"}  # which are in `experiments`
    for package in sorted({p for some in packages.values() for p in some}):
        within = getattr(importlib.import_module(package), "__path__", None)  # None: it is a module
        modules = [package] if within is None else [m.name for m in pkgutil.iter_modules(within, f"{package}.")]
        for module in modules:
            for node in ast.walk(ast.parse(inspect.getsource(importlib.import_module(module)))):
                if isinstance(node, ast.Call) and "register" in (getattr(node.func, w, "") for w in ("id", "attr")):
                    registered.setdefault(ast.literal_eval(node.args[0]), set()).add(package)
    assert registered == {kind: set(some) for kind, some in packages.items()}


def test_of_many_names_the_nearest_are_told_and_the_command_that_lists_all() -> None:
    known = [f"thing_{n}" for n in range(80)] + ["dr_mas"]
    assert alternatives("dr_mass", known, "method") == "there are 81, the nearest dr_mas; podium methods lists them"
    assert alternatives("wizardry", known, "method") == "there are 81; podium methods lists them"
    assert alternatives("dr_mass", known) == "there are 81, the nearest dr_mas"
    assert alternatives("wizardry", known) == f"there are {', '.join(known)}"  # nothing else would say them


@pytest.mark.parametrize(
    ("ask", "near", "lists"),
    [
        ("podium.methods:named('dr_mass')", "dr_mas", "podium methods"),
        ("podium.rewards.ledger:read_reward('wasted_spawn')", "wasted_spawns", "podium reward"),
        ("podium.envs.world:make('jurry')", "jury", "podium envs"),
        ("podium.audit.detector:audit(None, only=['dead_spwan'])", "dead_spawn", "podium audit --list"),
        ("podium.study.question:read_study('difusion')", "diffusion", "podium study"),
        ("podium.learn.folder:read_recipe('world = \"jurry\"', 'here')", "jury", "podium envs"),
        (
            "podium.learn.folder:read_recipe('world = \"jury\"\\nmethod = \"dr_mass\"', 'here')",
            "dr_mas",
            "podium methods",
        ),
    ],
)
def test_whatever_is_unknown_the_nearest_is_told(ask: str, near: str, lists: str) -> None:
    module, _, call = ask.partition(":")
    with pytest.raises(WrongUse) as error:
        eval(call, vars(import_module(module)))
    said = str(error.value)
    assert near in said.partition("the nearest ")[2]
    assert f"; {lists} lists them" in said
    assert len(said) < 200
