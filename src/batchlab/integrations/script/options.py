"""The options of a person's script, read from its source. Nothing of it is ever run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from batchlab.core.errors import InputError, quote


class Style(StrEnum):
    """How a script reads its options."""

    ARGPARSE = "argparse"
    CLICK = "click"
    TYPER = "typer"
    TRAINING_ARGUMENTS = "TrainingArguments"
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
    val_loss: str | None = None  # regular expressions over what it prints
    train_loss: str | None = None
    step: str | None = None
    tensorboard: bool = False


TRAINING_ARGUMENTS = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "learning_rate",
    "max_steps",
    "seed",
    "warmup_steps",
    "output_dir",
)


def read_script(path: Path) -> Script:
    """The options and printed losses of a script. Raises InputError where it is no Python file."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"There is no file {quote(str(path))}.") from None
    except (SyntaxError, UnicodeDecodeError, IsADirectoryError) as error:
        raise InputError(f"{quote(str(path))} cannot be read as Python: {error}.") from None
    style, options = _options(tree)
    texts = list(_texts(tree))
    return Script(
        path,
        style,
        tuple(options),
        val_loss=_pattern(texts, _VAL_LOSS),
        train_loss=_pattern(texts, _TRAIN_LOSS),
        step=_step(texts),
        tensorboard=any(isinstance(node, ast.alias) and node.name == "SummaryWriter" for node in ast.walk(tree)),
    )


def _options(tree: ast.Module) -> tuple[Style, list[Option]]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if any(_called(call) == "HfArgumentParser" for call in calls):
        return Style.TRAINING_ARGUMENTS, [Option(f"--{name}") for name in TRAINING_ARGUMENTS]
    if found := list(_declared(calls, "add_argument")):
        return Style.ARGPARSE, found
    if found := list(_declared(calls, "option")):
        return Style.CLICK, found
    if found := list(_of_typer(tree)):
        return Style.TYPER, found
    source = ast.unparse(tree)
    if "sys.argv" in source and re.search(r"(split|partition)\('='", source):
        pairs = [pair for node in tree.body for pair in _of_dictionary(node)]
        if pairs:
            return Style.KEY_VALUE, [Option(name, default) for name, default in pairs]
    before = next((at for at, node in enumerate(tree.body) if _executes(node)), len(tree.body))
    constants = [pair for node in tree.body[:before] for pair in _of_assignment(node)]
    overridden = any(_called(call) == "exec" for call in calls) or ("globals()" in source and "sys.argv" in source)
    prefix = "--" if overridden else ""
    return Style.GLOBALS if overridden else Style.CONSTANTS, [Option(f"{prefix}{n}", value) for n, value in constants]


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _executes(node: ast.stmt) -> bool:
    """Whether this is `exec(…)`, by which a configurator overrides what was assigned before."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _called(node.value) == "exec"


def _declared(calls: list[ast.Call], method: str) -> Iterator[Option]:
    """Options that calls like add_argument("--name", default=…) declare."""
    for call in calls:
        if _called(call) != method:
            continue
        flags = [value for one in call.args if isinstance(value := _literal(one), str) and value.startswith("-")]
        default = next((_literal(keyword.value) for keyword in call.keywords if keyword.arg == "default"), None)
        if flags:
            yield Option(max(flags, key=len).partition("/")[0], default)


def _of_typer(tree: ast.Module) -> Iterator[Option]:
    """The parameters of functions that typer makes commands of."""
    started = {
        one.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "typer.run"
        for one in node.args
        if isinstance(one, ast.Name)
    }
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef):
            continue
        decorated = any(isinstance(one, ast.Call) and _called(one) == "command" for one in node.decorator_list)
        if not (node.name in started or (decorated and "typer" in ast.unparse(tree))):
            continue
        given = [*node.args.args, *node.args.kwonlyargs]
        positional = [None] * (len(node.args.args) - len(node.args.defaults)) + list(node.args.defaults)
        for argument, default in zip(given, [*positional, *node.args.kw_defaults], strict=True):
            if default is not None:
                value = default.args[0] if isinstance(default, ast.Call) and default.args else default
                yield Option(f"--{argument.arg.replace('_', '-')}", _literal(value))


def _of_assignment(node: ast.stmt) -> Iterator[tuple[str, object]]:
    """`name = literal` at the top of a module."""
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    if isinstance(target, ast.Name) and not target.id.startswith("_") and value is not None:
        literal = _literal(value)
        if isinstance(literal, int | float | str):
            yield target.id, literal


def _of_dictionary(node: ast.stmt) -> Iterator[tuple[str, object]]:
    """The entries of a dictionary at the top of a module, `dict(name=…)` included."""
    value = node.value if isinstance(node, ast.Assign) else None
    if isinstance(value, ast.Dict):
        for key, entry in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, _literal(entry)
    elif isinstance(value, ast.Call) and _called(value) == "dict":
        yield from ((keyword.arg, _literal(keyword.value)) for keyword in value.keywords if keyword.arg)


def _literal(node: ast.expr) -> object:
    """The value of a literal, of simple arithmetic over numbers too; None for anything else."""
    if isinstance(node, ast.BinOp):
        left, right = _literal(node.left), _literal(node.right)
        if isinstance(left, int | float) and isinstance(right, int | float):
            match node.op:
                case ast.Mult():
                    return left * right
                case ast.Pow() if abs(right) < 64:
                    return left**right
        return None
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return None


_HOLE = "\0"
"""Stands for what is filled into a printed text."""

_VAL_LOSS = re.compile(
    rf"((?:val|valid|validation|eval|test)\w*[ _/]*(?:loss|nll|bpb|ppl)\s*[:=]?\s*){_HOLE}", re.IGNORECASE
)
_TRAIN_LOSS = re.compile(rf"(train\w*[ _/]*loss\s*[:=]?\s*){_HOLE}", re.IGNORECASE)
_STEP = re.compile(rf"((?:step|iter|iteration)\s*[:=#]?\s*){_HOLE}", re.IGNORECASE)


def _texts(tree: ast.Module) -> Iterator[str]:
    """Every text of the script with holes where values are filled in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else _HOLE for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"%[-+.\d]*[a-z]|\{[^{}]*\}", _HOLE, node.value)


def _step(texts: list[str]) -> str | None:
    """A regular expression for the step, by every word that the script has for it."""
    heads = {match.group(1).rstrip() for text in texts for match in _STEP.finditer(text)}
    words = sorted({re.escape(head) for head in heads}, key=lambda word: (-len(word), word))
    return rf"(?:{'|'.join(words)})\s*(\d+)" if len(words) > 1 else rf"{words[0]}\s*(\d+)" if words else None


def _pattern(texts: list[str], wanted: re.Pattern[str]) -> str | None:
    """A regular expression with one group for the number that a text prints; the last such text of the script."""
    found = [match for text in texts for match in wanted.finditer(text)]
    if not found:
        return None
    before = re.sub(r"(\\? )+", r"\\s+", re.escape(found[-1].group(1).rstrip()))
    space = r"\s*" if found[-1].group(1) != found[-1].group(1).rstrip() else ""
    return rf"{before}{space}(\S+)"
