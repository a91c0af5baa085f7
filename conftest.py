"""Modules whose examples are not run because what they import is not installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("triton") else ["podium/learn/lm/kernels.py"]  # Triton comes with torch for CUDA
