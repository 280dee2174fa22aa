"""A LightningModule and its data behind LightningCLI."""

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningCLI
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regression(LightningModule):
    def __init__(self, lr: float = 0.05):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.mse_loss(self.net(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", nn.functional.mse_loss(self.net(x), y))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)


class Data(LightningDataModule):
    def __init__(self, batch_size: int = 16):
        super().__init__()
        self.batch_size = batch_size
        random = torch.Generator().manual_seed(1)
        x = torch.randn(1280, 8, generator=random)
        y = x @ torch.randn(8, 1, generator=random) + 0.3 * torch.randn(1280, 1, generator=random)
        self.data = TensorDataset(x[:1024], y[:1024]), TensorDataset(x[1024:], y[1024:])

    def train_dataloader(self):
        return DataLoader(self.data[0], batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.data[1], batch_size=256)


if __name__ == "__main__":
    LightningCLI(Regression, Data)
