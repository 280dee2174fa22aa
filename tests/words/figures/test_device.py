from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.capacity.capacity import MemoryPoint
from batchlab.analysis.findings import Findings
from batchlab.core.batch import Unit
from batchlab.storage.decisions import LimitKind
from batchlab.words.answers import answers
from batchlab.words.capacity_reasons import describe_limit
from batchlab.words.figures.device import (
    describe_failed,
    describe_speed,
    failed_name,
    memory_caption,
    speed_caption,
    trace_name,
)
from batchlab.words.method import method
from batchlab.words.units import Units

Study = Callable[..., Any]


@pytest.fixture
def found(synthetic_study: Study) -> Findings:
    return assemble(*synthetic_study())


def test_speed_gives_n_and_what_bars_are(found: Findings) -> None:
    speed = found.throughput
    assert speed is not None
    assert speed_caption(speed).startswith(f"Median of n = {speed.points[0].tokens_per_second.n} timed blocks")
    where, rate, *_, warmup = describe_speed(speed.points[0], Units(Unit.TOKENS, 64))
    assert where == "batch 4 as 4 × 1"
    assert rate.endswith(f"tokens/s, median of {speed.points[0].tokens_per_second.n}")
    assert warmup.endswith(" s, excluded")


def test_memory_gives_the_line_and_the_limit(found: Findings) -> None:
    memory = found.memory
    assert memory is not None
    assert memory.line is not None
    ran = [point for point in memory.points if point.fits]
    failed = len(memory.points) - len(ran)
    said = memory_caption(memory, ran, limit_drawn=True)
    assert said.startswith(f"n = {len(ran)} probes that ran, and {failed:,} ")
    assert f"{memory.line.slope / 2**20:.3g} MiB per sample (R² {memory.line.r_squared:.3f}, " in said
    far = replace(memory, limit_bytes=2**40, limit_is=None)
    assert memory_caption(far, ran, limit_drawn=False).endswith("The limit is far above this plot.")


def test_failed_probes_and_traces_are_named(found: Findings) -> None:
    point = MemoryPoint(96, False, None, "Out of memory. " + "x" * 200)
    assert describe_failed(point) == ("micro-batch 96 did not fit", point.reason[:160])
    assert failed_name(on_line=True) == "did not fit (drawn on the line)"
    assert failed_name(on_line=False) == "did not fit"
    assert found.memory is not None
    assert trace_name(replace(found.memory, traced=())) == "trace"


@pytest.mark.parametrize("kind", LimitKind)
def test_what_a_limit_bounds_is_described_everywhere(found: Findings, kind: LimitKind) -> None:
    assert found.memory is not None
    memory = replace(found.memory, limit_bytes=2**30, limit_is=kind)
    texts = (
        dict(method(replace(found, memory=memory)))["memory"],
        " ".join(answer.caveat for answer in answers(replace(found, memory=memory))),
    )
    for text in texts:
        assert describe_limit(kind) in text
