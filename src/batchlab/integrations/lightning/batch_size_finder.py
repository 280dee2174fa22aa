"""A drop-in for Lightning's BatchSizeFinder that ends at the largest size which fits, not at a power of two.

    from batchlab.integrations.lightning import BatchSizeFinder

It takes Lightning's arguments and runs Lightning's trials, but chooses the sizes by the memory that each trial used, so
most of them fit. It works in your own process, and what a failed trial leaves behind can make a later one fail;
`batchlab capacity lit.py:make` runs every trial in a fresh one, with accumulation and the longest sample.
"""

from __future__ import annotations

import os
import uuid
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
from batchlab.search.capacity import CapacitySearch, Probed, Trace
from batchlab.torch_ import memory

_dump = getattr(scaling, "__scale_batch_dump_params")
_reset = getattr(scaling, "__scale_batch_reset_params")
_restore = getattr(scaling, "__scale_batch_restore_params")


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
        device = module.device
        trainer._active_loop.setup_data()
        samples = int(trainer._active_loop._combined_loader._dataset_length())
        search = CapacitySearch(
            self._limit(device),
            most=min(self._max_val, samples),
            headroom=lambda limit: round(self._margin * limit),
        )
        trials = 0
        while trials < self._max_trials and (asked := search.ask()):
            question = asked[0]
            if isinstance(question, Trace):
                search.tell(asked, [()])  # the module is not traced
                continue
            search.tell(asked, [self._trial(trainer, module, question.size, parameters)])
            trials += 1
        if search.largest is None:
            raise MemoryError(f"Not even a batch of one sample fits on {device}.")
        return search.largest

    def _trial(self, trainer: lightning.Trainer, module: Any, size: int, parameters: Any) -> Probed:
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
            return Probed(False)
        return Probed(True, memory.read(module.device).peak_bytes)

    def _limit(self, device: torch.device) -> int:
        if self._memory_limit is not None:
            return self._memory_limit
        if device.type == "cuda":
            return torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
        return memory.device_total(device) if device.type != "cpu" else int(psutil.virtual_memory().available)
