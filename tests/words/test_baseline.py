from __future__ import annotations

from dataclasses import replace

from batchlab.analysis.sweep.baseline import BaselineFinding, Reproduction
from batchlab.analysis.values import Interval, ThroughputPoint
from batchlab.core.batch import BatchLayout, Unit
from batchlab.core.experiment import BaselineConfig
from batchlab.words.baseline import baseline_title, describe_baseline, why_stopped

ASKED = BaselineConfig(batch_size=128, learning_rate=3e-4, loss=1.5, tokens_per_second=90_000.0, source="a report")
SPEED = ThroughputPoint(
    layout=BatchLayout(global_batch_size=128, micro_batch_size=128, sequence_length=256),
    tokens_per_second=Interval(60_000.0, 59_000.0, 61_000.0, 3),
    step_seconds=0.5,
    warmup_seconds=1.0,
    peak_bytes=None,
    achieved_flops=8e12,
    peak_flops=20e12,
)
FOUND = BaselineFinding(ASKED, 3, Interval(1.51, 1.49, 1.53, 3), Reproduction.REPRODUCED, SPEED)


def test_a_reproduced_baseline_is_told_with_both_losses_and_the_rule() -> None:
    loss, speed = describe_baseline(FOUND, Unit.TOKENS)
    assert loss == (
        "Baseline, batch 128 at LR 3.0e-4 (a report): reproduced, within 2 % beyond its interval: "
        "1.510 [1.490, 1.530] (n = 3 runs), expected 1.500."
    )
    assert speed.startswith("It trains at 60k tok/s, 67 % of the 90k tok/s expected; 40 % MFU: 8 of 20 TFLOP/s")
    assert "slower than expected" in speed


def test_a_wide_interval_is_named() -> None:
    wide = replace(FOUND, measured=Interval(1.4, 1.13, 1.66, 3))
    assert describe_baseline(wide, Unit.TOKENS)[0].endswith("a miss below 37 % may go unseen.")


def test_one_that_is_missed_says_by_how_much_and_what_to_do() -> None:
    missed = replace(FOUND, measured=Interval(1.8, 1.79, 1.81, 3), verdict=Reproduction.HIGHER)
    loss = describe_baseline(missed, Unit.TOKENS)[0]
    assert "not reproduced" in loss
    assert loss.endswith("which is 20 % higher, more than 2 % beyond the interval.")
    assert "against a report" in why_stopped(missed)
    assert "baseline.if_missed=continue" in why_stopped(missed)


def test_without_a_loss_or_a_speed() -> None:
    none = replace(FOUND, measured=None, verdict=Reproduction.NO_LOSS, speed=None)
    assert describe_baseline(none, Unit.TOKENS) == [
        "Baseline, batch 128 at LR 3.0e-4 (a report): not reproduced, because no run of 3 has a loss."
    ]
    assert baseline_title(ASKED, 3) == "baseline: 3 runs of batch 128 at LR 3.0e-4, which should reach 1.500"
