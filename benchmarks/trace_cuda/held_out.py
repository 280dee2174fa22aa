"""Ten more models in plain torch, written before the trace's attention kernels were judged on any of them.

The trace was developed on the models of benchmarks/trace_accuracy; these are the evidence about it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1] / "trace_accuracy"))
from workloads import Workload, classification, labelled, tokens

from batchlab.core.protocols import Batch
from batchlab.torch_.models import next_token_loss


class GroupedDecoder(nn.Module):
    """RoPE, RMSNorm, SwiGLU, and half as many heads for keys and values as for queries."""

    def __init__(self, vocabulary: int = 6000, width: int = 256, layers: int = 4, heads: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(GroupedBlock(width, heads) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embedding(x)
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


class GroupedBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, width, bias=False)
        self.project = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        q = rotated(self.query(h).unflatten(-1, (self.heads, self.size)).transpose(1, 2))
        k, v = self.key_value(h).chunk(2, dim=-1)
        k = rotated(k.unflatten(-1, (self.heads // 2, self.size)).transpose(1, 2))
        v = v.unflatten(-1, (self.heads // 2, self.size)).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.project(mixed.transpose(1, 2).flatten(2))
        h = self.second(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def rotated(x: Tensor) -> Tensor:
    length, size = x.shape[-2:]
    angles = torch.outer(
        torch.arange(length, device=x.device), 1e4 ** (-torch.arange(0, size, 2, device=x.device) / size)
    )
    even, odd = x[..., ::2], x[..., 1::2]
    turned = (even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos())
    return torch.stack(turned, dim=-1).flatten(-2).to(x.dtype)


class Bert(nn.Module):
    """A post-norm encoder with dropout whose boolean mask has one matrix per sample."""

    def __init__(self, vocabulary: int = 4000, width: int = 192, layers: int = 3, heads: int = 6) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(MaskedBlock(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        present = x > 400
        mask = (present[:, None, :, None] & present[:, None, None, :]) | torch.eye(
            x.shape[1], dtype=torch.bool, device=x.device
        )
        h = self.embedding(x)
        for block in self.blocks:
            h = block(h, mask)
        return self.head(h)


class MaskedBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in self.inputs(x).chunk(3, dim=-1))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.1 if self.training else 0.0)
        x = self.first(x + self.output(mixed.transpose(1, 2).flatten(2)))
        return self.second(x + self.feed(x))


class Translator(nn.Module):
    """torch's own encoder and decoder layers, with cross-attention."""

    def __init__(self, vocabulary: int = 3000, width: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.body = nn.Transformer(width, 4, 2, 2, 4 * width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embedding(x)
        causal = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        return self.head(self.body(h.flip(1), h, tgt_mask=causal, tgt_is_causal=True))


class RelativeBias(nn.Module):
    """Two blocks of attention with a learned bias for every pair of positions, which gets a gradient."""

    def __init__(self, length: int = 64, width: int = 128, heads: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(2000, width)
        self.bias = nn.Parameter(torch.zeros(1, heads, length, length))
        self.blocks = nn.ModuleList(MaskedBlock(width, heads) for _ in range(2))
        self.head = nn.Linear(width, 2000)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embedding(x)
        for block in self.blocks:
            h = block(h, self.bias.to(torch.bfloat16 if torch.is_autocast_enabled(x.device.type) else self.bias.dtype))
        return self.head(h)


def mobile() -> nn.Module:
    """Depthwise separable convolutions."""

    def block(inputs: int, outputs: int, stride: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False),
            nn.BatchNorm2d(inputs),
            nn.ReLU6(inplace=True),
            nn.Conv2d(inputs, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU6(inplace=True),
        )

    blocks = (block(32, 64, 1), block(64, 128, 2), block(128, 128, 1), block(128, 256, 2))
    return nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))


class ConvNextBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.feed(h).permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    body = [nn.Conv2d(3, 48, 4, 4), *(ConvNextBlock(48) for _ in range(3)), nn.Conv2d(48, 96, 2, 2)]
    body += [ConvNextBlock(96) for _ in range(3)]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 10))


