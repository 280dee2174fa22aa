"""All plots of a report, in the order they are read. Plain data: nothing here needs Plotly or a browser."""

from __future__ import annotations

from batchlab.analysis.findings import Findings
from batchlab.report.figures.critical import cost_to_target, noise_series
from batchlab.report.figures.curves import gradient_norms, training_curves, validation_curves
from batchlab.report.figures.device import memory, speed
from batchlab.report.figures.figure import Figure
from batchlab.report.figures.loss import decision
from batchlab.report.figures.surface import surface


def build_figures(findings: Findings) -> dict[str, Figure]:
    """Every figure by its key; one that has nothing to show says why instead."""
    made = (
        decision(findings),
        surface(findings),
        speed(findings),
        memory(findings),
        validation_curves(findings),
        training_curves(findings),
        gradient_norms(findings),
        noise_series(findings),
        cost_to_target(findings),
    )
    return {figure.key: figure for figure in made}
