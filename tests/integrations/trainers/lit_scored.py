"""Classifiers in Lightning that are judged by an accuracy, each of which logs it in another way."""

from __future__ import annotations

import lightning
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

Batch = tuple[Tensor, Tensor]
Loader = DataLoader[tuple[Tensor, ...]]
Parts = tuple[lightning.LightningModule, Loader, Loader, lightning.Trainer]


class Classifier(lightning.LightningModule):
    """Logs the accuracy of every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
        self.accuracy = MulticlassAccuracy(4, average="micro")

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.log("val_accuracy", (self.net(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class ByTorchmetrics(Classifier):
    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.accuracy(self.net(batch[0]), batch[1])
        self.log("val_accuracy", self.accuracy)


class AtTheEnd(Classifier):
    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.accuracy.update(self.net(batch[0]), batch[1])

    def on_validation_epoch_end(self) -> None:
        self.log("val_accuracy", self.accuracy.compute())
        self.accuracy.reset()


class Silent(Classifier):
    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        pass


def samples(count: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 16, generator=generator)
    return TensorDataset(x, (x[:, :4] + 0.5 * torch.randn(count, 4, generator=generator)).argmax(1))


def parts(module: lightning.LightningModule) -> Parts:
    train, valid = DataLoader(samples(1000, 0), batch_size=32, shuffle=True), DataLoader(samples(200, 1), batch_size=64)
    kept = [EarlyStopping("val_loss"), ModelCheckpoint(monitor="val_accuracy", mode="max")]
    trainer = lightning.Trainer(max_epochs=5, accelerator="cpu", callbacks=kept, logger=False)
    return module, train, valid, trainer


def make() -> Parts:
    return parts(Classifier())


def make_by_torchmetrics() -> Parts:
    return parts(ByTorchmetrics())


def make_at_the_end() -> Parts:
    return parts(AtTheEnd())


def make_silent() -> Parts:
    return parts(Silent())
