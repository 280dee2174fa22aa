"""What a batch size costs against the best one, in tokens, and whether it is shown to cost no more than a tolerance.

At equal time, D is what a cell trains on in that time, so that all shares below are shares of time as well.

Token-equivalents. With loss = E + A·D^−β, a cell that ends Δ above the best one reaches the best one's loss with
(1 + c)·D tokens, where 1 − (1 + c)^−β = (Δ/K)·(f^β − 1) and K is the loss at D/f minus that at D (analysis/sweep/
token_slope.py); for β → 0 it is c = f^(Δ/K) − 1. Two budgets do not determine β. The value is for β = 1/3 (0.28 in
Hoffmann et al. 2022, arXiv:2203.15556; 0.37 in Besiroglu et al. 2024, arXiv:2404.10102), and the interval is the
widest over 0 ≤ β ≤ 1. Every cell is taken to have the slope of the best one.

The slope is known between D/f and D. A cell that ends further above the best one than K costs more than f − 1, because
the best cell would have passed its loss before D/f; how much more was not measured, so that no value is given, and the
lower limit is at most f − 1. For the same reason an upper limit above f − 1 is none: it is infinite.

The interval of Δ/K is Fieller's (1954, J. R. Stat. Soc. B 16:175) with the half-widths of both, as if they were
independent; where the slope is published and its limits are not symmetric, it is that of Donner and Zou (2012, Stat.
Methods Med. Res. 21:347). Δ and K share the best cell's mean, which makes it slightly too wide for Δ > 0.

Non-inferiority. A size is shown to cost no more than the tolerance where the upper end of its two-sided 95 % interval
is at most that: a one-sided test at 2.5 %, the convention of ICH E9 (1998, section 3.3.2) and of CONSORT's extension
(Piaggio et al. 2012, JAMA 308:2594). The stricter of the two usual levels, because the study looks twice (after the
confirmation seeds, and after the further seeds that it plans) and at several sizes. The seed that chose the cells does
not count.
"""

from __future__ import annotations

import math

from batchlab.analysis.sweep.noise import CONFIDENCE, PAIRED_FROM, difference_interval, t_quantile
from batchlab.analysis.values import BatchRow, Difference, Interval, SurfaceFinding
from batchlab.analysis.verdict import Cost, Shared, TokenSlope

CURVATURE = 1 / 3
"""β of the value."""

CURVATURES = (0.0, 1.0)
"""β of the interval."""

SHOWN_FROM = 3
"""Seeds of both cells, besides the one that chose them, from which on a size can be shown to cost no more."""

POWER = 0.8
"""Probability with which the planned seeds show it, if the two cells are equally good."""

MOST_SEEDS = 100_000
"""Beyond this nothing is planned: the tolerance is far below the noise."""


def costs_of(
    surface: SurfaceFinding, slope: TokenSlope | None, tolerance: float, run_seconds: float | None = None
) -> tuple[Cost, ...]:
    """One per judged batch size, the best among them; empty where there is no best. `run_seconds`: of every run."""
    best = surface.best
    if best is None or best.val_loss is None:
        return ()
    judged = [row for row in surface.rows if row.val_loss is not None and not row.undertrained]
    shared = Shared.by(run_seconds)
    return tuple(_cost(row, best, slope, tolerance, shared) for row in judged)


def _cost(row: BatchRow, best: BatchRow, slope: TokenSlope | None, tolerance: float, shared: Shared) -> Cost:
    speeds = best.tokens_per_second, row.tokens_per_second
    time_per_token = speeds[0] / speeds[1] if speeds[0] and speeds[1] else None
    rate = row.best.learning_rate if row.best else math.nan  # judged rows always have a best cell
    if row is best:
        none = Interval(0.0, 0.0, 0.0, best.val_loss.n if best.val_loss else 0)
        return Cost(
            row.global_batch_size,
            rate,
            none,
            none if slope else None,
            None,
            time_per_token,
            shown=True,
            more_seeds=None,
            shared=shared,
        )
    above = row.above_best
    if above is None:
        assert row.val_loss is not None
        assert best.val_loss is not None
        loss = Interval(row.val_loss.value - best.val_loss.value, n=min(row.val_loss.n, best.val_loss.n))
    else:
        loss = difference_interval(above)
    tokens = extra_tokens(loss, slope) if slope else None
    shown = above is not None and _enough(above) and tokens is not None and _at_most(tokens, tolerance)
    return Cost(
        global_batch_size=row.global_batch_size,
        learning_rate=rate,
        loss=loss,
        tokens=tokens,
        by=above.by if above else None,
        time_per_token=time_per_token,
        shown=shown,
        more_seeds=None if shown or slope is None or above is None else _more_seeds(above, slope, tolerance),
        shared=shared,
    )


