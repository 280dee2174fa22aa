"""Per-sample gradients of norm layers, from one backward pass.

The gradient of a norm layer's weight is the sum over positions of (output gradient) ∘ (normalised input); that of its
bias is the sum of the output gradient. Without the sum over samples, these are per-sample gradients. This takes one
product and one sum per layer and no second pass, so that a single micro-batch is enough to measure gradient noise (Gray
et al. 2024, arXiv:2411.00999).

The output gradients are measured with hooks. A layer's input is kept until its gradient arrives, which autograd does
anyway unless the layer's activations are recomputed in the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from batchlab.torch_.gradient_norms import is_norm_layer

AFFINE_TOLERANCE = 1e-3
"""Tolerance with which a custom norm layer must be reproduced as an affine function of its weight."""


class NormLayerSamples:
    """Sums over the samples of a step: Σ_j |v_j|²/s_j and |Σ_j v_j|², where v_j is the gradient of sample j.

    s_j is the sample's share of the targets. Only layers with the samples on the first axis of their input are
    included. If all samples have equal shares, nothing waits for the device.
    """

    def __init__(self, model: nn.Module) -> None:
        self._layers = [module for module in model.modules() if is_norm_layer(module) and _is_plain(module)]
        self._expected = 0
        self._of_pass: dict[nn.Parameter, Tensor] = {}
        self._mean: dict[nn.Parameter, Tensor] = {}
        self._within: list[Tensor] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Attach the hooks for the duration of the context."""
        handles = [layer.register_forward_hook(self._at_output) for layer in self._layers]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def begin_pass(self, samples: int) -> None:
        """Call before the forward pass of a micro-batch with this number of samples."""
        self._expected, self._of_pass = samples, {}

    @torch.no_grad()
    def end_pass(self, shares: Sequence[float]) -> None:
        """Call after the backward pass. `shares` are the samples' fractions of the step's targets."""
        if not self._of_pass:
            return
        squares = torch.stack([added.square().sum(dim=1) for added in self._of_pass.values()]).sum(dim=0)
        if min(shares) == max(shares):
            self._within.append(squares.sum() / shares[0])
        else:
            weights = squares.new_tensor([1 / share if share > 0 else 0.0 for share in shares])
            self._within.append(torch.dot(squares, weights))
        for parameter, added in self._of_pass.items():
            total = added.sum(dim=0)
            before = self._mean.get(parameter)
            self._mean[parameter] = total if before is None else before + total
        self._of_pass = {}

    @torch.no_grad()
    def sums(self) -> tuple[list[Tensor], Tensor] | None:
        """(Σ_j |v_j|²/s_j of each pass, |Σ_j v_j|² of all passes); None if no norm layer gives per-sample gradients."""
        if not self._within:
            return None
        return self._within, torch.stack([total.square().sum() for total in self._mean.values()]).sum()

    def _at_output(self, layer: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        given = arguments[0] if arguments else None
        if not isinstance(given, Tensor) or not isinstance(output, Tensor) or not output.requires_grad:
            return
        shape = layer.get_parameter("weight").shape
        if given.dim() <= len(shape) or given.shape[0] != self._expected or given.shape[-len(shape) :] != shape:
            return
        if isinstance(layer, nn.LayerNorm | nn.RMSNorm) or _is_affine(layer, given, output):
            output.register_hook(partial(self._measure, layer, given.detach()))  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def _measure(self, layer: nn.Module, given: Tensor, gradient: Tensor) -> None:
        wide = torch.promote_types(gradient.dtype, torch.float32)
        gradient = gradient.to(wide)
        for name, parameter in layer.named_parameters(recurse=False):
            if parameter.requires_grad:
                added = gradient if name == "bias" else gradient * _normalised(layer, given.to(wide))
                added = added.reshape(len(added), -1, parameter.numel()).sum(dim=1)
                before = self._of_pass.get(parameter)
                self._of_pass[parameter] = added if before is None else before + added


def _is_plain(layer: nn.Module) -> bool:
    """Whether the layer has just a weight and optionally a bias of the same shape, and is no batch or group norm."""
    if isinstance(layer, nn.GroupNorm | nn.modules.batchnorm._NormBase):
        return False
    named = dict(layer.named_parameters())
    return "weight" in named and named.keys() <= {"weight", "bias"} and len({p.shape for p in named.values()}) == 1


def _normalised(layer: nn.Module, given: Tensor) -> Tensor:
    """The normalised input, which the weight multiplies."""
    if isinstance(layer, nn.LayerNorm):
        return nn.functional.layer_norm(given, layer.normalized_shape, eps=layer.eps)
    if isinstance(layer, nn.RMSNorm):
        return nn.functional.rms_norm(given, list(layer.normalized_shape), eps=layer.eps)
    return _with_weight(layer, given, 1.0) - _with_weight(layer, given, 0.0)


def _with_weight(layer: nn.Module, given: Tensor, value: float) -> Tensor:
    settings = {name: p.detach().to(given.dtype) for name, p in layer.named_parameters()}
    settings["weight"] = torch.full_like(settings["weight"], value)
    result: Tensor = functional_call(layer, settings, (given,))
    return result


@torch.no_grad()
def _is_affine(layer: nn.Module, given: Tensor, output: Tensor) -> bool:
    """Whether the output is affine in the weight: output at weight 0, plus weight ∘ normalised input."""
    weight = layer.get_parameter("weight")
    shown = _with_weight(layer, given, 0.0) + weight * _normalised(layer, given)
    return torch.allclose(shown.to(output.dtype), output, rtol=AFFINE_TOLERANCE, atol=AFFINE_TOLERANCE)
