"""A bit flips in any file of a small study, or something stray lies in it: the same command ends as if nothing were."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from batchlab.cli.app import run
from batchlab.core.experiment import build_experiment
from batchlab.core.files import FileState
from batchlab.core.settings import merge
from batchlab.engines.inline import InlineEngine
from batchlab.storage.files import DiskFiles
from batchlab.storage.sealed import Damage, DamagedFile
from batchlab.storage.store import Store
from batchlab.storage.tables import outcomes_csv
from batchlab.study.documents import write_documents
from batchlab.study.progress import SilentView
from batchlab.study.study import run_study
from batchlab.study.task_source import resolve_task

EXPERIMENT = build_experiment(
    merge(
        resolve_task("simulated"),
        {
            "batch": {"global_batch_sizes": (8,)},
            "sweep": {"search": "grid", "learning_rates": (0.4, 0.8), "seeds": 1, "confirm": 0, "max_extensions": 0},
            "budget": {"token_budget": 512},
            "evaluation": {"points": 2, "samples": 16},
            "model": {"samples": 1024},
        },
    )
)


class Notes(SilentView):
    """Keeps what a study says."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def go(folder: Path) -> list[str]:
    view = Notes()
    run_study(EXPERIMENT, folder, lambda path, workers: InlineEngine(path), view, write_documents=False)
    return view.said


def conclusions(folder: Path) -> tuple[str, str]:
    store = Store.open(folder)
    return outcomes_csv(store.records()), store.decisions().as_json()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage") / "whole"
    go(folder)
    return folder


@pytest.fixture
def study(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "study")
    return tmp_path / "study"


CONCLUSIVE = ("record.json", "spec.json", "metrics.jsonl", "experiment.json", "decisions.json")


def test_any_flip_is_named_and_repaired(whole: Path, study: Path) -> None:
    """One flip in each file in turn: what conclusions rest on is reported, and as it was after the next command."""
    dice = random.Random(0)
    expected = conclusions(whole)
    for path in sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file()):
        content = bytearray((whole / path).read_bytes())
        if not content:
            continue
        place = dice.randrange(len(content))
        content[place] ^= 1 << dice.randrange(8)
        (study / path).write_bytes(content)
        named = [each.path.name for each in Store.open(study).damaged()]
        assert named == ([path.name] if path.name in CONCLUSIVE else []), (path, place)
        said = go(study)
        assert any(path.name in line for line in said) == bool(named), path
        assert conclusions(study) == expected, (path, place)
        assert Store.open(study).damaged() == []


STRAY: dict[str, Callable[[Path], object]] = {
    "a file among the runs": lambda study: (study / "runs" / ".DS_Store").write_bytes(b"\x00"),
    "an empty folder among the runs": lambda study: (study / "runs" / "mine").mkdir(),
    "a folder for a record": lambda study: _folder_for(next(study.glob("runs/train-*/record.json"))),
    "a folder for the decisions": lambda study: _folder_for(study / "decisions.json"),
    "null decisions": lambda study: (study / "decisions.json").write_text("null"),
    "a deep record": lambda study: next(study.glob("runs/train-*/record.json")).write_text("[" * 10**6),
    "no specs": lambda study: _remove(study.glob("runs/*/spec.json")),
    "no runs": lambda study: shutil.rmtree(study / "runs"),
    "no experiment": lambda study: (study / "experiment.json").unlink(),
    "records exchanged": lambda study: _exchange(*sorted(study.glob("runs/train-*/record.json"))[:2]),
    "another rate in a spec": lambda study: _edit(next(study.glob("runs/train-*/spec.json"))),
}


@pytest.mark.parametrize("name", STRAY)
def test_stray_and_missing_things_stop_no_command(whole: Path, study: Path, name: str) -> None:
    STRAY[name](study)
    for command in ("report", "status"):
        assert run([command, str(study)]) in (0, 1)
    go(study)
    assert conclusions(study)[0] == conclusions(whole)[0]
    assert Store.open(study).damaged() == []


