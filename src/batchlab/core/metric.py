"""What a study judges batch sizes by where that is not the loss: a metric of the person's own."""

from __future__ import annotations

import math
from typing import Literal

from batchlab.core.batch import Frozen
from batchlab.core.errors import RunFailure

Better = Literal["lower", "higher"]


class Metric(Frozen):
    """A metric on held-out data. Studies look for low values, so one that should be high counts as what is missing to
    its best possible value: an accuracy of 0.93 as 0.07.

    best: that value, where higher is better.
    """

    name: str
    better: Better = "lower"
    best: float = 1.0

    @property
    def title(self) -> str:
        """The judged quantity: `perplexity`, or `1 − accuracy`."""
        return self.name if self.better == "lower" else f"{self.best:g} − {self.name}"

    def judged(self, value: float) -> float:
        """The judged quantity for a value of the metric. Raises RunFailure above the best possible value."""
        if self.better == "lower":
            return value
        if math.isfinite(value) and value > self.best:
            raise RunFailure(
                f"{self.name} is {value:g}, more than {self.best:g}, the best possible value as far as batchlab knows; "
                "say which it is, e.g. --set evaluation.metric_best=100."
            )
        return self.best - value
