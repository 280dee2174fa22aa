"""report.md: the same content as report.html as text, with tables and Unicode sparklines instead of plots.

Everything that the template writes out is escaped, so that no text can break a table or become HTML. Notes are the
person's own Markdown and stay it, inside a quotation and with their HTML escaped.
"""

from __future__ import annotations

import re
from functools import lru_cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import batchlab
from batchlab.core.format import format_loss, format_moment
from batchlab.report.document import Document


def render_markdown(document: Document) -> str:
    """The report as Markdown."""
    text = _templates().get_template("report.md.j2").render(doc=document, version=batchlab.__version__)
    return f"{text.rstrip()}\n"


@lru_cache(maxsize=1)
def _templates() -> Environment:
    """Markup stands for Markdown here: what is not marked as such is escaped when it is written out."""
    made = Environment(
        loader=PackageLoader("batchlab.report"),
        autoescape=True,
        finalize=escaped,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"fenced": fenced, "quoted": quoted, "format_loss": format_loss, "moment": format_moment}
    return made


def escaped(value: object) -> Markup:
    """The value as Markdown that shows it as it is."""
    return value if isinstance(value, Markup) else Markup(safe(str(value)))


def safe(text: str) -> str:
    """Text on one line in which nothing is Markdown or HTML any more, except a command of batchlab in backticks."""
    flat = " ".join(text.split())
    flat = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    flat = re.sub(r"([\\`*\[\]|~#])", r"\\\1", flat)
    flat = re.sub(r"\\`(batchlab [\w .=-]+)\\`", r"`\1`", flat)
    # an underscore is emphasis only at the edge of a word; names like final_loss stay readable
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", flat)


def fenced(text: str) -> Markup:
    """A code block whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return Markup(f"{fence}\n{text.strip()}\n{fence}")


def quoted(notes: str) -> Markup:
    """Markdown inside a quotation, its HTML escaped."""
    harmless = notes.replace("&", "&amp;").replace("<", "&lt;")
    return Markup("\n".join(f"> {line}".rstrip() for line in harmless.splitlines()))
