"""The [command] section of a study.toml: a person's own training script, and where its losses are."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, Strict, model_validator

from batchlab.core.batch import MOST_DEVICES, Frozen
from batchlab.core.metric import Better, Metric
from batchlab.core.parse import MOST_SAMPLES, MOST_SECONDS

MetricsSource = Literal["stdout", "jsonl", "csv", "tensorboard", "trainer_state", "wandb"]

Line = Annotated[str, Field(min_length=1, max_length=16_384)]
Pattern = Annotated[str, Field(min_length=1, max_length=1000)]
Count = Annotated[int, Strict(), Field(ge=1, le=MOST_SAMPLES)]
Seconds = Annotated[float, Field(gt=0.0, le=MOST_SECONDS)]


class _Section(Frozen):
    model_config = ConfigDict(allow_inf_nan=False)


class CommandMetrics(_Section):
    """Where the script's losses are. A regular expression with one group for stdout, a name everywhere else."""

    source: MetricsSource = Field(
        default="stdout", alias="from", description="stdout, wandb, or a file: jsonl, csv, tensorboard, trainer_state"
    )
    file: Line | None = Field(
        default=None, description="the file, e.g. {run_dir}/metrics.jsonl; * and ** match, and the newest counts"
    )
    val_loss: Pattern | None = Field(
        default=None, description="the validation loss; the last one counts, nan and inf are divergence"
    )
    metric: Pattern | None = Field(default=None, description="judged instead of val_loss, such as an accuracy")
    name: Pattern = Field(default="metric", description="what the metric is called in the report, with its unit")
    better: Better = Field(default="lower", description="whether a lower or a higher metric is better")
    best: float = Field(
        default=1.0, ge=-1e12, le=1e12, description="the best possible metric, where higher is better: 1, or 100 for %"
    )
    train_loss: Pattern | None = None
    step: Pattern | None = Field(default=None, description="the optimizer step that a loss belongs to")

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True, serialize_by_alias=True)

    @model_validator(mode="after")
    def _one_quantity(self) -> Self:
        if (self.val_loss is None) is (self.metric is None):
            raise ValueError("give either val_loss, or metric with its name, as what batch sizes are judged by")
        return self

    @property
    def judged(self) -> str:
        """Where the quantity is that batch sizes are judged by."""
        return self.val_loss or self.metric or ""

    @property
    def judged_by(self) -> Metric | None:
        """The metric; None for the loss."""
        return None if self.metric is None else Metric(name=self.name, better=self.better, best=self.best)


class CommandCapacity(_Section):
    """How memory is measured, where {steps} cannot make a run short."""

    run: Line | None = Field(default=None, description="another command for memory probes; default: `run`")
    seconds: Seconds = Field(
        default=60.0, description="a probe that cannot be made short by {steps} or {tokens} is ended after this time"
    )


class Command(_Section):
    """How a person's own script is run. Placeholders and what follows from them: docs/integrations.md."""

    run: Line = Field(description="the command, with placeholders; split like a shell's, but run without one")
    sequence_length: Count | None = Field(
        default=None, description="tokens per sample; omit it where the study counts samples"
    )
    train_samples: Count | None = Field(
        default=None, description="training samples in an epoch; needed where {epochs} is used"
    )
    devices: Annotated[int, Strict(), Field(ge=1, le=MOST_DEVICES)] = Field(
        default=1, description="data-parallel devices or processes that the command itself starts"
    )
    seconds: Seconds | None = Field(
        default=None, description="training time of a run where {seconds} is its length; --run-time sets it"
    )
    time_limit_seconds: Seconds = Field(default=86_400.0, description="a run that takes longer is ended and failed")
    folder: str = Field(default="", description="where the command runs: the folder of the study.toml")
    metrics: CommandMetrics
    capacity: CommandCapacity = CommandCapacity()
