"""The script door over real scripts: outcomes, losses, memory, and what happens to scripts that misbehave."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from batchlab.core.check import CheckResult
from batchlab.core.command import Command
from batchlab.core.errors import StorageFailed
from batchlab.core.pairing import Pairing
from batchlab.core.protocols import Interrupted, KilledFromOutside, RunResult
from batchlab.core.record import CapacityResult, Outcome, TaskInfo, ThroughputResult, TrainResult
from batchlab.core.spec import CapacitySpec, CheckSpec, DeviceSettings, InspectSpec, ThroughputSpec, TrainSpec
from batchlab.integrations.script.process import MOST_LOGGED
from batchlab.integrations.script.script import Script
from batchlab.testing import check_integration
from batchlab.testing.integration import Recorder

MakeCommand = Callable[..., Command]
MakeSpec = Callable[..., TrainSpec]


def trained(found: RunResult) -> TrainResult:
    assert isinstance(found.result, TrainResult), found.reason
    return found.result


def test_it_keeps_the_contract(command: MakeCommand, train_spec: MakeSpec, tmp_path: Path) -> None:
    info, found = check_integration(Script, train_spec(command(), repeatable=True), tmp_path / "runs")
    assert info.integration == "script"
    assert found.pairing is Pairing.DECLARED
    assert found.environment is not None
    assert found.environment.framework == ""  # numpy alone
    result = trained(found)
    assert result.val_curve[0][0] == 80
    assert result.val_curve[-1] == (400, result.val_loss)
    assert result.measured == "process"
    assert result.peak_bytes is not None
    assert 5 * 2**20 < result.peak_bytes < 2**30


def test_accumulation_sees_the_same_samples(command: MakeCommand, train_spec: MakeSpec, tmp_path: Path) -> None:
    whole, split = (
        trained(Script().run(train_spec(command(), batch=8, micro=micro), Recorder(tmp_path / str(micro))))
        for micro in (8, 4)
    )
    assert whole.val_loss == pytest.approx(split.val_loss, rel=1e-3)


def test_the_sources_of_a_script_are_known(command: MakeCommand, train_spec: MakeSpec, tmp_path: Path) -> None:
    workload = train_spec(command()).workload
    found = Script().run(InspectSpec(workload=workload), Recorder(tmp_path / "inspect")).result
    assert isinstance(found, TaskInfo)
    assert {Path(path).name for path in found.code} == {"argparse_style.py", "problem.py"}
    assert found.parameter_count is None


@pytest.mark.parametrize(
    ("fail", "outcome", "said"),
    [
        ("oom", Outcome.OUT_OF_MEMORY, "Unable to allocate 9.31 GiB"),
        ("crash", Outcome.FAILED, "exit code 1. Its last lines:\n"),
        ("silent", Outcome.FAILED, "validation loss was not found"),
    ],
)
def test_how_a_script_ends_is_its_outcome(
    fail: str, outcome: Outcome, said: str, command: MakeCommand, train_spec: MakeSpec, tmp_path: Path
) -> None:
    found = Script().run(train_spec(command(f" --fail {fail}"), batch=16), Recorder(tmp_path / "run"))
    assert found.outcome is outcome
    assert said in found.reason
    assert found.pairing is Pairing.NONE


def test_a_missing_package_names_the_python_that_lacks_it(
    command: MakeCommand, train_spec: MakeSpec, tmp_path: Path
) -> None:
    (tmp_path / "mine" / "needs.py").write_text("import not_installed_anywhere\n")
    for begin, says in (
        ("{python}", f"{sys.executable}, which has no not_installed_anywhere."),
        ("python3", "code 1."),
    ):
        needing = command(run=f"{begin} needs.py {{batch_size}} {{steps}}")
        found = Script().run(train_spec(needing), Recorder(tmp_path / begin))
        assert found.outcome is Outcome.FAILED
        assert says in found.reason


def test_a_full_disk_is_no_outcome_of_a_script(command: MakeCommand, train_spec: MakeSpec, tmp_path: Path) -> None:
    ended = 'print("val loss 1.0", flush=True)\nraise OSError(28, "No space left on device")\n'
    (tmp_path / "mine" / "full.py").write_text(ended)
    spec = train_spec(command(run=command().run.replace("argparse_style.py", "full.py")))
    with pytest.raises(StorageFailed, match=r"could not write a file .*No space left on device"):
        Script().run(spec, Recorder(tmp_path / "run"))


def test_a_loss_that_is_not_finite_is_divergence(command: MakeCommand, train_spec: MakeSpec, tmp_path: Path) -> None:
    found = Script().run(train_spec(command(), learning_rate=50.0, steps=400), Recorder(tmp_path / "run"))
    assert found.outcome is Outcome.DIVERGED
    assert not math.isfinite(trained(found).val_loss or 0.0)


def test_a_limit_of_memory_is_met_by_the_system(command: MakeCommand, train_spec: MakeSpec, tmp_path: Path) -> None:
    (tmp_path / "mine" / "large.py").write_text("import numpy\nnumpy.ones(2**27)\nprint('val loss 1')\n")
    run = "{python} large.py {micro_batch_size} {steps}"
    device = DeviceSettings(memory_limit=2**29)
    spec = CapacitySpec(workload=train_spec(command(run=run)).workload, micro_batch_size=4, device=device)
    found = Script().run(spec, Recorder(tmp_path / "run"))
    assert found.outcome is Outcome.OUT_OF_MEMORY, found.reason
    assert isinstance(found.result, CapacityResult)
    assert not found.result.fits
    assert found.result.certain


def test_a_probe_is_four_steps(command: MakeCommand, train_spec: MakeSpec, tmp_path: Path) -> None:
    spec = CapacitySpec(workload=train_spec(command()).workload, micro_batch_size=32)
    found = Script().run(spec, Recorder(tmp_path / "run"))
    assert isinstance(found.result, CapacityResult), found.reason
    assert found.result.fits
    assert found.result.steps == 4
    assert "step 4:" in (tmp_path / "run" / "log.txt").read_text()


def test_a_probe_without_steps_is_ended_after_its_time(
    command: MakeCommand, train_spec: MakeSpec, tmp_path: Path
) -> None:
    run = "{python} argparse_style.py --batch_size {batch_size} --max_iters {epochs} --fail hang"
    endless = command(run=run, train_samples=100, capacity={"seconds": 1.0})
    found = Script().run(
        CapacitySpec(workload=train_spec(endless).workload, micro_batch_size=4), Recorder(tmp_path / "run")
    )
    assert isinstance(found.result, CapacityResult), found.reason
    assert found.result.fits
    assert found.result.peak_bytes is not None


def test_speed_is_that_of_whole_steps(command: MakeCommand, train_spec: MakeSpec, tmp_path: Path) -> None:
    spec = train_spec(command())
    measured = Script().run(ThroughputSpec(workload=spec.workload, layout=spec.layout), Recorder(tmp_path / "run"))
    assert isinstance(measured.result, ThroughputResult), measured.reason
    assert measured.result.tokens_per_second > 0
    assert measured.result.step_seconds == pytest.approx(8 / measured.result.tokens_per_second)


def test_a_hanging_script_gives_no_sign_of_life_and_ends_when_asked(
    command: MakeCommand, train_spec: MakeSpec, tmp_path: Path
) -> None:
    class Stopping(Recorder):
        """Asks to stop three seconds after the script hangs, and keeps when it showed signs of life."""

        hangs_at = math.inf
        last_sign = 0.0

        def progress(self, *_: Any) -> None:
            self.last_sign = time.monotonic()

        def stop_requested(self) -> bool:
            if self.hangs_at == math.inf and "hanging" in (self.path / "log.txt").read_text():
                self.hangs_at = time.monotonic()
            return time.monotonic() > self.hangs_at + 3.0

    context = Stopping(tmp_path / "run")
    with pytest.raises(Interrupted):
        Script().run(train_spec(command(" --fail hang")), context)
    assert psutil.Process().children(recursive=True) == []
    assert context.last_sign <= context.hangs_at + 2.0


def test_what_a_script_leaves_running_is_ended(command: MakeCommand, train_spec: MakeSpec, tmp_path: Path) -> None:
    found = Script().run(train_spec(command(" --fail fork")), Recorder(tmp_path / "run"))
    assert found.outcome is Outcome.COMPLETED, found.reason
    orphan = int((tmp_path / "run" / "output" / "orphan.pid").read_text())
    assert not psutil.pid_exists(orphan)


def test_a_script_that_prints_without_end_keeps_a_bounded_log(
    command: MakeCommand, train_spec: MakeSpec, tmp_path: Path
) -> None:
    found = Script().run(train_spec(command(" --fail print")), Recorder(tmp_path / "run"))
    assert trained(found).val_loss is not None
    log = tmp_path / "run" / "log.txt"
    assert log.stat().st_size < MOST_LOGGED + 2**20
    assert "step 50" in log.read_text()


def test_a_script_that_takes_too_long_is_ended(command: MakeCommand, train_spec: MakeSpec, tmp_path: Path) -> None:
    found = Script().run(train_spec(command(" --fail hang", time_limit_seconds=1.0)), Recorder(tmp_path / "run"))
    assert found.outcome is Outcome.FAILED
    assert "command.time_limit_seconds" in found.reason


def test_losses_come_from_a_file_too(command: MakeCommand, train_spec: MakeSpec, tmp_path: Path) -> None:
    by_epochs = command(
        run="{python} key_value_style.py batch={batch_size} lr={learning_rate} epochs={epochs} seed={seed} "
        "log={run_dir}/losses.jsonl",
        train_samples=256,
        metrics={"from": "jsonl", "val_loss": "eval/loss", "train_loss": "train/loss", "step": "step"},
    )
    found = Script().run(train_spec(by_epochs, batch=16, steps=48), Recorder(tmp_path / "run"))
    result = trained(found)
    assert (result.tokens, result.steps, result.epochs) == (768, 48, 3.0)
    assert [tokens for tokens, _ in result.val_curve] == [256, 512, 768]


WANDB = """
class Run:
    def log(self, data, step=None, commit=None):
        self.data = data
