"""Detectors with evidence: reward hacking, failure modes, waste, safety, missing records.

Importing this package registers every detector.
"""

from importlib import import_module
from pkgutil import iter_modules

from podium.audit.detector import Answer, BadAudit, Second, Suspects, audit, detectors

__all__ = ["Answer", "BadAudit", "Second", "Suspects", "audit", "detectors"]

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
