"""The report's tables as text: columns, rows, and which rows stand out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.shared_rate import compare_rates
from batchlab.analysis.values import BatchRow, Cell, Run, SurfaceFinding
from batchlab.core.batch import BatchLayout, Unit
from batchlab.core.experiment import AcrossBatch
from batchlab.core.format import (
    NONE,
    format_bytes,
    format_hours,
    format_interval,
    format_learning_rate,
    format_loss,
    format_percent,
    format_signed,
    format_split,
)
from batchlab.core.record import Outcome, perplexity
from batchlab.scaling import beta2_at, decay_timescale, epsilon_at, weight_decay_of
from batchlab.words.results import BEST_OF_EACH, NOT_RUN, rates_note, remark
from batchlab.words.units import Units


@dataclass(frozen=True, slots=True)
class Column:
    """`number` columns are right-aligned with figures of equal width; `wide` ones may wrap."""

    name: str
    number: bool = True
    wide: bool = False


Mark = Literal["", "best", "lowest", "tied", "peak", "failed"]
"""How a row stands out."""


@dataclass(frozen=True, slots=True)
class Row:
    """`key`: the cell that a row belongs to, `batch|learning rate`. `link`: a file of the study."""

    texts: tuple[str, ...]
    mark: Mark = ""
    key: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    columns: tuple[Column, ...]
    rows: tuple[Row, ...] = field(default=())


def results_table(findings: Findings) -> Table:
    """One row per batch size that was asked for, also those that never ran."""
    units = Units.of(findings)
    columns = (
        Column("batch"),
        *([Column("best warm-up")] if findings.warmups else []),
        Column("best LR"),
        Column(units.metric or "val loss"),
        Column("train loss"),
        Column("steps"),
        Column(f"{units.name}/s"),
        Column("time"),
        Column("peak memory"),
        Column("micro × accum"),
        Column("remark", number=False, wide=True),
    )
    known = {row.global_batch_size: row for row in (findings.surface.rows if findings.surface else ())}
    sizes = sorted({*known, *findings.experiment.batch.global_batch_sizes})
    rows = []
    for size in sizes:
        row = known.get(size)
        if row is None:
            rows.append(_not_run(findings, size))
        else:
            rows.append(_result(findings, row, _mark(findings.surface, row)))
    return Table(columns, tuple(rows))


def _mark(surface: SurfaceFinding | None, row: BatchRow) -> Mark:
    """Where noise was not measured, the best is only the `lowest`: one seed makes no winner."""
    if surface and surface.best and surface.best.global_batch_size == row.global_batch_size:
        return "best" if surface.resolved else "lowest"
    return "tied" if row.tied else ""


def _result(findings: Findings, row: BatchRow, mark: Mark) -> Row:
    done = [run for run in (row.best.runs if row.best else ()) if run.outcome is Outcome.COMPLETED]
    quoted = row.best.quoted_runs if row.best else ()
    steps = done[0].steps if done else None
    texts = (
        f"{row.global_batch_size:,}",
        *([format_percent(row.warmup_fraction)] if findings.warmups else []),
        format_learning_rate(row.best.learning_rate if row.best else None),
        format_interval(row.val_loss),
        format_loss(_mean([run.train_loss for run in quoted])),
        f"{steps:,}" if steps else NONE,
        _speed(findings, row.global_batch_size),
        format_hours(row.hours),
        format_peak(findings, row.layout, done),
        format_split(row.layout),
        remark(row),
    )
    return Row(texts, mark if row.best else "failed")


def _speed(findings: Findings, size: int) -> str:
    """Measured alone on the device."""
    here = findings.throughput.at(size) if findings.throughput else None
    return NONE if here is None else f"{here.tokens_per_second.value:,.0f}"


def format_peak(findings: Findings, layout: BatchLayout, runs: Sequence[Run] = ()) -> str:
    """The one peak that the report gives for a layout: of its probe in a fresh process, else of the measurement of
    speed, else of the runs."""
    points = findings.memory.points if findings.memory else ()
    probed = [p.peak_bytes for p in points if p.fits and p.micro_batch_size == layout.micro_batch_size]
    timed = findings.throughput.at(layout.global_batch_size) if findings.throughput else None
    trained = max((run.peak_bytes for run in runs if run.peak_bytes), default=None)
    found = next((p for p in (*probed, timed.peak_bytes if timed else None, trained) if p), None)
    return format_bytes(found) if found else NONE


def _not_run(findings: Findings, size: int) -> Row:
    measured = findings.throughput.at(size) if findings.throughput else None
    shape = format_split(measured.layout) if measured else NONE
    peak = format_peak(findings, measured.layout) if measured else NONE
    unknown = [NONE] * (5 if findings.warmups else 4)
    return Row((f"{size:,}", *unknown, _speed(findings, size), NONE, peak, shape, NOT_RUN))


def endings_table(findings: Findings) -> Table:
    """More about the runs at each size's best learning rate than the loss they are judged by; means over seeds."""
    tokens = findings.experiment.unit is Unit.TOKENS and findings.experiment.evaluation.metric is None
    clips = findings.experiment.optimizer.grad_clip is not None
    allocator = any(run.measured == "reserved" for run in findings.runs)
    columns = (
        Column("batch"),
        Column("best LR"),
        Column("runs"),
        *((Column("perplexity"),) if tokens else ()),
        Column("end above lowest"),
        Column("gradient norm"),
        *((Column("clipped steps"),) if clips else ()),
        Column("wall seconds"),
        *((Column("peak in use"), Column("peak reserved")) if allocator else ()),
    )
    rows = [
        _ending(row.best, tokens=tokens, clips=clips, allocator=allocator)
        for row in (findings.surface.rows if findings.surface else ())
        if row.best is not None and row.best.losses
    ]
    return Table(columns, tuple(rows))


