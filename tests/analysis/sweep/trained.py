"""A training run of a sweep, as analysis sees it."""

from __future__ import annotations

from batchlab.analysis.values import Run
from batchlab.core.batch import BatchLayout
from batchlab.core.pairing import Pairing
from batchlab.core.record import Outcome


def trained(
    size: int, rate: float, loss: float | None, seed: int = 0, *, tokens: int = 6400, pairing: str = "verified"
) -> Run:
    """A run of `size` samples per step on one device; it diverged where `loss` is None."""
    return Run(
        run_id=f"{size}-{rate}-{seed}",
        layout=BatchLayout(global_batch_size=size, micro_batch_size=size),
        learning_rate=rate,
        seed=seed,
        outcome=Outcome.COMPLETED if loss is not None else Outcome.DIVERGED,
        reason="",
        steps=100,
        tokens=tokens,
        undertrained=False,
        val_loss=loss,
        train_loss=loss,
        clipped_fraction=0.0,
        epochs=0.1,
        seconds=1.0,
        tokens_per_second=None,
        peak_bytes=None,
        pairing=Pairing(pairing),
    )
