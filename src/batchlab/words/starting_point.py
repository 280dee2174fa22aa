"""Where a search started that was given an earlier study or a published law."""

from __future__ import annotations

from batchlab.analysis.findings import Findings
from batchlab.core.format import format_count, format_learning_rate
from batchlab.scaling import LAWS
from batchlab.scaling.published import PRIOR_BATCH_BY_BUDGET, PRIOR_RATE_BY_BUDGET
from batchlab.scaling.rules import Quantity
from batchlab.words.scaling import describe_formula, describe_law_caveat


def starting_point(found: Findings) -> list[str]:
    """What the search started from: values from other studies, which this study's own runs replace."""
    own = f"It only chose where to start; every number here is from this study's own runs (n = {len(found.runs)})."
    if found.earlier_optima and found.token_budget:
        earlier, unit = found.earlier_optima[0], found.experiment.unit.value
        batch, rate = PRIOR_BATCH_BY_BUDGET, PRIOR_RATE_BY_BUDGET
        return [
            f"The search started from the best of an earlier study, batch {earlier.best_batch_size:,.0f} at "
            f"{format_learning_rate(earlier.learning_rate)} with {format_count(earlier.token_budget)} {unit} per run, "
            f"extrapolated to {format_count(found.token_budget)}: best batch ∝ D^{batch.mean:g} ± {batch.sd:g}, "
            f"learning rate at a fixed small batch ∝ D^−{-rate.mean:g} ± {rate.sd:g}, published for language models "
            f"(sources in scaling/published.py). {own}"
        ]
    law = next((law for law in LAWS if law.key == found.experiment.sweep.prior), None)
    if law is None or law.learning_rate is None:
        return []
    batch_size = describe_formula(law.batch_tokens, Quantity.BATCH_SIZE)
    learning_rate = describe_formula(law.learning_rate, Quantity.LEARNING_RATE)
    return [
        f"The search started a doubling below the learning rate of {law.name}, extrapolated from other models: "
        f"{batch_size}, learning rate {learning_rate} ({law.paper.citation}; {describe_law_caveat(law)}). {own}"
    ]
