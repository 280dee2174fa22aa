"""One tool searches for the largest batch of one task, in this process: `child.py TASK_FILE TOOL LIMIT_BYTES`.

run.py starts it afresh for every answer. The process is warmed up with two steps of a throw-away model (and of the
tool's own machinery). Then RLIMIT_DATA is set to what it holds plus the limit, and only then does the tool begin.
Prints one line of JSON. TOOL `fits-N` is a probe for the true size: three whole steps and an evaluation at batch N,
with the longest samples first.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from batchlab.core.protocols import Dataset
from batchlab.core.task import Task
from batchlab.data.source import open_dataset

STEPS = 3
CLIP = 1.0
LEARNING_RATE = 1e-3
LARGEST_EVALUATION = 64  # batchlab's own rule, so that all tools measure the same


@dataclass
class Account:
    """The cost and the result of a search."""

    found: int | None = None
    trials: int = 0
    out_of_memory: int = 0
    steps: int = 0
    error: str = ""


class Workload:
    """A task file, loaded for plain torch."""

    def __init__(self, path: Path) -> None:
        spec = importlib.util.spec_from_file_location(f"workload_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.task: Task = module.task
        self.train, self.valid = (self._open(source) for source in (self.task.train, self.task.valid))
        self._random = np.random.default_rng(0)

    def _open(self, source: Any) -> Dataset:
        return open_dataset(source, unit=self.task.unit, sequence_length=self.task.sequence_length, what="data")

    def start(self) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = self.task.model()
        assert self.task.optimizer is not None
        return model, self.task.optimizer(model.parameters(), LEARNING_RATE)

    def loss(self, model: torch.nn.Module, dataset: Dataset, indices: np.ndarray) -> torch.Tensor:
        x, y = (torch.from_numpy(np.require(part, requirements=("C", "W"))) for part in dataset.gather(indices))
        return self.task.loss(model, *(part if part.is_floating_point() else part.long() for part in (x, y)))

    def random_batch(self, size: int) -> np.ndarray:
        """A batch as an ordinary shuffled data loader serves it."""
        return self._random.choice(len(self.train), size, replace=size > len(self.train))

    def worst_batch(self, dataset: Dataset, size: int) -> np.ndarray:
        """The longest samples, if lengths differ."""
        lengths = getattr(dataset, "lengths", np.zeros(len(dataset)))
        return np.argsort(-lengths, kind="stable")[:size]

    def step(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, indices: np.ndarray) -> None:
        self.loss(model, self.train, indices).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def evaluate(self, model: torch.nn.Module, indices: np.ndarray) -> None:
        model.eval()
        with torch.no_grad():
            self.loss(model, self.valid, indices)
        model.train()

    def whole_run(self, size: int, account: Account, batch: Callable[[int], np.ndarray]) -> None:
        """A fresh model, three steps and an evaluation."""
        model, optimizer = self.start()
        for _ in range(STEPS):
            self.step(model, optimizer, batch(size))
            account.steps += 1
        self.evaluate(model, self.worst_batch(self.valid, min(size, LARGEST_EVALUATION)))


def probe(workload: Workload, size: int, account: Account) -> None:
    """Does this size fit? Any error under the limit means no; its message is kept."""
    account.trials = 1
    try:
        workload.whole_run(size, account, lambda count: workload.worst_batch(workload.train, count))
    except (RuntimeError, MemoryError) as error:
        account.out_of_memory, account.error = 1, _first_line(error)
    else:
        account.found = size


def plus_sixteen(workload: Workload, account: Account) -> None:
    """The search of a published script: start at 64, three steps each; success: 16 more; out of memory: half."""
    size, best, failed = 64, 0, sys.maxsize
    while size >= 1 and size < failed:
        account.trials += 1
        try:
            workload.whole_run(size, account, workload.random_batch)
        except (RuntimeError, MemoryError) as error:
            if not _says_memory(error):
                raise
            account.out_of_memory += 1
            failed = size
            if best:
                break
            size //= 2
        else:
            best = size
            size += 16
        gc.collect()
    account.found = best or None


def with_accelerate(workload: Workload, account: Account) -> None:
    """accelerate's decorator around the user's whole training function, from 512."""
    from accelerate.utils import find_executable_batch_size

    @find_executable_batch_size(starting_batch_size=512)
    def train(batch_size: int) -> int:
        account.trials += 1
        account.out_of_memory += 1  # undone below if there was none
        workload.whole_run(batch_size, account, workload.random_batch)
        account.out_of_memory -= 1
        return batch_size

    account.found = train()


def with_lightning(workload: Workload, account: Account, mode: str) -> None:
    """Lightning's tuner with its own defaults: 3 steps per trial from batch 2, and a margin of 5 % in binsearch."""
    from lightning.pytorch.tuner import batch_size_scaling
    from lightning.pytorch.tuner.tuning import Tuner

    trainer, module = _lightning(workload, account, max_steps=STEPS)
    run_trial = batch_size_scaling._try_loop_run

    def counted(*arguments: Any) -> None:
        account.trials += 1
        try:
            run_trial(*arguments)
        except (RuntimeError, MemoryError):
            account.out_of_memory += 1
            raise

    batch_size_scaling._try_loop_run = counted
    account.found = Tuner(trainer).scale_batch_size(module, mode=mode)


