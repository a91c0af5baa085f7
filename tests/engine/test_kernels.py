"""Kernels of the GPU in Triton's interpreter, against the same in torch."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

CODE = """
import torch
from podium.engine import kernels, pool

torch.manual_seed(0)
n, (q, k, v) = 7, (torch.randn(heads, 7, 48).transpose(0, 1) for heads in (6, 2, 2))
keys, values = torch.zeros(2, 50, 2, 48)
at = torch.randperm(50)[:n]
for times in (0, 1, 5):
    asked = kernels.placed(q, k, v, at, keys, values, times)
    held = pool.Pool(50)
    expected = held.placed(0, at, q, k, v, times)
    assert all(torch.equal(a, b) for a, b in zip((keys, values, asked), expected))

first = torch.randn(n, 6, 48), torch.randn(6, n)
more, lse = torch.randn(5 * n * 3, 2, 48), torch.randn(2, 5 * n * 3)
lse[:, n * 3 + 2 :: 4] = torch.inf  # no keys there
for before in (first, None):
    for a, b in zip(kernels.combined(before, more, lse, n, 6), pool.merged(before, more, lse, n, 6)):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)

z = torch.randn(3, 4, 256)
z[1, 2] = -torch.inf
top, sums = kernels.chunks(z)
assert torch.equal(top, z.amax(-1)) and sums[1, 2] == 0
torch.testing.assert_close(sums.log() + top, z.logsumexp(-1), rtol=1e-5, atol=1e-5)
print("the same")
"""


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed: it comes with torch for CUDA"
)
def test_kernels_are_what_torch_computes() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", CODE], env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True
    )
    assert ran.stdout == "the same\n", ran.stderr[-2000:]
