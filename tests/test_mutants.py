"""Mutants: the faults that are put into a module, and the lines that show that a test reached them."""

from __future__ import annotations

import functools
import signal
import time
from pathlib import Path

import pytest

from bench import mutation
from bench.covering import CoveringTest, Project, forked
from bench.mutants import Mutant, compiles, mutants
from bench.mutation import Outcome, covering, stages, survivors


def texts(source: str, operator: str) -> list[str]:
    """What the last line of a source becomes under an operator."""
    return [m.source(source).splitlines()[-1].strip() for m in mutants("m.py", source) if m.operator == operator]


@pytest.mark.parametrize(
    ("source", "operator", "faults"),
    [
        ("a < b", "compare", ["(a <= b)", "(a >= b)"]),
        ("a in b", "compare", ["(a not in b)"]),
        ("x = a - b * c", "arithmetic", ["x = (a + b * c)", "x = a - (b / c)"]),
        ("x = ~a", "unary", ["x = a"]),
        ("x = a and b", "boolean", ["x = (a or b)"]),
        ("x = f(True, 'left', 3)", "boolean", ["x = f(False, 'left', 3)"]),
        ("x = f(True, 'left', 3)", "constant", ["x = f(True, 'right', 3)", "x = f(True, 'left', 4)"]),
        ("x = f(-1, -2.5)", "constant", ["x = f(0, -2.5)", "x = f(-1, -1.5)"]),
        ("x = f(-1, -2.5)", "unary", ["x = f(1, -2.5)", "x = f(-1, 2.5)"]),
        ("y = b if a else c", "condition", ["y = (b if not a else c)"]),
        ("y = [b for b in c if b]", "condition", ["y = ([b for b in c if not b])"]),
        ("def f(): return 3", "return", ["def f(): return None"]),
        ("y = f(a, axis=k)", "argument", ["y = (f(a))"]),
        ("y = f(a, why='it is so')", "argument", []),
        ("y = a[i:j]", "slice", ["y = a[:j]", "y = a[i:]"]),
        ("y = np.sum(a)", "sibling", ["y = np.mean(a)"]),
        ("y = a.any()", "sibling", ["y = (a.all())"]),
        ("y = min(a)", "sibling", ["y = (max(a))"]),
        ("f(x)", "deletion", ["pass"]),
        ("raise ValueError('1' + '2')", "deletion", ["pass"]),
        ("raise ValueError('1' + '2')", "arithmetic", []),
        ("y = 3", "deletion", []),
        ("y = 3\ny = 4", "deletion", ["pass"]),
        ("y[0] = 4", "deletion", ["pass"]),
        ("for a in b: break", "jump", ["for a in b: continue"]),
        ("y = f'{a + 1} of é'", "arithmetic", ["y = f'{a - 1} of é'"]),
        ("Method(credit='togo(0.5) >> center()')", "constant", ["Method(credit='togo(1.5) >> center()')"]),
        ('"""2 + 2"""', "arithmetic", []),
        ("__all__ = ['a'] + ['b']", "arithmetic", []),
        ("Key = A | B", "arithmetic", []),
        ("y: A | B = c", "arithmetic", []),
        ("if TYPE_CHECKING: y = 3 + 4", "arithmetic", []),
    ],
)
def test_each_operator(source: str, operator: str, faults: list[str]) -> None:
    assert texts(source, operator) == faults


def test_an_augmented_assignment_is_turned_round_made_plain_and_deleted() -> None:
    assert texts("y += a", "arithmetic") == ["y -= a", "y = a"]
    assert texts("y += a", "deletion") == ["pass"]


def test_what_is_no_program_is_no_mutant() -> None:
    source = "match x:\n    case -1: pass"
    assert [compiles(m.source(source)) for m in mutants("m.py", source)].count(False) == 0
    assert not compiles("match x:\n    case (1 +): pass")


SOURCE = '''
import np

SIZE = 3


def f(a, b=2):
    """1 + 1"""
    if a:
        return a - b
    return [
        a,
        a * b,
    ]
'''


def test_which_lines_show_that_a_fault_was_reached() -> None:
    found = {(m.operator, m.text): (m.first, m.last, m.on_import) for m in mutants("m.py", SOURCE)}
    assert found == {
        ("constant", "4"): (4, 4, True),
        ("constant", "3"): (8, 14, False),  # a default: where the function runs
        ("condition", "(not (a))"): (9, 9, False),
        ("return", "return None"): (11, 14, False),
        ("arithmetic", "(a + b)"): (10, 10, False),
        ("arithmetic", "(a / b)"): (11, 14, False),
    }


