"""What is evidence of running out of memory, and what is not: messages of real backends, launchers and the system."""

from __future__ import annotations

import pytest
import torch

from batchlab.core.out_of_memory import Evidence, as_out_of_memory, evidence_of

MEMORY = [
    ("OutOfMemoryError", "Allocation on device"),
    ("MemoryError", ""),
    ("_ArrayMemoryError", "Unable to allocate 7.45 GiB for an array with shape (1000000000,) and data type float64"),
    (
        "RuntimeError",
        "CUDA out of memory. Tried to allocate 4.88 GiB (GPU 0; 15.99 GiB total capacity; 28.49 GiB already "
        "allocated; 0 bytes free; 29.00 GiB reserved in total by PyTorch)",
    ),
    ("AcceleratorError", "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    ("RuntimeError", "CUDA driver error: out of memory"),
    ("RuntimeError", "Triton Error [CUDA]: out of memory"),
    ("RuntimeError", "cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    ("RuntimeError", "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    ("RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ("RuntimeError", "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`"),
    (
        "RuntimeError",
        "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 1073741824 bytes. Error code 12 (Cannot allocate memory)",
    ),
    (
        "RuntimeError",
        "[enforce fail at alloc_cpu.cpp:72] data. DefaultCPUAllocator: not enough memory: you tried to allocate "
        "68719476736 bytes.",
    ),
    (
        "RuntimeError",
        "MPS backend out of memory (MPS allocated: 17.95 GB, other allocations: 1.32 MB, max allowed: 18.13 GB). Tried "
        "to allocate 256.00 MB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit",
    ),
    ("RuntimeError", "Invalid buffer size: 58.36 GiB"),
    ("RuntimeError", "[malloc] Unable to allocate 1073741824 bytes."),
    (
        "RuntimeError",
        "[metal::malloc] Attempting to allocate 11324620800 bytes which is greater than the maximum allowed buffer "
        "size of 9534832640 bytes.",
    ),
    (
        "",
        "libc++abi: terminating due to uncaught exception of type std::runtime_error: [METAL] Command buffer execution "
        "failed: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
    ),
    ("OutOfMemoryError", "HIP out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 23.98 GiB"),
    ("RuntimeError", "HIP error: out of memory\nHIP kernel errors might be asynchronously reported"),
    ("RuntimeError", "XPU out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.91 GiB total capacity)"),
    ("RuntimeError", "Native API failed. Native API returns: 40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)"),
    ("RuntimeError", "Native API failed. Native API returns: -5 (PI_ERROR_OUT_OF_RESOURCES)"),
    ("RuntimeError", "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"),
    ("RuntimeError", "std::bad_alloc"),
    ("RuntimeError", "bad allocation"),
    ("DistBackendError", "NCCL error: unhandled cuda error. Last error: Failed to CUDA calloc 4194304 bytes"),
    ("OSError", "[Errno 12] Cannot allocate memory"),
    ("RuntimeError", "MLU out of memory. Tried to allocate 2.00 GiB"),
    ("RuntimeError", "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::1048576 (1)MB"),
]

AMBIGUOUS = [
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous input.",
    "GET was unable to find an engine to execute this computation",
    "FIND was unable to find an engine to execute this computation",
    "Unable to find a valid cuDNN algorithm to run convolution",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    'NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":1123',
    "could not create a primitive",
    "could not create a memory object",
]

KILLED = [
    "slurmstepd: error: Detected 1 oom_kill event in StepId=3.0. Some of the step tasks have been OOM Killed.",
    "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=3.0 cgroup.",
    "srun: error: n1: task 0: Out Of Memory",
    "Reason: OOMKilled",
]

NOT_MEMORY = [
    ("ValueError", "Expected more than 1 value per channel when training, got input size torch.Size([1, 64])"),
    ("IndexError", "index out of range in self"),
    ("RuntimeError", "cuDNN error: CUDNN_STATUS_MAPPING_ERROR"),
    ("RuntimeError", "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
    ("RuntimeError", "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE"),
    ("RuntimeError", "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"),
    ("AcceleratorError", "CUDA error: an illegal memory access was encountered"),
    ("AcceleratorError", "CUDA error: device-side assert triggered"),
    ("AcceleratorError", "CUDA error: too many resources requested for launch"),
    ("RuntimeError", "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle, opa, opb)`"),
    ("OutOfResources", "out of resource: shared memory, Required: 147456, Hardware limit: 101376."),
    ("RuntimeError", "mat1 and mat2 shapes cannot be multiplied (8x6 and 5x1)"),
    ("RuntimeError", "could not create a primitive descriptor for a matmul primitive"),
    (
        "RuntimeError",
        "DataLoader worker (pid 41) is killed by signal: Bus error. It is possible that dataloader's workers are out "
        "of shared memory. Please try to raise your shared memory limit.",
    ),
    ("RuntimeError", "unable to open shared memory object </torch_25102_1> in read-write mode"),
    ("RuntimeError", "Input type (float) and bias type (c10::BFloat16) should be the same"),
    ("RuntimeError", "one of the variables needed for gradient computation has been modified by an inplace operation"),
    ("FileNotFoundError", "[Errno 2] No such file or directory: 'train.npy'"),
]


@pytest.mark.parametrize(("name", "text"), MEMORY)
def test_failed_allocations(name: str, text: str) -> None:
    assert evidence_of(text, type_name=name) is Evidence.ALLOCATION_FAILED


@pytest.mark.parametrize("text", AMBIGUOUS)
def test_errors_that_lack_of_memory_explains_but_other_causes_as_well(text: str) -> None:
    assert evidence_of(text, type_name="RuntimeError") is Evidence.AMBIGUOUS
    found = as_out_of_memory(RuntimeError(text))
    assert found is not None
    assert not found.certain


@pytest.mark.parametrize("text", KILLED)
def test_a_process_that_the_system_killed_for_memory(text: str) -> None:
    assert evidence_of(f"step 1\n{text}\n") is Evidence.KILLED


def test_the_system_s_count_is_evidence_and_a_bare_kill_is_none() -> None:
    assert evidence_of("Killed", oom_kills=1) is Evidence.KILLED
    assert evidence_of("step 1\nstep 2\nKilled", oom_kills=0) is None
    assert evidence_of() is None


@pytest.mark.parametrize(("name", "text"), NOT_MEMORY)
def test_other_errors(name: str, text: str) -> None:
    assert evidence_of(text, type_name=name) is None


def test_the_errors_torch_raises_here() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert "allocate" in str(as_out_of_memory(caught.value))
    out_of_memory = as_out_of_memory(torch.OutOfMemoryError("Tried\nmore"))
    assert out_of_memory is not None
    assert out_of_memory.args == ("Tried",)
    with pytest.raises(ValueError, match="more than 1 value") as batch_norm:
        torch.nn.BatchNorm1d(3)(torch.zeros(1, 3))
    assert as_out_of_memory(batch_norm.value) is None