def _ending(cell: Cell, *, tokens: bool, clips: bool, allocator: bool) -> Row:
    """`allocator`: a caching allocator holds more than what is in use, and both are shown."""
    done = [run for run in cell.runs if run.outcome is Outcome.COMPLETED]
    value, norm = perplexity(cell.quoted_loss), _mean([run.grad_norm for run in done])
    in_use = max((run.peak_in_use_bytes for run in done if run.peak_in_use_bytes), default=None)
    reserved = max((run.peak_bytes for run in done if run.peak_bytes and run.measured == "reserved"), default=None)
    clipped, seconds = _mean([run.clipped_fraction for run in done]), _mean([run.seconds for run in done])
    texts = (
        f"{cell.global_batch_size:,}",
        format_learning_rate(cell.learning_rate),
        f"{len(done)}",
        *((NONE if value is None else f"{value:,.4g}",) if tokens else ()),
        format_loss(_mean([_rise(run) for run in done])),
        NONE if norm is None else f"{norm:.3g}",
        *((NONE if clipped is None else f"{100 * clipped:.0f} %",) if clips else ()),
        NONE if seconds is None else f"{seconds:,.1f}",
        *(
            (format_bytes(in_use) if in_use else NONE, format_bytes(reserved) if reserved else NONE)
            if allocator
            else ()
        ),
    )
    return Row(texts)


def _rise(run: Run) -> float | None:
    """How far the final loss is above the lowest one along the run."""
    return None if run.val_loss is None or run.best_val_loss is None else run.val_loss - run.best_val_loss


MOST_RATES = 12
"""Shared learning rates that are compared one by one."""


def rates_table(findings: Findings) -> tuple[Table, str]:
    """How far every size is above the lowest loss with one learning rate for all, and with its own best; without rows
    below two rates. And how to read it.

    Differences, because they are taken on the seeds that cells share: a loss beside the cell's quoted one would be
    another number for the same cell.
    """
    compared = compare_rates(findings.surface) if findings.surface else ()
    if len(compared) < 3:
        return Table(()), ""
    shared = len(compared) - 1
    if shared > MOST_RATES:
        places = [round(i * (shared - 1) / (MOST_RATES - 1)) for i in range(MOST_RATES)]
        compared = (*(compared[place] for place in places), compared[-1])
    sizes = [size for size, _ in compared[-1].losses]
    lowest = min(value for _, value in compared[-1].losses)
    columns = (Column("learning rate", number=False), *(Column(f"batch {size:,}") for size in sizes))
    columns += (Column("lowest at"), Column("spread"))
    rows = [
        Row(
            (
                BEST_OF_EACH if one.learning_rate is None else f"{format_learning_rate(one.learning_rate)} for all",
                *(format_signed(value - lowest) for _, value in one.losses),
                f"batch {one.lowest:,}",
                format_loss(one.spread),
            )
        )
        for one in compared
    ]
    return Table(columns, tuple(rows)), rates_note(len(rows) - 1, shared)