def test_covering_tests_are_those_that_ran_the_lines_and_on_import_those_of_the_package(tmp_path: Path) -> None:
    for name, text in (("a", ""), ("b", "from podium.p import ROWS"), ("c", "")):
        (tmp_path / f"test_{name}.py").write_text(text)
    tests = [
        CoveringTest("test_a.py::a", 0.2, {"podium/p/m.py": {10}}),
        CoveringTest("test_a.py::b", 0.1, {"podium/p/m.py": {11}}),
        CoveringTest("test_b.py::c", 0.1, {}),
        CoveringTest("test_c.py::d", 0.0, {"podium/p/m.py": {3, 10}}),
        CoveringTest("test_c.py::e", 9.0, {"podium/p/other.py": {1}}),
        CoveringTest("test_c.py::f", 0.0, {"podium/q/m.py": {4}}),
    ]
    project = Project(tmp_path, ("podium/p",), (".",))
    inside = Mutant("podium/p/m.py", "compare", 10, 10, 10, False, 0, 0, "")
    above = Mutant("podium/p/m.py", "compare", 4, 4, 4, True, 0, 0, "")
    unseen = Mutant(
        "podium/p/m.py", "compare", 20, 20, 20, False, 0, 0, ""
    )  # of a function that runs on import only
    assert [t.name[-1] for t in covering(project, inside, tests)] == ["a", "d"]
    assert [t.name[-1] for t in covering(project, above, tests)] == ["a", "b", "c", "d", "e"]
    assert covering(project, unseen, tests) == covering(project, above, tests)
    assert [[t.name[-1] for t in stage] for stage in stages(above, tests[:4])] == [["d", "b", "c", "a"]]


def test_survivors_are_named_with_their_verdicts_and_those_without_one_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "a = 1 + 2\nb = 3 < 4\n"
    (tmp_path / "m.py").write_text(source)
    plus, _, less, *_ = (m for m in mutants("m.py", source) if m.operator in ("arithmetic", "compare"))
    (tmp_path / "verdicts.json").write_text(f'{{"{plus.key(source)}": "equivalent: nobody reads a"}}')
    monkeypatch.setattr(mutation, "VERDICTS", tmp_path / "verdicts.json")
    outcomes = [Outcome(m, 2, killer, 0.1) for m, killer in ((plus, ""), (less, ""), (less, "test_b"))]
    assert survivors(Project(tmp_path, ("m.py",), ()), outcomes) == [
        (f"{less.key(source)} m.py:2, compare", "none yet"),
        (f"{plus.key(source)} m.py:1, arithmetic", "equivalent: nobody reads a"),
    ]


def test_a_draw_is_of_what_is_named(tmp_path: Path) -> None:
    for name in ("p/a", "p/b", "q/a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.py").write_text("x = 1 + y\n")
    project = Project(tmp_path, ("p", "q"), ())
    paths = [{m.path for m in mutation.draw(project, 7, None, of)} for of in ((), ("p",), ("q/a", "p/b"), ("a",))]
    assert paths == [{"p/a.py", "p/b.py", "q/a.py"}, {"p/a.py", "p/b.py"}, {"q/a.py", "p/b.py"}, set()]


def test_a_key_outlives_a_change_elsewhere() -> None:
    old = "a = 1\nb = x < y\n"
    new = "a = 1\na = 2\nb = x < y\n"
    keys = [next(m for m in mutants("m.py", s) if m.text == "(x <= y)").key(s) for s in (old, new)]
    assert keys[0] == keys[1]


def test_forks_return_what_they_worked_out_and_a_slow_one_is_stopped() -> None:
    tasks = [(functools.partial(sum, (i, 1)), 60.0) for i in range(3)] + [(functools.partial(time.sleep, 60), 0.2)]
    ends = {number: (result, why) for number, result, why in forked(tasks, 2)}
    assert ends == {0: (1, ""), 1: (2, ""), 2: (3, ""), 3: (None, "time")}


def test_a_fork_that_dies_says_of_what_and_one_that_raises_is_an_error() -> None:
    assert list(forked([(functools.partial(signal.raise_signal, signal.SIGTERM), 60.0)], 1)) == [
        (0, None, "signal 15")
    ]
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        list(forked([(functools.partial(divmod, 1, 0), 60.0)], 1))
