"""Is this error the device running out of memory? Every backend says it differently, and some as a RuntimeError.

Only texts that mean a failed allocation count. Errors that merely become likely at some batch size (BatchNorm on one
sample, an index out of range, a kernel that cannot be launched) are bugs to be shown, not sizes to be lowered.
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
            # a back end by its name in capitals: CUDA, HIP, XPU, NPU, HPU, MLU, MPS, CPU
            r"\b[A-Z]{3,}( backend)?\]?( error| driver error)?:? out of memory",
            r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory",
            r"UR_RESULT_ERROR_OUT_OF_(DEVICE|HOST|RESOURCES)\w*|PI_ERROR_OUT_OF_RESOURCES",
            # cuBLAS, cuDNN and their AMD twins allocate workspaces behind the caching allocator's back
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

_PERHAPS = re.compile(
    "|".join(
        (
            # what cuDNN answers when no algorithm's workspace fits; torch adds the hint about contiguity
            r"cuDNN error: CUDNN_STATUS_NOT_SUPPORTED\b",
            # oneDNN on the CPU reports its own failed allocations only like this
            r"could not create a primitive\b(?! descriptor)|could not create a memory object",
        )
    )
)
"""How libraries say that something could not be made: out of memory when the process is near its limit."""


def is_out_of_memory(type_name: str, text: str) -> bool:
    """Whether an exception of this class name with this text is, or may be, a failed allocation."""
    return _certain(type_name, text) or _PERHAPS.search(text) is not None


def _certain(type_name: str, text: str) -> bool:
    return type_name in MEMORY_ERROR_TYPES or _ALLOCATION_FAILED.search(text) is not None


def as_out_of_memory(error: BaseException) -> OutOfMemory | None:
    """The seam's OutOfMemory for a failed allocation, with the backend's own first line; None for any other error.

    The failed pass is still referenced by the traceback's frames; they are cleared so that its tensors can be freed.
    """
    text, name = str(error), type(error).__name__
    if not is_out_of_memory(name, text):
        return None
    traceback.clear_frames(error.__traceback__)
    first = (text or type(error).__name__).splitlines()[0]
    return OutOfMemory(first, certain=_certain(name, text))
