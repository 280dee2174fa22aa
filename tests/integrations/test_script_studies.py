"""Whole studies of scripts through the command line, and kill -9 of everything that takes part in one."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tests.integrations.conftest import SCRIPTS

pytestmark = pytest.mark.slow

SETTINGS = (
    *("--batch-sizes", "4,8", "--search", "grid", "--learning-rates", "1e-2", "--seeds", "2"),
    *("--set", "sweep.max_extensions=0", "--set", "sweep.confirm=0", "--set", "device.workers=2"),
    *("--set", "device.threads=1"),
)
TOKENS = ("--token-budget", "800")

STUDY = r"""
[command]
run = '{python} argparse_style.py --batch_size {micro_batch_size} --gradient_accumulation_steps {grad_accum_steps}
  --learning_rate {learning_rate} --max_iters {steps} --seed {seed} --warmup_iters {warmup_steps} --out_dir {run_dir}'
[command.metrics]
from = "stdout"
val_loss = 'val loss (\S+)'
train_loss = 'train loss ([^,\s]+)'
step = 'step (\d+)'
""".replace("\n  --", " --")


@pytest.fixture
def toml(scripts: Path) -> Path:
    path = scripts / "study.toml"
    path.write_text(STUDY, encoding="utf-8")
    return path


def start(toml: Path, folder: Path, *settings: str) -> subprocess.Popen[str]:
    """Begin or continue a study; its process leads a group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "batchlab", "study", str(toml), "--out", str(folder), *SETTINGS, *settings],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    said, _ = process.communicate(timeout=600)
    assert process.returncode == code, said
    return said


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "outcomes.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_runs_of_equal_time_have_the_tokens_of_their_speed(toml: Path, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    finish(start(toml, folder, "--run-time", "0.1s"))
    decided = json.loads((folder / "decisions.json").read_text())["budget"]["by_size"]
    tokens = {int(row["global_batch_size"]): int(row["tokens"]) for row in rows(folder)}
    assert tokens == {int(size): found["token_budget"] for size, found in decided.items()}
    for size, found in decided.items():
        assert found["token_budget"] == pytest.approx(0.1 * found["tokens_per_second"], abs=int(size))
    assert (folder / "report.html").stat().st_size > 100_000


def test_equal_time_needs_a_length_that_is_not_in_epochs(toml: Path, tmp_path: Path) -> None:
    toml.write_text(STUDY.replace("{steps}", "{epochs}").replace("[command]", "[command]\ntrain_samples = 2048"))
    said = finish(start(toml, tmp_path / "study", "--run-time", "0.1s"), code=2)
    assert "command.run has only {epochs}" in said


TIMED = r"""
[command]
run = '{python} timed_style.py --batch_size {batch_size} --lr {learning_rate} --seconds {seconds} --seed {seed}'
[command.metrics]
step = 'step (\d+)'
metric = 'explained: (\S+)%'
name = "explained variance (%)"
better = "higher"
best = 100
"""


def test_a_script_that_is_told_its_time_is_judged_by_its_own_metric(scripts: Path, tmp_path: Path) -> None:
    toml, folder = scripts / "study.toml", tmp_path / "study"
    toml.write_text(TIMED, encoding="utf-8")
    said = finish(start(toml, folder, "--run-time", "0.5s"))
    found = rows(folder)
    assert len(found) >= 4
    for row in found:
        assert 0 < int(row["steps"]) * int(row["global_batch_size"]) == int(row["tokens"])
        assert 0 < float(row["val_loss"]) < 100
    assert "TRAIN WITH" in said
    assert "100 − explained variance (%)" in (folder / "report.md").read_text(encoding="utf-8")
    assert (folder / "report.html").stat().st_size > 100_000


def scripts_of(study: int) -> list[psutil.Process]:
    """The scripts that run for a study."""
    found = []
    for process in psutil.Process(study).children(recursive=True):
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if any(word.endswith("argparse_style.py") for word in words) and "supervisor.py" not in " ".join(words):
            found.append(process)
    return found


def workers_of(study: int) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(study).children(recursive=True):
        try:
            found += [process] if "batchlab.engines.worker" in process.cmdline() else []
        except psutil.Error:
            continue
    return found


