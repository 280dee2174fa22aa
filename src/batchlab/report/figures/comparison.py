"""Studies side by side on the same axes: loss against batch size, and the best runs against tokens."""

from __future__ import annotations

from collections.abc import Sequence

from batchlab.analysis.comparison import Side
from batchlab.analysis.values import Cell
from batchlab.report.figures.figure import Figure, Trace, axis, label, layout, missing, size_axis
from batchlab.report.figures.palette import colour_of, symbol_of
from batchlab.words.figures import comparison as words


def losses(sides: Sequence[Side]) -> Figure:
    """The lowest mean loss of every batch size, one line per side."""
    key, title = "losses", words.LOSSES
    best = {side.name: _by_size(side.cells) for side in sides}
    sizes = sorted({size for of_side in best.values() for size in of_side})
    if not sizes:
        return missing(key, title, words.NO_LOSS)
    traces = [
        {**_line(index, len(sides), side), "x": list(best[side.name]), "y": [*map(_loss, best[side.name].values())]}
        for index, side in enumerate(sides)
        if best[side.name]
    ]
    return Figure(
        key=key,
        title=title,
        caption=words.losses_caption(sides),
        data=tuple(traces),
        layout=layout(xaxis=size_axis(words.BATCH_AXIS, sizes), yaxis=axis(words.LOSS_AXIS)),
        height=360,
    )


def curves(sides: Sequence[Side]) -> Figure:
    """Validation loss of every side's best configuration while it trained, every seed that its loss is quoted from."""
    key, title = "curves", words.CURVES
    if len({side.unit for side in sides if side.unit is not None}) > 1:
        return missing(key, title, words.UNITS_DIFFER)
    traces: list[Trace] = []
    for index, side in enumerate(sides):
        runs = [run for run in (side.quoted.runs if side.quoted else ()) if run.val_curve]
        for number, run in enumerate(runs):
            traces.append(
                {
                    **_line(index, len(sides), side),
                    "legendgroup": label(side.name),
                    "showlegend": number == 0,
                    "opacity": 1 if number == 0 else 0.45,
                    "x": [tokens for tokens, _ in run.val_curve],
                    "y": [loss for _, loss in run.val_curve],
                }
            )
    if not traces:
        return missing(key, title, words.NO_CURVES)
    return Figure(
        key=key,
        title=title,
        caption=words.curves_caption(len(traces)),
        data=tuple(traces),
        layout=layout(xaxis=axis(words.tokens_axis(sides), rangemode="tozero"), yaxis=axis(words.LOSS_AXIS)),
        height=360,
    )


def _by_size(cells: Sequence[Cell]) -> dict[int, Cell]:
    """Batch size → its cell with the lowest mean loss, smallest size first."""
    found: dict[int, Cell] = {}
    for cell in cells:
        before = found.get(cell.global_batch_size)
        if cell.quoted_loss is not None and (before is None or _loss(cell) < _loss(before)):
            found[cell.global_batch_size] = cell
    return dict(sorted(found.items()))


def _loss(cell: Cell) -> float:
    return cell.quoted_loss if cell.quoted_loss is not None else float("inf")


def _line(index: int, total: int, side: Side) -> Trace:
    colour = colour_of(index, total)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": label(side.name),
        "line": {"color": colour, "width": 1.8},
        "marker": {"symbol": symbol_of(index), "size": 8, "color": colour},
        "hovertemplate": f"{label(side.name)}: %{{y:.4f}} at %{{x:,}}<extra></extra>",
    }
