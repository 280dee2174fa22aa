"""A batch axis that is open at its end (`--batch-sizes 1:max`): doublings for as long as they fit and can be judged.

How far it could reach is known once the task is inspected, and is frozen with the experiment. What memory holds is
measured later: sizes beyond it are left out, since accumulation would go on without end.
"""

from __future__ import annotations

from batchlab.core.batch import Unit
from batchlab.core.errors import InputError
from batchlab.core.experiment import Experiment
from batchlab.core.parse import MOST_VALUES
from batchlab.core.record import TaskInfo
from batchlab.search.budget import steps_to_judge

DEFAULT_PASSES = {Unit.TOKENS: 4, Unit.SAMPLES: 30}
"""At most so many passes over the training data in a run, where neither tokens nor time were given. Text repeated up to
4 times trains nearly as well as new text (Muennighoff et al. 2023, arXiv:2305.16264); images and tables are repeated
more."""


def to_its_end(asked: Experiment, task_info: TaskInfo) -> Experiment:
    """The experiment with every size that an open axis may reach; unchanged where the axis is closed.

    The reference batch size is that of the sizes as they were given, whatever memory holds. Raises InputError where not
    even two sizes could be judged, and where nothing bounds the axis.
    """
    if not asked.batch.open_end:
        return asked
    largest = _largest(asked, task_info)
    sizes = list(asked.batch.global_batch_sizes)
    while sizes[-1] * 2 <= largest and len(sizes) < MOST_VALUES:
        sizes.append(sizes[-1] * 2)
    if len(sizes) < 2:
        raise InputError(
            f"--batch-sizes {sizes[0]}:max: from batch {sizes[0] * 2} on, a run has too few steps to be judged; start "
            "smaller or give a larger --token-budget."
        )
    changes: dict[str, object] = {"batch": asked.batch.model_copy(update={"global_batch_sizes": tuple(sizes)})}
    if asked.optimizer.reference_batch_size is None:
        changes["optimizer"] = asked.optimizer.model_copy(update={"reference_batch_size": asked.reference_batch_size})
    return asked.model_copy(update=changes)


def _largest(asked: Experiment, task_info: TaskInfo) -> int:
    """The largest batch of which a run has enough steps to be judged, and the data enough samples."""
    steps = max(map(steps_to_judge, asked.warmup_fractions))
    samples = task_info.train_samples
    if asked.budget.token_budget is not None:
        largest = asked.budget.token_budget // (task_info.sequence_length * steps)
        return largest if samples is None else min(largest, samples)
    if samples is None:
        raise InputError("--batch-sizes N:max: the amount of data is not known; give --token-budget or a last size.")
    return min(DEFAULT_PASSES[task_info.unit] * samples // steps, samples)
