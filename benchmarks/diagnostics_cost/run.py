"""What do the diagnostic snapshots of a run cost (`diagnostics = light` and `full`)?

    python benchmarks/diagnostics_cost/run.py

A small decoder trains in this process: one plain step, one with a light snapshot and one with a full snapshot, in
rotating order, through the same `Observer` and `one_step` as the training loop, with the rows on disk. The cost of a
snapshot is the median over rounds of (observed step − plain step of the same round). The cost of a run is that times
its snapshots ÷ (its steps × the median plain step), for a run of 262,144 tokens. Wall-clock seconds by default, for
an idle machine; `--clock cpu` uses this process's processor seconds, which other programs disturb less.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import OptimizerConfig, TaskReference
from batchlab.core.spec import DeviceSettings, Diagnostics, OptimizerSettings, TrainSpec, Workload
from batchlab.data.stream import SampleStream
from batchlab.runs.observation import Observer
from batchlab.runs.step import one_step
from batchlab.runs.workload import Loaded, load
from batchlab.search.budget import token_budget_of
from batchlab.storage.run_folder import RunFolder
from batchlab.study.stages.sweep import LOOKS

LEVELS = ("off", "light", "full")
TARGET = 0.03
MODEL = {"d_model": 64, "layers": 2, "heads": 4, "d_ff": 192}
SIZES, LENGTH, BUDGET = (2, 4, 8, 16, 32, 64), 64, 262_144


class Context(RunFolder):
    """A real run folder without progress reports or stop requests."""

    def progress(
        self, step: int, steps: int, tokens: int, train_loss: float | None, tokens_per_second: float | None
    ) -> None:
        pass

    def stop_requested(self) -> bool:
        return False


def spec_of(batch: int, level: str, threads: int) -> TrainSpec:
    """A run with a diagnostic snapshot after every step."""
    layout = BatchLayout(global_batch_size=batch, micro_batch_size=batch, sequence_length=LENGTH)
    return TrainSpec(
        workload=Workload(task=TaskReference(kind="recipe", target="quickstart"), sequence_length=LENGTH, model=MODEL),
        layout=layout,
        learning_rate=6e-3,
        token_budget=BUDGET,
        optimizer=OptimizerSettings(config=OptimizerConfig(), batch_ratio=batch / 16),
        evaluation_interval=BUDGET,
        diagnostics=None if level == "off" else Diagnostics(level=level, interval=layout.tokens_per_step),
        device=DeviceSettings(threads=threads),
    )


def timed_steps(
    loaded: Loaded, specs: dict[str, TrainSpec], rounds: int, clock: Callable[[], float], folder: Path
) -> dict[str, list[float]]:
    """Milliseconds of a step at each level, one of each per round, after three warm-up rounds."""
    spec = specs["off"]
    loaded.framework.start(spec.device, spec.seed)
    trainable = loaded.framework.trainable(loaded.task, spec.device, spec.optimizer)
    trainable.init(spec.seed)
    stream = SampleStream(loaded.train, spec.seed)
    context = Context(folder, spec)
    if not context.try_lock():
        raise SystemExit(f"{folder} is in use.")
    context.begin()
    context.load_checkpoint()
    observers = {level: Observer(trainable, loaded.valid, specs[level], context) for level in LEVELS}
    taken: dict[str, list[float]] = {level: [] for level in LEVELS}
    step = 0
    for turn in range(rounds + 3):
        for level in LEVELS[turn % 3 :] + LEVELS[: turn % 3]:
            started = clock()
            observers[level].before(step)
            one_step(trainable, stream, spec.layout, step, 1e-3)
            step += 1
            observers[level].after(step)
            taken[level] += [1e3 * (clock() - started)] if turn >= 3 else []
    context.unlock()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=("cpu", "wall"), default="wall")
    arguments = parser.parse_args()
    clock = time.process_time if arguments.clock == "cpu" else time.perf_counter
    with tempfile.TemporaryDirectory() as cache:
        reference = TaskReference(kind="recipe", target="quickstart")
        loaded = load(Workload(task=reference, sequence_length=LENGTH, model=MODEL), Path(cache))
        environment = loaded.framework.environment(DeviceSettings(threads=arguments.threads))
        print(
            f"batchlab {environment.batchlab}, {environment.framework}, Python {environment.python}; "
            f"{environment.processor} ({environment.instruction_set}, {environment.cores} cores, {arguments.threads} "
            f"thread used), {platform.system()}; {arguments.clock} seconds, n = {arguments.rounds} rounds; "
            "brackets: the middle half of the rounds\n"
        )
        print(
            "| batch | plain step, ms | light snapshot, ms | full snapshot, ms | snapshots per run "
            "| cost of light | cost of full |"
        )
        print("|---|---|---|---|---|---|---|")
        worst = 0.0
        for batch in map(int, arguments.batch_sizes.split(",")):
            specs = {level: spec_of(batch, level, arguments.threads) for level in LEVELS}
            with tempfile.TemporaryDirectory() as folder:
                taken = timed_steps(loaded, specs, arguments.rounds, clock, Path(folder))
            plain = statistics.median(taken["off"])
            snapshots, texts, shares = [], [], []
            for level in ("light", "full"):
                extra = [observed - off for observed, off in zip(taken[level], taken["off"], strict=True)]
                low, median, high = statistics.quantiles(extra, n=4)
                snapshots.append(BUDGET // token_budget_of(BUDGET, SIZES, LENGTH, LOOKS[level])[1])
                texts.append(f"{median:.2f} [{low:.2f}, {high:.2f}]")
                shares.append(median * snapshots[-1] / (plain * specs["off"].steps))
            worst = max(worst, shares[0])
            print(
                f"| {batch} | {plain:.2f} | {' | '.join(texts)} | {snapshots[0]} and {snapshots[1]} "
                f"of {specs['off'].steps:,} steps | {' | '.join(f'{100 * share:.1f} %' for share in shares)} |",
                flush=True,
            )
    print(f"\nLight diagnostics cost at most {100 * worst:.1f} %; target ≤ {100 * TARGET:g} %.")


if __name__ == "__main__":
    main()