def time_constants(findings: Findings) -> Table:
    """beta2, epsilon and weight decay at every size, where a rule changes them; else a table without rows."""
    experiment = findings.experiment
    optimizer, rule = experiment.optimizer, experiment.optimizer.across_batch
    columns = (Column("batch"), Column("beta2"), Column("epsilon"), Column("weight decay"))
    own = optimizer.name == "task" or findings.task_info.own_optimizer
    if own or findings.task_info.optimizer_family != "adam" or rule is AcrossBatch.FIXED:
        return Table(columns)
    rows = []
    for size in experiment.batch.global_batch_sizes:
        ratio = size / experiment.reference_batch_size
        decay = weight_decay_of(optimizer, ratio)
        beta2, epsilon = beta2_at(optimizer.beta2, ratio), epsilon_at(optimizer.epsilon, ratio)
        rows.append(Row((f"{size:,}", f"{beta2:.5g}", f"{epsilon:.2g}", f"{decay:.3g}")))
    return Table(columns, tuple(rows))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def cells_table(findings: Findings) -> Table:
    """Every cell of the sweep with the loss of every seed; where AdamW decays weights, with the timescale of that."""
    decays = findings.experiment.optimizer.decays
    cells = _every_cell(findings)
    confirmed = any(run.confirms for cell in cells for run in cell.runs)
    warmups = findings.warmups is not None
    columns = (
        Column("batch"),
        *([Column("warm-up")] if warmups else []),
        Column("LR"),
        *([Column("decay timescale, runs")] if decays else []),
        Column("runs"),
        Column(Units.of(findings).metric or "val loss"),
        Column("each run"),
        *([Column("confirmation seeds")] if confirmed else []),
        Column("outcome", number=False),
    )
    rows = [
        _cell(cell, _timescale(findings, cell) if decays else "", confirmed=confirmed, warmups=warmups)
        for cell in cells
    ]
    return Table(columns, tuple(rows))


def _every_cell(findings: Findings) -> list[Cell]:
    """By batch size, warm-up and learning rate; also those at a warm-up that is not the best of its size."""
    if findings.warmups is not None:
        return [cell for size in findings.warmups.sizes for tried in size.tried for cell in tried.cells]
    return [cell for row in (findings.surface.rows if findings.surface else ()) for cell in row.cells]


def _timescale(findings: Findings, cell: Cell) -> str:
    """B/(η·λ·D) of a cell, λ as it was there."""
    experiment, rate = findings.experiment, cell.learning_rate
    if not findings.token_budget:
        return NONE
    config, size = experiment.optimizer, cell.global_batch_size
    decay = weight_decay_of(config, size / experiment.reference_batch_size, config.rate_ratio(rate))
    steps = (findings.tokens_at(size) or findings.token_budget) / (size * experiment.sequence_length)
    return f"{decay_timescale(rate, decay, steps):.2g}"


def _cell(cell: Cell, timescale: str, *, confirmed: bool, warmups: bool) -> Row:
    """`confirmed`: some cell of the table has confirmation seeds, which have a column of their own then."""
    outcomes = Counter(run.outcome.label for run in cell.runs)
    runs = sorted(cell.runs, key=lambda run: run.seed)
    each, confirming = (
        ", ".join(format_loss(run.val_loss) for run in runs if run.confirms is kind) for kind in (False, True)
    )
    return Row(
        (
            f"{cell.global_batch_size:,}",
            *([format_percent(cell.warmup_fraction)] if warmups else []),
            format_learning_rate(cell.learning_rate),
            *([timescale] if timescale else []),
            f"{len(cell.runs):,}",
            format_loss(cell.quoted_loss),
            each or NONE,
            *([confirming or NONE] if confirmed else []),
            ", ".join(word if number == len(cell.runs) else f"{number} {word}" for word, number in outcomes.items()),
        ),
        "" if cell.losses else "failed",
        cell_key(cell.global_batch_size, cell.learning_rate),
    )


def cell_key(global_batch_size: int, learning_rate: float) -> str:
    """What names a cell in the page: the runs of a cell are found by it."""
    return f"{global_batch_size}|{format_learning_rate(learning_rate)}"
