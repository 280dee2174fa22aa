"""What the report says of memory besides the plot: categories by phase, memory variants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from batchlab.analysis.capacity.capacity import MemoryVariant
from batchlab.analysis.findings import Findings
from batchlab.core.format import format_bytes
from batchlab.core.record import Phase, PhasePeak, TracePoint
from batchlab.report.document import build_document
from batchlab.report.figures.build import build_figures
from batchlab.report.html import render_html
from batchlab.report.markdown import render_markdown
from batchlab.report.memory import memory_section
from batchlab.words.figures.device import trace_name
from batchlab.words.story import tell

MIB = 2**20


def traced(size: int) -> TracePoint:
    """An optimizer step of 100 MiB whatever the size, and a backward pass that grows beyond it from 5 samples on."""

    def peak(phase: Phase, activations: int, temporaries: int) -> PhasePeak:
        return PhasePeak(
            phase=phase,
            parameter_bytes=10 * MIB,
            gradient_bytes=10 * MIB,
            optimizer_bytes=20 * MIB,
            activation_bytes=activations,
            temporary_bytes=temporaries,
        )

    return TracePoint(
        micro_batch_size=size, phases=(peak("backward", 15 * size * MIB, 0), peak("optimizer", 0, 60 * MIB))
    )


def with_traces(found: Findings) -> Findings:
    assert found.memory is not None
    variants = (
        MemoryVariant("as it is", 48, "verified", 900.0, 16),
        MemoryVariant("chunked loss", why_not="no <linear> layer"),
    )
    traces = tuple(traced(size) for size in (2, 8, 48, 12_000))
    return replace(found, memory=replace(found.memory, traced=traces, variants=variants))


def test_bytes_by_phase_and_category_are_those_of_the_trace(study: Callable[[str], Findings]) -> None:
    section = memory_section(with_traces(study("whole")))
    assert [row.texts[0] for row in section.categories.rows] == ["backward", "optimizer"]
    assert [row.mark for row in section.categories.rows] == ["peak", ""]
    backward = dict(
        zip([column.name for column in section.categories.columns], section.categories.rows[0].texts, strict=True)
    )
    assert backward["activations"] == format_bytes(48 * 15 * MIB)
    assert backward["peak"] == format_bytes((40 + 48 * 15) * MIB)
    assert section.variants.rows[1].texts[-1] == "no <linear> layer"


def test_the_plot_shows_the_bend_and_the_line_only_above_it(study: Callable[[str], Findings]) -> None:
    found = with_traces(study("whole"))
    assert found.memory is not None
    knee = found.memory.knee
    assert knee == 4
    figure = build_figures(found)["memory"]
    by_name = {trace["name"]: trace for trace in figure.data}
    assert by_name["fitted line"]["x"][0] == knee
    assert knee in by_name[trace_name(found.memory)]["x"]
    assert figure.layout
    assert "knee 4" in [note["text"] for note in figure.layout["annotations"]]


def test_both_reports_have_it_and_escape_it(study: Callable[[str], Findings]) -> None:
    found = with_traces(study("whole"))
    page, text = (
        render_html(build_document(found, tell(found), None, None)),
        render_markdown(build_document(found, tell(found), None, None)),
    )
    for heading in ("Memory by category", "Memory variants", "How large on a card I don"):
        assert heading in page
        assert heading in text
    assert "no &lt;linear&gt; layer" in page
    assert "no &lt;linear&gt; layer" in text


def test_studies_that_asked_nothing_of_memory_have_none(study: Callable[[str], Findings]) -> None:
    section = memory_section(study("no capacity"))
    assert (section.answer, section.categories.rows) == ((), ())
