"""What the stages before a sweep settled, for every training run after them."""

from __future__ import annotations

from dataclasses import dataclass

from batchlab.analysis.capacity.capacity import Capacity
from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import Experiment
from batchlab.core.spec import LARGEST_EVALUATION_BATCH, GradientSampling
from batchlab.engines.resources import Concurrency
from batchlab.storage.decisions import BudgetDecision
from batchlab.study.stages.gradient_sampling import gradient_sampling
from batchlab.study.stages.throughput import known_oom, layout_for


@dataclass(frozen=True, slots=True)
class SweepContext:
    """Capacity, concurrency and budget of a study, and what follows from them for one run.

    sample_independent: no layer mixes samples of a batch, so a batch may be split into micro-batches.
    repeatable: two runs of a person's own trainer with one seed were equal.
    """

    experiment: Experiment
    capacity: Capacity
    concurrency: Concurrency
    budget: BudgetDecision
    sample_independent: bool
    repeatable: bool = False

    @property
    def evaluation_batch_size(self) -> int:
        """Held-out samples evaluated at once, the same for every run."""
        return min(LARGEST_EVALUATION_BATCH, self.capacity.max_micro_batch_size or 1)

    def layout(self, global_batch_size: int) -> BatchLayout:
        """How a global batch is split into micro-batches."""
        return layout_for(self.experiment, global_batch_size, self.capacity, sample_independent=self.sample_independent)

    def known_oom(self, layout: BatchLayout) -> bool:
        """Whether the layout is known to run out of memory."""
        return known_oom(layout, self.capacity)

    def gradient_sampling(self, layout: BatchLayout, steps: int) -> GradientSampling | None:
        """How a run of `steps` samples its gradients; None where it does not."""
        return gradient_sampling(self.experiment, layout, steps, sample_independent=self.sample_independent)
