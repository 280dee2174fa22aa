"""What do `diagnostics = light` and `full` cost?

    python benchmarks/diagnostics_cost/run.py --batch-sizes 4,16,64

The quickstart model trains in this process on the same samples, again and again, with diagnostics off, light and full
in turn, in an order that rotates. Cost = wall seconds of the whole `train` call (steps, looks, one evaluation of 32
samples, metrics on disk) ÷ those of the off run of the same round − 1. A run is the first quarter of a quickstart run,
looked at as often per token as the study does. All three must end at the same loss to the last bit.
"""

from __future__ import annotations

import argparse
import gc
import platform
import statistics
import tempfile
import time
from pathlib import Path

from batchlab.batch import BatchLayout
from batchlab.data.stream import SampleStream
from batchlab.experiment import OptimizerConfig, TaskReference
from batchlab.recipes import recipe
from batchlab.run_folder import RunFolder
from batchlab.runs.train import train
from batchlab.search.budget import token_budget_of
from batchlab.spec import DeviceSettings, Diagnostics, OptimizerSettings, TrainSpec, Workload
from batchlab.stages.sweep import LOOKS
from batchlab.workload import Loaded, load

LEVELS = ("off", "light", "full")
TARGET = 0.03
QUICKSTART = recipe("quickstart").experiment
SIZES, LENGTH = QUICKSTART["batch"]["global_batch_sizes"], QUICKSTART["sequence_length"]
BUDGET = QUICKSTART["budget"]["token_budget"]


class Context(RunFolder):
    """A real run folder whose run nobody watches or stops."""

    def progress(self, step: int, steps: int, tokens: int, loss: float | None, tokens_per_second: float | None) -> None:
        pass

    def stop_requested(self) -> bool:
        return False


def spec_of(batch: int, level: str, threads: int) -> TrainSpec:
    interval = token_budget_of(BUDGET, SIZES, LENGTH, LOOKS[level])[1] if level in LOOKS else None
    return TrainSpec(
        workload=Workload(task=TaskReference(kind="recipe", target="quickstart"), sequence_length=LENGTH),
        layout=BatchLayout(global_batch_size=batch, micro_batch_size=batch, sequence_length=LENGTH),
        learning_rate=6e-3,
        token_budget=BUDGET // 4,
        optimizer=OptimizerSettings(config=OptimizerConfig(), batch_ratio=batch / 16),
        evaluation_interval=BUDGET // 4,
        evaluation_samples=32,
        log_points=50,
        diagnostics=Diagnostics(level=level, interval=interval) if interval else None,
        device=DeviceSettings(threads=threads),
    )


def timed(loaded: Loaded, spec: TrainSpec) -> tuple[float, float | None]:
    """Wall seconds of one run, and its final loss."""
    loaded.framework.start(spec.device, spec.seed)
    trainable = loaded.framework.trainable(loaded.task, spec.device, spec.optimizer)
    gc.collect()
    with tempfile.TemporaryDirectory() as folder:
        context = Context(Path(folder), spec)
        if not context.try_lock():
            raise SystemExit(f"{folder} is in use.")
        context.begin()
        started = time.perf_counter()
        ended = train(trainable, SampleStream(loaded.train, spec.seed), loaded.valid, spec, context)
        seconds = time.perf_counter() - started
        context.unlock()
    return seconds, ended.result.final_val_loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--repeats", type=int, default=7, help="rounds after one that warms up")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        reference = TaskReference(kind="recipe", target="quickstart")
        loaded = load(Workload(task=reference, sequence_length=LENGTH), Path(cache))
        environment = loaded.framework.environment(DeviceSettings(threads=arguments.threads))
        print(
            f"batchlab {environment.batchlab}, {environment.framework}, Python {environment.python}; "
            f"{environment.processor} ({environment.instruction_set}, {environment.cores} cores, {arguments.threads} "
            f"thread used), {platform.system()}; wall seconds, n = {arguments.repeats} rounds\n"
        )
        print("| batch | off ms/step | looks light / full | steps | cost light | min … max | cost full | min … max |")
        print("|---|---|---|---|---|---|---|---|")
        for batch in map(int, arguments.batch_sizes.split(",")):
            specs = {level: spec_of(batch, level, arguments.threads) for level in LEVELS}
            seconds: dict[str, list[float]] = {level: [] for level in LEVELS}
            for repeat in range(arguments.repeats + 1):
                order = LEVELS[repeat % 3 :] + LEVELS[: repeat % 3]
                ended = {level: timed(loaded, specs[level]) for level in order}
                if len({loss for _, loss in ended.values()}) > 1:
                    raise SystemExit(f"Looking changed the training: {ended}")
                for level, (taken, _) in ended.items():
                    seconds[level] += [taken] if repeat else []
            steps = specs["off"].steps
            cells = []
            for level in ("light", "full"):
                costs = sorted(s / off - 1 for s, off in zip(seconds[level], seconds["off"], strict=True))
                cells.append(f"{statistics.median(costs):+.1%} | {costs[0]:+.1%} … {costs[-1]:+.1%}")
            looks = " / ".join(str(BUDGET // 4 // specs[level].diagnostics.interval) for level in ("light", "full"))
            off = statistics.median(seconds["off"]) / steps * 1e3
            print(f"| {batch} | {off:.2f} | {looks} | {steps} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
