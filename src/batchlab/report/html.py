"""report.html: one file that needs nothing else, neither network nor folder.

Everything a person typed is escaped: in the page by Jinja's autoescape, in plot labels by `figure.label`, in the JSON
that carries the plots by replacing `<`, `>` and `&`. A Content-Security-Policy allows only the two scripts of the page,
each named by its hash, and forbids every request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup, escape

import batchlab
from batchlab.core.format import format_moment
from batchlab.report.document import Document
from batchlab.report.figures.figure import Figure, plain
from batchlab.report.figures.palette import THEMES
from batchlab.report.notes import notes_html
from batchlab.report.page import PLOTLY, colours, policy, source


def render_html(document: Document) -> str:
    """The whole page."""
    plotly, script = source(PLOTLY), source("templates/report.js")
    return (
        templates()
        .get_template("report.html.j2")
        .render(
            doc=document,
            notes=notes_html(document.notes or ""),
            version=batchlab.__version__,
            policy=policy(plotly, script),
            colours=colours(),
            css=Markup(source("templates/report.css")),
            figures=figures_json(document.figures),
            themes=themes_json(),
            plotly=Markup(plotly),
            script=Markup(script),
        )
    )


def figures_json(figures: Mapping[str, Figure]) -> Markup:
    """The drawable figures by their keys, for the page's script."""
    plots = {
        key: {"data": figure.data, "layout": figure.layout, "height": figure.height}
        for key, figure in figures.items()
        if figure.drawable
    }
    return htmlsafe_json_dumps(plain(plots), separators=(",", ":"), allow_nan=False)


def themes_json() -> Markup:
    """The colours by name and scheme, for the page's script."""
    return htmlsafe_json_dumps(THEMES, separators=(",", ":"))


@lru_cache(maxsize=1)
def templates() -> Environment:
    """The templates of pages, with their filters."""
    made = Environment(loader=PackageLoader("batchlab.report"), autoescape=True, undefined=StrictUndefined)
    made.filters |= {"unbroken": unbroken, "code": code, "moment": format_moment}
    return made


def unbroken(text: str) -> Markup:
    """The text, escaped, whose learning rates (3.0e-4) and intervals ([2.40, 2.41]) stay on one line."""
    numbers = r"(?:LR )?\d[\d.]*e-?\d+|\[-?\d[\d.]*, -?\d[\d.]*\]"
    return Markup(re.sub(numbers, r'<span class="unbroken">\g<0></span>', str(escape(text))))


def code(text: str) -> Markup:
    """The text, escaped, with what stands in backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))
