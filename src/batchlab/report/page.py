"""What pages of batchlab share: their sources, and the policy that forbids every request."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from importlib.resources import files

from markupsafe import Markup

from batchlab.report.figures.palette import css_variables


@lru_cache
def source(path: str) -> str:
    """The text of a file of this package."""
    return files("batchlab.report").joinpath(path).read_text(encoding="utf-8")


PLOTLY = "vendor/plotly-cartesian.min.js"
"""plotly.js with only the trace types of two axes; its version and digest are beside it."""


def colours() -> Markup:
    """The colours of a page in light, in dark and on paper, as CSS custom properties."""
    light, dark = css_variables("light"), css_variables("dark")
    rules = f":root {{ {light} }}", f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    return Markup("\n".join([*rules, f"@media print {{ :root {{ {light} }} }}"]))


@lru_cache
def policy(*scripts: str) -> str:
    """A Content-Security-Policy: only these scripts, inline styles (Plotly sets them) and images made in the page."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts
    )
    directives = {
        "default-src": "'none'",
        "script-src": hashes or "'none'",
        "style-src": "'unsafe-inline'",
        "img-src": "data: blob:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {sources}" for name, sources in directives.items())
