"""R1-R8: a trace in, one column of scores out; and what an expression over them pays.

Importing this package registers every score and shape.
"""

from importlib import import_module
from pkgutil import iter_modules

from podium.rewards.ledger import BadReward, Channel, Ledger, Now, ledger, score

__all__ = ["BadReward", "Channel", "Ledger", "Now", "ledger", "score"]

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
