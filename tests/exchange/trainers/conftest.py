"""The teams by dice of tests/credit and tests/methods, for the tests of rows."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / folder) for folder in ("methods", "credit")]
