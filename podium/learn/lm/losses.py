"""Update expressions on tokens, in torch: the terms of `podium.methods.update` that language models are trained by.

`logp` is of tokens that a policy chose, `old` under the policy that the ratio is to, `credit` what each is paid and
`share` how much each counts.
"""

from __future__ import annotations

from typing import Any

import torch

from podium.learn.regimes import single_stage
from podium.methods.update import BadUpdate, Term, Update, read_update, refusal

__all__ = ["couples_tokens", "divergence", "filter_of", "loss", "schedule_of", "update_of"]

WHO = "the learner of language models"
LOSSES = ("any", "reinforce", "clip", "dual_clip", "mirror")
FILTERS = ("truncated", "skip_zeros", "cap_log_ratio", "stop_beyond", "mean_over")
SCHEDULES = ("any", "joint", "alternate", "round_robin", "frozen")
MEANS = ("run", "none")
SIDES = 0.2  # by which a ratio may leave 1, unless told


def update_of(text: str) -> Update:
    """The update of an expression, if this learner can do all of it. Raises BadUpdate.

    >>> update_of("stop_beyond(0.001) >> clip(turn) + kl(0.2)").loss["over"]
    'turn'
    """
    update = read_update(text)
    if why := refusal(update, (*LOSSES, *FILTERS, "kl", "entropy"), WHO):
        raise BadUpdate(why)
    mean, trust = filter_of(update, "mean_over"), filter_of(update, "stop_beyond")
    if mean is not None and mean["what"] not in MEANS:
        raise BadUpdate(f"{WHO} cannot do mean_over({mean['what']}); it can do mean_over of {' or '.join(MEANS)}")
    if update.loss.name == "reinforce" and (trust or filter_of(update, "cap_log_ratio")):
        raise BadUpdate(f"reinforce has no ratio to be bounded, got {update.text!r}")
    return update


def schedule_of(text: str) -> Term:
    """The one stage of a schedule, if this learner can do it. Raises BadUpdate."""
    try:
        return single_stage(text, SCHEDULES, WHO)
    except BadUpdate as error:
        raise BadUpdate(f'{error}; say which schedule instead, such as schedule = "joint" in [lm]') from None


def filter_of(update: Update, name: str) -> Term | None:
    """The filter of that name, if the update has it."""
    return next((term for term in update.filters if term.name == name), None)


def couples_tokens(update: Update) -> bool:
    """Whether a term of the loss is of several tokens."""
    return bool(update.loss.arguments.get("over", "token") != "token")


def loss(update: Update, logp: Any, old: Any, credit: Any, share: Any, group: Any = None) -> Any:
    """L of tokens, or of the groups that `group` numbers 0, 1, ..., whose ratios are of the whole:

    token     ρ_i = exp(logp_i - old_i)
    turn      ρ_s = exp(Σ_{i in s} (logp_i - old_i)),   weight mean of w_i A_i
    sequence  ρ_s = exp(mean_{i in s} (logp_i - old_i)),   weight Σ w_i A_i (GSPO)

    so that all have the gradient -Σ w_i A_i ∇ logp_i where nothing has changed and A is one for a group. With
    `cap_log_ratio` log ρ is at most so much; `truncated` weighs a row of `reinforce` by min(ρ_i, most), without a
    gradient.
    """
    change, paid = logp - old, share * credit
    if update.loss.name == "reinforce":
        most = filter_of(update, "truncated")
        weight = 1.0 if most is None else change.detach().exp().clamp(max=most["most"])
        return -(paid * weight * logp).sum()
    if couples_tokens(update):
        change, paid = _by_group(update.loss["over"], change, paid, group)
    if (cap := filter_of(update, "cap_log_ratio")) is not None:
        change = change.clamp(max=cap["most"])
    rho = change.exp()
    if update.loss.name == "mirror":
        low, high, tau = (update.loss[name] for name in ("low", "high", "tau"))
        inside = (rho >= low) & (rho <= high)
        bounded = torch.where(inside, rho, rho.detach().clamp(low, high))
        return -(paid * bounded).sum() + tau * (share * (logp - old) ** 2).sum()
    low, high = (update.loss.arguments.get(side) for side in ("low", "high"))
    bound = (
        torch.where(paid >= 0, 1 + (SIDES if high is None else high), 1 - (SIDES if low is None else low)) * paid
    )
    gain = torch.minimum(rho * paid, bound)
    if update.loss.name == "dual_clip":
        gain = torch.where(paid < 0, torch.maximum(gain, update.loss["most"] * paid), gain)
    return -gain.sum()


def _by_group(over: str, change: Any, paid: Any, group: Any) -> tuple[Any, Any]:
    """The log-ratio and the weight of each group of tokens."""
    count = torch.zeros(int(group.max()) + 1, dtype=change.dtype, device=change.device)
    count = count.index_add(0, group, torch.ones_like(change))
    change, paid = (torch.zeros_like(count).index_add(0, group, values) for values in (change, paid))
    return (change, paid / count) if over == "turn" else (change / count, paid)


def divergence(logp: Any, reference: Any, share: Any) -> Any:
    """Σ_i w_i [exp(r_i) - r_i - 1],
    r = log π_ref - log π: an estimate of KL(π, π_ref) that is never negative, from what π drew.

    from: Schulman's k3, as GRPO has it.
    """
    r = reference - logp
    return (share * (r.exp() - r - 1)).sum()
