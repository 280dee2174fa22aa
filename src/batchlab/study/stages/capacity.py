"""Which micro-batch fits: the search's questions become traces and probes, its answer a decision on disk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, get_args

import psutil

from batchlab.analysis.capacity.capacity import Capacity, ShardedCapacity, phase_bytes
from batchlab.analysis.capacity.memory import capacity_finding, memory_points, spread_of, traced_before
from batchlab.core.batch import BatchLayout
from batchlab.core.check import CheckResult
from batchlab.core.experiment import Experiment, MemoryOptimization
from batchlab.core.format import format_bytes
from batchlab.core.parse import headroom_bytes
from batchlab.core.protocols import Engine, Finished
from batchlab.core.record import CapacityResult, Outcome, Record, TraceResult
from batchlab.core.spec import (
    CapacitySpec,
    DeviceSettings,
    OptimizerSettings,
    Spec,
    TraceSpec,
    run_id,
)
from batchlab.search.capacity import Answer, CapacitySearch, Probe, Probed, Question, Trace, Traced, first_sizes
from batchlab.search.probe_time import (
    CALIBRATING_STEPS,
    VERIFYING_STEPS,
    ProbeTime,
    assumed_probe_time,
    measured_probe_time,
)
from batchlab.storage.decisions import CapacityDecision, Decisions, LimitKind, SlowProbe
from batchlab.storage.store import Store
from batchlab.study.session import Session, open_engine, run_specs
from batchlab.study.stages.capacity_request import CapacityRequest
from batchlab.study.stages.check import check_stage
from batchlab.study.stages.effort import Effort
from batchlab.study.stages.failure import StageFailed
from batchlab.study.stages.gradient_sampling import probed_sampling
from batchlab.study.stages.sharded import sharded_stage
from batchlab.words.probe_time import describe_prediction, describe_remaining_probe, describe_search

HEADROOM = "5%"
"""Kept free by default: later steps fragment memory, logging and checkpoints need a little."""

SHARED_HEADROOM = "20%"
"""The same on a CPU without a given limit, whose memory other programs share."""

MEMORY_OPTIMIZATIONS: tuple[MemoryOptimization, ...] = get_args(MemoryOptimization)

DRAWS = 8
"""Batches that are tried where memory depends on the values in a batch."""

RUN_SIZES = (2, 8, 32)
"""Sizes at which steps run instead of a trace; the largest shows how memory grows, and is still quick."""

_LITTLE = 0.0
"""The spread where it is known that memory varies, but no batch was run to see by how much."""

_BYTES_PER_PARAMETER = 16
"""Weights, gradients and two moments in float32."""

_PLAUSIBLE = 0.5
"""Below this predicted share of the budget, a crash without evidence of its cause is not counted as out of memory."""


def sweep_need(experiment: Experiment, sample_independent: bool) -> CapacityRequest:
    """The largest micro-batch that the study's global batches could use."""
    largest = math.ceil(experiment.batch.global_batch_sizes[-1] / experiment.device.data_parallel_size)
    return CapacityRequest(
        needed=max(min(experiment.batch.micro_batch_size or largest, largest), 1 if sample_independent else 2)
    )


@dataclass(frozen=True, slots=True)
class _Frame:
    """What bounds the answer."""

    limit_bytes: int
    limit_is: LimitKind
    headroom: str
    device: DeviceSettings
    enforced: bool
    reserved: bool


def search_line(session: Session, request: CapacityRequest) -> str:
    """What the search for the largest size is about to do and how long that takes, before anything is measured."""
    experiment = session.study.experiment
    return describe_search(
        assumed_probe_time(session.study.task_info, session.device.threads or 1),
        1 if experiment.batch.micro_batching == "off" else 2,
        runs=request.card_bytes is None,
        spares_time=request.spares_time(experiment.device.memory_limit),
    )


