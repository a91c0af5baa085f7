"""Only what pyproject.toml cannot say: the JSON scanner in C, left out where there is no compiler."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension("podium.trace._scan", ["podium/trace/_scan.c"], optional=True, extra_compile_args=["-O3"])
    ]
)
