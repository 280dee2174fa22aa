"""The real Hugging Face Trainer, and TRL's. Only in `make test-integrations`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.doors import CPU, Door, StopsAt, open_door

from batchlab.core.batch import BatchLayout, Unit
from batchlab.core.check import CheckResult
from batchlab.core.errors import InputError
from batchlab.core.pairing import Pairing
from batchlab.core.protocols import Interrupted
from batchlab.core.record import CapacityResult, ThroughputResult, TrainResult
from batchlab.core.spec import CapacitySpec, CheckSpec, ThroughputSpec, TrainSpec
from batchlab.testing.integration import Recorder, check_integration

pytestmark = pytest.mark.integration
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Door:
    return open_door("hf", "ft.py", "make_trainer", tmp_path_factory.mktemp("ft"))


@pytest.fixture(scope="module")
def sft(tmp_path_factory: pytest.TempPathFactory) -> Door:
    pytest.importorskip("trl")
    pytest.importorskip("peft")
    return open_door("hf", "sft.py", "make_trainer", tmp_path_factory.mktemp("sft"))


def trained(door: Door, spec: TrainSpec, context: Recorder) -> tuple[TrainResult, Pairing]:
    found = door.run(spec, context)
    assert isinstance(found.result, TrainResult), found.reason
    return found.result, found.pairing


def test_the_task_is_described_with_its_own_arguments(door: Door) -> None:
    assert (door.info.unit, door.info.sequence_length, door.info.train_samples) == (Unit.TOKENS, 32, 250)
    assert {group.weight_decay for group in door.info.optimizer_groups} == {0.01, 0.0}
    assert (door.schedule.kind, door.schedule.final_fraction) == ("cosine", 0.0)
    assert door.schedule.warmup_fraction == pytest.approx(0.1, abs=0.01)
    assert door.optimizer.config.reference_batch_size == 8


def test_the_contract(door: Door, tmp_path: Path) -> None:
    from batchlab.integrations.hf.integration import HuggingFace

    info, result = check_integration(HuggingFace, door.train_spec(8, 8, 64), tmp_path)
    assert info.integration == "hf"
    assert result.pairing is Pairing.VERIFIED


def test_every_item_of_the_check_passes(door: Door, tmp_path: Path) -> None:
    found = door.run(CheckSpec(workload=door.workload, device=CPU, optimizer=door.optimizer), Recorder(tmp_path))
    assert isinstance(found.result, CheckResult)
    assert {item.name: item.status for item in found.result.items if item.status != "ok"} == {}
    assert found.result.sample_independent


def test_a_resumed_run_is_equal_to_the_bit(door: Door, tmp_path: Path) -> None:
    """It stops in the second epoch, whose last batch is short."""
    spec = door.train_spec(16, 8, 320)
    whole = Recorder(tmp_path / "whole")
    expected, pairing = trained(door, spec, whole)
    stopped = StopsAt(tmp_path / "stopped", asked=18)
    with pytest.raises(Interrupted):
        door.run(spec, stopped)
    kept = stopped.load_checkpoint()
    assert kept is not None
    assert kept[0]["step"] == 18
    found, resumed_pairing = trained(door, spec, stopped)
    assert found.val_curve == expected.val_curve
    assert found.final_train_loss == expected.final_train_loss
    assert (found.resumed, pairing, resumed_pairing) == (1, Pairing.VERIFIED, Pairing.VERIFIED)


def test_a_short_last_batch_is_counted(door: Door, tmp_path: Path) -> None:
    """250 samples are 32 steps of 8, so 500 are 64 steps, and 256 are 33."""
    result, _ = trained(door, door.train_spec(8, 8, 256), Recorder(tmp_path))
    assert (result.steps, result.tokens) == (33, 258 * 32)


def test_memory_and_speed_are_measured(door: Door, tmp_path: Path) -> None:
    probe = CapacitySpec(
        workload=door.workload, device=CPU, micro_batch_size=4, evaluation_batch_size=4, optimizer=door.optimizer
    )
    fits = door.run(probe, Recorder(tmp_path / "capacity")).result
    assert isinstance(fits, CapacityResult)
    assert fits.fits
    layout = BatchLayout(global_batch_size=4, micro_batch_size=4, sequence_length=32)
    timed = ThroughputSpec(
        workload=door.workload, device=CPU, layout=layout, repeats=2, block_seconds=0.05, optimizer=door.optimizer
    )
    speed = door.run(timed, Recorder(tmp_path / "speed")).result
    assert isinstance(speed, ThroughputResult)
    assert len(speed.tokens_per_second_blocks) == 2


def test_trl_with_adapters_and_samples_of_different_lengths(sft: Door, tmp_path: Path) -> None:
    assert (sft.info.unit, sft.info.sequence_length) == (Unit.SAMPLES, 1)
    assert sft.info.parameter_count is not None
    assert sft.info.parameter_count < 1000
    result, pairing = trained(sft, sft.train_spec(4, 2, 32), Recorder(tmp_path))
    assert result.val_loss is not None
    assert math.isfinite(result.val_loss)
    assert pairing is Pairing.VERIFIED


def test_the_held_out_loss_is_a_mean_over_targets(sft: Door, tmp_path: Path) -> None:
    """Batches of 5 and of 2 have other means of means, and the same mean over targets."""
    losses = []
    for size in (5, 2):
        spec = sft.train_spec(4, 4, 8, evaluation_batch_size=size, evaluation_samples=12)
        losses.append(trained(sft, spec, Recorder(tmp_path / str(size)))[0].val_loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_metric_is_judged_where_the_arguments_name_one(tmp_path: Path) -> None:
    scored = open_door("hf", "scored.py", "make_trainer", tmp_path / "inspect")
    assert scored.workload.metric is not None
    assert scored.workload.metric.title == "1 − accuracy"
    result, pairing = trained(scored, scored.train_spec(8, 4, 160, evaluation_samples=64), Recorder(tmp_path / "run"))
    assert result.val_loss is not None
    assert result.val_loss * 64 == pytest.approx(round(result.val_loss * 64))
    assert 0 <= result.val_loss <= 1
    assert pairing is Pairing.VERIFIED
    probe = CapacitySpec(workload=scored.workload, device=CPU, micro_batch_size=4, optimizer=scored.optimizer)
    fits = scored.run(probe, Recorder(tmp_path / "probe")).result
    assert isinstance(fits, CapacityResult)
    assert fits.fits


MODEL_OUTSIDE = """
from transformers import GPT2Config, GPT2LMHeadModel, Trainer
model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=4, n_embd=8, n_layer=1, n_head=1))
data = [{"input_ids": [i, 1, 2, 3], "labels": [i, 1, 2, 3]} for i in range(20)]
def make_trainer(args):
    return Trainer(model=model, args=args, train_dataset=data, eval_dataset=%s)
