"""The options of a person's script, read from its source. Nothing of it is ever run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from batchlab.core.errors import InputError, quote
from batchlab.integrations.script.decorated import arguments, declared, of_click, of_typer
from batchlab.integrations.script.literals import called, literal
from batchlab.integrations.script.printed_texts import TRAIN_LOSS, VAL_LOSS, loss_pattern, step_pattern, texts_of


class Style(StrEnum):
    """How a script reads its options."""

    ARGPARSE = "argparse"
    CLICK = "click"
    TYPER = "typer"
    TRAINING_ARGUMENTS = "TrainingArguments"
    TRL = "TrlParser"
    LIGHTNING_CLI = "LightningCLI"
    GLOBALS = "globals"  # overridden as --name=value by a configurator, as in nanoGPT
    KEY_VALUE = "key=value"
    CONSTANTS = "constants"  # nothing reads them from the command line


@dataclass(frozen=True, slots=True)
class Option:
    """An option as it is written on the command line, with its default where that is a literal."""

    flag: str
    default: object = None

    @property
    def name(self) -> str:
        """The flag without dashes, in lower case, its words joined by underscores."""
        return self.flag.lstrip("-").rpartition(".")[2].replace("-", "_").lower()


@dataclass(frozen=True, slots=True)
class Script:
    """What the source of a script tells."""

    path: Path
    style: Style
    options: tuple[Option, ...]
    words: tuple[str, ...] = ()  # after its name: the command of several that trains, and what it always needs
    required: tuple[str, ...] = ()  # what it does not start without
    val_loss: str | None = None  # regular expressions over what it prints
    train_loss: str | None = None
    step: str | None = None
    tensorboard: bool = False
    distributed: bool = False  # it starts a process group
    seed_line: int | None = None  # where it sets a seed
    trainer: str = ""  # the package whose Trainer trains, as far as the script's own imports tell


TRAINING_ARGUMENTS = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "learning_rate",
    "max_steps",
    "seed",
    "warmup_steps",
    "output_dir",
)

LIGHTNING_WORDS = (
    *("fit", "--trainer.check_val_every_n_epoch", "null", "--trainer.logger", "CSVLogger"),
    *("--trainer.logger.save_dir", "{run_dir}", "--trainer.enable_progress_bar", "false"),
)
"""Evaluations are counted in steps and not in epochs, and losses go to a CSV file in the run's folder."""


