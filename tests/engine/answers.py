"""Free answers of several threads, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.engine.generate import Pending, complete_free
from podium.engine.protocol import Completion
from podium.engine.reader import Reader


def free_answers(
    reader: Reader,
    threads: NDArray[np.int64],
    first: Any,
    seed: NDArray[np.uint64],
    number: NDArray[np.int64],
    longest: int,
    greedy: bool = False,
) -> list[Completion]:
    """Of each thread, by its seed and the number of its answer."""
    each = zip(threads.tolist(), zip(seed.tolist(), number.tolist(), strict=True), strict=True)
    return complete_free(reader, [Pending(t, address, longest, greedy) for t, address in each], first)
