"""How steeply the loss falls with more tokens, which tells what a higher loss costs.

At the end of a run whose learning rate decays, the slope along the run is not the slope between budgets: most of the
late fall is the decay's. So the loss at the study's budget is compared with that of a run of the same cell whose
schedule ends at a smaller budget (`RUN`). At a constant learning rate an earlier evaluation is such a run (`CURVE`).
At equal time the budget of a cell is the tokens it trains on in that time, and half of them are half of the time: the
slope is one against time as well.
The smaller run is not tuned again: where its best batch size and learning rate are elsewhere, its loss is somewhat too
high and the slope too steep, so that costs are told somewhat too low.

Without either, language models are given a published slope: loss ∝ D^−α with α between 0.024 and 0.124. Kaplan et
al. 2020 (arXiv:2001.08361) have 0.095 for D alone; Hoffmann et al. 2022 (arXiv:2203.15556, approach 3) give
α = 0.28 · 410.7 D^−0.28 / L, which is 0.04 (1e9 parameters, 1e11 tokens) to 0.08 (1e8, 2e9). On three sizes of the Step
Law table 0.5 % of the loss is 10 to 22 % more tokens: α from 0.025 to 0.052.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from batchlab.analysis.sweep.noise import CONFIDENCE, Noise, pooled_noise, t_quantile
from batchlab.analysis.values import BatchRow, Cell, Interval, Run, SurfaceFinding, TokensAt
from batchlab.analysis.verdict import SlopeFrom, TokenSlope
from batchlab.core.record import Outcome

EXPONENT, EXPONENT_FACTOR = 0.055, 2.25
"""Published α and the factor by which it may be off in either direction (95 %)."""

NEAR, FAR = 1.25, 4.0
"""Budgets ÷ smaller budgets between which a slope is read: nearer ones are lost in noise, farther ones are another
regime."""


def token_slope(
    surface: SurfaceFinding, smaller: Sequence[Run], tokens_at: TokensAt, *, language_model: bool, decays: bool
) -> TokenSlope | None:
    """The slope at the best cell, or at the measured one nearest to it; None without any, or where the loss rises.

    `smaller`: completed runs from scratch at smaller budgets, with the study's schedule. `language_model`: whether the
    loss is one of tokens, which the published slope holds for. `decays`: whether the learning
    rate does.
    """
    best = surface.best
    if best is None or best.best is None or best.val_loss is None:
        return None
    cells = [cell for row in _judged(surface) for cell in row.cells if cell.losses]
    noise, nearest = pooled_noise(cells), best.best
    for cell in sorted(cells, key=lambda cell: _distance(cell, nearest)):
        token_budget = tokens_at(cell.global_batch_size)
        if token_budget is None:
            continue
        measured = _between_runs(cell, smaller, noise, token_budget) or (
            None if decays else _along(cell, noise, token_budget)
        )
        if measured is not None:
            return measured if measured.drop.value > 0 else None
    if not language_model or best.val_loss.value <= 0:
        return None
    low, value, high = (
        best.val_loss.value * (2**exponent - 1)
        for exponent in (EXPONENT / EXPONENT_FACTOR, EXPONENT, EXPONENT * EXPONENT_FACTOR)
    )
    drop = Interval(value, low, high, 0)
    return TokenSlope(drop, 2.0, SlopeFrom.PUBLISHED, best.global_batch_size, best.best.learning_rate)


def _judged(surface: SurfaceFinding) -> list[BatchRow]:
    return [row for row in surface.rows if row.best is not None and not row.undertrained]


def _distance(cell: Cell, best: Cell) -> tuple[float, int, float]:
    """Sort key: doublings of batch size and learning rate from the best cell."""
    sizes, rates = (cell.global_batch_size, best.global_batch_size), (cell.learning_rate, best.learning_rate)
    away = math.hypot(math.log2(sizes[0] / sizes[1]), math.log2(rates[0] / rates[1]))
    return away, cell.global_batch_size, cell.learning_rate


def _between_runs(cell: Cell, smaller: Sequence[Run], noise: Noise | None, token_budget: int) -> TokenSlope | None:
    """From runs of this cell at the smaller budget that is nearest to half."""
    runs = [
        run
        for run in smaller
        if (run.global_batch_size, run.learning_rate, run.warmup_fraction) == cell.place
        and run.outcome is Outcome.COMPLETED
        and run.val_loss is not None
        and not run.undertrained
        and NEAR <= token_budget / run.tokens <= FAR
    ]
    if not runs:
        return None
    budget = min({run.tokens for run in runs}, key=lambda tokens: abs(math.log2(token_budget / tokens) - 1))
    losses = [run.val_loss for run in runs if run.tokens == budget and run.val_loss is not None]
    return _slope(cell, losses, noise, token_budget / budget, SlopeFrom.RUN)


def _along(cell: Cell, noise: Noise | None, token_budget: int) -> TokenSlope | None:
    """From the evaluations of this cell's runs that are nearest to half of the budget."""
    curves = [dict(run.val_curve) for run in cell.runs if run.outcome is Outcome.COMPLETED]
    shared = set.intersection(*map(set, curves)) if curves else set()
    finite = [tokens for tokens in shared if all(math.isfinite(curve[tokens]) for curve in curves)]
    inside = [tokens for tokens in finite if tokens and NEAR <= token_budget / tokens <= FAR]
    if not inside:
        return None
    at = min(inside, key=lambda tokens: abs(math.log2(token_budget / tokens) - 1))
    return _slope(cell, [curve[at] for curve in curves], noise, token_budget / at, SlopeFrom.CURVE)


def _slope(
    cell: Cell, losses: Sequence[float], noise: Noise | None, factor: float, source: SlopeFrom
) -> TokenSlope | None:
    """Difference of the two means, unpaired, with the spread that seeds have at the whole budget."""
    value = sum(losses) / len(losses) - sum(cell.losses) / len(cell.losses)
    drop = Interval(value, n=len(losses))
    if noise is not None:
        variance, df, _ = noise.of(cell)
        half = t_quantile(0.5 + CONFIDENCE / 2, df) * math.sqrt(variance * (1 / len(losses) + 1 / len(cell.losses)))
        drop = Interval(value, value - half, value + half, len(losses))
    return TokenSlope(drop, factor, source, cell.global_batch_size, cell.learning_rate)
