"""Do steps, batch sizes, tokens and warm-up agree with each other, and was every batch size given the same budget?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from batchlab.analysis.audit.flaw import (
    BatchDisagrees,
    EqualSteps,
    Flaw,
    StepsInconsistent,
    TokensDisagree,
    TooFewSteps,
    UnequalTokens,
    WarmupSharesDiffer,
)
from batchlab.analysis.audit.table import Ending, Entry, Quantity, SweepTable
from batchlab.core.spec import MIN_STEPS

ROUNDING = 0.03
"""Share by which a product may differ from what is stated: people write 327.68M as 330M, and budgets end at a step."""

SAME_BUDGET = 0.1
"""Share by which token counts may differ and still be called one budget."""

WARMUP_FACTOR = 1.5
"""Ratio of warm-up shares from which on they differ. A few steps more or less are rounding (`WARMUP_STEPS`)."""

WARMUP_STEPS = 1.5


def budget_flaws(table: SweepTable) -> Iterator[Flaw]:
    """Flaws of the arithmetic between steps, batch, tokens and warm-up."""
    yield from _products(table)
    for group in table.groups:
        trained = [entry for entry in group if entry.ending is Ending.COMPLETED and entry.batch]
        disagreeing = list(_tokens_disagree(trained))
        yield from disagreeing
        yield from _budgets_differ(trained, stated=bool(disagreeing))
        yield from _warmup(trained)
        yield from _too_few(trained)


def _products(table: SweepTable) -> Iterator[Flaw]:
    wrong = [
        entry
        for entry in table.entries
        if entry.product is not None
        and (given := entry.get(Quantity.GLOBAL_BATCH_SIZE)) is not None
        and entry.product != given
        and Quantity.GRAD_ACCUM_STEPS in entry.numbers  # without it the product is unknown
    ]
    if wrong:
        first = wrong[0]
        yield BatchDisagrees(_lines(wrong), first.product or 0.0, first.numbers[Quantity.GLOBAL_BATCH_SIZE])


def _tokens_disagree(entries: Sequence[Entry]) -> Iterator[Flaw]:
    ratios: list[tuple[float, Entry]] = []
    for entry in entries:
        steps, per_step, tokens = entry.get(Quantity.STEPS), entry.tokens_per_step, entry.tokens
        if steps and per_step and tokens:
            ratios.append((tokens / (steps * per_step), entry))
    wrong = [(ratio, entry) for ratio, entry in ratios if abs(ratio - 1) > ROUNDING + _one_step(entry)]
    if wrong:
        worst = max(wrong, key=lambda item: max(item[0], 1 / item[0]))[1]
        yield TokensDisagree(
            _lines(entry for _, entry in wrong),
            worst.numbers[Quantity.STEPS],
            worst.tokens_per_step or 0.0,
            worst.tokens or 0.0,
            (min(ratio for ratio, _ in wrong), max(ratio for ratio, _ in wrong)),
        )


def _one_step(entry: Entry) -> float:
    """A budget that is no whole number of steps is off by up to one."""
    steps = entry.get(Quantity.STEPS)
    return 1.0 / steps if steps else 0.0


def _budgets_differ(entries: Sequence[Entry], *, stated: bool) -> Iterator[Flaw]:
    """Different budgets, from the tokens where they are stated, else from steps × batch.

    Where stated tokens contradict the steps (`stated`), that is what is wrong, and the tokens are believed.
    """
    if len({entry.batch for entry in entries}) < 2:
        return
    with_steps = [entry for entry in entries if entry.get(Quantity.STEPS)]
    if not stated and len(with_steps) > 1 and len({entry.batch for entry in with_steps}) > 1:
        steps = {entry.numbers[Quantity.STEPS] for entry in with_steps}
        sizes = sorted(entry.batch or 0.0 for entry in with_steps)
        if len(steps) == 1 and sizes[-1] / sizes[0] > 1 + SAME_BUDGET:
            yield EqualSteps(_lines(with_steps), steps.pop(), sizes[0], sizes[-1], sizes[-1] / sizes[0])
            return
    known = [(_seen(entry), entry) for entry in entries]
    seen = [(tokens, entry) for tokens, entry in known if tokens]
    if len({entry.batch for _, entry in seen}) < 2:
        return
    (low, few), (high, many) = min(seen, key=lambda item: item[0]), max(seen, key=lambda item: item[0])
    slack = SAME_BUDGET + _one_step(few) + _one_step(many)
    if high / low <= 1 + slack:
        return
    lines = _lines(entry for _, entry in seen)
    if few.tokens is None:
        steps_of = [(entry.batch or 0.0, entry.numbers[Quantity.STEPS]) for entry in (few, many)]
        yield StepsInconsistent(lines, steps_of[0], steps_of[1], high / low)
    else:
        yield UnequalTokens(lines, (few.batch or 0.0, low), (many.batch or 0.0, high), high / low)


def _seen(entry: Entry) -> float | None:
    """Tokens that are stated, or samples from steps × batch; of one table always the same of the two."""
    if entry.tokens is not None:
        return entry.tokens
    steps = entry.get(Quantity.STEPS)
    return steps * entry.batch if steps and entry.batch else None


def _warmup(entries: Sequence[Entry]) -> Iterator[Flaw]:
    shares = [
        (warmup / entry.updates, entry)
        for entry in entries
        if (warmup := entry.get(Quantity.WARMUP_STEPS)) is not None and entry.updates
    ]
    if len(shares) < 2:
        return
    (least, low), (most, high) = min(shares, key=lambda item: item[0]), max(shares, key=lambda item: item[0])
    longer = (most - least) * (high.updates or 0.0)  # steps more than at the other's share
    if most > WARMUP_FACTOR * least and longer > WARMUP_STEPS:
        yield WarmupSharesDiffer(
            _lines(entry for _, entry in shares), (low.batch or 0.0, least), (high.batch or 0.0, most)
        )


def _too_few(entries: Sequence[Entry]) -> Iterator[Flaw]:
    few = [entry for entry in entries if entry.updates is not None and entry.updates < MIN_STEPS and entry.loss]
    if few:
        yield TooFewSteps(_lines(few), min(entry.updates or 0.0 for entry in few), MIN_STEPS)


def _lines(entries: Iterator[Entry] | Sequence[Entry]) -> tuple[int, ...]:
    return tuple(entry.line for entry in entries)
