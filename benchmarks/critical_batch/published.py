"""Published tables: what batchlab reads from them, beside what others read."""

from __future__ import annotations

import csv
import itertools
import math
from pathlib import Path

import numpy as np
from known_formulas import Rows, counts
from textbook import fit_textbook

from batchlab.analysis.critical.iso_loss import BudgetRun, critical_batch_from_budgets, points_at_loss
from batchlab.analysis.critical.optimal_step import best_step, fit_optimal_step
from batchlab.analysis.critical.steps_finding import StepsFinding
from batchlab.analysis.critical.steps_to_target import StepsPoint, critical_batch
from batchlab.words.critical_reasons import steps_reason
from batchlab.words.estimates import format_critical

STEP_LAW = (
    (268_304_384, 2.46, 1580, 535),
    (268_304_384, 2.42, 1833, 621),
    (214_663_680, 2.46, 1250, 597),
    (214_663_680, 2.42, 1880, 703),
)
"""Parameters, loss, and references computed earlier from the whole table, in sequences: 2× samples from a fit of the
textbook curve to the right branch, 20 % overhead as the largest batch within 1.2 × the fewest tokens."""


def told(found: StepsFinding) -> str:
    """Every definition that has an answer, and the reason where one is missing."""
    numbers = (
        ("20 % overhead", found.overhead),
        ("2× samples", found.twice_samples),
        ("2× steps", found.twice_steps),
    )
    text = ", ".join(f"{name} {format_critical(one)}" for name, one in numbers if one is not None and one.known)
    return "; ".join(part for part in (text, steps_reason(found)) if part)


def step_law(data: Path) -> Rows:
    path = data / "steplaw" / "dense_lr_bs_loss.csv"
    if not path.is_file():
        return [("Step Law", "", "skipped", "the table is not available")]
    with path.open() as file:
        table_rows = list(csv.DictReader(file))
    rows: Rows = []
    for model, target, twice, overhead in STEP_LAW:
        runs = [
            BudgetRun(
                float(row["bs"]),
                2 ** (round(2 * math.log2(float(row["lr"]))) / 2),
                float(row["D"]) / 2048,
                float(row["smooth loss"]),
            )
            for row in table_rows
            if int(row["N"]) == model
        ]
        name = f"Step Law {model / 1e6:.0f}M, loss {target}"
        expected = f"20 % overhead {overhead}, 2× samples {twice}"
        every = [run for run in runs if run.batch >= 128]
        rows.append(
            (f"{name}, all sizes ≥ 128", expected, told(critical_batch_from_budgets(every, target, loss_sd=0.001)), "")
        )
        usable = [p for p in points_at_loss(runs, target) if p.steps is not None and p.batch >= 128]
        found = [critical_batch(some, origin="budgets") for some in itertools.combinations(usable, 6)]
        near = []
        for what, reference in (("overhead", overhead), ("twice_samples", twice)):
            values = [one.value for f in found if (one := getattr(f, what)) is not None and one.value is not None]
            close = np.mean([1 / 1.5 < v.value / reference < 1.5 for v in values]) if values else 0.0
            near.append(f"{close:.0%} of {len(values)}")
        rows.append(
            (
                f"{name}, every choice of 6 of the {len(usable)} sizes ≥ 128",
                "within a factor of 1.5",
                f"20 % overhead {near[0]}, 2× samples {near[1]}",
                counts(f.status for f in found),
            )
        )
    return rows


def zhang(data: Path) -> Rows:
    folder = data / "zhang2024_cbs"
    if not folder.is_dir():
        return [("Zhang et al. 2024", "", "skipped", "the table is not available")]
    with (folder / "steps_to_target.csv").open() as file:
        steps = list(csv.DictReader(file))
    rows: Rows = []
    with (folder / "reference_fit.csv").open() as file:
        for reference in csv.DictReader(file):
            mine = [r for r in steps if r["model_size"] == reference["model_size"]]
            b = np.array([float(r["batch_seqs"]) for r in mine])
            s = np.array([float(r["steps_fit"]) for r in mine])
            _, b_crit, misfit = fit_textbook(b, s)
            judged = critical_batch(
                [StepsPoint(x, y) for x, y in zip(b, s, strict=True)], origin="constant_lr", base_batch=256
            )
            expected = f"textbook curve: 2× samples {float(reference['b_over_a_seqs']):.1f}, "
            expected += f"20 % overhead over 256 {float(reference['cbs_20pct_vs_bs256_seqs']):.1f}"
            own = f"textbook curve: 2× samples {b_crit:.1f}, misfit {misfit:.1%}"
            rows.append((f"Zhang et al. 2024, {reference['model_size']}, {len(b)} sizes", expected, told(judged), own))
    return rows


def mnist(data: Path) -> Rows:
    path = data / "mnist_noise_scale" / "aggregate_results.csv"
    if not path.is_file():
        return [("MNIST one step", "", "skipped", "the table is not available")]
    rows: Rows = []
    with path.open() as file:
        table_rows = list(csv.DictReader(file))
    for checkpoint, expected in (("100", "49.8 ± 4.3"), ("500", "150.5 ± 15.4")):
        curves: dict[float, dict[float, float]] = {}
        for row in table_rows:
            if row["checkpoint_step"] == checkpoint:
                curves.setdefault(float(row["batch_size"]), {})[float(row["epsilon"])] = float(row["mean_loss_change"])
        best = {b: best_step(list(curve), list(curve.values())) for b, curve in curves.items()}
        fit = fit_optimal_step(list(best), [step for step in best.values() if step is not None])
        found = f"{fit.noise_scale.value:.1f} ± {fit.noise_scale_error:.1f}"
        interval = f"95 %: [{fit.noise_scale.low:.1f}, {fit.noise_scale.high:.1f}]"
        rows.append((f"MNIST one step, checkpoint {checkpoint}, {len(best)} sizes", expected, found, interval))
    return rows
