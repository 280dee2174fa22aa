"""Do speeds and memory make sense on one device?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from batchlab.analysis.audit.flaw import (
    BeyondMemory,
    Flaw,
    GapBelowMemoryLimit,
    LargerIsSlower,
    NoOptimizerInMemory,
    OptimizerStateWrong,
)
from batchlab.analysis.audit.table import Ending, Entry, Quantity, SweepTable

SLOWER = 1.2
"""Factor of time per token from which on a larger batch size is called slower: speeds vary by less."""

GB_OR_GIB = 2**30 / 10**9
"""Many tools print GiB as GB."""

STATE_TOLERANCE = 0.15

VALUES_PER_PARAMETER = {"adam": 2, "adamw": 2, "nadam": 2, "radam": 2, "lamb": 2, "lion": 1, "adagrad": 1}
"""Tensors of state that an optimizer keeps for each parameter (torch.optim; Lion: arXiv:2302.06675)."""

STATE_BYTES = 4


def device_flaws(table: SweepTable) -> Iterator[Flaw]:
    """Flaws of speed and memory."""
    for group in table.groups:
        yield from _slower(group)
    yield from _beyond(table.entries)
    yield from _optimizer_state(table.entries)
    yield from _gap(table.entries)
    yield from _no_optimizer(table.entries)


def _slower(entries: Sequence[Entry]) -> Iterator[Flaw]:
    times: dict[float, list[tuple[float, Entry]]] = defaultdict(list)
    for entry in entries:
        cost = _time_per_token(entry)
        if cost and entry.batch and entry.ending is Ending.COMPLETED:
            times[entry.batch].append((cost, entry))
    best: tuple[float, float, Entry] | None = None
    worst: LargerIsSlower | None = None
    for size in sorted(times):
        cost, entry = min(times[size], key=lambda item: item[0])
        if best is not None and cost > SLOWER * best[1] and (worst is None or cost / best[1] > worst.factor):
            worst = LargerIsSlower((best[2].line, entry.line), best[0], size, cost / best[1])
        if best is None or cost < best[1]:
            best = (size, cost, entry)
    if worst is not None:
        yield worst


def _time_per_token(entry: Entry) -> float | None:
    """Seconds per token, or per sample or per run where only that can be told: comparable within one table."""
    speed = entry.get(Quantity.TOKENS_PER_SECOND)
    if speed:
        return 1 / speed
    step = entry.get(Quantity.STEP_SECONDS)
    if step and entry.batch:
        return step / entry.batch
    seconds = entry.get(Quantity.SECONDS)
    if not seconds:
        return None
    if entry.tokens:
        return seconds / entry.tokens
    steps = entry.get(Quantity.STEPS)
    return seconds / (steps * entry.batch) if steps and entry.batch else None


def _beyond(entries: Sequence[Entry]) -> Iterator[Flaw]:
    over = []
    for entry in entries:
        peak, limit = entry.get(Quantity.PEAK_BYTES), entry.get(Quantity.MEMORY_LIMIT)
        if peak is not None and limit and peak > GB_OR_GIB * limit:
            over.append((peak / limit, entry))
    if over:
        entry = max(over, key=lambda item: item[0])[1]
        numbers = entry.numbers
        lines = tuple(entry.line for _, entry in over)
        yield BeyondMemory(lines, numbers[Quantity.PEAK_BYTES], numbers[Quantity.MEMORY_LIMIT])


def _optimizer_state(entries: Sequence[Entry]) -> Iterator[Flaw]:
    for entry in entries:
        given, parameters = entry.get(Quantity.OPTIMIZER_BYTES), entry.get(Quantity.PARAMETERS)
        name = entry.texts.get(Quantity.OPTIMIZER, "").strip().lower()
        if given is None or not parameters or name not in VALUES_PER_PARAMETER:
            continue
        states = VALUES_PER_PARAMETER[name]
        expected = parameters * states * STATE_BYTES
        if abs(given / expected - 1) > STATE_TOLERANCE:
            yield OptimizerStateWrong((entry.line,), name, states, expected, given)
            return


def _gap(entries: Sequence[Entry]) -> Iterator[Flaw]:
    ran = [(entry.batch, entry) for entry in entries if entry.batch and entry.ending is Ending.COMPLETED]
    failed = [(entry.batch, entry) for entry in entries if entry.batch and entry.ending is Ending.OUT_OF_MEMORY]
    if not ran or not failed:
        return
    fits, one = max(ran, key=lambda item: item[0] or 0.0)
    above = [(size, entry) for size, entry in failed if size and fits and size > fits]
    if not above or fits is None:
        return
    fails, other = min(above, key=lambda item: item[0] or 0.0)
    if fails is not None and fails - fits > 1:
        yield GapBelowMemoryLimit((one.line, other.line), fits, fails)


def _no_optimizer(entries: Sequence[Entry]) -> Iterator[Flaw]:
    without = [
        entry
        for entry in entries
        if entry.get(Quantity.PEAK_BYTES) is not None
        and entry.texts.get(Quantity.OPTIMIZER, "").strip().lower() in ("none", "no")
    ]
    if without:
        yield NoOptimizerInMemory(tuple(entry.line for entry in without), without[0].get(Quantity.PARAMETERS))
