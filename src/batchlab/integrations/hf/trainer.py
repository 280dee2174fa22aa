"""Makes the person's Trainer for one run: their TrainingArguments, with what a study decides replaced."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import EarlyStoppingCallback, Trainer, TrainingArguments

from batchlab.core.errors import InputError
from batchlab.core.experiment import AcrossBatch
from batchlab.core.spec import DeviceSettings, OptimizerSettings, Workload
from batchlab.integrations.data_digest import digest_of_samples, require_same_data
from batchlab.integrations.fresh import require_fresh
from batchlab.integrations.person_file import made_by, person_function
from batchlab.integrations.schedules import from_transformers
from batchlab.scaling import beta2_at, epsilon_at, weight_decay_at
from batchlab.torch_.random_state import seed_everything

QUIET: Mapping[str, Any] = {
    "report_to": "none",
    "push_to_hub": False,
    "disable_tqdm": True,
    "eval_strategy": "no",
    "eval_on_start": False,
    "save_strategy": "no",
    "save_only_model": False,
    "load_best_model_at_end": False,
    "logging_strategy": "no",
    "logging_first_step": False,
    "logging_nan_inf_filter": False,  # it replaces a loss that is not finite by the mean of those before
    "auto_find_batch_size": False,
    "ignore_data_skip": False,
    "include_num_input_tokens_seen": "no",
}
"""A study logs, evaluates and saves by itself, at its own steps."""

_PASSED_ON = ("per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate", "output_dir")
"""By these is seen that a Trainer has the arguments it should have; TRL makes a copy of them."""


class Trainers:
    """What `make_trainer(args)` in the person's file makes, and the TrainingArguments that the file has for it."""

    def __init__(self, workload: Workload) -> None:
        """Raises InputError where the file does not import or has no such function."""
        self._module, self._make = person_function(workload)
        self.workload = workload
        self.name = f"{workload.task.attribute} in {Path(workload.task.target).name}"
        self.own = self._own_arguments()

    def _own_arguments(self) -> TrainingArguments:
        """The TrainingArguments in the file: a default of the function's, the only ones, those named args, or none."""
        parameter = next(iter(inspect.signature(self._make).parameters.values()))
        if isinstance(parameter.default, TrainingArguments):
            return parameter.default
        found = {name: value for name, value in vars(self._module).items() if isinstance(value, TrainingArguments)}
        for name in (parameter.name, "args", "training_args"):
            if name in found:
                return found[name]
        if len(found) > 1:
            raise InputError(
                f"{self._module.__file__} has several TrainingArguments ({', '.join(found)}); name those of "
                f"{self.name}: def {self._make.__name__}({parameter.name}={next(iter(found))})."
            )
        annotated = inspect.get_annotations(self._make, eval_str=True).get(parameter.name)
        kind = annotated if isinstance(annotated, type) and issubclass(annotated, TrainingArguments) else None
        return next(iter(found.values()), None) or (kind or TrainingArguments)(output_dir="out")

    def make(self, changes: Mapping[str, Any], *, seed: int, device: DeviceSettings, folder: Path) -> Trainer:
        """A fresh Trainer. Raises InputError where it is no Trainer, or its model is one that was given before."""
        arguments = dataclasses.replace(
            self.own, **{**QUIET, **_on(device), **changes, "seed": seed, "data_seed": seed, "output_dir": str(folder)}
        )
        if arguments.n_gpu > 1:
            arguments._n_gpu = 1  # the other devices are for other runs
        seed_everything(seed)
        trainer = made_by(self._make, self.workload, "a Trainer", arguments)
        if not isinstance(trainer, Trainer):
            raise InputError(f"{self.name} returned {type(trainer).__name__}; return a transformers.Trainer.")
        if any(getattr(trainer.args, name) != getattr(arguments, name) for name in _PASSED_ON):
            raise InputError(
                f"{self.name} gives its Trainer other arguments than it takes, so the study could not set the batch "
                "size; pass them on: Trainer(args=args, …)."
            )
        require_fresh(trainer.model, self.name, self._make.__name__)
        trainer.remove_callback(EarlyStoppingCallback)  # every run of a study has the same budget
        return trainer


