"""Which placeholder fills which option of a script: the draft of its [command]."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from batchlab.integrations.script.options import Option, Script, Style
from batchlab.integrations.script.template import BATCH, LENGTH

NAMES: dict[str, tuple[str, ...]] = {
    "global_batch_size": ("global_batch_size", "total_batch_size", "effective_batch_size"),
    "micro_batch_size": (
        "micro_batch_size",
        "device_batch_size",
        "per_device_train_batch_size",
        "per_device_batch_size",
        "train_batch_size",
        "batch_size",
        "batchsize",
        "batch",
        "bs",
    ),
    "grad_accum_steps": (
        "gradient_accumulation_steps",
        "grad_accumulation_steps",
        "grad_accum_steps",
        "grad_accum",
        "gradient_accumulation",
        "accumulate_grad_batches",
        "accumulation_steps",
        "accum_steps",
    ),
    "learning_rate": ("learning_rate", "lr", "max_lr", "base_lr", "peak_lr"),
    "steps": (
        "max_iters",
        "max_steps",
        "num_steps",
        "n_steps",
        "total_steps",
        "train_steps",
        "num_train_steps",
        "max_train_steps",
        "num_iterations",
        "iterations",
        "steps",
        "iters",
    ),
    "seconds": ("time_budget", "max_seconds", "train_seconds", "max_time", "time_limit", "seconds"),
    "epochs": ("epochs", "num_epochs", "n_epochs", "max_epochs", "num_train_epochs", "epoch"),
    "seed": ("seed", "random_seed", "manual_seed", "seed_everything"),
    "warmup_steps": ("warmup_iters", "warmup_steps", "num_warmup_steps", "lr_warmup_steps", "warmup"),
    "run_dir": (
        "out_dir",
        "output_dir",
        "save_dir",
        "run_dir",
        "checkpoint_dir",
        "log_dir",
        "logdir",
        "outdir",
        "out",
        "default_root_dir",
    ),
}
"""Placeholder → names of options that it fills, the likeliest first."""

FOLLOWS_STEPS = (
    "lr_decay_iters",
    "lr_decay_steps",
    "decay_steps",
    "eval_interval",
    "eval_every",
    "eval_steps",
    "eval_iter_interval",
    "val_check_interval",
)
"""Options that should have the number of steps: the decay's length, and evaluations, of which the last counts."""

LENGTHS = ("block_size", "sequence_length", "seq_len", "seq_length", "max_seq_len", "context_length", "max_length")
"""Names of what may be the tokens of a sample."""

TOKENS_FROM = 2**14
"""A whole batch whose default is at least this counts tokens, as in nanochat and modded-nanogpt, and not samples."""

UNMATCHED_SHOWN = 40

TRAINERS = (Style.TRAINING_ARGUMENTS, Style.TRL)
"""Styles of scripts with a Trainer of transformers, whose log the launcher reads."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A [command] for a script. filled: option → placeholder; left: options that keep their defaults."""

    script: Script
    run: str
    filled: dict[str, str]
    left: tuple[Option, ...]
    sequence_length: int | None
    missing: tuple[str, ...]

    @property
    def usable(self) -> bool:
        """Whether the command has what every study needs."""
        return not {"batch_size", "length"} & set(self.missing) and self.script.style is not Style.CONSTANTS


def draft(script: Script, name: str) -> Draft:
    """Match a script's options with the placeholders. `name`: the script as the command names it."""
    chosen = _choose(script.options)
    filled = {option.flag: placeholder for placeholder, option in chosen.items()}
    if "steps" in chosen:
        filled |= {option.flag: "steps" for option in script.options if option.name in FOLLOWS_STEPS}
    words = ["{python}", shlex.quote(name), *script.words]
    for flag, placeholder in filled.items():
        words += _spelt(script.style, flag, placeholder)
    if script.style in TRAINERS:
        words += ["--save_strategy", "no"]
    placeholders = set(filled.values())
    missing = [
        *([] if placeholders & BATCH else ["batch_size"]),
        *([] if placeholders & LENGTH else ["length"]),
        *(name for name in ("learning_rate", "seed", "warmup_steps") if name not in placeholders),
    ]
    lengths = [
        option.default for option in script.options if option.name in LENGTHS and isinstance(option.default, int)
    ]
    return Draft(
        script=script,
        run=" ".join(words),
        filled=filled,
        left=tuple(option for option in script.options if option.flag not in filled)[:UNMATCHED_SHOWN],
        sequence_length=lengths[0] if lengths else None,
        missing=tuple(missing),
    )


def _choose(options: Sequence[Option]) -> dict[str, Option]:
    """The likeliest option for every placeholder; a length in steps is preferred to one in epochs."""
    chosen: dict[str, Option] = {}
    for placeholder, names in NAMES.items():
        for name in names:
            found = next((option for option in options if option.name == name), None)
            if found is not None and found not in chosen.values():
                chosen[placeholder] = found
                break
    if "steps" in chosen:
        chosen.pop("epochs", None)
    if {"steps", "epochs"} & set(chosen):
        chosen.pop("seconds", None)
    if "micro_batch_size" in chosen and not {"grad_accum_steps", "global_batch_size"} & set(chosen):
        chosen = {"batch_size" if key == "micro_batch_size" else key: option for key, option in chosen.items()}
    if {"global_batch_size", "micro_batch_size", "grad_accum_steps"} <= set(chosen):
        del chosen["grad_accum_steps"]
    whole = chosen.get("global_batch_size")
    if whole is not None and isinstance(whole.default, int) and whole.default >= TOKENS_FROM:
        chosen = {"tokens_per_step" if key == "global_batch_size" else key: option for key, option in chosen.items()}
    return chosen


def _spelt(style: Style, flag: str, placeholder: str) -> list[str]:
    value = "{" + placeholder + "}"
    return [f"{flag}={value}"] if style in (Style.GLOBALS, Style.KEY_VALUE) else [flag, value]
