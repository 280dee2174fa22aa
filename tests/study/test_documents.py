"""Documents of a running study: how often they are written, what that costs, and what it may not do to the study."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import batchlab.analysis.assemble as assemble_module
import batchlab.study.documents as documents_module
from batchlab.analysis.sweep.inferred import inferred_cells
from batchlab.core.clock import SystemClock
from batchlab.core.errors import StudyInterrupted
from batchlab.core.experiment import Experiment, build_experiment
from batchlab.core.protocols import Event, Finished
from batchlab.core.settings import merge
from batchlab.core.spec import TrainSpec
from batchlab.engines.inline import InlineEngine
from batchlab.storage import metrics, space
from batchlab.storage.files import DiskFile, DiskFiles
from batchlab.storage.store import Store
from batchlab.study.documents import LEAST_SECONDS, SHARE, Documents, read_findings, write_documents
from batchlab.study.progress import SilentView
from batchlab.study.study import StudyResult, run_study
from batchlab.study.task_source import resolve_task

SMALL: dict[str, Any] = {
    "batch": {"global_batch_sizes": (8, 16)},
    "sweep": {"learning_rates": (0.4, 0.8, 1.4), "seeds": 1, "max_extensions": 0},
    "budget": {"token_budget": 1024},
}
NAMES = ("report.html", "report.md", "outcomes.csv", "results.csv", "training_plan.json")


class SteppedClock(SystemClock):
    """A clock that the test moves on."""

    seconds = 1000.0

    def monotonic(self) -> float:
        """The seconds it was set to."""
        return self.seconds


class FullFor(DiskFiles):
    """A disk without space for files of some names."""

    def __init__(self, pattern: str) -> None:
        self._refused = re.compile(pattern)

    def create(self, path: Path) -> DiskFile:
        """Raise OSError for a name that is refused."""
        if self._refused.search(path.name):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return super().create(path)


class Counting(DiskFiles):
    """The disk of this machine, which counts the bytes of metrics that are read."""

    metrics_bytes = 0

    def read(self, path: Path, start: int = 0, size: int | None = None) -> bytes:
        """Read, and count."""
        content = super().read(path, start, size)
        self.metrics_bytes += len(content) if path.name == "metrics.jsonl" else 0
        return content


class Listener(SilentView):
    """Keeps what a study says."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        """Keep it."""
        self.said.append(text)


def rates(count: int) -> tuple[float, ...]:
    return tuple(0.4 * 1.03**i for i in range(count))


def asked(**changes: Any) -> Experiment:
    return build_experiment(merge(merge(resolve_task("simulated"), SMALL), changes))


def study(folder: Path, view: Listener | None = None, **more: Any) -> StudyResult:
    return run_study(asked(), folder, lambda path, workers: InlineEngine(path), view or Listener(), **more)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return study(tmp_path_factory.mktemp("documents") / "study").folder


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many training runs each writing of the documents knew."""
    counts: list[int] = []
    write = documents_module.write_locked

    def counted(*what: Any, **more: Any) -> Any:
        found = write(*what, **more)
        counts.append(len(found.runs))
        return found

    monkeypatch.setattr(documents_module, "write_locked", counted)
    return counts


