"""Norms of the gradient that each backward pass contributes, measured with hooks on the parameters.

A hook on a parameter receives the gradient of the current backward pass, summed over all uses of the parameter (tied
weights), before autograd adds it to `.grad`. Both the gradient of this pass and the sum of the earlier passes are
therefore available without a second gradient buffer. This also holds for compiled models and for non-reentrant
activation checkpointing. Reentrant checkpointing runs a backward pass in several parts. If a parameter then receives
several partial gradients, the norm of their sum is not known, and `unmeasurable` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from batchlab.core.protocols import AddedNorms
from batchlab.core.record import NoGradientSamples

CHUNK = 2**20
"""Elements processed at once, so that temporaries take a few MiB whatever the size of a parameter."""

NORM_LAYERS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)


class PassNorms(NamedTuple):
    """Norms of one backward pass with gradient v, where u is the sum of the earlier passes of the step.

    `squared` is |v|² and `growth` is 2·u·v + |v|² = |u + v|² − |u|²; `norm_layer_*` are the same over norm layers only.
    `signs` is set in the last pass of a step; see `protocols.AddedNorms`.
    """

    squared: Tensor
    growth: Tensor
    norm_layer_squared: Tensor
    norm_layer_growth: Tensor
    signs: tuple[Tensor, Tensor, Tensor] | None


class GradientNorms:
    """Measures gradient norms of a model. Hooks exist only inside `watching`; nothing waits for the device."""

    def __init__(self, model: nn.Module, parameters: Literal["all", "norm_layers"] = "all") -> None:
        modules = [module for module in model.modules() if is_norm_layer(module)]
        self._of_norm_layers = {id(p) for module in modules for p in module.parameters(recurse=False)}
        trained = [p for p in model.parameters() if p.requires_grad]
        self._parameters = [p for p in trained if parameters == "all" or id(p) in self._of_norm_layers]
        self.unmeasurable = None if self._parameters else NoGradientSamples.NO_NORM_LAYERS
        self._last_share: float | None = None
        self._seen: dict[int, tuple[Tensor, Tensor | None]] = {}  # |v|, and u·v if u exists
        self._signs: list[tuple[Tensor, Tensor | None, Tensor]] = []

    @property
    def has_norm_layers(self) -> bool:
        """Whether any measured parameter belongs to a norm layer."""
        return any(id(parameter) in self._of_norm_layers for parameter in self._parameters)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Attach the hooks for the duration of the context."""
        handles = [_attach(parameter, partial(self._measure, parameter)) for parameter in self._parameters]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def begin_pass(self, last_share: float | None = None) -> None:
        """Call before a backward pass.

        `last_share` is given for the last pass of a step: its fraction of the step's targets.
        """
        self._last_share = last_share
        self._seen, self._signs = {}, []

    @torch.no_grad()
    def end_pass(self) -> PassNorms | None:
        """Call after the backward pass. Returns None if there was no gradient, or if `unmeasurable` is set."""
        if self.unmeasurable or not self._seen:
            return None
        signs = None
        if self._last_share is not None:
            for parameter in self._parameters:  # parameters without a gradient in this pass also count
                if id(parameter) not in self._seen and parameter.grad is not None:
                    self._signs.append(_sign_sums(parameter.grad, None, self._last_share))
            difference, agreement, absolute = zip(*self._signs, strict=True)
            signs = (
                _sum(difference),
                _sum([one for one in agreement if one is not None] or [0 * absolute[0]]),
                _sum(absolute),
            )
        inside = [norms for identity, norms in self._seen.items() if identity in self._of_norm_layers]
        return PassNorms(*_square(list(self._seen.values())), *_square(inside), signs)

    @torch.no_grad()
    def accumulated_squared(self) -> Tensor:
        """|g|² of the gradients as they are now."""
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        norms = [torch.linalg.vector_norm(one, dtype=_accumulation_dtype(one)) for one in gradients]
        return _sum(norms, lambda stacked: stacked.square())

    def _measure(self, parameter: nn.Parameter, gradient: Tensor) -> None:
        if gradient.is_sparse:
            self.unmeasurable = NoGradientSamples.SPARSE
        elif id(parameter) in self._seen:
            self.unmeasurable = NoGradientSamples.PARTIAL_GRADIENTS
        if self.unmeasurable:
            return
        before = parameter.grad  # no graph is recorded inside a hook
        norm = torch.linalg.vector_norm(gradient, dtype=_accumulation_dtype(gradient))
        self._seen[id(parameter)] = (norm, None if before is None else _dot(before, gradient))
        if self._last_share is not None:
            self._signs.append(_sign_sums(before, gradient, self._last_share))


