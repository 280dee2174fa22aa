"""Sentences about what happens during training: warm-up, the gap to the training loss, repeated data."""

from __future__ import annotations

from batchlab.analysis.dynamics.spikes import DEVIATIONS, SHARE
from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.runs import first_runs
from batchlab.core.format import format_count, format_learning_rate, format_list, format_plural, format_signed
from batchlab.core.record import Outcome
from batchlab.report.words import Words


def training_dynamics(findings: Findings) -> tuple[str, ...]:
    """One computed sentence each, with its n; empty before the first finished run."""
    made = (
        _warmup(findings),
        _gap(findings),
        _spikes(findings),
        _broken(findings),
        _repeats(findings),
        _resumed(findings),
        _unseen(findings),
    )
    return tuple(sentence for sentence in made if sentence)


def _warmup(findings: Findings) -> str:
    share, budget, words = findings.experiment.schedule.warmup_fraction, findings.token_budget, Words.of(findings)
    pairs = first_runs(findings.surface)
    if not budget or not pairs:
        return ""
    if not share:
        return "There is no warm-up: every run starts at its peak learning rate."
    tokens = share * budget
    small, large = pairs[0][0], pairs[-1][0]
    text = f"Warm-up takes {format_count(tokens)} {words.units} ({share * 100:.3g} % of the budget) at every batch size"
    if small.global_batch_size == large.global_batch_size:
        return f"{text}: {tokens / small.layout.tokens_per_step:,.0f} steps at batch {small.global_batch_size:,}."
    return (
        f"{text}: {tokens / small.layout.tokens_per_step:,.0f} steps at batch {small.global_batch_size:,}, "
        f"{tokens / large.layout.tokens_per_step:,.1f} at {large.global_batch_size:,}."
    )


def _gap(findings: Findings) -> str:
    gaps = []
    for row, _ in first_runs(findings.surface):
        runs = [r for r in (row.best.runs if row.best else ()) if r.train_loss is not None and r.val_loss is not None]
        each = [(r.val_loss or 0.0) - (r.train_loss or 0.0) for r in runs if r.outcome is Outcome.COMPLETED]
        if each:
            gaps.append((row.global_batch_size, sum(each) / len(each), len(each)))
    if not gaps:
        return ""
    total = format_plural(sum(n for _, _, n in gaps), "run")
    caution = (
        "Training loss is a mean over the last tenth of the run, under weights that were still moving, on other data "
        "than the held-out set; the gap alone does not show over-fitting"
    )
    if len(gaps) == 1:
        size, gap, _ = gaps[0]
        return f"Validation minus training loss is {format_signed(gap)} at batch {size:,} (n = {total}). {caution}."
    low, high = min(gaps, key=lambda g: g[1]), max(gaps, key=lambda g: g[1])
    if format_signed(low[1]) == format_signed(high[1]):
        return f"Validation minus training loss is {format_signed(low[1])} at all {len(gaps)} sizes (n = {total}). {caution}."
    return (
        f"Validation minus training loss lies between {format_signed(low[1])} (batch {low[0]:,}) and {format_signed(high[1])} "
        f"(batch {high[0]:,}), each size at its best learning rate (n = {total}). {caution}."
    )


def _spikes(findings: Findings) -> str:
    found = findings.diagnostics
    if not found.judged_runs:
        return ""
    rule = (
        f"a spike is a step's loss more than {DEVIATIONS:g} robust deviations, and {SHARE * 100:g} % of the curve's "
        "range, above the running median"
    )
    if not found.spikes:
        return f"No loss spike in {format_plural(found.judged_runs, 'run')}; {rule}."
    spiked = len({spike.run_id for spike in found.spikes})
    highest = max(found.spikes, key=lambda spike: spike.height)
    run = next(run for run in findings.runs if run.run_id == highest.run_id)
    return (
        f"{format_plural(len(found.spikes), 'loss spike')} in {spiked:,} of {format_plural(found.judged_runs, 'run')}, the highest "
        f"{format_signed(highest.height)} at step {highest.step:,} of batch {run.global_batch_size:,}, "
        f"LR {format_learning_rate(run.learning_rate)}; {rule}."
    )


def _broken(findings: Findings) -> str:
    first = min((e for e in findings.diagnostics.events if e.names), key=lambda e: e.tokens, default=None)
    if first is None:
        return ""
    run = next(run for run in findings.runs if run.run_id == first.run_id)
    return (
        f"Numbers stopped being finite in batch {run.global_batch_size:,} at LR {format_learning_rate(run.learning_rate)}, "
        f"seen at step {first.step:,}, first in {format_list(first.names[:3])}."
    )


def _repeats(findings: Findings) -> str:
    epochs = max((run.epochs for run in findings.runs), default=0.0)
    if epochs <= 1.0:
        return ""
    return f"The longest run passes over the training data {epochs:.3g} times, so part of it is seen repeatedly."


def _resumed(findings: Findings) -> str:
    resumed = [run for run in findings.runs if run.resumed]
    return f"{format_plural(len(resumed), 'run')} went on from a checkpoint after an interruption." if resumed else ""


def _unseen(findings: Findings) -> str:
    if findings.diagnostics.parts or not findings.runs:
        return ""
    why = "diagnostics = off" if findings.experiment.diagnostics == "off" else "no run has been looked at"
    return f"Norms by layer, updates, activations and attention are not shown: {why}."
