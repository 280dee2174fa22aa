"""Tokens per second of a script, from runs of two lengths: what starting costs is in both, so it cancels."""

from __future__ import annotations

import math
import statistics
from itertools import zip_longest

from batchlab.core.batch import BatchLayout
from batchlab.core.errors import RunFailure
from batchlab.core.protocols import RunResult
from batchlab.core.record import Outcome, ThroughputResult
from batchlab.integrations.script.attempt import Attempt, Execution, Filling, last_lines
from batchlab.integrations.script.metrics import Row
from batchlab.integrations.script.template import by_time, parse

LEARNING_RATE = 1e-6
SHORT_STEPS = 5
GROWTH, MOST_GROWTH = 4, 256
LEAST_SECONDS = 2.0
"""What the longer of two runs must take beyond the shorter."""

LEAST_SHARE = 0.25
"""The same as a share of the shorter run, whose start-up varies."""

MOST_SECONDS = 300.0
"""No further run is tried once they took this long together."""

LEAST_TIMED = 4
"""Blocks of steps with times of their own from which the speed is taken, instead of from whole runs."""

BLOCK_SECONDS = 0.1
"""The shortest block: over a pipe, lines of less time come at once."""


def measure(execution: Execution, layout: BatchLayout) -> RunResult:
    """Time the command at two lengths that differ enough; steps that the script itself times are used where it has any.

    Evaluations that the longer run has beyond the shorter are counted with the training.
    """
    command, template = execution.command, parse(execution.command.run)
    epoch = (command.train_samples or 1) * layout.sequence_length
    by_epochs = template.has("epochs") and not template.has("steps", "tokens")
    unit = epoch if by_epochs else layout.tokens_per_step
    length = 1 if by_epochs else SHORT_STEPS
    runs: list[tuple[int, Attempt]] = []
    while True:
        tokens = length * unit
        steps = max(1, tokens // layout.tokens_per_step)
        found = execution.attempt(Filling(layout, LEARNING_RATE, steps, tokens), "timed")
        if found.outcome is not Outcome.COMPLETED:
            return found.failed()
        runs.append((tokens, found))
        rates = timed_rates(found.rows, layout.tokens_per_step)
        if rates:
            return _result(rates, layout, found, found.ended.seconds)
        if by_time(template):
            failure = RunFailure(
                "A command that is told its {seconds} has a speed only where it prints its steps: say how they look in "
                f"command.metrics.step.{last_lines(found.ended)}"
            )
            return RunResult(Outcome.FAILED, str(failure), None, environment=found.environment)
        if len(runs) > 1 and (_differ(runs[0][1], found) or sum(run.ended.seconds for _, run in runs) > MOST_SECONDS):
            break
        length *= 2 if by_epochs else growth(found.rows)
    (few, first), (many, last) = runs[0], runs[-1]
    difference = last.ended.seconds - first.ended.seconds
    if difference <= 0:
        failure = RunFailure(
            f"A run of {many:,} took {last.ended.seconds:.1f} s and one of {few:,} {first.ended.seconds:.1f} s, so the "
            "speed cannot be told; does the command's length follow its placeholder?"
        )
        return RunResult(Outcome.FAILED, str(failure), None, environment=last.environment)
    rate = (many - few) / difference
    return _result((rate,), layout, last, first.ended.seconds - few / rate)


def growth(rows: tuple[Row, ...]) -> int:
    """How many times longer the next run is: so that its steps are enough to be timed, where these told their times."""
    times = [row.time for row in rows if row.step is not None and row.time is not None][2:]
    if len(times) < 2:
        return GROWTH
    took = max(times[-1] - times[0], 1e-6)
    return math.ceil(min(MOST_GROWTH, max(GROWTH, 2 * LEAST_TIMED * BLOCK_SECONDS / took)))


def _differ(first: Attempt, last: Attempt) -> bool:
    difference = last.ended.seconds - first.ended.seconds
    return difference >= max(LEAST_SECONDS, LEAST_SHARE * first.ended.seconds)


def timed_rates(rows: tuple[Row, ...], tokens_per_step: int) -> tuple[float, ...]:
    """Tokens per second of blocks of steps whose times are known; none where there are too few blocks.

    The first two rows are left out: they hold what is compiled or allocated. A block lasts at least BLOCK_SECONDS,
    because lines that are printed in less arrive together.
    """
    timed = [(row.step, row.time) for row in rows if row.step is not None and row.time is not None]
    apart = [one for one, other in zip_longest(timed, timed[1:]) if other is None or one[0] != other[0]][2:]
    rates: list[float] = []
    before, early = apart[0] if apart else (0, 0.0)
    for step, at in apart:
        if step > before and at - early >= BLOCK_SECONDS:
            rates.append((step - before) * tokens_per_step / (at - early))
            before, early = step, at
    return tuple(rates) if len(rates) >= LEAST_TIMED else ()


def _result(rates: tuple[float, ...], layout: BatchLayout, found: Attempt, warmup: float) -> RunResult:
    rate = statistics.median(rates)
    result = ThroughputResult(
        tokens_per_second=rate,
        tokens_per_second_blocks=rates,
        step_seconds=layout.tokens_per_step / rate,
        warmup_seconds=max(0.0, warmup),
        peak_bytes=found.peak_bytes,
        measured=found.measured,
    )
    return RunResult(Outcome.COMPLETED, "", result, environment=found.environment)
