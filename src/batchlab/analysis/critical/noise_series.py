"""The noise scale along a run, from the gradient norms that its sampled steps logged.

The noise scale is that of all parameters. Norm layers alone stand in for them where most sampled steps measured nothing
else. The factor between the two is measured at steps that logged both (Gray et al. 2024, arXiv:2411.00999).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from batchlab.analysis.critical.noise_scale import GradientNorms, NoiseScale, noise_scale, noise_scale_series
from batchlab.analysis.critical.ratio import MIN_BLOCKS
from batchlab.analysis.critical.sign_noise_scale import SignNoiseScale, SignNorms, sign_noise_scale
from batchlab.analysis.sweep.runs import shown_run
from batchlab.analysis.values import Run
from batchlab.core.record import GradientSample, MetricRow

WINDOWS = 6
"""About how many windows a run's sampled steps are shown in."""
LEAST_WINDOW = 2 * MIN_BLOCKS

Rows = Sequence[tuple[MetricRow, GradientSample]]


@dataclass(frozen=True, slots=True)
class NoiseSeries:
    """The noise scale along one run: that at the best learning rate and with the lowest seed of its batch size.

    `whole` and `windows` are of all parameters, or of norm layers alone where most sampled steps measured nothing else;
    `parameters` says which. `norm_layers` is over all sampled steps. `norm_layer_ratio` is all parameters ÷ norm layers
    over the `calibrated` sampled steps that measured both, None where either is undetermined there.
    """

    batch: int
    learning_rate: float
    run_id: str
    whole: NoiseScale
    windows: tuple[NoiseScale, ...]
    signs: SignNoiseScale | None
    norm_layers: NoiseScale | None
    parameters: Literal["all", "norm_layers"] = "all"
    norm_layer_ratio: float | None = None
    calibrated: int = 0

    @property
    def latest(self) -> NoiseScale:
        """That of the last window."""
        return self.windows[-1] if self.windows else self.whole


def noise_series(runs: Sequence[Run]) -> NoiseSeries | None:
    """The series of the completed run with the lowest seed; None where it logged no gradients."""
    run = shown_run(runs)
    rows = [(row, row.gradients) for row in run.rows if row.gradients is not None] if run else []
    if run is None or not rows:
        return None
    full = [_norms(row, sample) for row, sample in rows if sample.parameters == "all"]
    inner = [one for row, sample in rows if (one := _norm_layer_norms(row, sample)) is not None]
    signs = [signed for row, sample in rows if (signed := _sign_norms(row, sample)) is not None]
    stand_in = 2 * len(full) < len(rows)
    norms = inner if stand_in else full
    window = max(LEAST_WINDOW, math.ceil(len(norms) / WINDOWS))
    return NoiseSeries(
        batch=run.global_batch_size,
        learning_rate=run.learning_rate,
        run_id=run.run_id,
        whole=noise_scale(norms),
        windows=noise_scale_series(norms, window) if len(norms) >= window else (),
        signs=sign_noise_scale(signs) if signs else None,
        norm_layers=noise_scale(inner) if inner else None,
        parameters="norm_layers" if stand_in else "all",
        norm_layer_ratio=_ratio(rows),
        calibrated=len(full) if inner else 0,
    )


def _ratio(rows: Rows) -> float | None:
    """The noise scale of all parameters divided by that of norm layers, from the same sampled steps."""
    both = [
        (_norms(row, sample), inner)
        for row, sample in rows
        if sample.parameters == "all" and (inner := _norm_layer_norms(row, sample)) is not None
    ]
    full, norm_layers = (noise_scale([pair[at] for pair in both]).value for at in (0, 1))
    if full is None or norm_layers is None or norm_layers.value <= 0:
        return None
    return full.value / norm_layers.value


def _norms(row: MetricRow, sample: GradientSample) -> GradientNorms:
    return GradientNorms(
        sample.micro_batch_sizes, sample.squared_norms, sample.mean_squared_norm, tokens=float(row.tokens)
    )


def _norm_layer_norms(row: MetricRow, sample: GradientSample) -> GradientNorms | None:
    """Norms of single samples where the layers give them, which carry most about noise; else of micro-batches."""
    if sample.norm_layer_samples is not None:
        square, of_mean = sample.norm_layer_samples
        samples = round(math.fsum(sample.micro_batch_sizes))
        return GradientNorms((1.0,) * samples, (square,) * samples, of_mean, tokens=float(row.tokens))
    squares, whole = sample.norm_layer_squared_norms, sample.norm_layer_mean_squared_norm
    if squares is None or whole is None:
        return None
    return GradientNorms(sample.micro_batch_sizes, squares, whole, tokens=float(row.tokens))


def _sign_norms(row: MetricRow, sample: GradientSample) -> SignNorms | None:
    """Two groups for any number of micro-batches: all but the last, and the last."""
    if sample.spread is None or sample.absolute_mean is None or sample.agreement is None:
        return None
    if sample.parameters != "all":
        return None
    return SignNorms(2, sample.spread, sample.absolute_mean, sample.agreement, tokens=float(row.tokens))
