"""report.html: self-contained, small, and safe against what people typed."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings
from batchlab.report.document import build_document
from batchlab.report.figures.build import build_figures
from batchlab.report.figures.diagnostics import diagnostic_figures
from batchlab.report.html import render_html, unbroken
from batchlab.report.markdown import render_markdown
from batchlab.report.tables import cell_key
from batchlab.report.write import render_report
from batchlab.words.answers import Answer, Answers
from batchlab.words.recommendations import why_none
from batchlab.words.results import banner
from batchlab.words.story import Story, tell

Study = Callable[[str], Findings]
BESIDE = {"report.md", "results.csv", "notes.md"}  # files of the study


MOST_WORDS = 1500
"""Before anything is unfolded, of a study of 33 runs."""


class Page(HTMLParser):
    """The page as a browser parses it: elements with attributes, text, contents of scripts.

    `unfolded`: the text without what is folded away, but with the lines that unfold it.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.scripts: list[tuple[dict[str, str], str]] = []
        self.words: list[str] = []
        self._inside = ""
        self._folds: list[bool] = []
        self._summary = False
        self.unfolded: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        if tag in ("script", "style", "title", "noscript"):
            self._inside = tag
        if tag == "details":
            self._folds.append("open" not in dict(attrs))
        self._summary = self._summary or tag == "summary"

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = ""
        if tag == "details":
            self._folds.pop()
        self._summary = self._summary and tag != "summary"

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts.append((self.elements[-1][1], data))
        elif not self._inside:
            self.words.append(data)
            above = self._folds[:-1] if self._summary else self._folds
            if not any(above):
                self.unfolded.append(data)

    @property
    def visible(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_every_state_renders(study: Study, state: str, plan: Any) -> None:
    found = study(state)
    text = render_html(build_document(found, tell(found), plan() if found.recommended else None, None))
    page = Page(text)
    assert len(text.encode()) <= 3 * 2**20
    assert "None" not in page.visible.replace("None of", "")
    plots = [a["data-figure"] for tag, a in page.elements if "data-figure" in a]
    diagnostic = [figure.key for figure in diagnostic_figures(found)]
    assert [key for key in plots if key in diagnostic] == diagnostic
    others = [key for key, figure in build_figures(found).items() if figure.drawable]
    assert [key for key in plots if key not in diagnostic] == others
    data = json.loads(next(text for attrs, text in page.scripts if attrs.get("id") == "figures"))
    assert set(data) == set(plots)


def test_a_study_stopped_before_its_first_stage_renders(study: Study) -> None:
    nothing = replace(
        study("nothing trained"),
        environment=None,
        token_budget=None,
        memory=None,
        throughput=None,
        surface=None,
        checks=(),
        planned_runs=None,
    )
    page = Page(render_html(build_document(nothing, tell(nothing), None, None)))
    assert why_none(nothing) in page.visible
    assert banner(nothing) in page.visible
    assert not any("data-figure" in attributes for _, attributes in page.elements)
    assert "No recommendation" in render_markdown(build_document(nothing, tell(nothing), None, None))


def test_numbers_that_belong_together_are_not_broken_and_stay_escaped() -> None:
    assert unbroken("<b> LR 3.0e-4: 2.40 [2.39, 2.41]") == (
        '&lt;b&gt; <span class="unbroken">LR 3.0e-4</span>: 2.40 <span class="unbroken">[2.39, 2.41]</span>'
    )


def test_the_first_screen_comes_before_everything_else(study: Study, plan: Any) -> None:
    text = render_html(build_document(study("whole"), tell(study("whole")), plan(), None))
    places = [
        text.index(f'id="{name}"')
        for name in ("answer", "picture", "trust", "unknown", "paste", "summary", "results", "conclusion", "setup")
    ]
    assert places == sorted(places)
    found = study("whole")
    page = Page(text)
    for item in tell(found).trust:
        assert item.label in page.visible
    for answer in tell(found).answers:
        assert answer.question.replace("'", "’") in page.visible.replace("'", "’")


def test_a_study_of_33_runs_has_few_words_and_bytes_before_anything_is_unfolded(
    synthetic_study: Callable[..., Any], plan: Any
) -> None:
    found = assemble(*synthetic_study(learning_rates=(3e-4, 1e-3, 3e-3, 1e-2, 3e-2), seeds=5))
    assert len(found.runs) >= 33
    for notes in (None, ""):
        text = render_report(found, plan(), notes)["report.html"]
        assert len(" ".join(Page(text).unfolded).split()) <= MOST_WORDS
        assert len(text.encode()) <= 2 * 2**20


def test_every_run_can_be_found_from_its_cell(study: Study, plan: Any) -> None:
    found = study("failures")
    page = Page(render_html(build_document(found, tell(found), plan(), None)))
    rows = [attributes for tag, attributes in page.elements if tag == "tr" and "data-key" in attributes]
    links = {a["href"] for tag, a in page.elements if tag == "a" and a.get("href", "").startswith("runs/")}
    assert links == {f"runs/{run.run_id}/log.txt" for run in found.runs}
    openers = {a["data-open"] for tag, a in page.elements if "data-open" in a}
    data = json.loads(next(text for attrs, text in page.scripts if attrs.get("id") == "figures"))
    clicks = {key for line in data["surface"]["data"][0]["customdata"] for key in line}
    cells = {cell_key(run.global_batch_size, run.learning_rate) for run in found.runs}
    assert openers == cells
    assert cells <= clicks
    assert {row["data-key"] for row in rows} == cells


def test_all_rows_to_look_up_are_there_and_those_that_apply_are_marked(study: Study, plan: Any) -> None:
    found = study("failures")
    page = Page(render_html(build_document(found, tell(found), plan(), None)))
    for issue in ("Out of memory", "Training unstable", "Slow convergence", "Poor generalization"):  # those of 002
        assert issue in page.visible
    assert sum(a.get("class") == "applies" for tag, a in page.elements if tag == "tr") >= 2


def test_an_unfinished_study_says_when_it_was_written(study: Study, plan: Any) -> None:
    partial, whole = (render_report(study(state), plan(), None, 1_790_000_000.0) for state in ("partial", "whole"))
    assert 'data-written="1790000000"' in partial["report.html"]
    assert "Written 2026-09-21 14:13 UTC" in partial["report.md"]
    assert "data-written=" not in whole["report.html"]


def test_nothing_is_fetched_and_only_our_scripts_may_run(study: Study, plan: Any) -> None:
    page = Page(render_html(build_document(study("whole"), tell(study("whole")), plan(), None)))
    for tag, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        assert tag not in ("iframe", "object", "embed", "base", "form")
        for name in ("src", "href"):
            asked = attributes.get(name, "#")
            assert asked in BESIDE or asked.startswith(("#", "data:,", "runs/"))
    policy = next(a["content"] for t, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    runnable = [text for attributes, text in page.scripts if "type" not in attributes]
    assert len(runnable) == 2
    for text in runnable:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_hostile_text_stays_text(hostile: Findings, hostile_story: Story, plan: Any, attack: str) -> None:
    text = render_html(build_document(hostile, hostile_story, plan(attack), attack))
    page = Page(text)
    assert sum(tag == "script" for tag, _ in page.elements) == 4
    assert not any(tag == "img" for tag, _ in page.elements)
    assert not any("onerror" in attributes for _, attributes in page.elements)
    assert attack in "".join(page.words)  # the notes, as they were typed
    for attributes, content in page.scripts:
        if attributes.get("type") == "application/json":
            assert not set("<>&") & set(content)
            json.loads(content)
    assert "/home/secret" not in text


def test_partial_studies_have_a_banner(study: Study, plan: Any) -> None:
    found = study("partial")
    assert banner(found) in Page(render_html(build_document(found, tell(found), plan(), None))).visible
    assert 'class="partial" role="status"' not in render_html(
        build_document(study("whole"), tell(study("whole")), plan(), None)
    )


def test_studies_in_samples_never_speak_of_tokens(study: Study) -> None:
    # the sentences of `words` are tested there
    found = study("samples")
    page = Page(
        render_html(
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
        )
    )
    assert not re.findall(r"[^.]*token[^.]*", page.visible, flags=re.IGNORECASE)
    assert not any("token" in value.lower() for _, attributes in page.elements for value in attributes.values())


def test_notes_are_shown_when_there_are_any_and_linked_when_there_could_be(study: Study, plan: Any) -> None:
    written, untouched, none = (
        render_html(build_document(study("whole"), tell(study("whole")), plan(), notes))
        for notes in ("one\n<i>two</i>", "", None)
    )
    assert 'id="notes"' in written
    assert '<p class="missing"><a href="notes.md">' not in written
    assert '<p class="missing"><a href="notes.md">' in untouched
    assert 'id="notes"' not in none
    assert "notes.md" not in none


def test_equal_findings_give_equal_pages(study: Study, plan: Any) -> None:
    assert render_html(build_document(study("partial"), tell(study("partial")), plan(), "n")) == render_html(
        build_document(study("partial"), tell(study("partial")), plan(), "n")
    )


def test_a_report_is_two_files_the_smaller_first(study: Study, plan: Any) -> None:
    texts = render_report(study("whole"), plan(), None)
    assert list(texts) == ["report.md", "report.html"] == sorted(texts, key=lambda name: len(texts[name]))
    assert texts["report.html"].startswith("<!doctype html>")
    assert texts["report.md"].startswith("# synthetic")


def test_reports_are_written_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import batchlab\n"
        "assert not {'jinja2', 'markdown_it', 'scipy'} & set(sys.modules), 'import batchlab loads heavy modules'\n"
        "import batchlab.report.write\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
