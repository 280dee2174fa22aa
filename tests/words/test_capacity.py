"""The largest micro-batch as a person reads it."""

from __future__ import annotations

from typing import Any

import pytest

from batchlab.analysis.capacity.capacity import Capacity, MemoryPoint, MemoryVariant, Remedy
from batchlab.analysis.capacity.memory import fit_line
from batchlab.core.record import PhasePeak, TracePoint
from batchlab.storage.decisions import LimitKind, SlowProbe
from batchlab.words.capacity import capacity_lines

MIB = 2**20


def capacity(points: tuple[MemoryPoint, ...] = (), **more: Any) -> Capacity:
    known: dict[str, Any] = {
        "max_micro_batch_size": 8,
        "status": "verified",
        "searched_up_to": 100,
        "smallest_failed": None,
    }
    return Capacity(points=points, **{**known, "limit_bytes": 200 * MIB, **more})


def said(found: Capacity) -> str:
    return "\n".join(capacity_lines(found))


def traced(size: int) -> TracePoint:
    peak = PhasePeak(
        phase="backward",
        parameter_bytes=10 * MIB,
        gradient_bytes=10 * MIB,
        optimizer_bytes=20 * MIB,
        activation_bytes=10 * size * MIB,
        temporary_bytes=0,
    )
    return TracePoint(micro_batch_size=size, phases=(peak,))


def test_the_answer_comes_first_and_says_how_it_is_known() -> None:
    points = tuple(MemoryPoint(size, True, (40 + 10 * size) * MIB) for size in (2, 4, 8))
    line = fit_line([(point.micro_batch_size, point.peak_bytes) for point in points if point.peak_bytes is not None])
    text = said(capacity(points, line=line, limit_is=LimitKind.DEVICE_MEMORY, headroom_bytes=20 * MIB))
    assert text.startswith(
        "FITS         micro-batch 8 within 0.20 GiB (verified: whole steps and an evaluation ran at this "
        "size in 1 new process)"
    )
    assert "0.20 GiB (the device's own memory) − headroom 20.0 MiB = 0.18 GiB; 80.0 MiB left" in text
    assert "40.0 MiB + 10.0 MiB per sample (R² 1.0000" in text
    assert "3 probes, 0 out of memory" in text


@pytest.mark.parametrize(("sizes", "odd"), [(6, False), (9, True)])
def test_a_long_search_without_a_trace_says_why(sizes: int, odd: bool) -> None:
    points = tuple(MemoryPoint(size + 1, True, 2**20) for size in range(sizes))
    text = said(capacity(points, untraceable="It branches on values."))
    assert "not traced   It branches on values. Sizes were found by running them" in text
    assert (f"{sizes} where up to 6 are usual: memory is flat at first" in text) == odd


@pytest.mark.parametrize(("shapes", "named"), [(((8, 64), (8,)), True), (None, False)])
def test_the_worst_batch_is_named_as_a_budget_of_elements(shapes, named):
    points = (MemoryPoint(4, True, 2**20, "", ((4, 64), (4,))), MemoryPoint(8, True, 2**21, "", shapes))
    line = "worst batch  the largest samples ran, arrays of 8×64 and 8: a budget of 512 and 8 elements per batch"
    assert (line in said(capacity(points))) == named


def test_a_size_that_ran_without_room_to_rise_is_told() -> None:
    points = (MemoryPoint(1, True, 190 * MIB), MemoryPoint(3, False, None))
    text = said(capacity(points, max_micro_batch_size=None, status="none", smallest_failed=3))
    assert "nothing within 0.20 GiB: micro-batch 1 ran, but its memory rose from batch to batch" in text


def test_where_nothing_fits_it_says_what_is_needed_and_what_would_fit() -> None:
    found = capacity(
        max_micro_batch_size=None,
        status="none",
        limit_bytes=40 * MIB,
        traced=(traced(1), traced(2)),
        remedies=(Remedy("checkpointing", 45 * MIB), Remedy("bf16", 30 * MIB)),
    )
    text = said(found)
    assert "nothing within 40.0 MiB: one sample needs at least 50.0 MiB, of which parameters 10.0 MiB" in text
    assert "bf16: 30.0 MiB by its trace\n" in text
    assert "checkpointing: 45.0 MiB by its trace, still too much on its own" in text


