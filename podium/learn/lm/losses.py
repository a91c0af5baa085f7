"""The update rules of the method table on tokens, in torch: the same formulas as `podium.learn.update`, to be minimised.

`logp` is of tokens that a policy chose, `old` under the policy that did, `credit` what each is paid and `share` how much each counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

from podium.errors import WrongUse
from podium.learn.folder import BadRecipe
from podium.methods.update import read_update, refusal

__all__ = ["BadUpdate", "Update", "divergence", "loss", "named"]

Kind = Literal["reinforce", "clip", "dual", "mirror", "truncated"]
Level = Literal["token", "turn", "sequence"]


class BadUpdate(BadRecipe):
    """An update rule that tokens cannot be trained by; says which there are."""


@dataclass(frozen=True)
class Update:
    """An update rule: its kind, what a ratio is of, and its bounds."""

    kind: Kind = "clip"
    level: Level = "token"
    low: float = 0.2
    high: float = 0.2
    most: float = 3.0  # of a ratio: `dual` where A < 0, `truncated` everywhere
    tau: float = 0.1  # on the squared log-ratio of `mirror`
    kl: float = 0.0  # on the divergence from a reference policy

    @property
    def whole(self) -> bool:
        """Whether a term couples tokens."""
        return self.level != "token"


CAN = ("any", "reinforce", "clip", "dual_clip", "mirror", "truncated", "kl")


def named(words: str) -> Update:
    """The update rule that a row of the method table names.

    >>> named("clip(token, 0.2, 0.28)").high, named("clip(sequence)").level, named("dual_clip(token) + kl(0.2)").kl
    (0.28, 'sequence', 0.2)
    """
    try:
        asked = read_update(words)
    except WrongUse as error:
        raise BadUpdate(str(error)) from None
    if why := refusal(asked, CAN, "the learner of language models"):
        raise BadUpdate(why)
    term, kl = asked.loss, asked.penalty("kl")
    if asked.filters and term.name != "reinforce":
        raise BadUpdate(f"truncated weights go with the loss reinforce here, got {asked.text!r}")
    if term.name == "reinforce":
        most = min((f["most"] for f in asked.filters), default=0.0)
        return Update("truncated", most=most, kl=kl) if most else Update("reinforce", kl=kl)
    if term.name == "mirror":
        return Update("mirror", "token", term["low"], term["high"], tau=term["tau"], kl=kl)
    if term.name == "any":
        return Update(kl=kl)
    low, high = (0.2 if term[side] is None else float(term[side]) for side in ("low", "high"))
    kind: Kind = "clip" if term.name == "clip" else "dual"
    return Update(kind, term["over"], low, high, most=term.arguments.get("most", 3.0), kl=kl)


def loss(update: Update, logp: Any, old: Any, credit: Any, share: Any, group: Any = None) -> Any:
    """L of tokens, or of the groups that `group` numbers 0, 1, ..., whose ratios are of the whole:

    token     ρ_i = exp(logp_i - old_i)
    turn      ρ_s = exp(Σ_{i in s} (logp_i - old_i)),   weight mean of w_i A_i
    sequence  ρ_s = exp(mean_{i in s} (logp_i - old_i)),   weight Σ w_i A_i (GSPO)

    so that all have the gradient -Σ w_i A_i ∇ logp_i where nothing has changed and A is one for a group.
    """
    if update.kind == "reinforce":
        return -(share * credit * logp).sum()
    change = logp - old
    if update.kind == "truncated":
        held = change.detach().exp().clamp(max=update.most)
        return -(share * credit * held * logp).sum()
    if update.level == "token":
        paid = share * credit
    else:
        many = torch.zeros(int(group.max()) + 1, dtype=logp.dtype, device=logp.device).index_add(
            0, group, torch.ones_like(logp)
        )

        def over(values: Any) -> Any:
            return torch.zeros_like(many).index_add(0, group, values)

        change, paid = over(change), over(share * credit)
        if update.level == "turn":
            paid = paid / many
        else:
            change = change / many
    rho = change.exp()
    if update.kind == "mirror":
        inside = (rho >= update.low) & (rho <= update.high)
        held = torch.where(inside, rho, rho.detach().clamp(update.low, update.high))
        return -(paid * held).sum() + update.tau * (share * (logp - old) ** 2).sum()
    bound = torch.where(paid >= 0, 1 + update.high, 1 - update.low) * paid
    gain = torch.minimum(rho * paid, bound)
    if update.kind == "dual":
        gain = torch.where(paid < 0, torch.maximum(gain, update.most * paid), gain)
    return -gain.sum()


def divergence(logp: Any, reference: Any, share: Any) -> Any:
    """Σ_i w_i [exp(r_i) - r_i - 1],   r = log π_ref - log π: an estimate of KL(π, π_ref) that is never negative.   from: Schulman's k3, as GRPO has it."""
    r = reference - logp
    return (share * (r.exp() - r - 1)).sum()
