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
        *("global batch size", "effective batch size", "total batch size", "train batch size", "batch size", "bs"),
        *("batch", "batch seqs", "batch sequences", "global batch", "effective batch", "batch size seqs", "bsz"),
    ),
    Quantity.MICRO_BATCH_SIZE: (
        *("micro batch size", "microbatch size", "micro batch", "per device train batch size", "device batch size"),
        *("per device batch size", "train micro batch size per gpu", "local batch size", "batch size per gpu"),
    ),
    Quantity.GRAD_ACCUM_STEPS: (
        *("grad accum steps", "gradient accumulation steps", "grad accum", "accumulation", "accum", "ga"),
        *("accumulation steps", "gradient accumulation", "accumulate grad batches"),
    ),
    Quantity.DATA_PARALLEL_SIZE: ("data parallel size", "world size", "devices", "gpus", "num gpus", "n gpus", "dp"),
    Quantity.SEQUENCE_LENGTH: (
        *("sequence length", "seq len", "seq length", "seqlen", "context length", "block size", "max seq len"),
        *("ctx", "max length", "context"),
    ),
    Quantity.TOKENS_PER_STEP: ("tokens per step", "batch size tokens", "batch tokens", "tokens per batch"),
    Quantity.LEARNING_RATE: ("learning rate", "lr", "peak lr", "max lr", "peak learning rate", "eta"),
    Quantity.SEED: ("seed", "random seed"),
    Quantity.STEPS: (
        *("steps", "step", "updates", "iterations", "iters", "ti", "train steps", "optimizer steps", "max steps"),
        *("num steps", "global step", "gradient updates", "total steps"),
    ),
    Quantity.TOKENS: (
        *("tokens", "token budget", "total tokens", "train tokens", "tokens seen", "d", "num tokens"),
        *("total tokens per experiment", "tokens per run", "training tokens"),
    ),
    Quantity.EPOCHS: ("epochs", "epoch", "num epochs"),
    Quantity.WARMUP_STEPS: ("warmup steps", "warm up steps", "warmup", "num warmup steps", "warmup iters"),
    Quantity.VAL_LOSS: (
        *("val loss", "validation loss", "final val loss", "eval loss", "valid loss", "test loss", "final eval loss"),
        *("final validation loss", "held out loss", "heldout loss"),
    ),
    Quantity.BEST_VAL_LOSS: ("best val loss", "best validation loss", "min val loss", "best eval loss"),
    Quantity.TRAIN_LOSS: (
        *("smooth loss", "final train loss", "train loss", "training loss", "final training loss", "mean train loss"),
        *("smoothed loss", "avg loss"),
    ),
    Quantity.LAST_LOSS: ("loss", "last loss", "final loss", "last batch loss", "last train loss"),
    Quantity.SECONDS: (
        *("seconds", "time", "training time", "train time", "wall time", "wall clock", "duration", "runtime", "hours"),
        *("elapsed", "minutes", "wall clock time", "train runtime"),
    ),
    Quantity.STEP_SECONDS: ("step seconds", "step time", "time per step", "seconds per step", "iter time"),
    Quantity.TOKENS_PER_SECOND: (
        *("tokens per second", "tok per s", "tokens per sec", "throughput", "tok s", "tokens s", "tps"),
        *("samples per second", "samples s", "samples per sec", "train samples per second"),
    ),
    Quantity.PEAK_BYTES: (
        *("peak bytes", "peak memory", "peak", "memory", "max memory", "gpu memory", "max memory allocated"),
        *("peak gpu memory", "memory used", "vram", "peak vram", "allocated"),
    ),
    Quantity.MEMORY_LIMIT: (
        *("memory limit", "total memory", "gpu total memory", "card memory", "capacity", "total", "device memory"),
        *("gpu total",),
    ),
    Quantity.PARAMETERS: ("parameters", "params", "n params", "num params", "model parameters", "n", "model size"),
    Quantity.OPTIMIZER: ("optimizer", "optim", "optimizer in test", "optimizer name"),
    Quantity.OPTIMIZER_BYTES: ("optimizer bytes", "optimizer state", "optimizer states", "optimizer memory"),
    Quantity.MODEL: ("model", "model name", "architecture"),
    Quantity.OUTCOME: ("outcome", "status", "state", "result"),
}
"""Earlier names are preferred where several columns of a file have one."""

_KNOWN = {name: quantity for quantity, names in NAMES.items() for name in names}
_RANK = {name: rank for names in NAMES.values() for rank, name in enumerate(names)}


@dataclass(frozen=True, slots=True)
class Column:
    """A column with a meaning. `unit`: of its numbers, in base units."""

    name: str
    quantity: Quantity
    unit: float


def recognise(name: str) -> Column | None:
    """What a column of this name means; None where nothing is known of it."""
    bare, unit = _split(name)
    quantity = _KNOWN.get(bare)
    if quantity is None and unit:
        quantity = _KNOWN.get(f"{bare} {unit}")  # "batch (tokens)"
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