class Recommender(nn.Module):
    """Twelve embedding tables beside numbers, and the products of all pairs."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(20_000, width) for _ in range(12))
        self.bottom = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        self.top = nn.Sequential(
            nn.Linear(width + 78, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 2)
        )

    def forward(self, x: Tensor) -> Tensor:
        numbers = self.bottom(x[:, :13])
        rows = [table((x[:, 13 + i].abs() * 1000).long() % 20_000) for i, table in enumerate(self.tables)]
        parts = torch.stack([numbers, *rows], dim=1)
        upper = torch.triu_indices(13, 13, 1, device=x.device)
        return self.top(torch.cat([numbers, (parts @ parts.transpose(1, 2))[:, upper[0], upper[1]]], dim=1))


class TwoTowers(nn.Module):
    """Pictures and vectors in one space, each compared with all others of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.pictures = nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1), nn.GELU(), nn.Conv2d(32, 64, 3, 2, 1), nn.GELU(), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Linear(64, 128),
        )  # fmt: skip
        self.vectors = nn.Sequential(nn.Linear(192, 256), nn.GELU(), nn.Linear(256, 128))

    def forward(self, x: Tensor) -> Tensor:
        one = F.normalize(self.pictures(x), dim=-1)
        other = F.normalize(self.vectors(x[:, :, ::4, ::4].flatten(1)), dim=-1)
        return 20 * one @ other.T


def contrastive(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    similar, own = model(x), torch.arange(len(x), device=x.device)
    return (F.cross_entropy(similar, own) + F.cross_entropy(similar.T, own)) / 2


class Denoiser(nn.Module):
    """A U-Net with attention over the pixels of its lowest level."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.into = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 2 * width, 3, 2, 1))
        self.norm = nn.GroupNorm(8, 2 * width)
        self.attend = nn.Conv2d(2 * width, 6 * width, 1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.out = nn.Sequential(nn.GroupNorm(8, 2 * width), nn.SiLU(), nn.Conv2d(2 * width, 3, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        first = self.into(x)
        low = self.down(first)
        q, k, v = (p.flatten(2).transpose(1, 2)[:, None] for p in self.attend(self.norm(low)).chunk(3, dim=1))
        mixed = F.scaled_dot_product_attention(q, k, v)[:, 0].transpose(1, 2).unflatten(2, low.shape[2:])
        return self.out(torch.cat([first, self.up(low + mixed)], dim=1))


def reconstruction(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(model(x).float(), x)


class Graph(nn.Module):
    """Messages along the edges of a ring with chords, added up by node."""

    def __init__(self, width: int = 64, nodes: int = 48) -> None:
        super().__init__()
        self.nodes = nodes
        self.into, self.head = nn.Linear(16, width), nn.Linear(width, 10)
        self.messages = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        source = torch.arange(4 * self.nodes, device=x.device) % self.nodes
        target = (source + 1 + torch.arange(4 * self.nodes, device=x.device) // self.nodes) % self.nodes
        h = F.relu(self.into(x))
        for message in self.messages:
            sent = F.relu(message(torch.cat([h[:, source], h[:, target]], dim=-1)))
            h = h + torch.zeros_like(h).index_add(1, target, sent.to(h.dtype))
        return self.head(h.mean(1))


def sentences(size: int) -> Batch:
    return tokens(4000, 96)(size)


HELD_OUT = (
    Workload("grouped-query decoder", GroupedDecoder, next_token_loss, (4, 8, 16), tokens(6000, 128)),
    Workload("BERT with a full mask", Bert, next_token_loss, (8, 16, 32), sentences),
    Workload("encoder-decoder", Translator, next_token_loss, (8, 16, 32), tokens(3000, 64)),
    Workload("attention with a learned bias", RelativeBias, next_token_loss, (8, 16, 32), tokens(2000, 64)),
    Workload("MobileNet", mobile, classification, (16, 32, 64), labelled(3, 64, 64)),
    Workload("ConvNeXt", convnext, classification, (16, 32, 64), labelled(3, 64, 64)),
    Workload("recommender", Recommender, classification, (1024, 2048, 4096), labelled(25, classes=2)),
    Workload("two towers", TwoTowers, contrastive, (64, 128, 256), labelled(3, 32, 32)),
    Workload("denoiser with attention", Denoiser, reconstruction, (8, 16, 32), labelled(3, 32, 32)),
    Workload("graph network", Graph, classification, (64, 128, 256), labelled(48, 16)),
)
