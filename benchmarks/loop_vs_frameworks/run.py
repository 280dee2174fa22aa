"""How fast is batchlab's training loop beside a bare loop, the Hugging Face Trainer, Lightning, Fabric and accelerate?

    .venv-integrations/bin/python benchmarks/loop_vs_frameworks/run.py studies/loop_vs_frameworks

Every loop trains the same decoder from the same initial weights on the same samples in the same order, in fp32, with
AdamW, clipping at 1 and a constant learning rate, and must end at the same loss: a ratio is valid only then. Timed are
the steps after the first few, so that imports, set-up and the making of loaders are left out. The loops alternate in
each round, in an order that rotates from round to round, after one round that warms up. batchlab's loop also writes a
row of metrics every few steps.

Ratio = seconds of another loop ÷ those of batchlab's in the same round (above 1: batchlab is faster), with a 95 %
interval of the mean log ratio over rounds, by Student's t. `--clock cpu` counts this process's processor seconds, which
other programs disturb less. Every round is kept in the folder, so the command goes on where it was stopped;
`--sizes 0.9M` measures the rows of that model alone.
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
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import batchlab
from batchlab.core.batch import BatchLayout, Unit
from batchlab.core.experiment import AcrossBatch, OptimizerConfig, ScheduleConfig, TaskReference
from batchlab.core.record import MetricRow
from batchlab.core.spec import DeviceSettings, OptimizerSettings, TrainSpec, Workload
from batchlab.data.samples import SampleDataset
from batchlab.data.stream import SampleStream
from batchlab.runs.train import train
from batchlab.storage.atomic import write_atomically
from batchlab.storage.run_folder import RunFolder
from batchlab.torch_.framework import TorchFramework
from batchlab.torch_.models.decoder import Decoder

LENGTH, VOCABULARY = 64, 256
SIZES = {"0.1M": (64, 2, 4, 192), "0.9M": (128, 4, 4, 384)}
"""Name → width, layers, heads, inner width."""

BATCHES = (1, 8, 64)
LEARNING_RATE, CLIP = 1e-3, 1.0
ADAMW: dict[str, Any] = {"betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
WARM = 3

Clock = Callable[[], float]
"""Seconds."""


@dataclass(frozen=True)
class Case:
    """What every loop trains: `steps` steps after WARM of them, of `batch` samples each.

    data: inputs and targets; x and y are the same in the order in which batchlab's loop takes them.
    """

    size: str
    batch: int
    steps: int
    data: tuple[np.ndarray, np.ndarray]
    x: Tensor
    y: Tensor

    @classmethod
    def make(cls, size: str, batch: int, steps: int) -> Case:
        count = batch * (WARM + steps)
        tokens = np.random.default_rng(0).integers(0, VOCABULARY, (count, LENGTH + 1))
        data = (tokens[:, :-1].copy(), tokens[:, 1:].copy())
        order = SampleStream(SampleDataset(data), 0).indices(0, count)
        return cls(size, batch, steps, data, *(torch.from_numpy(part[order]) for part in data))

    def model(self) -> nn.Module:
        width, layers, heads, inner = SIZES[self.size]
        torch.manual_seed(0)
        return Decoder(VOCABULARY, LENGTH, width, layers, heads, inner)

    @property
    def all_steps(self) -> int:
        return WARM + self.steps

    def loader(self) -> DataLoader[Any]:
        return DataLoader(TensorDataset(self.x, self.y), batch_size=self.batch)


@dataclass(frozen=True)
class Timed:
    """How long a loop took. The loss is that of the last step, but for batchlab's loop, whose rows have a mean over
    steps: that of the first sample after training, which the bare loop has as `first_sample`."""

    seconds: float
    loss: float
    first_sample: float = math.nan


def loss_of(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(model(x).flatten(0, 1), y.flatten())


def bare(case: Case, clock: Clock) -> Timed:
    model = case.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, **ADAMW)
    started = clock()
    for step in range(case.all_steps):
        if step == WARM:
            started = clock()
        at = slice(step * case.batch, (step + 1) * case.batch)
        loss = loss_of(model, case.x[at], case.y[at])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    seconds = clock() - started
    with torch.no_grad():
        first = loss_of(model, *(torch.from_numpy(part[:1]) for part in case.data))
    return Timed(seconds, loss.item(), first.item())


class _Rows(RunFolder):
    """A real run folder that notes when each row of metrics was written, and the loss after training."""

    clock: Clock
    times: list[tuple[int, float]]
    val_loss: float

    def row(self, row: MetricRow) -> None:
        super().row(row)
        if row.train_loss is not None:
            self.times.append((row.step, self.clock()))
        if row.val_loss is not None:
            self.val_loss = row.val_loss

    def progress(
        self, step: int, steps: int, tokens: int, train_loss: float | None, tokens_per_second: float | None
    ) -> None:
        pass

    def stop_requested(self) -> bool:
        return False


def ours(case: Case, clock: Clock) -> Timed:
    """A row of metrics after every WARM steps; the time runs from the first to the last of them."""
    task = batchlab.task(model=case.model, loss=loss_of, train=case.data, valid=case.data, sequence_length=LENGTH)
    layout = BatchLayout(global_batch_size=case.batch, micro_batch_size=case.batch, sequence_length=LENGTH)
    config = OptimizerConfig(
        beta1=ADAMW["betas"][0],
        beta2=ADAMW["betas"][1],
        weight_decay=ADAMW["weight_decay"],
        grad_clip=CLIP,
        across_batch=AcrossBatch.FIXED,
    )
    budget = case.all_steps * layout.tokens_per_step
    spec = TrainSpec(
        workload=Workload(task=TaskReference(kind="recipe", target="quickstart"), unit=Unit.TOKENS),
        layout=layout,
        learning_rate=LEARNING_RATE,
        token_budget=budget,
        schedule=ScheduleConfig(kind="constant", warmup_fraction=0.0),
        optimizer=OptimizerSettings(config=config),
        evaluation_interval=budget,
        evaluation_samples=1,
        evaluation_batch_size=1,
        log_points=case.all_steps // WARM,
        device=DeviceSettings(threads=1),
    )
    dataset = SampleDataset(case.data)
    with tempfile.TemporaryDirectory() as folder:
        context = _Rows(Path(folder), spec)
        context.clock, context.times = clock, []
        if not context.try_lock():
            raise SystemExit(f"{folder} is in use.")
        context.begin()
        trainable = TorchFramework().trainable(task, spec.device, spec.optimizer)
        train(trainable, SampleStream(dataset, 0), dataset, spec, context)
        context.unlock()
    (first, begun), (last, ended) = context.times[0], context.times[-1]
    return Timed((ended - begun) * case.steps / (last - first), context.val_loss)


def accelerate_loop(case: Case, clock: Clock) -> Timed:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = case.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, **ADAMW)
    model, optimizer, loader = accelerator.prepare(model, optimizer, case.loader())
    started = clock()
    for step, (x, y) in enumerate(loader):
        if step == WARM:
            started = clock()
        loss = loss_of(model, x, y)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
    return Timed(clock() - started, loss.item())


def fabric(case: Case, clock: Clock) -> Timed:
    import lightning

    made = lightning.Fabric(accelerator="cpu", devices=1)
    model = case.model()
    model, optimizer = made.setup(model, torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, **ADAMW))
    loader = made.setup_dataloaders(case.loader())
    started = clock()
    for step, (x, y) in enumerate(loader):
        if step == WARM:
            started = clock()
        loss = loss_of(model, x, y)
        made.backward(loss)
        made.clip_gradients(model, optimizer, max_norm=CLIP, error_if_nonfinite=False)
        optimizer.step()
        optimizer.zero_grad()
    return Timed(clock() - started, loss.item())


def lightning_trainer(case: Case, clock: Clock) -> Timed:
    import lightning

    times: dict[int, float] = {}

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.last = case.model(), torch.zeros(())

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            self.last = loss_of(self.model, *batch)
            return self.last

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=LEARNING_RATE, **ADAMW)

    class Times(lightning.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if trainer.global_step in (WARM, case.all_steps):
                times[trainer.global_step] = clock()

    module = Module()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=case.all_steps,
        gradient_clip_val=CLIP,
        callbacks=[Times()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, case.loader())
    return Timed(times[case.all_steps] - times[WARM], module.last.item())


def hf_trainer(case: Case, clock: Clock) -> Timed:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    times: dict[int, float] = {}

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.last = case.model(), torch.zeros(())

        def forward(self, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
            self.last = loss_of(self.model, input_ids, labels)
            return {"loss": self.last}

    class Times(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step in (WARM, case.all_steps):
                times[state.global_step] = clock()

    class Samples(torch.utils.data.Dataset[dict[str, Tensor]]):
        def __len__(self) -> int:
            return len(case.x)

        def __getitem__(self, index: int) -> dict[str, Tensor]:
            return {"input_ids": case.x[index], "labels": case.y[index]}

    model = Wrapped()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=case.batch,
            max_steps=case.all_steps,
            learning_rate=LEARNING_RATE,
            lr_scheduler_type="constant",
            optim="adamw_torch",
            adam_beta1=ADAMW["betas"][0],
            adam_beta2=ADAMW["betas"][1],
            adam_epsilon=ADAMW["eps"],
            weight_decay=ADAMW["weight_decay"],
            max_grad_norm=CLIP,
            train_sampling_strategy="sequential",
            logging_strategy="no",
            logging_nan_inf_filter=False,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=Samples(), callbacks=[Times()])
        trainer.get_decay_parameter_names = lambda model: [name for name, _ in model.named_parameters()]
        trainer.train()
    return Timed(times[case.all_steps] - times[WARM], model.last.item())


LOOPS: dict[str, Callable[[Case, Clock], Timed]] = {
    "batchlab": ours,
    "bare": bare,
    "HF Trainer": hf_trainer,
    "Lightning Trainer": lightning_trainer,
    "Fabric": fabric,
    "accelerate": accelerate_loop,
}


def interval(logs: list[float]) -> tuple[float, float, float]:
    """exp of the mean of log ratios, and of its 95 % interval."""
    mean = statistics.fmean(logs)
    half = float(stats.t.ppf(0.975, len(logs) - 1)) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


Round = dict[str, Timed]
"""Every loop once."""


@dataclass(frozen=True)
class Row:
    """The rounds of one model at one batch size, of so many timed steps, kept in a file."""

    path: Path
    steps: int
    rounds: tuple[Round, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Row | None:
        if not path.is_file():
            return None
        kept = json.loads(path.read_text(encoding="utf-8"))
        rounds = tuple({name: Timed(**timed) for name, timed in one.items()} for one in kept["rounds"])
        return cls(path, kept["steps"], rounds)

    def add(self, found: Round) -> Row:
        row = replace(self, rounds=(*self.rounds, found))
        rounds = [{name: asdict(timed) for name, timed in one.items()} for one in row.rounds]
        write_atomically(self.path, json.dumps({"steps": row.steps, "rounds": rounds}))
        return row


def one_round(case: Case, clock: Clock, turn: int) -> Round:
    """Every loop, beginning with another one in each turn. Ends the program where they computed different things."""
    names, found = list(LOOPS), Round()
    for name in names[turn % len(names) :] + names[: turn % len(names)]:
        gc.collect()
        found[name] = LOOPS[name](case, clock)
    expected = dict.fromkeys(LOOPS, found["bare"].loss) | {"batchlab": found["bare"].first_sample}
    if not all(math.isclose(found[name].loss, loss, rel_tol=1e-4) for name, loss in expected.items()):
        raise SystemExit(f"The loops computed different things: {found}")
    return found


def measure(size: str, batch: int, path: Path, arguments: argparse.Namespace, clock: Clock) -> Row:
    """The row with all its rounds. The first round of every process warms up and is dropped."""
    row = Row.read(path)
    if row is None:
        probe = bare(Case.make(size, batch, 5), clock)
        row = Row(path, max(3 * WARM, round(5 * arguments.seconds / probe.seconds / WARM) * WARM))
    if len(row.rounds) >= arguments.rounds:
        return row
    case = Case.make(size, batch, row.steps)
    one_round(case, clock, 0)
    for turn in range(len(row.rounds), arguments.rounds):
        row = row.add(one_round(case, clock, turn + 1))
    return row


def cells(row: Row, others: list[str]) -> list[str]:
    """The ratio of every other loop, with its interval."""
    found = []
    for name in others:
        logs = [math.log(one[name].seconds / one["batchlab"].seconds) for one in row.rounds]
        mean, low, high = interval(logs)
        found.append(f"{mean:.3f} [{low:.3f}, {high:.3f}]")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where rounds are kept")
    parser.add_argument("--rounds", type=int, default=7, help="rounds after one that warms up; at least 3")
    parser.add_argument("--seconds", type=float, default=1.0, help="approximate length of one loop")
    parser.add_argument("--clock", choices=("cpu", "wall"), default="wall")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    arguments = parser.parse_args()
    clock = time.process_time if arguments.clock == "cpu" else time.perf_counter
    arguments.folder.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    print(
        f"batchlab {batchlab.__version__}, torch {torch.__version__}, Python {platform.python_version()}, "
        f"{platform.system()}, 1 thread; {arguments.clock} seconds, n = {arguments.rounds} rounds\n"
    )
    others = [name for name in LOOPS if name != "batchlab"]
    print(f"| model | batch | steps | batchlab tokens/s | {' | '.join(others)} |")
    print(f"|---|---|---|---|{'---|' * len(others)}")
    for size in arguments.sizes:
        for batch in arguments.batches:
            row = measure(size, batch, arguments.folder / f"{size}-{batch}-{arguments.clock}.json", arguments, clock)
            speed = row.steps * batch * LENGTH / statistics.median(one["batchlab"].seconds for one in row.rounds)
            print(f"| {size} | {batch} | {row.steps} | {speed:,.0f} | {' | '.join(cells(row, others))} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
