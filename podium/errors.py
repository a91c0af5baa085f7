"""What all errors have in common that are the user's to mend: the command line prints them in one line, without a traceback."""

from __future__ import annotations

from typing import ClassVar

__all__ = ["WrongUse"]


class WrongUse(Exception):
    """Something that cannot be done as it was asked for. The message says what was expected, what came and where."""

    exit_code: ClassVar[int] = 2  # of the process, where it ends one
