"""Replays take minutes; their results are kept in a folder for as long as the code that made them is unchanged."""

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
    """Results of the present code, kept in a folder; without a folder nothing is kept."""

    folder: Path | None

    def numbers(self, names: Sequence[object], make: Callable[[], list[list[float]]]) -> list[list[float]]:
        """The result of `make`, or its kept result under the same names."""
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
    """Digest of this benchmark and of the search modules that it loads."""
    loaded = [module.__file__ for name, module in sorted(sys.modules.items()) if name.startswith("batchlab.search.")]
    sources = [*sorted(Path(__file__).parent.glob("*.py")), *(Path(path) for path in loaded if path)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
