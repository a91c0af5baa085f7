"""What comes from outside is used without touching ours: `python -m bench.outside [--json]`.

The tests of `tests/test_outside.py` install a small package with a method, a reward, a world and a detector of its own, and
pass the same as files, to every verb and in Python.
"""

from __future__ import annotations

from bench.credit import tested
from bench.table import Row, command

__all__ = ["measure"]


def measure(full: bool = True) -> list[Row]:
    """The same at either size."""
    return tested("24.6.outside", "tests of packages and files of others", "../test_outside.py")


if __name__ == "__main__":
    command(measure, __doc__)
