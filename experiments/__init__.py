"""What answers research questions with Podium and is not part of the installed package.

`questions` holds the survey's open questions, which `podium study NAME` runs from a checkout. `counterfactual` is
an estimator of what every option was worth. The other modules measure how true credit is against exact credit.
"""

__all__: list[str] = []
