"""A study's folder: refused, opened, decided and read."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from batchlab.core.errors import InputError, StorageFailed, StudyChanged
from batchlab.core.experiment import Experiment
from batchlab.core.record import MetricRow, Outcome, Record
from batchlab.core.spec import Spec, TrainSpec
from batchlab.storage import metrics
from batchlab.storage.decisions import Decisions
from batchlab.storage.sealed import Damage, DamagedFile, seal
from batchlab.storage.store import Store


def test_creating_twice_is_opening(tmp_path: Path, experiment: Experiment) -> None:
    path = tmp_path / "deep" / "study"
    assert not Store.exists(path)
    store = Store.create(path, experiment)
    inode = (path / "experiment.json").stat().st_ino
    assert Store.exists(path)
    assert Store.create(path, experiment).experiment == store.experiment == experiment
    assert Store.open(path).experiment == experiment
    assert (path / "experiment.json").stat().st_ino == inode


def test_another_experiment_is_refused_with_what_differs(tmp_path: Path, experiment: Experiment) -> None:
    Store.create(tmp_path / "s", experiment)
    other = experiment.model_copy(update={"sequence_length": 128})
    with pytest.raises(StudyChanged, match="sequence_length: stored 1, asked 128") as caught:
        Store.create(tmp_path / "s", other)
    assert "--out" in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path: Path, experiment: Experiment) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match=r"'thesis\.tex' and is not a study"):
        Store.create(tmp_path, experiment)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_creator_killed_half_way_does_not_block_the_folder(tmp_path: Path, experiment: Experiment) -> None:
    (tmp_path / ".lock").touch()
    leftover = tmp_path / ".experiment.json.0011.batchlab-tmp"
    leftover.write_text("{")
    Store.create(tmp_path, experiment)
    assert not leftover.exists()


def test_a_file_or_an_unwritable_place_is_refused(tmp_path: Path, experiment: Experiment) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is not a folder"):
        Store.create(tmp_path / "file", experiment)
    for place in (tmp_path / "file" / "study", Path("/proc/study"), Path("/dev/null/study")):
        with pytest.raises(InputError, match=r"cannot be (written|made)"):
            Store.create(place, experiment)
    with pytest.raises(InputError, match=r"cannot be made"):
        Store.require_usable(tmp_path / "file" / "study")


def test_require_usable_writes_nothing(tmp_path: Path) -> None:
    Store.require_usable(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_no_study_a_damaged_one_and_one_from_the_future(tmp_path: Path, experiment: Experiment) -> None:
    with pytest.raises(InputError, match="is not a study"):
        Store.open(tmp_path)
    file = tmp_path / "experiment.json"
    file.write_text("{")
    with pytest.raises(InputError, match="is damaged"):
        Store.open(tmp_path)
    values = json.loads(experiment.model_dump_json())
    file.write_bytes(seal(json.dumps({**values, "schema_version": 2, "new_field": 1}, indent=1)))
    with pytest.raises(InputError, match="newer batchlab"):
        Store.open(tmp_path)
    with pytest.raises(InputError, match="newer batchlab"):
        Store.create(tmp_path, experiment)
    file.write_bytes(seal(json.dumps({"schema_version": 1}, indent=1)))
    with pytest.raises(InputError, match="not a batchlab experiment"):
        Store.open(tmp_path)


def test_a_decision_is_written_once(tmp_path: Path, experiment: Experiment) -> None:
    store = Store.create(tmp_path, experiment)
    assert store.decisions() == Decisions()
    assert store.decide(Decisions(capacity_limit_bytes=1)).capacity_limit_bytes == 1
    assert store.decide(Decisions(capacity_limit_bytes=2, complete=True)).capacity_limit_bytes == 1
    kept = Decisions(capacity_limit_bytes=1, complete=True)
    assert Store.open(tmp_path).decisions() == kept
    before = (tmp_path / "decisions.json").stat().st_mtime_ns
    assert store.decide(kept) == kept
    assert (tmp_path / "decisions.json").stat().st_mtime_ns == before
    written = set(json.loads((tmp_path / "decisions.json").read_text()))
    assert written == {"capacity_limit_bytes", "complete", "sha256"}


DAMAGES = ["", "{", "[]", "null", "[" * 100_000, '{"no_such_decision": 1}', '{"capacity_limit_bytes": 2}']


@pytest.mark.parametrize("content", DAMAGES, ids=range(len(DAMAGES)))
@pytest.mark.parametrize("name", ["experiment.json", "decisions.json"])
def test_a_damaged_file_is_replaced_by_its_copy(
    tmp_path: Path, experiment: Experiment, name: str, content: str
) -> None:
    store = Store.create(tmp_path, experiment)
    store.decide(Decisions(capacity_limit_bytes=1))
    assert store.repair() == []
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_text(content)
    assert Store.open(tmp_path).experiment == experiment
    assert store.decisions() == Decisions(capacity_limit_bytes=1), "reading changes nothing"
    assert (tmp_path / name).read_text() == content
    (damaged,) = store.damaged()
    assert damaged.path == tmp_path / name
    assert store.repair() == [damaged]
    assert (tmp_path / name).read_bytes() == whole
    assert (tmp_path / f"{name}.damaged").read_text() == content
    (tmp_path / name).unlink()
    assert store.repair() == [DamagedFile(tmp_path / name, Damage.MISSING)]
    assert (tmp_path / name).read_bytes() == whole
    assert store.damaged() == []


@pytest.mark.parametrize("content", DAMAGES, ids=range(len(DAMAGES)))
def test_without_a_whole_copy_a_study_is_refused(tmp_path: Path, experiment: Experiment, content: str) -> None:
    store = Store.create(tmp_path, experiment)
    store.decide(Decisions(capacity_limit_bytes=1))
    for name in ("decisions.json", ".decisions.json.copy"):
        (tmp_path / name).write_text(content)
    for use in (store.decisions, lambda: store.decide(Decisions(complete=True))):
        with pytest.raises(InputError, match="is damaged, and so is its copy"):
            use()
    assert store.repair() == []
    assert (tmp_path / "decisions.json").read_text() == content


def test_decisions_of_another_version_are_refused(tmp_path: Path, experiment: Experiment) -> None:
    store = Store.create(tmp_path, experiment)
    (tmp_path / "decisions.json").write_bytes(seal('{\n "no_such_decision": 1\n}'))
    with pytest.raises(InputError, match="another version"):
        store.decisions()


DECIDER = """
import sys
from pathlib import Path
from batchlab.storage.decisions import CriticalRound, Decisions
from batchlab.storage.sealed import Damage, DamagedFile, seal
from batchlab.storage.store import Store
store = Store.open(Path(sys.argv[1]))
mine = CriticalRound(sizes=(int(sys.argv[2]),), longer=())
print([store.decide(Decisions(critical_rounds={i: mine})).critical_rounds[i].sizes for i in range(20)])
"""


@pytest.mark.slow
def test_of_two_processes_the_first_decides_for_both(tmp_path: Path, experiment: Experiment) -> None:
    Store.create(tmp_path, experiment)
    racers = [
        subprocess.Popen([sys.executable, "-c", DECIDER, str(tmp_path), name], stdout=subprocess.PIPE, text=True)
        for name in ("1", "2", "3")
    ]
    said = [racer.communicate()[0] for racer in racers]
    assert len(set(said)) == 1
    assert said[0].count("(") == 20


def test_records_and_rows_are_read_back(
    tmp_path: Path, experiment: Experiment, finished_runs: list[tuple[Spec, Record]]
) -> None:
    store = Store.create(tmp_path, experiment)
    assert store.records() == []
    for spec, record in finished_runs:
        run = store.run(spec)
        assert run.try_lock()
        run.begin()
        run.row(MetricRow(step=1, tokens=8))
        run.finish(record)
        run.unlock()
    (tmp_path / "runs" / "train-b4-unfinished").mkdir()
    assert {record.run_id for _, record in store.records()} == {record.run_id for _, record in finished_runs}
    assert sorted(store.records(), key=str) == sorted(finished_runs, key=str)
    first = finished_runs[0][1]
    assert store.rows(first.run_id) == [MetricRow(step=1, tokens=8)]
    assert store.rows("absent") == []
    assert store.record(first.run_id) == first
    assert store.record("absent") is None

    store.write_tables(store.records())
    outcomes = (tmp_path / "outcomes.csv").read_text()
    assert first.run_id in outcomes
    assert "throughput" in (tmp_path / "results.csv").read_text()

    assert store.forget(first.run_id)
    assert store.record(first.run_id) is None
    store.write_tables(store.records())
    assert first.run_id not in (tmp_path / "outcomes.csv").read_text()


def test_a_run_at_work_is_not_forgotten(
    tmp_path: Path, experiment: Experiment, train_spec: Callable[..., TrainSpec]
) -> None:
    store = Store.create(tmp_path, experiment)
    run = store.run(train_spec())
    assert run.try_lock()
    run.begin().finish(Record(run_id=run.run_id, outcome=Outcome.FAILED, reason="x"))
    assert not store.forget(run.run_id)
    run.unlock()
    assert store.forget(run.run_id)


def test_what_a_run_killed_after_its_record_left_is_removed(
    tmp_path: Path, experiment: Experiment, train_spec: Callable[..., TrainSpec]
) -> None:
    store = Store.create(tmp_path, experiment)
    finished, running = store.run(train_spec()), store.run(train_spec(seed=1))
    for run in (finished, running):
        assert run.try_lock()
        run.begin()
    finished.finish(Record(run_id=finished.run_id, outcome=Outcome.COMPLETED))
    for run in (finished, running):
        run.save_checkpoint({"step": 1}, lambda sink: sink.write(b"state"))
    store.tidy()
    assert finished.load_checkpoint() is not None, "its process may still be at work"
    finished.unlock()
    running.unlock()
    store.tidy()
    assert finished.load_checkpoint() is None
    kept = running.load_checkpoint()
    assert kept is not None
    assert (kept[0], kept[1].read()) == ({"step": 1}, b"state")


def test_notes_are_made_once_and_are_the_persons(tmp_path: Path, experiment: Experiment) -> None:
    store = Store.create(tmp_path, experiment)
    file = tmp_path / "notes.md"
    assert store.notes() is None
    store.begin_notes("# the page\n")
    assert file.read_text() == "# the page\n"
    assert store.notes() == "", "nothing of it is the person's yet"
    file.write_text("It was the seed.")
    store.begin_notes("# another page\n")
    assert store.notes() == file.read_text() == "It was the seed."
    file.unlink()
    store.begin_notes("# another page\n")
    assert not file.exists(), "removed by the person, so not made again"
    assert store.notes() is None


def test_notes_written_before_the_page_is_made_stay(tmp_path: Path, experiment: Experiment) -> None:
    store = Store.create(tmp_path, experiment)
    (tmp_path / "notes.md").write_bytes(b"mine, in Latin-1: \xe9")
    store.begin_notes("# the page\n")
    assert (tmp_path / "notes.md").read_bytes() == b"mine, in Latin-1: \xe9"
    assert store.notes() == "mine, in Latin-1: \ufffd"


def test_measurements_wait_for_each_other(tmp_path: Path, experiment: Experiment) -> None:
    one, two = Store.create(tmp_path, experiment), Store.open(tmp_path)
    with one.exclusive():
        assert not _free(two)
    assert _free(two)


def _free(store: Store) -> bool:
    lock = store.exclusive()
    try:
        return lock.try_acquire()
    finally:
        lock.release()


def test_a_full_disk_keeps_what_is_there(
    tmp_path: Path, experiment: Experiment, monkeypatch: pytest.MonkeyPatch, train_spec: Callable[..., TrainSpec]
) -> None:
    store = Store.create(tmp_path, experiment)
    store.decide(Decisions(capacity_limit_bytes=1))
    run = store.run(train_spec())
    assert run.try_lock()
    run.begin()
    record = Record(run_id=run.run_id, outcome=Outcome.COMPLETED)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        for write in (
            lambda: store.decide(Decisions(complete=True)),
            lambda: store.write_documents({"report.html": "x"}),
            lambda: store.write_tables([]),
            lambda: run.save_checkpoint({"step": 1}, lambda sink: sink.write(b"state")),
            lambda: run.finish(record),
        ):
            with pytest.raises(StorageFailed, match="finished runs are kept"):
                write()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    run.finish(record)
    assert store.records() == [(run.spec, record)]
    assert metrics.read_rows(run.path / "metrics.jsonl") == ([], 0)
