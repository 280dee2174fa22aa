"""The generated pages of the reference: command line, settings, file formats, Python."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

import batchlab
from batchlab.cli.app import app
from batchlab.core.experiment import Experiment
from batchlab.core.record import (
    CapacityResult,
    CheckResult,
    MetricRow,
    Record,
    ThroughputResult,
    TraceResult,
    TrainResult,
)
from batchlab.plan.training_plan import TrainingPlan
from batchlab.storage.tables import OUTCOME_COLUMNS, RESULT_COLUMNS

NOTE = "This page is generated from the code.\n"


def command_line_page() -> str:
    """Every command with its arguments and options, as `--help` has them."""
    return app.generate_docs(output_format="markdown", recursive=True).replace(
        "# batchlab\n", f"# Command line\n\n{NOTE}", 1
    )


def settings_page() -> str:
    """Every setting of a study.toml by its dotted name."""
    lines = ["# Settings", "", NOTE, "A study.toml holds these, and `--set NAME=VALUE` changes one.", ""]
    lines += ["| setting | default | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {_code(default)} | {_cell(meaning)} |" for name, default, meaning in _settings(Experiment)]
    return "\n".join([*lines, ""])


def _settings(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    for name, field in model.model_fields.items():
        inner = _model(field.annotation)
        if inner is not None:
            yield from _settings(inner, f"{prefix}{name}.")
            continue
        default = "required" if field.is_required() else _text(field.get_default(call_default_factory=True))
        yield f"{prefix}{name}", default, field.description or ""


def _text(default: Any) -> str:
    """A default as it is written on the command line."""
    return str(getattr(default, "value", default))


def _model(annotation: Any) -> type[BaseModel] | None:
    """The settings group that a field is, also where it may be absent."""
    candidates = (annotation, *getattr(annotation, "__args__", ()))
    return next((each for each in candidates if inspect.isclass(each) and issubclass(each, BaseModel)), None)


def files_page() -> str:
    """What every file of a study holds."""
    parts = [
        "# File formats",
        NOTE,
        "Any program can read a study without batchlab. The folder is described in "
        "[architecture](../architecture.md#a-studys-folder); sizes are bytes, times seconds, losses nats.",
        "## outcomes.csv",
        _columns(OUTCOME_COLUMNS),
        "## results.csv",
        _columns(RESULT_COLUMNS),
        "## metrics.jsonl",
        "One JSON object per line and step.",
        _fields(MetricRow),
        "## record.json",
        _fields(Record),
    ]
    for result in (TrainResult, ThroughputResult, CapacityResult, TraceResult, CheckResult):
        parts += [f"### {result.__name__}", inspect.getdoc(result) or "", _fields(result)]
    parts += ["## training_plan.json", inspect.getdoc(TrainingPlan) or "", *_groups(TrainingPlan)]
    return "\n\n".join([*parts, ""])


def _groups(model: type[BaseModel]) -> Iterator[str]:
    """The fields of a model and, under a heading each, of the groups in it."""
    yield _fields(model)
    for name, field in model.model_fields.items():
        inner = _model(field.annotation)
        if inner is not None:
            yield f"### {name}"
            yield _fields(inner)


def _fields(model: type[BaseModel]) -> str:
    rows = [
        f"| `{name}` | {_code(_type(field.annotation))} | {_cell(field.description or '')} |"
        for name, field in model.model_fields.items()
    ]
    return "\n".join(["| field | type | meaning |", "|---|---|---|", *rows])


def _columns(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _type(annotation: Any) -> str:
    text = annotation.__name__ if inspect.isclass(annotation) else str(annotation)
    return text.replace("typing.", "").replace("batchlab.core.record.", "").replace("batchlab.", "")


def _code(text: str) -> str:
    return f"`{' '.join(text.split())}`".replace("|", "\\|")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def python_page() -> str:
    """The public names, their docstrings by mkdocstrings; docs/api.md explains them."""
    names = [name for name in batchlab.__all__ if name != "__version__"]
    blocks = [f"::: batchlab.{name}" for name in sorted(names)]
    seams = ["## For your own implementations", "::: batchlab.testing"]
    text = "What the public names do, from their docstrings. [Python API](../api.md) explains how to use them."
    return "\n\n".join(["# Python reference", NOTE, text, *blocks, *seams, ""])
