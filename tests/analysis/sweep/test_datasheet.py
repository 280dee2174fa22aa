"""Which card's data sheet a driver's name means."""

from __future__ import annotations

import pytest

from batchlab.analysis.sweep.datasheet import datasheet_flops
from batchlab.core.experiment import Precision


@pytest.mark.parametrize(
    ("device", "precision", "tera"),
    [
        ("NVIDIA A100-SXM4-80GB", "bf16", 312),
        ("NVIDIA H100 80GB HBM3", "tf32", 494.7),
        ("NVIDIA H100 PCIe", "bf16", 756),
        ("NVIDIA L4", "bf16", 121),
        ("NVIDIA L40S", "fp16", 362.05),
        ("NVIDIA L40", "bf16", None),
        ("NVIDIA GeForce RTX 4090", "bf16", 165.2),
        ("NVIDIA GeForce RTX 4090 D", "bf16", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "bf16", None),
        ("NVIDIA H200", "bf16", 989.4),
        ("NVIDIA H200 NVL", "bf16", None),
        ("NVIDIA GH200 480GB", "bf16", None),
        ("NVIDIA GeForce RTX 3090", "fp32", 35.6),
        ("NVIDIA GeForce RTX 3090", "bf16", None),  # no source
        ("Tesla T4", "bf16", None),  # Turing has none
        ("Intel(R) Xeon(R) Processor", "fp32", None),
    ],
)
def test_peaks_are_dense_and_of_this_very_card(device: str, precision: Precision, tera: float | None) -> None:
    assert datasheet_flops(device, precision) == (None if tera is None else pytest.approx(tera * 1e12))
