"""The table: one row per published method, an expression over rewards and steps. Importing it fills it.

The rows are data, `methods.toml`; the modules here hold what a method is and the steps that are one method's alone.
"""

import tomllib
from importlib import import_module
from importlib.resources import files
from pkgutil import iter_modules

from podium.methods.method import METHODS, Method, add, credit_of, named, reads_forest, scored, use_method

__all__ = ["METHODS", "Method", "add", "credit_of", "named", "reads_forest", "scored", "use_method"]

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)

for _name, _row in tomllib.loads((files(__name__) / "methods.toml").read_text()).items():
    add(Method(name=_name, **_row | {"needs": tuple(_row.get("needs", ()))}))
