"""report.html: one file that needs nothing else, neither network nor folder.

Everything a person typed is escaped: in the page by Jinja's autoescape, in plot labels by `figure.label`, in the JSON
that carries the plots by replacing `<`, `>` and `&`. A Content-Security-Policy lets only the two scripts below run,
each named by its hash, and forbids every request.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup, escape

import batchlab
from batchlab.analysis.findings import Findings
from batchlab.report.document import PasteReady, build_document
from batchlab.report.figures.figure import plain
from batchlab.report.figures.palette import THEMES, css_variables
from batchlab.words.story import Story

_SECTIONS = (
    ("setup", "Setup"),
    ("results", "Results"),
    ("findings", "Findings"),
    ("dynamics", "Dynamics"),
    ("critical", "Critical batch size"),
    ("device", "Speed and memory"),
    ("recommendations", "Recommendations"),
    ("failures", "Failures"),
    ("method", "Method and caveats"),
)


def render_html(findings: Findings, story: Story, plan: PasteReady | None, notes: str | None) -> str:
    """The whole page. `plan` gives the paste-ready block, `notes` is the person's own text; either may be missing."""
    document = build_document(findings, story, plan, notes)
    plots = {
        key: {"data": figure.data, "layout": figure.layout, "height": figure.height}
        for key, figure in document.figures.items()
        if figure.drawable
    }
    template = _templates().get_template("report.html.j2")
    plotly, script = _plotly(), _source("report.js")
    return template.render(
        doc=document,
        contents=(*_SECTIONS, *((("notes", "Notes"),) if document.notes is not None else ())),
        version=batchlab.__version__,
        policy=_policy(plotly, script),
        light=Markup(css_variables("light")),
        dark=Markup(css_variables("dark")),
        css=Markup(_source("report.css")),
        figures=htmlsafe_json_dumps(plain(plots), separators=(",", ":"), allow_nan=False),
        themes=htmlsafe_json_dumps(THEMES, separators=(",", ":")),
        plotly=Markup(plotly),
        script=Markup(script),
    )


@lru_cache(maxsize=1)
def _templates() -> Environment:
    made = Environment(loader=PackageLoader("batchlab.report"), autoescape=True, undefined=StrictUndefined)
    made.filters["unbroken"] = unbroken
    return made


def unbroken(text: str) -> Markup:
    """The text, escaped, whose learning rates (3.0e-4) and intervals ([2.40, 2.41]) stay on one line."""
    numbers = r"(?:LR )?\d[\d.]*e-?\d+|\[-?\d[\d.]*, -?\d[\d.]*\]"
    return Markup(re.sub(numbers, r'<span class="unbroken">\g<0></span>', str(escape(text))))


def _source(name: str) -> str:
    """The text of a file beside the templates."""
    environment = _templates()
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


@lru_cache(maxsize=1)
def _plotly() -> str:
    """plotly.js as the plotly package ships it."""
    from plotly.offline import get_plotlyjs

    text: str = get_plotlyjs()
    return text


@lru_cache(maxsize=1)
def _policy(*scripts: str) -> str:
    """Only these scripts, inline styles (Plotly sets them) and images made in the page; no request at all."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
