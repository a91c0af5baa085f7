"""The table: one row per published method, an expression over rewards and steps. Importing it fills it."""

from importlib import import_module
from pkgutil import iter_modules

from podium.methods.method import METHODS, Method, add, credit_of, named, reads_forest, scored, use_method

__all__ = ["METHODS", "Method", "add", "credit_of", "named", "reads_forest", "scored", "use_method"]

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
