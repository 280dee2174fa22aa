"""What the runs of a study say of the cells that were not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from batchlab.search.lattice import Cells
from batchlab.search.prior import before_any_run, evidence_of, noise_between_seeds
from batchlab.search.surrogate import SEED_NOISE, Posterior
from batchlab.search.trial import Trial, TrialOutcome


def infer(
    outcomes: Mapping[Trial, TrialOutcome], sizes: Sequence[int], rates: Sequence[float]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(expected loss, its standard deviation in percent of the loss) at each pair of a size and a learning rate.

    The surrogate of the adaptive search, without hint or earlier study: what these outcomes alone say. ValueError
    before any finite loss.
    """
    losses = [outcome.val_loss for outcome in outcomes.values() if outcome.finite and outcome.val_loss is not None]
    if not losses:
        raise ValueError("nothing can be inferred before a run has a finite loss")
    seen = Cells(
        (*sizes, *(trial.global_batch_size for trial in outcomes)),
        (*rates, *(trial.learning_rate for trial in outcomes)),
    )
    basins = before_any_run(
        (float(seen.batch.min()), float(seen.batch.max())), (float(seen.rate.min()), float(seen.rate.max())), None
    )
    posterior = Posterior(basins, evidence_of(outcomes, noise_between_seeds(outcomes, SEED_NOISE)))
    wanted = Cells(tuple(sizes), tuple(rates))
    mean, deviation = posterior.predict(wanted.batch, wanted.rate)
    expected = np.exp(mean / 100) if min(losses) > 0 else mean * max(map(abs, losses)) / 100
    return tuple(expected.tolist()), tuple(deviation.tolist())