def capacity_stage(session: Session, request: CapacityRequest, *, sample_independent: bool) -> Capacity:
    """Find the largest micro-batch that fits, or only whether what the sweep needs does.

    Raises StageFailed where the task itself fails, or where nothing could be traced or run.
    """
    study = session.study
    experiment, store = study.experiment, study.store
    frame = _frame(session, request)
    most = _most(session, request)
    smallest = min(1 if sample_independent else 2, most)
    search = CapacitySearch(
        frame.limit_bytes,
        most=most,
        smallest=smallest,
        headroom=partial(headroom_bytes, frame.headroom),
        probe=request.card_bytes is None,
        prove=request.prove,
    )
    training = request.needed is not None
    time = None if training else assumed_probe_time(study.task_info, frame.device.threads or 1)
    asker = _Asker(session, frame, search, sample_independent, training=training, time=time)
    too_slow: SlowProbe | None = None
    with open_engine(session, workers=1) as engine:
        effort = Effort(partial(asker.seconds_per_sample, engine), VERIFYING_STEPS * asker.accumulation)
        while asked := search.ask():
            if isinstance(asked[0], Probe):
                asker.say_prediction()
            if too_slow is None and request.spares_time(experiment.device.memory_limit):
                too_slow = asker.too_slow(asked, effort)
                if too_slow is not None:
                    continue
            search.tell(asked, [asker.answer(question, engine) for question in asked])
        if search.largest is None and search.curve is not None:
            asker.trace_memory_optimizations(smallest, engine)
        sharded = asker.sharded(request.devices, most, engine) if request.devices > 1 else ()
    decided = CapacityDecision(
        searched_up_to=most,
        max_micro_batch_size=search.largest,
        smallest_failed=search.smallest_failed,
        limit_bytes=search.limit_bytes,
        limit_is=frame.limit_is,
        headroom_bytes=search.headroom_bytes,
        grad_accum_steps=asker.accumulation,
        reserved=frame.reserved,
        too_slow=too_slow,
        varies=search.spread is not None,
        up_to=search.up_to,
        margin_bytes=search.margin_bytes,
    )
    if request.card_bytes is None:
        decided = _kept(store, decided, request)
    found = capacity_finding(experiment, store.records(), decided)
    if found is None:
        raise StageFailed(
            f"{asker.untraceable} Memory of a card that is not here is predicted from a trace, which has no values; "
            "compute such values in the data, or run `batchlab capacity` on the card."
        )
    return replace(found, sharded=sharded)


def checked_for_memory(session: Session, request: CapacityRequest) -> CheckResult | Record:
    """The check of what decides which batches fit, on a CPU while another process traces the first sizes.

    The trace assumes that batches may be split, as they mostly may; where they may not, it was for nothing.
    """
    accumulation = _accumulation(session, sample_independent=True)
    spec = _trace_spec(session, first_sizes(1, _most(session, request)), accumulation, session.device)
    if session.device.name != "cpu" or session.study.store.record(run_id(spec)) is not None:
        return check_stage(session, "memory")
    with open_engine(session, workers=1) as engine:
        engine.submit(spec)
        checked = check_stage(session, "memory")
        finished = False
        while not finished:
            for event in engine.wait(1.0):
                session.view.show(event)
                finished |= isinstance(event, Finished)
    return checked


def _most(session: Session, request: CapacityRequest) -> int:
    """The largest micro-batch of interest."""
    study = session.study
    samples = study.task_info.train_samples or study.experiment.batch.global_batch_sizes[-1]
    return request.needed or min(request.most or samples, samples)


def _accumulation(session: Session, *, sample_independent: bool) -> int:
    """Micro-batches in a step: gradients stay allocated during the second one, where a batch may be split."""
    may_split = sample_independent and session.study.experiment.batch.micro_batching != "off"
    return 2 if may_split else 1


