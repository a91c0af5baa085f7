"""E1-E4, the operational metrics, the cost model and the report card. Importing this registers every score."""

from importlib import import_module
from pkgutil import iter_modules

from podium.metrics.card import card
from podium.metrics.cost import Prices, bill, forecast
from podium.metrics.report import Measured, margins, measure, strata
from podium.metrics.table import METRICS, BadMetrics

__all__ = [
    "METRICS",
    "BadMetrics",
    "Measured",
    "Prices",
    "bill",
    "card",
    "forecast",
    "margins",
    "measure",
    "strata",
]

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
