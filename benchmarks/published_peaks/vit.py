"""ViT-L/16 as in torchvision (vit_l_16), with a head of ten classes; torchvision itself is not needed."""

from __future__ import annotations

import torch
from torch import Tensor, nn

WIDTH, LAYERS, HEADS, PATCH, IMAGE = 1024, 24, 16, 16, 224


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH, eps=1e-6), nn.LayerNorm(WIDTH, eps=1e-6)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, dropout=0.0, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Dropout(0.0), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.0)
        )

    def forward(self, x: Tensor) -> Tensor:
        normed = self.ln_1(x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, stride=PATCH)
        self.class_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.places = nn.Parameter(torch.zeros(1, (IMAGE // PATCH) ** 2 + 1, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH, eps=1e-6), nn.Linear(WIDTH, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images.to(self.patches.weight.dtype)).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])
