"""The real Lightning Trainer. Only in `make test-integrations`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integrations.doors import CPU, Door, StopsAt, open_door

from batchlab.core.batch import BatchLayout, Unit
from batchlab.core.check import CheckResult
from batchlab.core.errors import InputError
from batchlab.core.pairing import Pairing
from batchlab.core.protocols import Interrupted
from batchlab.core.record import CapacityResult, ThroughputResult, TrainResult
from batchlab.core.spec import CapacitySpec, CheckSpec, ThroughputSpec
from batchlab.testing.integration import Recorder, check_integration

pytestmark = pytest.mark.integration
pytest.importorskip("lightning")


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Door:
    return open_door("lightning", "lit.py", "make", tmp_path_factory.mktemp("lit"))


def test_the_module_is_described(door: Door) -> None:
    assert (door.info.unit, door.info.train_samples, door.info.valid_samples) == (Unit.SAMPLES, 1000, 200)
    assert [group.optimizer for group in door.info.optimizer_groups] == ["AdamW"]
    assert door.optimizer.config.grad_clip is None
    assert door.optimizer.config.reference_batch_size == 32


def test_the_contract(door: Door, tmp_path: Path) -> None:
    from batchlab.integrations.lightning.integration import Lightning

    _, result = check_integration(Lightning, door.train_spec(8, 8, 64), tmp_path)
    assert result.pairing is Pairing.VERIFIED


def test_every_item_of_the_check_passes(door: Door, tmp_path: Path) -> None:
    found = door.run(CheckSpec(workload=door.workload, device=CPU, optimizer=door.optimizer), Recorder(tmp_path))
    assert isinstance(found.result, CheckResult)
    assert {item.name: item.status for item in found.result.items if item.status != "ok"} == {}


def test_a_stopped_run_begins_again_and_ends_the_same(door: Door, tmp_path: Path) -> None:
    spec = door.train_spec(16, 8, 160)
    expected = door.run(spec, Recorder(tmp_path / "whole")).result
    stopped = StopsAt(tmp_path / "stopped", asked=4)
    with pytest.raises(Interrupted):
        door.run(spec, stopped)
    assert stopped.load_checkpoint() is None
    again = door.run(spec, stopped).result
    assert isinstance(expected, TrainResult)
    assert isinstance(again, TrainResult)
    assert (again.val_curve, again.resumed) == (expected.val_curve, 0)


def test_short_batches_are_counted_and_the_order_crosses_epochs(door: Door, tmp_path: Path) -> None:
    """1000 samples are 16 steps of 64."""
    found = door.run(door.train_spec(64, 64, 1024), Recorder(tmp_path))
    assert isinstance(found.result, TrainResult)
    assert (found.result.steps, found.result.tokens) == (17, 1064)
    assert found.pairing is Pairing.VERIFIED


def test_memory_and_speed_are_measured(door: Door, tmp_path: Path) -> None:
    probe = CapacitySpec(
        workload=door.workload, device=CPU, micro_batch_size=4, evaluation_batch_size=4, optimizer=door.optimizer
    )
    fits = door.run(probe, Recorder(tmp_path / "capacity")).result
    assert isinstance(fits, CapacityResult)
    assert fits.fits
    layout = BatchLayout(global_batch_size=8, micro_batch_size=8)
    timed = ThroughputSpec(
        workload=door.workload, device=CPU, layout=layout, repeats=2, block_seconds=0.05, optimizer=door.optimizer
    )
    speed = door.run(timed, Recorder(tmp_path / "speed")).result
    assert isinstance(speed, ThroughputResult)
    assert len(speed.tokens_per_second_blocks) == 2


@pytest.mark.parametrize("function", ["make", "make_by_torchmetrics", "make_at_the_end"])
def test_the_metric_that_its_trainer_monitors_is_judged(function: str, tmp_path: Path) -> None:
    """Batches of ten samples: however the accuracy is logged, it is that of all samples."""
    scored = open_door("lightning", "lit_scored.py", function, tmp_path / "inspect")
    assert scored.workload.metric is not None
    assert scored.workload.metric.title == "1 − val_accuracy"
    found = scored.run(scored.train_spec(16, 16, 160, evaluation_samples=64), Recorder(tmp_path / "run")).result
    assert isinstance(found, TrainResult)
    assert found.val_loss is not None
    assert 64 * found.val_loss == pytest.approx(round(64 * found.val_loss), abs=1e-4)
    checked = scored.run(
        CheckSpec(workload=scored.workload, device=CPU, optimizer=scored.optimizer), Recorder(tmp_path)
    )
    assert isinstance(checked.result, CheckResult)
    assert {item.name: item.status for item in checked.result.items}["metric"] == "ok"


def test_a_metric_that_is_not_logged_is_said(tmp_path: Path) -> None:
    silent = open_door("lightning", "lit_scored.py", "make_silent", tmp_path / "inspect")
    with pytest.raises(InputError, match=r"monitors val_accuracy, which the validation does not log, nor anything"):
        silent.run(silent.train_spec(16, 16, 160), Recorder(tmp_path / "run"))


def test_the_batch_size_finder_ends_at_the_largest_size_that_fits(tmp_path: Path) -> None:
    """A module that runs out of memory above 37 samples: Lightning's own finder would end at 32."""
    import importlib.util

    import lightning
    import torch
    from tests.integrations.doors import TRAINERS

    from batchlab.integrations.lightning import BatchSizeFinder

    description = importlib.util.spec_from_file_location("lit_for_finder", TRAINERS / "lit.py")
    assert description is not None
    assert description.loader is not None
    lit = importlib.util.module_from_spec(description)
    description.loader.exec_module(lit)
    module, data = lit.make()
    step = module.training_step

    def limited(batch: tuple[torch.Tensor, torch.Tensor], batch_idx: int) -> torch.Tensor:
        if len(batch[0]) > 37:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        loss: torch.Tensor = step(batch, batch_idx)
        return loss

    module.training_step = limited
    before = {name: value.clone() for name, value in module.state_dict().items()}
    finder = BatchSizeFinder(max_val=128, steps_per_trial=1, memory_limit="8GiB")
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_steps=0,
        callbacks=[finder],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        default_root_dir=str(tmp_path),
    )
    trainer.fit(module, datamodule=data)
    assert finder.optimal_batch_size == 37
    assert data.batch_size == 37
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
