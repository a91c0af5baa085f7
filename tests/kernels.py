"""The kernel of OpenBLAS to test by beside the machine's own: `python tests/kernels.py` prints its name, or says why there is none and exits with 1.

Kernels add up products in different orders, so that float32 results differ in their last digits. A test that passes by one of them only
compares bits that nothing promises.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np  # noqa: F401  loads its BLAS
from threadpoolctl import threadpool_info

WIDE = ("Haswell", "Zen")  # by which machines with AVX2 multiply; those with AVX-512 have others


def other_kernel() -> str:
    """Sandybridge where the machine's own is of Haswell's family, else Haswell."""
    blas = [one for one in threadpool_info() if one.get("internal_api") == "openblas"]
    if not blas:
        raise LookupError("numpy's BLAS is not OpenBLAS")
    if not Path("/proc/cpuinfo").exists() or " avx2" not in Path("/proc/cpuinfo").read_text():
        raise LookupError("this is no x86 processor with AVX2")
    return "Sandybridge" if blas[0]["architecture"] in WIDE else "Haswell"


if __name__ == "__main__":
    try:
        print(other_kernel())
    except LookupError as why:
        print(why)
        sys.exit(1)
