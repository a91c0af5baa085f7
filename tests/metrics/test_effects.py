"""Effects of decisions: what their parts say, worked by hand."""

from __future__ import annotations

import numpy as np

from podium.metrics.effects import _Ends


def test_values_are_flat_where_they_vary_by_rounding_of_the_largest_of_them() -> None:
    """64 roundings of a million are 1.4e-8: two values 2e-9 apart are the same there, and not where all are 0 to 1."""
    square = np.array([2e-18, 2e-18, 0.0])
    low, high = np.array([0.0, 0.0, 0.0]), np.array([1e6, 1.0, 1e6])
    flat = _Ends(low, high, np.ones(3, bool)).flat(np.array([2.0, 2.0, 1.0]), square)
    assert flat.tolist() == [True, False, False]
    assert _Ends(-high, low, np.ones(3, bool)).flat(np.array([2.0, 2.0, 1.0]), square).tolist() == flat.tolist()
