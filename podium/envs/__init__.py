"""Simulated worlds whose best score is known. Importing the package fills the table of worlds."""

import importlib
import pkgutil

OPTIONAL = {"gym"}  # needs a package that the core does without

for _module in pkgutil.iter_modules(__path__):
    if _module.name not in OPTIONAL:
        importlib.import_module(f"{__name__}.{_module.name}")
