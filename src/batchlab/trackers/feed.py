"""From a study's folder to trackers: live, by the engine's events, or afterwards, from what is on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from batchlab.core.protocols import Event, Finished, Tracker, View, Waiting
from batchlab.core.record import MetricRow
from batchlab.core.spec import TrainSpec
from batchlab.storage.metrics import MetricsTail
from batchlab.storage.run_folder import read_spec
from batchlab.storage.store import Store
from batchlab.trackers.values import settings_of
from batchlab.words.trackers import tracker_dropped

FEED_SECONDS = 1.0
"""Least time between two reads of a running run's rows."""


@dataclass(slots=True)
class _Followed:
    """A training run that the trackers show."""

    tail: MetricsTail
    read_at: float = 0.0
    sent: set[tuple[int, frozenset[str]]] = field(default_factory=set)

    def rows(self) -> list[MetricRow]:
        """Rows not returned before: a run that resumed from its checkpoint writes some a second time."""
        fresh = []
        for row in self.tail.rows():
            key = (row.step, frozenset(row.model_fields_set))  # a step has one row per kind of measurement
            if key not in self.sent:
                self.sent.add(key)
                fresh.append(row)
        return fresh


class Feed:
    """Sends the training runs of the study in `folder` to trackers. One that raises is dropped, with one warning."""

    def __init__(self, folder: Path, trackers: Mapping[str, Tracker], warn: Callable[[str], None]) -> None:
        self._folder = folder
        self._trackers = dict(trackers)
        self._warn = warn
        self._followed: dict[str, _Followed] = {}

    def observe(self, event: Event) -> None:
        """Take in an event of an engine: progress of a run, or its end."""
        if isinstance(event, Waiting):
            return
        run = event.record.run_id if isinstance(event, Finished) else event.run_id
        if run not in self._followed:
            spec = event.spec if isinstance(event, Finished) else read_spec(self._folder / "runs" / run)
            if not isinstance(spec, TrainSpec):
                return
            self._followed[run] = _Followed(MetricsTail(self._folder / "runs" / run / "metrics.jsonl"))
            self._send(lambda tracker: tracker.begin(run, settings_of(spec)))
        followed, now = self._followed[run], time.monotonic()
        if isinstance(event, Finished) or now - followed.read_at >= FEED_SECONDS:
            followed.read_at = now
            for row in followed.rows():
                self._send(lambda tracker, row=row: tracker.row(run, row))  # type: ignore[misc]
        if isinstance(event, Finished):
            self._send(lambda tracker: tracker.end(run, event.record))
            del self._followed[run]

    def close(self) -> None:
        """Close all trackers."""
        self._send(lambda tracker: tracker.close())

    def _send(self, call: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._trackers.items()):
            try:
                call(tracker)
            except Exception as error:  # noqa: BLE001 - a tracker's error must not stop a run
                del self._trackers[name]
                self._warn(tracker_dropped(name, error, self._folder))


class TrackedView:
    """A View whose events are sent to trackers as well."""

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
    """Send every training run on disk to a tracker, finished or not; returns how many. Its errors pass through."""
    records = {record.run_id: record for _, record in store.records()}
    specs = {run: read_spec(store.path / "runs" / run, store.files) for run in sorted({*records, *store.unfinished()})}
    trained = {run: spec for run, spec in specs.items() if isinstance(spec, TrainSpec)}
    for run, spec in trained.items():
        tracker.begin(run, settings_of(spec))
        for row in store.rows(run):
            tracker.row(run, row)
        if run in records:
            tracker.end(run, records[run])
    tracker.close()
    return len(trained)
