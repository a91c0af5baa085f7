"""How language models learn: the table `[lm]` of a recipe, and the precision that they compute in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from podium.engine.adapters import fused_norms
from podium.engine.models import PolicyTeam

__all__ = ["Settings", "computing", "generating", "prepared"]


@dataclass(frozen=True)
class Settings:
    """How language models learn: the table `[lm]` of a recipe."""

    model: str = "tiny"  # tiny, smollm2, or a folder
    iterations: int = 0  # instead of the recipe's, if above 0
    share: str = "one"  # one policy for all, one a role, or one an agent
    lora: int = 0  # rank of adapters on one base; 0: all weights
    frozen: tuple[str, ...] = ()  # policies that are not trained
    regime: str = "B"  # A: only the lead's policy is trained; B: all together; C: each by its own scale of credit
    episodes: int = 128  # of an iteration, branches not counted
    worlds: int = 1  # sets of parameters in an iteration; of a live team the runs of each task
    branched: float = 0.5  # of decisions, if the method needs branches
    fresh: int = 1  # other texts of each generation that is branched ...
    branch_tokens: int = (
        0  # ... within so many tokens of an iteration, the uncertain ones that matter first; 0: any
    )
    even: float = 0.0  # how much of the weight of options that were forced beside each other is the same for all
    free: bool = False  # any text, read by the grammar; else only what the grammar allows can be said
    longest: int = 16  # tokens of a free answer
    digits: int = -1  # of figures in prompts, after the point; below 0 as they are
    most: int = 0  # decisions of an episode, instead of the recipe's, if above 0
    update: str = ""  # an expression such as clip(token) + kl(0.2); the method's own if empty
    schedule: str = ""  # who learns when, such as alternate(lead, others, every=5); the method's own if empty
    rate: float = 1e-3  # of AdamW at the start; falls to 0
    warm: int = 0  # iterations in which the rate rises
    decay: float = 0.0  # of weights
    beta: float = 0.99  # of AdamW's squares
    norm: float = 1.0  # the longest gradient
    kl: float = 0.0  # on the divergence from the model as it was at the start; the update's own if 0
    entropy: float = 0.0  # at the start; falls to 0
    epochs: int = 2
    parts: int = 4  # of a batch, one gradient step each
    most_tokens: int = 1024  # computed at once in the update
    checkpointing: bool = False  # activations are computed again backwards
    dtype: str = "float32"  # or bfloat16: computed in it, weights and AdamW in float32
    spoken: str = ""  # the same while generating; as `dtype` if empty
    device: str = "cpu"
    compiled: bool = False  # layers are compiled for generation: worth it for long runs on a GPU
    threads: int = 1  # of the processor
    rows: int = 32  # contexts read at once in generation ...
    width: int = 32  # ... and tokens of each
    watched: int = 200  # episodes of a look at the regret ...
    judged: int = 1_000  # ... and of the judgement at the end
    endpoint: str | dict[str, str] = ""  # http://host:port that speaks for the policies, or for those named
    served: str = ""  # the name of the model there
    key_from: str = ""  # the variable of the environment that holds its key
    seconds: float = 60.0  # that an answer of it may take
    keep: int = 0  # every so many iterations the traces of one are kept in the run's folder
    params: dict[str, Any] = field(default_factory=dict)  # of the world, instead of draws


def generating(settings: Settings) -> AbstractContextManager[None]:
    """As `computing`, while generating."""
    return computing(replace(settings, dtype=settings.spoken or settings.dtype))


def prepared(team: PolicyTeam, settings: Settings) -> PolicyTeam:
    """The team, its models set to generate and to be trained as the settings say; on a GPU norms are one kernel
    each."""
    dtype, cuda = settings.spoken or settings.dtype, settings.device.startswith("cuda")
    # what comes after a norm computes in its type, and would else cast it each for itself
    alike = dtype == settings.dtype != "float32"
    for model in {id(policy.model): policy.model for policy in team.policies.values()}.values():
        model.compiled = settings.compiled
        model.spoken = dtype if cuda and dtype != "float32" else ""
        base = model.module.get_base_model() if hasattr(model.module, "get_base_model") else model.module
        if cuda:
            fused_norms(base, getattr(torch, dtype) if alike else None)
    return team


@contextmanager
def computing(settings: Settings) -> Iterator[None]:
    """In bfloat16 where it was asked for: weights stay in float32."""
    if settings.dtype == "float32":
        yield
        return
    with torch.autocast(settings.device.split(":")[0], getattr(torch, settings.dtype)):
        yield
