"""A drop-in for Lightning's BatchSizeFinder that ends at the largest size which fits, not at a power of two.

    from batchlab.integrations.lightning import BatchSizeFinder

It takes Lightning's arguments and runs Lightning's trials, but chooses the sizes by the memory that each trial used, so
most of them fit. It works in your own process, and what a failed trial leaves behind can make a later one fail;
`batchlab capacity lit.py:make` runs every trial in a fresh one, with accumulation and the longest sample.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, field
from typing import Any

import lightning
import psutil
import torch
from lightning.pytorch.callbacks import BatchSizeFinder as LightningFinder
from lightning.pytorch.tuner import batch_size_scaling as scaling
from lightning.pytorch.utilities.exceptions import _TunerExitException
from lightning.pytorch.utilities.parsing import lightning_setattr

from batchlab.core.out_of_memory import as_out_of_memory
from batchlab.core.parse import parse_memory_limit
from batchlab.torch_ import memory

_dump = getattr(scaling, "__scale_batch_dump_params")
_reset = getattr(scaling, "__scale_batch_reset_params")
_restore = getattr(scaling, "__scale_batch_restore_params")


@dataclass(slots=True)
class Sizes:
    """The sizes to try: along the line through the peaks of the two largest that fit, and at least twice the last one;
    where a failure contradicts the line, the middle of what is left. budget: bytes that a size may need."""

    most: int
    budget: int
    largest: int = 0
    peaks: dict[int, int] = field(default_factory=dict)
    ceiling: int | None = None

    def next(self) -> int | None:
        """The next size; None where the largest is known."""
        if self.largest >= (self.most if self.ceiling is None else self.ceiling - 1):
            return None
        line = self._by_line()
        if self.ceiling is None:
            return min(self.most, max(2, 2 * self.largest, line))
        return line if self.largest < line < self.ceiling else (self.largest + self.ceiling) // 2

    def tell(self, size: int, peak: int | None) -> None:
        """The peak at this size; None where it did not fit. One above the budget does not fit either."""
        if peak is None or peak > self.budget:
            self.ceiling = size
        else:
            self.largest, self.peaks[size] = size, peak

    def _by_line(self) -> int:
        """The largest size within the budget by the last two peaks; 0 where these do not say."""
        if len(self.peaks) < 2:
            return 0
        (one, below), (two, above) = sorted(self.peaks.items())[-2:]
        slope = (above - below) / (two - one)
        return two + int((self.budget - above) / slope) if slope > 0 else 0


class BatchSizeFinder(LightningFinder):
    """Finds the largest batch size of a module or datamodule with an attribute `batch_size`, when `fit` begins.

    Lightning's arguments. `mode` and `init_val` change nothing; `margin` is the share of the memory that stays free.
    memory_limit: bytes, or text like "16GiB", that the process may use; default: what is free on the device.
    """

    def __init__(self, *arguments: Any, memory_limit: int | str | None = None, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._memory_limit = None if memory_limit is None else parse_memory_limit(memory_limit)

    def scale_batch_size(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Set the attribute to the largest size that fits; module, optimizer and loops are then as they were."""
        if trainer.fast_dev_run:
            return
        kept = os.path.join(trainer.default_root_dir, f".batch_size_{uuid.uuid4()}.ckpt")
        trainer.save_checkpoint(kept)
        parameters = _dump(trainer)
        _reset(trainer, self._steps_per_trial)
        try:
            found = self._search(trainer, pl_module, parameters)
            self.optimal_batch_size = found
            lightning_setattr(pl_module, self._batch_arg_name, found)
        finally:
            _restore(trainer, parameters)
            trainer._checkpoint_connector.restore(kept)
            trainer.strategy.remove_checkpoint(kept)
        if self._early_exit:
            raise _TunerExitException

    def _search(self, trainer: lightning.Trainer, module: lightning.LightningModule, parameters: Any) -> int:
        trainer._active_loop.setup_data()
        samples = int(trainer._active_loop._combined_loader._dataset_length())
        sizes = Sizes(most=min(self._max_val, samples), budget=round((1 - self._margin) * self._limit(module.device)))
        for _ in range(self._max_trials):
            size = sizes.next()
            if size is None:
                break
            sizes.tell(size, self._trial(trainer, module, size, parameters))
        if not sizes.largest:
            raise MemoryError(f"Not even a batch of one sample fits on {module.device}.")
        return sizes.largest

    def _trial(self, trainer: lightning.Trainer, module: Any, size: int, parameters: Any) -> int | None:
        """Peak bytes of a few steps at this size; None where they ran out of memory."""
        memory.release(module.device)
        memory.restart_peak(module.device)
        try:
            scaling._reset_progress(trainer)
            lightning_setattr(module, self._batch_arg_name, size)
            scaling._reset_dataloaders(trainer)
            scaling._try_loop_run(trainer, parameters)
        except Exception as error:
            if as_out_of_memory(error) is None:
                raise
            return None
        return memory.read(module.device).peak_bytes or 0

    def _limit(self, device: torch.device) -> int:
        if self._memory_limit is not None:
            return self._memory_limit
        if device.type == "cuda":
            return torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
        return memory.device_total(device) if device.type != "cpu" else int(psutil.virtual_memory().available)
