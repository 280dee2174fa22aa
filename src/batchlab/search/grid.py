"""Which batch × learning-rate cells to train, in rounds, coarse first.

Rounds: (1) every size at every other learning rate, (2) the learning rates between, (3…) one further learning rate for
each size whose best is at the end of what was tried, (last) more seeds at the best cell and at the best cell of its
best neighbouring batch size. A round is decided only by the outcomes of finished rounds, so which trials exist never
depends on which of them finished first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from batchlab.errors import InputError
from batchlab.record import Outcome

NO_RATIO = 1.0


@dataclass(frozen=True, slots=True, order=True)
class Trial:
    """One training run to make."""

    global_batch_size: int
    learning_rate: float
    seed: int


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """What came of a trial. `loss` None: diverged, out of memory or failed. `judged` False: starved.

    `why` tells those three apart where it is known: a divergence speaks about the learning rate, too little memory only
    about the batch size.
    """

    loss: float | None
    judged: bool = True
    why: Outcome | None = None


class GridSearch:
    """Batch × learning-rate grid that grows where a best is at its end; implements `protocols.Search`.

    A cell without a finite loss is worse than any with one. A size is extended by the grid's own ratio, at most
    `max_extensions` times, and never past a learning rate that has no finite loss. Starved sizes are run, but neither
    extended nor given more seeds while a size that is not starved has a finite loss.

    `max_runs` cuts each round at its end. Of it, the further seeds of the best cell are reserved first (beyond one run
    per size): without them noise is unknown and no size may be called better than another, while one learning rate
    more only refines the answer.
    """

    def __init__(
        self,
        global_batch_sizes: Sequence[int],
        learning_rates: Sequence[float],
        *,
        max_extensions: int = 3,
        seeds: int = 3,
        first_seed: int = 0,
        max_runs: int | None = None,
    ) -> None:
        self.sizes = tuple(sorted(set(global_batch_sizes)))
        self.learning_rates = tuple(sorted(set(learning_rates)))
        if not self.sizes or not self.learning_rates:
            raise InputError("A sweep needs at least one batch size and one learning rate.")
        if self.sizes[0] < 1 or not all(math.isfinite(rate) and rate > 0 for rate in self.learning_rates):
            raise InputError("Batch sizes are whole numbers of at least 1, learning rates positive finite numbers.")
        self.max_extensions = max_extensions
        self.seeds = seeds
        self.first_seed = first_seed
        self.max_runs = max_runs
        self.ratio = grid_ratio(self.learning_rates)
        self._outcomes: dict[Trial, TrialOutcome] = {}
        self._pending: tuple[Trial, ...] = ()
        self._extensions = dict.fromkeys(self.sizes, 0)
        self._stage = 0

    @property
    def outcomes(self) -> dict[Trial, TrialOutcome]:
        """Everything told so far."""
        return dict(self._outcomes)

    def ask(self) -> tuple[Trial, ...]:
        """The next round; the same one again until it is told; empty when the search is over."""
        while not self._pending and self._stage <= 3:
            self._pending = self._next_round()
        return self._pending

    def tell(self, proposals: Sequence[Trial], outcomes: Sequence[TrialOutcome]) -> None:
        """The outcomes of the whole round that was asked for, in any order."""
        if set(proposals) != set(self._pending) or len(proposals) != len(outcomes):
            raise ValueError("tell() takes the outcomes of exactly the round that ask() returned")
        self._outcomes.update(zip(proposals, outcomes, strict=True))
        self._pending = ()

    def _next_round(self) -> tuple[Trial, ...]:
        if self._stage < 2:
            rates = self.learning_rates[self._stage :: 2]
            self._stage += 1
            return self._cut(
                [Trial(size, rate, self.first_seed) for rate in self._middle_first(rates) for size in self.sizes]
            )
        if self._stage == 2:
            grown = self._cut(self._extension_round())
            if grown:
                for trial in grown:
                    self._extensions[trial.global_batch_size] += 1
                return grown
        self._stage += 1
        return self._cut(self._seed_round(), reserved=0) if self._stage == 3 else ()

    def _cut(self, trials: list[Trial], reserved: int | None = None) -> tuple[Trial, ...]:
        if self.max_runs is None:
            return tuple(trials)
        if reserved is None:
            reserved = min(self.seeds - 1, max(0, self.max_runs - len(self.sizes)))
        return tuple(trials[: max(0, self.max_runs - reserved - len(self._outcomes))])

    def _middle_first(self, rates: Sequence[float]) -> list[float]:
        """So that a cut round still has every size near the middle of the grid."""
        middle = (math.log(self.learning_rates[0]) + math.log(self.learning_rates[-1])) / 2
        return sorted(rates, key=lambda rate: (round(abs(math.log(rate) - middle), 9), rate))

    def _extension_round(self) -> list[Trial]:
        """One learning rate beyond the end at which a size's best is; the sizes with the lowest loss first."""
        if len(self.learning_rates) == 1:
            return []  # one learning rate is a choice, not a grid: there is no ratio to go on with
        trials = []
        for size, best in sorted(self._best_by_size().items(), key=lambda item: (item[1][0], item[0])):
            tried = sorted(trial.learning_rate for trial in self._outcomes if trial.global_batch_size == size)
            if self._extensions[size] >= self.max_extensions or best[1] not in (tried[0], tried[-1]):
                continue
            trials.append(Trial(size, self._beyond(best[1] == tried[-1], tried), self.first_seed))
        return trials

    def _beyond(self, upwards: bool, tried: list[float]) -> float:
        """The next value of the geometric grid past everything tried; the same values for every size."""
        end = self.learning_rates[-1] if upwards else self.learning_rates[0]
        count = sum(rate > end if upwards else rate < end for rate in tried) + 1
        return float(f"{end * self.ratio ** (count if upwards else -count):.3g}")

    def _seed_round(self) -> list[Trial]:
        return more_seeds(self._best_by_size(), self.first_seed, self.seeds)

    def _best_by_size(self) -> dict[int, tuple[float, float]]:
        return best_by_size(self._outcomes, self.first_seed)


