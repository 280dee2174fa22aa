"""Generator and discriminator in one module, both losses in one step, with noise drawn in the loss function."""

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce

import batchlab


class Gan(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(
            nn.Linear(32, 48 * 49),
            nn.Unflatten(1, (48, 7, 7)),
            nn.ConvTranspose2d(48, 32, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(32, 1, 4, 2, 1),
            nn.Tanh(),
        )
        self.critic = nn.Sequential(
            nn.Conv2d(1, 32, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(32, 64, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(64 * 49, 1),
        )


def loss(model, real, labels):
    fake = model.generator(torch.randn(len(real), 32))
    ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
    critic_loss = bce(model.critic(real), ones) + bce(model.critic(fake.detach()), zeros)
    for parameter in model.critic.parameters():
        parameter.requires_grad_(False)
    generator_loss = bce(model.critic(fake), ones)
    for parameter in model.critic.parameters():
        parameter.requires_grad_(True)
    return critic_loss + generator_loss


generator = torch.Generator().manual_seed(0)
real = torch.rand(1280, 1, 28, 28, generator=generator) * 2 - 1
task = batchlab.task(
    model=Gan,
    loss=loss,
    train=(real[:1024], torch.zeros(1024)),
    valid=(real[1024:], torch.zeros(256)),
    optimizer=lambda params, lr: torch.optim.Adam(params, lr=lr, betas=(0.5, 0.999)),
)
