"""What each memory variant buys: on the simulated device, which has only accumulation, and on a real model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from batchlab.analysis.capacity.capacity import Capacity
from batchlab.cli.app import run
from batchlab.core.experiment import build_experiment
from batchlab.core.settings import merge
from batchlab.max_batch_size import measure_capacity, scratch_session
from batchlab.simulated.machine import simulation
from batchlab.storage.store import Store
from batchlab.study.documents import read_findings
from batchlab.study.stages.capacity import capacity_stage
from batchlab.study.stages.capacity_request import CapacityRequest
from batchlab.study.stages.variants import BASELINE, MEMORY_VARIANTS, variants_stage
from batchlab.study.task_source import resolve_task

LARGEST = simulation({}).machine.max_micro_batch_size()


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The study's folder and what the command printed."""
    folder = tmp_path_factory.mktemp("variants") / "study"
    with pytest.MonkeyPatch.context() as patch:
        printed: list[str] = []
        patch.setattr("builtins.print", lambda *texts, **_: printed.append(" ".join(map(str, texts))))
        assert run(["capacity", "simulated", "--variants", "--headroom", "0", "--out", str(folder)]) == 0
    return folder, "\n".join(printed)


def memory_of(folder: Path) -> Capacity:
    found = read_findings(Store.open(folder)).memory
    assert found is not None
    return found


def test_every_variant_has_a_size_or_a_reason(measured: tuple[Path, str]) -> None:
    folder, printed = measured
    variants = {variant.name: variant for variant in memory_of(folder).variants}
    assert list(variants) == [BASELINE, *MEMORY_VARIANTS]
    plain = variants[BASELINE]
    assert (plain.max_micro_batch_size, plain.status) == (LARGEST, "verified")
    assert variants["no gradient accumulation"].max_micro_batch_size == LARGEST
    assert plain.measured_at is not None
    assert plain.tokens_per_second
    for name in ("bf16", "checkpointing", "chunked loss", "fused optimizer"):
        assert "float64" in variants[name].why_not
    assert f"{LARGEST:,} (verified)" in printed
    assert all(name in printed for name in variants)


def test_the_study_keeps_it_and_a_second_command_measures_nothing(
    measured: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = measured
    before = (folder / "decisions.json").read_bytes()
    runs = sorted((folder / "runs").iterdir())
    assert run(["capacity", "simulated", "--variants", "--headroom", "0", "--out", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [variant["name"] for variant in found["variants"]] == [BASELINE, *MEMORY_VARIANTS]
    assert (folder / "decisions.json").read_bytes() == before
    assert sorted((folder / "runs").iterdir()) == runs


def test_variants_on_another_card_are_predicted_and_not_timed() -> None:
    variant = measure_capacity(
        build_experiment(resolve_task("simulated")), CapacityRequest(card_bytes=2**30, variants=True)
    ).variants[0]
    assert variant.status == "predicted"
    assert variant.tokens_per_second is None
    assert variant.max_micro_batch_size


@pytest.mark.slow
def test_a_memory_optimization_changes_what_fits_in_a_real_model(tmp_path: Path) -> None:
    """Sizes are predicted only, so that this needs no more than a worker for each variant."""
    text = tmp_path / "text.txt"
    text.write_text("It was a bright cold day in April, and the clocks were striking thirteen. " * 4000)
    request = CapacityRequest(card_bytes=2**27)
    changes = {"data": {"path": str(text)}, "model": {"d_model": 64, "layers": 2}}
    with scratch_session(build_experiment(merge(resolve_task("quickstart"), changes))) as session:
        found = capacity_stage(session, request, sample_independent=True)
        one = {"checkpointing": MEMORY_VARIANTS["checkpointing"]}
        plain, checkpointed = variants_stage(session, found, request, sample_independent=True, variants=one)
    assert plain.max_micro_batch_size == found.max_micro_batch_size
    assert plain.max_micro_batch_size is not None
    assert (checkpointed.max_micro_batch_size or 0) > 1.1 * plain.max_micro_batch_size, checkpointed