def read_script(path: Path) -> Script:
    """The options and printed losses of a script. Raises InputError where it is no Python file."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"There is no file {quote(str(path))}.") from None
    except (SyntaxError, UnicodeDecodeError, IsADirectoryError) as error:
        raise InputError(f"{quote(str(path))} cannot be read as Python: {error}.") from None
    found = _options(tree)
    texts = list(texts_of(tree))
    return Script(
        path,
        found.style,
        found.options,
        words=found.words,
        required=found.required,
        val_loss=loss_pattern(texts, VAL_LOSS),
        train_loss=loss_pattern(texts, TRAIN_LOSS),
        step=step_pattern(texts),
        distributed=_distributed(tree),
        seed_line=_seed_line(tree),
        trainer=_trainer(tree),
        tensorboard=any(isinstance(node, ast.alias) and node.name == "SummaryWriter" for node in ast.walk(tree)),
    )


@dataclass(frozen=True, slots=True)
class _Options:
    style: Style
    options: tuple[Option, ...]
    words: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


def _options(tree: ast.Module) -> _Options:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = {called(call) for call in calls}
    if "TrlParser" in names:
        return _Options(Style.TRL, _flags(TRAINING_ARGUMENTS), ("--eval_strategy", "steps", "--eval_steps", "{steps}"))
    if "HfArgumentParser" in names:
        return _Options(Style.TRAINING_ARGUMENTS, _flags(TRAINING_ARGUMENTS), ("--do_train", "--do_eval"))
    if "LightningCLI" in names:
        return _Options(Style.LIGHTNING_CLI, tuple(_of_lightning(tree)), LIGHTNING_WORDS)
    for style, command in ((Style.CLICK, of_click(tree)), (Style.TYPER, of_typer(tree))):
        if command is not None:
            options = tuple(Option(flag, default) for flag, default in command.options)
            return _Options(style, options, (command.word,) if command.word else (), tuple(command.required))
    added = [call for call in calls if called(call) == "add_argument"]
    if found := tuple(_declared(added, "add_argument")):
        return _Options(Style.ARGPARSE, found, required=tuple(arguments(iter(added))))
    source = ast.unparse(tree)
    if "sys.argv" in source and re.search(r"(split|partition)\('='", source):
        pairs = [pair for node in tree.body for pair in _of_dictionary(node)]
        if pairs:
            return _Options(Style.KEY_VALUE, tuple(Option(name, default) for name, default in pairs))
    before = next((at for at, node in enumerate(tree.body) if _executes(node)), len(tree.body))
    constants = [pair for node in tree.body[:before] for pair in _of_assignment(node)]
    overridden = "exec" in names or ("globals()" in source and "sys.argv" in source)
    prefix = "--" if overridden else ""
    style = Style.GLOBALS if overridden else Style.CONSTANTS
    return _Options(style, tuple(Option(f"{prefix}{name}", value) for name, value in constants))


def _flags(names: tuple[str, ...]) -> tuple[Option, ...]:
    return tuple(Option(f"--{name}") for name in names)


def _of_lightning(tree: ast.Module) -> Iterator[Option]:
    """The parameters of the classes that LightningCLI is given, and those of its own that a study sets."""
    call = next(node for node in ast.walk(tree) if isinstance(node, ast.Call) and called(node) == "LightningCLI")
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for part, given in zip(("model", "data"), call.args, strict=False):
        for node in classes[given.id].body if isinstance(given, ast.Name) and given.id in classes else ():
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                defaults = [None] * (len(node.args.args) - len(node.args.defaults)) + list(node.args.defaults)
                for argument, default in list(zip(node.args.args, defaults, strict=True))[1:]:
                    yield Option(f"--{part}.{argument.arg}", literal(default) if default is not None else None)
    yield from _flags(
        ("trainer.max_steps", "seed_everything", "trainer.default_root_dir", "trainer.val_check_interval")
    )


SEEDS = ("manual_seed", "set_seed", "seed_everything")
"""Functions that set the seed of everything."""


def _seed_line(tree: ast.Module) -> int | None:
    """The first line that sets a seed."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and called(node) in SEEDS and node.args)
    return min((call.lineno for call in calls), default=None)


def _trainer(tree: ast.Module) -> str:
    """The package of a Trainer that a script imports: transformers, trl or lightning; empty where there is none."""
    for node in ast.walk(tree):
        imported = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else imported
        packages = {module.partition(".")[0] for module in modules}
        if packages & {"lightning", "pytorch_lightning"}:
            return "lightning"
        if packages & {"transformers", "trl"} and any(name.endswith("Trainer") for name in imported):
            return min(packages)
    return ""


def _distributed(node: ast.AST) -> bool:
    """Whether it starts a process group in any case, and not only where an `if` says so."""
    if isinstance(node, ast.Call) and called(node) == "init_process_group":
        return True
    optional = isinstance(node, ast.If) and "__main__" not in ast.unparse(node.test)
    return not optional and any(_distributed(child) for child in ast.iter_child_nodes(node))


def _executes(node: ast.stmt) -> bool:
    """Whether this is `exec(…)`, by which a configurator overrides what was assigned before."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and called(node.value) == "exec"


def _declared(calls: list[ast.Call], method: str) -> Iterator[Option]:
    """Options that calls like add_argument("--name", default=…) declare."""
    for call in calls:
        flag, default = declared(call) if called(call) == method else ("", None)
        if flag:
            yield Option(flag, default)


def _of_assignment(node: ast.stmt) -> Iterator[tuple[str, object]]:
    """`name = literal` at the top of a module."""
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    if isinstance(target, ast.Name) and not target.id.startswith("_") and value is not None:
        found = literal(value)
        if isinstance(found, int | float | str):
            yield target.id, found


def _of_dictionary(node: ast.stmt) -> Iterator[tuple[str, object]]:
    """The entries of a dictionary at the top of a module, `dict(name=…)` included."""
    value = node.value if isinstance(node, ast.Assign) else None
    if isinstance(value, ast.Dict):
        for key, entry in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, literal(entry)
    elif isinstance(value, ast.Call) and called(value) == "dict":
        yield from ((keyword.arg, literal(keyword.value)) for keyword in value.keywords if keyword.arg)
