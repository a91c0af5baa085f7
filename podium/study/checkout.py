"""The folder `experiments` of a checkout, which is not installed with the package."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import podium
from podium.errors import WrongUse

__all__ = ["FOLDER", "NoCheckout", "import_experiment"]

FOLDER = Path(podium.__path__[0]).parent / "experiments"


class NoCheckout(WrongUse):
    """The folder `experiments` was needed and is not there."""

    def __init__(self) -> None:
        super().__init__(
            f"the survey's questions are in the folder `experiments` of a checkout of Podium, and {FOLDER} is not "
            "there; "
            "install the checkout by `pip install -e .`, or give a study of your own as FILE.py:NAME"
        )


def import_experiment(name: str) -> ModuleType:
    """The module `experiments.NAME` of the checkout that this package is in."""
    if not (FOLDER / "__init__.py").is_file():
        raise NoCheckout
    if str(FOLDER.parent) not in sys.path:  # an editable install makes only `podium` known
        sys.path.insert(0, str(FOLDER.parent))
    return import_module(f"experiments.{name}")
