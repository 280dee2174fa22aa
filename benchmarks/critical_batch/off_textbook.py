"""Steps to a loss on problems whose S(B) is computed: how often numbers are given, and how often intervals hold it.

The problems under DEVELOPMENT chose every constant of `tradeoff.py`, `tradeoff_fit.py` and `steps_to_target.py`. Those
under JUDGED have other exponents, dimensions, targets and seeds, and were looked at only when the constants were fixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from problems import Problem, Quadratic, Regression, Truth, Vector, fewest_steps, loss_after, overhead, tuned
from textbook import fit_textbook, read_off

from batchlab.analysis.critical.iso_loss import BudgetRun, critical_batch_from_budgets
from batchlab.analysis.critical.steps_finding import CriticalBatch, StepsFinding
from batchlab.analysis.critical.steps_to_target import StepsPoint, critical_batch

Draw = Callable[[np.random.Generator, int], Vector]

SIZES = {"9 sizes 1 … 256": 2.0 ** np.arange(9), "6 sizes 4 … 128": 2.0 ** np.arange(2, 8)}
DEVELOPMENT_SIZES = {**SIZES, "6 sizes 1 … 32": 2.0 ** np.arange(6), "6 sizes 1 … 1024": 4.0 ** np.arange(6)}


@dataclass(frozen=True)
class Case:
    """A problem with its target, a share of the first loss."""

    problem: Problem
    share: float

    @property
    def name(self) -> str:
        one = self.problem
        assert isinstance(one, Quadratic | Regression)
        spectrum = f"1/i^{one.exponent:g}, to {100 * self.share:g} %"
        if isinstance(one, Quadratic):
            return f"quadratic {spectrum}"
        tails = "Gaussian" if math.isinf(one.freedom) else f"t({one.freedom:g})"
        return f"regression {spectrum}, {tails}"


DEVELOPMENT = (
    *(Case(Quadratic(p, 600), share) for p in (0.6, 0.9, 1.2, 1.4) for share in (0.05, 0.15)),
    *(Case(Regression(p, freedom), 0.05) for p in (0.6, 1.2) for freedom in (math.inf, 6.0)),
)
JUDGED = (
    *(Case(Quadratic(p, 300), 0.1) for p in (0.5, 0.75, 1.0, 1.25, 1.5)),
    *(Case(Regression(p, freedom, 40, 0.3), 0.08) for p in (0.5, 1.0, 1.5) for freedom in (math.inf, 5.0)),
)


@dataclass
class Tally:
    """Answers about one number over repetitions."""

    estimates: list[float] = field(default_factory=list)
    covered: list[bool] = field(default_factory=list)
    limits: list[bool] = field(default_factory=list)
    nothing: int = 0

    def add(self, found: CriticalBatch | None, truth: float) -> None:
        if found is None or not found.known:
            self.nothing += 1
        elif found.value is not None:
            self.estimates.append(found.value.value)
            self.covered.append((found.value.low or 0) <= truth <= (found.value.high or math.inf))
        else:
            self.limits.append((found.at_least or 0) <= truth <= (found.at_most or math.inf))

    @property
    def n(self) -> int:
        return len(self.covered) + len(self.limits) + self.nothing

    @property
    def given(self) -> str:
        return f"{len(self.covered) / self.n:.0%}"

    @property
    def coverage(self) -> str:
        return f"{np.mean(self.covered):.1%}" if self.covered else "–"

    @property
    def limits_hold(self) -> str:
        return f"{np.mean(self.limits):.1%} of {len(self.limits)}" if self.limits else "–"

    @property
    def median(self) -> str:
        return f"{np.median(self.estimates):.3g}" if self.estimates else "–"


class Known:
    """The computed curve of a case, and its critical batch sizes."""

    def __init__(self, case: Case, batch: Vector) -> None:
        self.case, self.batch = case, batch
        self.truth = Truth.of(case.problem, case.share)
        self.steps = np.array([fewest_steps(case.problem, float(b), case.share) for b in batch])
        self._overhead: dict[float, float] = {}

    def overhead(self, base: float) -> float:
        if base not in self._overhead:
            self._overhead[base] = overhead(self.case.problem, self.case.share, base)
        return self._overhead[base]

    def count(self, found: StepsFinding, tallies: Sequence[Tally]) -> None:
        """Add an answer to those about 20 % overhead, 2× samples and 2× steps."""
        base = found.used[0] if found.used else float(self.batch[0])
        tallies[0].add(found.overhead, self.overhead(base))
        tallies[1].add(found.twice_samples, self.truth.twice_samples)
        tallies[2].add(found.twice_steps, self.truth.twice_steps)


def gaussian(rng: np.random.Generator, n: int) -> Vector:
    return np.asarray(rng.standard_normal(n))


def heavy(rng: np.random.Generator, n: int) -> Vector:
    """Student's t with 3 degrees of freedom, scaled to unit variance."""
    return np.asarray(rng.standard_t(3, n) / math.sqrt(3))


