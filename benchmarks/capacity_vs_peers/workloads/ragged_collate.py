"""Sound events: clips of any length in a list, padded by a collate function to the longest of a batch."""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

import batchlab


class Clips:
    def __init__(self, count, seed) -> None:
        random = np.random.default_rng(seed)
        self.clips = [
            torch.from_numpy(random.standard_normal((int(n), 20)).astype(np.float32))
            for n in random.integers(20, 400, count)
        ]
        self.events = torch.from_numpy(random.integers(0, 2, (count, 8)).astype(np.float32))

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        return {"clip": self.clips[index], "events": self.events[index]}


def collate(samples):
    clips = [sample["clip"] for sample in samples]
    return {
        "clip": nn.utils.rnn.pad_sequence(clips, batch_first=True),
        "length": torch.tensor([len(clip) for clip in clips]),
        "events": torch.stack([sample["events"] for sample in samples]),
    }


class Listener(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(20, 64, 5, padding=2), nn.ReLU(), nn.Conv1d(64, 128, 5, padding=2), nn.ReLU()
        )
        self.head = nn.Linear(128, 8)

    def forward(self, clip, length):
        hidden = self.net(clip.transpose(1, 2)).transpose(1, 2)
        inside = torch.arange(clip.shape[1])[None] < length[:, None]
        return self.head((hidden * inside[..., None]).sum(1) / length[:, None])


def loss(model, batch):
    return binary_cross_entropy_with_logits(model(batch["clip"], batch["length"]), batch["events"])


task = batchlab.task(
    model=Listener,
    loss=loss,
    train=Clips(1024, 0),
    valid=Clips(256, 1),
    collate=collate,
    count=lambda batch: batch["events"].size,
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
