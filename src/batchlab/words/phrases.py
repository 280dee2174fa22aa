"""Numbers as they stand in sentences: one spelling each, so that the report, the plan and the terminal agree."""

from __future__ import annotations

from collections.abc import Sequence

from batchlab.analysis.values import BatchRow, Cell, Interval, SurfaceFinding
from batchlab.core.batch import BatchLayout, Unit, format_count


def format_rate(learning_rate: float) -> str:
    """`1.0e-3`, `7.07e-4`, and plainly `0.4` or `1.3` where that is as short: at most three digits."""
    if 0.1 <= learning_rate < 1000:
        return f"{learning_rate:.3g}"
    mantissa, _, exponent = f"{learning_rate:.2e}".partition("e")
    return f"{mantissa.removesuffix('0')}e{int(exponent)}"


def format_loss(loss: float) -> str:
    """Three decimals; small losses keep three digits."""
    return f"{loss:.3f}" if abs(loss) >= 0.1 or loss == 0 else f"{loss:.3g}"


def format_interval(estimate: Interval) -> str:
    """`1.482 [1.474, 1.490]`, or only the value where no spread was measured."""
    if estimate.low is None or estimate.high is None:
        return format_loss(estimate.value)
    return f"{format_loss(estimate.value)} [{format_loss(estimate.low)}, {format_loss(estimate.high)}]"


def format_list(values: Sequence[object]) -> str:
    """`8, 16 and 32`."""
    texts = [f"{value:,}" if isinstance(value, int) else str(value) for value in values]
    return " and ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else "".join(texts)


def format_plural(count: int, noun: str, many: str = "") -> str:
    """`1 run`, `3 runs`."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def format_span(rows: Sequence[BatchRow], all_rows: Sequence[BatchRow]) -> str:
    """`8–32` where the sizes are neighbours on the axis, else `8 and 32`."""
    sizes = sorted(row.global_batch_size for row in rows)
    axis = sorted(row.global_batch_size for row in all_rows)
    start = axis.index(sizes[0])
    if len(sizes) > 1 and axis[start : start + len(sizes)] == sizes:
        return f"{sizes[0]:,}–{sizes[-1]:,}"
    return format_list(sizes)


def format_speed(tokens_per_second: float, unit: Unit) -> str:
    """`60.2k tok/s`."""
    text = f"{tokens_per_second / 1000:.3g}k" if tokens_per_second >= 1000 else f"{tokens_per_second:.3g}"
    if tokens_per_second >= 1_000_000:
        text = format_count(tokens_per_second)
    return f"{text} {'tok/s' if unit is Unit.TOKENS else 'samples/s'}"


def items_of(unit: Unit, sequence_length: int) -> str:
    """What a batch is made of: `sequences` where one holds several tokens, else `samples`."""
    return "sequences" if unit is Unit.TOKENS and sequence_length > 1 else "samples"


def format_layout(layout: BatchLayout, unit: Unit) -> str:
    """`micro-batch 32 × accum 1 × 1 device = 32 sequences (8,192 tokens/step)`."""
    items = items_of(unit, layout.sequence_length)
    per_step = f" ({layout.tokens_per_step:,} tokens/step)" if items == "sequences" else ""
    product = layout.micro_batch_size * layout.grad_accum_steps * layout.data_parallel_size
    equals = "=" if product == layout.global_batch_size else "→"
    return (
        f"micro-batch {layout.micro_batch_size:,} × accum {layout.grad_accum_steps:,} × "
        f"{format_plural(layout.data_parallel_size, 'device')} {equals} {layout.global_batch_size:,} {items}{per_step}"
    )


def format_seeds(surface: SurfaceFinding, row: BatchRow) -> str:
    """`3 seeds`, or `2 fresh seeds` where the quoted loss comes from seeds that chose nothing."""
    n = row.loss.n if row.loss else 0
    fresh = surface.fresh and row is surface.best
    return format_plural(n, "fresh seed" if fresh else "seed")


def format_test(surface: SurfaceFinding) -> str:
    """How sizes were compared with the best, as it stands in brackets."""
    if surface.paired_seeds:
        return f"one-sided t-test over seeds, 95 %, paired over {surface.paired_seeds} seeds where both have them"
    why = {
        "verified": "no two sizes share enough seeds to be paired",
        "declared": "unpaired, because the order of the data is declared and not verified",
        "none": "unpaired, because nothing is known about the order of the data",
    }
    return f"one-sided t-test over seeds, 95 %, {why[surface.pairing]}"


def format_cells(cells: Sequence[Cell]) -> str:
    """`batch 8 at 3.0e-3 and 6.0e-3, batch 16 at 6.0e-3`."""
    by_size: dict[int, list[str]] = {}
    for cell in cells:
        by_size.setdefault(cell.global_batch_size, []).append(format_rate(cell.learning_rate))
    return ", ".join(f"batch {size:,} at {format_list(rates)}" for size, rates in sorted(by_size.items()))
