"""The documentation site: the project's own pages plus a generated reference, built offline; any warning fails.

`python docs/site/build.py` (make docs) writes build/site/. Pages are staged in build/pages with the folders they have
in the project, so that a link that works there works on the site, and one that does not is an error in both.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from markdown_it import MarkdownIt
from reference import command_line_page, files_page, python_page, settings_page

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build"
STAGED = BUILD / "pages"
PAGES = ("*.md", "docs/**/*.md", "benchmarks/*/*.md", "examples/*.md", "tests/**/README.md")
"""What they link to (pictures, programs, the licence) is staged too and served as it is."""


def stage() -> None:
    """Copy the pages and write the generated ones beside them."""
    shutil.rmtree(STAGED, ignore_errors=True)
    for pattern in PAGES:
        for path in sorted(ROOT.glob(pattern)):
            _copy(path)
            for linked in _linked(path):
                _copy(linked)
    shutil.copy(ROOT / "docs/site/zensical.toml", BUILD)  # the builder works beside its settings
    (STAGED / "README.md").rename(STAGED / "index.md")
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


def _copy(path: Path) -> None:
    target = STAGED / path.relative_to(ROOT)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, target)


def _linked(page: Path) -> list[Path]:
    """Files of the project, other than pages, that a page links to or shows."""
    inline = [token for token in MarkdownIt().parse(page.read_text(encoding="utf-8")) if token.children]
    parts = [child for token in inline for child in token.children or ()]
    addresses = [str(part.attrGet("href") or part.attrGet("src") or "") for part in parts]
    targets = [(page.parent / address.partition("#")[0]).resolve() for address in addresses if address]
    return [path for path in targets if path.is_file() and path.suffix != ".md" and path.is_relative_to(ROOT)]


def main() -> int:
    """Stage and build; the exit code of the builder, which is strict."""
    stage()
    builder = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    return subprocess.run(builder, cwd=BUILD, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
