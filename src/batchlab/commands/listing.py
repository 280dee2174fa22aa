"""recipes, settings, doctor: what there is to choose from."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter


def recipes(name: str | None = None, /, *, toml: Annotated[bool, Parameter(negative=())] = False) -> int:
    """The studies that ship, or one of them in full.

    Parameters
    ----------
    name
        A recipe's name.
    toml
        Print it as a study.toml to edit.
    """
    import tomli_w

    from batchlab.experiment import build_experiment
    from batchlab.recipes import RECIPES, recipe
    from batchlab.what import resolve_what

    if name is None:
        for known in RECIPES:
            print(f"{known:12} {recipe(known).summary}")
        return 0
    found = recipe(name)
    if toml:
        print(tomli_w.dumps({"task": name, **found.experiment}), end="")
        return 0
    print(found.summary)
    print(tomli_w.dumps(build_experiment(resolve_what(name)).model_dump(mode="json", exclude_none=True)), end="")
    return 0


def settings() -> int:
    """Every setting --set knows, with its default."""
    from batchlab.experiment import describe_settings

    for line in describe_settings():
        print(line)
    return 0


def doctor() -> int:
    """What batchlab sees on this machine: devices, cores, memory, optional packages."""
    from batchlab.doctor import doctor_lines

    for line in doctor_lines():
        print(line)
    return 0
