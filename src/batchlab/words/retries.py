"""Sentences about cells that diverged and were tried again at a lower learning rate and a longer warm-up."""

from __future__ import annotations

from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.retries import Retried
from batchlab.analysis.values import Run
from batchlab.core.format import format_learning_rate, format_loss, format_percent, format_plural
from batchlab.search.retries import LONGEST_WARMUP

LISTED = 4
"""Cells that are told one by one."""

RULE = "half the learning rate and twice the warm-up"


def retry_rule(attempts: int) -> str:
    """What is going to happen where a cell diverges, before the sweep begins."""
    times = "once" if attempts == 1 else f"up to {attempts} times"
    return (
        f"a cell that diverges is tried again {times}, each time at {RULE} of the last (at most "
        f"{format_percent(LONGEST_WARMUP)} of the run); these runs come on top of those planned"
    )


def retry_conclusions(found: Findings) -> list[str]:
    """How the attempts ended; whether the answer rests on one. Empty where nothing was tried again."""
    if not found.retried:
        return []
    trained = [each for each in found.retried if each.trained is not None]
    cells = format_plural(len(found.retried), "cell")
    text = f"{cells} diverged and {'was' if len(found.retried) == 1 else 'were'} tried again at {RULE}"
    if not trained:
        return [f"{text}; every attempt diverged, too, or failed."]
    some = "it" if len(found.retried) == 1 else "all" if len(trained) == len(found.retried) else f"{len(trained)}"
    listed = "; ".join(_trained(each) for each in trained[:LISTED])
    more = f"; and {len(trained) - LISTED} more" if len(trained) > LISTED else ""
    sentence = f"{text}; {some} trained to the end: {listed}{more}. Each attempt is a cell of its own, and the cell"
    return [f"{sentence} that diverged stays diverged.", *_answer(found, trained)]


def describe_retry(run: Run) -> str:
    """`4.0e-3 with a warm-up of 20 %`."""
    return f"{format_learning_rate(run.learning_rate)} with a warm-up of {format_percent(run.warmup_fraction)}"


def _trained(retried: Retried) -> str:
    run = retried.attempts[-1]
    rate = format_learning_rate(retried.diverged.learning_rate)
    return f"batch {run.global_batch_size:,} at {rate} as {describe_retry(run)} (loss {format_loss(run.val_loss)})"


def _answer(found: Findings, trained: list[Retried]) -> list[str]:
    chosen = found.recommended
    if chosen is None:
        return []
    size = chosen.layout.global_batch_size
    place = size, chosen.learning_rate, found.schedule_at(size).warmup_fraction
    ended = [each.attempts[-1] for each in trained]
    if place not in [(run.global_batch_size, run.learning_rate, run.warmup_fraction) for run in ended]:
        return []
    rates = {run.learning_rate for run in found.runs if (run.global_batch_size, run.warmup_fraction) == place[::2]}
    only = ", with which no other learning rate was tried" if len(rates) == 1 else ""
    return [f"The recommended cell is one of them: its warm-up is {format_percent(place[2])} of the run{only}."]
