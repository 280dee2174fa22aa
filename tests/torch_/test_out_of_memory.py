"""Out-of-memory classification of messages from real backends."""

from __future__ import annotations

import pytest
import torch

from batchlab.torch_.out_of_memory import as_out_of_memory, is_out_of_memory

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
    (
        "RuntimeError",
        "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous input.",
    ),
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
    ("OutOfMemoryError", "HIP out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 23.98 GiB"),
    ("RuntimeError", "HIP error: out of memory\nHIP kernel errors might be asynchronously reported"),
    ("RuntimeError", "XPU out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.91 GiB total capacity)"),
    ("RuntimeError", "Native API failed. Native API returns: 40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)"),
    ("RuntimeError", "Native API failed. Native API returns: -5 (PI_ERROR_OUT_OF_RESOURCES)"),
    ("RuntimeError", "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"),
    ("RuntimeError", "could not create a primitive"),
    ("RuntimeError", "could not create a memory object"),
    ("RuntimeError", "std::bad_alloc"),
    ("OSError", "[Errno 12] Cannot allocate memory"),
    ("RuntimeError", "MLU out of memory. Tried to allocate 2.00 GiB"),
    ("RuntimeError", "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::1048576 (1)MB"),
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
def test_failed_allocations(name, text):
    assert is_out_of_memory(name, text)


@pytest.mark.parametrize(("name", "text"), NOT_MEMORY)
def test_other_errors(name, text):
    assert not is_out_of_memory(name, text)


def test_the_errors_torch_raises_here():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert "allocate" in str(as_out_of_memory(caught.value))
    out_of_memory = as_out_of_memory(torch.OutOfMemoryError("Tried\nmore"))
    assert out_of_memory is not None
    assert out_of_memory.args == ("Tried",)
    with pytest.raises(ValueError, match="more than 1 value") as batch_norm:
        torch.nn.BatchNorm1d(3)(torch.zeros(1, 3))
    assert as_out_of_memory(batch_norm.value) is None
