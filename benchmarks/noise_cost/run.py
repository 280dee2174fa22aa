"""What does logging gradient norms at sampled steps cost a training run?

    python benchmarks/noise_cost/run.py > benchmarks/noise_cost/results.md

Trains a small decoder and times each step. Every fifth step is sampled and its row written; the others are like
the steps of a run without sampling. The cost is the extra time of a sampled step (medians of one run) divided by the
default spacing of its layout; ratio = 1 / (1 + cost), and the target is 0.97. One thread, on an idle machine. Sampled
and plain steps are interleaved, so that disturbances affect both.
"""

from __future__ import annotations

import argparse
import gc
import platform
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import OptimizerConfig, ScheduleConfig, TaskReference
from batchlab.core.spec import DeviceSettings, GradientSampling, OptimizerSettings, TrainSpec, Workload
from batchlab.data.stream import SampleStream
from batchlab.runs.gradient_samples import GradientSampler, steps_between
from batchlab.runs.step import one_step
from batchlab.runs.workload import Loaded, load
from batchlab.storage.run_folder import RunFolder
from batchlab.words.gradient_samples import why_no_gradient_samples

TARGET = 0.97
SEQUENCE_LENGTH = 64
MODEL = {"d_model": 64, "layers": 2, "heads": 4, "d_ff": 192}
"""139,584 parameters at 256 byte values."""
LAYOUTS = ((2, 1), (4, 1), (16, 1), (64, 1), (4, 4), (16, 4))  # micro-batch size × accumulation
EVERY = 5
WARM = 10
LEAST_STEPS, MOST_STEPS = 60, 300
ALL = GradientSampling(every=EVERY, split_lone=True)
NORM_LAYERS = GradientSampling(every=EVERY, parameters="norm_layers")


@dataclass(frozen=True)
class Cost:
    """Seconds of a plain step, and the extra time of a sampled step as a share of it."""

    plain: float
    more: float


def timed(loaded: Loaded, spec: TrainSpec) -> Cost:
    """Medians over the steps of one run, after `WARM` warm-up steps."""
    loaded.framework.start(spec.device, spec.seed)
    gc.collect()
    plain, sampled = [], []
    with tempfile.TemporaryDirectory() as folder:
        rows = RunFolder(Path(folder), spec)
        rows.try_lock()
        rows.begin()
        trainable = loaded.framework.trainable(loaded.task, spec.device, spec.optimizer)
        trainable.init(spec.seed)
        sampler, stream = GradientSampler(trainable, spec), SampleStream(loaded.train, spec.seed)
        for step in range(spec.steps):
            begun = time.perf_counter()
            one_step(trainable, stream, spec.layout, step, spec.learning_rate, sampler)
            for row in sampler.rows():
                rows.row(row)
            if step >= WARM:
                (sampled if sampler.due(step) else plain).append(time.perf_counter() - begun)
        if sampler.why_not:
            raise SystemExit(f"Nothing was sampled: {why_no_gradient_samples(*sampler.why_not)}.")
        rows.unlock()
    middle = statistics.median(plain)
    return Cost(middle, statistics.median(sampled) / middle - 1)


def spec_for(micro: int, accumulation: int, tokens: float, sampling: GradientSampling) -> TrainSpec:
    batch = micro * accumulation
    steps = round(max(LEAST_STEPS, min(MOST_STEPS, tokens / (batch * SEQUENCE_LENGTH))))
    layout = BatchLayout(global_batch_size=batch, micro_batch_size=micro, sequence_length=SEQUENCE_LENGTH)
    return TrainSpec(
        workload=Workload(
            task=TaskReference(kind="recipe", target="quickstart"), sequence_length=SEQUENCE_LENGTH, model=MODEL
        ),
        layout=layout,
        learning_rate=6e-3,
        token_budget=steps * layout.tokens_per_step,
        schedule=ScheduleConfig(),
        optimizer=OptimizerSettings(config=OptimizerConfig(), batch_ratio=batch / 16),
        evaluation_interval=steps * layout.tokens_per_step,
        evaluation_samples=32,
        gradients=sampling,
        device=DeviceSettings(threads=1),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="runs of each kind")
    parser.add_argument("--tokens", type=float, default=40_000, help="approximate number per run")
    parser.add_argument("--layouts", default="", help="only these, e.g. 4x1,16x4")
    arguments = parser.parse_args()
    wanted = [tuple(map(int, one.split("x"))) for one in arguments.layouts.split(",") if one] or LAYOUTS
    with tempfile.TemporaryDirectory() as cache:
        reference = TaskReference(kind="recipe", target="quickstart")
        loaded = load(Workload(task=reference, sequence_length=SEQUENCE_LENGTH, model=MODEL), Path(cache))
        environment = loaded.framework.environment(DeviceSettings(threads=1))
        print("# Cost of sampled gradients: results\n")
        print(f"    python {' '.join(sys.argv)}\n")
        print(
            f"batchlab {environment.batchlab}, {environment.framework}, Python {environment.python}; "
            f"{environment.processor} ({environment.instruction_set}, 1 thread), {platform.system()};\n"
            f"wall-clock seconds, n = {arguments.repeats} runs of each kind; {time.strftime('%Y-%m-%d')}\n"
        )
        print(
            "Medians over runs, minimum and maximum in brackets. Sampled step: extra time relative to a plain step.\n"
            "Ratio: speed with sampling ÷ speed without, at the layout's default spacing. "
            "Norm layers alone: n is half as large.\n"
        )
        print("| micro-batch × accumulation | plain step | sampled step | spacing | ratio | norm layers alone |")
        print("|---|---|---|---|---|---|")
        worst = 1.0
        for micro, accumulation in wanted:
            spec, inner = (spec_for(micro, accumulation, arguments.tokens, kind) for kind in (ALL, NORM_LAYERS))
            costs = [timed(loaded, spec) for _ in range(arguments.repeats)]
            fewer = max(2, arguments.repeats // 2) if accumulation == 1 else 0
            alone = [timed(loaded, inner).more for _ in range(fewer)]
            spacing = steps_between(1, 1, spec.layout)
            ratios = sorted(1 / (1 + cost.more / spacing) for cost in costs)
            more = sorted(cost.more for cost in costs)
            middle = statistics.median(ratios)
            worst = min(worst, middle)
            print(
                f"| {micro} × {accumulation} | {1e3 * statistics.median(cost.plain for cost in costs):.1f} ms "
                f"| +{statistics.median(more):.0%} [{more[0]:.0%}, {more[-1]:.0%}] | {spacing} "
                f"| {middle:.3f} [{ratios[0]:.3f}, {ratios[-1]:.3f}] "
                f"| {f'+{statistics.median(alone):.0%} [{min(alone):.0%}, {max(alone):.0%}]' if alone else '–'} |",
                flush=True,
            )
    print(f"\nSmallest median ratio {worst:.3f}; target ≥ {TARGET}.")
    return 0 if worst >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
