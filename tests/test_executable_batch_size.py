"""The decorator does what accelerate's does, and its three differences hold."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
import weakref
from typing import Any

import pytest
import torch

import batchlab
from batchlab.executable_batch_size import find_executable_batch_size

FROM_128_TO_8 = [128, 115, 103, 92, 82, 73, 65, 58, 52, 46, 41, 36, 32, 28, 25, 22, 19, 17, 15, 13, 11, 9, 8]

pytestmark = pytest.mark.filterwarnings("ignore:.*ran out of memory at batch size")


def fake_out_of_memory(text: str = "CUDA out of memory. Tried to allocate 2.00 GiB") -> None:
    raise RuntimeError(text)


@pytest.mark.parametrize(
    "text",
    [
        "CPU out of memory.",
        "CUDA out of memory.",
        "MPS out of memory.",
        "MPS backend out of memory (MPS allocated: 9 GB)",
        "XPU out of memory.",
        "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED.",
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.",
        "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed",
        "could not create a primitive",
    ],
)
def test_every_back_ends_words_for_out_of_memory_are_known(text: str) -> None:
    @find_executable_batch_size(starting_batch_size=9)
    def loop(batch_size: int) -> int:
        if batch_size != 8:
            fake_out_of_memory(text)
        return batch_size

    assert loop() == 8


def test_the_size_falls_by_a_tenth_until_it_runs() -> None:
    tried = []

    @find_executable_batch_size(starting_batch_size=128)
    def loop(batch_size: int, greeting: str) -> tuple[int, str]:
        tried.append(batch_size)
        if batch_size != 8:
            fake_out_of_memory()
        return batch_size, greeting

    assert loop("hello") == (8, "hello")
    assert tried == FROM_128_TO_8


def test_without_parentheses_and_as_a_plain_call() -> None:
    @find_executable_batch_size
    def bare(batch_size: int) -> int:
        return batch_size

    assert bare() == 128
    assert find_executable_batch_size(lambda size, word="": (size, word), 5)(word="x") == (5, "x")
    assert bare.__name__ == "bare"


@pytest.mark.parametrize("start", [0, 1, 16])
def test_zero_is_an_error(start: int) -> None:
    @find_executable_batch_size(starting_batch_size=start)
    def never(batch_size: int) -> None:
        assert batch_size > 0
        fake_out_of_memory()

    with pytest.raises(RuntimeError, match=re.escape("No executable batch size found, reached zero.")) as caught:
        never()
    assert (caught.value.__cause__ is None) == (start == 0)


def test_a_passed_batch_size_is_refused_before_anything_runs() -> None:
    @find_executable_batch_size(starting_batch_size=128)
    def loop(batch_size: int, arg1: str, arg2: str) -> None:
        raise AssertionError

    with pytest.raises(TypeError, match="Batch size was passed into `loop`") as caught:
        loop(128, "hello", "world")  # type: ignore[call-arg, arg-type]
    assert "`loop(arg1='hello', arg2='world')`" in str(caught.value)


def test_a_function_of_any_number_of_arguments_takes_them() -> None:
    @find_executable_batch_size
    def loop(batch_size: int, *rest: int) -> tuple[int, ...]:
        return (batch_size, *rest)

    assert loop(1, 2, 3) == (128, 1, 2, 3)


@pytest.mark.parametrize("error", [ValueError("Oops"), IndexError("index out of range in self"), KeyboardInterrupt()])
def test_other_errors_pass_through_at_once(error: BaseException) -> None:
    tried = []

    @find_executable_batch_size(starting_batch_size=16)
    def loop(batch_size: int) -> None:
        tried.append(batch_size)
        raise error

    with pytest.raises(type(error)) as caught:
        loop()
    assert caught.value is error
    assert tried == [16]


def test_the_person_may_say_what_comes_next() -> None:
    sizes = iter([64, 7])
    tried = []

    @find_executable_batch_size(starting_batch_size=100, reduce_batch_size_fn=lambda: next(sizes))
    def loop(batch_size: int) -> int:
        tried.append(batch_size)
        if batch_size > 7:
            fake_out_of_memory()
        return batch_size

    assert loop() == 7
    assert tried == [100, 64, 7]


def test_nothing_is_remembered_between_calls() -> None:
    tried = []

    @find_executable_batch_size(starting_batch_size=10)
    def loop(batch_size: int, fits: int) -> int:
        tried.append(batch_size)
        if batch_size > fits:
            fake_out_of_memory()
        return batch_size

    assert loop(8) == 8
    assert loop(10) == 10
    assert tried == [10, 9, 8, 10]


def test_each_retry_is_announced_with_the_better_way() -> None:
    @find_executable_batch_size(starting_batch_size=10)
    def loop(batch_size: int) -> None:
        if batch_size > 8:
            fake_out_of_memory()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop()
    assert ["at 9" in str(w.message) for w in caught] == [True, False]
    assert all("batchlab capacity" in str(w.message) and "find_max_batch_size" in str(w.message) for w in caught)
    assert all(w.filename == __file__ for w in caught)


def test_what_a_failed_attempt_held_is_free_before_the_next() -> None:
    held: list[weakref.ref[torch.nn.Module]] = []

    @find_executable_batch_size(starting_batch_size=4)
    def loop(batch_size: int) -> list[bool]:
        alive = [reference() is not None for reference in held]
        model: Any = torch.nn.Linear(2, 2)
        model.itself = [model]  # a cycle, which only a collection frees
        held.append(weakref.ref(model))
        if batch_size > 2:
            fake_out_of_memory()
        return alive

    assert loop() == [False, False]


def test_a_real_failed_allocation() -> None:
    @find_executable_batch_size(starting_batch_size=2**50, reduce_batch_size_fn=lambda: 3)
    def loop(batch_size: int) -> int:
        return torch.zeros(batch_size).numel()

    assert loop() == 3


def test_it_is_exported_and_loads_no_torch() -> None:
    assert batchlab.find_executable_batch_size is find_executable_batch_size
    code = (
        "import sys, warnings; warnings.simplefilter('ignore')\n"
        "import batchlab\n"
        "@batchlab.find_executable_batch_size(starting_batch_size=4)\n"
        "def loop(size):\n"
        "    if size > 2: raise MemoryError\n"
        "    return size\n"
        "print(loop(), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["2", "False"]
