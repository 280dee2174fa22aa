"""Devices, flags and the environment in a record."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from batchlab.core.errors import InputError
from batchlab.core.spec import DeviceSettings
from batchlab.torch_ import device as devices
from batchlab.torch_.framework import TorchFramework


def test_auto_is_the_best_device_here():
    assert TorchFramework().resolve_device("auto") == devices.devices()[0]
    assert devices.devices()[-1] == "cpu"


@pytest.mark.parametrize("name", ["cuda:99", "simulated"])
def test_a_missing_device_is_refused_with_what_exists(name):
    with pytest.raises(InputError, match=rf"'{name}'.*Possible: auto, .*cpu"):
        TorchFramework().resolve_device(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_on_a_machine_without():
    with pytest.raises(InputError, match="no device 'cuda'"):
        TorchFramework().resolve_device("cuda")


def test_start_resets_what_a_run_may_have_left():
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("medium")
    TorchFramework().start(DeviceSettings(threads=1), 5)
    assert torch.zeros(1).dtype is torch.float32
    assert torch.zeros(1).device.type == "cpu"
    assert torch.is_grad_enabled()
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.get_float32_matmul_precision() == "highest"
    drawn = torch.rand(1).item(), random.random(), np.random.rand()
    TorchFramework().start(DeviceSettings(threads=1), 5)
    assert drawn == (torch.rand(1).item(), random.random(), np.random.rand())


def test_threads_are_set():
    before = torch.get_num_threads()
    TorchFramework().start(DeviceSettings(threads=2), 0)
    assert torch.get_num_threads() == 2
    assert TorchFramework().environment(DeviceSettings()).threads == 2
    torch.set_num_threads(before)


def test_tf32_changes_nothing_on_a_cpu():
    TorchFramework().start(DeviceSettings(precision="tf32"), 0)
    assert torch.get_float32_matmul_precision() == "highest"


def test_environment_names_versions_and_machine():
    environment = TorchFramework().environment(DeviceSettings())
    assert environment.framework == f"torch {torch.__version__}"
    assert environment.processor
    assert environment.device == environment.processor
    assert environment.device_memory_bytes is not None
    assert environment.device_memory_bytes > 2**28
    assert environment.cores >= 1
    assert environment.instruction_set
