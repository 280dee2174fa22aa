"""The chapter on training dynamics: warm-up, gap to the training loss, loss spikes, repeated data, interruptions."""

from __future__ import annotations

from typing import NamedTuple

from batchlab.analysis.dynamics.spikes import DEVIATIONS, SHARE
from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.runs import first_runs
from batchlab.core.format import format_count, format_learning_rate, format_list, format_plural, format_signed
from batchlab.core.record import Outcome
from batchlab.words.units import Units
from batchlab.words.warmups import format_taken

GAP_CAVEAT = (
    "Training loss is a mean over the last tenth of the run, while the weights were still changing, and on other data "
    "than the held-out set. The gap alone does not show overfitting."
)


def training_dynamics(findings: Findings) -> tuple[str, ...]:
    """One statement each, with its n; empty before the first finished run."""
    statements = (
        _warmup(findings),
        _gap(findings),
        _spikes(findings),
        _non_finite(findings),
        _repeats(findings),
        _resumed(findings),
        _not_recorded(findings),
    )
    return tuple(statement for statement in statements if statement)


def _warmup(findings: Findings) -> str:
    share, units = findings.schedule.warmup_fraction, Units.of(findings)
    pairs = first_runs(findings.surface)
    if not findings.token_budget or not pairs:
        return ""
    if findings.warmups is not None:
        return f"Every batch size is shown with its best warm-up: {format_taken(findings.warmups)}."
    if not share and findings.experiment.schedule.kind == "task":
        return "The learning-rate schedule is the script's own, its warm-up included."
    if not share and not findings.experiment.schedule.min_warmup_steps:
        return "There is no warm-up: every run starts at its peak learning rate."
    small, large = pairs[0][0], pairs[-1][0]
    if least := findings.experiment.schedule.min_warmup_steps:
        return f"Warm-up takes {share * 100:.3g} % of the run, and at least {least:,} steps, at every batch size."
    if findings.run_seconds is not None:
        return f"Warm-up takes {share * 100:.3g} % of the run at every batch size."
    tokens = share * findings.token_budget
    text = (
        f"Warm-up takes {format_count(tokens)} {units.name} ({share * 100:.3g} % of the budget) at every batch size: "
        f"{tokens / small.layout.tokens_per_step:,.0f} steps at batch {small.global_batch_size:,}"
    )
    if small.global_batch_size != large.global_batch_size:
        text += f", {tokens / large.layout.tokens_per_step:,.1f} at batch {large.global_batch_size:,}"
    return f"{text}."


class Gap(NamedTuple):
    """Mean of validation minus training loss over `n` runs of a size at its best learning rate."""

    global_batch_size: int
    value: float
    n: int


def _gap(findings: Findings) -> str:
    gaps = _gaps(findings)
    if not gaps:
        return ""
    runs = format_plural(sum(gap.n for gap in gaps), "run")
    low, high = min(gaps, key=lambda gap: gap.value), max(gaps, key=lambda gap: gap.value)
    if len(gaps) == 1:
        where = f"is {format_signed(low.value)} at batch {low.global_batch_size:,} (n = {runs})"
    elif format_signed(low.value) == format_signed(high.value):
        where = f"is {format_signed(low.value)} at all {len(gaps)} sizes (n = {runs})"
    else:
        where = (
            f"lies between {format_signed(low.value)} (batch {low.global_batch_size:,}) and "
            f"{format_signed(high.value)} (batch {high.global_batch_size:,}), each size at its best learning rate "
            f"(n = {runs})"
        )
    return f"Validation loss minus training loss {where}. {GAP_CAVEAT}"


def _gaps(findings: Findings) -> list[Gap]:
    gaps: list[Gap] = []
    if findings.experiment.evaluation.metric is not None:
        return gaps
    for row, _ in first_runs(findings.surface):
        differences = [
            run.val_loss - run.train_loss
            for run in (row.best.runs if row.best else ())
            if run.outcome is Outcome.COMPLETED and run.train_loss is not None and run.val_loss is not None
        ]
        if differences:
            gaps.append(Gap(row.global_batch_size, sum(differences) / len(differences), len(differences)))
    return gaps


def _spikes(findings: Findings) -> str:
    found = findings.diagnostics
    if not found.judged_runs:
        return ""
    runs = format_plural(found.judged_runs, "run")
    definition = (
        f"A spike is a step whose loss is more than {DEVIATIONS:g} robust standard deviations, and more than "
        f"{SHARE * 100:g} % of the curve's range, above the running median."
    )
    if not found.spikes:
        return f"There was no loss spike in {runs}. {definition}"
    spiked = len({spike.run_id for spike in found.spikes})
    highest = max(found.spikes, key=lambda spike: spike.height)
    run = next(run for run in findings.runs if run.run_id == highest.run_id)
    return (
        f"There {'was' if len(found.spikes) == 1 else 'were'} {format_plural(len(found.spikes), 'loss spike')} in "
        f"{spiked:,} of {runs}. The highest, {format_signed(highest.height)}, was at step {highest.step:,} of batch "
        f"{run.global_batch_size:,}, LR {format_learning_rate(run.learning_rate)}. {definition}"
    )


def _non_finite(findings: Findings) -> str:
    first = min((e for e in findings.diagnostics.events if e.names), key=lambda event: event.tokens, default=None)
    if first is None:
        return ""
    run = next(run for run in findings.runs if run.run_id == first.run_id)
    return (
        f"The first NaN or infinity was seen at step {first.step:,} of batch {run.global_batch_size:,}, LR "
        f"{format_learning_rate(run.learning_rate)}, in {format_list(first.names[:3])}."
    )


def _repeats(findings: Findings) -> str:
    epochs = max((run.epochs for run in findings.runs), default=0.0)
    if epochs <= 1.0:
        return ""
    return f"The longest run makes {epochs:.3g} passes over the training data, so part of it is seen more than once."


def _resumed(findings: Findings) -> str:
    resumed = sum(1 for run in findings.runs if run.resumed)
    if not resumed:
        return ""
    return f"{format_plural(resumed, 'run')} resumed from a checkpoint after an interruption."


def _not_recorded(findings: Findings) -> str:
    if findings.diagnostics.parts or not findings.runs:
        return ""
    why = "diagnostics = off" if findings.experiment.diagnostics == "off" else "no run has a diagnostic snapshot"
    return f"Norms by layer, updates, activations and attention are not shown: {why}."
