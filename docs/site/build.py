"""The documentation site: the project's own pages plus a generated reference, built offline; any warning fails.

`python docs/site/build.py` (make docs) writes build/site/. Pages are staged in build/pages with the folders they have
in the project, so that a link that works there works on the site, and one that does not is an error in both.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from reference import command_line_page, files_page, python_page, settings_page

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build"
STAGED = BUILD / "pages"
PAGES = ("*.md", "docs/**/*.md", "docs/*.png", "benchmarks/*/*.md", "benchmarks/*/*.py", "examples/*")
"""What pages link to: other pages, pictures, and programs, which are served as they are."""


def stage() -> None:
    """Copy the pages and write the generated ones beside them."""
    shutil.rmtree(STAGED, ignore_errors=True)
    for pattern in PAGES:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file():
                target = STAGED / path.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
    shutil.copy(ROOT / "docs/site/zensical.toml", BUILD)  # the builder works beside its settings
    (STAGED / "README.md").rename(STAGED / "index.md")
    shutil.copy(ROOT / "LICENSE", STAGED)
    reference = STAGED / "docs/reference"
    reference.mkdir(parents=True)
    pages = {
        "command_line.md": command_line_page(),
        "settings.md": settings_page(),
        "files.md": files_page(),
        "python.md": python_page(),
    }
    for name, text in pages.items():
        (reference / name).write_text(text, encoding="utf-8")


def main() -> int:
    """Stage and build; the exit code of the builder, which is strict."""
    stage()
    builder = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    return subprocess.run(builder, cwd=BUILD, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
