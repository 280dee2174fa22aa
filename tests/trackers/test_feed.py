"""Trackers see each row once, in order, and cannot disturb a study."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from batchlab.cli.app import run
from batchlab.cli.commands import running
from batchlab.core.errors import InputError
from batchlab.core.protocols import Setting, Tracker
from batchlab.core.record import MetricRow, Record
from batchlab.storage.metrics import MetricsTail, MetricsWriter, rewind
from batchlab.storage.store import Store
from batchlab.testing import check_tracker
from batchlab.trackers import feed as module
from batchlab.trackers import open_tracker
from batchlab.trackers.feed import Feed, TrackedView, replay


class Listed:
    """A Tracker that remembers."""

    def __init__(self) -> None:
        self.runs: dict[str, list[MetricRow]] = {}
        self.settings: dict[str, Mapping[str, Setting]] = {}
        self.ended: dict[str, Record] = {}
        self.closed = 0

    def begin(self, run: str, settings: Mapping[str, Setting]) -> None:
        self.runs[run], self.settings[run] = [], settings

    def row(self, run: str, row: MetricRow) -> None:
        self.runs[run].append(row)

    def end(self, run: str, record: Record) -> None:
        self.ended[run] = record

    def close(self) -> None:
        self.closed += 1


class Broken(Listed):
    """A Tracker whose service is gone after a few rows."""

    def row(self, run: str, row: MetricRow) -> None:
        super().row(run, row)
        if len(self.runs[run]) == 3:
            raise ConnectionError("the service is gone")


def test_contract() -> None:
    kept = Listed()
    check_tracker(lambda: kept, lambda run: [(row.step, row.val_loss or 0.0) for row in kept.runs[run]])


SMALL = ("--batch-sizes", "4,8", "--learning-rates", "0.1,0.2", "--set", "sweep.max_extensions=0")
STUDY = ["study", "simulated", "--token-budget", "3200", "--seeds", "1", *SMALL]


def with_trackers(monkeypatch: pytest.MonkeyPatch, **trackers: Tracker) -> None:
    monkeypatch.setattr(
        running, "tracked", lambda view, folder, names: TrackedView(view, Feed(folder, trackers, view.say))
    )
    monkeypatch.setattr(module, "FEED_SECONDS", 0.0)


def test_a_study_is_told_row_by_row_and_a_broken_tracker_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    live, broken = Listed(), Broken()
    with_trackers(monkeypatch, mine=live, broken=broken)
    assert run([*STUDY, "--out", str(tmp_path / "s")]) == 0
    text = capsys.readouterr().out
    assert text.count("broken failed and will not be updated further (ConnectionError: the service is gone)") == 1
    assert f"batchlab mirror {tmp_path / 's'} --to broken" in text
    assert (broken.closed, live.closed) == (0, 1)
    store = Store.open(tmp_path / "s")
    trained = {record.run_id: record for spec, record in store.records() if spec.kind == "train"}
    assert live.ended == trained
    assert live.runs == {name: store.rows(name) for name in trained}
    sizes = {settings["global_batch_size"] for settings in live.settings.values()}
    assert len(sizes) > 1

    replayed = Listed()
    assert replay(store, replayed) == len(trained)
    assert (replayed.runs, replayed.ended, replayed.settings) == (live.runs, live.ended, live.settings)

    unended = next(iter(trained))
    (store.path / "runs" / unended / "record.json").unlink()
    without_an_end = Listed()
    replay(store, without_an_end)
    assert without_an_end.runs == live.runs
    assert set(without_an_end.ended) == set(trained) - {unended}


def row(step: int) -> MetricRow:
    return MetricRow(step=step, tokens=step, train_loss=1.0)


def test_a_tail_gives_whole_lines_once_and_begins_again_after_a_rewind(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    tail = MetricsTail(file)
    assert tail.rows() == []
    writer = MetricsWriter(file)
    writer.write(row(1))
    assert [r.step for r in tail.rows()] == [1]
    writer.write(row(2))
    with file.open("ab") as torn:
        torn.write(b'{"step": 3,')
    assert [r.step for r in tail.rows()] == [2]
    assert tail.rows() == []
    writer.close()
    assert rewind(file, 1) == 1
    writer = MetricsWriter(file)
    writer.write(row(2))
    assert [r.step for r in tail.rows()] == [1, 2]
    writer.close()


def test_what_is_refused_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"no tracker 'tensorbord'\. Did you mean 'tensorboard'"):
        open_tracker("tensorbord", tmp_path, "s")
    assert run(["study", "simulated", "--out", str(tmp_path / "s"), "--track", "request"]) == 2
    assert "Possible: tensorboard, wandb" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()
    assert run(["mirror", str(tmp_path / "none"), "--to", "tensorboard"]) == 2
    assert "is not a study" in capsys.readouterr().err


def test_a_tracker_that_is_not_installed_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(f"No module named {name!r}", name="wandb")

    monkeypatch.setattr("batchlab.trackers.importlib.import_module", missing)
    with pytest.raises(InputError, match=r"wandb is not installed; run: pip install 'batchlab\[wandb\]'"):
        open_tracker("wandb", tmp_path, "s")
