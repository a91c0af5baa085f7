"""Runs a verb; whatever goes wrong is said in one line."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from typing import Any

from podium.cli.app import app
from podium.errors import WrongUse

__all__ = ["main"]


def main() -> None:
    """Run a verb; whatever goes wrong is said in one line."""
    warnings.formatwarning = _one_line
    try:
        app()
    except WrongUse as error:
        _fail(str(error), error.exit_code)
    except MemoryError as error:
        _fail(f"not enough memory for a size like this ({error or 'none left'}); ask for less at once", 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:  # a full disk, a folder that may not be written, a file that went away
        whose = f" ({theirs})" if (theirs := _outsider(error)) else ""
        _fail(f"{f'{error.filename}: ' if error.filename else ''}{error.strerror or error}{whose}", 2)
    except Exception as error:
        whose = _outsider(error) or "this is a fault of Podium's; please report it"
        _fail(f"{type(error).__name__}: {error} ({whose})", 70)


def _one_line(message: Warning | str, *where: Any, **line: Any) -> str:
    return f"podium: warning: {message}\n"


def _outsider(error: BaseException) -> str:
    """Where an error was raised, if in a user's file or an installed package; empty if in ours."""
    from podium.registry import outsiders

    theirs = outsiders()
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename in theirs:
            return f"{frame.filename}, line {frame.lineno}, which is not Podium's"
    return ""


def _fail(message: str, code: int) -> None:
    from podium.plain import plain

    print("\n".join(map(plain, f"podium: {message}".split("\n"))), file=sys.stderr)
    sys.exit(code)
