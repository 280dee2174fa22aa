from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.capacity.capacity import MemoryVariant
from batchlab.analysis.findings import Findings
from batchlab.words.guidance import guidance

Study = Callable[..., Any]


@pytest.fixture
def found(synthetic_study: Study) -> Findings:
    return assemble(*synthetic_study())


def test_the_compromise_weighs_speed_against_loss(found: Findings) -> None:
    assert dict(guidance(found))["production"].startswith("Batch 16 is the compromise: 80 % of the highest speed")


def test_batches_beyond_the_memory_are_accumulated(found: Findings) -> None:
    assert "micro-batch 48 × accum 2 is batch 96" in dict(guidance(found))["batches beyond the memory"]
    assert found.memory is not None
    variant = MemoryVariant("checkpointing", 96, "verified")
    with_variant = replace(found, memory=replace(found.memory, variants=(variant,)))
    assert "checkpointing 96" in dict(guidance(with_variant))["batches beyond the memory"]
    mixing = replace(found, sample_independent=False)
    assert "accumulation would change what is trained" in dict(guidance(mixing))["batches beyond the memory"]


def test_a_slow_size_is_explained_by_what_was_recorded(found: Findings) -> None:
    assert "a size that is slow" not in dict(guidance(found))
    speed, memory = found.throughput, found.memory
    assert speed is not None
    assert memory is not None
    slow = replace(speed, falls_off=(64,))
    far = replace(memory, limit_bytes=2**50)
    assert "slower kernel" in dict(guidance(replace(found, throughput=slow, memory=far)))["a size that is slow"]
    peak = next(p.peak_bytes for p in speed.points if p.layout.global_batch_size == 64)
    near = replace(memory, limit_bytes=peak)
    assert "host memory" in dict(guidance(replace(found, throughput=slow, memory=near)))["a size that is slow"]
    disturbed = replace(slow, disturbed=(64,))
    assert "other programs" in dict(guidance(replace(found, throughput=disturbed)))["a size that is slow"]


def test_nothing_is_said_of_what_was_not_measured(found: Findings) -> None:
    assert guidance(replace(found, memory=None, throughput=None)) == ()
