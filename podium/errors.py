"""What all errors have in common that are the user's to mend: the command line prints them in one line, without a
traceback."""

from __future__ import annotations

from typing import ClassVar

__all__ = ["WrongUse", "shown"]


class WrongUse(Exception):
    """Something that cannot be done as it was asked for. The message says what was expected, what came and
    where."""

    exit_code: ClassVar[int] = 2  # of the process, where it ends one


def shown(error: BaseException) -> str:
    """An exception in a line, also one that fails to say what it is."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__} (it cannot be shown)"
