"""Settings by their dotted names (`optimizer.beta2`), which `--set`, study.toml and error messages share."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard, get_args

from pydantic.fields import FieldInfo

from batchlab.core.batch import Frozen
from batchlab.core.errors import InputError, quote


def field_names(model: type[Frozen]) -> list[str]:
    """The dotted name of every setting of a model, in the order of its sections."""
    return [name for name, _ in _fields(model)]


def describe_settings(model: type[Frozen]) -> list[str]:
    """One line per setting: dotted name, default, and meaning where the name does not say it all."""
    lines = []
    for name, field in _fields(model):
        default = "" if field.is_required() else json.dumps(field.get_default(call_default_factory=True), default=str)
        lines.append(f"{name:34} {default:24} {field.description or ''}".rstrip())
    return lines


def _fields(model: type[Frozen], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        sections = [one for one in (field.annotation, *get_args(field.annotation)) if _is_section(one)]
        if sections:
            yield from _fields(sections[0], f"{prefix}{name}.")
        else:
            yield prefix + (field.alias or name), field


def _is_section(annotation: object) -> TypeGuard[type[Frozen]]:
    return isinstance(annotation, type) and issubclass(annotation, Frozen)


def read_toml(text: str) -> dict[str, Any]:
    """The values of a TOML document. Raises ValueError saying why it is none, also where it nests beyond reading."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it nests too deeply") from None


def set_dotted(values: dict[str, Any], dotted: str, value: object) -> None:
    """Write `value` at `a.b.c` into nested dictionaries. Raises InputError where a part of the name is no section."""
    *parents, leaf = dotted.split(".")
    node: Any = values
    for part in parents:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            raise InputError(f"{quote(dotted)} cannot be set: {quote(part)} is a single value, not a section.")
    node[leaf] = value


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over`, section by section."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting with two values: the stored one, and the one asked for now."""

    name: str
    stored: object
    asked: object


def differences(stored: Frozen, asked: Frozen) -> list[Difference]:
    """Every dotted setting in which two values of a model differ, in alphabetical order."""
    return list(_differences(stored.model_dump(mode="json"), asked.model_dump(mode="json"), ""))


def _differences(stored: Any, asked: Any, name: str) -> Iterator[Difference]:
    if isinstance(stored, dict) and isinstance(asked, dict):
        for key in sorted({*stored, *asked}):
            yield from _differences(stored.get(key), asked.get(key), f"{name}.{key}" if name else key)
    elif stored != asked:
        yield Difference(name, stored, asked)
