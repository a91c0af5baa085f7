"""Tests repeat: the same examples in every run."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent / "trace"))  # `making`, for the tests of other folders too

signal.signal(
    signal.SIGINT, signal.default_int_handler
)  # ignored in what a shell starts in the background; some tests send it

settings.register_profile(
    "repeat",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
settings.load_profile("repeat")
