"""The frozen question a study answers: what is trained, which sizes and learning rates, for how long, on what.

Settings by their dotted names are in core/settings.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, Strict, ValidationError, model_validator

from batchlab.core.batch import BatchLayout, Frozen, Unit
from batchlab.core.command import Command
from batchlab.core.errors import InputError, sentence_from_validation
from batchlab.core.metric import Better, Metric
from batchlab.core.parse import (
    LEAST_RATE,
    MOST_RATE,
    MOST_RUNS,
    MOST_SAMPLES,
    MOST_SECONDS,
    MOST_SEEDS,
    MOST_TOKENS,
    MOST_VALUES,
    MOST_WORKERS,
    parse_memory_limit,
    require_headroom,
)
from batchlab.core.settings import Difference, differences, field_names

SCHEMA_VERSION: Literal[1] = 1

# Every number has a maximum that no real study meets, and every list a greatest length: tests/core/test_experiment.py.
Whole = Annotated[int, Strict()]
Number = Annotated[float, Strict()]
Fraction = Annotated[Number, Field(ge=0.0, le=1.0)]
OpenFraction = Annotated[Number, Field(gt=0.0, lt=1.0)]
LearningRate = Annotated[Number, Field(ge=LEAST_RATE, le=MOST_RATE)]
BatchSize = Annotated[Whole, Field(ge=1, le=MOST_SAMPLES)]
Tokens = Annotated[Whole, Field(ge=1, le=MOST_TOKENS)]
Steps = Annotated[Whole, Field(ge=0, le=MOST_TOKENS)]
Beta = Annotated[Number, Field(ge=0.0, lt=1.0)]
WarmupFraction = Annotated[Number, Field(ge=0.0, lt=1.0)]
Bytes = Annotated[int, BeforeValidator(parse_memory_limit)]
Headroom = Annotated[str, BeforeValidator(require_headroom)]


def _require_no_null(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a null character, which no name or path may")
    return text


MOST_TEXT = 4096
"""The longest path that file systems allow."""

Text = Annotated[str, Field(min_length=1, max_length=MOST_TEXT), AfterValidator(_require_no_null)]


def _require_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise ValueError(
            "use at most 64 letters, digits, '.', '_' and '-', the first a letter or digit, e.g. --set name=my-study"
        )
    return name


def _require_device(name: str) -> str:
    if not re.fullmatch(r"auto|cpu|mps|gpu|tpu|simulated|cuda(:[0-9]{1,3})?", name):
        raise ValueError("possible are auto, cpu, gpu, mps, tpu, cuda, and cuda:1 for the second CUDA device")
    return name


def _require_plain(value: object) -> object:
    if isinstance(value, str):
        plain = len(value) <= MOST_TEXT
    elif isinstance(value, float):
        plain = math.isfinite(value)
    else:
        plain = isinstance(value, int) and -MOST_TOKENS <= value <= MOST_TOKENS
    if not plain:
        raise ValueError("a model setting is text, true, false, a finite number, or a whole one of at most 18 digits")
    return value


ModelSetting = Annotated[int | float | str | bool, BeforeValidator(_require_plain)]


def _off_is_none(value: object) -> object:
    """TOML has no null."""
    return None if value == "off" else value


class Section(Frozen):
    """Base of the parts of an experiment: no number is infinite."""

    model_config = ConfigDict(allow_inf_nan=False)


class TaskReference(Section):
    """Where the task comes from; a worker process loads it by this alone."""

    kind: Literal["recipe", "file", "module", "command"]
    target: Text = Field(description="recipe name, absolute path of a Python file or script, or module name")
    attribute: Text = Field(default="task", description="name of the task inside a file or module")

    def __str__(self) -> str:
        return self.target if self.kind in ("recipe", "command") else f"{self.target}:{self.attribute}"


class DataConfig(Section):
    """The data. Tasks from a person's own file bring their own and leave all of this unset."""

    path: Text | None = Field(
        default=None, description="text file, folder of text, hf:NAME[:SPLIT], or token ids (.npy, .bin)"
    )
    valid_path: Text | None = Field(default=None, description="held-out data; default: the last part of `path`")
    valid_fraction: OpenFraction = Field(default=0.1, description="share held out where valid_path is unset")
    bin_dtype: Literal["uint8", "uint16", "uint32", "int32", "int64"] = Field(
        default="uint16", description="of a .bin file that was not made by `batchlab data prepare`"
    )
    tokenizer: Text = Field(
        default="bytes",
        description="bytes; bpe, trained on the text; a folder with vocab.json and merges.txt; or a tokenizer.json",
    )
    vocabulary: Annotated[Whole, Field(ge=1, le=2**31)] | None = Field(
        default=None,
        description="rows of the model's embedding, and the size of a trained bpe; default: that of the tokenizer",
    )
    special_tokens: tuple[Text, ...] = Field(
        default=("<|endoftext|>",), max_length=1000, description="bpe: strings that become one id each"
    )
    windows: Literal["shuffled", "random"] = Field(
        default="shuffled",
        description="training samples: windows in shuffled order, or windows at random positions",
    )
    stride: Annotated[Whole, Field(ge=1, le=2**31)] | None = Field(
        default=None,
        description="tokens between the starts of shuffled windows; default: the sequence length, so that none overlap",
    )
    fraction: Annotated[Number, Field(gt=0.0, le=1.0)] = Field(
        default=1.0, description="share of the training tokens that is used, from their beginning"
    )