def test_documents_wait_for_their_time_and_a_slow_writing_for_longer(
    finished: Path, written: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SteppedClock()
    store = Store.open(finished, clock=clock)
    kept = Documents(store, Listener())
    kept.refresh()
    assert not written, "nothing has changed"
    for _ in range(3):
        kept.run_ended()
        kept.refresh()
    assert len(written) == 1
    clock.seconds += LEAST_SECONDS
    kept.refresh()
    assert len(written) == 2, "the runs that ended meanwhile are made up for"
    kept.refresh()
    assert len(written) == 2

    counted = documents_module.write_locked

    def slow(*what: Any, **more: Any) -> Any:
        clock.seconds += 1.0
        return counted(*what, **more)

    monkeypatch.setattr(documents_module, "write_locked", slow)
    clock.seconds += LEAST_SECONDS
    kept.run_ended()
    kept.refresh()
    kept.run_ended()
    clock.seconds += 1 / SHARE - 0.1
    kept.refresh()
    assert len(written) == 3
    clock.seconds += 0.2
    kept.refresh()
    assert len(written) == 4


def test_metrics_of_a_run_are_read_once_and_again_when_their_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = study(tmp_path / "s").folder
    read: list[str] = []
    content = metrics.read_values

    def counted(path: Path, *more: Any) -> Any:
        read.append(path.parent.name)
        return content(path, *more)

    monkeypatch.setattr(metrics, "read_values", counted)
    kept = Documents(Store.open(folder), Listener())
    first = kept.save()
    assert sorted(read) == sorted(run.run_id for run in first.runs)
    kept.save()
    assert len(read) == len(first.runs)
    changed = first.runs[0].run_id
    with (folder / "runs" / changed / "metrics.jsonl").open("a") as file:
        file.write('{"step":900,"tokens":900,"train_loss":"NaN"}\n')
    again = kept.findings()  # while it runs: in full, a finished run whose metrics have changed would be left out
    assert read[len(first.runs) :] == [changed]
    assert [event.names for event in again.diagnostics.events if event.run_id == changed] == [("train_loss",)]


def test_between_two_runs_nothing_grows_with_the_number_of_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes of metrics that are read, and fits of the surrogate: no time, which depends on the machine."""
    inferred: list[int] = []
    infer = inferred_cells

    def counted(rows: Any) -> Any:
        inferred.append(len(rows))
        return infer(rows)

    monkeypatch.setattr(assemble_module, "inferred_cells", counted)
    cold, warm = {}, {}
    for number in (4, 16):
        folder, files, clock = tmp_path / f"{number}", Counting(), SteppedClock()
        grid = asked(sweep={"learning_rates": rates(number)})
        run_study(grid, folder, lambda path, workers: InlineEngine(path), SilentView(), write_documents=False)
        inferred.clear()
        kept = Documents(Store.open(folder, files, clock), Listener())
        kept.run_ended()
        kept.refresh()
        cold[number], files.metrics_bytes = files.metrics_bytes, 0
        clock.seconds += 1e6
        kept.run_ended()
        kept.refresh()
        warm[number] = files.metrics_bytes
        assert inferred == []
        kept.save()
        assert inferred == [2]
    assert cold[16] > 3 * cold[4]
    assert 0 < warm[16] < 1.2 * warm[4]


def test_a_study_whose_report_cannot_be_written_finishes_and_says_so(tmp_path: Path) -> None:
    view = Listener()
    result = study(tmp_path / "s", view, files=FullFor(r"^\.(report|results|notes)|^notes"))
    assert result.answered
    assert len([text for text in view.said if "batchlab report" in text]) == 2, "once while it runs, once at the end"
    for refused in ("results.csv", "report.md", "report.html", "notes.md"):
        assert not (tmp_path / "s" / refused).exists()
    write_documents(Store.open(tmp_path / "s"))
    assert all((tmp_path / "s" / name).exists() for name in NAMES)


def test_space_is_kept_for_records(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (finished / "report.html").read_bytes()
    monkeypatch.setattr(space, "RESERVED_BYTES", 2**60)
    view = Listener()
    Documents(Store.open(finished), view).save()
    (text,) = view.said
    assert "kept for records" in text
    assert (finished / "report.html").read_bytes() == before


def test_an_error_of_the_report_does_not_end_the_study(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    view = Listener()
    kept = Documents(Store.open(finished), view)
    monkeypatch.setattr(documents_module, "render_report", broken)
    kept.run_ended()
    kept.refresh()
    assert "division by zero" in view.said[0]
    with pytest.raises(ZeroDivisionError):
        kept.save()


class Stopped(InlineEngine):
    """Raises an error once a number of training runs have ended."""

    def __init__(self, study: Path, after: int, error: BaseException) -> None:
        super().__init__(study)
        self._left = after
        self._error = error

    def wait(self, timeout: float) -> list[Event]:
        """The next events, until the error is due."""
        if self._left == 0:
            raise self._error
        events = super().wait(timeout)
        self._left -= sum(isinstance(event, Finished) and isinstance(event.spec, TrainSpec) for event in events)
        return events


@pytest.mark.parametrize(
    ("error", "seen"),
    [(KeyboardInterrupt(), StudyInterrupted), (RuntimeError("a worker's pipe broke"), RuntimeError)],
)
def test_whatever_stops_a_study_leaves_documents_of_all_its_runs(
    tmp_path: Path, error: BaseException, seen: type[BaseException]
) -> None:
    with pytest.raises(seen):
        run_study(asked(), tmp_path / "s", lambda path, workers: Stopped(path, 4, error), Listener())
    assert len((tmp_path / "s" / "outcomes.csv").read_text().splitlines()) == 1 + 4
    assert "not finished" in (tmp_path / "s" / "report.md").read_text()


def test_after_a_kill_report_makes_the_documents(tmp_path: Path) -> None:
    """A killed process writes nothing more, as one that was told to write no documents."""
    folder = study(tmp_path / "s", write_documents=False).folder
    assert not any((folder / name).exists() for name in NAMES)
    write_documents(Store.open(folder))
    assert all((folder / name).exists() for name in NAMES)


def test_documents_never_go_backwards(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process cannot read records before, and write documents after, those of a process at work."""
    view = Listener()
    store, other = Store.open(finished), Documents(Store.open(finished), view)
    other.run_ended()
    scan = store.scan
    seen: list[bool] = []

    def meanwhile(**settings: Any) -> Any:
        found = scan(**settings)
        changed = (finished / "report.md").stat().st_ino
        other.refresh()
        seen.append((finished / "report.md").stat().st_ino == changed)
        return found

    monkeypatch.setattr(store, "scan", meanwhile)
    write_documents(store)
    assert seen == [True]
    assert view.said == [], "between runs nobody waits, and it is no failure"
    lock = store.documents_lock()
    assert lock.try_acquire(), "the lock is free afterwards"
    lock.release()


def test_a_complete_study_stays_complete(finished: Path) -> None:
    """Also where a process that helped still writes after the last stage has ended."""
    helper = Documents(Store.open(finished), Listener())
    helper.run_ended()
    helper.refresh()
    assert not read_findings(Store.open(finished)).partial
    assert "not finished" not in (finished / "report.md").read_text()
    assert json.loads((finished / "decisions.json").read_text())["complete"]


@pytest.fixture(scope="module", autouse=True)
def _no_lock_is_waited_for() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("batchlab.storage.store._LOCK_SECONDS", 1.0)
        yield
