"""Errors as people make them, each planted into a clean table; what has to be found is a kind of flaw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from clean import Row, Table

MORE_THAN_NOISE = 1.25


@dataclass(frozen=True)
class Plant:
    """`kind`: the name of the flaw. `touches`: what two plants of a pair may not both change."""

    kind: str
    touches: frozenset[str]
    apply: Callable[[Table, Random], None]


def logged_rows(table: Table, random: Random) -> None:
    """Steps are the rows of a log: one in 10 to 100 updates."""
    table.dropped -= {"tokens", "sequence_length"}
    every = random.randint(10, 100)
    for row in table.rows:
        row["steps"] = max(1, int(row["steps"]) // every) + 1


def equal_steps(table: Table, random: Random) -> None:
    """Every size trains for the steps of one of them."""
    steps = random.choice([int(row["steps"]) for row in table.rows])
    for row in table.rows:
        row["steps"] = steps
        row["tokens"] = steps * int(row["global_batch_size"]) * int(row["sequence_length"])
        row["warmup_steps"] = max(1, round(0.02 * steps))


def unequal_tokens(table: Table, random: Random) -> None:
    """One size trains for 1.3 to 3 times the budget of the others."""
    size = random.choice(sizes_of(table))
    factor = random.uniform(1.3, 3)
    table.dropped -= {"tokens"}
    for row in table.rows:
        if row["global_batch_size"] == size:
            row["steps"] = round(int(row["steps"]) * factor)
            row["tokens"] = int(row["steps"]) * int(row["global_batch_size"]) * int(row["sequence_length"])
            row["warmup_steps"] = max(1, round(0.02 * int(row["steps"])))


def one_rate(table: Table, random: Random) -> None:
    """The same learning rate for every size."""
    rate = random.choice([row["learning_rate"] for row in table.rows])
    kept = {(row["global_batch_size"], row["seed"]): row for row in table.rows}
    table.rows = list(kept.values())
    for row in table.rows:
        row["learning_rate"] = rate


def best_at_edge(table: Table, random: Random) -> None:
    """The axis of batch sizes ends at the best one."""
    means = {size: min(_losses(table, size)) for size in sizes_of(table)}
    best = min(means, key=lambda size: means[size])
    below = random.random() < 0.5
    kept = [size for size in means if (size >= best if below else size <= best)]
    if len(kept) < 3:
        kept = [size for size in means if (size <= best if below else size >= best)]
    if len(kept) < 3:  # the best is in the middle of few sizes: make the first one the best
        kept = list(means)
        lowest = min(float(row["val_loss"]) for row in table.rows)
        for row in table.rows:
            if row["global_batch_size"] == kept[0]:
                row["val_loss"] = round(float(row["val_loss"]) - min(_losses(table, kept[0])) + lowest - 0.3, 4)
    table.rows = [row for row in table.rows if row["global_batch_size"] in kept]


def one_seed(table: Table, random: Random) -> None:
    """Nothing is repeated."""
    table.rows = [row for row in table.rows if row["seed"] == 0]
    if random.random() < 0.5:
        table.dropped.add("seed")


def within_noise(table: Table, random: Random) -> None:
    """Two to five seeds, between which losses differ by as much as between the two best sizes."""
    seeds = random.randint(2, 5)
    once = {(row["global_batch_size"], row["learning_rate"]): row for row in table.rows}
    spread = random.uniform(0.05, 0.3)
    table.rows = []
    for row in once.values():
        for seed in range(seeds):
            table.rows.append({**row, "seed": seed, "val_loss": round(2.5 + random.gauss(0, spread), 4)})


def warmup_in_steps(table: Table, random: Random) -> None:
    """The same number of warm-up steps at every size."""
    table.dropped -= {"warmup_steps"}
    least = min(int(row["steps"]) for row in table.rows)
    warmup = random.randint(max(4, least // 50), max(5, least // 5))
    for row in table.rows:
        row["warmup_steps"] = warmup


def last_batch(table: Table, random: Random) -> None:
    """The only loss is that of the last training batch."""
    for row in table.rows:
        row["loss"] = round(float(row["val_loss"]) + random.gauss(0, 0.3) / int(row["global_batch_size"]) ** 0.5, 4)
    table.dropped |= {"val_loss", "train_loss"}


def slower(table: Table, random: Random) -> None:
    """The largest size takes MORE_THAN_NOISE to 8 times as long as the one below it."""
    table.dropped -= {"hours"}
    below, largest = sizes_of(table)[-2:]
    fastest = min(float(row["hours"]) for row in table.rows if row["global_batch_size"] == below)
    factor = random.uniform(MORE_THAN_NOISE, 8)
    for row in table.rows:
        if row["global_batch_size"] == largest:
            row["hours"] = fastest * factor * random.uniform(1, 1.05)


def beyond_card(table: Table, random: Random) -> None:
    """The largest size has more memory allocated than the card has."""
    table.dropped -= {"peak_gib"}
    for row in table.rows:
        if row["global_batch_size"] == sizes_of(table)[-1]:
            row["peak_gib"] = table.limit / 2**30 * random.uniform(1.1, 2)


def optimizer_state(table: Table, random: Random) -> None:
    """Three values per parameter for Adam, or one."""
    table.dropped -= {"optimizer_bytes"}
    for row in table.rows:
        row["optimizer_bytes"] = 4 * int(row["parameters"]) * random.choice((1, 3))


def below_validation(table: Table, random: Random) -> None:
    """Training losses, measured with dropout, above the validation losses."""
    table.dropped -= {"train_loss"}
    above = random.uniform(0.005, 0.2)
    for row in table.rows:
        row["train_loss"] = round(float(row["val_loss"]) + above, 4)


def out_of_memory(table: Table, random: Random) -> None:
    """One more size, two to eight times the largest, ran out of memory."""
    size = sizes_of(table)[-1]
    if size < 2:
        size = 2
    row: Row = {"global_batch_size": size * random.choice((2, 4, 8)), "status": random.choice(("OOM", "out of memory"))}
    table.rows.append(row)


def contradicted(table: Table, random: Random) -> None:
    """A run is listed again with another loss."""
    row = random.choice([row for row in table.rows if "val_loss" in row])
    table.rows.append({**row, "val_loss": round(float(row["val_loss"]) + random.uniform(0.01, 1), 4)})


def sizes_of(table: Table) -> list[int]:
    return sorted({int(row["global_batch_size"]) for row in table.rows})


def _losses(table: Table, size: int) -> list[float]:
    return [float(row["val_loss"]) for row in table.rows if row["global_batch_size"] == size and "val_loss" in row]


PLANTS: Mapping[str, Plant] = {
    plant.apply.__name__: plant
    for plant in (
        Plant("TokensDisagree", frozenset({"steps"}), logged_rows),
        Plant("EqualSteps", frozenset({"steps"}), equal_steps),
        Plant("UnequalTokens", frozenset({"steps"}), unequal_tokens),
        Plant("LearningRateNotTuned", frozenset({"rows"}), one_rate),
        Plant("BestAtEdge", frozenset({"rows", "loss"}), best_at_edge),
        Plant("OneSeed", frozenset({"seeds", "rows"}), one_seed),
        Plant("WithinNoise", frozenset({"seeds", "rows", "loss"}), within_noise),
        Plant("WarmupSharesDiffer", frozenset({"steps"}), warmup_in_steps),
        Plant("TrainingLossJudged", frozenset({"loss"}), last_batch),
        Plant("LargerIsSlower", frozenset({"rows"}), slower),
        Plant("BeyondMemory", frozenset({"rows"}), beyond_card),
        Plant("OptimizerStateWrong", frozenset(), optimizer_state),
        Plant("TrainBelowValidation", frozenset({"loss"}), below_validation),
        Plant("GapBelowMemoryLimit", frozenset({"rows"}), out_of_memory),
        Plant("Contradiction", frozenset({"seeds", "loss"}), contradicted),
    )
}
