"""What an invocation executes: the same on any machine, and again what another attempt may change."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchlab.core.errors import WorkerLost
from batchlab.core.experiment import Experiment, build_experiment
from batchlab.core.protocols import Event, Finished
from batchlab.core.record import CapacityResult, Outcome, Record
from batchlab.core.spec import CapacitySpec, Spec, run_id
from batchlab.engines.inline import InlineEngine
from batchlab.storage.run_folder import RunFolder
from batchlab.storage.store import Store
from batchlab.study import session as sessions
from batchlab.study.open_study import open_study
from batchlab.study.progress import SilentView
from batchlab.study.session import Session, run_specs
from batchlab.study.study import run_study
from batchlab.study.task_source import resolve_task


@pytest.fixture
def asked() -> Experiment:
    sweep = {"learning_rates": [0.8, 1.4], "seeds": 1, "search": "grid", "max_extensions": 0}
    values = resolve_task("simulated") | {"sweep": sweep, "budget": {"token_budget": 2048}}
    return build_experiment(values | {"batch": {"global_batch_sizes": [8, 16]}})


class Counted(InlineEngine):
    """Counts what it is asked to execute, and loses the worker of one of them."""

    executed: list[str]
    lost: int | None

    def submit(self, spec: Spec, *, exclusive: bool = False) -> None:
        if spec.kind != "inspect":
            if len(self.executed) == self.lost:
                raise WorkerLost("Lost; run the same command again to continue.")
            self.executed.append(spec.kind)
        super().submit(spec, exclusive=exclusive)


@pytest.fixture
def counted() -> type[Counted]:
    Counted.executed, Counted.lost = [], None
    return Counted


def carry_out(asked: Experiment, folder: Path, engine: type[Counted]) -> bytes:
    run_study(asked, folder, lambda path, workers: engine(path), SilentView())
    return (folder / "outcomes.csv").read_bytes()


def test_a_machine_with_other_cores_repeats_nothing(
    asked: Experiment, counted: type[Counted], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "measuring_cores", lambda hosts: 2)
    before = carry_out(asked, tmp_path / "study", counted)
    counted.executed.clear()
    monkeypatch.setattr(sessions, "measuring_cores", lambda hosts: 64)
    assert carry_out(asked, tmp_path / "study", counted) == before
    assert counted.executed == []


@pytest.mark.parametrize("lost", [0, 2, 4])
def test_a_worker_lost_in_any_stage_ends_the_study_and_the_same_command_goes_on(
    asked: Experiment, counted: type[Counted], tmp_path: Path, lost: int
) -> None:
    undisturbed = carry_out(asked, tmp_path / "undisturbed", counted)
    everything = list(counted.executed)
    counted.executed, counted.lost = [], lost
    folder = tmp_path / "study"
    with pytest.raises(WorkerLost):
        carry_out(asked, folder, counted)
    assert all(record.outcome is Outcome.COMPLETED for _, record in Store.open(folder).records())
    counted.lost = None
    assert carry_out(asked, folder, counted) == undisturbed
    assert counted.executed == everything


class Retried:
    """An engine in which everything succeeds."""

    def __init__(self, study: Path) -> None:
        self.study = study
        self.events: list[Event] = []

    def submit(self, spec: Spec, *, exclusive: bool = False) -> None:
        folder = RunFolder(self.study, spec)
        assert folder.try_lock()
        record = Record(run_id=run_id(spec), outcome=Outcome.COMPLETED)
        folder.begin().finish(record)
        folder.unlock()
        self.events.append(Finished(spec, record))

    def wait(self, timeout: float) -> list[Event]:
        events, self.events = self.events, []
        return events

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("outcome", "certain", "again"),
    [
        (Outcome.FAILED, None, True),
        (Outcome.OUT_OF_MEMORY, None, True),  # a run that the system killed for memory, which others may have taken
        (Outcome.OUT_OF_MEMORY, False, True),
        (Outcome.OUT_OF_MEMORY, True, False),  # a probe whose allocation failed
        (Outcome.DIVERGED, None, False),
        (Outcome.COMPLETED, None, False),
    ],
)
def test_retrying_repeats_what_another_attempt_may_change(
    asked: Experiment, tmp_path: Path, outcome: Outcome, certain: bool | None, again: bool
) -> None:
    study = open_study(asked, tmp_path / "study", lambda path, workers: InlineEngine(path), accept_edits=False)
    spec = CapacitySpec(workload=study.workload, micro_batch_size=8)
    folder = RunFolder(study.store.path, spec)
    assert folder.try_lock()
    result = None if certain is None else CapacityResult(micro_batch_size=8, fits=False, certain=certain)
    first = Record(run_id=folder.run_id, outcome=outcome, result=result)
    folder.begin().finish(first)
    folder.unlock()
    engine = Retried(study.store.path)
    for retry in (False, True):
        session = Session(study, lambda path, workers: engine, SilentView(), retry_failed=retry)
        [record] = run_specs(session, [spec], engine)
        assert (record != first) == (retry and again), retry