def best_by_size(outcomes: Mapping[Trial, TrialOutcome], first_seed: int) -> dict[int, tuple[float, float]]:
    """Size → (loss, learning rate) of its best cell at the first seed; starved sizes only when all are."""
    bests: dict[int, tuple[float, float]] = {}
    for trial, outcome in outcomes.items():
        if trial.seed == first_seed and outcome.loss is not None and math.isfinite(outcome.loss):
            cell = (outcome.loss, trial.learning_rate)
            bests[trial.global_batch_size] = min(bests.get(trial.global_batch_size, cell), cell)
    starved = {trial.global_batch_size for trial, outcome in outcomes.items() if not outcome.judged}
    unstarved = {size: cell for size, cell in bests.items() if size not in starved}
    return unstarved or bests


def more_seeds(bests: Mapping[int, tuple[float, float]], first_seed: int, seeds: int) -> list[Trial]:
    """The last round of a search: further seeds at the best cell and at the best cell of its better neighbour."""
    if not bests or seeds < 2:
        return []
    size = min(bests, key=lambda s: (bests[s][0], s))
    ordered = sorted(bests)
    place = ordered.index(size)
    neighbours = [ordered[i] for i in (place - 1, place + 1) if 0 <= i < len(ordered)]
    chosen = [size] + ([min(neighbours, key=lambda s: (bests[s][0], s))] if neighbours else [])
    return [Trial(s, bests[s][1], seed) for s in chosen for seed in range(first_seed + 1, first_seed + seeds)]


def grid_ratio(learning_rates: Sequence[float]) -> float:
    """Mean factor between neighbouring learning rates; 1 for a single one."""
    if len(learning_rates) < 2:
        return NO_RATIO
    return float((learning_rates[-1] / learning_rates[0]) ** (1 / (len(learning_rates) - 1)))


def runs_expected(sizes: int, learning_rates: int, seeds: int) -> int:
    """Runs of a grid that needs no extension."""
    return sizes * learning_rates + (seeds - 1) * min(2, sizes)


