"""Building a model on fake tensors, although its constructor reads values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode

MAX_COMPUTED_ELEMENTS = 4096
"""Longest `arange` or `linspace` that is computed. Constructors read depths, rates and layer shapes from such
sequences, but not weights."""

_aten = torch.ops.aten
_SEQUENCES = frozenset({_aten.linspace.default, _aten.arange.default, _aten.arange.start, _aten.arange.start_step})


class FakeInitialisation(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Enter inside a FakeTensorMode to build a model whose weights take neither memory nor time.

    Reading a boolean from a fake tensor gives False, because `torch.nn.init.trunc_normal_` draws again while any value
    is out of bounds. Short evenly spaced sequences are real, as in `[p.item() for p in torch.linspace(0, 0.1, depth)]`.
    """

    def __init__(self, fake: FakeTensorMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._fake = fake

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is _aten._local_scalar_dense.default and args[0].dtype is torch.bool:
            return False
        result = func(*args, **kwargs)
        if func in _SEQUENCES and math.prod(result.shape) <= MAX_COMPUTED_ELEMENTS:
            with unset_fake_temporarily():
                known = func(*args, **kwargs)
            return self._fake.fake_tensor_converter.from_real_tensor(self._fake, known, make_constant=True)
        return result


@contextmanager
def conversion_in_place() -> Iterator[None]:
    """Make `module.to(…)` assign new data to parameters instead of swapping tensors.

    torch 2.13 swaps a fake parameter with the converted one, which fails while the cache of the fake mode refers to it;
    whether it does depends on the preceding operations.
    """
    original = nn.Module._apply

    def convert(module: nn.Module, fn: Callable[[Any], Any], recurse: bool = True) -> nn.Module:
        if recurse:
            for child in module.children():
                child._apply(fn)  # type: ignore[no-untyped-call]
        for name, parameter in module._parameters.items():
            if parameter is None:
                continue
            converted = fn(parameter.data)
            if converted.device == parameter.device:
                parameter.data = converted
            else:  # a skeleton on "meta", as for functional_call; .data cannot change its kind of device
                module._parameters[name] = nn.Parameter(converted, parameter.requires_grad)
        for name, buffer in module.named_buffers(recurse=False):
            module._buffers[name] = fn(buffer)
        return module

    nn.Module._apply = convert  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module._apply = original  # type: ignore[method-assign]
