"""The script door: a study's specs, carried out by a command that a person wrote."""

from __future__ import annotations

import math

from batchlab.core.batch import BatchLayout
from batchlab.core.command import Command
from batchlab.core.errors import RunFailure
from batchlab.core.pairing import Pairing
from batchlab.core.protocols import RunContext, RunResult
from batchlab.core.record import CapacityResult, MetricRow, Outcome, TraceResult, TrainResult
from batchlab.core.spec import (
    AllReduceSpec,
    CapacitySpec,
    CheckSpec,
    InspectSpec,
    Spec,
    ThroughputSpec,
    TraceSpec,
    TrainSpec,
    WorkersSpec,
)
from batchlab.integrations.script.attempt import SHORT_SECONDS, Attempt, Execution, Filling, judged
from batchlab.integrations.script.check import check
from batchlab.integrations.script.inspection import inspect
from batchlab.integrations.script.metrics import Row
from batchlab.integrations.script.template import accumulates, by_time, parse, template_of
from batchlab.integrations.script.throughput import measure

PROBE_STEPS = 4
PROBE_RATE = 1e-6
"""Small enough that a probe of memory or speed never diverges."""


class Script:
    """Carries out specs by running the command of the workload."""

    def run(self, spec: Spec, context: RunContext) -> RunResult:
        """See `core.protocols.Integration`."""
        command = spec.workload.command
        assert command is not None
        execution = Execution(command, context, spec.device, spec.workload.metric)
        match spec:
            case InspectSpec():
                return RunResult(Outcome.COMPLETED, "", inspect(command, spec))
            case TraceSpec():
                return RunResult(Outcome.COMPLETED, "", TraceResult(untraceable="a script"))
            case CheckSpec():
                return check(execution, spec)
            case CapacitySpec():
                return _probe(execution, spec)
            case ThroughputSpec():
                return measure(execution, spec.layout)
            case TrainSpec():
                return _train(execution, spec)
            case WorkersSpec() | AllReduceSpec():
                raise AssertionError(spec.kind)


def _probe(execution: Execution, spec: CapacitySpec) -> RunResult:
    """A short run, of whole steps where the command can be told their number; else one that is ended after a time."""
    command = execution.command
    run = command.capacity.run or command.run
    probing = Execution(command.model_copy(update={"run": run}), execution.context, execution.device)
    template, splits = parse(run), accumulates(template_of(command))
    per_device = math.ceil(spec.micro_batch_size / command.devices)
    micro = per_device * command.devices
    layout = BatchLayout(
        global_batch_size=micro * (spec.grad_accum_steps if splits else 1),
        micro_batch_size=micro,
        sequence_length=spec.workload.sequence_length,
    )
    steps = max(PROBE_STEPS, spec.steps)
    short = None if template.has("steps", "tokens", "seconds") else command.capacity.seconds
    filling = Filling(layout, PROBE_RATE, steps, steps * layout.tokens_per_step)
    found = probing.attempt(filling, "probe", most_seconds=short)
    if found.outcome not in (Outcome.COMPLETED, Outcome.OUT_OF_MEMORY):
        return found.failed()
    fits = found.outcome is Outcome.COMPLETED
    result = CapacityResult(
        micro_batch_size=spec.micro_batch_size,
        fits=fits,
        steps=steps if fits else 0,
        peak_bytes=found.peak_bytes,
        measured=found.measured,
        certain=found.certain,
    )
    return RunResult(found.outcome, found.reason, result, environment=found.environment)


def _train(execution: Execution, spec: TrainSpec) -> RunResult:
    command = execution.command
    template = template_of(command)
    if spec.start is not None or spec.keep_end:
        failure = RunFailure("A script cannot begin where another run ended, so it has no branches.")
        return RunResult(Outcome.FAILED, str(failure), None)
    filling = Filling(
        spec.layout,
        spec.learning_rate,
        spec.steps,
        spec.token_budget,
        seed=spec.seed,
        warmup_steps=round(spec.warmup_tokens / spec.layout.tokens_per_step),
        seconds=command.seconds or SHORT_SECONDS,
    )
    found = execution.attempt(filling, resumable=True)
    steps, tokens = trained(command, filling, found.rows)
    for row in _metric_rows(found, steps, tokens):
        execution.context.row(row)
    outcome, reason = judged(found, command)
    claim = Pairing.DECLARED if spec.repeatable and template.has("seed") else Pairing.NONE
    result = _result(found, spec, steps, tokens) if outcome in (Outcome.COMPLETED, Outcome.DIVERGED) else None
    return RunResult(outcome, reason, result, claim, found.environment)


def trained(command: Command, filling: Filling, rows: tuple[Row, ...]) -> tuple[int, int]:
    """(steps, tokens) of a run that completed. A run of whole epochs has as many as these have, one that was given its
    time as many as it printed."""
    template = parse(command.run)
    if by_time(template):
        steps = max((row.step for row in rows if row.step is not None), default=filling.steps)
        return max(1, steps), max(1, steps) * filling.layout.tokens_per_step
    if not template.has("epochs"):
        return filling.steps, filling.tokens
    epoch = (command.train_samples or 1) * filling.layout.sequence_length
    tokens = max(1, round(filling.tokens / epoch)) * epoch
    return max(1, tokens // filling.layout.tokens_per_step), tokens


def _metric_rows(found: Attempt, steps: int, tokens: int) -> list[MetricRow]:
    """The rows whose step is known, in its order; the last validation loss belongs to the last step."""
    rows = []
    for row in found.rows:
        if row.step is None or not 0 <= row.step <= steps:
            continue
        if row.val_loss is None and row.train_loss is None:
            continue
        rows.append(
            MetricRow(
                step=row.step,
                tokens=round(row.step * tokens / steps),
                train_loss=row.train_loss,
                val_loss=row.val_loss,
                learning_rate=row.learning_rate,
                grad_norm=row.grad_norm,
            )
        )
    rows.sort(key=lambda row: row.step)
    loss = found.val_loss
    if loss is not None and not any(row.step == steps and row.val_loss is not None for row in rows):
        rows.append(MetricRow(step=steps, tokens=tokens, val_loss=loss))
    return rows


def _result(found: Attempt, spec: TrainSpec, steps: int, tokens: int) -> TrainResult:
    rows = _metric_rows(found, steps, tokens)
    curve = {row.tokens: row.val_loss for row in rows if row.val_loss is not None and row.tokens > 0}
    curve[tokens] = found.val_loss if found.val_loss is not None else math.nan
    finite = [loss for loss in curve.values() if math.isfinite(loss)]
    train_losses = [row.train_loss for row in found.rows if row.train_loss is not None]
    epoch = spec.workload.command.train_samples if spec.workload.command else None
    seconds = found.ended.seconds
    return TrainResult(
        steps=steps,
        tokens=tokens,
        final_train_loss=train_losses[-1] if train_losses else None,
        val_loss=found.val_loss,
        best_val_loss=min(finite, default=None),
        val_curve=tuple(curve.items()),
        epochs=tokens / spec.layout.sequence_length / epoch if epoch else 0.0,
        undertrained=spec.undertrained,
        resumed=int(found.resumed),
        seconds=seconds,
        tokens_per_second=tokens / seconds if seconds > 0 else None,
        peak_bytes=found.peak_bytes,
        measured=found.measured,
    )