def runs_at_most(sizes: int, learning_rates: int, seeds: int, max_extensions: int) -> int:
    """Runs of a grid that is extended wherever it may be."""
    extensions = sizes * max_extensions if learning_rates > 1 else 0
    return runs_expected(sizes, learning_rates, seeds) + extensions


def default_learning_rates(optimizer_family: str) -> tuple[float, ...]:
    """Four starting values about a factor 3 apart; the grid grows from there.

    For Adam around 1e-3, where small language models have their best; for SGD with momentum around 0.1, the usual
    value for image models; between the two for optimizers batchlab does not recognise.
    """
    match optimizer_family:
        case "adam":
            return (3e-4, 1e-3, 3e-3, 1e-2)
        case "sgd":
            return (0.01, 0.03, 0.1, 0.3)
        case _:
            return (1e-3, 3e-3, 1e-2, 3e-2)


def parse_learning_rates(text: str) -> tuple[float, ...]:
    """`"1e-4,3e-4"` is a list, `"1e-4:3e-3"` a geometric range of 4 values, `"1e-4:3e-3:5"` one of 5.

    Raises InputError naming what is possible.
    """
    how = "write a list like 3e-4,1e-3,3e-3 or a range like 1e-4:3e-3 (or 1e-4:3e-3:5 for five values)"
    if ":" not in text:
        rates = tuple(sorted({_learning_rate(part, text, how) for part in text.split(",")}))
    else:
        parts = text.split(":")
        if len(parts) > 3:
            raise InputError(f"Learning rates {text!r} have too many colons; {how}.")
        low, high = (_learning_rate(part, text, how) for part in parts[:2])
        if low >= high:
            raise InputError(f"Learning rates {text!r} run from {low:g} to {high:g}; give the lower end first.")
        count = 4
        if len(parts) == 3:
            if not parts[2].strip().isdecimal() or int(parts[2]) < 2:
                raise InputError(f"Learning rates {text!r}: {parts[2]!r} is not a count of at least 2; {how}.")
            count = int(parts[2])
        step = (high / low) ** (1 / (count - 1))
        rates = (low, *(float(f"{low * step**i:.3g}") for i in range(1, count - 1)), high)
        if list(rates) != sorted(set(rates)):
            raise InputError(f"Learning rates {text!r}: {count} values do not fit between {low:g} and {high:g}.")
    return rates


def _learning_rate(part: str, text: str, how: str) -> float:
    try:
        rate = float(part)
    except ValueError:
        what = f"{part!r} is not a number" if part.strip() else "a value is empty"
        raise InputError(f"Learning rates {text!r}: {what}; {how}.") from None
    if not (math.isfinite(rate) and rate > 0):
        raise InputError(f"Learning rates {text!r}: {part.strip()} is not a positive number; {how}.")
    return rate


def parse_sizes(text: str) -> tuple[int, ...]:
    """`"1,8,32"` is a list, `"1:512"` every doubling from 1 to 512 (the last value is always included).

    Raises InputError naming what is possible.
    """
    how = "write a list like 1,8,32 or a range of doublings like 1:512"
    if ":" not in text:
        return tuple(sorted({_size(part, text, how) for part in text.split(",")}))
    parts = text.split(":")
    if len(parts) != 2:
        raise InputError(f"Batch sizes {text!r} have too many colons; {how}.")
    low, high = (_size(part, text, how) for part in parts)
    if low > high:
        raise InputError(f"Batch sizes {text!r} run from {low} down to {high}; give the smaller end first.")
    doublings = [low * 2**i for i in range((high // low).bit_length())]
    return tuple(sorted({*doublings, high}))


def _size(part: str, text: str, how: str) -> int:
    cleaned = part.strip()
    if not cleaned:
        raise InputError(f"Batch sizes {text!r}: a value is empty; {how}.")
    try:
        size = int(cleaned)
    except ValueError:
        raise InputError(f"Batch sizes {text!r}: {cleaned!r} is not a whole number of samples; {how}.") from None
    if size < 1:
        raise InputError(f"Batch sizes {text!r}: {size} is not a batch; the smallest is 1 sample.")
    return size
