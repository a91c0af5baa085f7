"""The benches are no part of the package; their generator is tested here all the same."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
