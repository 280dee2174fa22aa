"""Masked language modelling with dicts of arrays, an attention mask and -100 where nothing is predicted."""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import batchlab

VOCABULARY, LENGTH, WIDTH = 2_000, 64, 128


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, input_ids, attention_mask):
        x = self.tokens(input_ids) + self.places(torch.arange(input_ids.shape[1]))
        return self.head(self.encoder(x, src_key_padding_mask=attention_mask == 0))


def rows(count, seed):
    random = np.random.default_rng(seed)
    tokens = random.integers(5, VOCABULARY, (count, LENGTH))
    hidden = random.random((count, LENGTH)) < 0.15
    return {
        "input_ids": np.where(hidden, 4, tokens),
        "attention_mask": np.ones((count, LENGTH), np.int64),
        "labels": np.where(hidden, tokens, -100),
    }


def loss(model, batch):
    logits = model(batch["input_ids"], batch["attention_mask"])
    return cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=-100)


task = batchlab.task(
    model=Encoder,
    loss=loss,
    train=rows(896, 0),
    valid=rows(128, 1),
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