def test_a_model_that_cannot_be_traced_and_a_loss_that_is_not_finite_are_said() -> None:
    points = (MemoryPoint(8, True, 100 * MIB, finite_loss=False),)
    text = said(capacity(points, untraceable="The model branches on a value."))
    assert "not traced   The model branches on a value. Sizes were found by running them." in text
    assert "not finite where it ran" in text


def test_memory_variants_say_what_fits_or_why_they_cannot_be_used() -> None:
    variants = (
        MemoryVariant("as it is", 48, "verified", 900.0, 16),
        MemoryVariant("bf16", 96),
        MemoryVariant("chunked loss", why_not="no linear layer"),
    )
    text = said(capacity((MemoryPoint(8, True, 100 * MIB),), variants=variants))
    assert "48 (verified)   900 per second at 16, measured" in text
    assert "96 (predicted)   speed not measured" in text
    assert "chunked loss  not possible: no linear layer" in text


def test_proved_names_both_processes() -> None:
    text = said(capacity(status="proved", smallest_failed=9))
    assert "proved: whole steps and an evaluation ran at this size in 1 new process, and one more sample failed" in text


def test_where_a_forked_and_a_new_process_disagree_the_sizes_are_named() -> None:
    text = said(capacity(forked_only=(9, 12)))
    assert "not verified 9, 12 fit in a forked process but not in a new one, which decides" in text
    assert "not verified" not in said(capacity())


def test_a_size_that_was_not_run_for_its_time_is_named_with_its_flag() -> None:
    text = said(capacity(too_slow=SlowProbe(predicted=14_000, seconds=300.0, knee=8)))
    assert "larger       about 14,000 by prediction; not run, because its steps would take about 5 min" in text
    assert "--verify-largest runs it" in text


def test_a_range_says_that_memory_depends_on_values_and_what_ran() -> None:
    points = (MemoryPoint(8, True, 100 * MIB),)
    text = said(capacity(points, up_to=9, margin_bytes=10 * MIB, draws=9, untraceable="It branches."))
    assert "micro-batch 8 to 9 within" in text
    assert "memory depends on the values in a batch; 8 ran on 9 different batches" in text
    assert "with 10.0 MiB to spare" in text


def test_where_samples_influence_each_other_nobody_is_told_to_accumulate() -> None:
    mixed = capacity((MemoryPoint(8, True, 100 * MIB),), grad_accum_steps=1, global_batch_sizes=(64,))
    assert "accum" not in said(mixed)
    assert "batches are not split" in said(mixed)
    assert mixed.as_dict()["recommendations"]["accumulation"] is None
    assert mixed.layouts == ()
    independent = capacity((MemoryPoint(8, True, 100 * MIB),), grad_accum_steps=2, global_batch_sizes=(64,))
    assert "64 = 8 × accum 8" in said(independent)


def test_no_amount_of_memory_is_negative() -> None:
    found = capacity((MemoryPoint(8, True, 100 * MIB),), traced=(traced(4), traced(8)), limit_bytes=200 * MIB)
    text = said(found)
    assert "runs used 20.0 MiB less than the trace" in text
    assert "−" not in text.replace("− headroom", "")
    assert "-" not in text.replace("micro-batch", "")


def test_cards_beyond_the_traced_sizes_are_not_printed() -> None:
    assert "cards" not in said(capacity(traced=(traced(4), traced(8))))
    assert "16 GiB: 1,5" in said(capacity(traced=(traced(4), traced(2000))))


@pytest.mark.parametrize("reserved", [None, 60 * MIB])
def test_a_prediction_says_where_reserved_bytes_are_not_known(reserved: int | None) -> None:
    points = (MemoryPoint(2, True, 60 * MIB),)
    of_trace = tuple(traced(size).model_copy(update={"reserved_bytes": reserved}) for size in (2, 4))
    text = said(capacity(points, traced=of_trace, reserved=True))
    assert ("expandable segments" in text) == (reserved is None)
