from importlib import import_module

import pytest

import podium.audit
import podium.envs  # noqa: F401 (fills the tables)
from podium.errors import WrongUse
from podium.registry import alternatives, find, names, register


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
        ("podium.rewards.ledger:read('wasted_spawn')", "wasted_spawns", "podium reward"),
        ("podium.envs.world:make('jurry')", "jury", "podium envs"),
        ("podium.audit.detector:audit(None, only=['dead_spwan'])", "dead_spawn", "podium audit --list"),
        ("podium.study.question:read('difusion')", "diffusion", "podium study"),
        ("podium.learn.folder:read('world = \"jurry\"', 'here')", "jury", "podium envs"),
        ("podium.learn.folder:read('world = \"jury\"\\nmethod = \"dr_mass\"', 'here')", "dr_mas", "podium methods"),
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
