"""What counts as evidence that memory ran out: the one place that decides it.

Evidence is the type of an error, its text, a log that ends with such a text, or a process that the system killed for
lack of memory, by its own count. Each backend words failed allocations differently, and some raise a plain
RuntimeError. Only messages about a failed allocation count. Other errors that depend on the batch size (BatchNorm on
one sample, an index out of range, a kernel that cannot be launched) are bugs to report, not reasons to try a smaller
size. A process that was killed without such evidence shows nothing about memory.
"""

from __future__ import annotations

import re
import traceback
from enum import StrEnum

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
            r"Failed to CUDA (c|m)alloc",  # NCCL
            r"DefaultCPUAllocator: (can't|not enough|not able to) (allocate )?memory",
            r"std::bad_alloc|\bbad allocation\b",  # the second on Windows
            r"\[Errno 12\]|Cannot allocate memory",
            r"Unable to allocate [\d.]+ \w+ for an array",
            r"MODULE:PT_DEVMEM Allocation failed",  # Gaudi
            r"Invalid buffer size: [\d.]+ \w+",  # MPS: one buffer above what the device can hold
            r"\[malloc\] Unable to allocate \d+ bytes|\[metal::malloc\] Attempting to allocate \d+ bytes",  # MLX
            r"kIOGPUCommandBufferCallbackErrorOutOfMemory",  # Metal, which ends the process of MLX with it
        )
    )
)

_KILLED = re.compile(r"\boom[-_]kill event|\bOOM[- ]?Killed\b|: error: .*: Out Of Memory$", re.MULTILINE)
"""What Slurm and Kubernetes say of a process that the system killed for lack of memory."""

_AMBIGUOUS = re.compile(
    "|".join(
        (
            # raised by cuDNN if no algorithm's workspace fits; torch adds a hint about contiguity
            r"cuDNN error: CUDNN_STATUS_NOT_SUPPORTED\b",
            r"(GET|FIND) was unable to find an engine|Unable to find a valid cuDNN algorithm",
            r"CUDNN_STATUS_INTERNAL_ERROR\b",
            r"CUBLAS_STATUS_NOT_INITIALIZED",  # cublasCreate allocates
            r"NVML_SUCCESS == ",  # an assertion of the caching allocator while it reports a failed allocation
            # the only error that oneDNN on the CPU reports for its own failed allocations
            r"could not create a primitive\b(?! descriptor)|could not create a memory object",
        )
    )
)
"""Errors that may have other causes; they mean out of memory if the process is near its limit."""


class Evidence(StrEnum):
    """What shows that memory ran out."""

    ALLOCATION_FAILED = "allocation_failed"
    KILLED = "killed"  # by the system, for lack of memory
    AMBIGUOUS = "ambiguous"  # lack of memory explains it, but other causes as well


def evidence_of(text: str = "", *, type_name: str = "", oom_kills: int = 0) -> Evidence | None:
    """What shows that memory ran out; None where nothing does.

    text: of an error, or the end of a log. type_name: of the error's class. oom_kills: how many processes the system
    killed for lack of memory at the time the process in question died.
    """
    if type_name in MEMORY_ERROR_TYPES or _ALLOCATION_FAILED.search(text):
        return Evidence.ALLOCATION_FAILED
    if oom_kills or _KILLED.search(text):
        return Evidence.KILLED
    return Evidence.AMBIGUOUS if _AMBIGUOUS.search(text) else None


def as_out_of_memory(error: BaseException) -> OutOfMemory | None:
    """Convert a failed allocation to OutOfMemory with the first line of its message; None for any other error.

    The frames of the traceback still reference the tensors of the failed pass, so they are cleared to free memory.
    """
    if isinstance(error, OutOfMemory):
        return error
    text, name = str(error), type(error).__name__
    evidence = evidence_of(text, type_name=name)
    if evidence is None:
        return None
    traceback.clear_frames(error.__traceback__)
    return OutOfMemory(text.partition("\n")[0], certain=evidence is not Evidence.AMBIGUOUS)
