"""A log of all storages that are allocated and freed while torch computes, with fake tensors or with values."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
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
    """A storage was allocated (positive bytes) or freed (negative bytes)."""

    storage: int
    bytes: int
    phase: Phase


Scratch = Callable[[Any, Sequence[Any]], Sequence[Sequence[int]]]
"""For an operation and its arguments, bytes that its kernel allocates besides the results, in groups."""


def _none(operation: Any, arguments: Sequence[Any]) -> Sequence[Sequence[int]]:
    return ()


class StorageLog(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, records the results of all operations, including those of the backward pass and of optimizers.

    A storage counts once, however many tensors share it, from the operation that returns it until it is no longer
    referenced, with the requested number of bytes. Of temporary allocations inside a kernel, those that `scratch` knows
    are recorded.

    `phase` is set by the caller, except that a forward phase becomes a backward phase with the first operation of the
    autograd engine. Storages that are alive at that moment and not yet claimed are activations.
    """

    def __init__(self, *, values: bool = False, scratch: Scratch = _none) -> None:
        """values: record tensors with values too, not only fake ones."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._values = values
        self._scratch = scratch
        self.phase: Phase = "forward"
        self.changes: list[Change] = []
        self._categories: dict[int, Category] = {}
        self._live: dict[int, tuple[int, int, weakref.ref[Any]]] = {}  # address → number, bytes, reference
        self._count = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and disabling dynamo for every call would double its cost

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE and isinstance(args[0], FakeTensor):  # the most frequent call, made by autograd
            return args[0].fake_device
        if self.phase == "forward" and torch._C._current_graph_task_id() != -1:
            self._claim_activations()
            self.phase = "backward"
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and self._counts(leaf):
                self._number_of(leaf)
        for group in self._scratch(func, args):
            self._note_scratch(group)
        return result

    def _note_scratch(self, sizes: Sequence[int]) -> None:
        """Storages that a kernel holds together, and frees before it returns."""
        numbers = range(self._count, self._count + len(sizes))
        self._count += len(sizes)
        self.changes += [Change(number, size, self.phase) for number, size in zip(numbers, sizes, strict=True)]
        self.changes += [Change(number, -size, self.phase) for number, size in zip(numbers, sizes, strict=True)]

    def _counts(self, tensor: Tensor) -> bool:
        """Whether a tensor has a storage of its own. A sparse one has parts, which are results of operations too."""
        if tensor.layout is not torch.strided:
            return False
        if isinstance(tensor, FakeTensor):
            return tensor.fake_device.type != "meta"
        return self._values and tensor.device.type != "meta"

    def begin(self) -> None:
        """Restart the log: freed storages are forgotten, and live ones are its first entries."""
        self.changes = [Change(number, size, self.phase) for number, size, _ in self._live.values()]

    def claim(self, tensors: Iterable[Tensor], category: Category) -> None:
        """Assign a category to the storages of these tensors, for their whole lifetime. The first claim wins."""
        for tensor in filter(self._counts, tensors):
            self._categories.setdefault(self._number_of(tensor), category)

    def peaks(self) -> tuple[PhasePeak, ...]:
        """The peak of each phase that occurred, by category. Unclaimed storages are temporary."""
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

    def _number_of(self, tensor: Tensor) -> int:
        """The number of a tensor's storage; new storages are added to the log."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address in self._live:
            return self._live[address][0]
        number, size = self._count, storage.nbytes()
        self._count += 1
        self._live[address] = number, size, weakref.ref(storage, lambda _: self._freed(address))
        self.changes.append(Change(number, size, self.phase))
        return number

    def _freed(self, address: int) -> None:
        number, size, _ = self._live.pop(address)
        self.changes.append(Change(number, -size, self.phase))
