"""Plots of the critical batch size: the noise scale along training, and what a loss costs at each batch size."""

from __future__ import annotations

from batchlab.analysis.critical_words import say_source
from batchlab.analysis.findings import Findings
from batchlab.analysis.noise_scale import NoiseScale
from batchlab.report.figure import Figure, Trace, axis, error_bars, layout, legend_title, log_axis, missing, size_axis
from batchlab.report.palette import colour_of
from batchlab.report.words import Words, count, loss, plural


def noise_series(findings: Findings) -> Figure:
    """Noise scale of each batch size's run against tokens seen, with its interval; beside it the batch trained with."""
    key, title, words = "noise-scale", "Gradient noise scale along training", Words.of(findings)
    series = findings.critical.noise if findings.critical else ()
    drawn: list[tuple[int, list[NoiseScale]]] = [
        (one.batch, [window for window in one.windows if window.value is not None]) for one in series
    ]
    drawn = [(batch, windows) for batch, windows in drawn if windows]
    if not drawn:
        return missing(key, title, "No run has a window of sampled steps in which the noise scale is determined.")
    traces: list[Trace] = []
    values: list[float] = []
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
                "hovertemplate": f"batch {batch:,}: %{{y:.3g}} {words.items}<extra></extra>",
            }
        )
    total = sum(len(windows) for _, windows in drawn)
    return Figure(
        key=key,
        title=title,
        caption=f"{plural(total, 'window')} of sampled steps at {plural(len(drawn), 'batch size')}, each at its best "
        f"learning rate, lowest seed; bars are 95 % intervals; windows without an upper limit are not drawn.",
        data=tuple(traces),
        layout=layout(
            legend=legend_title("run at batch"),
            xaxis=axis(f"{words.units} seen", range=[0, findings.token_budget]),
            yaxis=log_axis(f"noise scale ({words.items}, log scale)", [v for v in values if v > 0] or [1.0]),
        ),
    )


def cost_to_target(findings: Findings) -> Figure:
    """Tokens and steps to one loss against batch size."""
    words = Words.of(findings)
    key, title = "cost-to-target", f"{words.units.capitalize()} and steps to the same loss"
    critical = findings.critical
    points = [p for p in critical.curve if p.tokens is not None and p.steps is not None] if critical else []
    if critical is None or critical.target is None or not points:
        return missing(
            key, title, "Steps to a loss take runs at three budgets: batchlab critical STUDY --run trains them."
        )
    x = [float(point.batch) for point in points]
    tokens = [point.tokens or 0.0 for point in points]
    steps = [point.steps or 0.0 for point in points]
    common = {"type": "scatter", "mode": "lines+markers", "x": x}
    traces: list[Trace] = [
        {**common, "name": words.units, "y": tokens, "line": {"color": "@accent", "width": 1.8}, "marker": {"size": 8}},
        {
            **common,
            "name": "steps",
            "y": steps,
            "yaxis": "y2",
            "line": {"color": "@ink", "width": 1.4, "dash": "dot"},
            "marker": {"size": 7, "symbol": "square-open"},
        },
    ]
    fit = critical.steps.fit
    if fit is not None:
        length = findings.experiment.sequence_length
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "fitted curve",
                "x": x,
                "y": [fit.samples(batch) * length for batch in x],
                "line": {"color": "@soft", "width": 1.2, "dash": "dash"},
                "hoverinfo": "skip",
            }
        )
    return Figure(
        key=key,
        title=title,
        caption=f"To validation loss {loss(critical.target)}, {say_source(critical)} "
        f"({', '.join(count(budget) for budget in critical.budgets)} {words.units}); each size at the best learning "
        "rate of each of them.",
        data=tuple(traces),
        layout=layout(
            legend=legend_title(""),
            xaxis=size_axis(words.batch_axis, [point.batch for point in points], anchor="y2"),
            yaxis=log_axis(words.units, tokens, domain=[0.55, 1]),
            yaxis2=log_axis("steps", steps, domain=[0, 0.43]),
        ),
        height=420,
    )
