"""A module to generate with: the same weights, its own manner of attending, and adapters chosen for each row of a
batch.

    y = x W + ((x [A_1 ... A_n]) ∘ m) [B_1; ...; B_n]
    m_row is 1 on the columns of the row's adapter, 0 elsewhere

so rows of all adapters go through two more products together, whatever their number.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from podium.engine.pool import NAME

__all__ = ["AdapterMask", "GenerationModule", "RowLora", "fused_norms"]


class AdapterMask:
    """Which adapter each row of the batch has: a mask over the columns of all."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names, self.rank = list(names), 0
        self.mask: Tensor | None = None  # [tokens, adapters * rank]

    def choose(self, of: Tensor, dtype: torch.dtype) -> None:
        """`of` is the number of each token's adapter, -1 for the base alone."""
        if self.rank:
            column = torch.arange(len(self.names) * self.rank, device=of.device) // self.rank
            self.mask = (column == of[:, None]).to(dtype)


class RowLora(nn.Module):  # type: ignore[misc]
    """A linear layer with adapters, of which every row has one (Hu et al. 2022; many in one batch: Punica, Chen et
    al. 2023)."""

    def __init__(self, base: Any, adapters: Sequence[tuple[Any, Any, float]], chosen: AdapterMask) -> None:
        super().__init__()
        self.base, self.chosen = base, chosen
        self._from = list(adapters)  # of each its two layers, which are trained elsewhere, and its scale
        ranks = {down.weight.shape[0] for down, _, _ in adapters}
        if len(ranks) > 1:
            raise ValueError(f"adapters of one rank go together, not of ranks {sorted(ranks)}")
        chosen.rank = ranks.pop()
        down, up = (x.to(base.weight.dtype) for x in self._joined())
        self.down, self.up = nn.Buffer(down, persistent=False), nn.Buffer(up, persistent=False)

    def _joined(self) -> tuple[Tensor, Tensor]:
        """[in, adapters * rank] and [adapters * rank, out], the latter times each adapter's scale."""
        down = torch.cat([down.weight.detach().t() for down, _, _ in self._from], 1)
        return down, torch.cat([up.weight.detach().t() * scale for _, up, scale in self._from], 0)

    def renew(self) -> None:
        """The adapters as they are now."""
        for weight, new in zip((self.down, self.up), self._joined(), strict=True):
            weight.copy_(new)

    def forward(self, x: Tensor) -> Tensor:
        low = (x @ self.down) * self.chosen.mask
        return self.base(x) + low @ self.up


