"""What does logging gradient norms at sampled steps cost a training run?

    python benchmarks/noise_cost/run.py

Trains the quickstart model twice, with and without sampled gradients, in this process on the same samples; the two
alternate. Ratio = speed with ÷ speed without, median of pairs; the target is 0.97 at the default setting. The last
column samples every step: what the default's spacing divides. One thread; wall seconds for an idle machine, `--clock
cpu` takes this process's processor seconds, which other programs on a busy one disturb less.
"""

from __future__ import annotations

import argparse
import gc
import math
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from batchlab.batch import BatchLayout
from batchlab.data.stream import SampleStream
from batchlab.experiment import OptimizerConfig, ScheduleConfig, TaskReference
from batchlab.run_folder import RunFolder
from batchlab.runs.gradient_samples import SPARSEST
from batchlab.runs.train import train
from batchlab.spec import DeviceSettings, GradientSampling, OptimizerSettings, TrainSpec, Workload
from batchlab.workload import Loaded, load

TARGET = 0.97
SEQUENCE_LENGTH = 64
LAYOUTS = ((2, 1), (4, 1), (16, 1), (64, 1), (4, 4), (16, 4))  # micro-batch size × accumulation
EVERY_STEP = GradientSampling(every=1, split_lone=True)
DEFAULT = GradientSampling(every=SPARSEST, split_lone=True)


class Context(RunFolder):
    """A real run folder whose run nobody watches or stops."""

    def progress(self, step: int, steps: int, tokens: int, loss: float | None, tokens_per_second: float | None) -> None:
        pass

    def stop_requested(self) -> bool:
        return False


def seconds(loaded: Loaded, spec: TrainSpec, clock: Callable[[], float]) -> tuple[float, float]:
    """(seconds of the steps alone, final loss) of one run."""
    loaded.framework.start(spec.device, spec.seed)
    gc.collect()
    with tempfile.TemporaryDirectory() as folder:
        context = Context(Path(folder), spec)
        context.try_lock()
        context.begin()
        trainable = loaded.framework.trainable(loaded.task, spec.device, spec.optimizer)
        trainable.synchronize = clock
        ended = train(trainable, SampleStream(loaded.train, spec.seed), loaded.valid, spec, context)
        context.unlock()
    return ended.result.seconds, ended.result.final_train_loss


def compare(
    loaded: Loaded, spec: TrainSpec, sampling: GradientSampling, repeats: int, clock: Callable[[], float]
) -> list[float]:
    """Ratios of speeds, with ÷ without, sorted; the first pair warms up."""
    ratios = []
    for repeat in range(repeats + 1):
        pair = {}
        for which in (None, sampling) if repeat % 2 else (sampling, None):
            pair[which] = seconds(loaded, spec.model_copy(update={"gradients": which}), clock)
        if not math.isclose(pair[None][1], pair[sampling][1], rel_tol=1e-3):
            raise SystemExit(f"The two runs computed different things: {pair}")
        if repeat:
            ratios.append(pair[None][0] / pair[sampling][0])
    return sorted(ratios)


def spec_for(micro: int, accumulation: int, tokens: float) -> TrainSpec:
    batch = micro * accumulation
    steps = max(4, round(tokens / (batch * SEQUENCE_LENGTH * SPARSEST))) * SPARSEST
    layout = BatchLayout(global_batch_size=batch, micro_batch_size=micro, sequence_length=SEQUENCE_LENGTH)
    return TrainSpec(
        workload=Workload(task=TaskReference(kind="recipe", target="quickstart"), sequence_length=SEQUENCE_LENGTH),
        layout=layout,
        learning_rate=6e-3,
        token_budget=steps * layout.tokens_per_step,
        schedule=ScheduleConfig(),
        optimizer=OptimizerSettings(config=OptimizerConfig(), batch_ratio=batch / 16),
        evaluation_interval=steps * layout.tokens_per_step,
        evaluation_samples=32,
        log_points=max(1, steps // SPARSEST),
        device=DeviceSettings(threads=1),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7, help="pairs after one warm-up pair")
    parser.add_argument("--tokens", type=float, default=40_000, help="about so many per run")
    parser.add_argument("--layouts", default="", help="only these, like 4x1,16x4")
    parser.add_argument("--clock", choices=("cpu", "wall"), default="wall")
    arguments = parser.parse_args()
    clock = time.process_time if arguments.clock == "cpu" else time.perf_counter
    wanted = [tuple(map(int, one.split("x"))) for one in arguments.layouts.split(",") if one] or LAYOUTS
    with tempfile.TemporaryDirectory() as cache:
        reference = TaskReference(kind="recipe", target="quickstart")
        loaded = load(Workload(task=reference, sequence_length=SEQUENCE_LENGTH), Path(cache))
        environment = loaded.framework.environment(DeviceSettings(threads=1))
        print(
            f"batchlab {environment.batchlab}, {environment.framework}, Python {environment.python}; "
            f"{environment.processor} ({environment.instruction_set}, 1 thread), {platform.system()}; "
            f"{arguments.clock} seconds, n = {arguments.repeats} pairs; {time.strftime('%Y-%m-%d')}\n"
        )
        print(f"| micro-batch × accumulation | steps | every {SPARSEST}th step | min … max | every step |")
        print("|---|---|---|---|---|")
        medians = []
        for micro, accumulation in wanted:
            spec = spec_for(micro, accumulation, arguments.tokens)
            default = compare(loaded, spec, DEFAULT, arguments.repeats, clock)
            always = compare(loaded, spec, EVERY_STEP, max(1, arguments.repeats // 3), clock)
            medians.append(statistics.median(default))
            print(
                f"| {micro} × {accumulation} | {spec.steps} | {medians[-1]:.3f} | {default[0]:.3f} … {default[-1]:.3f} "
                f"| {statistics.median(always):.3f} |",
                flush=True,
            )
    print(f"\nSmallest median ratio {min(medians):.3f}; target ≥ {TARGET}.")
    return 0 if min(medians) >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