def added_norms(
    norms: GradientNorms, passes: Sequence[PassNorms | None], samples: tuple[list[Tensor], Tensor] | None
) -> AddedNorms | NoGradientSamples:
    """The passes of one step as `protocols.AddedNorms`, or the reason why they cannot be measured.

    `samples` are the per-sample sums of the norm layers: one per pass, and one over all samples.
    """
    reached = [one for one in passes if one is not None]
    if norms.unmeasurable:
        return norms.unmeasurable
    if len(reached) < len(passes):
        return NoGradientSamples.NO_GRADIENT
    if len(passes) == 1 and samples is None:
        return NoGradientSamples.SAMPLES_NOT_SEPARATED
    inner = None
    if norms.has_norm_layers:
        inner = (
            [one.norm_layer_squared for one in reached],
            torch.stack([one.norm_layer_growth for one in reached]).sum(),
        )
    squared_sum = torch.stack([one.growth for one in reached]).sum()
    single = (torch.stack(samples[0]).sum(), samples[1]) if samples is not None else None
    return AddedNorms([one.squared for one in reached], squared_sum, inner, reached[-1].signs, single)


def is_norm_layer(module: nn.Module) -> bool:
    """Whether this is one of torch's norm layers, or a custom class whose name ends in Norm."""
    return isinstance(module, NORM_LAYERS) or type(module).__name__.endswith("Norm")


def _attach(parameter: nn.Parameter, hook: Callable[[Tensor], None]) -> RemovableHandle:
    handle: RemovableHandle = parameter.register_hook(hook)  # type: ignore[no-untyped-call]
    return handle


def _accumulation_dtype(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype is torch.float64 else torch.float32


def _square(norms: list[tuple[Tensor, Tensor | None]]) -> tuple[Tensor, Tensor]:
    """(|v|², 2·u·v + |v|²) from the |v| and u·v of each parameter."""
    squared = _sum([norm for norm, _ in norms], lambda stacked: stacked.square())
    overlaps = [dot for _, dot in norms if dot is not None]
    return squared, squared + 2 * _sum(overlaps) if overlaps else squared


def _sum(numbers: Sequence[Tensor], of: Callable[[Tensor], Tensor] = lambda stacked: stacked) -> Tensor:
    """Sum of scalars, in float64 if the device supports it, because growth is a small difference of large numbers."""
    if not numbers:
        return torch.zeros(())
    device = numbers[0].device
    stacked = torch.stack([number.to(device) for number in numbers])
    total: Tensor = of(stacked if device.type == "mps" else stacked.double()).sum()
    return total


def _dot(one: Tensor, other: Tensor) -> Tensor:
    return _added([_product(a, b) for a, b in _chunks(one, other)])


def _product(a: Tensor, b: Tensor) -> Tensor:
    narrow = a.dtype in (torch.bfloat16, torch.float16)
    return torch.dot(a.float(), b.float()) if narrow else torch.dot(a, b)


def _sign_sums(before: Tensor | None, gradient: Tensor | None, share: float) -> tuple[Tensor, Tensor | None, Tensor]:
    """(difference, agreement, absolute) of one parameter; a missing sum or gradient counts as zero."""
    if before is None or gradient is None:
        present = gradient if gradient is not None else before
        assert present is not None
        one_norm = _one_norm(present)
        return one_norm / (share if before is None else 1 - share), None, one_norm
    differences, agreements, absolutes = [], [], []
    for u, v in _chunks(before, gradient):
        differences.append(_one_norm(torch.sub(u, v, alpha=(1 - share) / share)))
        agreements.append(_product(torch.sign(u), v))
        absolutes.append(_one_norm(u + v))
    return _added(differences) / (1 - share), _added(agreements) / share, _added(absolutes)


def _one_norm(tensor: Tensor) -> Tensor:
    return tensor.abs().sum(dtype=_accumulation_dtype(tensor))


def _added(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum()


def _chunks(one: Tensor, other: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    flat, other_flat = one.reshape(-1), other.reshape(-1)
    if len(flat) <= CHUNK:
        return iter([(flat, other_flat)])
    return zip(torch.split(flat, CHUNK), torch.split(other_flat, CHUNK), strict=True)