class Norm(nn.Module):  # type: ignore[misc]
    """x w / sqrt(mean x² + ε) in one kernel where transformers takes seven; in the dtype that what comes next
    computes in."""

    def __init__(self, weight: Tensor, eps: float, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.weight, self.variance_epsilon, self.dtype = weight, eps, dtype or weight.dtype

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.rms_norm(x, self.weight.shape, self.weight, self.variance_epsilon).to(self.dtype)


def fused_norms(module: Any, dtype: torch.dtype | None = None) -> None:
    """Puts norms in the place of those that are told apart from them by nothing but rounding. The last, before the
    head, keeps its dtype."""
    alike: dict[type, bool] = {}
    last = getattr(module.get_decoder(), "norm", None)
    for path, part in list(module.named_modules()):
        eps, weight = getattr(part, "variance_epsilon", None), getattr(part, "weight", None)
        if eps is None or weight is None:
            continue
        norm = Norm(weight, float(eps), None if part is last else dtype)
        if type(part) not in alike:
            x = torch.linspace(-2, 3, 4 * len(weight), dtype=weight.dtype, device=weight.device).view(4, -1)
            alike[type(part)] = torch.allclose(norm(x).to(x.dtype), part(x).to(x.dtype), atol=0.02, rtol=0.02)
        if alike[type(part)]:
            parent, _, name = path.rpartition(".")
            setattr(module.get_submodule(parent), name, norm)


TOGETHER = (
    ("q_proj", "k_proj", "v_proj"),
    ("gate_proj", "up_proj"),
)  # layers of one input, in the order of their calls


class Joined(nn.Module):  # type: ignore[misc]
    """Linear layers of one input as one product: the first that is called computes it, the others take their
    parts."""

    def __init__(self, layers: Sequence[Any]) -> None:
        super().__init__()
        self._from = [(layer.weight, layer.bias) for layer in layers]
        self.sizes = [len(weight) for weight, _ in self._from]
        self.weight = nn.Buffer(torch.cat([w.detach() for w, _ in self._from]), persistent=False)
        biases = [b.detach() for _, b in self._from if b is not None]
        self.bias = nn.Buffer(torch.cat(biases), persistent=False) if biases else None
        self.seen: Tensor | None = None
        self.made: tuple[Tensor, ...] = ()

    def renew(self) -> None:
        self.weight.copy_(torch.cat([w.detach() for w, _ in self._from]))
        if self.bias is not None:
            self.bias.copy_(torch.cat([b.detach() for _, b in self._from]))

    def part(self, x: Tensor, number: int) -> Tensor:
        if number == 0 or self.seen is not x:
            self.seen, self.made = x, nn.functional.linear(x, self.weight, self.bias).split(self.sizes, -1)
        part = self.made[number]
        if number == len(self.sizes) - 1:  # nobody else will ask for it
            self.seen, self.made = None, ()
        return part


class Part(nn.Module):  # type: ignore[misc]
    """One of several layers that are joined."""

    def __init__(self, joined: Joined, number: int) -> None:
        super().__init__()
        self.joined, self.number = joined, number

    def forward(self, x: Tensor) -> Tensor:
        return self.joined.part(x, self.number)


def _join(module: Any) -> list[Joined]:
    """Joins what can be joined."""
    joined = []
    for part in list(module.modules()):
        for names in TOGETHER:
            layers = [getattr(part, name, None) for name in names]
            plain: list[Any] = [layer.base if isinstance(layer, RowLora) else layer for layer in layers]
            if not all(type(layer) is nn.Linear for layer in plain) or len({x.bias is None for x in plain}) > 1:
                continue
            joined.append(Joined(plain))
            for number, (name, layer) in enumerate(zip(names, layers, strict=True)):
                if isinstance(layer, RowLora):
                    layer.base = Part(joined[-1], number)
                else:
                    setattr(part, name, Part(joined[-1], number))
    return joined


class GenerationModule:
    """A module under other hooks: it attends by a pool and chooses adapters by the row. Parameters are the module's
    own, or copies in another dtype.

    A float32 module in bfloat16 is *mixed*, as autocast makes it: linear layers and attention are in bfloat16, the
    sum that runs through the layers and the head in float32. So what it says has the log-probabilities that the
    update finds, up to the order of sums; all in bfloat16, logits would have a grain. On a GPU it is also made of
    fewer kernels: norms are one each, and layers of one input one product, whose weights are copies.
    """

    def __init__(self, module: Any, names: Sequence[str] = (), dtype: torch.dtype | None = None) -> None:
        base = module.get_base_model() if hasattr(module, "get_base_model") else module
        given = next(base.parameters()).dtype
        self.dtype = dtype = dtype or given
        self.mixed = given == torch.float32 and dtype.itemsize < 4 and _rms_only(base)
        own = {id(p) for p in base.parameters()} - _matrices(base) if self.mixed else set()
        copies = {
            id(p): p if p.dtype == dtype or id(p) in own else nn.Parameter(p.detach().to(dtype), False)
            for p in base.parameters()
        }
        self._copies = [(p, copies[id(p)]) for p in base.parameters() if copies[id(p)] is not p]
        self.chosen = AdapterMask(names)
        self.module = copy.deepcopy(base, copies).eval()
        self._layers: list[RowLora | Joined] = [self._adapted(base, path) for path in _adapted(base) if names]
        cuda = next(base.parameters()).is_cuda
        with torch.no_grad():
            if cuda or self.mixed:
                fused_norms(self.module, dtype)
            if cuda:
                self._layers += _join(self.module)
        for part in self.module.modules():
            if hasattr(part, "layer_idx"):
                part.pool_layer = nn.Buffer(torch.tensor(int(part.layer_idx)), persistent=False)
        self.module.config._attn_implementation = NAME

    def _adapted(self, base: Any, path: str) -> RowLora:
        """Puts a layer with adapters chosen by the row in the place of one of peft's."""
        there, (parent, _, last) = base.get_submodule(path), path.rpartition(".")
        adapters = [(there.lora_A[n], there.lora_B[n], there.scaling[n]) for n in self.chosen.names]
        layer = RowLora(self.module.get_submodule(path).base_layer, adapters, self.chosen)
        setattr(self.module.get_submodule(parent), last, layer)
        return layer

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def renew(self) -> None:
        """The weights as they are now: those that are copies, and adapters."""
        for own, weight in self._copies:
            weight.copy_(own)
        for layer in self._layers:
            layer.renew()


def _matrices(module: Any) -> set[int]:
    """The parameters of linear layers but the head's, by identity."""
    head = module.get_output_embeddings()
    layers = (part for part in module.modules() if isinstance(part, nn.Linear) and part is not head)
    return {id(p) for layer in layers for p in layer.parameters(recurse=False)}


def _rms_only(module: Any) -> bool:
    """Whether all its norms are of the kind that `Norm` stands in for."""
    plain = (nn.Linear, nn.Embedding)
    norms = [
        part for part in module.modules() if list(part.parameters(recurse=False)) and not isinstance(part, plain)
    ]
    return all(hasattr(part, "variance_epsilon") for part in norms)


def _adapted(module: Any) -> list[str]:
    """Where the layers are that have adapters of peft."""
    return [
        path for path, layer in module.named_modules() if hasattr(layer, "lora_A") and hasattr(layer, "base_layer")
    ]
