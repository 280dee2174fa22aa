"""What each saving buys, on the simulated device, which has none of them but accumulation."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchlab.analysis.capacity_text import ladder_lines
from batchlab.cli import run
from batchlab.engines.inline import InlineEngine
from batchlab.engines.local import LocalEngine
from batchlab.ladder import RUNGS, climb
from batchlab.protocols import Engine
from batchlab.simulated.machine import simulation
from batchlab.stages.capacity import Aim
from batchlab.what import merge, resolve_what

LARGEST = simulation({}).machine.max_micro_batch_size()


def inline(folder: Path, workers: int) -> Engine:
    return InlineEngine(folder)


def test_every_saving_has_a_rung_or_a_reason() -> None:
    values = resolve_what("simulated")
    values["device"] = {**values.get("device", {}), "headroom": "0"}
    rungs = {rung.name: rung for rung in climb(values, inline, Aim())}
    assert list(rungs) == list(RUNGS)
    plain = rungs["as it is"]
    assert (plain.max_micro_batch_size, plain.status) == (LARGEST, "verified")
    assert rungs["one pass per step"].max_micro_batch_size == LARGEST
    assert plain.measured_at is not None
    assert plain.tokens_per_second
    for name in ("bf16", "checkpointing", "chunked loss", "fused optimizer"):
        assert "simulated device always computes in float64" in rungs[name].why_not
    text = "\n".join(ladder_lines(list(rungs.values())))
    assert f"{LARGEST:,} (verified)" in text
    assert "not possible" in text


def test_the_ladder_of_another_card_is_predicted_and_not_timed() -> None:
    rung = climb(resolve_what("simulated"), inline, Aim(card_bytes=2**30))[0]
    assert rung.status == "predicted"
    assert rung.tokens_per_second is None
    assert rung.max_micro_batch_size


def test_it_is_printed_after_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["capacity", "simulated", "--ladder", "--out", str(tmp_path / "study")]) == 0
    assert "ladder: each saving alone" in capsys.readouterr().out


@pytest.mark.slow
def test_a_saving_changes_what_fits_in_a_real_model(tmp_path: Path) -> None:
    """Sizes are predicted only, so that this needs no more than a worker for each rung."""
    text = tmp_path / "text.txt"
    text.write_text("It was a bright cold day in April, and the clocks were striking thirteen. " * 4000)
    values = merge(resolve_what("quickstart"), {"data": {"path": str(text)}})
    two = {name: RUNGS[name] for name in ("as it is", "checkpointing")}
    plain, checkpointed = climb(values, LocalEngine, Aim(card_bytes=2**27), two)
    assert plain.max_micro_batch_size is not None
    assert (checkpointed.max_micro_batch_size or 0) > 1.1 * plain.max_micro_batch_size, checkpointed
