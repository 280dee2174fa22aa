"""One run from a plan: pre-flight, the run itself, its weights, and what was predicted beside what came of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from batchlab.core.errors import InputError, StudyInterrupted, sentence_from_validation
from batchlab.core.frameworks import SHIPPED, load_framework
from batchlab.core.protocols import Engine, Finished, Interrupted, View
from batchlab.core.ranks import Membership
from batchlab.core.record import Outcome, Record, TaskInfo, TrainResult
from batchlab.core.spec import DeviceSettings, InspectSpec, TrainSpec
from batchlab.engines.attempt import LiveRun, follow
from batchlab.engines.cards import visible_cards
from batchlab.engines.hosts import this_machine
from batchlab.engines.inline import InlineEngine
from batchlab.engines.process_engine import ProcessEngine
from batchlab.engines.resources import usable_cores
from batchlab.plan.train_spec import train_spec
from batchlab.plan.training_plan import SCHEMA_VERSION, TrainingPlan
from batchlab.storage.atomic import make_folders, scratch_folder, storage_errors, write_atomically
from batchlab.storage.files import DISK
from batchlab.storage.run_folder import RunFolder
from batchlab.study.preflight import Item, preflight, require_ready

PLAN_NAME, WEIGHTS_NAME = "training_plan.json", "weights.safetensors"


@dataclass(frozen=True, slots=True)
class Trained:
    """A finished run. weights: None where its framework writes none."""

    plan: TrainingPlan
    record: Record
    folder: Path
    weights: Path | None

    @property
    def result(self) -> TrainResult | None:
        return self.record.result if isinstance(self.record.result, TrainResult) else None


def read_plan(path: Path) -> TrainingPlan:
    """The plan in a file. Raises InputError where it is none, or contradicts itself."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    try:
        return TrainingPlan.model_validate_json(content)
    except ValidationError as error:
        problem = error.errors()[0]
        if problem["loc"] == ("schema_version",):
            raise InputError(
                f"{path} has schema_version {problem['input']!r}, and this version of batchlab reads {SCHEMA_VERSION}; "
                "use the version that wrote it."
            ) from None
        if problem["type"] == "json_invalid":
            raise InputError(f"{path} is not JSON: {problem['msg']}.") from None
        raise InputError(f"{path}: {sentence_from_validation(error)}") from None


def run_plan(
    plan: TrainingPlan, folder: Path, view: View, *, device: str | None, seed: int, say: Callable[[Item], None]
) -> Trained:
    """Train what the plan says in `folder`, from its checkpoint if there is one.

    Started by torchrun or the like, this process is one of the plan's ranks; otherwise it starts them. Raises
    InputError where the pre-flight finds what would stop the run, StudyInterrupted on Ctrl-C and SIGTERM.
    """
    membership = Membership.of()
    devices = plan.batch_configuration.data_parallel_size
    if membership.size not in (1, devices):
        raise InputError(
            f"The plan is for {devices} devices, and {membership.size} processes were started; start {devices}, or run "
            "batchlab train without a launcher, which starts them itself."
        )
    threads = max(1, usable_cores() // devices)
    spec = train_spec(plan, device=device, threads=threads, seed=seed)
    folder = folder.absolute()
    launched = membership.size > 1
    if launched:
        _see_one_card(membership)
    if membership.rank:
        _follow(spec, folder)
    _require_same_plan(plan, folder)
    info, framework = _inspect(spec)
    items = preflight(plan, spec, info, framework, folder)
    for item in items:
        say(item)
    require_ready(items)
    with storage_errors(folder):
        make_folders(folder, DISK)
    write_atomically(folder / PLAN_NAME, plan.model_dump_json(indent=2))
    inline = launched or spec.device.name == "simulated"
    engine = InlineEngine(folder) if inline else ProcessEngine(folder, [this_machine(1)])
    record = _run(engine, spec, view, folder)
    return Trained(plan, record, folder, _export(spec, record, folder))


def _see_one_card(membership: Membership) -> None:
    """A launcher shows every process all cards of its machine."""
    cards = visible_cards()
    if membership.local_rank < len(cards):
        os.environ["CUDA_VISIBLE_DEVICES"] = cards[membership.local_rank]


def _follow(spec: TrainSpec, folder: Path) -> None:
    """Train as a rank other than the first, and exit."""
    follow(LiveRun(folder, spec, lambda _: None, lambda: False))
    os._exit(0)


def _require_same_plan(plan: TrainingPlan, folder: Path) -> None:
    kept = folder / PLAN_NAME
    if kept.exists() and read_plan(kept) != plan:
        raise InputError(f"{folder} holds the training of another plan; give a new folder with --out.")


def _inspect(spec: TrainSpec) -> tuple[TaskInfo, str]:
    """The task as it loads now, in a process of its own, and the version of its framework."""
    workload = spec.workload.model_copy(update={"data_digest": "", "code_digest": ""})
    inspected = InspectSpec(workload=workload, optimizer=spec.optimizer, device=DeviceSettings(name=spec.device.name))
    with scratch_folder() as scratch:
        engine = InlineEngine(scratch) if spec.device.name == "simulated" else ProcessEngine(scratch, [this_machine(1)])
        try:
            engine.submit(inspected, exclusive=True)
            record = _finished(engine)
        finally:
            engine.close()
    if not isinstance(record.result, TaskInfo):
        raise InputError(f"The task of the plan cannot be loaded: {record.reason}")
    return record.result, record.environment.framework if record.environment else ""


def _finished(engine: Engine, view: View | None = None) -> Record:
    while True:
        for event in engine.wait(1.0):
            if view is not None:
                view.show(event)
            if isinstance(event, Finished):
                return event.record


def _run(engine: Engine, spec: TrainSpec, view: View, folder: Path) -> Record:
    stopped = StudyInterrupted(f"Stopped. The checkpoint in {folder} is kept; run the same command again to continue.")
    try:
        engine.submit(spec)
        return _finished(engine, view)
    except (KeyboardInterrupt, Interrupted):
        raise stopped from None
    finally:
        engine.close()


def _export(spec: TrainSpec, record: Record, folder: Path) -> Path | None:
    """Write the weights at the end; None where the run did not complete, or its framework has none to write."""
    if record.outcome is not Outcome.COMPLETED:
        return None
    found = RunFolder(folder, spec).end_of(record.run_id)
    name = spec.workload.framework
    if found is None or name not in SHIPPED:
        return None
    path = folder / WEIGHTS_NAME
    return path if load_framework(name).export_weights(found[1], path) else None
