"""Every storage that comes and goes while torch computes with fake tensors, in order."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from batchlab.core.record import Phase, PhasePeak

Category = Literal["parameter", "gradient", "optimizer", "activation", "temporary"]


_DEVICE = torch.ops.prim.device.default


class Change(NamedTuple):
    """A storage came (bytes above zero) or went (below)."""

    storage: int
    bytes: int
    phase: Phase


class StorageLog(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While entered, sees the results of every operation, those of the backward pass and of optimizers included.

    A storage counts once, however many tensors share it, from the operation that returns it until nothing refers to it
    any more, with the bytes that were asked for. What a kernel allocates and frees inside itself is not seen.

    `phase` is set from outside, except that a forward phase turns into a backward phase with the first operation of
    the autograd engine. What is alive at that moment and nobody has claimed is an activation.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.phase: Phase = "forward"
        self.changes: list[Change] = []
        self._categories: dict[int, Category] = {}
        self._live: dict[int, tuple[int, int, weakref.ref[Any]]] = {}  # address → number, bytes, reference
        self._count = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled in here, and shielding every call from the compiler doubles its cost

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE:  # autograd asks each tensor, twice as often as anything else happens
            return args[0].fake_device
        if self.phase == "forward" and torch._C._current_graph_task_id() != -1:
            self._claim_activations()
            self.phase = "backward"
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, FakeTensor) and leaf.fake_device.type != "meta":
                self._see(leaf)
        return result

    def begin(self) -> None:
        """Forget what has gone; what is alive now, as an untouched process would hold it, is where the log starts."""
        self.changes = [Change(number, size, self.phase) for number, size, _ in self._live.values()]

    def claim(self, tensors: Iterable[Tensor], category: Category) -> None:
        """Say what these tensors' storages are, from their beginning to their end. The first to claim one has it."""
        for tensor in tensors:
            self._categories.setdefault(self._see(tensor), category)

    def peaks(self) -> tuple[PhasePeak, ...]:
        """The largest moment of each phase that occurred, split by category; what nobody claimed is temporary."""
        held: dict[Category, int] = dict.fromkeys(("parameter", "gradient", "optimizer", "activation", "temporary"), 0)
        largest: dict[Phase, int] = {}
        split: dict[Phase, dict[Category, int]] = {}
        total = 0
        for number, size, phase in self.changes:
            held[self._categories.get(number, "temporary")] += size
            total += size
            if total > largest.get(phase, -1):
                largest[phase] = total
                split[phase] = dict(held)
        return tuple(
            PhasePeak(
                phase=phase,
                parameter_bytes=bytes_of["parameter"],
                gradient_bytes=bytes_of["gradient"],
                optimizer_bytes=bytes_of["optimizer"],
                activation_bytes=bytes_of["activation"],
                temporary_bytes=bytes_of["temporary"],
            )
            for phase, bytes_of in split.items()
        )

    def _claim_activations(self) -> None:
        for number, _, _ in self._live.values():
            self._categories.setdefault(number, "activation")

    def _see(self, tensor: Tensor) -> int:
        """The number of a tensor's storage, a new one if it was not there before."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address in self._live:
            return self._live[address][0]
        number, size = self._count, storage.nbytes()
        self._count += 1
        self._live[address] = number, size, weakref.ref(storage, lambda _: self._gone(address))
        self.changes.append(Change(number, size, self.phase))
        return number

    def _gone(self, address: int) -> None:
        number, size, _ = self._live.pop(address)
        self.changes.append(Change(number, -size, self.phase))
