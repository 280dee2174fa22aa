"""A vector-quantised autoencoder: nearest codes by argmin, gradients passed straight through."""

import torch
from torch import nn
from torch.nn.functional import mse_loss

import batchlab


class VQVAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1))
        self.codes = nn.Embedding(256, 32)
        self.decoder = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(32, 3, 4, 2, 1))

    def forward(self, x):
        z = self.encoder(x)
        flat = z.permute(0, 2, 3, 1).reshape(-1, 32)
        distance = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.codes.weight.T + self.codes.weight.pow(2).sum(1)
        chosen = self.codes(distance.argmin(1)).view(len(x), *z.shape[2:], 32).permute(0, 3, 1, 2)
        commitment = mse_loss(z, chosen.detach()) * 0.25 + mse_loss(chosen, z.detach())
        return self.decoder(z + (chosen - z).detach()), commitment


def loss(model, x, y):
    out, commitment = model(x)
    return mse_loss(out, y) + commitment


x = torch.rand(640, 3, 32, 32, generator=torch.Generator().manual_seed(0))
task = batchlab.task(
    model=VQVAE,
    loss=loss,
    train=(x[:512], x[:512]),
    valid=(x[512:], x[512:]),
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
