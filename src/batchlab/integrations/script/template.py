"""The command of a study.toml: its words, its placeholders, and what follows from those that it has.

The command is split into words first and filled afterwards, so a value with spaces or quotes stays one word. Nothing
is ever given to a shell.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from batchlab.core.command import Command
from batchlab.core.errors import InputError, did_you_mean, quote

WHOLE = frozenset({"batch_size", "global_batch_size", "tokens_per_step"})
"""Placeholders for a whole batch, of which the script computes the rest."""

BATCH = WHOLE | {"micro_batch_size"}
LENGTH = frozenset({"steps", "tokens", "epochs", "seconds"})
PLACEHOLDERS = (
    BATCH | LENGTH | {"python", "grad_accum_steps", "learning_rate", "seed", "warmup_steps", "run_dir", "resume"}
)
"""What each is filled with: docs/integrations.md."""

_NAME = re.compile(r"\{([^{}]*)\}")

LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed", "mpirun")
"""Programs that start several processes of a script."""


@dataclass(frozen=True, slots=True)
class Template:
    """A command's words, before they are filled."""

    words: tuple[str, ...]

    @property
    def names(self) -> frozenset[str]:
        """The placeholders it has."""
        return frozenset(name for word in self.words for name in _NAME.findall(word))

    def has(self, *names: str) -> bool:
        """Whether it has any of these placeholders."""
        return not self.names.isdisjoint(names)

    def filled(self, values: Mapping[str, str | tuple[str, ...]]) -> list[str]:
        """The words with every placeholder replaced. A tuple replaces a word that is nothing but its placeholder."""
        words: list[str] = []
        for word in self.words:
            whole = _NAME.fullmatch(word)
            value = values[whole.group(1)] if whole else ""
            if isinstance(value, tuple):
                words += value
            else:
                words.append(_NAME.sub(lambda found: str(values[found.group(1)]), word))
        return words


def parse(run: str) -> Template:
    """The template of a command line. Raises InputError where it cannot be split, or has an unknown placeholder."""
    try:
        template = Template(tuple(shlex.split(run)))
    except ValueError as error:
        raise InputError(f"command.run cannot be split into words ({error}); close its quotes.") from None
    for name in sorted(template.names):
        if name not in PLACEHOLDERS:
            raise InputError(
                f"command.run has the unknown placeholder {quote('{' + name + '}')}."
                f"{did_you_mean(name, PLACEHOLDERS)} Possible: {', '.join(sorted(PLACEHOLDERS))}."
            )
    for word in template.words:
        if "{python}" in word and word != "{python}":
            raise InputError(f"command.run has {quote(word)}; write {{python}} as a word of its own.")
    return template


def template_of(command: Command) -> Template:
    """The template of a study's command.

    Raises InputError where it is no training command: without a batch size, without a length, or without saying
    whether a batch size is that of one device or of all.
    """
    template = parse(command.run)
    if not template.has(*BATCH):
        raise InputError(
            "command.run has no placeholder for the batch size, so every run would be the same. Add "
            "{micro_batch_size} (with {grad_accum_steps} if your script accumulates gradients) or {batch_size}."
        )
    if not template.has(*LENGTH):
        raise InputError(
            "command.run does not say how long to train. Add {steps}, {tokens}, {epochs} or {seconds} to the option of "
            "your script that sets it."
        )
    if template.has(*WHOLE) and template.has("micro_batch_size") and template.has("grad_accum_steps"):
        raise InputError(
            "command.run has a whole batch size, {micro_batch_size} and {grad_accum_steps}: one follows from the other "
            "two. Omit the one that your script computes."
        )
    if template.has("grad_accum_steps") and not template.has("micro_batch_size"):
        raise InputError("command.run has {grad_accum_steps} without {micro_batch_size}; add it, or omit both.")
    if template.has("batch_size") and (command.devices > 1 or (launcher := _launcher(template))):
        by = f"devices = {command.devices}" if command.devices > 1 else f"{launcher} starts several processes"
        raise InputError(
            f"{{batch_size}}: is it the batch of one device or of all together ({by})? Write {{micro_batch_size}} for "
            "one device or {global_batch_size} for all, and set command.devices to their number."
        )
    if template.has("epochs") and command.train_samples is None:
        raise InputError(
            "command.run has {epochs}, so batchlab must know how many samples an epoch has: set command.train_samples."
        )
    if template.has("tokens", "tokens_per_step") and command.sequence_length is None:
        raise InputError("command.run counts tokens: set command.sequence_length, the tokens in one sample.")
    return template


def _launcher(template: Template) -> str:
    parts = {part for word in template.words[:4] for part in (word, word.rpartition("/")[2])}
    return next((name for name in LAUNCHERS if name in parts), "")


def script_of(template: Template) -> str:
    """The first word that names a Python file; else the program."""
    return next((word for word in template.words if word.endswith(".py")), template.words[0])


def by_time(template: Template) -> bool:
    """Whether a run can only be given its time."""
    return LENGTH & template.names == {"seconds"}


def accumulates(template: Template) -> bool:
    """Whether a batch can be split into micro-batches."""
    return template.has("micro_batch_size") and template.has("grad_accum_steps", *WHOLE)
