"""Simulated truths drawn at random, in families.

What is alike in all: 128 directions. Seeds differ by 0.02 to 0.5 % of the loss (0.04 % over 8 runs of a language model
of 124M parameters, search/surrogate.py; 0.46 % for the quickstart's decoder, benchmarks/adaptive_vs_grid). 1 % more
tokens lower the loss by 0.015 to 0.1 % (0.09 % at a billion tokens and 100M parameters by Hoffmann et al. 2022,
arXiv:2203.15556, eq. 10). Four learning rates a factor √10 apart, as by default, whose middle lies within 1.5 doublings
of the truth; five batch sizes. The machine's speed and memory are drawn too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from truth import Cell, Truth

from batchlab.core.experiment import ScheduleConfig
from batchlab.search.budget import steps_to_judge
from batchlab.simulated.machine import Machine, Simulation
from batchlab.simulated.problem import NoisyQuadratic

DIMENSIONS = 128
BUDGET = 52 * 64
"""A little more than the 50 steps by which the largest size is judged."""
SIZES = (2, 4, 8, 16, 32, 64)
ON_AXIS = 5
SCANNED = tuple(2.0 ** (power / 2) for power in range(-18, 5))
RATIO = math.sqrt(10)
TRIES = 60


@dataclass(frozen=True, slots=True)
class Ask:
    """One simulated study: its truth and what it is asked.

    `first_seed` is drawn as well: rounding errors come from the run's seed alone, so with seeds 0, 1, … in every study
    the errors of all studies would be alike.
    """

    simulation: Simulation
    sizes: tuple[int, ...]
    rates: tuple[float, ...]
    budget: int
    first_seed: int


@dataclass(frozen=True, slots=True)
class Landscape:
    """A problem before its noise and its axes are chosen: the best cell of each size at the budget."""

    problem: NoisyQuadratic
    budget: int
    bests: Mapping[int, Cell]

    @property
    def best(self) -> Cell:
        return min(self.bests.values(), key=lambda cell: cell.loss)

    def excess(self, size: int) -> float:
        """By which share of the best's reducible loss this size is worse, each at its own best learning rate."""
        return self.bests[size].loss / self.best.loss - 1


Draw = Callable[[np.random.Generator], Ask | None]
"""None: what was drawn is not of the family; draw again."""


def draw(family: str, seed: int) -> Ask:
    """The truth of this family and seed."""
    rng = np.random.Generator(np.random.PCG64([seed, *family.encode()]))
    for _ in range(TRIES):
        found = FAMILIES[family](rng)
        if found is not None:
            return found
    raise AssertionError(f"{TRIES} draws gave no truth of family {family}")


# What families share


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(math.exp(rng.uniform(math.log(low), math.log(high))))


def _problem(rng: np.random.Generator, **given: Any) -> NoisyQuadratic:
    """A power law of its own exponent: hᵢ = i^−p, loss ∼ steps^−a."""
    power, exponent = float(rng.choice([0.5, 0.75, 1.0, 1.25, 1.5])), float(rng.uniform(0.15, 0.6))
    values: dict[str, Any] = {
        "dimensions": DIMENSIONS,
        "spectrum": power,
        "source": 1 + power * exponent,
        "gradient_noise": _log_uniform(rng, 1, 100),
        "rounding": _log_uniform(rng, 0.002, 0.05),
        "start_loss": 4.0,
        "irreducible_loss": 0.0,
        "samples": BUDGET,
        "table_seed": int(rng.integers(2**31)),
    }
    return NoisyQuadratic(**{**values, **given})


def _landscape(problem: NoisyQuadratic, budget: int = BUDGET, sizes: tuple[int, ...] = SIZES) -> Landscape:
    truth = Truth(Simulation(problem))
    bests = {}
    for size in sizes:
        losses = truth.losses(size, SCANNED, budget)
        place = int(np.argmin(losses))
        bests[size] = Cell(size, SCANNED[place], losses[place])
    return Landscape(problem, budget, bests)


