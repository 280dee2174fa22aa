"""Was a baseline reproduced: does the setup here give the loss that is known for one configuration, and at what speed?

A published loss is mostly of one run, whose noise nobody knows. So the interval of the mean here is widened by a share
of the expected loss, and the baseline is reproduced where that holds the expected loss. A loss far below it is no
better than one far above: it is of other data, another tokenizer or another budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from batchlab.analysis.sweep.noise import mean_interval, pooled_noise
from batchlab.analysis.values import Cell, Interval, Run, ThroughputFinding, ThroughputPoint
from batchlab.core.experiment import BaselineConfig, Experiment

SLOW = 0.8
"""Below this share of the expected speed, the device or its settings are not those of the source."""


class Reproduction(StrEnum):
    """What the runs say about the expected loss."""

    REPRODUCED = "reproduced"
    HIGHER = "higher"
    LOWER = "lower"
    NO_LOSS = "no loss"


@dataclass(frozen=True, slots=True)
class BaselineFinding:
    """The runs of the baseline against what was expected. `measured` None: none of its `runs` has a loss."""

    asked: BaselineConfig
    runs: int
    measured: Interval | None
    verdict: Reproduction
    speed: ThroughputPoint | None

    @property
    def reproduced(self) -> bool:
        return self.verdict is Reproduction.REPRODUCED

    @property
    def off(self) -> float | None:
        """Measured loss ÷ expected − 1."""
        return None if self.measured is None else self.measured.value / self.asked.loss - 1

    @property
    def resolution(self) -> float | None:
        """The smallest miss that the runs would surely have shown, as a share of the loss; None without an interval."""
        if self.measured is None or self.measured.low is None or self.measured.high is None:
            return None
        return (self.measured.high - self.measured.low) / self.asked.loss + self.asked.within

    @property
    def slow(self) -> bool:
        """Whether the measured speed is far below the expected one, where both are known."""
        expected = self.asked.tokens_per_second
        return bool(self.speed and expected and self.speed.tokens_per_second.value < SLOW * expected)


def baseline_seeds(experiment: Experiment) -> range:
    """Seeds of the baseline's runs: those that choose, not the confirmation seeds."""
    sweep = experiment.sweep
    return range(sweep.first_seed, sweep.first_seed + sweep.seeds)


def baseline_finding(
    experiment: Experiment, runs: Sequence[Run], throughput: ThroughputFinding | None
) -> BaselineFinding | None:
    """What the runs say about the baseline; None where there is none, or none of its runs."""
    asked = experiment.baseline
    if asked is None:
        return None
    place = asked.batch_size, asked.learning_rate, experiment.warmup_fractions[0]
    seeds = baseline_seeds(experiment)
    mine = tuple(
        run
        for run in runs
        if (run.global_batch_size, run.learning_rate, run.warmup_fraction) == place and run.seed in seeds
    )
    if not mine:
        return None
    cell = Cell(asked.batch_size, asked.learning_rate, mine, place[2])
    measured = mean_interval(cell, pooled_noise([cell])) if cell.losses else None
    point = throughput.at(asked.batch_size) if throughput else None
    return BaselineFinding(asked, len(mine), measured, _verdict(asked, measured), point)


def _verdict(asked: BaselineConfig, measured: Interval | None) -> Reproduction:
    if measured is None:
        return Reproduction.NO_LOSS
    room = asked.within * asked.loss
    low = (measured.value if measured.low is None else measured.low) - room
    high = (measured.value if measured.high is None else measured.high) + room
    if low > asked.loss:
        return Reproduction.HIGHER
    return Reproduction.LOWER if high < asked.loss else Reproduction.REPRODUCED
