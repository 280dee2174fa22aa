"""How much slower is batchlab's training loop than a bare hand-written torch loop that does the same work?

    python benchmarks/loop_overhead/run.py

Both loops train a small decoder in this process on the same samples of the same memory-mapped text with the same
learning rate per step, clipping and fused AdamW. batchlab's loop also writes metrics; the bare one keeps its losses.
They alternate, and must end at the same loss: a ratio is valid only if both computed the same thing. Wall-clock seconds
by default, for an idle machine; `--clock cpu` uses this process's processor seconds, which other programs disturb less.
Ratio = batchlab's steps per second ÷ those of the bare loop; the target is 0.97.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import OptimizerConfig, ScheduleConfig, TaskReference
from batchlab.core.schedule import Schedule
from batchlab.core.spec import DeviceSettings, OptimizerSettings, TrainSpec, Workload
from batchlab.data.stream import SampleStream
from batchlab.runs.train import train
from batchlab.runs.workload import Loaded, load
from batchlab.scaling import beta2_at
from batchlab.storage.run_folder import RunFolder

TARGET = 0.97
SEQUENCE_LENGTH = 64
MODEL = {"d_model": 64, "layers": 2, "heads": 4, "d_ff": 192}
"""139,584 parameters at 256 byte values."""
REFERENCE_BATCH = 16
LEARNING_RATE = 6e-3
LAYOUTS = ((4, 1), (16, 1), (64, 1), (4, 4), (16, 4))  # micro-batch size × accumulation


class Context(RunFolder):
    """A real run folder without progress reports or stop requests."""

    def progress(
        self, step: int, steps: int, tokens: int, train_loss: float | None, tokens_per_second: float | None
    ) -> None:
        pass

    def stop_requested(self) -> bool:
        return False


@dataclass
class Timed:
    seconds: float
    last_loss: float  # mean over the steps of the last row of metrics


def bare_loop(loaded: Loaded, spec: TrainSpec, order: np.ndarray, clock: Callable[[], float]) -> Timed:
    """A loop as written by hand: only the training."""
    layout, config = spec.layout, spec.optimizer.config
    accumulation, micro = layout.grad_accum_steps, layout.micro_batch_size
    schedule = Schedule(spec.schedule, spec.learning_rate, spec.token_budget)
    rates = [schedule.mean(k * layout.tokens_per_step, (k + 1) * layout.tokens_per_step) for k in range(spec.steps)]
    tokens = loaded.train.tokens
    offsets = np.arange(SEQUENCE_LENGTH + 1)
    torch.manual_seed(spec.seed)
    model = loaded.task.model()
    betas = (config.beta1, beta2_at(config.beta2, spec.optimizer.batch_ratio))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=rates[0], betas=betas, weight_decay=config.weight_decay, fused=True
    )
    losses = []
    started = clock()
    for step, rate in enumerate(rates):
        step_loss = torch.zeros(())
        for piece in range(accumulation):
            first = (step * accumulation + piece) * micro
            rows = tokens[order[first : first + micro, None] * SEQUENCE_LENGTH + offsets]
            x = torch.from_numpy(rows[:, :-1].astype(np.int64))
            y = torch.from_numpy(rows[:, 1:].astype(np.int64))
            loss = cross_entropy(model(x).flatten(0, 1), y.flatten()) / accumulation
            loss.backward()
            step_loss += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(step_loss)
    seconds = clock() - started
    row_every = max(1, spec.steps // spec.log_points)
    return Timed(seconds, torch.stack(losses[-(spec.steps % row_every or row_every) :]).mean().item())


def batchlab_loop(loaded: Loaded, spec: TrainSpec, folder: Path, clock: Callable[[], float]) -> Timed:
    """`runs.train.train` with metrics on disk. Its own clock leaves out `init` and the evaluation at the end, which the
    bare loop does not have; here `clock` is used in the same way."""
    trainable = loaded.framework.trainable(loaded.task, spec.device, spec.optimizer)
    trainable.synchronize = clock  # type: ignore[method-assign]
    context = Context(folder, spec)
    if not context.try_lock():
        raise SystemExit(f"{folder} is in use.")
    context.begin()
    ended = train(trainable, SampleStream(loaded.train, spec.seed), loaded.valid, spec, context)
    context.unlock()
    rows = (context.path / "metrics.jsonl").read_text().splitlines()
    last = [row for row in map(json.loads, rows) if "train_loss" in row][-1]
    return Timed(ended.result.seconds, last["train_loss"])


def measure(loaded: Loaded, micro: int, accumulation: int, arguments: argparse.Namespace) -> tuple[str, float]:
    """One row of the table, and its median ratio."""
    batch = micro * accumulation
    clock = time.process_time if arguments.clock == "cpu" else time.perf_counter
    steps = max(20, round(arguments.seconds * 45_000 / (batch * SEQUENCE_LENGTH)))
    layout = BatchLayout(global_batch_size=batch, micro_batch_size=micro, sequence_length=SEQUENCE_LENGTH)
    spec = TrainSpec(
        workload=Workload(
            task=TaskReference(kind="recipe", target="quickstart"), sequence_length=SEQUENCE_LENGTH, model=MODEL
        ),
        layout=layout,
        learning_rate=LEARNING_RATE,
        token_budget=steps * layout.tokens_per_step,
        schedule=ScheduleConfig(),
        optimizer=OptimizerSettings(config=OptimizerConfig(), batch_ratio=batch / REFERENCE_BATCH),
        evaluation_interval=steps * layout.tokens_per_step,
        evaluation_samples=32,
        log_points=max(1, steps // 8),
        device=DeviceSettings(threads=arguments.threads),
    )
    order = SampleStream(loaded.train, spec.seed).order.indices(0, steps * batch)
    bare, ours = [], []
    for repeat in range(arguments.repeats + 1):  # the first pair warms up
        pair = {}
        with tempfile.TemporaryDirectory() as folder:
            for which in ("bare", "ours") if repeat % 2 else ("ours", "bare"):
                loaded.framework.start(spec.device, spec.seed)
                gc.collect()
                if which == "bare":
                    pair[which] = bare_loop(loaded, spec, order, clock)
                else:
                    pair[which] = batchlab_loop(loaded, spec, Path(folder), clock)
        if not math.isclose(pair["bare"].last_loss, pair["ours"].last_loss, rel_tol=1e-3):
            raise SystemExit(f"The two loops computed different things: {pair}")
        if repeat:
            bare.append(pair["bare"])
            ours.append(pair["ours"])
    ratios = sorted(one.seconds / other.seconds for one, other in zip(bare, ours, strict=True))
    step_ms = [statistics.median(timed.seconds for timed in side) / steps * 1e3 for side in (bare, ours)]
    ratio = statistics.median(ratios)
    row = (
        f"| {micro} × {accumulation} | {steps} | {step_ms[0]:.3f} | {step_ms[1]:.3f} | {ratio:.3f} "
        f"| {ratios[0]:.3f} … {ratios[-1]:.3f} | {bare[-1].last_loss:.4f} / {ours[-1].last_loss:.4f} |"
    )
    return row, ratio


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7, help="pairs after one warm-up pair; at least 5")
    parser.add_argument("--seconds", type=float, default=2.0, help="approximate duration of each loop")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=("cpu", "wall"), default="wall")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        reference = TaskReference(kind="recipe", target="quickstart")
        loaded = load(Workload(task=reference, sequence_length=SEQUENCE_LENGTH, model=MODEL), Path(cache))
        loaded.framework.start(DeviceSettings(threads=arguments.threads), 0)
        environment = loaded.framework.environment(DeviceSettings(threads=arguments.threads))
        print(
            f"batchlab {environment.batchlab}, {environment.framework}, Python {environment.python}, numpy "
            f"{environment.numpy}; {environment.processor} ({environment.instruction_set}, {environment.cores} cores, "
            f"{environment.threads} threads used), {platform.system()}; {arguments.clock} seconds, "
            f"n = {arguments.repeats} pairs\n"
        )
        print(
            "| micro-batch × accumulation | steps | bare ms/step | batchlab ms/step | ratio | min … max | last loss |"
        )
        print("|---|---|---|---|---|---|---|")
        ratios = []
        for micro, accumulation in LAYOUTS:
            row, ratio = measure(loaded, micro, accumulation, arguments)
            print(row, flush=True)
            ratios.append(ratio)
    print(f"\nSmallest median ratio {min(ratios):.3f}; target ≥ {TARGET}.")
    return 0 if min(ratios) >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
