"""Tables of training runs for tests: a clean sweep, and rows by keyword."""

from __future__ import annotations

from batchlab.analysis.audit.table import TEXTS, Ending, Entry, Quantity, SweepTable

BUDGET = 2**24


def entry(line: int = 2, ending: Ending = Ending.COMPLETED, **values: float | str) -> Entry:
    """A row whose quantities are given by name."""
    quantities = {Quantity(name): value for name, value in values.items()}
    numbers = {key: float(value) for key, value in quantities.items() if key not in TEXTS}
    texts = {key: str(value) for key, value in quantities.items() if key in TEXTS}
    return Entry(line, numbers, texts, ending)


def table(*entries: Entry) -> SweepTable:
    """Rows numbered from the second line on, as below a header."""
    return SweepTable(
        "table.csv", tuple(Entry(n, e.numbers, e.texts, e.ending) for n, e in enumerate(entries, start=2))
    )


def clean_sweep(seeds: int = 2) -> list[Entry]:
    """Four batch sizes × three learning rates × seeds at one budget: the best is inside both axes."""
    return [
        entry(
            global_batch_size=size,
            sequence_length=128,
            learning_rate=rate,
            seed=seed,
            steps=BUDGET // (128 * size),
            tokens=BUDGET,
            warmup_steps=BUDGET // (128 * size) // 50,
            train_loss=loss - 0.1,
            val_loss=loss,
            seconds=1000 / size**0.3,
        )
        for size in (8, 16, 32, 64)
        for rate in (1e-3, 2e-3, 4e-3)
        for seed in range(seeds)
        for loss in [2.0 + 0.05 * abs(size - 16) / 16 + 40 * abs(rate - 2e-3) + 0.002 * seed]
    ]