def init(**settings):
    return Run()
"""
LOGS_TO_WANDB = """
import os, sys
from wandb.sdk import wandb_run
assert os.environ["WANDB_MODE"] == "offline"
run = wandb_run.init()
for step in range(int(sys.argv[2])):
    run.log({"train": {"loss": 2.0}, "note": "text"}, step=step)
run.log({"val/loss": 0.5, "iter": int(sys.argv[2])})
"""


def test_losses_come_from_what_is_logged_to_wandb(command: MakeCommand, train_spec: MakeSpec, tmp_path: Path) -> None:
    """A module that has the names of wandb's stands in for it."""
    package = tmp_path / "mine" / "wandb" / "sdk"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "wandb_run.py").write_text(WANDB)
    (tmp_path / "mine" / "logs.py").write_text(LOGS_TO_WANDB)
    names = {"from": "wandb", "val_loss": "val/loss", "train_loss": "train.loss"}
    logging = command(run="{python} logs.py {batch_size} {steps}", metrics=names)
    result = trained(Script().run(train_spec(logging, steps=20), Recorder(tmp_path / "run")))
    assert (result.val_loss, result.final_train_loss) == (0.5, 2.0)


def test_a_run_that_was_killed_is_no_outcome(command: MakeCommand, train_spec: MakeSpec, tmp_path: Path) -> None:
    for exit_by in ("os.kill(os.getpid(), 9)", "print('Signal 9 (SIGKILL) received by PID 7'); exit(1)"):
        (tmp_path / "mine" / "killed.py").write_text(f"import os\n{exit_by}\n")
        killed = command(run="{python} killed.py {batch_size} {steps}")
        with pytest.raises(KilledFromOutside):
            Script().run(train_spec(killed), Recorder(tmp_path / "run"))


