"""What a column means, by the names people give it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from batchlab.analysis.audit.table import Quantity
from batchlab.audit.numbers import factors
from batchlab.core.errors import InputError, did_you_mean, quote

NAMES: Mapping[Quantity, tuple[str, ...]] = {
    Quantity.GLOBAL_BATCH_SIZE: (
        *("global_batch_size", "effective_batch_size", "total_batch_size", "train_batch_size", "batch_size", "bs"),
        *("batch", "batch_seqs", "batch_sequences", "global_batch", "effective_batch", "batch_size_seqs", "bsz"),
    ),
    Quantity.MICRO_BATCH_SIZE: (
        *("micro_batch_size", "microbatch_size", "micro_batch", "per_device_train_batch_size", "device_batch_size"),
        *("per_device_batch_size", "train_micro_batch_size_per_gpu", "local_batch_size", "batch_size_per_gpu"),
    ),
    Quantity.GRAD_ACCUM_STEPS: (
        *("grad_accum_steps", "gradient_accumulation_steps", "grad_accum", "accumulation", "accum", "ga"),
        *("accumulation_steps", "gradient_accumulation", "accumulate_grad_batches"),
    ),
    Quantity.DATA_PARALLEL_SIZE: ("data_parallel_size", "world_size", "devices", "gpus", "num_gpus", "n_gpus", "dp"),
    Quantity.SEQUENCE_LENGTH: (
        *("sequence_length", "seq_len", "seq_length", "seqlen", "context_length", "block_size", "max_seq_len"),
        *("ctx", "max_length", "context"),
    ),
    Quantity.TOKENS_PER_STEP: ("tokens_per_step", "batch_size_tokens", "batch_tokens", "tokens_per_batch"),
    Quantity.LEARNING_RATE: ("learning_rate", "lr", "peak_lr", "max_lr", "peak_learning_rate", "eta"),
    Quantity.SEED: ("seed", "random_seed"),
    Quantity.STEPS: (
        *("steps", "step", "updates", "iterations", "iters", "ti", "train_steps", "optimizer_steps", "max_steps"),
        *("num_steps", "global_step", "gradient_updates", "total_steps"),
    ),
    Quantity.TOKENS: (
        *("tokens", "total_tokens", "train_tokens", "tokens_seen", "d", "num_tokens"),
        *("total_tokens_per_experiment", "tokens_per_run", "training_tokens"),
    ),
    Quantity.TOKEN_BUDGET: ("token_budget", "budget", "budget_tokens"),
    Quantity.EPOCHS: ("epochs", "epoch", "num_epochs"),
    Quantity.WARMUP_STEPS: ("warmup_steps", "warm_up_steps", "warmup", "num_warmup_steps", "warmup_iters"),
    Quantity.VAL_LOSS: (
        *("val_loss", "validation_loss", "final_val_loss", "eval_loss", "valid_loss", "test_loss", "final_eval_loss"),
        *("final_validation_loss", "held_out_loss", "heldout_loss"),
    ),
    Quantity.BEST_VAL_LOSS: ("best_val_loss", "best_validation_loss", "min_val_loss", "best_eval_loss"),
    Quantity.TRAIN_LOSS: (
        *("smooth_loss", "final_train_loss", "train_loss", "training_loss", "final_training_loss", "mean_train_loss"),
        *("smoothed_loss", "avg_loss"),
    ),
    Quantity.LAST_LOSS: ("loss", "last_loss", "final_loss", "last_batch_loss", "last_train_loss"),
    Quantity.SECONDS: (
        *("seconds", "time", "training_time", "train_time", "wall_time", "wall_clock", "duration", "runtime", "hours"),
        *("elapsed", "minutes", "wall_clock_time", "train_runtime"),
    ),
    Quantity.STEP_SECONDS: ("step_seconds", "step_time", "time_per_step", "seconds_per_step", "iter_time"),
    Quantity.TOKENS_PER_SECOND: (
        *("tokens_per_second", "tok_per_s", "tokens_per_sec", "throughput", "tok_s", "tokens_s", "tps"),
        *("samples_per_second", "samples_s", "samples_per_sec", "train_samples_per_second"),
    ),
    Quantity.PEAK_BYTES: (
        *("peak_bytes", "peak_memory", "peak", "memory", "max_memory", "gpu_memory", "max_memory_allocated"),
        *("peak_gpu_memory", "memory_used", "vram", "peak_vram", "allocated"),
    ),
    Quantity.MEMORY_LIMIT: (
        *("memory_limit", "total_memory", "gpu_total_memory", "card_memory", "capacity", "total", "device_memory"),
        *("gpu_total",),
    ),
    Quantity.PARAMETERS: ("parameters", "params", "n_params", "num_params", "model_parameters", "n", "model_size"),
    Quantity.OPTIMIZER: ("optimizer", "optim", "optimizer_in_test", "optimizer_name"),
    Quantity.OPTIMIZER_BYTES: ("optimizer_bytes", "optimizer_state", "optimizer_states", "optimizer_memory"),
    Quantity.MODEL: ("model", "model_name", "architecture"),
    Quantity.OUTCOME: ("outcome", "status", "state", "result"),
}
"""Earlier names are preferred where several columns of a file have one."""

_KNOWN = {name.replace("_", " "): quantity for quantity, names in NAMES.items() for name in names}
_RANK = {name.replace("_", " "): rank for names in NAMES.values() for rank, name in enumerate(names)}


@dataclass(frozen=True, slots=True)
class Column:
    """A column with a meaning. `unit`: of its numbers, in base units."""

    name: str
    quantity: Quantity
    unit: float


def recognise(name: str) -> Column | None:
    """What a column of this name means; None where nothing is known of it."""
    bare, unit = _split(name)
    quantity = _KNOWN.get(f"{bare} {unit}", _KNOWN.get(bare))  # "batch (tokens)" is no batch size in samples
    if quantity is None:
        words = bare.split()
        for length in (len(words) - 1, len(words) - 2):
            if length > 0 and (found := _KNOWN.get(" ".join(words[:length]))):
                tail = "".join(words[length:])
                if tail in factors(found):
                    return Column(name, found, factors(found)[tail])
        return None
    factor = factors(quantity).get(unit, factors(quantity).get(bare, 1.0)) if unit or bare in factors(quantity) else 1.0
    return Column(name, quantity, factor)


def columns_of(names: Iterable[str], given: Mapping[str, str]) -> dict[str, Column]:
    """The columns with a meaning, by name. `given` maps quantities to names of columns and wins over what is guessed.

    Raises InputError where `given` names no quantity or no column.
    """
    names = tuple(names)
    found: dict[Quantity, Column] = {}
    for quantity_name, name in given.items():
        quantity = quantity_of(quantity_name)
        if name not in names:
            raise InputError(
                f"--map {quote(f'{quantity_name}={name}')}: no column is called {quote(name)}."
                f"{did_you_mean(name, names)} Columns: {', '.join(map(quote, names[:30]))}."
            )
        known = recognise(name)
        found[quantity] = Column(
            name, quantity, known.unit if known and known.quantity is quantity else _unit(name, quantity)
        )
    taken = {column.name for column in found.values()}
    guessed = [column for name in names if name not in taken and (column := recognise(name)) is not None]
    for column in sorted(guessed, key=lambda column: _RANK.get(_split(column.name)[0], 99)):
        found.setdefault(column.quantity, column)
    return {column.name: column for column in found.values()}


def quantity_of(name: str) -> Quantity:
    """The quantity of this name. Raises InputError naming those there are."""
    key = name.strip().lower().replace("-", "_").replace(" ", "_")
    known = recognise(name)
    if key in set(Quantity):
        return Quantity(key)
    if known is not None:
        return known.quantity
    raise InputError(
        f"{quote(name)} is no quantity of a training run.{did_you_mean(key, list(Quantity))} Possible: "
        f"{', '.join(Quantity)}."
    )


def _unit(name: str, quantity: Quantity) -> float:
    return factors(quantity).get(_split(name)[1], 1.0)


def _split(name: str) -> tuple[str, str]:
    """Words of a name without its unit, and the unit: `Peak Memory (GiB)` → (`peak memory`, `gib`)."""
    match = re.search(r"[(\[]([^)\]]*)[)\]]\s*$", name)
    unit = match[1].strip().lower() if match else ""
    bare = name[: match.start()] if match else name
    bare = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", " ", bare)
    return re.sub(r"[^a-z0-9%]+", " ", bare.lower()).strip(), unit
