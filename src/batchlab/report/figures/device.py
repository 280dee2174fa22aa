"""Plots of the device: speed against batch size, memory against micro-batch size."""

from __future__ import annotations

import math

from batchlab.analysis.capacity.capacity import Capacity
from batchlab.analysis.findings import Findings
from batchlab.report.figures.figure import Figure, Trace, axis, error_bars, layout, lines, log_axis, missing, size_axis
from batchlab.report.figures.scales import byte_scale
from batchlab.words.figures import device as words
from batchlab.words.units import Units


def speed(findings: Findings) -> Figure:
    """Tokens per second above, seconds per optimizer step below."""
    units = Units.of(findings)
    key, title = "speed", words.speed_title(units)
    found = findings.throughput
    if not found or not found.points:
        return missing(key, title, words.NO_SPEED)
    points = sorted(found.points, key=lambda p: p.layout.global_batch_size)
    sizes = [p.layout.global_batch_size for p in points]
    rates = [p.tokens_per_second for p in points]
    upper: Trace = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": f"{units.name}/s",
        "x": sizes,
        "y": [r.value for r in rates],
        "hovertext": [lines(words.describe_speed(p, units)) for p in points],
        "hoverinfo": "text",
        "line": {"color": "@accent", "width": 1.8},
        "marker": {"symbol": "circle", "size": 8, "color": "@accent"},
        "error_y": {
            **error_bars([r.low for r in rates], [r.value for r in rates], [r.high for r in rates]),
            "color": "@accent",
        },
    }
    lower: Trace = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": words.STEP_SECONDS,
        "x": sizes,
        "y": [p.step_seconds for p in points],
        "yaxis": "y2",
        "hovertemplate": words.STEP_SECONDS_HOVER,
        "line": {"color": "@warn", "width": 1.8, "dash": "dash"},
        "marker": {"symbol": "square", "size": 7, "color": "@warn"},
    }
    return Figure(
        key=key,
        title=title,
        caption=words.speed_caption(found),
        data=(upper, lower),
        layout=layout(
            xaxis=size_axis(units.batch_axis, sizes, anchor="y2"),
            yaxis=axis(f"{units.name} per second", domain=[0.45, 1], rangemode="tozero"),
            yaxis2=log_axis(words.STEP_SECONDS, [p.step_seconds for p in points], domain=[0, 0.33]),
            **_knee(found.knee),
        ),
        height=360,
    )


def _knee(size: int | None) -> dict[str, list[Trace]]:
    if size is None:
        return {}
    line = {"color": "@soft", "width": 1.2, "dash": "dot"}
    note = {"text": "knee", "showarrow": False, "xanchor": "left", "yanchor": "bottom", "xshift": 4, "yref": "paper"}
    return {
        "shapes": [{"type": "line", "yref": "paper", "x0": size, "x1": size, "y0": 0, "y1": 1, "line": line}],
        # an annotation on a log axis is placed by its exponent
        "annotations": [{**note, "x": math.log10(size), "y": 0.46, "font": {"color": "@soft", "size": 11}}],
    }


