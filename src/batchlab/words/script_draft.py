"""The study.toml that `batchlab init` writes, and what it says about it."""

from __future__ import annotations

from batchlab.core.errors import did_you_mean
from batchlab.core.format import format_list
from batchlab.integrations.script.draft import TRAINERS, Draft
from batchlab.integrations.script.options import Style

_MISSING = {
    "batch_size": "no option for the batch size was found: add it with {micro_batch_size} or {batch_size}",
    "length": "no option for the length was found: add it with {steps}, {tokens}, {epochs} or {seconds}",
    "learning_rate": "no option for the learning rate was found: add it with {learning_rate}, or give the one it uses "
    "as learning_rates = [3e-4] under [sweep]",
    "seed": "no option for the seed was found: without {seed} every cell is run once, and noise is not measured",
    "warmup_steps": "no option for the warm-up was found: without {warmup_steps} the warm-up is the script's own",
}


def toml_of(draft: Draft) -> str:
    """The text of the study.toml: a command, its metrics, and comments for the rest."""
    script = draft.script
    lines = [
        f"# How batchlab runs {script.path.name}. Placeholders: docs/integrations.md.",
        "# Check it with: batchlab check study.toml",
        *_comments(draft),
        "[command]",
        f"run = {_quoted(draft.run)}",
    ]
    if draft.sequence_length is not None:
        lines.append(f"sequence_length = {draft.sequence_length}  # tokens per sample; omit it to count samples")
    else:
        lines.append("# sequence_length = 1024  # tokens per sample; without it the study counts samples")
    if "epochs" in draft.filled.values():
        lines.append("train_samples = 0  # training samples in an epoch: fill this in")
    if draft.left:
        lines.append("# options that keep their defaults:")
        lines += [f"#   {option.flag}" + _default(option.default) for option in draft.left]
    return "\n".join([*lines, "", *_metrics(draft)]) + "\n"


def _comments(draft: Draft) -> list[str]:
    if draft.script.style is Style.CONSTANTS:
        found = ", ".join(option.flag for option in draft.left if did_you_mean(option.name, _USUAL)) or "none"
        return [
            "# This script reads no options, so its values cannot be changed from here. Let it read them first, e.g.",
            "#   import sys",
            '#   globals().update((k, type(globals()[k])(v)) for k, v in (a[2:].split("=") for a in sys.argv[1:]))',
            f"# after its constants (likely ones: {found}), and run batchlab init again.",
        ]
    return [f"# {line}" for line in _remarks(draft)]


def _remarks(draft: Draft) -> list[str]:
    """What a person still has to look at."""
    lines = [_MISSING[name] for name in draft.missing]
    if "seed" in draft.missing and draft.script.seed_line is not None:
        lines.append(f"line {draft.script.seed_line} sets a seed: make its number an option named seed")
    if draft.script.required:
        lines.append(f"it does not start without {format_list(draft.script.required)}: add that to run")
    if draft.script.distributed:
        lines += [
            "it starts a process group; for 2 processes begin run: torchrun --nproc-per-node 2 --no-python {python}",
            "then add devices = 2, and write {micro_batch_size} or {global_batch_size} for the batch of one or of all",
        ]
    return lines


_USUAL = ("batch_size", "device_batch_size", "total_batch_size", "learning_rate", "matrix_lr", "max_steps", "seed")


def _metrics(draft: Draft) -> list[str]:
    script = draft.script
    if script.style is Style.LIGHTNING_CLI:
        return [
            "[command.metrics]  # what Lightning's CSVLogger writes",
            'from = "csv"',
            'file = "{run_dir}/lightning_logs/*/metrics.csv"',
            'val_loss = "val_loss"  # as the module logs it',
            'step = "step"',
        ]
    if script.style in TRAINERS:
        return [
            "[command.metrics]  # the launcher reads the Trainer's own log",
            'from = "trainer_state"',
            'val_loss = "eval_loss"',
            'train_loss = "loss"',
        ]
    if script.val_loss is None:
        where = "it writes to TensorBoard" if script.tensorboard else "no print of a validation loss was found"
        source, name = ("tensorboard", '"val/loss"') if script.tensorboard else ("stdout", r"'val loss (\S+)'")
        return [
            f"[command.metrics]  # {where}: say where the validation loss is",
            f'from = "{source}"  # or jsonl, csv, tensorboard, trainer_state, with file = "{{run_dir}}/..."',
            f"val_loss = {name}",
        ]
    lines = ["[command.metrics]", 'from = "stdout"', f"val_loss = {_quoted(script.val_loss)}  # the last match counts"]
    if script.train_loss is not None:
        lines.append(f"train_loss = {_quoted(script.train_loss)}")
    if script.step is not None:
        lines.append(f"step = {_quoted(script.step)}")
    return lines


def _quoted(text: str) -> str:
    return f"'{text}'" if "'" not in text else f"'''{text}'''"


def _default(value: object) -> str:
    return "" if value is None else f" = {value!r}"


def init_lines(draft: Draft, path: str) -> list[str]:
    """What `batchlab init` says once it has written the file."""
    script = draft.script
    filled = [f"  {flag} is {{{placeholder}}}" for flag, placeholder in draft.filled.items()]
    lines = [f"{path}: {script.path.name} reads its options by {script.style.value}", *filled]
    if script.style is Style.CONSTANTS:
        return [lines[0], "It reads no options: the file says how to let it."]
    lines += [f"  {line}" for line in _remarks(draft)]
    if "epochs" in draft.filled.values():
        lines.append(f"  fill in train_samples, the training samples of an epoch, in {path}")
    if script.style is Style.LIGHTNING_CLI:
        lines.append("  validation loss: val_loss in Lightning's CSV log")
    elif script.val_loss is None and script.style not in TRAINERS:
        lines.append("  where the validation loss is was not found: set [command.metrics]")
    else:
        lines.append(f"  validation loss: {script.val_loss or 'eval_loss of the Trainer'}")
    return [*lines, f"Next: look through {path}, then batchlab check {path}"]
