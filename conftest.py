"""Modules whose examples are not run because what they import is not installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("triton") else ["podium/engine/kernels.py"]  # Triton comes with torch for CUDA
