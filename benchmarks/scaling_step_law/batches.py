"""The learning rate at another batch size of the same model and budget."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from table import SEQUENCE_LENGTH, Task, fitted_optimum, fitted_rate
from words import as_table, decimals, paragraph, percentile, spread

from batchlab.scaling import (
    LearningRateRule,
    Optimum,
    Scaled,
    learning_rate_at,
    learning_rate_ratio,
    optimum_at_budget,
)
from batchlab.scaling.learning_rate import ABOVE_BEST
from batchlab.scaling.published import LAWS

ABOVE_TARGET = 0.35
"""Largest 90th percentile of the regret of moves above B_opt, in percent."""

PLACES = ("up, below", "up, across", "up, above", "down, below", "down, across", "down, above")
RATIO = Callable[[float, float, float], float]  # (from, to, B_opt) → factor on the learning rate


@dataclass(frozen=True)
class Move:
    task: Task
    start: int
    end: int
    place: str
    best: float  # B_opt of the task


def _moves(tasks: Iterable[Task], within: tuple[float, float] = (0.0, 8.0)) -> list[Move]:
    moves = []
    for task in tasks:
        best, _ = fitted_optimum(task)
        for start, end in itertools.permutations(sorted(task.loss), 2):
            factor = max(end / start, start / end)
            if within[0] < factor <= within[1]:
                low, high = min(start, end), max(start, end)
                where = "below" if high <= best else "above" if low >= best else "across"
                moves.append(Move(task, start, end, f"{'up' if end > start else 'down'}, {where}", best))
    return moves


def _rate_regret(move: Move, ratio: RATIO, best: float, snap: bool = False, fitted: bool = False) -> float:
    """Regret in % of the extrapolated learning rate at the end of a move, relative to the best one measured there."""
    tuned = fitted_rate(move.task, move.start) if fitted else move.task.best_rate(move.start)
    rate = tuned + math.log2(ratio(move.start, move.end, best))
    return 100 * (move.task.loss_at(move.end, rate, snap) / move.task.tuned(move.end) - 1)


def _rule(rule: LearningRateRule) -> RATIO:
    return lambda start, end, best: learning_rate_ratio(rule, start, end, best)


def _rising(above: float) -> RATIO:
    """lr_max/(1 + B_opt/B), its rise above B_opt to the power `above`: 0 is flat, 1 the formula everywhere."""

    def ratio(start: float, end: float, best: float) -> float:
        below = (1 + best / min(start, best)) / (1 + best / min(end, best))
        return float(below * ((1 + best / max(start, best)) / (1 + best / max(end, best))) ** above)

    return ratio


def _surge(start: float, end: float, best: float) -> float:
    return (math.sqrt(best / start) + math.sqrt(start / best)) / (math.sqrt(best / end) + math.sqrt(end / best))


RULES: dict[str, RATIO] = {
    "**saturating** (default): lr_max/(1 + B_opt/B), the cube root of its rise above B_opt": _rule(
        LearningRateRule.SATURATING
    ),
    "lr_max/(1 + B_opt/B), flat above B_opt": _rising(0.0),
    "uncapped: lr_max/(1 + B_opt/B) everywhere": _rule(LearningRateRule.UNCAPPED),
    "square root": _rule(LearningRateRule.SQUARE_ROOT),
    "square root, flat above B_opt": lambda s, e, b: math.sqrt(min(e, b) / min(s, b)),
    "linear": _rule(LearningRateRule.LINEAR),
    "linear, flat above B_opt": lambda s, e, b: min(e, b) / min(s, b),
    "keep": _rule(LearningRateRule.NONE),
    "surge (Li et al. 2024): peak at B_opt": _surge,
}
DEFAULT = next(iter(RULES))


def batch_moves(tasks: Sequence[Task]) -> list[str]:
    moves = _moves(tasks)
    counts = {place: sum(move.place == place for move in moves) for place in PLACES}
    rows = []
    for name, ratio in RULES.items():
        cells = []
        for place in PLACES:
            found = [_rate_regret(m, ratio, m.best) for m in moves if m.place == place]
            cells.append(f"{decimals(percentile(found, 50))} / {decimals(percentile(found, 90))}")
        rows.append([name, *cells])
    table = as_table(["rule", *(f"{place} (n {counts[place]})" for place in PLACES)], rows)
    targets = []
    for where, target in (("below", 0.15), ("above", ABOVE_TARGET)):
        here = [m for m in moves if m.place.endswith(where)]
        if not here:
            targets.append(f"- {where} B_opt: no move of these tasks lies there.")
            continue
        p90, low, high = _bootstrap(here, lambda m: _rate_regret(m, RULES[DEFAULT], m.best))
        up = percentile([_rate_regret(m, RULES[DEFAULT], m.best) for m in here if m.place.startswith("up")], 90)
        plain = percentile([_rate_regret(m, _rule(LearningRateRule.UNCAPPED), m.best) for m in here], 90)
        targets.append(
            f"- {where} B_opt: p90 {p90:.3f} [{low:.3f}, {high:.3f}], upward moves alone {up:.3f}; "
            f"target {target:.2f}: {'met' if max(p90, up) <= target else 'missed'}. Uncapped: {plain:.3f}."
        )
    return [
        "## 1. Learning rate at another batch size, within 8 ×, B_opt given",
        paragraph(
            "The learning rate is tuned (lowest cell) at one batch size and moved to another of the same task. B_opt "
            "is the task's own (parabola through its tuned minima). Below: both ends at most B_opt; above: both at "
            "least. Median / 90th percentile."
        ),
        table,
        "\n".join(targets),
        *_variants(tasks, moves),
        *_cross_validation(tasks),
        *_scatter(moves),
    ]


def _variants(tasks: Sequence[Task], moves: Sequence[Move]) -> list[str]:
    smallest = {task.parameters: task for task in reversed(tasks)}

    def from_smallest(move: Move) -> float:
        small = smallest[move.task.parameters]
        points = [Optimum(small.tokens, fitted_optimum(small)[0], 1.0)]
        moved = optimum_at_budget(points, move.task.tokens).best_batch_size
        assert isinstance(moved, Scaled)
        return moved.value

    def published(law: str) -> Callable[[Move], float]:
        chosen = next(candidate for candidate in LAWS if candidate.name == law)
        return lambda move: chosen.batch_tokens(move.task.tokens, move.task.parameters) / SEQUENCE_LENGTH

    ratio = RULES[DEFAULT]
    cases: dict[str, Callable[[Move], float]] = {
        "as above": lambda m: _rate_regret(m, ratio, m.best),
        "judged at the nearest measured half doubling": lambda m: _rate_regret(m, ratio, m.best, snap=True),
        "tuned by parabola instead of lowest cell": lambda m: _rate_regret(m, ratio, m.best, fitted=True),
        "B_opt twice too large": lambda m: _rate_regret(m, ratio, 2 * m.best),
        "B_opt half as large": lambda m: _rate_regret(m, ratio, m.best / 2),
        "B_opt from the model's smallest budget, published exponent": lambda m: _rate_regret(
            m, ratio, from_smallest(m)
        ),
        "B_opt from Power Lines": lambda m: _rate_regret(m, ratio, published("Power Lines")(m)),
        "B_opt from DeepSeek": lambda m: _rate_regret(m, ratio, published("DeepSeek")(m)),
    }
    rows = []
    for name, measure in cases.items():
        found = [(m.place.split(", ")[1], measure(m)) for m in moves]
        groups = [[r for where, r in found if where == wanted] for wanted in ("below", "across", "above")]
        rows.append([name, *(spread(g) for g in groups)])
    long = [m for m in moves if min(m.task.steps(m.start), m.task.steps(m.end)) >= 2000]
    groups = [
        [_rate_regret(m, ratio, m.best) for m in long if m.place.endswith(where)]
        for where in ("below", "across", "above")
    ]
    cells = [f"{spread(g)} (n {len(g)})" for g in groups]
    rows.append(["without runs of under 2,000 steps, reportedly the warm-up of the training recipe", *cells])
    far = _moves(tasks, (8.0, math.inf))
    groups = [
        [_rate_regret(m, ratio, m.best) for m in far if m.place.endswith(where)]
        for where in ("below", "across", "above")
    ]
    cells = [f"{spread(g)} (n {len(g)})" for g in groups]
    rows.append(["moves of 8 × to 64 × (refused by the library)", *cells])
    return [
        "### 1a. Sensitivity of the default\n\nMedian / 90th percentile / worst, both directions.",
        as_table(["", "below", "across", "above"], rows),
    ]


def _cross_validation(tasks: Sequence[Task]) -> list[str]:
    """Choose the rise above B_opt on the other model sizes, by the target, and judge it on the one left out."""
    powers = (0.0, 0.25, 1 / 3, 0.5, 1.0)

    def scores(moves: Sequence[Move], above: float) -> list[float]:
        groups = [[m for m in moves if m.place.endswith(where)] for where in ("below", "across", "above")]
        return [percentile([_rate_regret(m, _rising(above), m.best) for m in group], 90) for group in groups]

    rows = []
    for held_out in sorted({task.parameters for task in tasks}):
        train = _moves([task for task in tasks if task.parameters != held_out])
        judge = _moves([task for task in tasks if task.parameters == held_out])
        chosen = max((power for power in powers if scores(train, power)[2] <= ABOVE_TARGET), default=0.0)
        cells = [" / ".join(map(decimals, scores(judge, power))) for power in (chosen, ABOVE_BEST, 0.0, 1.0)]
        rows.append([f"{held_out / 1e6:.0f}M", f"{chosen:.2f}", *cells])
    return [
        "### 1b. How far may the learning rate rise above B_opt?",
        paragraph(
            "The rise of lr_max/(1 + B_opt/B) above B_opt is taken to a power: 0 is flat, 1 the formula. Chosen is the "
            f"largest of 0, ¼, ⅓, ½ and 1 whose 90th percentile above B_opt is at most {ABOVE_TARGET} on two model "
            "sizes; it is judged on the third. 90th percentiles below / across / above. These dense models are flat "
            "above B_opt. The default does not follow them all the way, because tables of other models, which are not "
            "here, rise."
        ),
        as_table(["held-out size", "chosen on the others", "chosen", "default (⅓)", "flat (0)", "formula (1)"], rows),
    ]


def _scatter(moves: Sequence[Move]) -> list[str]:
    rows = []
    for rule in LearningRateRule:
        cells = []
        for low, high in ((1, 2), (2, 4), (4, 8), (1, 8)):
            gaps = []
            for move in moves:
                start = 2.0 ** move.task.best_rate(move.start)
                scaled = learning_rate_at(start, move.start, move.end, rule, best_batch_size=move.best)
                if low < max(move.end / move.start, move.start / move.end) <= high and isinstance(scaled, Scaled):
                    gaps.append(abs(math.log2(scaled.value) - fitted_rate(move.task, move.end)))
            ends = [decimals(percentile(gaps, percent), 2) for percent in (50, 95)]
            cells.append(f"{' / '.join(ends)} (n {len(gaps)})")
        rows.append([rule.value, *cells])
    return [
        "### 1c. Distance of the extrapolated from the tuned learning rate, in doublings",
        paragraph(
            "Median / 95th percentile of the distance, by factor in batch size, over the moves that the library does "
            "not refuse. It includes the uncertainty of tuning at both ends. The library's intervals use the last "
            "column."
        ),
        as_table(["rule", "up to 2 ×", "2 to 4 ×", "4 to 8 ×", "all"], rows),
    ]


def half_life_moves(path: Path) -> list[str]:
    with path.open(newline="") as file:
        rows = [
            (int(r["batch_seqs"]), float(r["peak_lr"]), float(r["beta2_halflife_tokens"])) for r in csv.DictReader(file)
        ]
    lines = []
    for (b0, lr0, _), (b1, lr1, half_life) in itertools.pairwise(rows):
        tuned = math.log2(lr1 / lr0)
        cells = [f"{tuned:+.2f}", *(f"{value:+.2f}" for value in (math.log2(b1 / b0) / 2, math.log2(b1 / b0) / 3))]
        for best in (1, 256):
            cells.append(f"{math.log2(learning_rate_ratio(LearningRateRule.SATURATING, b0, b1, best)):+.2f}")
        lines.append([f"{b0} → {b1}", *cells, f"{half_life / 1e6:g}M"])
    return [
        "## 4. With beta2's half-life held constant (Marek et al. 2025, one 11M model, batch 1 to 4,096)",
        paragraph(
            "Change of the tuned learning rate in doublings per step of 4 × in batch size, beside the rules. The loss "
            "is lowest at batch 1 and within 1.6 % up to 256, so B_opt is 1 by the lowest loss, and 256 by where the "
            "loss starts to rise. The learning rate was tuned coarsely, together with beta1. Only the best losses are "
            "public, so no regret is given. The tuned half-life of beta2 is the same from 1 to 1,024, which is the "
            "half-life rule."
        ),
        as_table(
            [
                "batch",
                "tuned",
                "square root",
                "cube root",
                "saturating, B_opt 1",
                "saturating, B_opt 256",
                "beta2 half-life",
            ],
            lines,
        ),
        paragraph(
            "With beta2's half-life held constant in tokens, the learning rate rose more slowly than with the default, "
            "which was measured at fixed beta2. The library widens its interval to the cube root if a study let beta2 "
            "follow the batch size."
        ),
    ]


def _bootstrap(moves: Sequence[Move], measure: Callable[[Move], float]) -> tuple[float, float, float]:
    """90th percentile with a 90 % interval from resampling tasks."""
    by_task: dict[tuple[float, float], list[float]] = {}
    for move in moves:
        by_task.setdefault((move.task.parameters, move.task.tokens), []).append(measure(move))
    groups = list(by_task.values())
    rng = np.random.default_rng(0)
    draws = [
        np.percentile(np.concatenate([groups[i] for i in rng.integers(len(groups), size=len(groups))]), 90)
        for _ in range(1000)
    ]
    low, high = np.percentile(draws, [5, 95])
    return float(np.percentile(np.concatenate(groups), 90)), float(low), float(high)
