"""What went wrong, where, and a remedy that fits what was measured.

Usual remedies ("out of memory: smaller batch; diverged: scale the learning rate linearly; slow: larger batch") are
wrong where they change the question: gradient accumulation keeps the batch size, and the learning rate is lowered to
one that trained here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from batchlab.analysis.findings import Findings
from batchlab.analysis.values import FailedProbe, Run
from batchlab.core.format import (
    format_count,
    format_learning_rate,
    format_learning_rates,
    format_list,
    format_plural,
)
from batchlab.core.record import Outcome
from batchlab.core.spec import MIN_STEPS, MIN_WARMUP_STEPS
from batchlab.words.check import describe_check
from batchlab.words.damage import damage_lines
from batchlab.words.retries import describe_retry


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that went wrong, with a remedy that fits what was measured."""

    what: str
    where: str
    remedy: str


def failures(found: Findings) -> tuple[Failure, ...]:
    """Every run that did not complete, grouped by outcome, then whatever else limits the answers."""
    grouped: dict[tuple[Outcome, int], list[Run]] = defaultdict(list)
    for run in found.runs:
        if run.outcome is not Outcome.COMPLETED:
            grouped[run.outcome, run.global_batch_size].append(run)
    diverged = [runs for (outcome, _), runs in sorted(grouped.items()) if outcome is Outcome.DIVERGED]
    others = [runs for (outcome, _), runs in sorted(grouped.items()) if outcome is not Outcome.DIVERGED]
    listed = [_divergence(found, sizes) for sizes in _with_the_same_remedy(found, diverged)]
    listed += [_run_failure(found, runs) for runs in others]
    listed += [_probe_failure(probe) for probe in found.failed_probes]
    listed += _undertrained(found) + _disturbed(found) + _slow(found) + _mixing(found) + _checks(found)
    listed += _damaged(found)
    return tuple(listed)


def _run_failure(found: Findings, runs: list[Run]) -> Failure:
    """Runs of one batch size that ended the same way, other than by diverging."""
    out_of_memory = runs[0].outcome is Outcome.OUT_OF_MEMORY
    remedy = "Read log.txt in the run's folder, fix the cause, and run the study again with --retry-failed."
    return Failure(
        _what("Out of memory" if out_of_memory else "The run failed", runs[0].reason),
        _where(runs),
        _memory_remedy(found, runs[0]) if out_of_memory else remedy,
    )


def _where(runs: Sequence[Run]) -> str:
    sizes = format_list(sorted({run.global_batch_size for run in runs}))
    rates = format_learning_rates({run.learning_rate for run in runs})
    return f"batch {sizes} at learning rate {rates} ({format_plural(len(runs), 'run')})"


def _with_the_same_remedy(found: Findings, diverged: Sequence[list[Run]]) -> list[list[Run]]:
    """The diverged runs of each batch size; of several sizes together where the same rates diverged and trained."""
    groups: dict[tuple[frozenset[float], float | None], list[Run]] = defaultdict(list)
    for runs in diverged:
        groups[frozenset(run.learning_rate for run in runs), _highest_that_trained(found, runs)] += runs
    return list(groups.values())


def _highest_that_trained(found: Findings, diverged: Sequence[Run]) -> float | None:
    """The highest learning rate below those that diverged at which the same batch size trained to the end, at a
    warm-up at which it diverged above."""
    lowest, size = min(run.learning_rate for run in diverged), diverged[0].global_batch_size
    warmups = {run.warmup_fraction for run in diverged}
    trained = [
        run.learning_rate
        for run in found.runs
        if run.global_batch_size == size
        and run.outcome is Outcome.COMPLETED
        and run.learning_rate < lowest
        and run.warmup_fraction in warmups
    ]
    return max(trained, default=None)


def _divergence(found: Findings, runs: list[Run]) -> Failure:
    reasons = list(dict.fromkeys(run.reason for run in runs))
    reason = reasons[0] if len(reasons) == 1 else f"For example: {reasons[0]}"
    return Failure(_what("Diverged", reason), _where(runs), _divergence_remedy(found, runs) + _retries(found, runs))


def _retries(found: Findings, runs: Sequence[Run]) -> str:
    """Which of them trained when they were tried again at other settings."""
    ended = [each.trained for each in found.retried if each.diverged in runs and each.trained is not None]
    settings = list(dict.fromkeys(describe_retry(run) for run in ended))
    return f" Tried again, it trained at {format_list(settings)}." if settings else ""


def _what(ended: str, reason: str) -> str:
    """How a run ended and why, without saying the same twice."""
    return reason if reason.startswith(ended) else f"{ended}. {reason}".strip()


def _divergence_remedy(found: Findings, runs: list[Run]) -> str:
    schedule, highest = found.experiment.schedule, _highest_that_trained(found, runs)
    longer = f"a longer warm-up, schedule.warmup_fraction above {schedule.warmup_fraction:g}{_warmup_now(found, runs)}"
    of = "these sizes" if len({run.global_batch_size for run in runs}) > 1 else "this size"
    if highest is not None:
        stay = f"Stay at or below {format_learning_rate(highest)}, which trained at {of}"
        return f"{stay}; or use {longer}."
    clip = "" if found.experiment.optimizer.grad_clip else "; gradients are not clipped, so set optimizer.grad_clip"
    lowest = format_learning_rate(min(run.learning_rate for run in runs))
    return f"Every learning rate from {lowest} up diverged at {of}: try lower ones, or {longer}{clip}."


