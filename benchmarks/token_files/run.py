"""How much memory and time does `batchlab data prepare` take for texts too large for the tests?

    python benchmarks/token_files/run.py

Each measurement is a fresh process running the command line, so its peak includes Python, numpy and the tokenizers
package. The text is the Python standard library's source, repeated to the requested size. It has only the words of
10 MB, so training a BPE on it is faster and takes less memory than on 64 MB of different text. Peak memory is the
kernel's ru_maxrss of that process. The target is below 500 MB, for 1 GB of bytes and for 64 MB through a BPE.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from batchlab.data.stdlib import standard_library_text
from batchlab.data.token_file import open_token_file

TARGET_MB = 500
CASES = (
    ("1 GB as bytes", 10**9, ("--tokenizer", "bytes")),
    ("64 MB, BPE of 10,000 trained and used", 64 * 10**6, ("--vocabulary", "10000")),
)


def repeated(text: Path, size: int, target: Path) -> None:
    """Repeat the text to at most `size` bytes, ending with a whole line."""
    content = text.read_bytes()
    with target.open("wb") as file:
        for _ in range(size // len(content)):
            file.write(content)
        file.write(content[: size % len(content)].rpartition(b"\n")[0] + b"\n")


def measured(text: Path, out: Path, options: tuple[str, ...]) -> tuple[float, float]:
    """(peak megabytes, wall seconds) of one `batchlab data prepare`."""
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "batchlab", "data", "prepare", str(text), "--out", str(out), *options],
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"data prepare ended with status {status}")
    per_unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there, in KiB on Linux
    return usage.ru_maxrss * per_unit / 1e6, time.monotonic() - begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the sizes, for a trial run")
    parser.add_argument("--in", dest="folder", type=Path, help="folder for about 4 GB of temporary files")
    asked = parser.parse_args()
    lines = [
        f"batchlab {version('batchlab')}, tokenizers {version('tokenizers')}, numpy {version('numpy')}, "
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores, {platform.system()}; "
        f"n = {asked.repeats} fresh processes each.",
        "",
        "| text | tokens | peak MB, median (min … max) | seconds, median (min … max) | MB of text/s |",
        "|---|---:|---:|---:|---:|",
    ]
    worst = 0.0
    with tempfile.TemporaryDirectory(dir=asked.folder) as scratch:
        embedded, _ = standard_library_text(Path(scratch))
        for name, size, options in CASES:
            peaks, seconds, tokens = [], [], 0
            for number in range(asked.repeats):
                place = Path(scratch) / f"{number}-{size}"
                place.mkdir()
                repeated(embedded, int(size * asked.scale), place / "text.txt")
                peak, took = measured(place / "text.txt", place / "ids.bin", options)
                peaks.append(peak)
                seconds.append(took)
                tokens = len(open_token_file(place / "ids.bin"))
                for file in (place / "text.txt", place / "ids.bin"):
                    file.unlink()
            worst = max(worst, *peaks)
            lines.append(
                f"| {name} | {tokens:,} | {statistics.median(peaks):.0f} ({min(peaks):.0f} … {max(peaks):.0f}) | "
                f"{statistics.median(seconds):.1f} ({min(seconds):.1f} … {max(seconds):.1f}) | "
                f"{size * asked.scale / statistics.median(seconds) / 1e6:.1f} |"
            )
            print(lines[-1], flush=True)
    print("\n".join(lines))
    print(f"\nLargest peak {worst:.0f} MB; the target is below {TARGET_MB} MB.")
    return 0 if worst < TARGET_MB else 1


if __name__ == "__main__":
    raise SystemExit(main())
