"""notes.md: the experiment page that a person fills in, and their Markdown as HTML.

The page has the headings of a laboratory notebook. What the study knows is filled in before the first training run.
The rest is the person's, and so it is not trusted: only the block structure of their Markdown is rendered (headings,
paragraphs, lists, quotations, code). Everything inside a block, links, images and HTML included, is shown as typed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from batchlab.analysis.findings import Findings
from batchlab.core.format import format_learning_rate, format_list
from batchlab.words.notes import Revision, design, frozen_variables, meta, metrics
from batchlab.words.setup import setup
from batchlab.words.units import Units


def notes_page(
    findings: Findings,
    rates: Sequence[float],
    budget: Mapping[str, Any],
    revision: Revision | None,
    written: float,
) -> str:
    """The page as Markdown. `rates` are the first learning rates, `budget` what the study decided to spend, `revision`
    the commit of the user's code, `written` the time in seconds since 1970."""
    # plain Markdown for its owner: nothing here is HTML
    templates = Environment(loader=PackageLoader("batchlab.report"), undefined=StrictUndefined, trim_blocks=True)
    return templates.get_template("notes.md.j2").render(
        name=findings.experiment.name,
        meta=meta(findings, revision, written),
        metrics=metrics(findings),
        units=Units.of(findings).name if findings.run_seconds is None else "time",
        frozen=frozen_variables(findings),
        sizes=format_list(findings.experiment.batch.global_batch_sizes),
        rates=format_list([format_learning_rate(rate) for rate in rates]),
        seeds=dict(setup(findings))["seeds"],
        design=design(findings, budget),
    )


def notes_html(text: str) -> Markup:
    """A person's Markdown as HTML; their headings are below the report's own."""
    parser = _parser()
    tokens = parser.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            if token.nesting == 1:
                token.attrSet("class", f"level-{token.tag[1:]}")
            token.tag = "h3"
    return Markup(parser.renderer.render(tokens, parser.options, {}))


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": 100})
    parser.disable(["reference", "html_block"])  # both would hide text
    inline = parser.get_active_rules()["inline"]
    return parser.disable([rule for rule in inline if rule not in ("text", "newline")])