def kill_study(study: subprocess.Popen[str]) -> bool:
    study.kill()
    return True


def kill_one_of(find: Callable[[int], list[psutil.Process]]) -> Callable[[subprocess.Popen[str]], bool]:
    def kill(study: subprocess.Popen[str]) -> bool:
        try:
            found = find(study.pid)
            random.choice(found).kill()
        except (psutil.NoSuchProcess, IndexError):
            return False
        return True

    return kill


@pytest.fixture(scope="module")
def same_toml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One study.toml for several studies, because a run's id depends on where its command runs."""
    folder = Path(shutil.copytree(SCRIPTS, tmp_path_factory.mktemp("scripts") / "mine"))
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    return folder / "study.toml"


@pytest.fixture(scope="module")
def undisturbed(same_toml: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """outcomes.csv of a study that nothing happened to."""
    folder = tmp_path_factory.mktemp("undisturbed") / "study"
    finish(start(same_toml, folder, *TOKENS))
    outcomes = (folder / "outcomes.csv").read_bytes()
    assert outcomes.count(b",completed\n") >= 4
    return outcomes


@pytest.mark.parametrize(
    ("kill", "kills"),
    [
        pytest.param(kill_study, 3, id="study"),
        pytest.param(kill_one_of(workers_of), 3, id="worker"),
        pytest.param(kill_one_of(scripts_of), 3, id="script"),
    ],
)
def test_a_killed_study_ends_with_the_same_outcomes(
    kill: Callable[[subprocess.Popen[str]], bool], kills: int, same_toml: Path, tmp_path: Path, undisturbed: bytes
) -> None:
    folder = tmp_path / "study"
    process = start(same_toml, folder, *TOKENS)
    done = 0
    while process.poll() is None and done < kills:
        time.sleep(random.uniform(0.3, 2.0))
        hit = kill(process)
        while not hit and process.poll() is None:
            time.sleep(0.02)  # between two runs there is nothing to kill
            hit = kill(process)
        done += hit
        if kill is kill_study:
            process.communicate()
            process = start(same_toml, folder, *TOKENS)
    said, _ = process.communicate(timeout=600)
    if process.returncode != 0:  # one run was killed several times
        assert "run the same command again" in said
        finish(start(same_toml, folder, *TOKENS))
    assert done
    assert (folder / "outcomes.csv").read_bytes() == undisturbed
    assert not [
        process for process in psutil.process_iter(["cmdline"]) if str(folder) in (process.info["cmdline"] or [])
    ]


RESUMING = r"""
[command]
run = '{python} resuming_style.py --batch_size {batch_size} --lr {learning_rate} --max_steps {steps} --seed {seed}
  --out_dir {run_dir} --resume {resume}'
[command.metrics]
val_loss = 'val loss (\S+)'
""".replace("\n  --", " --")


def test_a_script_that_can_resume_goes_on_where_it_was_killed(scripts: Path, tmp_path: Path) -> None:
    toml, once = scripts / "study.toml", "--out_dir {run_dir} --stop_at 55"
    toml.write_text(RESUMING)
    finish(start(toml, tmp_path / "whole", *TOKENS))
    toml.write_text(RESUMING.replace("--out_dir {run_dir}", once))
    finish(start(toml, tmp_path / "killed", *TOKENS))
    # By what was run: the commands differ, so the names of runs do, and rows are in their order.
    asked = ("global_batch_size", "seed", "token_budget")
    losses = [
        {tuple(row[name] for name in asked): row["val_loss"] for row in rows(tmp_path / study)}
        for study in ("whole", "killed")
    ]
    assert losses[0] == losses[1]
    logs = [path.read_text() for path in (tmp_path / "killed" / "runs").glob("train-*/log.txt")]
    assert sum("resumed at step 50" in log for log in logs) >= 3  # one run has half of the budget


def test_branches_are_refused(toml: Path, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    finish(start(toml, folder, *TOKENS))
    command = [sys.executable, "-m", "batchlab", "critical", str(folder), "--run"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 2
    assert "needs the inside of a step" in found.stderr
