"""The experiment page, and a person's Markdown as harmless HTML."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.analysis.findings import Findings
from batchlab.report.document import build_document
from batchlab.report.html import render_html
from batchlab.report.notes import notes_html, notes_page
from batchlab.words.notes import Revision
from batchlab.words.story import tell

BUDGET = {
    "token_budget": 65536,
    "runs_planned": 12,
    "runs_at_most": 20,
    "seconds_planned": 7200.0,
    "undertrained": [64],
    "text": "",
}
BLOCK = re.compile(r'/?(p|ul|ol|li|pre|code|blockquote|h3)|[bh]r /|ol start="\d+"|(h3|code) class="[^"]*"')
SECTIONS = [
    "Experiment",
    "Objective",
    "Hypothesis",
    "Frozen variables",
    "Independent variables",
    "Design and budget",
    "Metrics",
    "Expected outcome",
    "Results",
    "Interpretation",
    "What we adopt",
    "Follow-ups",
]


def test_the_page_is_filled_in_from_the_study(study: Callable[[str], Findings]) -> None:
    found = study("whole")
    page = notes_page(found, (1e-3, 3e-3), BUDGET, Revision("2bacec8f01", "main", changed=True), 1_790_000_000.0)
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == SECTIONS
    parts = dict(zip(SECTIONS, re.split(r"^## .+\n", page, flags=re.MULTILINE)[1:], strict=True))
    assert f"{found.task_info.parameter_count:,} parameters" in parts["Frozen variables"]
    assert "\n- optimizer: " in parts["Frozen variables"]
    assert "learning rates" not in parts["Frozen variables"]
    assert "- learning rate: 1.0e-3 and 3.0e-3\n" in parts["Independent variables"]
    assert parts["Design and budget"].count("\n- ") == 5
    assert "- date: 2026-09-21 14:13 UTC\n" in parts["Experiment"]
    assert "- commit: 2bacec8f01 (main), with uncommitted changes\n" in parts["Experiment"]
    assert "- category: hyperparameters" in parts["Experiment"]
    assert "a simulated processor" in parts["Experiment"]
    assert "- core: training loss, validation loss, perplexity, tokens/s" in parts["Metrics"]
    assert "(results.csv)" in parts["Results"]
    assert "\n\n\n" not in page


def test_the_page_holds_text_as_it_is(hostile: Findings, attack: str) -> None:
    assert attack in notes_page(hostile, (1e-3,), BUDGET, None, 1_790_000_000.0)


def test_blocks_of_markdown() -> None:
    text = """# Title #
one line
and the next

- first
- second
  goes on
  - inner

1. one
2. two
## Below
> quoted

```
# not a heading
```
last"""
    assert notes_html(text).replace("\n", "") == (
        '<h3 class="level-1">Title</h3>'
        "<p>one line<br />and the next</p>"
        "<ul><li>first</li><li>second<br />goes on<ul><li>inner</li></ul></li></ul>"
        "<ol><li>one</li><li>two</li></ol>"
        '<h3 class="level-2">Below</h3>'
        "<blockquote><p>quoted</p></blockquote>"
        "<pre><code># not a heading</code></pre>"
        "<p>last</p>"
    )
    assert notes_html("") == ""
    assert notes_html("```\nnever closed") == "<pre><code>never closed</code></pre>\n"


@pytest.mark.parametrize(
    "text",
    [
        "[x](javascript:alert(1))",
        "![x](https://example.org/x.png)",
        "<https://example.org>",
        "[x]: https://example.org",
        "<script>alert(1)</script>",
        "<!-- hidden -->",
        "a *b* _c_ `d` &amp; \\*",
    ],
)
def test_what_is_inside_a_block_stays_as_typed(text: str) -> None:
    assert notes_html(text) == f"<p>{html.escape(text)}</p>\n"


@given(st.text(alphabet=st.sampled_from(list("#-*1.) `~ab<>\n")), max_size=80))
def test_no_word_is_lost(text: str) -> None:
    made = notes_html(text)
    # the line that opens a fence may name a language, which becomes a class
    languages = "".join(re.findall(r'class="language-([^"]*)"', made))
    shown = html.unescape(re.sub(r"<[^>]*>", "", made) + languages)
    assert Counter(c for c in shown if c in "ab<") <= Counter(c for c in text if c in "ab<")
    if "```" not in text and "~~~" not in text:
        assert Counter(c for c in shown if c in "ab<") == Counter(c for c in text if c in "ab<")


@given(st.text(max_size=60), st.text(alphabet=st.sampled_from(list("[]()!<>:/&;#x'\"`_*\\ \nab")), max_size=60))
def test_only_tags_of_blocks_come_out(anything: str, markup: str) -> None:
    for text in (anything, markup):
        tags = set(re.findall(r"<([^>]*)>", notes_html(text)))
        assert all(BLOCK.fullmatch(tag) for tag in tags), tags


def test_the_report_shows_blocks_escaped(study: Callable[[str], Findings]) -> None:
    text = render_html(
        build_document(study("whole"), tell(study("whole")), None, "# <b>big</b>\n\n- a & b\n\n```\n<script>\n```\n")
    )
    assert '<h3 class="level-1">&lt;b&gt;big&lt;/b&gt;</h3>' in text
    assert "<ul>\n<li>a &amp; b</li>\n</ul>" in text
    assert "<pre><code>&lt;script&gt;\n</code></pre>" in text
