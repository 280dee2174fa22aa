"""What a person's `make()` returns, made ready for one run: a fresh module, and loaders of another batch size.

The learning rate is the study's: the groups of the module's optimizer keep the ratios of their learning rates, and its
own schedulers are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler

from batchlab.core.errors import InputError
from batchlab.core.experiment import AcrossBatch
from batchlab.core.spec import DeviceSettings, OptimizerSettings, Workload
from batchlab.integrations.data_digest import digest_of_samples, require_same_data
from batchlab.integrations.fresh import require_fresh
from batchlab.integrations.person_file import made_by, person_function
from batchlab.scaling import beta2_at, epsilon_at, weight_decay_at
from batchlab.torch_.random_state import seed_everything


@dataclass(slots=True)
class Made:
    """A module and its loaders, as the person's file has them, and the Trainer it has for them, if any."""

    module: lightning.LightningModule
    train: DataLoader[Any]
    held_out: DataLoader[Any]
    trainer: lightning.Trainer | None
    name: str

    @property
    def train_data(self) -> Any:
        """The training samples: a data set with a length."""
        return self.train.dataset

    @property
    def held_out_data(self) -> Any:
        """The held-out samples."""
        return self.held_out.dataset

    def loader(self, batch_size: int, seed: int) -> tuple[DataLoader[Any], Any]:
        """The training loader at another batch size, and its sampler. Shuffled data has an order of its own per seed,
        which does not depend on the batch size."""
        sampler: Any = SequentialSampler(self.train_data)
        if isinstance(self.train.sampler, RandomSampler):
            sampler = RandomSampler(self.train_data, generator=torch.Generator().manual_seed(seed))
        return _rebuilt(self.train, batch_size, sampler), sampler

    def held_out_loader(self, batch_size: int, samples: int) -> DataLoader[Any]:
        """The first held-out samples, in their order."""
        first = range(min(samples, len(self.held_out_data)))
        return _rebuilt(self.held_out, batch_size, first, drop_last=False)

    def of_one_sample(self, index: int, batch_size: int, batches: int, *, held_out: bool = False) -> DataLoader[Any]:
        """A loader that gives one sample again and again."""
        loader = self.held_out if held_out else self.train
        return _rebuilt(loader, batch_size, [index] * (batch_size * batches), drop_last=False)


class Modules:
    """What `make()` in the person's file makes: (module, datamodule), or (module, train loader, held-out loader), each
    with a lightning.Trainer at the end if clipping and precision should be its."""

    def __init__(self, workload: Workload) -> None:
        """Raises InputError where the file does not import or has no such function."""
        _, self._make = person_function(workload)
        self.workload = workload
        self.name = f"{workload.task.attribute} in {Path(workload.task.target).name}"

    def make(self, seed: int) -> Made:
        """A fresh module with its data. Raises InputError where it is none, or one that an earlier run has trained."""
        seed_everything(seed)
        parts = made_by(self._make, self.workload, "a LightningModule and its data")
        parts = list(parts) if isinstance(parts, tuple | list) else [parts]
        trainer = parts.pop() if isinstance(parts[-1], lightning.Trainer) else None
        if not parts or not isinstance(parts[0], lightning.LightningModule):
            kinds = ", ".join(type(part).__name__ for part in parts)
            raise InputError(
                f"{self.name} returned {kinds or 'no module'}; return a LightningModule and its data: "
                "module, datamodule, or module, train_loader, val_loader."
            )
        module = parts[0]
        require_fresh(module, self.name, self._make.__name__)
        if not module.automatic_optimization:
            raise InputError(
                f"The module of {self.name} has automatic_optimization=False: it steps its optimizers by itself, so "
                "the study cannot set their batch size and learning rate."
            )
        train, held_out = self._loaders(module, parts[1:])
        return Made(module, train, held_out, trainer, self.name)

    def _loaders(self, module: Any, data: list[Any]) -> tuple[DataLoader[Any], DataLoader[Any]]:
        if len(data) == 1 and isinstance(data[0], lightning.LightningDataModule):
            source = data[0]
            source.prepare_data()
            source.setup("fit")
            data = [source.train_dataloader(), source.val_dataloader()]
        elif not data:
            data = [module.train_dataloader(), module.val_dataloader()]
        if len(data) != 2:
            raise InputError(
                f"{self.name} returned {len(data)} things beside the module; return a datamodule, or a training and a "
                "held-out loader."
            )
        for kind, loader in zip(("training", "held-out"), data, strict=True):
            _require_usable(loader, kind, self.name)
        return data[0], data[1]

    def same_data(self, made: Made) -> str:
        """The digest of the data. Raises StudyChanged where it is not the study's."""
        parts = [made.train_data, made.held_out_data]
        digest = "".join(digest_of_samples(len(part), part.__getitem__) for part in parts)
        require_same_data(self.workload, digest, self.name)
        return digest


