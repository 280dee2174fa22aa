"""recipes, settings, doctor: what can be chosen, and what this machine has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from batchlab.recipes import Variant

Flag = Annotated[bool, Parameter(negative=())]


def recipes(
    name: str | None = None,
    /,
    *,
    toml: Flag = False,
    python: Flag = False,
    low_resource: Flag = False,
    quick_test: Flag = False,
) -> int:
    """The recipes that ship, or one of them in full.

    Parameters
    ----------
    name
        A recipe's name.
    toml
        Print its settings as a study.toml to edit.
    python
        Print its task as a Python file to edit; name that file in the study.toml: task = "mine.py".
    low_resource
        Its version for a CPU or MPS.
    quick_test
        Its version for at most five minutes on two cores.
    """
    import inspect

    from batchlab.cli.options import variant_of
    from batchlab.recipes import RECIPES, recipe

    if name is None:
        for known in RECIPES:
            print(f"{known:12} {recipe(known).summary}")
        return 0
    found, variant = recipe(name), variant_of(low_resource=low_resource, quick_test=quick_test)
    module = inspect.getmodule(found.task)
    assert module is not None
    if toml:
        print(_as_toml(name, variant), end="")
    elif python:
        print(inspect.getsource(module), end="")
    else:
        print(f"{found.summary}\n\n{inspect.getdoc(module)}\n")
        print(_in_full(name, variant))
        print(f"edit settings:  batchlab recipes {name} --toml")
        print(f"edit task:      batchlab recipes {name} --python")
    return 0


def _as_toml(name: str, variant: Variant | None) -> str:
    """What differs from the defaults. TOML has no null, so a setting that a variant removes is not written."""
    import tomli_w

    from batchlab.study.task_source import resolve_task

    values = resolve_task(name, variant)
    del values["name"]
    return tomli_w.dumps(_without_none({**values, "task": name}))


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if value is not None
    }


def _in_full(name: str, variant: Variant | None) -> str:
    """Every setting, including defaults."""
    import tomli_w

    from batchlab.core.experiment import build_experiment
    from batchlab.study.task_source import resolve_task

    experiment = build_experiment(resolve_task(name, variant))
    return tomli_w.dumps(experiment.model_dump(mode="json", exclude_none=True))


def settings() -> int:
    """Every setting that --set accepts, with its default."""
    from batchlab.core.experiment import Experiment
    from batchlab.core.settings import describe_settings

    for line in describe_settings(Experiment):
        print(line)
    return 0


def doctor(
    *, out: Path = Path("studies"), gpu: Flag = False, hosts: Path | None = None, launch: str | None = None
) -> int:
    """What batchlab finds on this machine: versions, cores, memory, file locks, device, optional packages.

    Parameters
    ----------
    out
        Where studies will be put, to test whether files can be locked there.
    gpu
        Test the first CUDA card instead, or on a Mac the GPU with MLX, in at most three minutes, and write
        batchlab-doctor-gpu.json here, which holds nothing personal and can be attached to an issue.
    hosts, launch
        Test these machines instead, as a study over them would find them (docs/cluster.md): whether each answers, sees
        the folder of --out and its locks, and has the same versions.
    """
    from batchlab.cli.commands.running import places_of
    from batchlab.cli.doctor import CARD_TEST_FILE, check_card, check_hosts, checks, describe, device_test

    if places := places_of(launch, hosts):
        failed = False
        for name, found in check_hosts(places, out):
            failed |= found.status == "fail"
            print(describe(name, found), flush=True)
        return 1 if failed else 0

    if gpu:
        from batchlab.words.card_test import where_written

        passed = check_card(CARD_TEST_FILE, device_test())
        print(where_written(CARD_TEST_FILE))
        return 0 if passed else 1

    for check in checks(out):
        print(describe(check.name, check.run()))
    return 0
