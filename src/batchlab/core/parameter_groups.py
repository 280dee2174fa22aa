"""Groups of a model's parts by their names, which are paths such as `blocks.0.attention.weight`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def by_block(names: Iterable[str], block_names: Iterable[str]) -> dict[str, list[str]]:
    """Parameter names grouped by block; others by the first component of their name (`embedding`, `head`)."""
    known = tuple(block_names)
    groups: dict[str, list[str]] = {}
    for name in names:
        group = next((block for block in known if name.startswith(block + ".")), name.partition(".")[0])
        groups.setdefault(group, []).append(name)
    return groups


def by_module(names: Iterable[str]) -> dict[str, list[str]]:
    """Parameter names grouped by the module that owns them; parameters of the model itself by their own name."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.rpartition(".")[0] or name, []).append(name)
    return groups


def first_middle_last(names: Sequence[str]) -> tuple[str, ...]:
    """The first, middle and last name, without duplicates. Of two middle names, the first."""
    return tuple(dict.fromkeys(names[i] for i in (0, (len(names) - 1) // 2, -1))) if names else ()