def _require_usable(loader: Any, kind: str, name: str) -> None:
    if isinstance(loader, CombinedLoader | Mapping | list | tuple):
        raise InputError(f"The {kind} data of {name} are several loaders; give the one to judge by.")
    if not isinstance(loader, DataLoader):
        raise InputError(f"The {kind} data of {name} is a {type(loader).__name__}; give a torch DataLoader.")
    if isinstance(loader.dataset, IterableDataset):
        raise InputError(
            f"The {kind} data of {name} is a stream of unknown length, whose order cannot be compared between batch "
            "sizes; give a data set with a length."
        )
    if loader.batch_size is None or not isinstance(loader.sampler, RandomSampler | SequentialSampler):
        raise InputError(
            f"The {kind} loader of {name} has a sampler of its own ({type(loader.sampler).__name__}), which cannot be "
            "rebuilt at other batch sizes; use shuffle=True, or shuffle=False."
        )


def _rebuilt(loader: DataLoader[Any], batch_size: int, sampler: Any, drop_last: bool | None = None) -> DataLoader[Any]:
    return DataLoader(
        loader.dataset,
        batch_size=batch_size,
        sampler=sampler,
        collate_fn=loader.collate_fn,
        drop_last=loader.drop_last if drop_last is None else drop_last,
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
        worker_init_fn=loader.worker_init_fn,
        generator=torch.Generator().manual_seed(0),  # else iterating draws from the random state of the training
        persistent_workers=loader.persistent_workers,
    )


class OneOptimizer:
    """The module's own optimizer, whose groups follow the study's learning rate."""

    def __init__(self, made: Made, settings: OptimizerSettings) -> None:
        self._own = made.module.configure_optimizers
        self._name, self._settings = made.name, settings
        self.optimizer: torch.optim.Optimizer | None = None
        self.ratios: list[float] = []
        made.module.configure_optimizers = self.configure

    def configure(self) -> torch.optim.Optimizer:
        """What Lightning gets instead of the module's optimizer and schedulers."""
        optimizer = _single(self._own(), self._name)
        rates = [float(group["lr"]) for group in optimizer.param_groups]
        if max(rates) <= 0:
            raise InputError(f"The optimizer of {self._name} has the learning rate 0, which a study cannot scale.")
        self.ratios = [rate / max(rates) for rate in rates]
        for group in optimizer.param_groups:
            _across_batch(group, self._settings)
        self.optimizer = optimizer
        return optimizer

    def set_learning_rate(self, learning_rate: float) -> None:
        """For the next step, in every group."""
        assert self.optimizer is not None
        for group, ratio in zip(self.optimizer.param_groups, self.ratios, strict=True):
            group["lr"] = ratio * learning_rate


def _across_batch(group: dict[str, Any], settings: OptimizerSettings) -> None:
    rule, ratio = settings.config.across_batch, settings.batch_ratio
    if rule is not AcrossBatch.FIXED and "betas" in group:
        group["betas"] = (group["betas"][0], beta2_at(group["betas"][1], ratio))
        group["eps"] = epsilon_at(group["eps"], ratio)
    if rule is AcrossBatch.HALF_LIFE_AND_DECAY and group.get("weight_decay"):
        group["weight_decay"] = weight_decay_at(group["weight_decay"], ratio)


def _single(configured: Any, name: str) -> torch.optim.Optimizer:
    found = configured
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], list | tuple):
        found = found[0]
    if isinstance(found, list | tuple) and len(found) == 1:
        found = found[0]
    if isinstance(found, Mapping):
        found = found.get("optimizer")
    if isinstance(found, torch.optim.Optimizer):
        return found
    raise InputError(
        f"configure_optimizers of {name} returns {type(configured).__name__} with more or less than one optimizer; a "
        "study sweeps the learning rate of one."
    )


def trainer_arguments(
    device: DeviceSettings, *, steps: int, grad_accum_steps: int, grad_clip: float | None, folder: Path
) -> dict[str, Any]:
    """Arguments of lightning.Trainer: nothing is logged, validated or saved but by the study."""
    kind, _, index = device.name.partition(":")
    return {
        "accelerator": {"cuda": "gpu"}.get(kind, kind),
        "devices": [int(index or 0)] if kind == "cuda" else 1,
        "precision": {"bf16": "bf16-mixed", "fp16": "16-mixed"}.get(device.precision, "32-true"),
        "max_steps": steps,
        "max_epochs": -1,
        "accumulate_grad_batches": grad_accum_steps,
        "gradient_clip_val": grad_clip,
        "limit_val_batches": 0,
        "num_sanity_val_steps": 0,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "use_distributed_sampler": False,
        "default_root_dir": str(folder),
    }
