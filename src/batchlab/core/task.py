"""What a person writes: a model, a loss and data. Everything else has a default.

Independent of any framework: the functions are stored here and called by the framework, which `framework` names or is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from batchlab.core.batch import Unit
from batchlab.core.errors import InputError
from batchlab.core.metric import Better

OptimizerFactory = Callable[..., Any]
"""`(params, lr)` or `(model, lr)` → one optimizer or a list of them; `optimizer_argument` tells which it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One thing to train. Create it with `batchlab.task(...)`, which checks the arguments."""

    model: Callable[[], Any]
    loss: Callable[..., Any]
    train: Any
    valid: Any
    optimizer: OptimizerFactory | None = None
    sequence_length: int | None = None
    unit: Unit = Unit.TOKENS
    count: Callable[..., float] | None = None
    collate: Callable[[list[Any]], Any] | None = None
    reduction: Literal["mean", "sum"] = "mean"
    sample_independent: bool | None = None
    metric: Callable[..., Any] | None = None
    metric_better: Better = "lower"
    framework: Any = None
    source: str = ""


def task(
    *,
    model: Callable[[], Any],
    loss: Callable[..., Any],
    train: Any,
    valid: Any,
    optimizer: OptimizerFactory | None = None,
    sequence_length: int | None = None,
    unit: str | None = None,
    count: Callable[..., float] | None = None,
    collate: Callable[[list[Any]], Any] | None = None,
    reduction: str = "mean",
    sample_independent: bool | None = None,
    metric: Callable[..., Any] | None = None,
    metric_better: str = "lower",
    framework: Any = None,
) -> Task:
    """Describe what to train, for `batchlab study this_file.py`.

    Args:
        model: Called without arguments; returns a new `torch.nn.Module` or `mlx.nn.Module`.
        loss: `loss(model, x, y)` returns a scalar mean over its targets, or `(sum, count)`; `loss(model, batch)` where
            a sample is a dict.
        train: A path to token ids (.npy, .bin) or text, an integer array of token ids, or anything with `len()` and
            indexing that gives `(x, y)` or a dict.
        valid: Held-out data of the same kind.
        optimizer: `optimizer(params, lr)` or `optimizer(model, lr)` returns an optimizer of the model's framework or a
            list of them, whose learning rates are multiples of `lr`. Default: AdamW with the study's settings.
        sequence_length: Tokens per sample, for token data. Omit it for samples.
        unit: "tokens" or "samples". Default: tokens where there is a sequence_length.
        count: `count(x, y)`, or `count(batch)`, returns the number of targets that the loss averages over. It gets
            numpy arrays. Default: every element of y; of a dict, the labels that are not -100.
        collate: `collate(samples)` returns a batch of a list of samples, e.g. a data collator of transformers. Default:
            samples are stacked.
        reduction: "sum" where the loss is a plain sum rather than a mean.
        sample_independent: False where the samples of a batch influence each other. Default: `batchlab check` tests it.
        metric: `metric(model, x, y)`, or `metric(model, batch)`, returns what batch sizes are judged by instead of the
            loss: a mean over the samples of a held-out batch, or `(sum, count)`. Its name is that of the function.
        metric_better: "higher" for a metric such as an accuracy. The study then judges by what is missing to
            `evaluation.metric_best`, 1 by default.
        framework: "torch", "mlx" or a `core.protocols.Framework` of your own. Default: that of the model.

    Raises:
        InputError: An argument is not a function, or not one of the possible values; `optimizer` has other parameters.
    """
    for name, function in (("model", model), ("loss", loss)):
        if not callable(function):
            raise InputError(
                f"batchlab.task({name}=…) was given {type(function).__name__}; give a function"
                + (
                    ", e.g. model=lambda: MyModel(), so that every run starts from new weights."
                    if name == "model"
                    else "."
                )
            )
    for name, optional in (("optimizer", optimizer), ("count", count), ("collate", collate), ("metric", metric)):
        if optional is not None and not callable(optional):
            raise InputError(f"batchlab.task({name}=…) was given {type(optional).__name__}; give a function.")
    if optimizer is not None:
        optimizer_argument(optimizer)
    if unit is not None and unit not in set(Unit):
        raise InputError(f"batchlab.task(unit={unit!r}): possible are 'tokens' and 'samples'.")
    if reduction not in ("mean", "sum"):
        raise InputError(f"batchlab.task(reduction={reduction!r}): possible are 'mean' and 'sum'.")
    if metric_better not in ("lower", "higher"):
        raise InputError(f"batchlab.task(metric_better={metric_better!r}): possible are 'lower' and 'higher'.")
    if sequence_length is not None and (not isinstance(sequence_length, int) or sequence_length < 1):
        raise InputError(f"batchlab.task(sequence_length={sequence_length!r}): give a whole number of at least 1.")
    chosen = Unit(unit) if unit else (Unit.TOKENS if sequence_length else Unit.SAMPLES)
    return Task(
        model=model,
        loss=loss,
        train=train,
        valid=valid,
        optimizer=optimizer,
        sequence_length=sequence_length,
        unit=chosen,
        count=count,
        collate=collate,
        reduction="sum" if reduction == "sum" else "mean",
        sample_independent=sample_independent,
        metric=metric,
        metric_better="higher" if metric_better == "higher" else "lower",
        framework=framework,
    )


def optimizer_argument(optimizer: OptimizerFactory) -> Literal["params", "model"]:
    """What `optimizer` takes beside the learning rate, by the name of its first parameter.

    The trainable parameters if that is `params`, as most optimizers take them; the module if it is `model`. The second
    parameter must be `lr`, and every other needs a default. Raises InputError for any other signature.
    """
    parameters = inspect.signature(optimizer).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    given = [parameter.name for parameter in parameters if parameter.kind in positional][:2]
    required = {one.name for one in parameters if one.default is one.empty and one.kind not in variable}
    if required <= set(given):
        match given:
            case ["params", "lr"]:
                return "params"
            case ["model", "lr"]:
                return "model"
    raise InputError(
        f"batchlab.task(optimizer=…) takes ({', '.join(str(one) for one in parameters)}); name its parameters "
        "(params, lr) to get the trainable parameters, or (model, lr) to get the model, and give any other a default."
    )
