"""A small GPT whose weights are frozen; only low-rank adapters of its linear layers are trained."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import batchlab

VOCABULARY, WIDTH, HEADS, LAYERS, CONTEXT, RANK = 2_000, 128, 4, 3, 64, 8


class LoRA(nn.Module):
    def __init__(self, base) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(RANK, base.in_features) * 0.02)
        self.up = nn.Parameter(torch.zeros(base.out_features, RANK))

    def forward(self, x):
        return self.base(x) + 2.0 * (x @ self.down.T) @ self.up.T


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = LoRA(nn.Linear(WIDTH, 3 * WIDTH)), LoRA(nn.Linear(WIDTH, WIDTH))
        self.up, self.down = LoRA(nn.Linear(WIDTH, 4 * WIDTH)), LoRA(nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(name.endswith((".down", ".up")))

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


tokens = torch.randint(VOCABULARY, (1024 * CONTEXT + 1,), generator=torch.Generator().manual_seed(0)).numpy()
task = batchlab.task(
    model=GPT,
    loss=lambda model, x, y: cross_entropy(model(x).flatten(0, 1), y.flatten()),
    train=tokens[: 896 * CONTEXT + 1],
    valid=tokens[896 * CONTEXT :],
    sequence_length=CONTEXT,
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
