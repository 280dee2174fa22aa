"""Do the three estimators of the critical batch size give known answers, with intervals of the stated coverage?

    python benchmarks/critical_batch/run.py --repetitions 1000 > benchmarks/critical_batch/results.md

Prints markdown. Coverage: how often a nominal 95 % interval contains the true value, on problems where a formula gives
it; one-sided answers count as intervals, and no answer as an unbounded one. Traps: problems on which a number would be
wrong. Published data: read from --data, skipped if not there. Nothing is timed; all random numbers are seeded.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import platform
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import scipy

from batchlab.analysis.critical.branches import Branch, branched_critical_batch
from batchlab.analysis.critical.hyperbola import fit_hyperbola
from batchlab.analysis.critical.iso_loss import BudgetRun, critical_batch_from_budgets, points_at_loss
from batchlab.analysis.critical.noise_scale import GradientNorms, NoiseScale, noise_scale
from batchlab.analysis.critical.optimal_step import best_step, fit_optimal_step
from batchlab.analysis.critical.sign_noise_scale import SignNorms, sign_noise_scale
from batchlab.analysis.critical.steps_finding import CriticalBatch, StepsFinding
from batchlab.analysis.critical.steps_to_target import StepsPoint, critical_batch, judge_sweep
from batchlab.words.critical_reasons import steps_reason

Rows = list[tuple[object, ...]]
ILL_CONDITIONED = (10064, 5073, 2578, 1335, 723, 435, 309, 250, 220, 205, 197, 188, 184, 182, 180)
STEP_LAW = (
    (268_304_384, 2.46, 1580, 535),
    (268_304_384, 2.42, 1833, 621),
    (214_663_680, 2.46, 1250, 597),
    (214_663_680, 2.42, 1880, 703),
)
"""Parameters, loss, and references computed earlier from the whole table, in sequences: 2× samples from a fit of the
right branch, 20 % overhead as the largest batch within 1.2 × the fewest tokens."""

NOTE = """"2× samples" and "20 % overhead" are the two definitions of B_crit.

Step Law: the reference values were read at the losses 2.46 and 2.42 for both models; for 215M that is an assumption.
The six named sizes were chosen after several choices had been seen, because all four tables give an answer from them.
The rows with every choice were not selected, but count only choices that gave a number. The level of the misfit test
(7 %) was set with these tables and the ill-conditioned quadratic in view. Neither is independent evidence.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / ".." / "shared" / "data")
    options = parser.parse_args()
    n = options.repetitions
    print("# Critical batch size: known answers\n")
    print(f"`python benchmarks/critical_batch/run.py --repetitions {n}` on {cpu()}, 1 thread,")
    print(f"Python {platform.python_version()}, numpy {np.__version__}, scipy {scipy.__version__}.")
    print("Deterministic for these versions; nothing is timed.\n")
    chance = 196 * math.sqrt(0.0475 / n)
    print(f"## Coverage of nominal 95 % intervals (n = {n} each, so ± {chance:.1f} % by chance)\n")
    table(
        ("problem", "truth", "covered", "answers"), [*noise_scale_coverage(n), *hyperbola_coverage(n), *branch_error(n)]
    )
    print("\n## Traps\n")
    table(("problem", "answer", "why"), traps())
    print("\n## Published data\n")
    print(NOTE)
    table(("data", "expected", "found", ""), [*step_law(options.data), *zhang(options.data), *mnist(options.data)])


def cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {platform.system()}"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    print("| " + " | ".join(header) + " |")
    print("|" + " --- |" * len(header))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |", flush=True)


def logged(gradients: np.ndarray, sizes: np.ndarray) -> GradientNorms:
    mean = sizes @ gradients / sizes.sum()
    return GradientNorms(tuple(sizes), tuple((gradients**2).sum(axis=1)), float(mean @ mean))


def noise_covers(found: NoiseScale, truth: float) -> bool:
    if found.value is not None:
        return (found.value.low or 0) <= truth <= (found.value.high or 0)
    return found.at_least is None or found.at_least <= truth


