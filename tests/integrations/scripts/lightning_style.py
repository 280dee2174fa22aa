"""Trains a small classifier with Lightning, from top to bottom."""

import lightning
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 4))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.cross_entropy(self.net(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self.net(x)
        self.log("val_loss", F.cross_entropy(logits, y))
        self.log("val_accuracy", (logits.argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams["lr"], weight_decay=0.01)


def samples(count, seed):
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 16, generator=random)
    return TensorDataset(x, (x[:, :4] + 0.5 * torch.randn(count, 4, generator=random)).argmax(1))


train = DataLoader(samples(2048, 0), batch_size=32, shuffle=True)
valid = DataLoader(samples(512, 1), batch_size=256)

trainer = lightning.Trainer(max_epochs=5, accelerator="cpu")
trainer.fit(Classifier(), train, valid)
