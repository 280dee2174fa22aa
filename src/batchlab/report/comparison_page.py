"""Studies side by side as one HTML file that needs nothing else; the verdicts first, then the same axes for all."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

import batchlab
from batchlab.analysis.comparison import Comparison
from batchlab.report.figures.comparison import curves, losses
from batchlab.report.html import figures_json, templates, themes_json
from batchlab.report.page import PLOTLY, colours, policy, source
from batchlab.words.comparison import describe_evidence, describe_verdict, format_values


def comparison_page(found: Sequence[Comparison]) -> str:
    """The whole page; every comparison is of the same first side."""
    sides = (found[0].first, *(one.second for one in found))
    figures = {figure.key: figure for figure in (losses(sides), curves(sides))}
    plotly, script = source(PLOTLY), source("templates/report.js")
    return (
        templates()
        .get_template("comparison.html.j2")
        .render(
            title=" · ".join(side.name for side in sides),
            comparisons=[(describe_verdict(one), describe_evidence(one)) for one in found],
            settings=[
                (one.first.name, one.second.name, [(each.name, *format_values(each)) for each in one.differ])
                for one in found
            ],
            figures=figures,
            figures_json=figures_json(figures),
            themes=themes_json(),
            colours=colours(),
            version=batchlab.__version__,
            policy=policy(plotly, script),
            css=Markup(source("templates/report.css")),
            plotly=Markup(plotly),
            script=Markup(script),
        )
    )