class BatchConfig(Section):
    """The batch axis of the sweep."""

    global_batch_sizes: Annotated[tuple[BatchSize, ...], Field(min_length=1, max_length=MOST_VALUES)] = (
        4,
        8,
        16,
        32,
        64,
    )
    open_end: bool = Field(
        default=False, description="the sizes go on doubling for as long as they fit in memory without accumulation"
    )
    micro_batching: Literal["auto", "even", "off"] = Field(
        default="auto",
        description="auto: batches that do not fit are split; even: into equal parts; off: they run out of memory",
    )
    micro_batch_size: BatchSize | None = Field(default=None, description="upper bound of the micro-batch size")

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if list(self.global_batch_sizes) != sorted(set(self.global_batch_sizes)):
            object.__setattr__(self, "global_batch_sizes", tuple(sorted(set(self.global_batch_sizes))))
        return self


class AcrossBatch(StrEnum):
    """How the optimizer's time constants follow the batch size; formulas in scaling/time_constants.py.

    half_life: Adam's beta2 and epsilon; half_life_and_decay: AdamW's weight decay as well.
    """

    HALF_LIFE = "half_life"
    HALF_LIFE_AND_DECAY = "half_life_and_decay"
    FIXED = "fixed"


class OptimizerConfig(Section):
    """The optimizer's settings at `reference_batch_size`; `across_batch` says what changes at other sizes."""

    name: Literal["adamw", "adam", "sgd", "task"] = Field(
        default="adamw",
        description="adam adds weight decay to the gradient; sgd has momentum; task: the task's own optimizer",
    )
    beta1: Beta = 0.9
    beta2: Beta = 0.95
    epsilon: Annotated[Number, Field(gt=0.0, le=1.0)] = 1e-8
    momentum: Beta = 0.9
    weight_decay: Annotated[Number, Field(ge=0.0, le=1e6)] = 0.1
    grad_clip: Annotated[Annotated[Number, Field(gt=0.0, le=1e12)] | None, BeforeValidator(_off_is_none)] = Field(
        default=1.0, description='maximum global gradient norm; "off": measured, not clipped'
    )
    across_batch: AcrossBatch = AcrossBatch.HALF_LIFE
    reference_batch_size: BatchSize | None = Field(default=None, description="default: the middle size of the sweep")
    reference_learning_rate: LearningRate | None = Field(
        default=None,
        description="adamw: weight_decay holds at this LR, and LR × weight_decay is the same at every other; default: "
        "weight_decay is the same at every LR",
    )

    @property
    def is_adam(self) -> bool:
        """Whether it is built here and has Adam's moments."""
        return self.name in ("adamw", "adam")

    @property
    def decays(self) -> bool:
        """Whether it is built here and shrinks weights by LR × weight_decay per step."""
        return self.name == "adamw" and self.weight_decay > 0

    def rate_ratio(self, learning_rate: float) -> float:
        """Learning rate ÷ the reference learning rate; 1 where weight decay does not follow it."""
        return learning_rate / (self.reference_learning_rate or learning_rate)