def _warmup_now(found: Findings, runs: list[Run]) -> str:
    """` (160 steps now)`; of several batch sizes, in order of size: ` (160, 80 and 40 steps now)`."""
    if not found.token_budget:
        return ""
    layouts = {run.global_batch_size: run.layout for run in runs}
    steps = []
    for size, layout in sorted(layouts.items()):
        warmup = found.experiment.schedule.warmup_tokens(
            found.tokens_at(size) or found.token_budget, layout.tokens_per_step
        )
        steps.append(round(warmup / layout.tokens_per_step))
    return f" ({format_list(list(dict.fromkeys(steps)))} steps now)"


def _memory_remedy(found: Findings, run: Run) -> str:
    fits = found.memory.max_micro_batch_size if found.memory else None
    precision = (
        "" if found.experiment.device.precision == "bf16" else "; device.precision=bf16 about halves activations"
    )
    if not found.sample_independent:
        return f"This model mixes the samples of a batch, so the batch cannot be split: use a smaller one{precision}."
    if fits is None:
        return f"No micro-batch fits: use a smaller model, a shorter sequence or a larger --memory-limit{precision}."
    if run.layout.micro_batch_size > fits:
        passes = -(-run.layout.global_batch_size // fits)
        return (
            f"Accumulate gradients: {passes} micro-batches of at most {fits:,} give the same global batch "
            f"(--set batch.micro_batching=auto){precision}."
        )
    return (
        f"Micro-batches of {fits:,} fit when probed. Leave more memory free: "
        f"--set batch.micro_batch_size={max(1, fits // 2)}{precision}."
    )


def _probe_failure(probe: FailedProbe) -> Failure:
    return Failure(
        _what(probe.outcome.label.capitalize(), probe.reason),
        f"{probe.kind} ({probe.run_id})",
        "Read log.txt in the run's folder. Until this is fixed, the measurement is missing.",
    )


def _undertrained(found: Findings) -> list[Failure]:
    rows = [row for row in found.surface.rows if row.undertrained] if found.surface else []
    if not rows or not found.token_budget:
        return []
    steps = max([MIN_STEPS, *(MIN_WARMUP_STEPS / share for share in found.experiment.warmup_fractions if share > 0)])
    needed = round(steps * max(row.layout.tokens_per_step for row in rows))
    remedy = f"Use --token-budget {needed} or more (now {format_count(found.token_budget)}), or omit these sizes."
    if found.run_seconds is not None:
        factor = max(steps * row.layout.tokens_per_step / (found.tokens_at(row.global_batch_size) or 1) for row in rows)
        remedy = f"Use --run-time {math.ceil(factor * found.run_seconds)}s or more, or omit these sizes."
    return [
        Failure(
            f"Undertrained: under {MIN_STEPS} steps, or under {MIN_WARMUP_STEPS} warm-up steps.",
            f"batch {format_list([row.global_batch_size for row in rows])}",
            remedy,
        )
    ]


def _disturbed(found: Findings) -> list[Failure]:
    speed = found.throughput
    if speed is None or not speed.disturbed:
        return []
    worst = max(point.other_load or 0.0 for point in speed.points)
    return [
        Failure(
            f"Other programs used up to {100 * worst:.0f} % of the processor, so the measured speed is too low.",
            f"batch {format_list(speed.disturbed)}",
            "Close them, delete runs/throughput-* in the study and run the command again. Losses are not affected.",
        )
    ]


def _slow(found: Findings) -> list[Failure]:
    speed = found.throughput
    if speed is None or not speed.falls_off:
        return []
    knee = speed.knee
    return [
        Failure(
            "More than 20 % slower than a smaller batch.",
            f"batch {format_list(speed.falls_off)}",
            "Check for a host-memory fallback (a peak above the device's memory) or a slower kernel at that shape. "
            f"Micro-batches of at most {knee:,} keep the speed measured there.",
        )
    ]


def _mixing(found: Findings) -> list[Failure]:
    if found.sample_independent:
        return []
    return [
        Failure(
            "The samples of a batch influence each other, by batch statistics (BatchNorm) or in-batch negatives.",
            "the model",
            "Micro-batches would change the result, so batches were not split. LayerNorm or GroupNorm in place of "
            "BatchNorm makes the model sample-independent. On several devices, synchronize batch statistics.",
        )
    ]


def _checks(found: Findings) -> list[Failure]:
    return [
        Failure(f"The check '{item.name}' failed.", "the task", describe_check(item))
        for item in found.checks
        if item.status == "fail"
    ]


def _damaged(found: Findings) -> list[Failure]:
    *lines, remedy = damage_lines(found.damaged) or [""]
    return [Failure(f"{line}.", "the study's files", f"{remedy.capitalize()}.") for line in lines]