def _enough(above: Difference) -> bool:
    return above.clean and above.n >= SHOWN_FROM


def _at_most(tokens: Interval, tolerance: float) -> bool:
    return tokens.high is not None and tokens.high <= tolerance


def extra_tokens(loss: Interval, slope: TokenSlope) -> Interval:
    """The share of the budget that a higher loss costs, with its interval; infinite beyond the measured slope."""
    drop, measured = slope.drop, slope.factor - 1
    value = _tokens(loss.value / drop.value, slope.factor, CURVATURE)
    if loss.low is None or loss.high is None or drop.low is None or drop.high is None:
        return Interval(value, n=loss.n)
    low, high = ratio_limits(loss, drop)
    return Interval(
        value,
        None if low is None else min(measured, *(_tokens(low, slope.factor, curvature) for curvature in CURVATURES)),
        None if high is None else _within(max(_tokens(high, slope.factor, c) for c in CURVATURES), measured),
        loss.n,
    )


def _within(limit: float, measured: float) -> float:
    """An upper limit, infinite above what the slope was measured over."""
    return limit if limit <= measured else math.inf


def _tokens(ratio: float, factor: float, curvature: float) -> float:
    if ratio > 1:
        return math.inf
    if curvature == 0:
        return float(factor**ratio - 1)
    left = 1 - ratio * (factor**curvature - 1)
    return float(left ** (-1 / curvature) - 1) if left > 0 else math.inf


def ratio_limits(above: Interval, below: Interval) -> tuple[float | None, float | None]:
    """Limits of above ÷ below from the limits of both; None on both sides where `below` may be zero.

    The upper one solves (y − R·x)² = (y₊ − y)² + R²·d², where d is x − x₋ for R > 0 and x₊ − x for R < 0.
    """
    assert above.low is not None
    assert above.high is not None
    assert below.low is not None
    assert below.high is not None
    if below.low <= 0:
        return None, None
    down, up = below.value - below.low, below.high - below.value
    low = _root(above.value, below.value, above.value - above.low, up, -1)
    if low < 0:
        low = _root(above.value, below.value, above.value - above.low, down, -1)
    high = _root(above.value, below.value, above.high - above.value, down, 1)
    if high < 0:
        high = _root(above.value, below.value, above.high - above.value, up, 1)
    return low, high


def _root(y: float, x: float, e: float, d: float, sign: int) -> float:
    scale = x * x - d * d
    if scale <= 0:
        return sign * math.inf
    inner = (x * y) ** 2 - scale * (y * y - e * e)
    return (x * y + sign * math.sqrt(max(inner, 0.0))) / scale


def margin(slope: TokenSlope, tolerance: float, curvature: float = CURVATURES[-1]) -> float:
    """The loss difference in nats that costs the tolerance; by default at the curvature where it is smallest."""
    return float(slope.drop.value * (1 - (1 + tolerance) ** -curvature) / (slope.factor**curvature - 1))


def _more_seeds(above: Difference, slope: TokenSlope, tolerance: float) -> int | None:
    """Seeds beyond those there are, at both cells, with which non-inferiority is shown with probability `POWER`.

    If the two are equally good, or differ as measured where they certainly differ: the least n with
    n ≥ (t₀.₉₇₅ + t₀.₈)²·s²/(margin − difference)², n − 1 degrees of freedom and s² the variance of one seed's
    difference (Julious 2004, Stat. Med. 23:1921, section 4). None where no number of seeds would show it.
    """
    low = difference_interval(above).low
    wanted = margin(slope, tolerance) - (above.value if low is not None and low > 0 else 0.0)
    if wanted <= 0:
        return None
    seeds = seeds_needed(above.variance, wanted)
    return None if seeds is None else max(1, seeds - (above.n if above.clean else 0))


def seeds_needed(variance: float, wanted: float) -> int | None:
    """The least number of seeds; None above `MOST_SEEDS`."""

    def enough(n: int) -> bool:
        factor = t_quantile(0.5 + CONFIDENCE / 2, n - 1) + t_quantile(POWER, n - 1)
        return bool(n >= factor**2 * variance / wanted**2)

    low, high = 1, PAIRED_FROM
    while not enough(high):
        low, high = high, 2 * high
        if low > MOST_SEEDS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return max(high, PAIRED_FROM)
