"""Predicted and measured bytes, as results.md."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

import torch

from batchlab.core.format import format_bytes

LARGEST = 2**20


@dataclass(frozen=True)
class Ran:
    """A size that ran, and the prediction of the trace for it."""

    size: int
    allocated: int
    reserved: int
    predicted_allocated: int
    predicted_reserved: int

    @property
    def allocated_error(self) -> float:
        return self.predicted_allocated / self.allocated - 1

    @property
    def reserved_error(self) -> float:
        return self.predicted_reserved / self.reserved - 1


@dataclass(frozen=True)
class Row:
    """One workload under one limit. `proved`: one more sample failed; `alone`: the choice of the trace alone."""

    workload: str
    limit: int
    largest: int
    proved: bool
    alone: int
    ran: tuple[Ran, ...]


def largest_within(bytes_of: Callable[[int], int], limit: int) -> int:
    """The largest size whose bytes are within the limit, or 0 if none is. Bytes must increase with the size."""
    passed, failed = 0, 1
    while failed < LARGEST and bytes_of(failed) <= limit:
        passed, failed = failed, 2 * failed
    while failed - passed > 1:
        middle = (passed + failed) // 2
        passed, failed = (middle, failed) if bytes_of(middle) <= limit else (passed, middle)
    return passed


def page(rows: Sequence[Row], missing: Sequence[str], device: str, kind: str) -> str:
    """results.md: errors at every size that ran, and largest sizes."""
    simulated = "simulated: a fraction of this card" if kind == "cuda" else "RLIMIT_DATA"
    errors = {
        "allocated": [ran.allocated_error for row in rows for ran in row.ran],
        "reserved": [ran.reserved_error for row in rows for ran in row.ran],
        "largest size": [row.alone / row.largest - 1 for row in rows],
    }
    return "\n".join(
        [
            f"# Predicted and measured memory on {device}",
            "",
            "    python benchmarks/capacity_cuda/run.py" + ("" if kind == "cuda" else f" --device {kind}"),
            "",
            f"{date.today()}, torch {torch.__version__}, Python {platform.python_version()}; n = 1 for each size.",
            "",
            *(_summary(what, values) for what, values in errors.items() if values),
            "",
            f"| workload | limit ({simulated}) | largest | from the trace alone | at | allocated GiB | error "
            "| reserved GiB | error |",
            "|---|---|---|---|---|---|---|---|---|",
            *(_line(row, ran) for row in rows for ran in row.ran),
            "",
            "Errors are those of the trace alone, before batchlab calibrates it with the smaller of these runs.\n"
            "*: the next size was not run to failure.",
            *(["", "Without an answer:", ""] if missing else []),
            *(f"- {text}" for text in missing),
            "",
        ]
    )


def _summary(what: str, values: list[float]) -> str:
    sizes = [abs(value) for value in values]
    return f"- {what}: median error {statistics.median(sizes):.1%}, maximum {max(sizes):.1%} (n = {len(sizes)})"


def _line(row: Row, ran: Ran) -> str:
    return (
        f"| {row.workload} | {format_bytes(row.limit)} | {row.largest}{'' if row.proved else '*'} | {row.alone} "
        f"| {ran.size} "
        f"| {ran.allocated / 2**30:.3f} | {ran.allocated_error:+.1%} | {ran.reserved / 2**30:.3f} "
        f"| {ran.reserved_error:+.1%} |"
    )
