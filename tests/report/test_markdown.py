"""report.md: the same content as text, which no typed text can break."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from batchlab.analysis.findings import Findings
from batchlab.report.document import build_document
from batchlab.report.markdown import render_markdown, safe
from batchlab.words.answers import Answer, Answers
from batchlab.words.results import banner
from batchlab.words.story import Story, tell

Study = Callable[[str], Findings]


def tables(text: str) -> list[list[str]]:
    """Every table as its lines."""
    found: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return [table for table in found if table]


def cells(line: str) -> int:
    return len(re.findall(r"(?<!\\)\|", line)) - 1


def test_every_state_renders_with_whole_tables(study: Study, state: str, plan: Any) -> None:
    found = study(state)
    text = render_markdown(build_document(found, tell(found), plan() if found.recommended else None, None))
    for heading in (
        "Summary",
        "Results",
        "Findings",
        "Training dynamics",
        "Recommendations",
        "Failures",
        "Conclusion",
        "Method",
    ):
        assert f"\n## {heading}" in text
    assert "None" not in re.sub(r"None of|`[^`]*`", "", text)
    assert "nan" not in text.split()
    for table in tables(text):
        assert len({cells(line) for line in table}) == 1


def test_results_table_states_every_batch_size_with_its_interval(study: Study, plan: Any) -> None:
    found = study("whole")
    assert found.surface is not None
    text = render_markdown(build_document(found, tell(found), plan(), None))
    results = next(t for t in tables(text) if "val loss" in t[0])
    assert len(results) == 2 + len(found.experiment.batch.global_batch_sizes)
    best = found.surface.best
    assert best is not None
    assert best.val_loss is not None
    line = next(line for line in results if "(best)" in line)
    assert f"| {best.global_batch_size} (best) |" in line
    assert f"{best.val_loss.value:.3f}" in line
    assert f"{best.val_loss.low:.3f}" in line
    assert "(tied)" in text


def test_one_seed_names_no_best(study: Study, plan: Any) -> None:
    results = next(
        t
        for t in tables(render_markdown(build_document(study("one seed"), tell(study("one seed")), plan(), None)))
        if "best LR" in t[0]
    )
    assert not any("(best)" in line for line in results)
    assert sum("(lowest)" in line for line in results) == 1


def test_sizes_that_never_ran_are_listed(study: Study) -> None:
    results = next(
        t
        for t in tables(
            render_markdown(build_document(study("nothing trained"), tell(study("nothing trained")), None, None))
        )
        if "best LR" in t[0]
    )
    assert len(results) == 2 + 5
    assert all("not run" in line for line in results[2:])


def test_the_failures_of_a_size_are_its_status(study: Study, plan: Any) -> None:
    results = next(
        t
        for t in tables(render_markdown(build_document(study("failures"), tell(study("failures")), plan(), None)))
        if "best LR" in t[0]
    )
    assert "out of memory" in next(line for line in results if line.startswith("| 64"))
    assert "failed" in next(line for line in results if line.startswith("| 4 "))


def test_partial_studies_say_how_far_they_are(study: Study, plan: Any) -> None:
    found = study("partial")
    assert f"\n> **{banner(found)}**\n" in render_markdown(build_document(found, tell(found), plan(), None))
    assert "\n> **" not in render_markdown(build_document(study("whole"), tell(study("whole")), plan(), None))


def test_no_block_leaves_more_than_one_empty_line(study: Study, state: str, plan: Any) -> None:
    found = study(state)
    text = render_markdown(build_document(found, tell(found), plan() if found.recommended else None, None))
    assert "\n\n\n" not in text
    assert not any(line != line.rstrip() for line in text.splitlines() if not line.startswith(("- ✓", "- ✗", "- ?")))
    for before, line in itertools.pairwise(text.splitlines()):
        starts = line.startswith(("#", "|")) and not before.startswith("|")
        assert not starts or not before, line


def test_curves_are_sparklines(study: Study, plan: Any) -> None:
    assert re.search(
        r"\| █[▁▂▃▄▅▆▇█]+ \|", render_markdown(build_document(study("whole"), tell(study("whole")), plan(), None))
    )


def test_studies_in_samples_never_speak_of_tokens(study: Study) -> None:
    # the sentences of `words` are tested there
    found = study("samples")
    assert (
        "token"
        not in render_markdown(
            build_document(
                found,
                replace(
                    tell(found),
                    trust=(),
                    unknown=(),
                    failures=(),
                    conclusions=(),
                    answers=Answers(*[Answer("", "", "", "")] * 5),
                ),
                None,
                None,
            )
        ).lower()
    )


def test_beta2_of_every_size_is_in_the_method(study: Study, plan: Any) -> None:
    text = render_markdown(build_document(study("whole"), tell(study("whole")), plan(), None))
    assert re.search(r"\| 16 \| 0\.95 \| 1e-08 \|", text)
    assert re.search(r"\| 8 \| 0\.97468 \| 1\.4e-08 \|", text)
    assert re.search(r"\| 32 \| 0\.95 \| 7\.1e-09 \|", text)


def test_the_timescale_of_decay_stands_beside_every_learning_rate(study: Study, plan: Any) -> None:
    text = render_markdown(build_document(study("whole"), tell(study("whole")), plan(), None))
    assert re.search(r"\| batch \| LR \| decay timescale, runs \|", text)


def test_hostile_text_stays_text(hostile: Findings, hostile_story: Story, plan: Any, attack: str) -> None:
    text = render_markdown(build_document(hostile, hostile_story, plan("```\n" + attack), attack))
    outside = re.sub(r"^(`{3,})\n.*?\n\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert "<script" not in outside
    assert "<img" not in outside
    assert "<!--" not in outside
    assert not re.search(r"(?<!\\)\]\(", outside.split("## Notes")[0])
    for table in tables(text):
        assert len({cells(line) for line in table}) == 1
    assert "/home/secret" not in text


def test_a_paste_block_cannot_end_its_own_fence(study: Study, plan: Any) -> None:
    text = render_markdown(build_document(study("whole"), tell(study("whole")), plan("```\n# inside\n```"), None))
    assert "````\n```\n# inside\n```\n````" in text


def test_notes_stay_markdown_inside_a_quotation(study: Study, plan: Any) -> None:
    text = render_markdown(
        build_document(study("whole"), tell(study("whole")), plan(), "# mine\n\n*really* <b>bold</b>\n")
    )
    assert "## Notes\n\n> # mine\n>\n> *really* &lt;b>bold&lt;/b>" in text
    assert "## Notes\n\n[notes.md](notes.md) " in render_markdown(
        build_document(study("whole"), tell(study("whole")), plan(), "  \n")
    )
    assert "## Notes" not in render_markdown(build_document(study("whole"), tell(study("whole")), plan(), None))


def test_commands_are_code_and_other_backticks_are_not() -> None:
    assert safe("ask `batchlab capacity --predict 80GiB` first") == "ask `batchlab capacity --predict 80GiB` first"
    assert safe("`a` and `batchlab <b>`") == "\\`a\\` and \\`batchlab &lt;b&gt;\\`"


def test_safe_leaves_ordinary_sentences_alone() -> None:
    sentence = "batch 16 at LR 1.0e-3: val_loss 2.407 (n = 3), 10 % of 5 sizes; see training_plan.json"
    assert safe(sentence) == sentence
    assert safe("two\nlines | <b>") == "two lines \\| &lt;b&gt;"
