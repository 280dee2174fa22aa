"""The sum of gradients over ranks, begun while the backward pass still runs.

Hooks tell when a parameter's gradient is complete. Gradients are summed in buckets, in the reverse order of the
parameters, which is about the order in which they arrive: as in DistributedDataParallel (Li et al. 2020,
arXiv:2006.15704, section 4.2), but as sums, without a wrapper around the model. The order of the buckets is fixed,
because every rank must begin its sums in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from batchlab.core.errors import InputError
from batchlab.torch_.ranks import TorchRanks

BUCKET_BYTES = 25 * 2**20
"""DistributedDataParallel's default. A gradient as large as this is summed where it is, without a copy."""


class _Begun(NamedTuple):
    """A bucket whose sum has begun: its parameters, their values one after the other, and what waits for the sum."""

    parameters: list[nn.Parameter]
    values: Tensor
    wait: Callable[[], None]


class GradientSum:
    """Sums the gradients of these parameters over ranks, once per step."""

    def __init__(self, parameters: Sequence[nn.Parameter], ranks: TorchRanks) -> None:
        self._parameters = list(parameters)
        self._ranks = ranks
        self._buckets = _buckets(self._parameters)
        self._place = {id(p): place for place, bucket in enumerate(self._buckets) for p in bucket}
        self._last_pass = False
        self._arrived: list[set[int]] = []
        self._begun: list[_Begun] = []
        self._hooks = [
            p.register_post_accumulate_grad_hook(self._complete)  # type: ignore[no-untyped-call]
            for p in self._parameters
        ]

    @property
    def parts(self) -> list[int]:
        """Bytes of the sums of a step, in their order: the buckets, and what `finish` adds to them."""
        buckets = [sum(p.numel() * p.element_size() for p in bucket) for bucket in self._buckets]
        return [*buckets, (1 + len(self._parameters)) * self._parameters[0].element_size()]

    def seconds(self, size: int, synchronize: Callable[[], float]) -> float:
        """Seconds of a sum of `size` bytes that all ranks begin together."""
        values = torch.ones(max(1, size // 4), device=self._parameters[0].device)
        synchronize()
        self._ranks.sum([0.0])
        begun = synchronize()
        self._ranks.begin_sum(values)()
        return synchronize() - begun

    def close(self) -> None:
        """Leave the parameters alone."""
        for hook in self._hooks:
            hook.remove()

    def last_pass(self) -> None:
        """The next backward pass of this rank is its last one of the step."""
        self._last_pass = True
        self._arrived = [set() for _ in self._buckets]
        self._begun = []

    def finish(self, loss: Tensor) -> Tensor:
        """Begin what has not begun yet and wait for all of it: every gradient is the sum over ranks then, and so is the
        loss that is returned. A parameter without a gradient on any rank keeps none."""
        self._last_pass = False
        missing = [p.grad is None for p in self._parameters]
        while len(self._begun) < len(self._buckets):
            self._begin(self._buckets[len(self._begun)])
        has_gradient = torch.tensor([not lacks for lacks in missing], dtype=loss.dtype)
        ending = torch.cat([loss.reshape(1), has_gradient.to(loss.device, non_blocking=True)])
        wait = self._ranks.begin_sum(ending)
        for begun in self._begun:
            begun.wait()
            _write_back(begun)
        wait()
        if any(missing):  # only then this waits for the device
            for parameter, ranks_with in zip(self._parameters, ending[1:].tolist(), strict=True):
                if not ranks_with:
                    parameter.grad = None
        self._begun = []
        return ending[0]

    def _complete(self, parameter: Tensor) -> None:
        """Called by autograd whenever a backward pass has added to a gradient."""
        if not self._last_pass:
            return
        place = self._place[id(parameter)]
        if place < len(self._begun):
            raise InputError(
                "A parameter's gradient arrives several times in one backward pass, so its sum over several devices "
                "would begin too early. Call torch.utils.checkpoint with use_reentrant=False, or use one device."
            )
        self._arrived[place].add(id(parameter))
        while len(self._begun) < len(self._buckets):
            bucket = self._buckets[len(self._begun)]
            if len(self._arrived[len(self._begun)]) < len(bucket):
                return
            self._begin(bucket)

    def _begin(self, bucket: list[nn.Parameter]) -> None:
        for parameter in bucket:
            if parameter.grad is not None and parameter.grad.is_sparse:
                raise InputError(
                    "A parameter has sparse gradients, which several devices cannot add up; build its embedding with "
                    "sparse=False, or use one device."
                )
        values = _in_place(bucket)
        if values is None:
            values = torch.cat([_flat(parameter) for parameter in bucket])
        self._begun.append(_Begun(bucket, values, self._ranks.begin_sum(values)))


def _buckets(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """In the reverse order, each of one type on one device."""
    buckets: list[list[nn.Parameter]] = []
    room, kind = 0, None
    for parameter in reversed(parameters):
        size = parameter.numel() * parameter.element_size()
        if not buckets or size > room or kind != (parameter.dtype, parameter.device):
            buckets.append([])
            room, kind = BUCKET_BYTES, (parameter.dtype, parameter.device)
        buckets[-1].append(parameter)
        room -= size
    return buckets


def _in_place(bucket: list[nn.Parameter]) -> Tensor | None:
    """The values of a lone gradient itself, where they lie one after the other."""
    gradient = bucket[0].grad
    return gradient.view(-1) if len(bucket) == 1 and gradient is not None and gradient.is_contiguous() else None


def _flat(parameter: nn.Parameter) -> Tensor:
    if parameter.grad is None:
        return torch.zeros(parameter.numel(), dtype=parameter.dtype, device=parameter.device)
    return parameter.grad.reshape(-1)


def _write_back(begun: _Begun) -> None:
    start = 0
    for parameter in begun.parameters:
        stop = start + parameter.numel()
        summed = begun.values[start:stop].view(parameter.shape)
        if parameter.grad is None:
            parameter.grad = summed
        elif parameter.grad.data_ptr() != summed.data_ptr():
            parameter.grad.copy_(summed)  # captured graphs add to gradients where they are
        start = stop
