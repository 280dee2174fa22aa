"""The optimum at another token budget, and at another model size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence

from table import SEQUENCE_LENGTH, Task, best_cell, coarse_cell, fitted_optimum
from words import as_table, paragraph, spread

from batchlab.scaling import Exponent, Optimum, Scaled, fit_power_law, optimum_at_budget, optimum_at_size
from batchlab.scaling.published import BATCH_BY_BUDGET, DEEPSEEK, RATE_BY_BUDGET, STEP_LAW

READINGS = {"surface fit": fitted_optimum, "lowest of all cells": best_cell, "coarse study": coarse_cell}
FACTORS = ((1.0, 3.0), (3.0, 6.0), (6.0, 12.0), (12.0, 30.0))


def _budget_cases(tasks: Sequence[Task]) -> list[tuple[list[Task], Task]]:
    cases = []
    for size in sorted({task.parameters for task in tasks}):
        own = sorted((task for task in tasks if task.parameters == size), key=lambda task: task.tokens)
        for count in (1, 2, 3):
            for small in itertools.combinations(own, count):
                cases += [(list(small), task) for task in own if task.tokens > small[-1].tokens]
    return cases


PREDICTION = Callable[[list[Optimum], Task], tuple[float, float]]  # → batch, log2 learning rate


def _shipped(measured: list[Optimum], target: Task) -> tuple[float, float]:
    moved = optimum_at_budget(measured, target.tokens)
    assert isinstance(moved.best_batch_size, Scaled)
    assert isinstance(moved.learning_rate, Scaled)
    return moved.best_batch_size.value, math.log2(moved.learning_rate.value)


def _with(batch: Exponent, rate: Exponent) -> PREDICTION:
    def predict(measured: list[Optimum], target: Task) -> tuple[float, float]:
        by_batch = fit_power_law([(o.token_budget, o.best_batch_size) for o in measured], batch)
        by_rate = fit_power_law([(o.token_budget, o.learning_rate) for o in measured], rate)
        return by_batch.at(target.tokens)[0], math.log2(by_rate.at(target.tokens)[0])

    return predict


def _exactly(exponent: Exponent) -> Exponent:
    return Exponent(exponent.mean, 1e-6)


def _loosely(exponent: Exponent) -> Exponent:
    return Exponent(exponent.mean, 50.0)


def _unmoved(measured: list[Optimum], target: Task) -> tuple[float, float]:
    return measured[-1].best_batch_size, math.log2(measured[-1].learning_rate)


def _law(name: str) -> PREDICTION:
    law = {"Step Law": STEP_LAW, "DeepSeek": DEEPSEEK}[name]

    def predict(measured: list[Optimum], target: Task) -> tuple[float, float]:
        assert law.learning_rate is not None
        batch = law.batch_tokens(target.tokens, target.parameters) / SEQUENCE_LENGTH
        return batch, math.log2(law.learning_rate(target.tokens, target.parameters))

    return predict


METHODS: dict[str, PREDICTION] = {
    "**default**: own exponent averaged with the published": _shipped,
    "own least-squares exponent alone": _with(_loosely(BATCH_BY_BUDGET), _loosely(RATE_BY_BUDGET)),
    "published exponent alone": _with(_exactly(BATCH_BY_BUDGET), _exactly(RATE_BY_BUDGET)),
    "default, without Step Law in 'published'": _with(Exponent(0.47, 0.1), Exponent(-0.06, 0.1)),
    "Power Lines' exponents (0.383, learning rate unchanged)": _with(Exponent(0.383, 1e-6), Exponent(0.0, 1e-6)),
    "optimum not moved": _unmoved,
    "DeepSeek's law, nothing measured": _law("DeepSeek"),
    "Step Law, nothing measured (fitted on these runs)": _law("Step Law"),
}


def budget_moves(tasks: Sequence[Task]) -> list[str]:
    cases = _budget_cases(tasks)
    sections = [
        "## 2. The optimum at another token budget, predicted from smaller ones of the same model",
        paragraph(
            "Every set of one, two or three smaller budgets of a model predicts every larger one. Both the predicted "
            "batch size and the predicted learning rate are used; regret is relative to the lowest of all cells of the "
            "larger budget. The optima of the small budgets are read in three ways: from a fit to the surface, from "
            "its lowest cell, and from the lowest cell of a coarse study (3 batch sizes two doublings apart, learning "
            "rates one doubling apart: 18 cells or fewer)."
        ),
    ]
    for reading, read in READINGS.items():
        rows = []
        for name, predict in METHODS.items():
            found = [(len(small), target, _prediction_regret(predict, small, target, read)) for small, target in cases]
            cells = [spread([r for n, _, r in found if (n > 1) == several]) for several in (False, True)]
            rows.append([name, *cells])
        counts = [sum((len(small) > 1) == several for small, _ in cases) for several in (False, True)]
        sections += [
            f"### Optima read from: {reading}\n\nMedian / 90th percentile / worst.",
            as_table(["", f"one smaller budget (n {counts[0]})", f"two or three (n {counts[1]})"], rows),
        ]
    rows = []
    for low, high in FACTORS:
        here = [(s, t) for s, t in cases if low < t.tokens / s[-1].tokens <= high]
        cells = []
        for read in READINGS.values():
            one = [_prediction_regret(_shipped, s, t, read) for s, t in here if len(s) == 1]
            more = [_prediction_regret(_shipped, s, t, read) for s, t in here if len(s) > 1]
            cells.append(f"{spread(one)} (n {len(one)})" if one else "–")
            cells.append(f"{spread(more)} (n {len(more)})" if more else "–")
        rows.append([f"{low:g} to {high:g} ×", *cells])
    header = [f"{reading}, {count}" for reading in READINGS for count in ("one", "two or three")]
    sections += [
        "### The default by factor in budget\n\nMedian / 90th percentile / worst.",
        as_table(["", *header], rows),
    ]
    sections.append(_coverage(cases))
    return sections


def _prediction_regret(
    predict: PREDICTION, small: list[Task], target: Task, read: Callable[[Task], tuple[float, float]]
) -> float:
    batch, rate = predict(_optima(small, read), target)
    return 100 * (target.loss_between(batch, rate) / target.best_loss - 1)


def _optima(tasks: Iterable[Task], read: Callable[[Task], tuple[float, float]]) -> list[Optimum]:
    return [Optimum(t.tokens, batch, 2.0**rate, t.parameters) for t in tasks for batch, rate in [read(t)]]


def _coverage(cases: Sequence[tuple[list[Task], Task]]) -> str:
    lines = []
    for reading, read in READINGS.items():
        inside = {"B_opt": 0, "learning rate": 0}
        for small, target in cases:
            moved = optimum_at_budget(_optima(small, read), target.tokens)
            batch, rate = fitted_optimum(target)
            for what, scaled, truth in (
                ("B_opt", moved.best_batch_size, batch),
                ("learning rate", moved.learning_rate, 2.0**rate),
            ):
                assert isinstance(scaled, Scaled)
                assert scaled.low is not None
                assert scaled.high is not None
                inside[what] += scaled.low <= truth <= scaled.high
        lines.append(f"- {reading}: " + ", ".join(f"{what} {n} of {len(cases)}" for what, n in inside.items()))
    return "### Fitted optimum of the larger budget inside the 95 % interval\n\n" + "\n".join(lines)


def size_moves(tasks: Sequence[Task]) -> list[str]:
    rows = []
    for name in ("size and budget moved", "budget moved only", "not moved"):
        cells = []
        for up in (True, False):
            found = []
            for start, target in itertools.permutations(tasks, 2):
                factor = target.tokens / start.tokens
                if start.parameters == target.parameters or (target.parameters > start.parameters) != up:
                    continue
                if not 1 / 2 <= factor <= 2:
                    continue
                optimum = _optima([start], fitted_optimum)[0]
                if name != "not moved":
                    batch, rate = _shipped([optimum], target)
                    optimum = Optimum(target.tokens, batch, 2.0**rate, start.parameters)
                if name.startswith("size"):
                    moved = optimum_at_size([optimum], target.parameters)
                    assert isinstance(moved.best_batch_size, Scaled)
                    assert isinstance(moved.learning_rate, Scaled)
                    optimum = Optimum(target.tokens, moved.best_batch_size.value, moved.learning_rate.value)
                loss = target.loss_between(optimum.best_batch_size, math.log2(optimum.learning_rate))
                found.append(100 * (loss / target.best_loss - 1))
            cells.append(f"{spread(found)} (n {len(found)})")
        rows.append([name, *cells])
    return [
        "## 3. The optimum at another model size",
        paragraph(
            "From each task to those of the other sizes (1.25 to 2 × in parameters) whose budget is within 2 ×, with "
            "published exponents, since each task is used alone. The table spans a factor of 2 in size; nothing beyond "
            "was tested."
        ),
        "Median / 90th percentile / worst.",
        as_table(["", "to a larger model", "to a smaller model"], rows),
    ]
