"""Coverage of nominal 95 % intervals on problems with a formula: noise scale, textbook curve, branches."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import numpy as np

from batchlab.analysis.critical.branches import Branch, branched_critical_batch
from batchlab.analysis.critical.noise_scale import GradientNorms, NoiseScale, noise_scale, unbiased_parts
from batchlab.analysis.critical.ratio import block_means, fieller
from batchlab.analysis.critical.sign_noise_scale import SignNorms, sign_noise_scale
from batchlab.analysis.critical.steps_finding import CriticalBatch
from batchlab.analysis.critical.steps_to_target import StepsPoint, critical_batch

Rows = list[tuple[object, ...]]


def counts(statuses: Iterable[str]) -> str:
    found = Counter(statuses)
    total = sum(found.values())
    return ", ".join(f"{name.replace('_', ' ')} {count / total:.1%}" for name, count in found.most_common())


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
    if found is None or not found.known:
        return True
    if found.value is not None:
        return (found.value.low or 0) <= truth <= (found.value.high or math.inf)
    return (found.at_least or 0) <= truth <= (found.at_most or math.inf)


HEAVY = {
    "Gaussian": lambda rng, shape: rng.standard_normal(shape),
    "t(5) in each coordinate": lambda rng, shape: rng.standard_t(5, shape) * math.sqrt(3 / 5),
    "multivariate t(5)": lambda rng, shape: (
        rng.standard_normal(shape) * np.sqrt(3 / rng.chisquare(5, (*shape[:-1], 1)))
    ),
}


def heavy_tails(n: int) -> Rows:
    """Linear regression whose features have heavy tails, so that the squared gradients have no variance.

    tr Σ = s² tr H + E|x|²(xᵀe)² − |He|². With fourth moments κ of a coordinate (3 for Gaussian, 9 for t(5)) or a common
    factor of mean square 3 for multivariate t(5).
    """
    rows: Rows = []
    spectra = {"5 curvatures": np.array([2.0, 1.0, 0.5, 0.25, 0.1]), "1/i^0.75, 30": np.arange(1.0, 31) ** -0.75}
    for seed, (features, draw) in enumerate(HEAVY.items()):
        for spectrum, h in spectra.items():
            error, s = np.where(np.arange(len(h)) % 2, -0.7, 1.0), 0.5
            gradient = h * error
            common, cross = float(error**2 @ h), float(gradient @ gradient)
            moment = h.sum() * common + 2 * cross
            if features.startswith("t("):
                moment += 6 * cross
            elif features.startswith("multi"):
                moment *= 3
            truth = (s**2 * h.sum() + moment - cross) / cross
            for steps, parts, size in ((40, 8, 4), (48, 2, 8), (20, 4, 8)):
                rng = np.random.default_rng([1000 + seed, len(h), steps])
                found, plain = [], []
                for _ in range(n):
                    x = draw(rng, (steps, parts, size, len(h))) * np.sqrt(h)
                    residual = x @ error - s * rng.standard_normal((steps, parts, size))
                    means = (x * residual[..., None]).mean(axis=2)
                    run = [logged(g, np.full(parts, float(size))) for g in means]
                    found.append(noise_scale(run))
                    blocks = block_means(np.array([unbiased_parts(one) for one in run]), None)
                    without = fieller(blocks[:, 0], blocks[:, 1])
                    plain.append((without.low or 0) <= truth <= (without.high or math.inf))
                covered = np.mean([noise_covers(f, truth) for f in found])
                widths = [
                    f.value.high / f.value.low for f in found if f.value is not None and f.value.low and f.value.high
                ]
                rows.append(
                    (
                        f"{features}, {spectrum}, {parts} of {size}, {steps} steps",
                        f"{truth:.1f}",
                        f"{covered:.1%} (Fieller alone {np.mean(plain):.1%})",
                        f"{counts(f.status for f in found)}; median upper/lower {np.median(widths):.1f}",
                    )
                )
    return rows


def textbook_coverage(n: int) -> Rows:
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
                found.append(critical_batch(points, origin="constant_lr", noise_sd=sd))
            held = [
                [
                    covers(f.overhead, 0.2 * truth + 1.2 * f.used[0] if f.used else 0.0),
                    covers(f.twice_samples, truth),
                    covers(f.twice_steps, truth),
                ]
                for f in found
            ]
            each = " / ".join(f"{share:.1%}" for share in np.mean(held, axis=0))
            name = f"textbook curve, {len(b)} sizes {b[0]:g} … {b[-1]:g}, noise {noise:.0%}{', known' if known else ''}"
            rows.append((name, truth, each, counts(f.status for f in found)))
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
