"""Classifies errors as out of memory. Each backend words them differently, and some raise a plain RuntimeError.

Only messages about a failed allocation count. Other errors that depend on the batch size (BatchNorm on one sample, an
index out of range, a kernel that cannot be launched) are bugs to report, not reasons to try a smaller size.
"""

from __future__ import annotations

import re
import traceback

from batchlab.core.protocols import OutOfMemory

MEMORY_ERROR_TYPES = frozenset({"OutOfMemoryError", "MemoryError"})
"""torch.OutOfMemoryError (torch.cuda.OutOfMemoryError is the same class), Python's and numpy's."""

_ALLOCATION_FAILED = re.compile(
    "|".join(
        (
            # a backend name in capitals: CUDA, HIP, XPU, NPU, HPU, MLU, MPS, CPU
            r"\b[A-Z]{3,}( backend)?\]?( error| driver error)?:? out of memory",
            r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory",
            r"UR_RESULT_ERROR_OUT_OF_(DEVICE|HOST|RESOURCES)\w*|PI_ERROR_OUT_OF_RESOURCES",
            # cuBLAS, cuDNN and their AMD counterparts allocate workspaces outside the caching allocator
            r"CUBLAS_STATUS_ALLOC_FAILED|CUSOLVER_STATUS_ALLOC_FAILED|CUSPARSE_STATUS_INSUFFICIENT_RESOURCES",
            r"HIPBLAS_STATUS_ALLOC_FAILED|rocblas_status_memory_error|miopenStatusAllocFailed",
            r"CUDNN_STATUS_(\w+_)?ALLOC(ATION)?_FAILED",
            r"DefaultCPUAllocator: (can't|not enough|not able to) (allocate )?memory|std::bad_alloc",
            r"\[Errno 12\]|Cannot allocate memory",
            r"Unable to allocate [\d.]+ \w+ for an array",
            r"MODULE:PT_DEVMEM Allocation failed",  # Gaudi
            r"Invalid buffer size: [\d.]+ \w+",  # MPS: one buffer above what the device can hold
        )
    )
)

_AMBIGUOUS = re.compile(
    "|".join(
        (
            # raised by cuDNN if no algorithm's workspace fits; torch adds a hint about contiguity
            r"cuDNN error: CUDNN_STATUS_NOT_SUPPORTED\b",
            # the only error that oneDNN on the CPU reports for its own failed allocations
            r"could not create a primitive\b(?! descriptor)|could not create a memory object",
        )
    )
)
"""Errors that may have other causes; they mean out of memory if the process is near its limit."""


def is_out_of_memory(type_name: str, text: str) -> bool:
    """Whether an exception with this class name and text is, or may be, a failed allocation."""
    return _certain(type_name, text) or _AMBIGUOUS.search(text) is not None


def _certain(type_name: str, text: str) -> bool:
    return type_name in MEMORY_ERROR_TYPES or _ALLOCATION_FAILED.search(text) is not None


def as_out_of_memory(error: BaseException) -> OutOfMemory | None:
    """Convert a failed allocation to OutOfMemory with the first line of its message; None for any other error.

    The frames of the traceback still reference the tensors of the failed pass, so they are cleared to free memory.
    """
    text, name = str(error), type(error).__name__
    if not is_out_of_memory(name, text):
        return None
    traceback.clear_frames(error.__traceback__)
    first = (text or type(error).__name__).splitlines()[0]
    return OutOfMemory(first, certain=_certain(name, text))
