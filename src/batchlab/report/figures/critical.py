"""Plots of the critical batch size: the three estimators along training, and what a loss costs at each batch size."""

from __future__ import annotations

from collections.abc import Sequence

from batchlab.analysis.critical.noise_scale import NoiseScale
from batchlab.analysis.critical.steps_from_runs import ToTarget, hours_to_target
from batchlab.analysis.findings import Findings
from batchlab.core.format import format_plural
from batchlab.report.figures.figure import (
    Figure,
    Trace,
    axis,
    error_bars,
    layout,
    legend_title,
    log_axis,
    missing,
    size_axis,
)
from batchlab.report.figures.palette import colour_of
from batchlab.report.figures.scales import time_scale
from batchlab.words.estimates import DEFINITION, format_sizes
from batchlab.words.figures import critical as words
from batchlab.words.figures.curves import tokens_seen
from batchlab.words.units import Units

DEVICES = (1, 4, 16)
"""Numbers of devices whose time the figure shows where none is asked for."""


def noise_series(findings: Findings) -> Figure:
    """The three estimators against tokens seen: noise scale of each batch size's run with its interval, B_crit from
    steps to a loss as lines over the whole run, branches where they started."""
    key, title, units = "noise-scale", words.ALONG_TRAINING, Units.of(findings)
    series = findings.critical.noise if findings.critical else ()
    drawn: list[tuple[int, list[NoiseScale]]] = [
        (one.batch, [window for window in one.windows if window.value is not None]) for one in series
    ]
    drawn = [(batch, windows) for batch, windows in drawn if windows]
    beside, values = _beside_noise(findings)
    traces: list[Trace] = []
    if not drawn and not beside:
        return missing(key, title, words.NO_NOISE_SCALE)
    for index, (batch, windows) in enumerate(drawn):
        estimates = [window.value for window in windows if window.value is not None]
        y = [estimate.value for estimate in estimates]
        values += y
        colour = colour_of(index, len(drawn))
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"{batch:,}",
                "x": [(window.tokens_from + window.tokens_to) / 2 for window in windows],
                "y": y,
                "line": {"color": colour, "width": 1.6},
                "marker": {"size": 6, "color": colour},
                "error_y": {**error_bars([e.low for e in estimates], y, [e.high for e in estimates]), "color": colour},
                "hovertemplate": f"batch {batch:,}: %{{y:.3g}} {units.items}<extra></extra>",
            }
        )
    total = sum(len(windows) for _, windows in drawn)
    return Figure(
        key=key,
        title=title,
        caption=words.along_training_caption(total, len(drawn)),
        data=(*traces, *beside),
        layout=layout(
            legend=legend_title("noise scale, batch"),
            xaxis=axis(tokens_seen(units), range=[0, 1.03 * (findings.token_budget or 1)]),
            yaxis=log_axis(f"batch ({units.items}, log scale)", [v for v in values if v > 0] or [1.0]),
        ),
    )


def _beside_noise(findings: Findings) -> tuple[list[Trace], list[float]]:
    """(traces, batch sizes drawn) of the other two estimators."""
    critical, units = findings.critical, Units.of(findings)
    if critical is None or findings.token_budget is None:
        return [], []
    traces: list[Trace] = []
    values: list[float] = []
    for found, dash in zip(critical.steps.estimates, ("dot", "dash", "dashdot"), strict=False):
        if found.value is not None:
            name = DEFINITION[found.definition]
            values.append(found.value.value)
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": name,
                    "x": [0, findings.token_budget],
                    "y": [found.value.value] * 2,
                    "line": {"color": "@ink", "width": 1.4, "dash": dash},
                    "hovertemplate": f"{name}: {format_sizes(found.value)} {units.items}<extra></extra>",
                }
            )
    length = findings.experiment.sequence_length
    for name, symbol, sizes in (
        ("accepted", "triangle-up", [(b.tokens, b.at_least) for b in critical.branches]),
        ("rejected", "triangle-down", [(b.tokens, b.below) for b in critical.branches]),
    ):
        known = [(tokens * length, size) for tokens, size in sizes if size is not None]
        if known:
            values += [size for _, size in known]
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": name,
                    "x": [tokens for tokens, _ in known],
                    "y": [size for _, size in known],
                    "marker": {"size": 11, "symbol": symbol, "color": "@accent"},
                    "hovertemplate": f"{name} by branches: %{{y:.3g}} {units.items}<extra></extra>",
                }
            )
    return traces, values