def test_a_run_that_is_told_its_time_counts_its_own_steps(
    command: MakeCommand, train_spec: MakeSpec, tmp_path: Path
) -> None:
    timed = "import sys\nfor step in range(1, 8):\n    print('step', step)\nprint('val loss', float(sys.argv[2]))\n"
    (tmp_path / "mine" / "timed.py").write_text(timed)
    told = command(run="{python} timed.py {batch_size} {seconds}", seconds=2.5)
    result = trained(Script().run(train_spec(told, batch=4), Recorder(tmp_path / "run")))
    assert (result.steps, result.tokens, result.val_loss) == (7, 28, 2.5)


def test_runs_of_equal_time_are_not_compared(command: MakeCommand, train_spec: MakeSpec, tmp_path: Path) -> None:
    timed = "import sys\nprint('step 3')\nprint('val loss', 1 / float(sys.argv[1]))\n"
    (tmp_path / "mine" / "timed.py").write_text(timed)
    told = command(run="{python} timed.py {batch_size} {seconds} {seed}")
    found = Script().run(CheckSpec(workload=train_spec(told).workload), Recorder(tmp_path / "run")).result
    assert isinstance(found, CheckResult)
    assert not found.repeatable
    assert [item.status for item in found.items if item.name == "equal runs"] == ["note"]


