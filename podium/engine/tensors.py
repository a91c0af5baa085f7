"""What generation and training do alike with tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["compile_layers", "head_logits", "send"]


def send(device: torch.device, *columns: NDArray[Any]) -> list[Tensor]:
    """Columns on a device, without waiting for what it is doing."""
    tensors = [torch.from_numpy(np.ascontiguousarray(c)) for c in columns]
    return [c.pin_memory().to(device, non_blocking=True) for c in tensors] if device.type == "cuda" else tensors


def compile_layers(model: Any) -> None:
    """Compiles a layer once for all layers and for all numbers of tokens."""
    for layer in model.get_decoder().layers:
        layer.compile(dynamic=True)


def head_logits(hidden: Tensor, weight: Tensor) -> Tensor:
    """hidden weightᵀ in float32, whatever the factors are in."""
    if hidden.is_cuda and hidden.dtype != torch.float32:
        return torch.mm(hidden, weight.t(), out_dtype=torch.float32)
    return (hidden @ weight.t()).float()