def cost_to_target(findings: Findings) -> Figure:
    """Tokens, steps and time on several numbers of devices to one loss, against batch size."""
    units = Units.of(findings)
    key, title = "cost-to-target", words.cost_title(units)
    critical = findings.critical
    points = [p for p in critical.curve if p.tokens is not None and p.steps is not None] if critical else []
    if critical is None or critical.target is None or not points:
        return missing(key, title, words.NO_TARGET)
    x = [float(point.batch) for point in points]
    tokens = [point.tokens or 0.0 for point in points]
    steps = [point.steps or 0.0 for point in points]
    common = {"type": "scatter", "mode": "lines+markers", "x": x}
    traces: list[Trace] = [
        {**common, "name": units.name, "y": tokens, "line": {"color": "@accent", "width": 1.8}, "marker": {"size": 8}},
        {
            **common,
            "name": "steps",
            "y": steps,
            "yaxis": "y2",
            "line": {"color": "@ink", "width": 1.4, "dash": "dot"},
            "marker": {"size": 7, "symbol": "square-open"},
        },
    ]
    curve = critical.steps.curve
    if curve is not None:
        length = findings.experiment.sequence_length
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "fitted curve",
                "x": x,
                "y": [curve.samples(batch) * length for batch in x],
                "line": {"color": "@soft", "width": 1.2, "dash": "dash"},
                "hoverinfo": "skip",
            }
        )
    timed, times, time_name = _time_to_target(findings, points)
    traces += timed
    low, middle, high = ([0.7, 1], [0.36, 0.64], [0, 0.3]) if times else ([0.55, 1], [0, 0.43], [0, 0])
    third = {"yaxis3": log_axis(f"time ({time_name})", times, domain=high)} if times else {}
    return Figure(
        key=key,
        title=title,
        caption=words.cost_caption(critical, units, timed=bool(times)),
        data=tuple(traces),
        layout=layout(
            legend=legend_title(""),
            xaxis=size_axis(units.batch_axis, [point.batch for point in points], anchor="y3" if times else "y2"),
            yaxis=log_axis(units.name, tokens, domain=low),
            yaxis2=log_axis("steps", steps, domain=middle),
            **third,
        ),
        height=560 if times else 420,
    )


def _time_to_target(findings: Findings, points: Sequence[ToTarget]) -> tuple[list[Trace], list[float], str]:
    """(traces, values, unit) of the time to the target on one device and on more, where speed was measured."""
    length = findings.experiment.sequence_length
    numbers = DEVICES if findings.devices == 1 else (1, findings.devices)
    hours = {
        devices: [(point.batch, hours_to_target(point, findings.throughput, devices, length)) for point in points]
        for devices in numbers
    }
    known = {devices: [(b, h) for b, h in each if h is not None] for devices, each in hours.items()}
    values = [h for each in known.values() for _, h in each]
    if not values:
        return [], [], ""
    factor, name = time_scale(max(values))
    traces: list[Trace] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": format_plural(devices, "device"),
            "x": [float(batch) for batch, _ in each],
            "y": [h * factor for _, h in each],
            "yaxis": "y3",
            "line": {"color": colour_of(index, len(numbers)), "width": 1.6},
            "marker": {"size": 6, "color": colour_of(index, len(numbers))},
        }
        for index, (devices, each) in enumerate(known.items())
        if each
    ]
    return traces, [h * factor for h in values], name