def require_data(trainer: Trainer, by: str) -> None:
    """Raise InputError where the Trainer lacks data that a study needs."""
    for name in ("train_dataset", "eval_dataset"):
        data = getattr(trainer, name)
        if data is None:
            raise InputError(
                f"The Trainer of {by} has no {name}; batch sizes are compared by their loss on held-out data, so a "
                "study needs both train_dataset and eval_dataset."
            )
        if isinstance(data, Mapping):
            raise InputError(
                f"The Trainer of {by} has several eval_datasets ({', '.join(data)}); give it the one to judge by."
            )
        if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
            raise InputError(
                f"The {name} of {by} is a stream of unknown length, whose order cannot be compared between batch "
                "sizes; give a data set with a length, such as stream.take(10_000) kept in memory."
            )
    if trainer.args.fp16:
        raise InputError(f"The TrainingArguments of {by} have fp16=True, which is not supported; use bf16, or fp32.")


def same_data(trainer: Trainer, workload: Workload, by: str) -> str:
    """The digest of the Trainer's data. Raises StudyChanged where it is not the study's."""
    train, held_out = trainer.train_dataset, trainer.eval_dataset
    digest = digest_of_samples(len(train), train.__getitem__) + digest_of_samples(len(held_out), held_out.__getitem__)
    require_same_data(workload, digest, by)
    return digest


def own_settings(trainer: Trainer, own: TrainingArguments) -> dict[str, Any]:
    """The experiment's settings that the file's TrainingArguments decide. Raises InputError for a foreign schedule.

    The warm-up is a share of the run that the arguments themselves describe.
    """
    step = own.per_device_train_batch_size * own.gradient_accumulation_steps
    per_epoch = math.ceil(len(trainer.train_dataset) / step)
    steps = own.max_steps if own.max_steps > 0 else max(1, math.ceil(own.num_train_epochs * per_epoch))
    schedule = from_transformers(
        own.lr_scheduler_type.value,
        own.lr_scheduler_kwargs if isinstance(own.lr_scheduler_kwargs, dict) else None,
        own.learning_rate,
        own.get_warmup_steps(steps),
        steps,
    )
    return {
        **_metric(trainer, own),
        "schedule": schedule,
        "optimizer": {"grad_clip": own.max_grad_norm or "off", "reference_batch_size": step},
        "device": {"precision": _precision(own), "compile": _compile_mode(own)},
    }


def _precision(own: TrainingArguments) -> str:
    return "bf16" if own.bf16 else "tf32" if own.tf32 else "fp32"


def _compile_mode(own: TrainingArguments) -> str:
    """Modes that batchlab does not name ("max-autotune") stay the Trainer's own; the study calls them default."""
    if not own.torch_compile:
        return "off"
    return "reduce-overhead" if own.torch_compile_mode == "reduce-overhead" else "default"


def _metric(trainer: Trainer, own: TrainingArguments) -> dict[str, Any]:
    """What metric_for_best_model asks for. Raises InputError where the Trainer has nothing that computes it."""
    name = (own.metric_for_best_model or "loss").removeprefix("eval_")
    if name == "loss":
        return {}
    if trainer.compute_metrics is None:
        raise InputError(
            f"metric_for_best_model is {name}, but the Trainer has no compute_metrics; give it one, or set "
            'metric_for_best_model="loss".'
        )
    higher = own.greater_is_better if own.greater_is_better is not None else not name.endswith("loss")
    return {"evaluation": {"metric": name, "metric_better": "higher" if higher else "lower"}}


def optimizer_changes(own: TrainingArguments, optimizer: OptimizerSettings) -> dict[str, Any]:
    """Arguments of the optimizer at one batch size, and the clipping."""
    config, ratio = optimizer.config, optimizer.batch_ratio
    changes: dict[str, Any] = {"max_grad_norm": config.grad_clip or 0.0}
    if config.across_batch is not AcrossBatch.FIXED:
        changes["adam_beta2"] = beta2_at(own.adam_beta2, ratio)
        changes["adam_epsilon"] = epsilon_at(own.adam_epsilon, ratio)
    if config.across_batch is AcrossBatch.HALF_LIFE_AND_DECAY:
        changes["weight_decay"] = weight_decay_at(own.weight_decay, ratio)
    return changes


def _on(device: DeviceSettings) -> dict[str, Any]:
    return {
        "use_cpu": device.name == "cpu",
        "bf16": device.precision == "bf16",
        "fp16": device.precision == "fp16",
        "tf32": (device.precision == "tf32" and device.name.startswith("cuda")) or None,
        "torch_compile": device.compile != "off",
        **({"torch_compile_mode": device.compile} if device.compile == "reduce-overhead" else {}),
    }
