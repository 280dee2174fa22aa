"""JSON files that carry their own digest, so that a damaged one is found before anything is concluded from it.

The last member of the object is the sha256 of all bytes before it. Any program reads such a file as plain JSON.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

_SEAL = re.compile(rb',?\n "sha256": "([0-9a-f]{64})"\n}\n')
_OTHERS = re.compile(rb'(,\n "[a-z]+_sha256": "[0-9a-f]{64}")*$')
_OTHER = re.compile(rb'"([a-z]+)_sha256": "([0-9a-f]{64})"')


class Damage(StrEnum):
    """What is wrong with a file of a study."""

    MISSING = "missing"
    NOT_A_FILE = "not_a_file"
    NO_DIGEST = "no_digest"  # torn, edited, or written by something else
    OTHER_DIGEST = "other_digest"  # its content is not what was written
    OTHER_RUN = "other_run"  # it belongs to another run than the folder it is in
    UNREADABLE = "unreadable"  # it is not accessible, or the disk fails to read it
    SET_ASIDE = "set_aside"  # it was damaged and renamed, and its run has not been done again


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A file that is not used, and why."""

    path: Path
    damage: Damage


class Broken(Exception):
    """A sealed file is not what was written. Never leaves storage."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(damage.value)
        self.damage = damage


class Unsealed(NamedTuple):
    """A JSON object that is as it was written, and the digests of the files that belong to it, by name."""

    content: bytes
    others: Mapping[str, str]


def seal(text: str, others: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """A JSON object that has members, written with an indent of one, with its digest as last member.

    `others` are digests of files that belong to it; they become members before that one, `NAME_sha256`.
    """
    body = text.rstrip()[:-1].rstrip() + "".join(f',\n "{name}_sha256": "{each}"' for name, each in others.items())
    comma = "" if body.endswith("{") else ","
    return f'{body}{comma}\n "sha256": "{digest(body.encode())}"\n}}\n'.encode()


def unseal(content: bytes) -> Unsealed:
    """The JSON object without digests. Raises Broken where its own does not match."""
    found = _SEAL.search(content, max(0, len(content) - 100))
    if found is None or found.end() != len(content):
        raise Broken(Damage.NO_DIGEST)
    body = content[: found.start()]
    if digest(body) != found[1].decode() or found[0].startswith(b",") == body.endswith(b"{"):
        raise Broken(Damage.OTHER_DIGEST)
    others = _OTHERS.search(body, max(0, len(body) - 1000))
    assert others is not None
    digests = {name.decode(): value.decode() for name, value in _OTHER.findall(others[0])}
    return Unsealed(body[: others.start()] + b"\n}", digests)


def digest(content: bytes) -> str:
    """sha256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()
