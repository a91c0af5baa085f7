"""CoMLRL: its trainers with the advantages of any method that compares runs of one task.

    from comlrl.trainers.reinforce import MAGRPOTrainer
    class Trainer(CreditMixin, MAGRPOTrainer): method = "marloo"

CoMLRL asks for advantages of one node of its tree and one agent at a time: the returns of its samples, which are
the rewards of as many runs. Methods that need more of a run than that are refused by name."""

from __future__ import annotations

from typing import Any

from podium.exchange.trainers.batch import advantages
from podium.methods.method import Method

__all__ = ["CreditMixin"]


class CreditMixin:
    """For a class that also inherits a trainer of CoMLRL's: `method` pays, in place of `advantage_mode`."""

    method: Method | str = "marloo"

    def _compute_advantages(self, returns_tensor: Any) -> Any:
        many = returns_tensor.numel()
        rows = {"task": ["node"] * many, "rollout": range(many), "reward": returns_tensor.reshape(-1).tolist()}
        paid = advantages(rows, self.method, per="row", unpaid=0.0)
        return returns_tensor.new_tensor(paid.tolist()).reshape(returns_tensor.shape)
