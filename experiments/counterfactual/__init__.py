"""The learned counterfactual estimator: what a decision was worth, from few tries of its options and from what
other teams taught.

Tries of the options of decisions that are alike tell of each other. Which are alike is not known: there are many
guesses (`hypotheses`), each makes an estimate and is more or less likely. A small network over sets (`network`)
learns over teams which guesses to believe and what to expect of an option before any try, from tries that were kept
back (`fitted`). Its credit enters a trace as a column with the id of the fit (`record`).
"""

from experiments.counterfactual.fitted import Fit, Lesson, fit, lesson, unfitted
from experiments.counterfactual.record import asked_of, stamped
from experiments.counterfactual.work import Asked, Work

__all__ = ["Asked", "Fit", "Lesson", "Work", "asked_of", "fit", "lesson", "stamped", "unfitted"]
