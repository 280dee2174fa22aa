"""Where a search began that was given an earlier study or a published law."""

from __future__ import annotations

from batchlab.analysis.findings import Findings
from batchlab.core.format import format_count, format_learning_rate
from batchlab.scaling import LAWS
from batchlab.search.prior import BATCH_EXPONENT, RATE_EXPONENT


def starting_point(found: Findings) -> list[str]:
    """What the search started from: numbers of elsewhere, which this study's own runs replace."""
    own = f"It chose where to begin; every number here is of this study's own runs (n = {len(found.runs)})."
    if found.earlier_optima and found.token_budget:
        earlier, unit = found.earlier_optima[0], found.experiment.unit.value
        (batch, batch_sd), (rate, rate_sd) = BATCH_EXPONENT, RATE_EXPONENT
        return [
            f"The search started from the best of an earlier study, batch {earlier.best_batch_size:,.0f} at "
            f"{format_learning_rate(earlier.learning_rate)} with {format_count(earlier.token_budget)} {unit} a run, extrapolated "
            f"to {format_count(found.token_budget)}: best batch ∝ D^{batch} ± {batch_sd}, learning rate at a fixed "
            f"small batch ∝ D^−{-rate} ± {rate_sd}, published for language models (sources in search/prior.py). {own}"
        ]
    law = next((law for law in LAWS if law.key == found.experiment.sweep.prior), None)
    if law is None:
        return []
    return [
        f"The search started where {law.name} puts the optimum, extrapolated from other models: {law.batch_formula}, "
        f"learning rate {law.learning_rate_formula} ({law.source}; {law.doubt}). {own}"
    ]
