"""The steps that all methods are made of: scores and graph in, one column of credit per unit out.

Importing this package registers every step and key.
"""

from importlib import import_module
from pkgutil import iter_modules

from podium.credit.credit import BadCredit, Credit, apply

__all__ = ["BadCredit", "Credit", "apply"]

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