class ScheduleConfig(Section):
    """The learning rate over a run, in tokens, so that it is the same curve for every batch size."""

    kind: Literal["cosine", "constant", "wsd", "task"] = Field(
        default="cosine", description="task: the schedule of a person's own trainer"
    )
    warmup_fraction: WarmupFraction = 0.1
    decay_fraction: Fraction = Field(default=0.2, description="wsd only: share of the run in which it decays")
    final_fraction: Fraction = Field(default=0.1, description="last learning rate divided by the peak")
    min_warmup_steps: Steps = Field(
        default=0, description="at least so many steps of warm-up at every batch size, but at most half of the run"
    )
    min_decay_steps: Steps = Field(
        default=0, description="wsd only: at least so many steps of decay at every batch size, after the warm-up"
    )

    def warmup_tokens(self, total: float, tokens_per_step: float) -> float:
        """Tokens of warm-up in a run of `total` tokens."""
        share = self.warmup_fraction * total
        return max(share, min(self.min_warmup_steps * tokens_per_step, total / 2))


class BudgetConfig(Section):
    """How long runs are and how much may be spent. With neither given, `DEFAULT_TIME_BUDGET` seconds are planned."""

    token_budget: Tokens | None = Field(default=None, description="tokens (or samples) of every run")
    epochs: Annotated[Number, Field(gt=0.0, le=1e6)] | None = Field(
        default=None, description="passes over the training data, instead of tokens"
    )
    time_budget_seconds: Annotated[Number, Field(gt=0.0, le=MOST_SECONDS)] | None = None
    run_time_seconds: Annotated[Number, Field(gt=0.0, le=MOST_SECONDS)] | None = Field(
        default=None,
        description="training time of every run at the measured speed of its batch size, instead of equal tokens",
    )
    max_runs: Annotated[Whole, Field(ge=1, le=MOST_RUNS)] | None = Field(
        default=None, description="different cells (batch size, LR) to train; further seeds come on top"
    )
    max_tokens: Tokens | None = Field(
        default=None, description="tokens (or samples) of all runs together, with their seeds"
    )


DEFAULT_TIME_BUDGET = 15 * 60.0


class SweepConfig(Section):
    """The learning-rate axis and how noise is measured."""

    search: Literal["grid", "adaptive"] = Field(
        default="adaptive",
        description="grid: every size at every LR; adaptive: each run where it is expected to improve the answer most",
    )
    prior: Text | None = Field(
        default=None,
        description="where adaptive starts: an earlier study of this model (folder or table), or a published law",
    )
    learning_rates: Annotated[tuple[LearningRate, ...], Field(min_length=1, max_length=MOST_VALUES)] | None = Field(
        default=None, description="default: by optimizer family"
    )
    learning_rate_rule: Literal["keep", "sqrt", "linear"] | None = Field(
        default=None,
        description="grid: how learning rates follow the batch size from optimizer.reference_batch_size; default: keep",
    )
    warmup_fractions: Annotated[tuple[WarmupFraction, ...], Field(min_length=1, max_length=MOST_VALUES)] | None = Field(
        default=None,
        description="warm-ups to try at every batch size, as shares of a run; default: schedule.warmup_fraction alone",
    )
    max_extensions: Whole = Field(
        default=3, ge=0, le=100, description="extensions of the grid where the best is at its edge"
    )
    retry_diverged: Whole = Field(
        default=0,
        ge=0,
        le=10,
        description="times that a diverged cell is tried again, each at half the LR and twice the warm-up of the last",
    )
    seeds: Whole = Field(
        default=3, ge=1, le=MOST_SEEDS, description="runs at the best cell and at its best neighbouring batch"
    )
    confirm: Annotated[Whole, Field(ge=0, le=MOST_SEEDS)] | None = Field(
        default=None,
        description="confirmation seeds at the best cell and its rival, for the quoted loss; default: 2 if seeds > 1",
    )
    first_seed: Whole = Field(default=0, ge=0, le=2**31)
    tolerance: Annotated[float, Field(gt=0.0, lt=1.0)] = Field(
        default=0.03,
        description="extra tokens to the same loss, as a share of the budget, that a size other than the best may cost "
        "to be recommended; it has to be shown with 95 % confidence",
    )

    def confirms(self, seed: int) -> bool:
        """Whether runs with this seed choose nothing: confirmation seeds, and those planned after them."""
        return seed >= self.first_seed + self.seeds

    @property
    def confirmation_seeds(self) -> range:
        """Seeds that choose nothing; the quoted loss comes from them."""
        count = self.confirm if self.confirm is not None else 2 if self.seeds > 1 else 0
        start = self.first_seed + self.seeds
        return range(start, start + count)

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if self.learning_rates is not None:
            object.__setattr__(self, "learning_rates", tuple(sorted(set(self.learning_rates))))
        if self.warmup_fractions is not None:
            object.__setattr__(self, "warmup_fractions", tuple(sorted(set(self.warmup_fractions))))
        return self


