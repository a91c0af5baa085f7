import pytest

from podium.registry import find, names, register


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