def _scaled(rng: np.random.Generator, land: Landscape) -> NoisyQuadratic | None:
    """The problem with a floor and with copies such that slope and seed noise are realistic shares of the loss."""
    best, truth = land.best, Truth(Simulation(land.problem))
    half = truth.loss(best.size, best.rate, land.budget // 2 // best.size * best.size)
    slope = math.log(half / best.loss) / math.log(2)  # of the reducible loss, per e-fold of tokens
    if not slope > 0.05:
        return None  # the loss no longer depends on tokens, so nothing can be told in them
    share = min(_log_uniform(rng, 0.015, 0.1) / slope, 1.0)  # of the loss that is reducible
    floor = best.loss * (1 / share - 1)
    wanted = _log_uniform(rng, 0.0002, 0.005) * (best.loss + floor)
    copies = max(1, round(truth.deviation(best.size, best.rate, land.budget) / wanted))
    return replace(land.problem, irreducible_loss=floor, copies=copies)


def _machine(rng: np.random.Generator, sizes: tuple[int, ...]) -> Machine:
    """Speeds from almost equal to proportional to the batch; about half of the memories hold the largest size."""
    fits = round(sizes[-1] * 2 ** rng.uniform(-2, 2))
    fixed, per_sample = int(rng.integers(2**20, 2**28)), int(rng.integers(2**16, 2**24))
    usable = fixed + per_sample * max(fits, 2) + int(rng.integers(per_sample))
    return Machine(
        memory_bytes=math.ceil(usable / 0.95),
        fixed_bytes=fixed,
        bytes_per_sample=per_sample,
        pass_overhead_seconds=_log_uniform(rng, 1e-4, 2e-2),
        seconds_per_sample=1e-3,
        step_overhead_seconds=_log_uniform(rng, 1e-4, 2e-2),
        knee_samples=int(rng.choice([1, 4, 8, 32])),
    )


def _axis(rng: np.random.Generator, land: Landscape) -> tuple[int, ...]:
    """Consecutive sizes with the best inside, wherever that is possible."""
    sizes = sorted(land.bests)
    place = sizes.index(land.best.size)
    starts = [first for first in range(len(sizes) - ON_AXIS + 1) if first < place < first + ON_AXIS - 1]
    first = int(rng.choice(starts)) if starts else int(rng.integers(len(sizes) - ON_AXIS + 1))
    return tuple(sizes[first : first + ON_AXIS])


def _rates(rng: np.random.Generator, best: Cell, off: float = 1.5) -> tuple[float, ...]:
    middle = best.rate * 2 ** rng.uniform(-off, off)
    return tuple(float(f"{middle * RATIO ** (place - 1.5):.3g}") for place in range(4))


def _ask(
    rng: np.random.Generator,
    land: Landscape,
    *,
    sizes: tuple[int, ...] | None = None,
    off: float = 1.5,
    **machine: float,
) -> Ask | None:
    problem = _scaled(rng, land)
    if problem is None:
        return None
    sizes = sizes or _axis(rng, land)
    simulation = Simulation(problem, replace(_machine(rng, sizes), **machine))  # type: ignore[arg-type]
    return Ask(simulation, sizes, _rates(rng, land.best, off), land.budget, int(rng.integers(2**31)))


def _inside(land: Landscape) -> bool:
    sizes = sorted(land.bests)
    return land.best.size not in (sizes[0], sizes[-1])


# Families


def quadratic(rng: np.random.Generator) -> Ask | None:
    """Noisy quadratics, log-spaced curvatures or i^−p, every direction with the same share of the initial loss."""
    power = float(rng.choice([0.0, 0.5, 1.0, 1.5]))
    land = _landscape(_problem(rng, spectrum=power, source=0.0, condition=_log_uniform(rng, 20, 500)))
    return _ask(rng, land) if _inside(land) else None


def power_law(rng: np.random.Generator) -> Ask | None:
    """The loss falls as a power of the steps, down to a floor."""
    land = _landscape(_problem(rng))
    return _ask(rng, land) if _inside(land) else None


def noise_by_batch(rng: np.random.Generator) -> Ask | None:
    """At its own best learning rate, some batch size differs at least 2.5 times as much between seeds as another."""
    given = _problem(rng, spectrum=float(rng.choice([1.0, 1.25, 1.5])), gradient_noise=_log_uniform(rng, 1, 10))
    land = _landscape(given)
    sizes = _axis(rng, land)
    truth = Truth(Simulation(given))
    spreads = [truth.deviation(size, land.bests[size].rate, land.budget) for size in sizes]
    return _ask(rng, land, sizes=sizes) if max(spreads) > 2.5 * min(spreads) else None


def failing(rng: np.random.Generator) -> Ask | None:
    """Learning rates from half to four times the best one raise errors, and the range is shifted towards them."""
    land = _landscape(_problem(rng))
    if not _inside(land):
        return None
    limit = land.best.rate * 2 ** rng.uniform(-1, 2)
    found = _ask(rng, land, fails_above=limit)
    if found is None:
        return None
    shift = limit / found.rates[-1] * RATIO ** rng.uniform(0.4, 2.4)  # a tenth to a half of the range fails
    return replace(found, rates=tuple(float(f"{rate * shift:.3g}") for rate in found.rates))


def edge(rng: np.random.Generator) -> Ask | None:
    """The best batch size is an end of the axis, and the next one is worse by at least 1 % of the reducible loss."""
    land = _landscape(_problem(rng))
    sizes, best = sorted(land.bests), land.best.size
    axes = [tuple(sizes[first : first + ON_AXIS]) for first in range(len(sizes) - ON_AXIS + 1)]
    ends = [axis for axis in axes if best in (axis[0], axis[-1])]
    if not ends:
        return None
    axis = ends[int(rng.integers(len(ends)))]
    beside = axis[1] if best == axis[0] else axis[-2]
    return _ask(rng, land, sizes=axis) if land.excess(beside) > 0.01 else None


def flat(rng: np.random.Generator) -> Ask | None:
    """Four sizes lie within 3 % of the reducible loss."""
    given = _problem(rng, gradient_noise=_log_uniform(rng, 10, 100), rounding=_log_uniform(rng, 0.0005, 0.005))
    land = _landscape(given)
    within = sum(land.excess(size) < 0.03 for size in land.bests)
    return _ask(rng, land) if within >= 4 else None


def sharp(rng: np.random.Generator) -> Ask | None:
    """Both neighbours of the best size are worse by at least 10 % of the reducible loss."""
    land = _landscape(_problem(rng, rounding=_log_uniform(rng, 0.01, 0.1)))
    if not _inside(land):
        return None
    near = [land.excess(size) for size in (land.best.size // 2, land.best.size * 2)]
    return _ask(rng, land) if min(near) > 0.1 else None


def small_budget(rng: np.random.Generator) -> Ask | None:
    """A quarter of the usual tokens: the largest sizes have too few steps to be judged."""
    land = _landscape(_problem(rng), BUDGET // 4)
    least = steps_to_judge(ScheduleConfig().warmup_fraction)
    judged = {size: cell for size, cell in land.bests.items() if land.budget // size >= least}
    land = replace(land, bests=judged)
    return _ask(rng, land, sizes=SIZES[-ON_AXIS:] if land.best.size > SIZES[0] else SIZES[:ON_AXIS])


def large_budget(rng: np.random.Generator) -> Ask | None:
    """Four times the usual tokens, in two passes over the data, at batch sizes up to 256."""
    sizes = (8, 16, 32, 64, 128, 256)
    land = _landscape(_problem(rng, samples=2 * BUDGET), 4 * BUDGET, sizes)
    return _ask(rng, land) if _inside(land) else None


FAMILIES: dict[str, Draw] = {
    found.__name__: found
    for found in (
        quadratic,
        power_law,
        noise_by_batch,
        failing,
        edge,
        flat,
        sharp,
        small_budget,
        large_budget,
    )
}
