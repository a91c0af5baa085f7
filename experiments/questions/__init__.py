"""One module and one recipe for each open question of the survey. Importing this package registers all of them."""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)

__all__: list[str] = []
