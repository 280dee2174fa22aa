"""Random operations that give every sample of a batch the same numbers, whatever the size of the batch.

A loss that draws noise gives one value for a batch and others for its halves, which looks as if samples influenced each
other. With this mode both meet the same noise, so what still differs is influence.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten


class ConstantNoise(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, random numbers are a fixed wave over the axes after the first; coins show heads.

    Operations whose numbers cannot be replaced, such as the dropout inside a fused attention, are left as they are.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return result
        name = func.overloadpacket._qualified_op_name.partition("::")[2].rstrip("_").removesuffix("_like")
        if name == "native_dropout":
            return args[0].clone(), torch.ones_like(result[1])
        if isinstance(result, Tensor):
            with torch.no_grad():
                _settle(result, name, [value for value in args if isinstance(value, int | float)])
        return result


def _settle(tensor: Tensor, name: str, numbers: list[float]) -> None:
    """Replace the numbers that the operation drew."""
    match name:
        case "rand" | "uniform":
            low, high = numbers[:2] if name == "uniform" and len(numbers) > 1 else (0.0, 1.0)
            tensor.copy_(low + (high - low) * (0.5 + 0.49 * _wave(tensor)))
        case "randn" | "normal":
            mean, deviation = numbers[:2] if name == "normal" and len(numbers) > 1 else (0.0, 1.0)
            tensor.copy_(mean + deviation * math.sqrt(2) * _wave(tensor))
        case "bernoulli":
            tensor.fill_(1)
        case "randint" | "random":
            bounds = [int(number) for number in numbers if not isinstance(number, bool)]
            low, high = (0, bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1]) if bounds else (0, 2)
            tensor.fill_((low + high - 1) // 2)
        case "randperm":
            tensor.copy_(torch.arange(len(tensor), device=tensor.device))


def _wave(tensor: Tensor) -> Tensor:
    """Numbers from −1 to 1 that depend on the position within a sample only."""
    per_sample = tensor[:1].numel() if tensor.ndim else 1
    wave = torch.cos(1.7 * torch.arange(per_sample, device=tensor.device, dtype=torch.float32) + 0.4)
    return wave.reshape(tensor.shape[1:]).expand(tensor.shape)
