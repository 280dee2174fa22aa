"""The learning rates that a sweep starts from where none were given: four values about a factor of 3 apart, which a
grid extends and an adaptive search leaves where the best lies beyond them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from batchlab.core.experiment import Experiment
from batchlab.core.optimizer_group import OptimizerGroup
from batchlab.core.record import TaskInfo

MUON = "Muon"
"""The optimizer's class, in torch.optim from 2.9 and in Keller Jordan's repository."""


class StartFrom(StrEnum):
    """What the values are usual for."""

    ADAM = "adam"
    SGD = "sgd"
    MUON = "muon"
    MUON_LIKE_ADAM = "muon_like_adam"
    UNKNOWN = "unknown"


VALUES: dict[StartFrom, tuple[float, ...]] = {
    # Small language models have their best around 1e-3.
    StartFrom.ADAM: (3e-4, 1e-3, 3e-3, 1e-2),
    # The usual value for image models, with momentum, is 0.1.
    StartFrom.SGD: (0.01, 0.03, 0.1, 0.3),
    # The update is a matrix whose singular values are about 1, times √max(1, rows/columns) (`adjust_lr_fn` "original").
    # So the learning rate is in units of spectral norm per update, and the same for every width. 0.02 is the default of
    # its authors (github.com/KellerJordan/Muon, muon.py; Jordan et al. 2024, kellerjordan.github.io/posts/muon), 0.05
    # what their speed run of nanoGPT used. The default of torch, 1e-3, is that of its AdamW and far below.
    StartFrom.MUON: (2e-3, 6e-3, 2e-2, 6e-2),
    # With "match_rms_adamw" each update is scaled by 0.2·√max(rows, columns), so that its root mean square is that of
    # AdamW's, and learning rates of AdamW apply (Liu et al. 2025, arXiv:2502.16982, section 2.2; torch.optim.Muon).
    StartFrom.MUON_LIKE_ADAM: (3e-4, 1e-3, 3e-3, 1e-2),
    # Between Adam and SGD.
    StartFrom.UNKNOWN: (1e-3, 3e-3, 1e-2, 3e-2),
}


@dataclass(frozen=True, slots=True)
class StartingRates:
    """`values` of the learning rate that is swept. `ratio`: that of Muon's group ÷ the swept one; 1 without Muon."""

    usual_for: StartFrom
    values: tuple[float, ...]
    ratio: float = 1.0


def starting_rates(optimizer_family: str, groups: Sequence[OptimizerGroup] = ()) -> StartingRates:
    """By the optimizer of most of the model's matrices where that is Muon, else by the family of the optimizer.

    `groups`: parameter groups of the task's own optimizers. A group whose learning rate is r times the swept one starts
    at 1/r of the usual values, so that the group itself starts at them.
    """
    muon = max((group for group in groups if _is_muon(group)), key=_parameters, default=None)
    if muon is None:
        match optimizer_family:
            case "adam":
                usual = StartFrom.ADAM
            case "sgd":
                usual = StartFrom.SGD
            case _:
                usual = StartFrom.UNKNOWN
        return StartingRates(usual, VALUES[usual])
    usual = StartFrom.MUON_LIKE_ADAM if muon.sized_like_adamw else StartFrom.MUON
    ratio = muon.learning_rate_ratio
    return StartingRates(usual, tuple(float(f"{value / ratio:.3g}") for value in VALUES[usual]), ratio)


def swept_rates(experiment: Experiment, task_info: TaskInfo) -> tuple[float, ...]:
    """The learning rates that a sweep starts from: as given, or by the optimizer."""
    given = experiment.sweep.learning_rates
    return given or starting_rates(task_info.optimizer_family, task_info.optimizer_groups).values


def _is_muon(group: OptimizerGroup) -> bool:
    """MuonWithAuxAdam has groups with betas too, which are Adam's."""
    return MUON in group.optimizer and group.beta2 is None


def _parameters(group: OptimizerGroup) -> int:
    return group.parameter_count