class EvaluationConfig(Section):
    """The fixed held-out set, evaluated at token counts that end a step of every batch size."""

    points: Whole = Field(default=8, ge=1, le=10_000, description="evaluations per run, the last one at its end")
    samples: Whole = Field(default=256, ge=1, le=MOST_SAMPLES, description="held-out samples, the same for every run")
    target_loss: Annotated[Number, Field(gt=0.0, le=1e9)] | None = Field(
        default=None, description="a validation loss to reach; the report says which sizes did"
    )
    metric: Text | None = Field(
        default=None, description="what sizes are judged by instead of the loss; it comes with the task"
    )
    metric_better: Better = "lower"
    metric_best: Number = Field(
        default=1.0, ge=-1e12, le=1e12, description="best possible value of a metric that should be high"
    )

    @property
    def judged_by(self) -> Metric | None:
        """The metric; None for the loss."""
        if self.metric is None:
            return None
        return Metric(name=self.metric, better=self.metric_better, best=self.metric_best)


class BaselineConfig(Section):
    """A configuration whose loss is known, which the study trains first: does this setup give the same?"""

    batch_size: BatchSize = Field(description="one of the sweep's global batch sizes")
    learning_rate: LearningRate
    loss: Annotated[Number, Field(gt=0.0, le=1e9)] = Field(description="the validation loss to expect")
    within: OpenFraction = Field(
        default=0.02, description="share of the loss by which the measured interval may miss it and still reproduce it"
    )
    tokens_per_second: Annotated[Number, Field(gt=0.0, le=1e15)] | None = Field(
        default=None, description="the throughput to expect on this device, where that is known"
    )
    source: Text | None = Field(default=None, description="where these numbers come from")
    if_missed: Literal["stop", "continue"] = Field(
        default="stop", description="what the study does where the loss is not reproduced; may change between sessions"
    )


class NoiseConfig(Section):
    """Norms of micro-batch gradients at sampled steps, from which the gradient noise scale is estimated."""

    points: Whole = Field(
        default=64,
        ge=0,
        le=100_000,
        description="sampled steps of a run, at most every 25th (for batches under 8 every 50th); 0: none",
    )
    parameters: Literal["all", "norm_layers"] = Field(
        default="all",
        description="norm_layers: cheaper, per sample; another noise scale, which every fourth sampled step calibrates",
    )


class CriticalConfig(Section):
    """The runs of `batchlab critical --run`, which measure steps to a loss and branches."""

    budgets: tuple[OpenFraction, ...] = Field(
        default=(0.25, 0.5),
        max_length=20,
        description="further token budgets, as shares of the study's; at least 3 in all with it",
    )
    checkpoints: tuple[Annotated[Number, Field(gt=0.0, le=1.0)], ...] = Field(
        default=(0.25, 1.0), max_length=20, description="where branches leave the parent run, as shares of the budget"
    )
    multipliers: tuple[Annotated[Whole, Field(ge=1, le=100_000)], ...] = Field(
        default=(1, 2, 4, 8),
        min_length=2,
        max_length=20,
        description="batch sizes of the branches, as multiples of the recommended one; they are compared with 1",
    )
    pairs: Whole = Field(default=4, ge=3, le=1000, description="branches per multiplier, each on different tokens")
    window: OpenFraction = Field(default=0.125, description="length of a branch, as a share of the budget")
    tolerance: Number = Field(
        default=0.01, gt=0.0, le=100.0, description="nats that a larger batch may lose in a branch"
    )


Precision = Literal["fp32", "tf32", "bf16", "fp16"]
"""bf16, fp16: autocast with fp32 weights; fp16 also scales the loss. tf32: fp32 whose products are rounded, on CUDA."""

CompileMode = Literal["off", "default", "reduce-overhead"]
"""torch.compile's mode. reduce-overhead captures CUDA graphs, which helps where launching kernels takes most time."""

