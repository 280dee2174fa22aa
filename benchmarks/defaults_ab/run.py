"""Are the default schedule, warm-up and batch-size rule of the optimizer good choices on real text?

    python benchmarks/defaults_ab/run.py [--write]

Trains a small decoder on tinyshakespeare (bytes, ../shared/data) with one setting changed at a time. The learning rate
of every variant is tuned on one seed over half-decades, with one more rate beyond an edge, and judged on other seeds,
which all variants share: the same tokens in the same order. A difference is told in nats with the 95 % interval of its
pairs. About ten minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from batchlab.analysis.sweep.noise import t_quantile
from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import DataConfig, OptimizerConfig, ScheduleConfig, TaskReference
from batchlab.core.format import format_learning_rate, format_signed
from batchlab.core.record import MetricRow, TrainResult
from batchlab.core.spec import DeviceSettings, OptimizerSettings, TrainSpec, Workload
from batchlab.data.stream import SampleStream
from batchlab.runs.train import train
from batchlab.runs.workload import Loaded, load

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "tinyshakespeare" / "input.txt"
MODEL = {"d_model": 32, "layers": 1, "heads": 2, "d_ff": 96}
SEQUENCE_LENGTH = 32
TOKENS = 262_144
REFERENCE = 32
RATES = tuple(3e-3 * 10 ** (place / 4) for place in range(5))
TUNED_ON, JUDGED_ON = 0, (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Variant:
    """Settings that differ from the defaults, at one batch size."""

    name: str
    batch: int = REFERENCE
    schedule: Mapping[str, Any] = field(default_factory=dict)
    optimizer: Mapping[str, Any] = field(default_factory=dict)


DEFAULT = "default"
QUESTIONS: Mapping[str, tuple[Variant, ...]] = {
    "Schedule (batch 32)": (
        Variant(DEFAULT),
        Variant("cosine to 0", schedule={"final_fraction": 0.0}),
        Variant("WSD, decay 20 %, to 0", schedule={"kind": "wsd", "final_fraction": 0.0}),
        Variant("WSD, decay 20 %, to 10 %", schedule={"kind": "wsd"}),
        Variant("constant", schedule={"kind": "constant"}),
    ),
    "Warm-up (batch 32)": (
        Variant(DEFAULT),
        Variant("2 %", schedule={"warmup_fraction": 0.02}),
        Variant("5 %", schedule={"warmup_fraction": 0.05}),
        Variant("20 %", schedule={"warmup_fraction": 0.2}),
    ),
    "Optimizer at a quarter of the reference batch (8)": (
        Variant(DEFAULT, 8),
        Variant("fixed", 8, optimizer={"across_batch": "fixed"}),
        Variant("half-life and decay", 8, optimizer={"across_batch": "half_life_and_decay"}),
    ),
    "Optimizer at four times the reference batch (128)": (
        Variant(DEFAULT, 128),
        Variant("fixed", 128, optimizer={"across_batch": "fixed"}),
        Variant("half-life and decay", 128, optimizer={"across_batch": "half_life_and_decay"}),
    ),
}


class NoFolder:
    """A run's context without a folder: rows are dropped and nothing is kept."""

    cache_dir = path = Path(os.devnull)
    repaired_lines = 0

    def row(self, row: MetricRow) -> None: ...

    def progress(self, *_: object) -> None: ...

    def save_checkpoint(self, header: Mapping[str, Any], write_state: object) -> None: ...

    def load_checkpoint(self) -> None: ...

    def keep_end(self, header: Mapping[str, Any], write_state: object) -> None: ...

    def end_of(self, run_id: str) -> None: ...

    def stop_requested(self) -> bool:
        return False


