"""Sequence to sequence with nn.Transformer, source and target padded to one length, teacher forcing."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import batchlab

VOCABULARY, WIDTH, SOURCE, TARGET = 1_500, 96, 48, 32


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Parameter(torch.randn(SOURCE, WIDTH) * 0.02)
        self.transformer = nn.Transformer(WIDTH, 4, 2, 2, 4 * WIDTH, dropout=0.1, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        embedded = self.tokens(source) + self.places[: source.shape[1]]
        shifted = self.tokens(target) + self.places[: target.shape[1]]
        return self.head(self.transformer(embedded, shifted, tgt_mask=mask))


def loss(model, source, target):
    logits = model(source, target[:, :-1])
    return cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())


generator = torch.Generator().manual_seed(0)
source = torch.randint(1, VOCABULARY, (1024, SOURCE), generator=generator)
target = torch.randint(1, VOCABULARY, (1024, TARGET), generator=generator)
task = batchlab.task(
    model=Translator,
    loss=loss,
    train=(source[:896], target[:896]),
    valid=(source[896:], target[896:]),
    count=lambda source, target: target[:, 1:].size,
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
