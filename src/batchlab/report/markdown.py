"""report.md: the same content as text, with tables and Unicode sparklines instead of plots.

What a person or an error message wrote is escaped, so that it can neither break a table nor bring HTML along; notes
are the person's own Markdown and stay it, inside a quotation and with their HTML made harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import batchlab
from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.runs import first_runs
from batchlab.core.format import format_learning_rate, format_loss
from batchlab.report.document import Advice, Document, PasteReady, build_document
from batchlab.report.figures.figure import Figure
from batchlab.report.method import Term
from batchlab.report.tables import Table
from batchlab.report.words import Words, sparkline
from batchlab.words.story import Story

_MARKS = {True: "✓", False: "✗", None: "?"}
_SAID = {"peak": " (the peak)", "best": " (best)", "lowest": " (lowest)", "as-good": " (as good)"}
_CHECKS = {"ok": "✓", "note": "!", "fail": "✗"}


def render_markdown(findings: Findings, story: Story, plan: PasteReady | None, notes: str | None) -> str:
    """The report as Markdown; `plan` gives the paste-ready block, `notes` the person's own text."""
    doc = build_document(findings, story, plan, notes)
    blocks = [
        *_first_screen(doc),
        "## Setup",
        _terms(doc.setup),
        "## Results",
        _table(doc.results),
        safe(doc.results_note),
        *_captions(doc, "loss-batch", "loss-hours", "surface"),
        *(("### One learning rate for all sizes, and each at its own", _table(doc.rates)) if doc.rates.rows else ()),
        *(("### How the best runs ended", _table(doc.endings)) if doc.endings.rows else ()),
        *(("### Every cell", _table(doc.cells)) if doc.cells.rows else ()),
        "## Findings",
        _list(doc.conclusions, ordered=True) or "Nothing can be concluded from the records so far.",
        "## Training dynamics",
        _list(doc.dynamics),
        *_curves(findings),
        *((_table(doc.comparison),) if doc.comparison.rows else ()),
        *_captions(doc, "curves", "training", "gradients"),
        *(("### Stability of all runs", _table(doc.stability)) if doc.stability.rows else ()),
        *_diagnostics(findings, doc),
        *_critical(doc),
        "## Speed and memory",
        *((_table(doc.speeds),) if doc.speeds.rows else ()),
        *_captions(doc, "speed", "memory"),
        *(("### Probes of the memory", _table(doc.probes)) if doc.probes.rows else ()),
        *_memory(doc),
        "## Recommendations",
        "\n".join(_advice(item) for item in doc.recommendations) or safe(doc.why_none),
        "## Failures and remedies",
        _list([f"**{safe(f.what)}** ({safe(f.where)}): {safe(f.remedy)}" for f in doc.failures], raw=True)
        or "No run failed, diverged or ran out of memory.",
        "## Method and caveats",
        _terms(doc.method),
        *(("### Optimizer settings by batch size", _table(doc.time_constants)) if doc.time_constants.rows else ()),
        *_checks(doc),
        *(("## Notes", _quote(doc.notes) or _NO_NOTES) if doc.notes is not None else ()),
        f"Written by batchlab {batchlab.__version__} from the records of the study.",
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


_NO_NOTES = (
    "Nothing of yours stands in [notes.md](notes.md) yet: the experiment's page, filled in up to your hypothesis, "
    "expectation and interpretation."
)


def safe(text: str) -> str:
    """Text on one line in which nothing is Markdown or HTML any more."""
    flat = " ".join(text.split())
    flat = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    flat = re.sub(r"([\\`*\[\]|~#])", r"\\\1", flat)
    # an underscore is emphasis only at the edge of a word; names like final_loss stay readable
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", flat)


def _first_screen(doc: Document) -> list[str]:
    blocks = [f"# {safe(doc.title)}", " · ".join(safe(fact) for fact in doc.facts)]
    if doc.partial:
        blocks.append(f"> **{safe(doc.partial)}**")
    if doc.train_with:
        chosen = doc.train_with
        blocks += [f"**Train with {safe(chosen.headline)}**", f"{safe(chosen.detail)}. {safe(chosen.why)}"]
    else:
        blocks += ["**No recommendation**", safe(doc.why_none)]
    if doc.paste_block:
        blocks.append(_fenced(doc.paste_block))
    if doc.trust:
        blocks.append(
            _list([f"{_MARKS[t.ok]} **{safe(t.label)}** {safe(t.detail)}".rstrip() for t in doc.trust], raw=True)
        )
    if doc.answers:
        rows = [(a.question, a.answer, a.caveat, a.evidence) for a in doc.answers]
        blocks.append(_rows(("Question", "Answer", "Caveat", "Evidence"), (False,) * 4, rows))
    if doc.unknown:
        blocks += ["**Not answered**", _list(doc.unknown)]
    return blocks


def _fenced(text: str) -> str:
    """A code block whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text.strip()}\n{fence}"


def _quote(notes: str) -> str:
    harmless = notes.replace("&", "&amp;").replace("<", "&lt;")
    return "\n".join(f"> {line}".rstrip() for line in harmless.splitlines())


def _terms(terms: Iterable[Term]) -> str:
    return _list([f"**{safe(name)}**: {safe(text)}" for name, text in terms], raw=True)


def _list(texts: Iterable[str], *, ordered: bool = False, raw: bool = False) -> str:
    made = [text if raw else safe(text) for text in texts]
    return "\n".join(f"{i}. {text}" if ordered else f"- {text}" for i, text in enumerate(made, 1))


def _table(table: Table) -> str:
    return _rows(
        tuple(column.name for column in table.columns),
        tuple(column.number for column in table.columns),
        [(row.texts[0] + _SAID.get(row.mark, ""), *row.texts[1:]) for row in table.rows],
    )


def _rows(names: tuple[str, ...], right: tuple[bool, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [
        "| " + " | ".join(safe(name) for name in names) + " |",
        "| " + " | ".join("---:" if number else "---" for number in right) + " |",
    ]
    lines += ["| " + " | ".join(safe(text) for text in row) + " |" for row in rows]
    return "\n".join(lines)


def _captions(doc: Document, *keys: str) -> list[str]:
    """What the plots' captions say, and why a plot is missing."""
    figures = [doc.figures[key] for key in keys]
    return [_list([_caption(figure) for figure in figures], raw=True)]


def _caption(figure: Figure) -> str:
    look_for = f" Look for: {safe(figure.look_for)}" if figure.look_for else ""
    return f"*{safe(figure.title)}*: {safe(figure.caption or figure.missing)}{look_for}"


def _diagnostics(findings: Findings, doc: Document) -> list[str]:
    """First and last reading of each quantity per batch size, with a sparkline between; every plot's caption."""
    if not doc.diagnostics:
        return []
    rows = []
    for quantity, parts in findings.diagnostics.parts.items():
        if quantity == "seconds" or quantity.endswith("_uniform"):
            continue
        part = "all" if "all" in parts else next((p for p in reversed(parts) if "/head" not in p), parts[-1])
        for row, run in first_runs(findings.surface):
            name = f"{quantity}/{part}"
            values = [r.diagnostics[name] for r in run.rows if r.diagnostics and name in r.diagnostics]
            if values:
                ends = (f"{values[0]:.3g}", sparkline(values), f"{values[-1]:.3g}")
                rows.append((quantity.replace("_", " "), part, f"{row.global_batch_size:,}", *ends))
    names = ("quantity", "of", "batch", "first", "in between", "last")
    return [
        "### Diagnostics",
        _rows(names, (False, False, True, True, False, True), rows),
        _list([_caption(figure) for figure in doc.diagnostics], raw=True),
    ]


def _curves(findings: Findings) -> list[str]:
    """Sparklines of validation and training loss per batch size, all on one scale."""
    pairs = first_runs(findings.surface)
    curves = [
        (
            row,
            [r.val_loss for r in run.rows if r.val_loss is not None],
            [r.train_loss for r in run.rows if r.train_loss is not None],
        )
        for row, run in pairs
    ]
    values = [v for _, val, _ in curves for v in val]
    if not values:
        return []
    low, high = min(values), max(values)
    rows = [
        (
            f"{row.global_batch_size:,}",
            format_learning_rate(row.best.learning_rate if row.best else None),
            sparkline(val, low, high),
            sparkline(train, low, high),
            format_loss(val[-1]) if val else "–",
        )
        for row, val, train in curves
    ]
    note = f"Bars run from {format_loss(low)} to {format_loss(high)} over the {Words.of(findings).units} of a run (lowest seed)."
    names = ("batch", "LR", "validation loss", "training loss", "last")
    return [_rows(names, (True, True, False, False, True), rows), note]


def _memory(doc: Document) -> list[str]:
    section = doc.memory
    return [
        *(("### The largest micro-batch", _terms(section.answer)) if section.answer else ()),
        *(
            ("### Who holds the memory, by phase", _table(section.holders), safe(section.holders_note))
            if section.holders.rows
            else ()
        ),
        *(("### What each saving buys", _table(section.variants)) if section.variants.rows else ()),
        *(("### On other cards", _table(section.cards), safe(section.cards_note)) if section.cards.rows else ()),
    ]


def _advice(item: Advice) -> str:
    return f"- **{safe(item.goal)}: {safe(item.headline)}**, {safe(item.detail)}. {safe(item.why)}"


def _critical(doc: Document) -> list[str]:
    section = doc.critical
    if not section.estimators.rows:
        return ["## Critical batch size", safe(section.nothing)]
    return [
        "## Critical batch size",
        _table(section.estimators),
        _list(section.disagreement),
        *_captions(doc, "noise-scale", "cost-to-target"),
        *((_table(section.along),) if section.along.rows else ()),
        *((_table(section.series),) if section.series.rows else ()),
        *((_table(section.costs), safe(section.costs_note)) if section.costs.rows else ()),
        *((_table(section.branches),) if section.branches.rows else ()),
        _list(section.schedule),
        _terms(section.definitions),
        _list(section.effort),
    ]


def _checks(doc: Document) -> list[str]:
    if not doc.checks:
        return []
    lines = [f"{_CHECKS[status]} **{safe(name)}** {safe(text)}" for name, status, text in doc.checks]
    return ["### Checks of the task before the study", _list(lines, raw=True)]
