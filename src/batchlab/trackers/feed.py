"""From a study's folder to its trackers: live, by what an engine says, or afterwards, from what is on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from batchlab.core.protocols import Event, Finished, Tracker, View
from batchlab.core.record import MetricRow
from batchlab.core.spec import TrainSpec
from batchlab.storage.metrics import MetricsTail
from batchlab.storage.run_folder import read_spec
from batchlab.storage.store import Store
from batchlab.trackers.values import settings_of

FEED_SECONDS = 1.0
"""Least time between two looks at a running run's rows."""


@dataclass(slots=True)
class _Followed:
    """A training run that trackers have been told of."""

    tail: MetricsTail
    looked: float = 0.0
    told: set[tuple[int, frozenset[str]]] = field(default_factory=set)

    def rows(self) -> list[MetricRow]:
        """Rows not handed out before: a run that went back to its checkpoint writes some a second time."""
        fresh = []
        for row in self.tail.rows():
            key = (row.step, frozenset(row.model_fields_set))  # a step has a row for each kind of thing measured
            if key not in self.told:
                self.told.add(key)
                fresh.append(row)
        return fresh


class Feed:
    """Tells trackers of the training runs of the study in `folder`. One that raises is dropped, which is said once."""

    def __init__(self, folder: Path, trackers: Mapping[str, Tracker], warn: Callable[[str], None]) -> None:
        self._folder = folder
        self._trackers = dict(trackers)
        self._warn = warn
        self._followed: dict[str, _Followed] = {}

    def observe(self, event: Event) -> None:
        """What an engine said: a sign of life, or a run that ended."""
        run = event.record.run_id if isinstance(event, Finished) else event.run_id
        if run not in self._followed:
            spec = event.spec if isinstance(event, Finished) else read_spec(self._folder / "runs" / run)
            if not isinstance(spec, TrainSpec):
                return
            self._followed[run] = _Followed(MetricsTail(self._folder / "runs" / run / "metrics.jsonl"))
            self._tell(lambda tracker: tracker.begin(run, settings_of(spec)))
        followed, now = self._followed[run], time.monotonic()
        if isinstance(event, Finished) or now - followed.looked >= FEED_SECONDS:
            followed.looked = now
            for row in followed.rows():
                self._tell(lambda tracker, row=row: tracker.row(run, row))  # type: ignore[misc]
        if isinstance(event, Finished):
            self._tell(lambda tracker: tracker.end(run, event.record))
            del self._followed[run]

    def close(self) -> None:
        """No more will come."""
        self._tell(lambda tracker: tracker.close())

    def _tell(self, what: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._trackers.items()):
            try:
                what(tracker)
            except Exception as error:  # noqa: BLE001 - somebody else's program must not stop a run
                del self._trackers[name]
                self._warn(
                    f"   {name} failed and gets no more of this study ({type(error).__name__}: {error}). The runs go "
                    f"on; afterwards: batchlab mirror {self._folder} --to {name}"
                )


class TrackedView:
    """A View that trackers see as well."""

    def __init__(self, view: View, feed: Feed) -> None:
        self._view = view
        self._feed = feed

    def stage(self, title: str, runs: int | None = None) -> None:
        self._view.stage(title, runs)

    def say(self, text: str) -> None:
        self._view.say(text)

    def show(self, event: Event) -> None:
        self._view.show(event)
        self._feed.observe(event)

    def close(self) -> None:
        self._feed.close()
        self._view.close()


def replay(store: Store, tracker: Tracker) -> int:
    """Tell a tracker of every training run on disk, ended or not; returns how many. What it raises passes through."""
    records = {record.run_id: record for _, record in store.records()}
    specs = {run: read_spec(store.path / "runs" / run) for run in sorted({*records, *store.unfinished()})}
    trained = {run: spec for run, spec in specs.items() if isinstance(spec, TrainSpec)}
    for run, spec in trained.items():
        tracker.begin(run, settings_of(spec))
        for row in store.rows(run):
            tracker.row(run, row)
        if run in records:
            tracker.end(run, records[run])
    tracker.close()
    return len(trained)