def noise_scale_coverage(n: int) -> Rows:
    rows: Rows = []
    sd = np.linspace(0.5, 2.5, 12)

    def report(name: str, truth: float, found: list[NoiseScale]) -> None:
        covered = np.mean([noise_covers(f, truth) for f in found])
        rows.append((name, f"{truth:.1f}", f"{covered:.1%}", counts(f.status for f in found)))

    def gaussian(rng: np.random.Generator, gradient: np.ndarray, sizes: np.ndarray, steps: int) -> list[GradientNorms]:
        noise = rng.standard_normal((steps, len(sizes), 12)) * sd / np.sqrt(sizes)[None, :, None]
        return [logged(gradient + step, sizes) for step in noise]

    cases: tuple[tuple[str, float, list[float], int], ...] = (
        ("8 micro-batches of 4, 32 steps", 0.5, [4.0] * 8, 32),
        ("8 of 4, 32 steps, gradient far below the noise", 0.15, [4.0] * 8, 32),
        ("2 of 16, 64 steps", 0.5, [16.0] * 2, 64),
        ("2, 6, 4, 8, 40 steps", 0.5, [2.0, 6.0, 4.0, 8.0], 40),
        ("16 of 1, 32 steps", 0.5, [1.0] * 16, 32),
    )
    for name, size, micro, steps in cases:
        rng, gradient = np.random.default_rng(0), np.full(12, size)
        truth = float(np.sum(sd**2) / (gradient @ gradient))
        found = [noise_scale(gaussian(rng, gradient, np.array(micro), steps)) for _ in range(n)]
        report(f"noise scale, Gaussian gradients, {name}", truth, found)
    rng, gradient = np.random.default_rng(1), np.full(12, 0.5)
    found = [
        noise_scale(gaussian(rng, gradient, np.array([4.0] * 4), 120), method="bootstrap") for _ in range(min(n, 500))
    ]
    report("the same by block bootstrap, 4 of 4, 120 steps (n ≤ 500)", float(np.sum(sd**2) / 3), found)
    found = [noise_scale(gaussian(rng, np.zeros(12), np.array([4.0] * 8), 32)) for _ in range(n)]
    report("no gradient at all", math.inf, found)

    curvature, error, s = np.array([2.0, 1.0, 0.5, 0.25, 0.1]), np.ones(5), 0.5
    gradient = curvature * error
    trace = (s**2 + float(error @ gradient)) * curvature.sum() + float(gradient @ gradient)
    found = []
    for _ in range(n):
        x = rng.standard_normal((40, 8, 4, 5)) * np.sqrt(curvature)
        residual = x @ error - s * rng.standard_normal((40, 8, 4))
        found.append(noise_scale([logged(g, np.full(8, 4.0)) for g in (x * residual[..., None]).mean(axis=2)]))
    report("noise scale, linear regression, 8 of 4, 40 steps", trace / float(gradient @ gradient), found)

    gradient, spread = rng.standard_normal(200) * 0.2, np.exp(rng.normal(0, 0.5, 200))
    truth, hits = (spread.sum() / np.abs(gradient).sum()) ** 2, []
    for _ in range(min(n, 500)):
        g = gradient + rng.standard_normal((24, 4, 200)) * spread / np.sqrt(32.0)
        mean = g.mean(axis=1)
        sigma = np.sqrt(32.0 * ((g - mean[:, None]) ** 2).sum(axis=1) / 3).sum(axis=1)
        agreement = (np.sign(g[:, :3].mean(axis=1)) * g[:, 3]).sum(axis=1)
        steps_logged = zip(sigma, np.abs(mean).sum(axis=1), agreement, strict=True)
        sign = sign_noise_scale([SignNorms(4, *map(float, row)) for row in steps_logged])
        hits.append((sign.low or 0) <= truth <= (sign.high or math.inf))
    rows.append(
        ("sign variant, a bracket (at least 95 % expected)", f"{truth:.1f}", f"{np.mean(hits):.1%}", "measured")
    )
    return rows


def covers(found: CriticalBatch | None, truth: float) -> bool:
    if found is None:
        return True
    if found.value is not None:
        return (found.value.low or 0) <= truth <= (found.value.high or math.inf)
    return (found.at_least or 0) <= truth <= (found.at_most or math.inf)


def hyperbola_coverage(n: int) -> Rows:
    rows: Rows = []
    cases = (
        (2, 7, 0.02, 32),
        (2, 7, 0.05, 32),
        (0, 9, 0.05, 32),
        (0, 5, 0.05, 32),
        (4, 9, 0.05, 32),
        (0, 5, 0.03, 2048),
        (7, 12, 0.03, 4),
    )
    for first, last, noise, truth in cases:
        for known in (False, True):
            rng, b = np.random.default_rng(first + last), 2.0 ** np.arange(first, last + 1)
            found = []
            for _ in range(n):
                steps = 100 * (1 + truth / b) * np.exp(noise * rng.standard_normal(len(b)))
                points = [StepsPoint(float(x), float(y)) for x, y in zip(b, steps, strict=True)]
                sd = noise if known else None
                found.append(critical_batch(points, origin="constant_lr", noise_sd=sd, base_batch=float(b[0])))
            both = (covers(f.twice, truth) and covers(f.overhead, 0.2 * truth + 1.2 * float(b[0])) for f in found)
            name = f"hyperbola, {len(b)} sizes {b[0]:g} … {b[-1]:g}, noise {noise:.0%}{', known' if known else ''}"
            rows.append((name, truth, f"{np.mean(list(both)):.1%}", counts(f.status for f in found)))
    return rows


def branch_error(n: int) -> Rows:
    rows: Rows = []
    for pairs in (4, 8, 16):
        rng, largest = np.random.default_rng(pairs), []
        for _ in range(n):
            shared = 2.5 + 0.2 * rng.standard_normal(pairs)
            branches = [
                Branch(k, tuple((shared + extra + 0.004 * rng.standard_normal(pairs)).tolist()))
                for k, extra in ((1.0, 0.0), (2.0, 0.004), (4.0, 0.01), (8.0, 0.03))
            ]
            largest.append(branched_critical_batch(branches, batch=1, tolerance=0.01).largest)
        name = f"branches, {pairs} pairs: k = 4 loses exactly ε, so accepting it is the error"
        shares = ", ".join(f"k = {k:g}: {c / n:.0%}" for k, c in sorted(Counter(largest).items()))
        rows.append((name, "k < 4", f"{np.mean([k < 4 for k in largest]):.1%}", shares))
    return rows


