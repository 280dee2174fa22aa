"""The options of functions that click or typer makes commands of, read from their source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from batchlab.integrations.script.literals import called, literal

SUFFIXES = ("_command", "_cmd", "_group", "_grp")
"""What click 8.2 takes off a function's name."""


@dataclass(slots=True)
class CommandFunction:
    """One command: the word that chooses it among several, its options with their defaults, and what it requires."""

    word: str = ""
    options: list[tuple[str, object]] = field(default_factory=list)
    required: list[str] = field(default_factory=list)

    @property
    def trains(self) -> bool:
        """Whether it has an option for a batch size."""
        return any("batch" in flag.lower() for flag, _ in self.options)


def likeliest(commands: list[CommandFunction]) -> CommandFunction | None:
    """The command that trains, as far as its options tell."""
    return max(commands, key=lambda one: (one.trains, len(one.options)), default=None)


def of_click(tree: ast.Module) -> CommandFunction | None:
    """The likeliest command of click's; None where there is none."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    groups = {function.name for function in functions if _decorators(function, "group")}
    found = []
    for function in functions:
        commands = _decorators(function, "command")
        if not commands or not (options := list(_decorators(function, "option"))):
            continue
        made = CommandFunction(word=_word(function, commands[0], groups))
        for call in options:
            flag, default = declared(call)
            made.options.append((flag, default))
            if _keyword(call, "required") is True:
                made.required.append(flag)
        for call in _decorators(function, "argument"):
            name = literal(call.args[0]) if call.args else None
            if isinstance(name, str) and _keyword(call, "required") is not False and not _has(call, "default"):
                made.required.append(name)
        found.append(made)
    return likeliest(found)


def _word(function: ast.FunctionDef, command: ast.Call, groups: set[str]) -> str:
    """How a group's command is chosen; empty for a command of its own."""
    owner = command.func.value if isinstance(command.func, ast.Attribute) else None
    if not (isinstance(owner, ast.Name) and owner.id in groups):
        return ""
    given = literal(command.args[0]) if command.args else _keyword(command, "name")
    if isinstance(given, str):
        return given
    name = next((function.name.removesuffix(end) for end in SUFFIXES if function.name.endswith(end)), function.name)
    return name.lower().replace("_", "-")


def of_typer(tree: ast.Module) -> CommandFunction | None:
    """The likeliest command of typer's; None where there is none."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    apps = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        if ast.unparse(node.value.func) in ("typer.Typer", "Typer")
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    started = {
        one.id
        for call in calls
        if ast.unparse(call.func) == "typer.run"
        for one in call.args
        if isinstance(one, ast.Name)
    }
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    commands = {one.name: made for one in functions for made in _decorators(one, "command") if _owner(made) in apps}
    several = len(commands) > 1 or any(_decorators(one, "callback") for one in functions)
    found = []
    for function in functions:
        if function.name in started:
            found.append(_of_signature(function, ""))
        elif (command := commands.get(function.name)) is not None:
            given = literal(command.args[0]) if command.args else _keyword(command, "name")
            word = str(given or function.name.lower().replace("_", "-")) if several else ""
            found.append(_of_signature(function, word))
    return likeliest(found)


def _of_signature(function: ast.FunctionDef, word: str) -> CommandFunction:
    """A function whose parameters are options where they have a default or say so, else arguments."""
    made = CommandFunction(word)
    given = [*function.args.args, *function.args.kwonlyargs]
    missing = len(function.args.args) - len(function.args.defaults)
    defaults = [None] * missing + [*function.args.defaults, *function.args.kw_defaults]
    for argument, default in zip(given, defaults, strict=True):
        said = default if isinstance(default, ast.Call) else _annotated(argument)
        kind = called(said) if said is not None else ""
        value = default
        if isinstance(default, ast.Call):
            value = default.args[0] if default.args else None
        has_default = value is not None and not (isinstance(value, ast.Constant) and value.value is ...)
        flag = f"--{argument.arg.replace('_', '-')}"
        names = [text for one in (said.args if said else ()) if isinstance(text := literal(one), str)]
        flag = max((name.partition("/")[0] for name in names if name.startswith("--")), key=len, default=flag)
        if kind == "Argument" or (kind != "Option" and not has_default):
            made.required += [] if has_default else [argument.arg]
            continue
        made.options.append((flag, literal(value) if value is not None else None))
        made.required += [] if has_default else [flag]
    return made


def _annotated(argument: ast.arg) -> ast.Call | None:
    """The call of Option or Argument in `Annotated[type, …]`."""
    return next(
        (
            node
            for node in ast.walk(argument.annotation or ast.Constant(None))
            if isinstance(node, ast.Call) and called(node) in ("Option", "Argument")
        ),
        None,
    )


def _owner(call: ast.Call) -> str:
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return owner.id if isinstance(owner, ast.Name) else ""


def _decorators(function: ast.FunctionDef, name: str) -> list[ast.Call]:
    """Its decorators of that name; one without parentheses counts as a call without arguments."""
    calls = [
        one if isinstance(one, ast.Call) else ast.Call(one, [], [])
        for one in function.decorator_list
        if isinstance(one, ast.Call | ast.Attribute | ast.Name)
    ]
    return [call for call in calls if called(call) == name]


def declared(call: ast.Call) -> tuple[str, object]:
    """The longest flag of an option that a call declares, and its default; an empty flag where it has none."""
    flags = [value for one in call.args if isinstance(value := literal(one), str) and value.startswith("-")]
    return max(flags, key=len, default="").partition("/")[0], _keyword(call, "default")


def _keyword(call: ast.Call, name: str) -> object:
    return next((literal(keyword.value) for keyword in call.keywords if keyword.arg == name), None)


def _has(call: ast.Call, name: str) -> bool:
    return any(keyword.arg == name for keyword in call.keywords)


def arguments(calls: Iterator[ast.Call]) -> list[str]:
    """Names of what calls of argparse's add_argument require: positional ones, and options that say so."""
    found = []
    for call in calls:
        first = literal(call.args[0]) if call.args else None
        if not isinstance(first, str):
            continue
        if first.startswith("-"):
            found += [declared(call)[0]] if _keyword(call, "required") is True else []
        elif _keyword(call, "nargs") not in ("?", "*") and not _has(call, "default"):
            found.append(first)
    return found
