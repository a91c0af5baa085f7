"""The verbs, one file a topic. Each prints what one function returned; `--json` prints the same as strict JSON.

A verb's module is imported when the verb is used: `podium.cli.app` has the table.
"""

from podium.cli.app import app
from podium.cli.run import main

__all__ = ["app", "main"]
