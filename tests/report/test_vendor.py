"""The vendored plotly.js: the file that its digest names, whole enough for every plot, with its licence."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from importlib.resources import files

from batchlab.analysis.findings import Findings
from batchlab.report.figures.build import build_figures
from batchlab.report.figures.diagnostics import diagnostic_figures
from batchlab.report.page import PLOTLY

VENDOR = files("batchlab.report") / "vendor"
BUNDLE = files("batchlab.report") / PLOTLY


def test_the_bundle_is_the_one_that_its_digest_names() -> None:
    named = json.loads((VENDOR / "plotly-cartesian.json").read_text())
    content = BUNDLE.read_bytes()
    assert hashlib.sha256(content).hexdigest() == named["sha256"]
    assert f"v{named['version']}\n".encode() in content[:200]
    assert named["license"] == "MIT"
    assert "MIT License" in (VENDOR / "LICENSE").read_text()


def test_the_bundle_can_stand_inside_a_page() -> None:
    assert b"</script" not in BUNDLE.read_bytes().lower()


def test_every_trace_type_is_in_the_bundle(study: Callable[[str], Findings], state: str) -> None:
    known = set(re.findall(r'moduleType:"trace",name:"(\w+)"', BUNDLE.read_text(encoding="utf-8")))
    found = study(state)
    used = {trace["type"] for figure in build_figures(found).values() for trace in figure.data}
    used |= {trace["type"] for figure in diagnostic_figures(found) for trace in figure.data}
    assert used <= known
