"""What `batchlab check` found: one item per possible fault, as numbers and names, which `words.check` describes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from batchlab.core.batch import Frozen
from batchlab.core.optimizer_group import OptimizerGroup

Status = Literal["ok", "note", "fail"]


class StartLoss(Frozen):
    """The loss before any training, beside that of a uniform prediction over the vocabulary where there is one."""

    kind: Literal["start_loss"] = "start_loss"
    found: Literal["finite", "not_finite", "far_above_uniform", "far_below_uniform"]
    loss: float
    vocabulary: int | None = None


class HalvesLoss(Frozen):
    """What the loss function returned for one batch and for its two halves."""

    samples: int
    whole: float
    first: float
    second: float


class ReductionFinding(Frozen):
    """Whether the loss function returns a mean over the counted targets, or a sum."""

    kind: Literal["reduction"] = "reduction"
    found: Literal[
        "mean",
        "sum",
        "sum_with_count",
        "sum_not_declared",
        "mean_declared_as_sum",
        "mean_with_count",
        "count_differs",
        "mean_over_other_targets",
        "neither",
        "zero",
        "not_finite",
        "not_repeatable",
    ]
    losses: HalvesLoss
    own_count: float | None = Field(default=None, description="the count that the loss function returned")
    count: float | None = Field(default=None, description="targets known before the forward pass")
    target_ratio: tuple[float, float] | None = Field(
        default=None, description="least and most targets per sample that the loss averages over ÷ those counted"
    )


class SplittingFinding(Frozen):
    """Gradients of one batch against the sum over its two halves."""

    kind: Literal["splitting"] = "splitting"
    found: Literal["equal", "mixes", "declared_dependent", "no_gradient", "not_repeatable", "reduction_unknown"]
    samples: int
    difference: float | None = Field(
        default=None, description="relative L2 distance of the gradients; of two passes over one batch: not_repeatable"
    )
    layer: str | None = Field(default=None, description="the layer that mixes samples; None: the loss function")


class SeedFinding(Frozen):
    """Whether one seed always starts from the same parameters, and another seed from others."""

    kind: Literal["seeds"] = "seeds"
    found: Literal["honoured", "starts_equal", "same_module", "not_seeded", "ignored"]
    parameter: str = Field(default="", description="the first that differs between two starts with one seed")


class LearningRateFinding(Frozen):
    """Whether the optimizer steps at the learning rate it is given."""

    kind: Literal["learning_rate"] = "learning_rate"
    found: Literal[
        "honoured",
        "groups_follow",
        "groups_ignore",
        "moves_at_zero",
        "moves_nothing",
        "ignores_changes",
        "no_gradient",
        "parameters_not_finite",
    ]
    own_optimizer: bool
    group: OptimizerGroup | None = Field(default=None, description="at fault, where the optimizer has several")
    learning_rate: float = Field(description="of the first of two runs of three steps; the other has twice that")
    distance_ratio: float | None = Field(
        default=None, description="distance that parameters move at twice the rate ÷ at the rate"
    )


class EvaluationFinding(Frozen):
    """Whether evaluation repeats to the bit and changes nothing."""

    kind: Literal["evaluation"] = "evaluation"
    found: Literal[
        "pure",
        "random",
        "draws",
        "depends_on_order",
        "changes_parameters",
        "changes_state",
        "changes_training",
        "training_not_repeatable",
    ]
    losses: tuple[float, float] = Field(
        description="of one batch: twice, with other draws, or in another order of its samples"
    )


class GradientFinding(Frozen):
    """Which parameters a gradient reaches within three steps."""

    kind: Literal["gradients"] = "gradients"
    found: Literal["all", "some", "none", "not_finite"]
    parameter_count: int
    tensors: int
    names: tuple[str, ...] = Field(default=(), description="tensors that none reaches, or the one that is not finite")
    step: int | None = Field(default=None, description="at which a gradient was not finite, counted from 1")


class OverlapFinding(Frozen):
    """How much of the held-out data is also in the training data."""

    kind: Literal["overlap"] = "overlap"
    found: Literal["none", "some", "leaked"]
    share: float


class DataSizeFinding(Frozen):
    """How much data there is."""

    kind: Literal["data_size"] = "data_size"
    found: Literal["enough", "few", "fewer_than_largest_batch", "too_few"]
    train_samples: int
    valid_samples: int
    largest_batch: int | None = Field(default=None, description="largest global batch size of the sweep, where known")


class PlaceholderFinding(Frozen):
    """What changing the value of a placeholder changed in short runs of a person's command."""

    kind: Literal["placeholder"] = "placeholder"
    found: Literal["repeats", "differs", "timed", "used", "ignored", "untrained_loss", "unknown"]
    placeholder: str = Field(description="the one that was changed; of two equal runs the seed, empty where none is")
    loss: float | None
    steps: int = Field(description="of each run")


class RaisedError(Frozen):
    """The person's code raised an error instead."""

    kind: Literal["raised"] = "raised"
    message: str
    same_as: str | None = Field(default=None, description="the item that met this error first")


class TooLarge(Frozen):
    """The measurement needs more memory than the device has."""

    kind: Literal["too_large"] = "too_large"
    samples: int = Field(description="in the batch that it was measured on")


CheckFinding = Annotated[
    StartLoss
    | ReductionFinding
    | SplittingFinding
    | SeedFinding
    | LearningRateFinding
    | EvaluationFinding
    | GradientFinding
    | OverlapFinding
    | DataSizeFinding
    | PlaceholderFinding
    | RaisedError
    | TooLarge,
    Field(discriminator="kind"),
]


class CheckItem(Frozen):
    """One line of `batchlab check`: ok, worth knowing (note), or to be fixed first (fail)."""

    name: str
    status: Status
    finding: CheckFinding


class CheckResult(Frozen):
    """All lines of `batchlab check`, and whether a batch may be split."""

    kind: Literal["check"] = "check"
    items: tuple[CheckItem, ...]
    sample_independent: bool = True
    mixing_layer: str | None = None
    repeatable: bool = Field(
        default=False, description="of a person's own trainer: two runs with one seed gave the same losses"
    )

    @property
    def passed(self) -> bool:
        """True where nothing has to be fixed before a sweep."""
        return all(item.status != "fail" for item in self.items)