def _lightning(workload: Workload, account: Account, max_steps: int) -> tuple[Any, Any]:
    import lightning.pytorch as pl
    from torch.utils.data import DataLoader

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.batch_size = 2
            self.model, self._optimizer = workload.start()

        def training_step(self, batch: list[int], batch_idx: int) -> torch.Tensor:
            return workload.loss(self.model, workload.train, np.asarray(batch))

        def on_train_batch_end(self, *_: Any) -> None:
            account.steps += 1

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return self._optimizer

        def train_dataloader(self) -> DataLoader[int]:
            samples: Any = range(len(workload.train))
            return DataLoader(samples, self.batch_size, shuffle=True, collate_fn=list)

        def transfer_batch_to_device(self, batch: list[int], *_: Any) -> list[int]:
            return batch

    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=max_steps,
        gradient_clip_val=CLIP,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    return trainer, Module()


def warm_up(workload: Workload, tool: str) -> None:
    """Lazy imports and kernel caches of torch and of the tool belong to the process, not to the model."""
    workload.whole_run(2, Account(), lambda size: workload.worst_batch(workload.train, size))
    if tool == "accelerate":
        import accelerate.utils  # noqa: F401
    if tool in ("power", "binsearch"):
        import lightning.pytorch.tuner.tuning  # noqa: F401

        trainer, module = _lightning(workload, Account(), max_steps=1)
        trainer.fit(module)


def bound(limit: int) -> None:
    """Allow at most `limit` bytes of private writable memory beyond what this process holds now."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    held = int(status["VmData"].split()[0]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (held + limit, resource.RLIM_INFINITY))


def _says_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or "memory" in str(error) or "could not create a primitive" in str(error)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def main() -> int:
    path, tool, limit = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    sys.stdout = sys.stderr  # output of the tools must not mix with the line of JSON
    workload, account = Workload(path), Account()
    warm_up(workload, tool)
    bound(limit)
    started = time.perf_counter()
    try:
        match tool.partition("-"):
            case ("fits", _, size):
                probe(workload, int(size), account)
            case ("power" | "binsearch", _, _):
                with_lightning(workload, account, tool)
            case ("accelerate", _, _):
                with_accelerate(workload, account)
            case ("plus16", _, _):
                plus_sixteen(workload, account)
            case _:
                raise SystemExit(f"There is no tool {tool!r}.")
    except (RuntimeError, MemoryError) as error:
        account.found, account.error = None, _first_line(error)
    resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    seconds = time.perf_counter() - started
    print(json.dumps({**asdict(account), "search_seconds": round(seconds, 3)}), file=sys.__stdout__)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