class Trainer:
    """Trains one variant after the other in this process. Losses are kept in a file, so that a stopped run goes on."""

    def __init__(self, kept: Path | None) -> None:
        reference = TaskReference(kind="recipe", target="quickstart")
        self.workload = Workload(
            task=reference, sequence_length=SEQUENCE_LENGTH, model=MODEL, data=DataConfig(path=str(DATA))
        )
        self._cache = tempfile.TemporaryDirectory()
        self.loaded: Loaded = load(self.workload, Path(self._cache.name))
        self.kept = kept
        lines = kept.read_text().splitlines() if kept and kept.exists() else []
        self.losses: dict[str, float] = dict(json.loads(line) for line in lines)

    def loss(self, variant: Variant, rate: float, seed: int) -> float:
        """Validation loss at the end of a run."""
        key = repr((variant, f"{rate:.6g}", seed))
        if key not in self.losses:
            self.losses[key] = self._train(variant, rate, seed)
            if self.kept:
                with self.kept.open("a") as lines:
                    lines.write(json.dumps((key, self.losses[key])) + "\n")
        return self.losses[key]

    def _train(self, variant: Variant, rate: float, seed: int) -> float:
        layout = BatchLayout(
            global_batch_size=variant.batch, micro_batch_size=variant.batch, sequence_length=SEQUENCE_LENGTH
        )
        config = OptimizerConfig(reference_batch_size=REFERENCE, reference_learning_rate=RATES[2], **variant.optimizer)
        device = DeviceSettings(threads=1)
        spec = TrainSpec(
            workload=self.workload,
            layout=layout,
            learning_rate=rate,
            seed=seed,
            token_budget=TOKENS,
            optimizer=OptimizerSettings(config=config, batch_ratio=variant.batch / REFERENCE),
            schedule=ScheduleConfig(**variant.schedule),
            evaluation_interval=TOKENS,
            evaluation_samples=2048,
            evaluation_batch_size=128,
            device=device,
            checkpoint_seconds=1e9,
        )
        self.loaded.framework.start(device, seed)
        trainable = self.loaded.framework.trainable(self.loaded.task, device, spec.optimizer)
        stream = SampleStream(self.loaded.train, seed=seed)
        found = train(trainable, stream, self.loaded.valid, spec, NoFolder()).result
        assert isinstance(found, TrainResult)
        return float("inf") if found.val_loss is None else found.val_loss

    def best_rate(self, variant: Variant) -> float:
        """The best of RATES on the tuning seed; beyond an edge until a rate is worse."""
        losses = {rate: self.loss(variant, rate, TUNED_ON) for rate in RATES}
        step = RATES[1] / RATES[0]
        while True:
            best = min(losses, key=lambda rate: losses[rate])
            beyond = min(losses) / step if best == min(losses) else max(losses) * step if best == max(losses) else None
            if beyond is None:
                return best
            losses[beyond] = self.loss(variant, beyond, TUNED_ON)


def rows_of(trainer: Trainer, variants: Sequence[Variant]) -> list[str]:
    """One line per variant: its rate, its mean loss, and the difference from the first one in pairs."""
    reference = None
    lines = ["| variant | best LR | loss | against the default, nats |", "|---|---:|---:|---:|"]
    for variant in variants:
        rate = trainer.best_rate(variant)
        losses = [trainer.loss(variant, rate, seed) for seed in JUDGED_ON]
        reference = reference or losses
        differences = [one - other for one, other in zip(losses, reference, strict=True)]
        told = "–"
        if losses is not reference:
            value = statistics.fmean(differences)
            half = t_quantile(0.975, len(differences) - 1) * statistics.stdev(differences) / len(differences) ** 0.5
            told = f"{format_signed(value)} [{format_signed(value - half)}, {format_signed(value + half)}]"
        lines.append(f"| {variant.name} | {format_learning_rate(rate)} | {statistics.fmean(losses):.4f} | {told} |")
        print(lines[-1], file=sys.stderr, flush=True)
    return lines


def rates_across(trainer: Trainer) -> list[str]:
    """The best learning rate of each batch size, and what each rule predicts from the reference size."""
    sizes = (8, REFERENCE, 128)
    best = {size: trainer.best_rate(Variant(DEFAULT, size)) for size in sizes}
    lines = ["| batch | best LR | keep | square root | linear |", "|---:|---:|---:|---:|---:|"]
    for size in sizes:
        ratio = size / REFERENCE
        rules = (best[REFERENCE] * ratio**exponent for exponent in (0.0, 0.5, 1.0))
        told = " | ".join(format_learning_rate(rate) for rate in rules)
        lines.append(f"| {size} | {format_learning_rate(best[size])} | {told} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--keep", type=Path, help="file of losses, with which a stopped run goes on")
    given = parser.parse_args()
    if not DATA.is_file():
        print("The text is not available (../shared/data/tinyshakespeare); nothing was run.")
        return 0
    torch.set_num_threads(1)
    begun = time.process_time()
    trainer = Trainer(given.keep)
    parts = [f"## {title}\n\n" + "\n".join(rows_of(trainer, variants)) for title, variants in QUESTIONS.items()]
    parts.append("## Learning rate across batch sizes\n\n" + "\n".join(rates_across(trainer)))
    here = Path(__file__).parent
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=True).stdout
    head = (
        "# Defaults, one changed at a time\n\n"
        "Written by `python benchmarks/defaults_ab/run.py --write`; do not edit.\n\n"
        f"A decoder of 29,792 parameters, sequences of {SEQUENCE_LENGTH} bytes of tinyshakespeare, {TOKENS:,} tokens "
        f"per run. Learning rates are tuned on seed {TUNED_ON}, a quarter of a decade apart; losses are means of "
        f"{len(JUDGED_ON)} other seeds, which all variants share; brackets are 95 % intervals of the pairs. "
        f"{len(trainer.losses)} distinct runs. Commit {commit.strip()}, torch {torch.__version__}, Python "
        f"{platform.python_version()}, {os.cpu_count()} cores, one used; {time.process_time() - begun:.0f} s of "
        "CPU.\n\n"
        "The default is a cosine to 10 % with 10 % warm-up, and `half_life` across batch sizes.\n\n"
    )
    text = head + "\n\n".join(parts) + "\n"
    print(text, end="")
    if given.write:
        (here / "results.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
