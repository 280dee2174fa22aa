"""`batchlab train PLAN` on the simulated device: pre-flight, the run, and plans that contradict themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchlab.cli.app import run
from batchlab.cli.commands import train as command
from batchlab.core.errors import InputError
from batchlab.core.protocols import View
from batchlab.plan.train_spec import train_spec
from batchlab.plan.training_plan import TrainingPlan
from batchlab.study import training
from batchlab.study.preflight import Item, require_ready
from batchlab.study.training import read_plan

SETTINGS = ("--batch-sizes", "8,16", "--learning-rates", "0.8,1.4", "--seeds", "1", "--token-budget", "2048")


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plan") / "study"
    assert run(["study", "simulated", "--out", str(folder), "--devices", "2", *SETTINGS]) == 0
    return folder / "training_plan.json"


def edited(plan_file: Path, folder: Path, **configuration: Any) -> Path:
    content = json.loads(plan_file.read_text())
    content["batch_configuration"] |= configuration
    path = folder / "edited.json"
    path.write_text(json.dumps(content))
    return path


def micro_batches(size: int, passes: int) -> dict[str, int]:
    names = ("micro_batch_size", "per_gpu_batch_size"), ("grad_accum_steps", "gradient_accumulation_steps")
    return {name: value for pair, value in zip(names, (size, passes), strict=True) for name in pair}


def train(plan: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["train", str(plan), "--out", str(folder), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_run_is_the_one_that_the_study_made(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = read_plan(plan_file)
    spec = train_spec(plan)
    assert spec.layout.data_parallel_size == 2
    found = train(plan_file, tmp_path / "run", capsys)
    [run_id] = [name for name in plan.made_from.run_ids if "-s0-" in name]
    record = json.loads((plan_file.parent / "runs" / run_id / "record.json").read_text())
    assert found["record"]["result"]["val_loss"] == record["result"]["val_loss"]


def test_the_same_command_reads_a_finished_run(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(plan_file, tmp_path / "run", capsys) == train(plan_file, tmp_path / "run", capsys)


def test_trackers_are_told_of_the_run(plan_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    folder = tmp_path / "run"
    assert run(["train", str(plan_file), "--out", str(folder), "--track", "tensorboard"]) == 0
    [record] = folder.glob("runs/*/record.json")
    [written] = folder.glob(f"tensorboard/{record.parent.name}/events.*")
    assert b"val_loss" in written.read_bytes()


def test_only_the_first_rank_tells_trackers(plan_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[tuple[str, ...]] = []

    def tracked(view: View, folder: Path, names: tuple[str, ...]) -> View:
        named.append(names)
        return view

    monkeypatch.setattr(command, "tracked", tracked)
    monkeypatch.setattr(training, "run_plan", stop)
    for rank in ("0", "1"):
        monkeypatch.setenv("WORLD_SIZE", "2")
        monkeypatch.setenv("RANK", rank)
        run(["train", str(plan_file), "--out", str(tmp_path / "run"), "--track", "tensorboard"])
    assert named == [("tensorboard",), ()]


def stop(*_: object, **__: object) -> None:
    raise InputError("It need not train.")


def test_an_unknown_tracker_stops_the_run_before_it_begins(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", str(plan_file), "--out", str(tmp_path / "run"), "--track", "tensorbord"]) == 2
    assert "Did you mean" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_another_plan_needs_another_folder(plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(plan_file, tmp_path / "run", capsys)
    other = edited(plan_file, tmp_path, learning_rate=0.5)
    assert run(["train", str(other), "--out", str(tmp_path / "run")]) == 2
    assert "another plan" in capsys.readouterr().err


def test_a_plan_runs_as_edited(plan_file: Path, tmp_path: Path) -> None:
    assert train_spec(read_plan(edited(plan_file, tmp_path, learning_rate=0.5))).learning_rate == 0.5


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"micro_batch_size": 3}, "per_gpu_batch_size"),
        ({"tokens_per_step": 3}, "tokens_per_step is 3"),
        ({"steps": 7}, "steps is 7"),
        ({"warmup_steps": 99}, "warmup_steps is 99"),
        ({"warmup_epochs": 99.0}, r"warmup_epochs is 99\.0"),
        ({"data_parallel_size": 4, **micro_batches(2, 1)}, "distributed_config has 1 × 2 devices"),
        ({"data_parallel_size": 100}, "100 devices cannot share"),
    ],
)
def test_a_plan_that_contradicts_itself_is_refused(
    plan_file: Path, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        read_plan(edited(plan_file, tmp_path, **changes))


@pytest.mark.parametrize(
    ("content", "said"),
    [('{"schema_version": 9}', "schema_version 9"), ("{", "is not JSON"), ("[]", "edited.json")],
)
def test_what_is_no_plan_is_refused(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "edited.json"
    path.write_text(content)
    with pytest.raises(InputError, match=said):
        read_plan(path)


@pytest.mark.parametrize("shares", [{"worker-0": 1.0}, {"worker-0": 0.5, "worker-1": 0.6}])
def test_shares_that_do_not_add_up_are_refused(plan_file: Path, tmp_path: Path, shares: dict[str, float]) -> None:
    content = json.loads(plan_file.read_text())
    content["hardware_calibration"]["workload_distribution"] = shares
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="workload_distribution has"):
        read_plan(path)


def test_a_person_s_own_program_is_named_instead(plan_file: Path) -> None:
    plan = read_plan(plan_file)
    other = plan.model_copy(update={"task": None, "command": "python mine.py --lr 0.1"})
    with pytest.raises(InputError, match=r"python mine\.py --lr 0\.1"):
        train_spec(TrainingPlan.model_validate(other))


def test_unequal_workers_train_the_same_model(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plan whose workload_distribution was set to 3 : 1."""
    content = json.loads(plan_file.read_text())
    size = content["batch_configuration"]["global_batch_size"]
    content["hardware_calibration"]["workload_distribution"] = {"worker-0": 0.75, "worker-1": 0.25}
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(content))
    assert train_spec(read_plan(path)).layout.shares == (3 * size // 4, size // 4)
    unequal, equal = train(path, tmp_path / "unequal", capsys), train(plan_file, tmp_path / "equal", capsys)
    assert unequal["record"]["result"]["val_loss"] == pytest.approx(equal["record"]["result"]["val_loss"], rel=1e-9)


def test_other_data_stops_the_run_before_it_begins(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(plan_file.read_text())
    content["task"]["workload"]["data_digest"] = "0" * 64
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(content))
    assert run(["train", str(path), "--out", str(tmp_path / "run")]) == 2
    assert "data (" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_only_what_is_wrong_stops_a_run() -> None:
    require_ready([Item("batchlab", "differs", "1", "2")])
    with pytest.raises(InputError, match="disk"):
        require_ready([Item("disk", "wrong", "1 MiB", "2 GiB")])
