"""Expressions: what is read, how it is spelled, what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.expression import BadExpression, Call, Node, Scaled, Sum, Then, calls, parse, spell

A, B, C = Call("a"), Call("b"), Call("c")


def test_what_is_read() -> None:
    assert parse("a") == parse(" a() ") == A
    assert parse("a + b - c") == Sum((A, B, Scaled(-1.0, C)))
    assert parse("a - (b - c)") == Sum((A, Scaled(-1.0, B), Scaled(1.0, C)))
    assert parse("2 * a / 4") == Scaled(0.5, A)
    assert parse("-(a + 2 * b)") == Sum((Scaled(-1.0, A), Scaled(-2.0, B)))
    assert parse("a >> b >> c") == parse("a >> (b >> c)") == Then((A, B, C))
    assert parse("a + (b >> c)") == Sum((A, Then((B, C))))
    assert parse("a + b >> c") == Then((Sum((A, B)), C))  # as in Python, + binds tighter
    assert parse("a(1, 'x', None, by=('y', -2), of=b)") == Call("a", (1, "x", None), (("by", ("y", -2)), ("of", B)))
    assert parse("a([1, 2])") == parse("a((1, 2))")
    assert parse("a(-.5)") == Call("a", (-0.5,))
    assert repr(parse("a(-2)")) == repr(Call("a", (-2,)))  # still a whole number


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "'a'",
        "a +",
        "a + 1",
        "a * b",
        "a / 0",
        "1 / a",
        "a ** 2",
        "a.b",
        "a[0]",
        "a(*b)",
        "a(**b)",
        "a(b)(c)",
        "lambda: a",
        "a if b else c",
        "a(x for x in b)",
        "f'{a}'",
        "a; b",
        "a(1j)",
        "a(-'x')",
        "a(-(1, 2))",
        "1e999 * a",
        "a(b'x')",
        "a\x00",
        "(" * 300 + "a" + ")" * 300,
        "-" * 5000 + "a",
    ],
    ids=lambda t: t[:12],
)
def test_what_is_refused(text: str) -> None:
    with pytest.raises(BadExpression):
        parse(text)


def test_the_error_says_what_came_and_where() -> None:
    with pytest.raises(BadExpression, match=r"got 'b\.c' at character 5 of 'a \+ b\.c'"):
        parse("a + b.c")
    with pytest.raises(BadExpression, match="at character 3"):
        parse("a )")


def test_every_call_outermost_first() -> None:
    assert [c.name for c in calls(parse("a(b(c), by=d) - 2 * e >> f"))] == ["a", "b", "c", "d", "e", "f"]


literals = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text("ab'\"\\ ", max_size=4)
names = st.sampled_from(["a", "b", "outcome", "x_1"])


def _calls(inside: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    values = literals | inside | st.lists(literals, max_size=3).map(tuple)
    options = st.dictionaries(st.sampled_from(["by", "of"]), values, max_size=2)
    return st.builds(
        lambda n, a, o: Call(n, tuple(a), tuple(o.items())), names, st.lists(values, max_size=3), options
    )


def _joined(inside: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(inside, min_size=2, max_size=3)
    weight = st.floats(-9, 9).filter(lambda w: w != 0)
    return (
        _calls(inside)
        | st.builds(Scaled, weight, inside)
        | several.map(lambda p: Sum(tuple(p)))
        | several.map(lambda p: Then(tuple(p)))
    )


trees = st.recursive(names.map(Call), _joined, max_leaves=8)


@given(trees)
def test_what_was_spelled_reads_as_it_was_spelled(tree: Node) -> None:
    """Sums in sums are folded on the way in, so it is after one reading that spelling and reading undo each other."""
    once = parse(spell(tree))
    assert parse(spell(once)) == once
    assert spell(parse(spell(once))) == spell(once)
    assert [c.name for c in calls(once)] == [c.name for c in calls(tree)]
