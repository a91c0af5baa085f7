"""The verbs, one file a topic. Each prints what one function returned; `--json` prints the same as strict JSON.

Importing this package adds every verb to the application.
"""

from importlib import import_module
from pkgutil import iter_modules

from podium.cli.app import app
from podium.cli.run import main

__all__ = ["app", "main"]

for _module in iter_modules(__path__, f"{__name__}."):
    if not _module.name.endswith("__main__"):
        import_module(_module.name)