def traps() -> Rows:
    sizes = [2.0**i for i in range(15)]

    def answer(found: StepsFinding) -> str:
        if found.twice is not None and found.twice.value is not None:
            return f"{found.status}: {found.twice.value.value:.1f}"
        limit = found.twice.at_least if found.twice is not None else None
        return found.status.replace("_", " ") + (f", at least {limit:g}" if limit is not None else "")

    def judged(name: str, steps: Callable[[float], float] | Sequence[float]) -> tuple[object, ...]:
        values = [steps(b) for b in sizes] if callable(steps) else list(steps)
        found = critical_batch([StepsPoint(b, s) for b, s in zip(sizes, values, strict=True)], origin="constant_lr")
        read = ""
        if found.read_off and not found.fit:
            read = f"; 20 % overhead read off without the curve: {found.read_off:.1f}"
        return name, answer(found), steps_reason(found) + read

    newton = judged("exact Newton steps, E constant", lambda b: 95 / b)
    ill = judged("ill-conditioned quadratic h = c = 1/i", ILL_CONDITIONED)
    grows = judged("steps that grow with the batch", lambda b: 100 * b**0.3)
    flat_rng = np.random.default_rng(0)
    flat = judged(
        "steps that do not depend on the batch, 10 % noise", lambda b: 100 * math.exp(0.1 * flat_rng.normal())
    )
    fixed = judge_sweep([1.0, 4, 16, 64, 256, 1024], [0.1339, 0.1356, 0.1442, 0.2241, 0.577, 1.157])
    decayed = judge_sweep([8.0, 16, 32, 64, 128], [2.60, 2.52, 2.50, 2.53, 2.61])
    return [
        newton,
        ill,
        ("fixed tokens, quadratic", answer(fixed), steps_reason(fixed)),
        ("one decayed sweep with its best batch inside", answer(decayed), steps_reason(decayed)),
        grows,
        flat,
    ]


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
        spread = [run for run in runs if run.batch in (128, 256, 512, 736, 1024, 2048)]
        found = critical_batch_from_budgets(spread, target, loss_sd=0.001)
        if found.twice is None or found.twice.value is None:
            rows.append((f"{name}, 6 sizes", twice, found.status, steps_reason(found)))
        else:
            value = found.twice.value
            curve = found.overhead.value.value if found.overhead is not None and found.overhead.value is not None else 0
            text = f"2× samples {value.value:.0f} [{value.low:.0f}, {value.high:.0f}], "
            text += f"20 % overhead {found.read_off or 0:.0f} read off, {curve:.0f} from the curve over 128"
            ratios = f"ratios {value.value / twice:.2f}, {(found.read_off or 0) / overhead:.2f}, {curve / overhead:.2f}"
            expected = f"2× samples {twice}, 20 % overhead {overhead}"
            rows.append((f"{name}, sizes 128 256 512 736 1024 2048", expected, text, ratios))
        usable = [p for p in points_at_loss(runs, target) if p.steps is not None and p.batch >= 128]
        all_found = [critical_batch(some, origin="budgets") for some in itertools.combinations(usable, 6)]
        values = [f.twice.value.value for f in all_found if f.twice is not None and f.twice.value is not None]
        near = np.mean([1 / 1.5 < v / twice < 1.5 for v in values])
        read = [1 / 1.5 < f.read_off / overhead < 1.5 for f in all_found if f.read_off is not None]
        rows.append(
            (
                f"{name}, every choice of 6 of the {len(usable)} sizes ≥ 128",
                "within a factor of 1.5",
                f"2× samples {near:.0%} of {len(values)} numbers; "
                f"20 % overhead read off {np.mean(read):.0%} of {len(read)}",
                counts(f.status for f in all_found),
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
            fit = fit_hyperbola(b, s)
            judged = critical_batch([StepsPoint(x, y) for x, y in zip(b, s, strict=True)], origin="constant_lr")
            value = judged.twice.value if judged.twice is not None else None
            ours = f"estimate: {value.value:.0f} [{value.low:.0f}, {value.high:.0f}]" if value else steps_reason(judged)
            expected = f"2× samples {float(reference['b_over_a_seqs']):.1f}, "
            expected += f"20 % overhead over 256 {float(reference['cbs_20pct_vs_bs256_seqs']):.1f}"
            found = f"2× samples {fit.b_crit:.1f}, 20 % overhead {1.2 * 256 + 0.2 * fit.b_crit:.1f}"
            rows.append((f"Zhang et al. 2024, {reference['model_size']}, {len(b)} sizes", expected, found, ours))
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


def counts(statuses: Iterable[str]) -> str:
    found = Counter(statuses)
    total = sum(found.values())
    return ", ".join(f"{name.replace('_', ' ')} {count / total:.1%}" for name, count in found.most_common())


if __name__ == "__main__":
    sys.exit(main())
