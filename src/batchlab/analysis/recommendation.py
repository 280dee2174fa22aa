"""What to train with, out of what was measured: nothing is extrapolated here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from batchlab.analysis.findings import BatchRow, Recommendation, SurfaceFinding
from batchlab.analysis.wording import say_count, say_loss, say_seeds
from batchlab.experiment import Experiment

Goal = Literal["quality", "fastest", "cheapest", "largest"]


def recommend(
    surface: SurfaceFinding | None, experiment: Experiment, token_budget: int | None
) -> tuple[Recommendation | None, tuple[Recommendation, ...]]:
    """(what to train with, one recommendation per goal). None and empty when no batch size could be judged.

    To train with: the fastest measured size of those as good as the best, each at its own best learning rate.
    """
    if surface is None or surface.best is None or token_budget is None:
        return None, ()
    warmup_tokens = experiment.schedule.warmup_fraction * token_budget
    best, good = surface.best, surface.as_good
    timed = [row for row in good if row.tokens_per_second is not None]
    fastest = max(timed, key=lambda row: (row.tokens_per_second or 0.0, -row.global_batch_size)) if timed else best
    largest = max(good, key=lambda row: row.global_batch_size)
    among = (
        f"of {say_count(len(good), 'batch size')} as good as the best"
        if len(good) > 1
        else "and the only judged as good"
    )
    seeds = say_seeds(surface, best)

    def made(goal: Goal, row: BatchRow, why: str) -> Recommendation:
        rate = row.best.learning_rate if row.best else math.nan  # rows that are as good always have a best cell
        return Recommendation(goal, row.layout, rate, warmup_tokens, why)

    quality = made(
        "quality", best, f"lowest mean validation loss, {say_loss(best.loss.value if best.loss else 0.0)} ({seeds})"
    )
    speed_why = f"fastest {among}" if timed else "lowest mean validation loss; speed was not measured"
    if timed and fastest is not best and fastest.loss and best.loss:
        distance = fastest.loss.value - best.loss.value
        sign = "above" if distance >= 0 else "below"
        speed_why += f", {say_loss(abs(distance))} {sign} batch {best.global_batch_size:,} (n = {fastest.loss.n})"
    passes = largest.layout.grad_accum_steps
    how = f"by {passes} accumulated micro-batches" if passes > 1 else "without accumulation"
    return made("fastest", fastest, speed_why), (
        quality,
        made("fastest", fastest, speed_why),
        *(made("cheapest", row, why) for row, why in _cheapest(good, token_budget)),
        made("largest", largest, f"largest {among}, {how}: the most devices that can share a step"),
    )


def _cheapest(good: Sequence[BatchRow], token_budget: int) -> list[tuple[BatchRow, str]]:
    """Of the as-good sizes the one that reached their highest final loss with the fewest tokens, and so the least
    computation.

    Seen along runs whose learning rate was still falling for the whole budget: a run planned to end there would get
    there somewhat earlier, at every size. Empty without evaluations along the way.
    """
    target = max((row.loss.value for row in good if row.loss), default=math.nan)
    reached = [(tokens, row.global_batch_size, row) for row in good if (tokens := _tokens_to(row, target)) is not None]
    if len(reached) < 2:
        return []
    tokens, _, row = min(reached, key=lambda item: item[:2])
    share = 100 * tokens / token_budget
    return [
        (row, f"soonest at {say_loss(target)}, the highest loss of those as good: after {share:.0f} % of the budget")
    ]


def _tokens_to(row: BatchRow, target: float) -> float | None:
    """Tokens at which the mean evaluation curve of the size's best cell first is at `target`, between two evaluations
    by interpolation; None where it never is."""
    curves = [
        {evaluated.tokens: evaluated.val_loss for evaluated in run.rows if evaluated.val_loss is not None}
        for run in (row.best.runs if row.best else ())
        if run.val_loss is not None
    ]
    shared = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    before: tuple[float, float] | None = None
    for tokens in shared:
        loss = sum(curve[tokens] for curve in curves) / len(curves)
        if loss <= target:
            if before is None or before[1] == loss:
                return float(tokens)
            return before[0] + (tokens - before[0]) * (before[1] - target) / (before[1] - loss)
        before = (tokens, loss)
    return None
