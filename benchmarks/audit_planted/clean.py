"""Clean tables of batch-size sweeps, drawn at random: one budget, tuned learning rates, the best inside both axes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random

Row = dict[str, float | int | str]

SPELLINGS: tuple[dict[str, str], ...] = (
    {},
    {"global_batch_size": "batch_size", "learning_rate": "lr", "val_loss": "eval_loss"},
    {"global_batch_size": "bs", "learning_rate": "LR", "val_loss": "Final Val Loss", "steps": "iterations"},
    {"global_batch_size": "Batch Size", "learning_rate": "Learning Rate", "steps": "Steps", "tokens": "Total Tokens"},
)
"""Names of columns, as different people give them."""

SETTLED = 6.0
"""Standard errors by which the best batch size of a clean table leads."""


@dataclass
class Table:
    """`rows` by this module's names of columns; `spelling` maps them to those of the file. `seeds`: of each cell."""

    rows: list[Row]
    spelling: dict[str, str]
    seeds: int
    limit: float
    dropped: set[str] = field(default_factory=set)

    def as_csv(self) -> str:
        """The file. Columns that the table happens to lack are left out."""
        names = [name for name in dict.fromkeys(key for row in self.rows for key in row) if name not in self.dropped]
        lines = [",".join(self.spelling.get(name, name) for name in names)]
        lines += [",".join(_text(row.get(name, "")) for name in names) for row in self.rows]
        return "\n".join(lines) + "\n"


def draw(random: Random) -> Table:
    """A clean table."""
    sizes = [2 ** random.randint(0, 5)]
    while len(sizes) < random.randint(4, 7) or len(sizes) < 4:
        sizes.append(sizes[-1] * random.choice((2, 4)))
    count = random.choice((3, 5, 7))
    ratio = random.choice((math.sqrt(2), 2.0, 3.0))
    seeds = random.choice((1, 2, 3, 5))
    length = random.choice((1, 128, 256, 512, 1024, 2048))
    best_size = random.choice(sizes[1:-1])
    base_rate = 10 ** random.uniform(-4, -2)
    exponent = random.uniform(0.0, 1.0)  # of the best learning rate in the batch size
    floor, noise = random.uniform(1.2, 3.5), 10 ** random.uniform(-3.3, -2.3)
    tokens = length * sizes[-1] * random.randint(100, 4000)
    slowest = tokens * 10 ** random.uniform(-6, -4)
    limit = random.choice((8, 16, 24, 40, 80)) * 2**30
    parameters = round(10 ** random.uniform(6, 8.5))  # their 16 bytes each fit into the smallest card
    per_sample = random.uniform(0.3, 0.85) * (limit - 16 * parameters) / sizes[-1]
    curvature = random.uniform(0.02, 0.2) + SETTLED * noise
    steepness = random.uniform(0.5, 1.5) * curvature
    rows: list[Row] = []
    for size in sizes:
        middle = base_rate * (size / best_size) ** exponent
        steps = tokens // (size * length)
        for place in range(count):
            doublings = (place - count // 2) * math.log2(ratio)
            for seed in range(seeds):
                away = abs(math.log2(size / best_size))
                loss = floor + curvature * away + steepness * abs(doublings)
                loss += noise * random.gauss(0, 1)
                rows.append(
                    {
                        "global_batch_size": size,
                        "sequence_length": length,
                        "learning_rate": float(f"{middle * ratio ** (place - count // 2):.3g}"),
                        "seed": seed,
                        "steps": steps,
                        "tokens": steps * size * length,
                        "warmup_steps": max(1, round(steps * 0.02)),
                        "train_loss": round(loss - random.uniform(0.02, 0.2) - 4 * noise, 4),
                        "val_loss": round(loss, 4),
                        "hours": slowest * (1 + 4 / size) * random.uniform(0.97, 1.03) / 3600,
                        "peak_gib": (16 * parameters + per_sample * size) / 2**30,
                        "memory_limit": f"{limit / 2**30:g} GiB",
                        "parameters": parameters,
                        "optimizer": random.choice(("adamw",)),
                        "optimizer_bytes": 8 * parameters,
                        "status": "ok",
                    }
                )
    table = Table(rows, random.choice(SPELLINGS), seeds, limit)
    optional = ("sequence_length", "warmup_steps", "train_loss", "hours", "peak_gib", "optimizer_bytes", "tokens")
    table.dropped = {name for name in optional if random.random() < 0.2}
    return table


def _text(value: float | int | str) -> str:
    return f"{value:.8g}" if isinstance(value, float) else str(value)
