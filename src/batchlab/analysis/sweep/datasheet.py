"""Dense peaks of cards by their makers' data sheets, in operations per second.

A data sheet counts at the boost clock, which a card does not hold under load; the peak that is measured is therefore
lower, and is the one that MFU is taken of. Sparse figures, twice as high, are for matrices half of which are zeros.
fp16 and bf16 with sums in fp32, as PyTorch computes them.
"""

from __future__ import annotations

from collections.abc import Mapping

from batchlab.core.experiment import Precision

TERA = 1e12

# Each figure was compared on 2026-11-22 with a publication that quotes the maker's document. LF: Lightning 2.6.6,
# fabric/utilities/throughput.py, which links to that document for every card.
_SHEETS: tuple[tuple[str, Mapping[Precision, float]], ...] = (
    # H100 data sheet (sparse: half of it): LF; archive-lib.hpctech.co.jp/gpuproduct/nvidia-h100.html
    ("H100 PCIe", {"fp32": 51, "tf32": 378, "bf16": 756, "fp16": 756}),
    # H100 white paper: LF; glennklockwood.com/garden/processors/h100
    ("H100 80GB HBM3", {"fp32": 66.9, "tf32": 494.7, "bf16": 989.4, "fp16": 989.4}),
    # the H100's processor at the same clock: glennklockwood.com, hmc-tech.com (H200 SXM)
    ("H200", {"fp32": 66.9, "tf32": 494.7, "bf16": 989.4, "fp16": 989.4}),
    # A100 data sheet, the same for SXM and PCIe: LF
    ("A100", {"fp32": 19.5, "tf32": 156, "bf16": 312, "fp16": 312}),
    # L40S data sheet: mullet.se/product.html?product_id=355414
    ("L40S", {"fp32": 91.6, "tf32": 183, "bf16": 362.05, "fp16": 362.05}),
    # L4 data sheet and Ada white paper: LF
    ("NVIDIA L4", {"fp32": 30.3, "tf32": 60, "bf16": 121, "fp16": 121}),
    # Ada white paper: LF for fp32 and tf32; waredb.com/processor/nvidia-geforce-rtx-4090 and gigagpu.com for all
    ("RTX 4090", {"fp32": 82.6, "tf32": 82.6, "bf16": 165.2, "fp16": 165.2}),
    # GA102 white paper: LF. In half precision it has the speed without tensor cores, which is not the peak
    ("RTX 3090", {"fp32": 35.6, "tf32": 35.6}),
    # T4 data sheet: LF
    ("Tesla T4", {"fp32": 8.1, "fp16": 65}),
    # V100 data sheet: LF; developer.nvidia.com/programming-tensor-cores-cuda-9-0
    ("V100-SXM2", {"fp32": 15.7, "fp16": 125}),
)

_OTHERS = ("GH200", "H200 NVL", "RTX 4090 D", "RTX 4090 Laptop", "RTX 3090 Ti", "NVIDIA L40S-")
"""Names that hold one of those above and are other cards."""


def datasheet_flops(device: str, precision: Precision) -> float | None:
    """Of the card whose driver calls it `device`; None for one whose sheet is not listed."""
    if any(other in device for other in _OTHERS):
        return None
    for name, peaks in _SHEETS:
        if name in device and (device.endswith(name) or not device.partition(name)[2][:1].isalnum()):
            tera = peaks.get(precision)
            return None if tera is None else tera * TERA
    return None
