"""Runs written by hand are those of the tests of rewards."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "rewards"))  # `scripted`