def test_a_metric_is_judged_instead_of_the_loss(command: MakeCommand, train_spec: MakeSpec, tmp_path: Path) -> None:
    (tmp_path / "mine" / "scored.py").write_text("print('val loss 3\\nAccuracy: 91.5%')\n")
    names = {"from": "stdout", "metric": r"Accuracy: (\S+)%", "name": "accuracy", "better": "higher", "best": 100.0}
    scored = command(run="{python} scored.py {batch_size} {steps}", metrics=names)
    spec = train_spec(scored)
    workload = spec.workload.model_copy(update={"metric": scored.metrics.judged_by})
    result = trained(Script().run(spec.model_copy(update={"workload": workload}), Recorder(tmp_path / "run")))
    assert result.val_loss == pytest.approx(8.5)


def test_globals_are_overridden_as_their_script_expects(
    command: MakeCommand, train_spec: MakeSpec, tmp_path: Path
) -> None:
    like_nanogpt = command(
        run="{python} globals_style.py --batch_size={micro_batch_size} "
        "--gradient_accumulation_steps={grad_accum_steps} --learning_rate={learning_rate} --max_iters={steps} "
        "--eval_interval={steps} --out_dir={run_dir} --seed={seed}",
        sequence_length=16,
        metrics={"from": "stdout", "val_loss": r"val loss (\S+)", "step": r"step (\d+)"},
    )
    result = trained(Script().run(train_spec(like_nanogpt, batch=8, micro=4, steps=40), Recorder(tmp_path / "run")))
    assert (result.tokens, result.steps) == (40 * 8 * 16, 40)
    assert [tokens for tokens, _ in result.val_curve] == [result.tokens]


def test_a_killed_worker_takes_its_script_with_it(command: MakeCommand, tmp_path: Path) -> None:
    supervisor = Path(__file__).parents[2] / "src/batchlab/integrations/script/supervisor.py"
    read, write = os.pipe()
    report_out, report_in = os.pipe()
    script = "import time; print('up', flush=True); time.sleep(600)"
    process = psutil.Popen(
        ["python3", str(supervisor), str(report_in), "0", "python3", "-c", script], stdin=read, pass_fds=(report_in,)
    )
    os.close(read)
    deadline = time.monotonic() + 20
    while not (children := process.children()) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.close(write)  # what the death of the worker does
    process.wait(20)
    assert children
    assert not children[0].is_running()
    os.close(report_in)
    os.close(report_out)
