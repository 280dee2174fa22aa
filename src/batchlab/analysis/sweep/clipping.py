"""How often gradients were clipped at each batch size.

Clipping at a fixed norm is a confounder across batch sizes: the expected squared norm of a gradient is |G|² + tr Σ / B,
so small batches are clipped more, and their effective learning rate is lower than the one that is quoted.
"""

from __future__ import annotations

from dataclasses import dataclass

from batchlab.analysis.values import SurfaceFinding

GAP = 0.2
"""Difference of two shares from which on clipping is a caveat."""


@dataclass(frozen=True, slots=True)
class Clipped:
    """The share of the steps that were clipped at a size's best learning rate, a mean over its runs."""

    global_batch_size: int
    share: float


def clipped_shares(surface: SurfaceFinding) -> tuple[Clipped, ...]:
    """By batch size; sizes without a measurement are omitted."""
    found = []
    for row in surface.rows:
        runs = row.best.runs if row.best else ()
        shares = [run.clipped_fraction for run in runs if run.clipped_fraction is not None]
        if shares:
            found.append(Clipped(row.global_batch_size, sum(shares) / len(shares)))
    return tuple(found)


def clipping_gap(surface: SurfaceFinding) -> tuple[Clipped, Clipped] | None:
    """The judged sizes with the lowest and the highest share, where these differ by more than `GAP`."""
    judged = {row.global_batch_size for row in surface.rows if row.val_loss is not None and not row.undertrained}
    shares = [each for each in clipped_shares(surface) if each.global_batch_size in judged]
    if not shares:
        return None
    ordered = sorted(shares, key=lambda each: (round(each.share, 6), each.global_batch_size))
    low, high = ordered[0], ordered[-1]
    return (low, high) if high.share - low.share > GAP else None