def _trace_spec(session: Session, sizes: tuple[int, ...], accumulation: int, device: DeviceSettings) -> TraceSpec:
    """Only what a caching allocator reserves depends on the memory limit."""
    limit = device.memory_limit if device.name.startswith("cuda") else None
    return TraceSpec(
        workload=session.study.workload,
        micro_batch_sizes=sizes,
        grad_accum_steps=accumulation,
        optimizer=session.optimizer(session.study.experiment.reference_batch_size),
        device=device.model_copy(update={"memory_limit": limit}),
    )


def _kept(store: Store, found: CapacityDecision, request: CapacityRequest) -> CapacityDecision:
    """The answer that the study keeps for this request: the first that was found."""
    if request.needed is None:
        kept = store.decide(Decisions(capacity=found)).capacity
    else:
        kept = store.decide(Decisions(micro_batch=found)).micro_batch
    assert kept is not None
    return kept


@dataclass(slots=True)
class _Asker:
    """Has an engine answer the questions of a search.

    training: the probes stand for training runs of this study, so they also sample gradients and take snapshots.
    time: how long probes take, where that is to be told.
    """

    session: Session
    frame: _Frame
    search: CapacitySearch
    sample_independent: bool
    training: bool
    time: ProbeTime | None = None
    ran: bool = False  # steps were run instead of a trace
    draws: bool = False  # and batches of one size needed different amounts of memory
    untraceable: str = ""  # why the model cannot be traced
    probed: list[tuple[Spec, Record]] = field(default_factory=list)
    prediction_said: bool = False

    @property
    def accumulation(self) -> int:
        """Micro-batches in a step."""
        return _accumulation(self.session, sample_independent=self.sample_independent)

    def answer(self, question: Question, engine: Engine) -> Answer:
        if isinstance(question, Trace):
            return self._trace(question, engine)
        return self._probe(question, engine)

    def say_prediction(self) -> None:
        """Once, before anything is run."""
        predicted = self.search.predicted
        if predicted and not self.prediction_said:
            text = describe_prediction(predicted, self.search.limit_bytes, self.time, self.accumulation)
            self.session.view.say(f"   {text}")
        self.prediction_said = True

    def _say_remaining(self, ran: int, result: CapacityResult) -> None:
        """After the first probe: how long that of the predicted size takes."""
        predicted, seconds = self.search.predicted or 0, result.seconds_per_sample
        if self.training or len(self.probed) > 1 or not seconds or predicted <= ran:
            return
        text = describe_remaining_probe(predicted, measured_probe_time(seconds), self.accumulation)
        self.session.view.say(f"   {text}")

    def too_slow(self, asked: Sequence[Question], effort: Effort) -> SlowProbe | None:
        """Where the probe that is asked, or that of the predicted largest size, takes too long: restrict the search."""
        [question] = asked
        largest = self.search.predicted or 0
        if not isinstance(question, Probe):
            return None
        slow = effort.too_slow(max(question.size, largest))
        if slow is None:
            return None
        self.search.most = slow.useful
        return SlowProbe(predicted=max(question.size, largest), seconds=slow.seconds, knee=slow.knee)

    def seconds_per_sample(self, engine: Engine, size: int) -> float | None:
        """Of the last of two whole steps, each in two micro-batches; None where the size does not run."""
        [record] = run_specs(self.session, [self._probe_spec(size, CALIBRATING_STEPS)], engine, exclusive=True)
        return record.result.seconds_per_sample if isinstance(record.result, CapacityResult) else None

    def _trace(self, question: Trace, engine: Engine) -> Answer:
        if self.ran:
            return Traced(())
        traced = self._traced(self._trace_spec(question.sizes), engine)
        if (traced.points and not traced.varies) or self.search.curve is not None or not self._may_run_traces:
            return Traced(phase_bytes(traced.points, self.frame.reserved), _LITTLE if traced.varies else None)
        ran = self._traced(self._trace_spec(RUN_SIZES).model_copy(update={"draws": DRAWS}), engine).points
        if not ran:
            return Traced(phase_bytes(traced.points, self.frame.reserved), _LITTLE if traced.varies else None)
        self.ran = True
        # Any difference counts: tensors that differed by 0.1 % left holes in which a process lost half of its memory.
        self.draws = any(len(set(point.draw_bytes)) > 1 for point in ran)
        return Traced(phase_bytes(ran, reserved=False), spread_of(ran[-1].draw_bytes) if self.draws else None)

    def sharded(self, devices: int, most: int, engine: Engine) -> tuple[ShardedCapacity, ...]:
        """The largest size on several devices of this kind."""
        return sharded_stage(
            lambda sizes: self._traced(self._trace_spec(sizes), engine),
            devices=devices,
            limit_bytes=self.frame.limit_bytes,
            headroom=partial(headroom_bytes, self.frame.headroom),
            most=most,
        )

    def _traced(self, spec: TraceSpec, engine: Engine) -> TraceResult:
        """Sizes that the study has traced before with the same settings are not traced again. Where steps run, they
        say themselves which of the sizes are not needed."""
        known = traced_before(self.session.study.store.records(), spec)
        sizes = {point.micro_batch_size for point in known.points if not spec.draws}
        missing = tuple(size for size in spec.micro_batch_sizes if size not in sizes)
        if not missing:
            return known
        record = run_specs(self.session, [spec.model_copy(update={"micro_batch_sizes": missing})], engine)[0]
        if not isinstance(record.result, TraceResult):
            raise StageFailed(f"The task failed while it was traced: {record.reason}")
        self.untraceable = self.untraceable or record.result.untraceable
        if record.result.untraceable:
            return record.result
        return traced_before(self.session.study.store.records(), spec)

    @property
    def _may_run_traces(self) -> bool:
        """Whether steps may run on this machine's processor: not for another card, nor for a model that is large."""
        parameters = self.session.study.task_info.parameter_count
        held = math.inf if parameters is None else _BYTES_PER_PARAMETER * parameters
        return self.search.probes and held < psutil.virtual_memory().available / 8

    def trace_memory_optimizations(self, size: int, engine: Engine) -> None:
        """Trace a size with each memory optimization that is not used yet."""
        plain = self._trace_spec((size,))
        device = plain.device
        others: list[dict[str, Any]] = [
            {"memory_optimizations": (*device.memory_optimizations, optimization)}
            for optimization in MEMORY_OPTIMIZATIONS
            if optimization not in device.memory_optimizations
        ]
        if device.precision != "bf16":
            others.append({"precision": "bf16"})
        specs = [plain.model_copy(update={"device": device.model_copy(update=other)}) for other in others]
        if plain.grad_accum_steps > 1:
            specs.append(plain.model_copy(update={"grad_accum_steps": 1}))
        run_specs(self.session, specs, engine)

    def _trace_spec(self, sizes: tuple[int, ...]) -> TraceSpec:
        device = self._device(self.search.budget_bytes if self.frame.reserved else None)
        return _trace_spec(self.session, sizes, self.accumulation, device)

    def _probe(self, question: Probe, engine: Engine) -> Answer:
        spec = self._probe_spec(question.size, VERIFYING_STEPS if question.verifies else CALIBRATING_STEPS)
        spec = spec.model_copy(update={"new_process": question.verifies})
        if self.training and question.verifies:
            spec = self._as_training(spec)
        record = run_specs(self.session, [spec], engine, exclusive=True)[0]
        if record.outcome is Outcome.FAILED:
            raise StageFailed(f"The task failed while its memory was measured: {record.reason}")
        self.probed.append((spec, record))
        result = record.result if isinstance(record.result, CapacityResult) else None
        if result is not None and not (result.fits or result.certain):
            self._require_plausible(question.size, record.reason)
        point = next(p for p in memory_points(self.probed) if p.micro_batch_size == question.size)
        if result is None:
            return Probed(point.fits, point.peak_bytes)
        self._say_remaining(question.size, result)
        forked = record.process == "forked"
        grown = result.grown_bytes or 0
        return Probed(point.fits, point.peak_bytes, result.available_bytes, result.baseline_bytes, forked, grown)

    def _probe_spec(self, size: int, steps: int) -> CapacitySpec:
        return CapacitySpec(
            workload=self.session.study.workload,
            micro_batch_size=size,
            grad_accum_steps=self.accumulation,
            data_parallel_size=self.session.study.experiment.device.data_parallel_size,
            steps=1 + DRAWS if self.draws else steps,
            whole=self.draws or steps > CALIBRATING_STEPS,
            draws=self.draws,
            evaluation_batch_size=size,
            optimizer=self._optimizer,
            device=self._device(self.search.budget_bytes if self.frame.enforced else None),
        )

    def _as_training(self, probe: CapacitySpec) -> CapacitySpec:
        """The probe with what the study's training runs measure besides training."""
        study = self.session.study
        layout = BatchLayout(
            global_batch_size=probe.micro_batch_size * probe.grad_accum_steps,
            micro_batch_size=probe.micro_batch_size,
            sequence_length=study.experiment.sequence_length,
        )
        sampling = probed_sampling(study.experiment, layout, probe.steps, sample_independent=self.sample_independent)
        detail = study.experiment.diagnostics
        return probe.model_copy(update={"gradients": sampling, "snapshot": None if detail == "off" else detail})

    def _require_plausible(self, size: int, reason: str) -> None:
        """Raise StageFailed where a crash that may be out of memory is far from the limit by prediction."""
        needed, budget = self.search.needed_bytes(size), self.search.budget_bytes
        if needed is not None and needed < _PLAUSIBLE * budget:
            raise StageFailed(
                f"The task failed at micro-batch {size}, which needs about {format_bytes(needed)} of "
                f"{format_bytes(budget)}, so its own memory is not the cause: {reason} Run the same "
                "command with --retry-failed to try it again."
            )

    @property
    def _optimizer(self) -> OptimizerSettings:
        return self.session.optimizer(self.session.study.experiment.reference_batch_size)

    def _device(self, memory_limit: int | None) -> DeviceSettings:
        return self.frame.device.model_copy(update={"memory_limit": memory_limit})


