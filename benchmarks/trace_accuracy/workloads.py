"""Twelve small models of the common kinds, in plain torch, with data of the right shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from batchlab.core.protocols import Batch
from batchlab.torch_.models import Decoder, next_token_loss


@dataclass(frozen=True)
class Workload:
    """A model with its loss; `sizes` are micro-batch sizes N/4, N/2 and N."""

    name: str
    model: Callable[[], nn.Module]
    loss: Callable[..., Any]
    sizes: tuple[int, int, int]
    batch: Callable[[int], Batch]


def tokens(vocabulary: int, length: int) -> Callable[[int], Batch]:
    def draw(size: int) -> Batch:
        x = np.random.default_rng(0).integers(1, vocabulary, (size, length + 1))
        return x[:, :-1], x[:, 1:]

    return draw


def labelled(*shape: int, classes: int = 10) -> Callable[[int], Batch]:
    def draw(size: int) -> Batch:
        random = np.random.default_rng(0)
        return random.standard_normal((size, *shape), np.float32), random.integers(0, classes, size)

    return draw


def classification(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


class GPT(nn.Module):
    """GPT-2's architecture: learned positions, pre-norm, GELU, the embedding tied to the last layer."""

    def __init__(self, vocabulary: int = 8000, length: int = 64, width: int = 192, layers: int = 3) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(GPTBlock(width, 6) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


class GPTBlock(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.attend(self.first(x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.dropout(self.project(mixed))
        return x + self.dropout(self.feed(self.second(x)))


def convolutions() -> nn.Module:
    """Six convolutions with BatchNorm, in two blocks of three."""

    def block(first: int, width: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for index in range(3):
            layers += [nn.Conv2d(first if not index else width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        return nn.Sequential(*layers)

    return nn.Sequential(block(3, 24), block(24, 24), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10))


class Bottleneck(nn.Module):
    """ResNet's bottleneck block."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 4 * width, 1, bias=False),
            nn.BatchNorm2d(4 * width),
        )
        same = stride == 1 and inputs == 4 * width
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, 4 * width, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)


def resnet() -> nn.Module:
    stem = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    widths = [(32, 16, 1), (64, 16, 1), (64, 32, 2), (128, 32, 1)]
    blocks = nn.Sequential(*(Bottleneck(*width) for width in widths))
    return nn.Sequential(stem, blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


class Recurrent(nn.Module):
    """A language model with an LSTM, a GRU or an Elman network."""

    def __init__(self, kind: type[nn.RNNBase], vocabulary: int = 4000, width: int = 192, layers: int = 1) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.body = kind(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.embedding(x))[0])


class ViT(nn.Module):
    """Patches of 8 × 8 pixels, a class token, and torch's own pre-norm encoder layers."""

    def __init__(self, width: int = 128, layers: int = 3) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, 65, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, F.gelu, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, 10)
        nn.init.trunc_normal_(self.positions, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        h = self.patches(x).flatten(2).transpose(1, 2)
        h = torch.cat((self.token.expand(len(h), -1, -1), h), dim=1) + self.positions
        for block in self.blocks:
            h = block(h)
        return self.head(h[:, 0])


class ResidualLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.BatchNorm1d(width), nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


def table_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), *(ResidualLayer(256) for _ in range(4)), nn.Linear(256, 10))


class MaskedEncoder(nn.Module):
    """A text classifier whose padding (token 0) is masked out."""

    def __init__(self, vocabulary: int = 5000, width: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        layer = nn.TransformerEncoderLayer(width, 4, 3 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        padding = x == 0
        h = self.encoder(self.embedding(x), src_key_padding_mask=padding)
        weights = (~padding).unsqueeze(-1).float()
        return self.head((h * weights).sum(1) / weights.sum(1))


def padded(size: int) -> Batch:
    random = np.random.default_rng(0)
    x = random.integers(1, 5000, (size, 96))
    lengths = random.integers(32, 97, size)
    lengths[0] = 96
    x[np.arange(96) >= lengths[:, None]] = 0
    return x, random.integers(0, 10, size)


class UNet(nn.Module):
    """Two levels down, two up, with skip connections by concatenation."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()

        def double(inputs: int, outputs: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, padding=1),
                nn.GroupNorm(4, outputs),
                nn.SiLU(),
                nn.Conv2d(outputs, outputs, 3, padding=1),
                nn.GroupNorm(4, outputs),
                nn.SiLU(),
            )

        self.down = nn.ModuleList([double(3, width), double(width, 2 * width), double(2 * width, 4 * width)])
        self.up = nn.ModuleList([double(6 * width, 2 * width), double(3 * width, width)])
        self.head = nn.Conv2d(width, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        maps = [self.down[0](x)]
        for level in list(self.down)[1:]:
            maps.append(level(F.max_pool2d(maps[-1], 2)))
        h = maps.pop()
        for level in self.up:
            h = level(torch.cat((F.interpolate(h, scale_factor=2.0), maps.pop()), dim=1))
        return self.head(h)


def segmentation(size: int) -> Batch:
    random = np.random.default_rng(0)
    return random.standard_normal((size, 3, 64, 64), np.float32), random.integers(0, 3, (size, 64, 64))


class ExpertBlock(nn.Module):
    """A dense mixture of experts: every token passes through all of them, weighted."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.router = nn.Linear(width, experts)
        self.into = nn.Parameter(torch.randn(experts, width, 2 * width) / width**0.5)
        self.out = nn.Parameter(torch.randn(experts, 2 * width, width) / width**0.5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        gates = self.router(h).softmax(-1)
        inner = F.gelu(torch.einsum("btw,ewv->btev", h, self.into))
        return x + torch.einsum("btev,evw,bte->btw", inner, self.out, gates)


class Experts(nn.Module):
    def __init__(self, vocabulary: int = 3000, width: int = 96) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(ExpertBlock(width, 4) for _ in range(2))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embedding(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


WORKLOADS = (
    Workload("decoder", lambda: Decoder(8000, 64, 192, 3, 6, 512), next_token_loss, (4, 8, 16), tokens(8000, 64)),
    Workload("GPT-2", GPT, next_token_loss, (4, 8, 16), tokens(8000, 64)),
    Workload("convnet + BatchNorm", convolutions, classification, (8, 16, 32), labelled(3, 48, 48)),
    Workload("ResNet", resnet, classification, (8, 16, 32), labelled(3, 64, 64)),
    Workload("LSTM", lambda: Recurrent(nn.LSTM), next_token_loss, (8, 16, 32), tokens(4000, 24)),
    Workload("GRU", lambda: Recurrent(nn.GRU), next_token_loss, (8, 16, 32), tokens(4000, 24)),
    Workload("Elman RNN", lambda: Recurrent(nn.RNN), next_token_loss, (8, 16, 32), tokens(4000, 24)),
    Workload("ViT", ViT, classification, (8, 16, 32), labelled(3, 64, 64)),
    Workload("MLP on a table", table_mlp, classification, (512, 1024, 2048), labelled(64)),
    Workload("encoder with padding", MaskedEncoder, classification, (8, 16, 32), padded),
    Workload("U-Net", UNet, classification, (4, 8, 16), segmentation),
    Workload("mixture of experts", Experts, next_token_loss, (8, 16, 32), tokens(3000, 48)),
)
