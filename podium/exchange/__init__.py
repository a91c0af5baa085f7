"""Other people's logs: one importer a format, each records in, events out. Detected by what a file says, not by its
name.

An importer is a function from sources to runs, registered with facts: `title` (what it reads, in words), `detect`
(how sure it is, from 0 to 1, that a file that starts like this is one of its) and `group` (the keys by which files
belong to one run).
"""

from importlib import import_module
from pkgutil import iter_modules

from podium.exchange.reading import Importer, Source, read_foreign

__all__ = ["Importer", "Source", "read_foreign"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