def _frame(session: Session, request: CapacityRequest) -> _Frame:
    device, asked = session.device, session.study.experiment.device
    if request.card_bytes is not None:
        card = device.model_copy(update={"name": "cuda:0", "memory_limit": None})
        headroom = asked.headroom or HEADROOM
        return _Frame(request.card_bytes, LimitKind.OTHER_DEVICE, headroom, card, enforced=False, reserved=True)
    reserved = device.name.startswith("cuda")
    if device.memory_limit is not None:
        of_process = device.name == "cpu" and session.study.task_info.measured in ("process", None)
        kind = LimitKind.WORKER_DATA if of_process else LimitKind.ALLOCATOR
        return _Frame(device.memory_limit, kind, asked.headroom or HEADROOM, device, enforced=True, reserved=reserved)
    if device.name == "cpu":
        # Decided once: free memory changes all the time, and another limit would make other probes.
        now = int(psutil.virtual_memory().available) // asked.data_parallel_size  # which share this machine's memory
        free = session.study.store.decide(Decisions(capacity_limit_bytes=now)).capacity_limit_bytes or now
        headroom, enforced = asked.headroom or SHARED_HEADROOM, request.needed is None
        return _Frame(free, LimitKind.FREE_HOST_MEMORY, headroom, device, enforced=enforced, reserved=False)
    total = session.study.task_info.device_memory_bytes
    if total is None:
        raise StageFailed(f"How much memory {device.name} has is not known; give --memory-limit.")
    headroom = asked.headroom or HEADROOM
    kind = LimitKind.UNIFIED_MEMORY if session.study.task_info.unified_memory else LimitKind.DEVICE_MEMORY
    return _Frame(total, kind, headroom, device, enforced=True, reserved=reserved)
