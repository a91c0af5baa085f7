"""Runs a verb; whatever goes wrong is said in one line."""

from __future__ import annotations

import os
import sys

from podium.audit import BadAudit
from podium.cli.app import app
from podium.credit import BadCredit
from podium.envs.world import BadParameter
from podium.harness.human import BadDoor
from podium.harness.replay import BadReplay
from podium.harness.team import BadTeam
from podium.learn.folder import BadRecipe
from podium.metrics import BadMetrics
from podium.rewards import BadReward
from podium.trace.findings import BadTrace, Unreadable
from podium.trace.store import StoreError
from podium.view.plain import plain

__all__ = ["main"]

WRONG_USE = (
    Unreadable,
    StoreError,
    BadParameter,
    BadReward,
    BadCredit,
    BadAudit,
    BadMetrics,
    BadRecipe,
    BadTeam,
    BadReplay,
    BadDoor,
)


def main() -> None:
    """Run a verb; whatever goes wrong is said in one line."""
    try:
        app()
    except WRONG_USE as error:
        _fail(str(error), 2)
    except BadTrace as error:
        _fail(str(error), 1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        _fail(f"{type(error).__name__}: {error} (this is a fault of Podium's; please report it)", 70)


def _fail(message: str, code: int) -> None:
    print("\n".join(map(plain, f"podium: {message}".split("\n"))), file=sys.stderr)
    sys.exit(code)
