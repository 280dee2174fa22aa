"""init: a study.toml for a person's own script."""

from __future__ import annotations

from pathlib import Path

from batchlab.core.errors import InputError, quote


def init(script: Path, /, *, out: Path | None = None) -> int:
    """Write a study.toml that runs your own script, from its source; nothing of it is run.

    Parameters
    ----------
    script
        The Python file that trains.
    out
        The file to write; default: study.toml beside the script.
    """
    from batchlab.integrations.script.draft import draft
    from batchlab.integrations.script.options import Style, read_script
    from batchlab.words.script_draft import init_lines, toml_of

    target = out or script.parent / "study.toml"
    found = read_script(script)
    try:
        name = script.resolve().relative_to(target.resolve().parent)
    except ValueError:
        name = script.resolve()
    if found.style is Style.CONSTANTS and found.trainer:
        raise InputError(
            f"{quote(str(script))} reads no options, but imports the Trainer of {found.trainer}: batchlab study "
            f"{script} says which lines make a study of that Trainer."
        )
    made = draft(found, str(name))
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(toml_of(made))
    except FileExistsError:
        raise InputError(f"{quote(str(target))} exists and is kept; give another name with --out.") from None
    for line in init_lines(made, str(target)):
        print(line)
    return 0 if made.usable else 1
