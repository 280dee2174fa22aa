"""Two studies, or tables of runs, side by side: whether one reaches a lower loss, by how much, and what that is worth.

Each side is represented by its best cell. Where a side has confirmation seeds, they alone count, since the seeds that
chose the cell were lucky there. A side without them keeps some of that luck, and where the sides tried different
numbers of cells, the one that tried more keeps more of it (`Chosen`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.cost import extra_tokens, seeds_needed
from batchlab.analysis.sweep.noise import (
    PAIRED_FROM,
    difference,
    difference_interval,
    losses_by_seed,
    pooled_noise,
)
from batchlab.analysis.values import Cell, Comparing, Difference, Interval
from batchlab.analysis.verdict import TokenSlope
from batchlab.core.batch import Unit
from batchlab.core.pairing import Pairing, weakest

SAME_BUDGET = 0.02
"""Share by which two budgets may differ: they are whole numbers of steps."""

RESOLVED = 0.002
"""Difference, as a share of the loss, for which further seeds are planned."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the things compared. `cells`: all that are judged, from which noise is measured.

    `held_out`: digest of what the loss is measured on; empty where it is unknown. `run_seconds`: of every run, where
    runs had equal time; then `token_budget` is that of the best batch size. `settings`: by dotted name.
    """

    name: str
    best: Cell | None
    cells: tuple[Cell, ...]
    confirmation_seeds: frozenset[int]
    unit: Unit | None
    sequence_length: int | None
    token_budget: int | None
    run_seconds: float | None
    held_out: str
    pairing: Pairing
    slope: TokenSlope | None
    settings: Mapping[str, str]

    @property
    def quoted(self) -> Cell | None:
        """The best cell by its confirmation seeds; by all its seeds where it has none."""
        if self.best is None or not self.confirmed:
            return self.best
        kept = tuple(run for run in self.best.runs if run.seed in self.confirmation_seeds)
        return replace(self.best, runs=kept)

    @property
    def confirmed(self) -> bool:
        return self.best is not None and any(
            run.seed in self.confirmation_seeds and run.val_loss is not None for run in self.best.runs
        )


class Obstacle(StrEnum):
    """Why two losses cannot be compared."""

    NO_LOSS = "no_loss"
    UNIT = "unit"
    SEQUENCE_LENGTH = "sequence_length"
    HELD_OUT = "held_out"
    BUDGET = "budget"
    EQUAL_TIME = "equal_time"  # one side gave every run the same time, the other the same tokens
    TIME = "time"


class Caveat(StrEnum):
    """What weakens a comparison that can be made."""

    CHOSEN = "chosen"  # a side's loss is that of the seeds that chose it
    HELD_OUT_UNKNOWN = "held_out_unknown"


class Verdict(StrEnum):
    """What the losses show."""

    BETTER = "better"  # the second side's loss is lower
    WORSE = "worse"
    WITHIN_NOISE = "within_noise"
    NOT_TESTED = "not_tested"  # neither side repeated a seed


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in which the sides differ; empty where a side does not have it."""

    name: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The second side against the first. `loss`: second − first, in nats; `share`: of the first side's loss.

    `tokens`: by which share fewer (negative: more) tokens the second side needs to the first one's loss. `more_seeds`:
    at both sides, that would show a difference of RESOLVED with 80 % probability.
    """

    first: Side
    second: Side
    differ: tuple[Setting, ...]
    obstacles: tuple[Obstacle, ...]
    verdict: Verdict | None = None
    loss: Interval | None = None
    share: Interval | None = None
    tokens: Interval | None = None
    difference: Difference | None = None
    more_seeds: int | None = None
    caveats: tuple[Caveat, ...] = ()


def compare(first: Side, second: Side) -> Comparison:
    """What the second side's loss is against the first's, or why that cannot be told."""
    differ = _differences(first.settings, second.settings)
    obstacles = tuple(_obstacles(first, second))
    base = Comparison(first, second, differ, obstacles)
    one, two = first.quoted, second.quoted
    if obstacles or one is None or two is None:
        return base
    caveats = tuple(_caveats(first, second))
    scale = abs(_mean(one)) or 1.0
    found = _difference(first, second, one, two)
    if found is None:
        value = _mean(two) - _mean(one)
        return replace(
            base, verdict=Verdict.NOT_TESTED, loss=Interval(value), share=Interval(value / scale), caveats=caveats
        )
    loss = difference_interval(found)
    needed = seeds_needed(found.variance, RESOLVED * scale) if found.variance else None
    return replace(
        base,
        verdict=_verdict(loss),
        loss=loss,
        share=_scaled(loss, 1 / scale),
        tokens=_fewer_tokens(first, second, loss),
        difference=found,
        more_seeds=None if needed is None else max(0, needed - found.n),
        caveats=caveats,
    )


def _verdict(loss: Interval) -> Verdict:
    if loss.low is not None and loss.low > 0:
        return Verdict.WORSE
    if loss.high is not None and loss.high < 0:
        return Verdict.BETTER
    return Verdict.WITHIN_NOISE


def _obstacles(first: Side, second: Side) -> Iterator[Obstacle]:
    if first.best is None or second.best is None:
        yield Obstacle.NO_LOSS
    if _unlike(first.unit, second.unit):
        yield Obstacle.UNIT
    if _unlike(first.sequence_length, second.sequence_length):
        yield Obstacle.SEQUENCE_LENGTH
    if _unlike(first.held_out, second.held_out):
        yield Obstacle.HELD_OUT
    if (first.run_seconds is None) != (second.run_seconds is None):
        yield Obstacle.EQUAL_TIME
    elif first.run_seconds is not None:
        if _apart(first.run_seconds, second.run_seconds):
            yield Obstacle.TIME
    elif _apart(first.token_budget, second.token_budget):
        yield Obstacle.BUDGET


def _apart(one: float | None, other: float | None) -> bool:
    """Whether both are known and differ by more than runs of whole steps do."""
    return bool(one and other and abs(one / other - 1) > SAME_BUDGET)


def _unlike(one: object, other: object) -> bool:
    """Whether both are known and differ."""
    return bool(one and other and one != other)


def _caveats(first: Side, second: Side) -> Iterator[Caveat]:
    if not (first.confirmed and second.confirmed) and len(first.cells) + len(second.cells) > 2:
        yield Caveat.CHOSEN
    if not (first.held_out and second.held_out):
        yield Caveat.HELD_OUT_UNKNOWN


def _difference(first: Side, second: Side, one: Cell, two: Cell) -> Difference | None:
    """In pairs where both sides saw the same data in the same order; else Welch's test with each side's own spread.

    A side that repeated no seed is given the other's spread. None where neither did.
    """
    own = pooled_noise(first.cells), pooled_noise(second.cells)
    a, b = own[0] or own[1], own[1] or own[0]
    if a is None or b is None:
        return None
    paired = weakest((first.pairing, second.pairing)) is Pairing.VERIFIED and first.held_out == second.held_out
    if paired and len(losses_by_seed(one).keys() & losses_by_seed(two).keys()) >= PAIRED_FROM:
        return difference(two, one, b, paired=True)
    counts = len(one.losses), len(two.losses)
    variances = a.sd**2 / counts[0], b.sd**2 / counts[1]
    value, error = _mean(two) - _mean(one), math.sqrt(sum(variances))
    df = float(a.df)
    if own[0] is not None and own[1] is not None and error > 0:
        df = error**4 / (variances[0] ** 2 / a.df + variances[1] ** 2 / b.df)
    return Difference(value, error, df, a.sd**2 + b.sd**2, min(counts), Comparing.WELCH)


def _fewer_tokens(first: Side, second: Side, loss: Interval) -> Interval | None:
    """By which share fewer tokens the side with the lower loss needs to the other one's, by its own slope; at equal
    time, by which share less time.

    Positive where it is the second side, negative where it is the first. An end that is not known is None. None without
    a slope, and where the difference is larger than the slope covers.
    """
    better, above = (second, _scaled(loss, -1.0)) if loss.value < 0 else (first, loss)
    if better.slope is None:
        return None
    more = extra_tokens(above, better.slope)
    if not math.isfinite(more.value):
        return None
    ends = [None if end is None or math.isinf(end) else end / (1 + end) for end in (more.low, more.high)]
    fewer = Interval(more.value / (1 + more.value), ends[0], ends[1], more.n)
    return fewer if better is second else _scaled(fewer, -1.0)


def _scaled(interval: Interval, by: float) -> Interval:
    low, high = (None if end is None else end * by for end in (interval.low, interval.high))
    return Interval(interval.value * by, *((low, high) if by >= 0 else (high, low)), interval.n)


def _mean(cell: Cell) -> float:
    return sum(cell.losses) / len(cell.losses)


def _differences(first: Mapping[str, str], second: Mapping[str, str]) -> tuple[Setting, ...]:
    names = sorted({*first, *second})
    pairs = ((name, first.get(name, ""), second.get(name, "")) for name in names)
    return tuple(Setting(*pair) for pair in pairs if pair[1] != pair[2])


def side_of(found: Findings, name: str) -> Side:
    """A study as one side."""
    surface, experiment = found.surface, found.experiment
    judged = [row for row in surface.rows if not row.undertrained] if surface else []
    return Side(
        name=name,
        best=surface.best.best if surface and surface.best else None,
        cells=tuple(cell for row in judged for cell in row.cells if cell.losses),
        confirmation_seeds=frozenset(run.seed for run in found.runs if experiment.sweep.confirms(run.seed)),
        unit=experiment.unit,
        sequence_length=experiment.sequence_length,
        token_budget=found.token_budget,
        run_seconds=found.run_seconds,
        held_out=found.task_info.data_digest,
        pairing=surface.pairing if surface else Pairing.NONE,
        slope=found.slope,
        settings={**_compared(_flat(experiment.model_dump(mode="json"))), **_of_task(found)},
    )


NOT_COMPARED = ("schema_version", "name", "device.workers", "device.silence_seconds", "sweep.prior")
"""Settings that change no run's result."""


def _compared(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if name not in NOT_COMPARED}


def _of_task(found: Findings) -> dict[str, str]:
    info = found.task_info
    return {"parameters": f"{info.parameter_count:,}", "data": info.data_source}


def _flat(value: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Dotted names and their values as text; what is unset is left out."""
    flat: dict[str, str] = {}
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            flat |= _flat(inner, f"{prefix}{key}.")
        elif inner is not None:
            flat[prefix + key] = ", ".join(map(str, inner)) if isinstance(inner, list | tuple) else str(inner)
    return flat