def answer(known: Known, rng: np.random.Generator, noise: float, told: float | None, draw: Draw) -> StepsFinding:
    """What steps with `noise` give. `told`: the noise that is known, or None."""
    steps = known.steps * np.exp(noise * draw(rng, len(known.batch)))
    points = [StepsPoint(float(b), float(s)) for b, s in zip(known.batch, steps, strict=True)]
    return critical_batch(points, origin="constant_lr", noise_sd=told)


HEADER = (
    "problem",
    "textbook misfit",
    "number given",
    "numbers covered",
    "limits hold",
    "20 %",
    "2× samples",
    "2× steps",
)


def by_problem(cases: Iterable[Case], sizes: dict[str, Vector], n: int, seed: int) -> Iterable[Sequence[str]]:
    """A row for each problem and choice of sizes, at 2 % noise that is known."""
    total = [Tally(), Tally(), Tally()]
    for case in cases:
        for name, batch in sizes.items():
            known = Known(case, batch)
            rng, tallies = (
                np.random.default_rng([seed, len(batch), int(case.share * 1000)]),
                [Tally(), Tally(), Tally()],
            )
            for _ in range(n):
                found = answer(known, rng, 0.02, 0.02, gaussian)
                known.count(found, tallies)
                known.count(found, total)
            line = read_off(batch, known.steps)
            three = (known.overhead(float(batch[0])), known.truth.twice_samples, known.truth.twice_steps)
            yield (
                f"{case.name}, {name}",
                f"{fit_textbook(batch, known.steps)[2]:.1%}",
                _each(t.given for t in tallies),
                _each(t.coverage for t in tallies),
                _each(t.limits_hold for t in tallies),
                f"{three[0]:.3g}, {tallies[0].median}, {line or math.nan:.3g}",
                f"{three[1]:.3g}, {tallies[1].median}",
                f"{three[2]:.3g}, {tallies[2].median}",
            )
    yield (
        "all",
        "",
        *(_each(getattr(t, what) for t in total) for what in ("given", "coverage", "limits_hold")),
        "",
        "",
        "",
    )


def by_noise(cases: Sequence[Case], sizes: dict[str, Vector], n: int, seed: int) -> Iterable[Sequence[str]]:
    """A row for each kind of noise, over all problems and sizes; `n` repetitions of each."""
    kinds: tuple[tuple[str, float, float | None, Draw], ...] = (
        ("0.5 %, known", 0.005, 0.005, gaussian),
        ("2 %, not known", 0.02, None, gaussian),
        ("5 %, known", 0.05, 0.05, gaussian),
        ("5 %, not known", 0.05, None, gaussian),
        ("2 %, t(3), known", 0.02, 0.02, heavy),
        ("2 %, told as 1 %", 0.02, 0.01, gaussian),
    )
    curves = [Known(case, batch) for case in cases for batch in sizes.values()]
    for name, noise, told, draw in kinds:
        rng, tallies = np.random.default_rng([seed, int(1000 * noise)]), [Tally(), Tally(), Tally()]
        for known in curves:
            for _ in range(n):
                known.count(answer(known, rng, noise, told, draw), tallies)
        yield _row(name, tallies)


def from_losses(cases: Sequence[Case], sizes: dict[str, Vector], n: int, seed: int) -> Iterable[Sequence[str]]:
    """Rows where every loss has 2 % noise, and batchlab tunes learning rates and crosses the target itself.

    Five budgets a factor of √2 apart around the true steps, at learning rates up to a factor of 4 around the best. The
    places of both grids are drawn, one for all sizes.
    """
    curves = [Known(case, batch) for case in cases for batch in sizes.values()]
    for spacing, of in ((1.0, "2"), (0.25, "2^¼")):
        rng, tallies = np.random.default_rng(seed), [Tally(), Tally(), Tally()]
        for known in curves:
            target = known.case.share * known.case.problem.start
            for _ in range(n):
                runs = list(_runs(known, rng, spacing))
                known.count(critical_batch_from_budgets(runs, target, loss_sd=0.02), tallies)
        name = f"2 % in every loss, 5 budgets, learning rates a factor of {of} apart"
        yield _row(name, tallies)


def _runs(known: Known, rng: np.random.Generator, spacing: float) -> Iterable[BudgetRun]:
    place, offset = float(rng.uniform(-0.5, 0.5)) * spacing, float(rng.uniform(-0.5, 0.5))
    for b, steps in zip(known.batch, known.steps, strict=True):
        best = tuned(known.case.problem, float(b), known.case.share)[1]
        budgets = [steps * 2 ** ((k + offset) / 2) for k in (-2, -1, 0, 1, 2)]
        for doublings in np.arange(-2, 2 + spacing / 2, spacing) + place:
            rate = best * 2.0 ** float(doublings)
            losses = loss_after(known.case.problem, float(b), rate, budgets)
            if losses is None:
                continue
            for count, loss in zip(budgets, losses, strict=True):
                yield BudgetRun(float(b), rate, float(count * b), float(loss * math.exp(0.02 * rng.standard_normal())))


def _row(name: str, tallies: Sequence[Tally]) -> Sequence[str]:
    return (
        name,
        f"{tallies[0].n}",
        _each(t.given for t in tallies),
        _each(t.coverage for t in tallies),
        _each(t.limits_hold for t in tallies),
    )


def _each(texts: Iterable[str]) -> str:
    return " / ".join(texts)
