"""What the recorded studies answer, and how often the answer is another where losses or speeds are."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from statistics import mean, stdev

import numpy as np
from replay import Answer, Recorded, Run, answer_of, replay

from batchlab.analysis.findings import Findings
from batchlab.core.experiment import Experiment
from batchlab.words.trust import trust_items

SPEED_EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Of tokens/s against batch size on other machines: 0 where all sizes are equally fast, 1 where a step takes the same
time at every size."""


def report(studies: Sequence[Recorded], experiment: Experiment, draws: int, seed: int) -> list[str]:
    """Lines of results.md."""
    found = {one.name: _found(one, experiment) for one in studies}
    return [
        *_answers(studies, found),
        *_cells(studies),
        *_differences(studies),
        *_changed(studies, found, experiment, draws, seed),
    ]


def _found(recorded: Recorded, experiment: Experiment) -> Findings:
    found = replay(recorded, experiment)
    assert found is not None, f"{recorded.name}: the study made other runs than a replay of it"
    return found


def _answers(studies: Sequence[Recorded], found: dict[str, Findings]) -> Iterator[str]:
    yield "| instructions | torch says | TRAIN WITH | conditions that hold | training runs | processor seconds |"
    yield "|---|---|---|---|---:|---:|"
    for one in studies:
        items = trust_items(found[one.name])
        yield (
            f"| {one.name} | {one.environment['instruction_set']} | {answer_of(found[one.name])} "
            f"| {sum(item.ok is True for item in items)} of {len(items)} | {len(one.runs)} | {one.cpu_seconds:.0f} |"
        )
    yield ""


def _cells(studies: Sequence[Recorded]) -> Iterator[str]:
    """Mean loss of every cell at the whole budget, with the standard deviation over its seeds."""
    yield f"| batch | LR | {' | '.join(one.name for one in studies)} |"
    yield f"|---:|---:|{'---|' * len(studies)}"
    for cell in sorted({run[:2] for one in studies for run in one.runs}):
        losses = [_of_cell(one, cell) for one in studies]
        yield f"| {cell[0]} | {cell[1]:g} | {' | '.join(map(_loss, losses))} |"
    yield ""


def _of_cell(recorded: Recorded, cell: tuple[int, float]) -> list[float]:
    return [loss for run, loss in _losses(recorded).items() if run[:2] == cell]


def _losses(recorded: Recorded) -> dict[Run, float]:
    """Losses at the whole budget."""
    budget = max(run[3] for run in recorded.runs)
    return {
        run: ended.val_loss
        for run, ended in recorded.runs.items()
        if run[3] == budget and ended.val_loss is not None and math.isfinite(ended.val_loss)
    }


def _loss(losses: Sequence[float]) -> str:
    if not losses:
        return "–"
    return f"{mean(losses):.4f}" + (f" ± {stdev(losses):.4f}, n = {len(losses)}" if len(losses) > 1 else "")


def rms_differences(studies: Sequence[Recorded]) -> dict[int, float]:
    """By batch size: root of the mean squared difference of equal runs with different instructions."""
    squares: dict[int, list[float]] = defaultdict(list)
    for place, one in enumerate(studies):
        for other in studies[place + 1 :]:
            theirs = _losses(other)
            for run, loss in _losses(one).items():
                if run in theirs:
                    squares[run[0]].append((loss - theirs[run]) ** 2)
    return {size: math.sqrt(mean(found)) for size, found in sorted(squares.items())}


def seed_spread(studies: Sequence[Recorded]) -> dict[int, float]:
    """By batch size: standard deviation over seeds, pooled over cells of more than one; the largest for other sizes."""
    squares: dict[int, list[float]] = defaultdict(list)
    freedom: dict[int, int] = defaultdict(int)
    sizes = sorted({run[0] for one in studies for run in one.runs})
    for one in studies:
        for cell in {run[:2] for run in one.runs}:
            losses = _of_cell(one, cell)
            if len(losses) > 1:
                squares[cell[0]].append(sum((loss - mean(losses)) ** 2 for loss in losses))
                freedom[cell[0]] += len(losses) - 1
    found = {size: math.sqrt(sum(squares[size]) / freedom[size]) for size in squares}
    return {size: found.get(size, max(found.values())) for size in sizes}


def _differences(studies: Sequence[Recorded]) -> Iterator[str]:
    between, seeds = rms_differences(studies), seed_spread(studies)
    yield "| batch | the same run with other instructions (rms) | other seeds (standard deviation) |"
    yield "|---:|---:|---:|"
    for size in seeds:
        yield f"| {size} | {between.get(size, math.nan):.4f} | {seeds[size]:.4f} |"
    yield ""


def _changed(
    studies: Sequence[Recorded], found: dict[str, Findings], experiment: Experiment, draws: int, seed: int
) -> Iterator[str]:
    random = np.random.default_rng(seed)
    yield "| what is changed | " + " | ".join(f"{one.name}: another answer" for one in studies) + " |"
    yield "|---|" + "---:|" * len(studies)

    def row(what: str, answers: Callable[[Recorded], Sequence[Answer | None]]) -> str:
        texts = []
        for one in studies:
            given = answers(one)
            texts.append(f"{sum(answer != answer_of(found[one.name]) for answer in given)} of {len(given)}")
        return f"| {what} | {' | '.join(texts)} |"

    yield row("one further seed left out, everywhere", lambda one: without_a_seed(one, experiment))
    for what, spread in (("instructions", rms_differences(studies)), ("seeds", seed_spread(studies))):
        yield row(
            f"every loss, as much as by other {what}", lambda one, by=spread: moved(one, experiment, by, draws, random)
        )
    yield row("speeds, as on other machines", lambda one: at_other_speeds(one, experiment))


def without_a_seed(recorded: Recorded, experiment: Experiment) -> list[Answer | None]:
    """The answers without one of the further seeds each. The first seed chose the cells."""
    seeds = sorted({run[2] for run in recorded.runs} - {experiment.sweep.first_seed})
    return [_answer(replay(recorded, experiment, without=(seed,))) for seed in seeds]


def moved(
    recorded: Recorded, experiment: Experiment, spread: dict[int, float], draws: int, random: np.random.Generator
) -> list[Answer | None]:
    """The answers where every loss is moved by a normal deviate of this standard deviation, by batch size."""

    def change(run: Run, loss: float) -> float:
        return loss + float(random.normal(0.0, spread[run[0]]))

    return [_answer(replay(recorded.with_losses(change), experiment)) for _ in range(draws)]


def at_other_speeds(recorded: Recorded, experiment: Experiment) -> list[Answer | None]:
    """The answers where tokens/s rise with these powers of the batch size."""
    return [
        _answer(replay(recorded.with_speeds(lambda size, _, power=power: 1e4 * size**power), experiment))
        for power in SPEED_EXPONENTS
    ]


def _answer(found: Findings | None) -> Answer | None:
    return None if found is None else answer_of(found)
