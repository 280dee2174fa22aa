"""The documentation: no dead link inside the project, and no public name without a description."""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import re
import tomllib
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "examples/README.md"]
GENERATED = {"command_line.md", "settings.md", "files.md", "python.md"}


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    found = set()
    tokens = MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8"))
    for token, text in itertools.pairwise(tokens):
        if token.type == "heading_open":
            kept = re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", text.content).lower())
            found.add(kept.strip().replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_link_inside_the_project_is_dead(page: Path) -> None:
    for token in MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8")):
        for child in token.children or ():
            address = child.attrGet("href") or child.attrGet("src")
            if not isinstance(address, str) or "://" in address or address.startswith("mailto:"):
                continue
            path, _, anchor = address.partition("#")
            target = (page.parent / path).resolve() if path else page
            if target.parent.name == "reference" and target.name in GENERATED:
                continue  # the site's own build checks these
            assert target.exists(), f"{page.name}: {address}"
            if anchor and target.suffix == ".md":
                assert anchor in anchors(target), f"{page.name}: {address}"


def test_every_page_that_a_page_links_to_is_part_of_the_site() -> None:
    staged = re.search(r"^PAGES = (\(.*\))$", (ROOT / "docs/site/build.py").read_text(), re.MULTILINE)
    assert staged is not None
    pages = {path for pattern in ast.literal_eval(staged.group(1)) for path in ROOT.glob(pattern)}
    for page in pages:
        for token in MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8")):
            for child in token.children or ():
                path = str(child.attrGet("href") or "").partition("#")[0]
                target = (page.parent / path).resolve()
                if path.endswith(".md") and "://" not in path and target.name not in GENERATED:
                    assert target in pages, f"{page.name}: {path} is not in PAGES of docs/site/build.py"


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    site = tomllib.loads((ROOT / "docs/site/zensical.toml").read_text())
    listed = set(re.findall(r'"([^"]+\.md)"', str(site["project"]["nav"]).replace("'", '"')))
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    assert pages <= listed
    assert {name for name in listed if "/reference/" not in name and name != "index.md"} <= {
        str(path.relative_to(ROOT)) for path in PAGES
    }
    assert {Path(name).name for name in listed if "/reference/" in name} == GENERATED


@pytest.mark.parametrize("module", ["batchlab", "batchlab.testing"])
def test_every_public_name_is_documented(module: str) -> None:
    described = (ROOT / "docs/api.md").read_text() + (ROOT / "docs/architecture.md").read_text()
    described += (ROOT / "CONTRIBUTING.md").read_text()
    package = importlib.import_module(module)
    for name in package.__all__:
        if name.startswith("__"):
            continue
        public = getattr(package, name)
        assert inspect.getdoc(public), name
        assert name in described or module == "batchlab.testing", f"docs/api.md does not name {name}"
        if inspect.isclass(public):
            for inner, method in inspect.getmembers(public, inspect.isfunction):
                assert inner.startswith("_") or inspect.getdoc(method), f"{name}.{inner}"
