from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from batchlab.analysis.assemble import assemble
from batchlab.core.record import PhasePeak, TracePoint
from batchlab.words.memory import trace_note

Study = Callable[..., Any]


def traced(size: int) -> TracePoint:
    peak = PhasePeak(
        phase="backward",
        parameter_bytes=0,
        gradient_bytes=0,
        optimizer_bytes=0,
        activation_bytes=size << 20,
        temporary_bytes=0,
    )
    return TracePoint(micro_batch_size=size, phases=(peak,))


def test_the_note_says_at_which_size_was_traced(synthetic_study: Study) -> None:
    found = assemble(*synthetic_study())
    assert found.memory is not None
    assert trace_note(found.memory) == ""
    with_traces = replace(found.memory, traced=(traced(2), traced(8), traced(48)))
    assert trace_note(with_traces).startswith("Traced at micro-batch 48, ")