MemoryOptimization = Literal["checkpointing", "chunked_loss", "fused_optimizer"]
"""checkpointing: the activations of each repeated block are recomputed in the backward pass; chunked_loss: the last
linear layer and its cross-entropy go over the targets in chunks; fused_optimizer: one kernel without temporaries."""


class DeviceConfig(Section):
    """Where and how numbers are computed."""

    name: Annotated[str, AfterValidator(_require_device)] = "auto"
    precision: Precision = "fp32"
    compile: CompileMode = "off"
    memory_limit: Bytes | None = Field(default=None, description="bytes a worker may use above its warmed-up baseline")
    headroom: Headroom | None = Field(
        default=None,
        description="part of the limit that stays free: 5% or 512MiB; default: 5%",
    )
    memory_optimizations: tuple[MemoryOptimization, ...] = Field(
        default=(), max_length=3, description="any of checkpointing, chunked_loss, fused_optimizer"
    )
    workers: Annotated[Whole, Field(ge=1, le=MOST_WORKERS)] | None = Field(
        default=None, description="concurrent training runs; default: by core count"
    )
    silence_seconds: Number = Field(
        default=600.0,
        gt=0.0,
        le=1e7,
        description="a run that reports nothing for this long is ended and counts as failed",
    )
    threads: Annotated[Whole, Field(ge=1, le=4096)] | None = Field(
        default=None, description="CPU threads per training run, and per device of one; default: by core count"
    )
    data_parallel_size: Whole = Field(
        default=1, ge=1, le=MOST_WORKERS, description="devices that share every batch, each in a process of its own"
    )
    compared_devices: tuple[Annotated[Whole, Field(ge=1, le=MOST_WORKERS)], ...] = Field(
        default=(), max_length=100, description="further numbers of devices on which the throughput is measured"
    )

    @property
    def most_devices(self) -> int:
        """The largest number of devices at work together."""
        return max(self.data_parallel_size, *self.compared_devices, 1)


