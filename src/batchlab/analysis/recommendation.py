"""What to train with, out of what was measured: nothing is extrapolated here."""

from __future__ import annotations

import math
from typing import Literal

from batchlab.analysis.findings import BatchRow, Recommendation, SurfaceFinding
from batchlab.analysis.wording import say_count, say_loss
from batchlab.experiment import Experiment

Goal = Literal["quality", "fastest", "largest"]


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
    seeds = say_count(best.loss.n if best.loss else 1, "seed")

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
        made("largest", largest, f"largest {among}, {how}: the most devices that can share a step"),
    )
