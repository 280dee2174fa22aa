"""Replays that took minutes, kept in a folder as long as the code that made them stays the same."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from batchlab.storage.atomic import write_atomically


@dataclass(frozen=True)
class Kept:
    """Results of this very code in a folder; without one nothing is kept."""

    folder: Path | None

    def numbers(self, names: Sequence[object], make: Callable[[], list[list[float]]]) -> list[list[float]]:
        """What `make` gives, or gave before under the same names."""
        if self.folder is None:
            return make()
        said = json.dumps([source_digest(), *map(str, names)])
        path = self.folder / f"{hashlib.sha256(said.encode()).hexdigest()[:20]}.json"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(make()))
        found: list[list[float]] = json.loads(path.read_text())
        return found


@cache
def source_digest() -> str:
    """Of this benchmark and of what it loads of the search."""
    loaded = [module.__file__ for name, module in sorted(sys.modules.items()) if name.startswith("batchlab.search.")]
    sources = [*sorted(Path(__file__).parent.glob("*.py")), *(Path(path) for path in loaded if path)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