class Experiment(Section):
    """The question. Written once to experiment.json; a study never changes it."""

    schema_version: Literal[1] = SCHEMA_VERSION
    name: Annotated[str, AfterValidator(_require_name)]
    task: TaskReference
    unit: Unit = Unit.TOKENS
    sequence_length: Whole = Field(default=1, ge=1, le=MOST_SAMPLES)
    model: dict[str, ModelSetting] = Field(
        default_factory=dict, max_length=1000, description="the recipe's model settings"
    )
    framework: Text | None = Field(default=None, description="torch, mlx or your own; default: that of the model")
    data: DataConfig = DataConfig()
    batch: BatchConfig = BatchConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    budget: BudgetConfig = BudgetConfig()
    sweep: SweepConfig = SweepConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    baseline: BaselineConfig | None = Field(default=None, description="is reproduced before the sweep")
    diagnostics: Literal["off", "light", "full"] = Field(
        default="light", description="off, light or full: norms, attention entropy and update sizes during training"
    )
    noise: NoiseConfig = NoiseConfig()
    critical: CriticalConfig = CriticalConfig()
    command: Command | None = Field(default=None, description="a person's own script (docs/integrations.md)")
    device: DeviceConfig = DeviceConfig()

    def per_device(self, layout: BatchLayout) -> BatchLayout:
        """A layout of this study as people are told it: a command counts all devices that it starts as one."""
        devices = self.command.devices if self.command is not None else 1
        if devices == 1 or layout.data_parallel_size > 1:
            return layout
        share = {"micro_batch_size": layout.micro_batch_size // devices, "data_parallel_size": devices}
        return layout.model_copy(update=share)

    def within_memory(self, max_micro_batch_size: int | None) -> Experiment:
        """The experiment without the sizes of an open axis that do not fit; itself where the axis is closed."""
        sizes = self.batch.global_batch_sizes
        if not self.batch.open_end or max_micro_batch_size is None or sizes[-1] <= max_micro_batch_size:
            return self
        kept = tuple(size for size in sizes if size <= max_micro_batch_size) or sizes[:1]
        return self.model_copy(update={"batch": self.batch.model_copy(update={"global_batch_sizes": kept})})

    @property
    def reference_batch_size(self) -> int:
        """The batch size that the optimizer's settings hold for: as given, else the (lower) middle of the axis."""
        sizes = self.batch.global_batch_sizes
        return self.optimizer.reference_batch_size or sizes[(len(sizes) - 1) // 2]

    @property
    def warmup_fractions(self) -> tuple[float, ...]:
        """The warm-ups that are tried, ascending; one unless they are an axis of the sweep."""
        return self.sweep.warmup_fractions or (self.schedule.warmup_fraction,)

    def schedule_with(self, warmup_fraction: float) -> ScheduleConfig:
        """The schedule with one of these warm-ups."""
        return self.schedule.model_copy(update={"warmup_fraction": warmup_fraction})


_PATIENCE = {"device.silence_seconds", "baseline.if_missed"}
"""Change no result, and a study that was ended by one of them must be able to continue with another value."""


def build_experiment(values: Mapping[str, Any]) -> Experiment:
    """An Experiment from nested values. Raises InputError naming the first settings that do not validate."""
    try:
        experiment = Experiment.model_validate(values)
    except ValidationError as error:
        raise InputError(sentence_from_validation(error, field_names(Experiment))) from None
    _require_one_length(experiment)
    _require_shares(experiment)
    _require_grid_for_rule(experiment)
    _require_baseline_in_sweep(experiment)
    return experiment


def _require_shares(experiment: Experiment) -> None:
    """Raise InputError where several devices cannot share the smallest batch, or cannot be told apart."""
    device, smallest = experiment.device, experiment.batch.global_batch_sizes[0]
    if device.data_parallel_size > smallest:
        raise InputError(
            f"{device.data_parallel_size} devices cannot share a batch of {smallest}, because each needs at least one "
            f"sample; use batch sizes from {device.data_parallel_size}, or at most {smallest} devices."
        )
    one_card = device.name.startswith("cuda:")
    if device.most_devices > 1 and (one_card or device.name == "mps"):
        raise InputError(
            f"--device {device.name} is one device, and {device.most_devices} shall share a batch; use --device "
            f"{'cuda, and CUDA_VISIBLE_DEVICES to choose the cards' if one_card else 'cpu, or one device'}."
        )


def _require_grid_for_rule(experiment: Experiment) -> None:
    """Raise InputError where a rule is given to a search that tunes every batch size by itself."""
    rule = experiment.sweep.learning_rate_rule
    if rule is not None and experiment.sweep.search != "grid":
        raise InputError(
            f"--lr-rule {rule} centres the grid of learning rates at every batch size, and an adaptive search finds "
            "them by itself; use --search grid, or omit it."
        )


def _require_baseline_in_sweep(experiment: Experiment) -> None:
    """Raise InputError where the baseline cannot be trained as a cell of the sweep."""
    baseline, sizes = experiment.baseline, experiment.batch.global_batch_sizes
    if baseline is None:
        return
    if baseline.batch_size not in sizes:
        raise InputError(
            f"The baseline's batch size, {baseline.batch_size:,}, is none of the sweep's; add it to --batch-sizes "
            f"({', '.join(str(size) for size in sizes[:20])})."
        )
    if experiment.budget.run_time_seconds is not None:
        raise InputError(
            "A baseline's loss holds for a number of tokens, and --run-time gives every run a time instead; give "
            "--token-budget, or omit the baseline."
        )


_NOT_AT_EQUAL_TIME = {
    "token_budget": "--token-budget",
    "epochs": "budget.epochs",
    "time_budget_seconds": "--time-budget",
    "max_tokens": "--max-tokens",
}


def _require_one_length(experiment: Experiment) -> None:
    """Raise InputError where runs of equal time are also given tokens, or a prior at equal tokens."""
    budget = experiment.budget
    if budget.run_time_seconds is None:
        return
    for name, option in _NOT_AT_EQUAL_TIME.items():
        if getattr(budget, name) is not None:
            raise InputError(
                f"--run-time gives every run the same time, and the measured speeds turn it into tokens; {option} "
                "would set them otherwise. Give one of the two; --max-runs bounds the runs."
            )
    if experiment.sweep.prior is not None:
        raise InputError(
            "--run-time compares batch sizes at equal time, and --prior tells where the best is at equal tokens; omit "
            "one of the two."
        )


def differing_fields(stored: Experiment, asked: Experiment) -> list[Difference]:
    """Every dotted setting in which two experiments differ as questions."""
    return [difference for difference in differences(stored, asked) if difference.name not in _PATIENCE]