"""


@pytest.mark.parametrize(("held_out", "said"), [("data", "create the model inside"), ("None", "has no eval_dataset")])
def test_what_a_trainer_lacks_is_said(held_out: str, said: str, tmp_path: Path, door: Door) -> None:
    file = tmp_path / f"outside_{held_out}.py"
    file.write_text(MODEL_OUTSIDE % held_out, encoding="utf-8")
    task: Any = door.workload.task.model_copy(update={"target": str(file)})
    workload = door.workload.model_copy(update={"task": task, "data_digest": "", "sequence_length": 4})
    spec = door.train_spec(4, 4, 8).model_copy(update={"workload": workload})
    if held_out == "data":
        door.run(spec, Recorder(tmp_path / "first"))
    with pytest.raises(InputError, match=said):
        door.run(spec, Recorder(tmp_path / "run"))


def test_the_callback_observes_a_trainer_as_it_is(door: Door, tmp_path: Path) -> None:
    import batchlab
    from batchlab.integrations.hf import BatchlabCallback
    from batchlab.integrations.hf.measure import make_small
    from batchlab.integrations.hf.trainer import Trainers

    changes = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    trainer = make_small(Trainers(door.workload), changes, steps=6, device=CPU, folder=tmp_path)
    observation = batchlab.observe(trainer.model, every=2)
    trainer.add_callback(BatchlabCallback(observation))
    trainer.train()
    assert (observation.steps, observation.tokens) == (6, 48.0)
    assert len(observation.samples) == 3
