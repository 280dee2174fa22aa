"""The experiment page, and a person's Markdown told apart into blocks."""

from __future__ import annotations

import re
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from batchlab.analysis.findings import Findings
from batchlab.report.html import render_html
from batchlab.report.notes import Block, notes_blocks, notes_page
from batchlab.words.story import tell

BUDGET = {
    "token_budget": 65536,
    "runs_planned": 12,
    "runs_at_most": 20,
    "seconds_planned": 7200.0,
    "undertrained": [64],
    "text": "",
}
SECTIONS = [
    "Objective",
    "Hypothesis",
    "Frozen variables",
    "Independent variables",
    "Design and budget",
    "Expected outcome",
    "Results",
    "Interpretation",
    "What we adopt",
    "Follow-ups",
]


def test_the_page_is_filled_in_from_the_study(study: Callable[[str], Findings]) -> None:
    found = study("whole")
    page = notes_page(found, (1e-3, 3e-3), BUDGET)
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == SECTIONS
    parts = dict(zip(SECTIONS, re.split(r"^## .+\n", page, flags=re.MULTILINE)[1:], strict=True))
    assert f"{found.task_info.parameter_count:,} parameters" in parts["Frozen variables"]
    assert "- optimizer: " in parts["Frozen variables"]
    assert "learning rates" not in parts["Frozen variables"]
    assert "- learning rate: 1.0e-3 and 3.0e-3" in parts["Independent variables"]
    largest = found.experiment.batch.global_batch_sizes[-1]
    steps = 65536 // (largest * found.experiment.sequence_length)
    assert f"batch {largest:,} gets {steps:,} steps" in parts["Design and budget"]
    assert "12 training runs planned, 20 at most" in parts["Design and budget"]
    assert "2 h" in parts["Design and budget"]
    assert "too few steps to be judged: batch 64" in parts["Design and budget"]
    assert "(results.csv)" in parts["Results"]


def test_blocks_of_markdown() -> None:
    text = """# Title #
one line
and the next

- first
- second
  goes on
* third

1. one
2) two
## Below
```
# not a heading
```
last"""
    assert notes_blocks(text) == (
        Block("heading", ("Title",), 1),
        Block("paragraph", ("one line\nand the next",)),
        Block("bullets", ("first", "second\ngoes on", "third")),
        Block("numbers", ("one", "two")),
        Block("heading", ("Below",), 2),
        Block("code", ("# not a heading",)),
        Block("paragraph", ("last",)),
    )
    assert notes_blocks("") == ()
    assert notes_blocks("```\nnever closed") == (Block("code", ("never closed",)),)


@given(st.text(alphabet=st.sampled_from(list("#-*1.) `~ab<\n")), max_size=80))
def test_no_word_is_lost(text: str) -> None:
    shown = "".join(part for block in notes_blocks(text) for part in block.texts)
    assert [c for c in shown if c in "ab<"] == [c for c in _outside_fences(text) if c in "ab<"]


def _outside_fences(text: str) -> str:
    """A fence's own line may carry the name of a language, which is not shown."""
    kept, inside = [], ""
    for line in text.splitlines():
        fence = re.match(r"\s*(```+|~~~+)", line)
        if inside:
            inside = "" if line.strip() == inside else inside
            kept += [line] if inside else []
        elif fence:
            inside = fence[1]
        else:
            kept.append(line)
    return "".join(kept)


def test_the_report_shows_blocks_escaped(study: Callable[[str], Findings]) -> None:
    text = render_html(study("whole"), tell(study("whole")), None, "# <b>big</b>\n\n- a & b\n\n```\n<script>\n```\n")
    assert '<h3 class="level-1">&lt;b&gt;big&lt;/b&gt;</h3>' in text
    assert "<ul><li>a &amp; b</li></ul>" in text
    assert "<pre>&lt;script&gt;</pre>" in text
