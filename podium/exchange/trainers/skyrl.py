"""SkyRL: every method as an advantage estimator, registered by one call before training.

    from podium.exchange.trainers.skyrl import register_all
    register_all()                                # then: trainer.algorithm.advantage_estimator=podium_grpo

SkyRL calls an estimator with token rewards, a mask and `index`, the uids of rows, as verl does: a task each, or
what `podium.exchange.trainers.verl.row_ids` makes. In its step-wise mode it broadcasts the last step's advantage to
the others: there, pay tokens in the generator (`rewards` may be a list a token) and take `podium_carried`."""

from __future__ import annotations

from typing import Any

from podium.exchange.trainers import verl
from podium.methods.method import METHODS

__all__ = ["estimators", "register_all"]


def estimators() -> dict[str, Any]:
    """The functions by name."""

    def named(name: str) -> Any:
        estimate = verl.estimator(name)

        def of_rows(token_level_rewards: Any, response_mask: Any, index: Any = None, **_: Any) -> Any:
            return estimate(token_level_rewards, response_mask, index=index)

        return of_rows

    every = {f"podium_{name}": named(name) for name, row in METHODS.items() if row.credit}
    return every | {"podium_carried": verl.carried}


def register_all() -> list[str]:
    """Registers them with SkyRL; returns the names."""
    from skyrl.backends.skyrl_train.utils.ppo_utils import register_advantage_estimator

    functions = estimators()
    for name, function in functions.items():
        register_advantage_estimator(name)(function)
    return list(functions)