def test_a_command_that_reads_says_what_is_left_out(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", str(study), "--verify"]) == 0
    assert "nothing is damaged" in capsys.readouterr().out
    path = next(study.glob("runs/train-*/metrics.jsonl"))
    path.write_bytes(path.read_bytes()[:-1])
    assert run(["status", str(study)]) == 0
    assert "metrics.jsonl" not in capsys.readouterr().out
    assert run(["status", str(study), "--verify"]) == 1
    assert f"runs/{path.parent.name}/metrics.jsonl is damaged" in capsys.readouterr().out
    record = next(study.glob("runs/check-*/record.json"))
    record.write_bytes(b"")
    assert run(["status", str(study)]) == 0
    assert f"runs/{record.parent.name}/record.json" in capsys.readouterr().out


def test_documents_say_which_runs_are_left_out(study: Path) -> None:
    one, other = (path.name for path in sorted(study.glob("runs/train-*"))[:2])
    third = next(study.glob("runs/throughput-*")).name
    assert run(["report", str(study)]) == 0
    assert "left out" not in (study / "report.html").read_text()
    (study / "runs" / one / "spec.json").unlink()
    (study / "runs" / other / "metrics.jsonl").write_text("")
    (study / "runs" / third / "record.json").rename(study / "runs" / third / "record.json.damaged")
    for command in ("report", "status"):
        assert run([command, str(study)]) in (0, 1)
    for document in ("report.html", "report.md"):
        page = (study / document).read_text()
        assert "3 runs are left out" in page
        for place in (f"runs/{one}/spec.json", f"runs/{other}/metrics.jsonl", f"runs/{third}/record.json"):
            assert place in page, (document, place)
    go(study)
    run(["report", str(study)])
    assert "left out" not in (study / "report.md").read_text()


class Refused(DiskFiles):
    """A disk on which one run's folder cannot be entered, as after `chmod 000`."""

    def __init__(self, run: str) -> None:
        self._run = run

    def state(self, path: Path) -> FileState | None:
        if path.parent.name == self._run:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return super().state(path)


def test_a_run_that_cannot_be_read_does_not_stop_commands_that_read(study: Path) -> None:
    run_id = next(study.glob("runs/train-*")).name
    store = Store.open(study, Refused(run_id))
    records, damaged = store.scan()
    assert run_id not in {record.run_id for _, record in records}
    assert damaged == [DamagedFile(study / "runs" / run_id / "record.json", Damage.UNREADABLE)]
    assert store.unfinished() == []
    write_documents(store)
    assert f"runs/{run_id}/record.json cannot be read" in (study / "report.md").read_text()
    with pytest.raises(OSError, match=os.strerror(errno.EACCES)):
        store.verified(run_id)


def test_links_in_a_study_are_not_followed(study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "state").write_text("kept")
    made = next(study.glob("runs/train-*"))
    (made / "record.json").unlink()
    (made / "checkpoint").symlink_to(theirs)
    (made / "metrics.jsonl").unlink()
    (made / "metrics.jsonl").symlink_to(theirs / "metrics")
    go(study)
    assert [path.name for path in theirs.iterdir()] == ["state"]
    assert (theirs / "state").read_text() == "kept"
    shutil.rmtree(study / "runs")
    (study / "runs").symlink_to(theirs)
    assert run(["study", "simulated", "--out", str(study)]) == 2  # another experiment, found first
    assert run(["status", str(study)]) == 0
    assert [path.name for path in theirs.iterdir()] == ["state"]


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink()


def _folder_for(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _exchange(one: Path, other: Path) -> None:
    contents = one.read_bytes(), other.read_bytes()
    one.write_bytes(contents[1])
    other.write_bytes(contents[0])


def _edit(spec: Path) -> None:
    text = spec.read_text()
    assert '"learning_rate": 0.' in text
    spec.write_text(text.replace('"learning_rate": 0.', '"learning_rate": 0.1', 1))
