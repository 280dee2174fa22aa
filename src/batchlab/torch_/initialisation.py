"""What the constructor of a model may ask of values while there are none."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode

KNOWN_NUMBERS = 4096
"""Sequences up to this long are computed: depths, rates and shapes of layers are read from such, weights are not."""

_aten = torch.ops.aten
_SEQUENCES = frozenset({_aten.linspace.default, _aten.arange.default, _aten.arange.start, _aten.arange.start_step})


class ValuelessInitialisation(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Entered inside a FakeTensorMode while a model is built, whose weights then take no memory and no time.

    A yes-or-no read from unknown values is no: `torch.nn.init.trunc_normal_` draws again while any number is out of
    bounds. Short evenly spaced sequences have their values, as in `[p.item() for p in torch.linspace(0, 0.1, depth)]`.
    """

    def __init__(self, fake: FakeTensorMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._fake = fake

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is _aten._local_scalar_dense.default and args[0].dtype is torch.bool:
            return False
        result = func(*args, **kwargs)
        if func in _SEQUENCES and math.prod(result.shape) <= KNOWN_NUMBERS:
            with unset_fake_temporarily():
                known = func(*args, **kwargs)
            return self._fake.fake_tensor_converter.from_real_tensor(self._fake, known, make_constant=True)
        return result


@contextmanager
def conversion_in_place() -> Iterator[None]:
    """Inside, `module.to(…)` gives its parameters new data.

    torch 2.13 would swap a fake parameter with its converted self, and refuses while the fake mode's own memory refers
    to it, which depends on the operations that came before.
    """
    original = nn.Module._apply

    def convert(module: nn.Module, fn: Callable[[Any], Any], recurse: bool = True) -> nn.Module:
        if recurse:
            for child in module.children():
                child._apply(fn)  # type: ignore[no-untyped-call]
        for parameter in module.parameters(recurse=False):
            parameter.data = fn(parameter.data)
        for name, buffer in module.named_buffers(recurse=False):
            module._buffers[name] = fn(buffer)
        return module

    nn.Module._apply = convert  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module._apply = original  # type: ignore[method-assign]