def memory(findings: Findings) -> Figure:
    """Peak memory against micro-batch size, the trace's curve, the fitted line from the knee up, and the limit."""
    key, title = "memory", words.MEMORY
    found, units = findings.memory, Units.of(findings)
    if not found or not (found.points or found.traced):
        return missing(key, title, words.NO_MEMORY)
    fitted = [p for p in found.points if p.fits and p.peak_bytes is not None]
    if not (fitted or found.traced or found.limit_bytes):
        return missing(key, title, words.NO_PEAKS)
    limit = _limit_in_sight(found)
    sizes = sorted({p.micro_batch_size for p in found.points} or {p.micro_batch_size for p in found.traced})
    curve = _traced(found, sizes[-1])
    factor, unit = byte_scale(max([p.peak_bytes or 0 for p in found.points] + [y for _, y in curve] + [limit or 0]))
    traces: list[Trace] = []
    if found.line:
        ends = (min(found.knee or 0, sizes[-1]), sizes[-1])
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "fitted line",
                "x": ends,
                "y": [(found.line.intercept + found.line.slope * s) * factor for s in ends],
                "line": {"color": "@soft", "width": 1.5, "dash": "dash"},
                "hoverinfo": "skip",
            }
        )
    if fitted:
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "ran",
                "x": [p.micro_batch_size for p in fitted],
                "y": [(p.peak_bytes or 0) * factor for p in fitted],
                "marker": {"symbol": "circle", "size": 9, "color": "@accent"},
                "hovertemplate": words.probe_hover(unit),
            }
        )
    traces += _failed(found, factor)
    if len(curve) > 1:
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": words.trace_name(found),
                "x": [size for size, _ in curve],
                "y": [needed * factor for _, needed in curve],
                "line": {"color": "@accent", "width": 1},
                "hovertemplate": words.trace_hover(unit),
            }
        )
    return Figure(
        key=key,
        title=title,
        caption=words.memory_caption(found, fitted, limit is not None),
        data=tuple(traces),
        layout=layout(
            xaxis=axis(f"micro-batch size ({units.items})", rangemode="tozero"),
            yaxis=axis(f"peak memory ({unit})", rangemode="tozero"),
            **_marks(found, limit, factor),
        ),
    )


def _failed(found: Capacity, factor: float) -> list[Trace]:
    points = [p for p in found.points if not p.fits]
    if not points:
        return []
    line, limit = found.line, found.limit_bytes or 0
    heights = [p.peak_bytes or (line.intercept + line.slope * p.micro_batch_size if line else limit) for p in points]
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": words.failed_name(on_line=line is not None),
            "x": [p.micro_batch_size for p in points],
            "y": [h * factor for h in heights],
            "hovertext": [lines(words.describe_failed(p)) for p in points],
            "hoverinfo": "text",
            "marker": {"symbol": "x", "size": 9, "color": "@bad"},
        }
    ]


def _limit_in_sight(found: Capacity) -> int | None:
    """The limit, unless it is so far above all peaks that drawing it would flatten them."""
    highest = max((p.peak_bytes or 0 for p in found.points), default=0) or found.needed_bytes(1) or 0
    failed = any(not p.fits for p in found.points)
    return found.limit_bytes if found.limit_bytes and (failed or found.limit_bytes <= 3 * highest) else None


def _traced(found: Capacity, largest: int) -> list[tuple[int, float]]:
    """(size, bytes) of the trace up to `largest`, its bend included, plus what runs used beyond the trace."""
    curve, unseen = found.curve, found.unseen_bytes or 0
    if curve is None:
        return []
    sizes = {*(size for size in curve.sizes if size <= largest), min(curve.knee, largest), largest}
    return [(size, curve.at(size) + unseen) for size in sorted(sizes)]


def _marks(found: Capacity, limit: int | None, factor: float) -> dict[str, list[Trace]]:
    """The limit across, and the knee upright where there is one."""
    shapes: list[Trace] = []
    notes: list[Trace] = []
    if limit:
        height = limit * factor
        line = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": height, "y1": height}
        note = {"text": "limit", "x": 0, "xref": "paper", "xanchor": "left", "y": height, "yanchor": "top"}
        shapes.append({**line, "line": {"color": "@bad", "width": 1.4, "dash": "dot"}})
        notes.append({**note, "showarrow": False, "xshift": 4, "font": {"color": "@bad", "size": 11}})
    if found.knee and found.knee > 1:
        line = {"type": "line", "yref": "paper", "x0": found.knee, "x1": found.knee, "y0": 0, "y1": 1}
        note = {"text": f"knee {found.knee:,}", "x": found.knee, "xanchor": "left", "yref": "paper", "y": 0.04}
        shapes.append({**line, "line": {"color": "@soft", "width": 1, "dash": "dot"}})
        notes.append({**note, "showarrow": False, "xshift": 4, "font": {"color": "@soft", "size": 11}})
    return {"shapes": shapes, "annotations": notes} if shapes else {}
