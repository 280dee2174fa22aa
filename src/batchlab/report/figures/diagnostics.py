"""Plots of the diagnostic snapshots: every curve of one plot comes from the same steps."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.runs import first_runs
from batchlab.analysis.values import BatchRow, Run
from batchlab.core.record import MetricRow
from batchlab.report.figures.curves import curve_line, curve_points, tokens_axis
from batchlab.report.figures.figure import Figure, Trace, axis, label, layout, legend_title, log_axis
from batchlab.report.figures.palette import colour_of
from batchlab.words.figures import diagnostics as words
from batchlab.words.units import Units

GAP = 0.05
"""Between the panels of a plot, as a share of its height."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One curve per batch size of one reading; `log` where it spans decades, `faint` names a second reading."""

    name: str
    reading: str
    log: bool = False
    faint: str = ""
    level: str = ""


def diagnostic_figures(findings: Findings) -> tuple[Figure, ...]:
    """One plot per quantity that was read in any run; empty where nothing was."""
    parts = findings.diagnostics.parts
    if not first_runs(findings.surface) or not parts:
        return ()
    blocks = [part for part in parts.get("update_ratio", ()) if part != "all"]
    inner = _first_middle_last([part for part in blocks if part in _repeated(blocks)] or blocks)
    attention = _first_middle_last(parts.get("attention_entropy_lowest", ()))
    made = (
        _panels(
            findings,
            "same-steps",
            words.SAME_STEPS,
            (
                Panel("training loss", "loss/all"),
                Panel("gradient norm", "grad_norm/all", log=True),
                Panel("effective step", "effective_step/all"),
                Panel("update ratio", "update_ratio/all", log=True),
            ),
        ),
        _panels(
            findings,
            "layer-gradients",
            words.LAYER_GRADIENTS,
            tuple(Panel(name, f"grad_norm/{name}", log=True) for name in inner),
        ),
        _panels(
            findings,
            "layer-updates",
            words.LAYER_UPDATES,
            tuple(Panel(name, f"update_ratio/{name}", log=True) for name in inner),
        ),
        _panels(
            findings,
            "activations",
            words.ACTIVATIONS,
            tuple(
                Panel(name, f"activation_rms/{name}") for name in _first_middle_last(parts.get("activation_rms", ()))
            ),
        ),
        _panels(
            findings,
            "norm-layers",
            words.NORM_LAYERS,
            tuple(Panel(kind, f"norm_layer_grad/{kind}", log=True) for kind in parts.get("norm_layer_grad", ())),
        ),
        _panels(
            findings,
            "attention",
            words.ATTENTION,
            tuple(
                Panel(
                    name,
                    f"attention_entropy/{name}",
                    faint=f"attention_entropy_lowest/{name}",
                    level=f"attention_entropy_uniform/{name}",
                )
                for name in attention
            ),
        ),
        _heads(findings),
        _phases(findings),
    )
    return tuple(figure for figure in made if figure is not None)


def _repeated(blocks: Sequence[str]) -> set[str]:
    """Names that differ from another only in a number: `blocks.0`, `blocks.1`."""
    stems = [name.rpartition(".")[0] for name in blocks if name.rpartition(".")[2].isdigit()]
    return {name for name in blocks if name.rpartition(".")[2].isdigit() and stems.count(name.rpartition(".")[0]) > 1}


def _first_middle_last(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names[i] for i in (0, (len(names) - 1) // 2, -1))) if names else []


def _reading(row: MetricRow, name: str) -> float | None:
    return (row.diagnostics or {}).get(name)


def _read(name: str) -> Callable[[MetricRow], float | None]:
    return lambda row: _reading(row, name)


def _panels(findings: Findings, key: str, text: words.Text, panels: Sequence[Panel]) -> Figure | None:
    """Panels one above the other over one axis of tokens; None where no run has any of their readings."""
    pairs, units = first_runs(findings.surface), Units.of(findings)
    read = {name for _, run in pairs for row in run.rows for name in row.diagnostics or ()}
    kept = [panel for panel in panels if panel.reading in read]
    if not kept:
        return None
    height = (1 + GAP) / len(kept)
    traces: list[Trace] = []
    axes: dict[str, object] = {}
    levels: list[Trace] = []
    for place, panel in enumerate(kept):
        number = str(place + 1) if place else ""
        lines = [
            line
            for index, (row, run) in enumerate(pairs)
            for line in _curves(panel, index, len(pairs), row, run, number)
        ]
        top = 1 - place * height
        domain = [max(0.0, top - height + GAP), top]
        heights = [value for line in lines for value in line["y"] if not panel.log or value > 0]
        name = label(_short(panel.name))
        axes[f"yaxis{number}"] = (
            log_axis(name, heights, domain=domain) if panel.log and heights else axis(name, domain=domain, nticks=4)
        )
        limits = [v for _, run in pairs for r in run.rows if (v := _reading(r, panel.level)) is not None]
        levels += [_level(max(limits), f"y{number}")] if limits else []
        traces += lines
    named: set[str] = set()
    for trace in traces:  # one entry of the legend per batch size
        trace["showlegend"] = trace["mode"] != "lines" and trace["name"] not in named
        named |= {trace["name"]} if trace["showlegend"] else set()
    return Figure(
        key=key,
        title=text.title,
        caption=words.snapshots_caption(findings, text, len(named)),
        look_for=text.look_for,
        data=tuple(traces),
        layout=layout(
            legend=legend_title("batch (best LR)"),
            xaxis=tokens_axis(units, anchor=f"y{len(kept) if len(kept) > 1 else ''}"),
            shapes=levels,
            **axes,
        ),
        height=110 + 115 * len(kept),
    )


def _curves(panel: Panel, index: int, total: int, row: BatchRow, run: Run, number: str) -> list[Trace]:
    """The panel's reading of one run, and the faint one beside it."""
    lines = []
    for name in (panel.reading, panel.faint):
        points = curve_points(run.rows, _read(name))
        if not points:
            continue
        line = curve_line(index, total, row, points, yaxis=f"y{number}")
        faint = {"mode": "lines", "line": {**line["line"], "dash": "dot", "width": 1.0}}
        lines.append(line | faint if name == panel.faint else line)
    return lines


def _short(name: str) -> str:
    """At most 18 characters, the end of a name rather than its start."""
    return name if len(name) <= 18 else f"…{name[-17:]}"


def _level(value: float, y: str) -> Trace:
    line = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": y, "y0": value, "y1": value}
    return {**line, "line": {"color": "@soft", "width": 1.0, "dash": "dash"}}


def _heads(findings: Findings) -> Figure | None:
    """Every head of the last attention layer of the run that the study recommends, where heads were read one by one."""
    heads = [part for part in findings.diagnostics.parts.get("attention_entropy", ()) if "/head" in part]
    pairs = first_runs(findings.surface)
    if not heads or not pairs:
        return None
    recommended = findings.recommended
    size = recommended.layout.global_batch_size if recommended else None
    row, run = next(((r, one) for r, one in pairs if r.global_batch_size == size), pairs[-1])
    layer = heads[-1].rpartition("/head")[0]
    mine = [part for part in heads if part.startswith(f"{layer}/head")]
    lines = []
    for index, part in enumerate(mine):
        points = curve_points(run.rows, _read(f"attention_entropy/{part}"))
        trace = curve_line(index, len(mine), row, points)
        number = part.rpartition("/head")[2]
        hover = f"head {number}: %{{y:.3f}} at %{{x:,}}<extra></extra>"
        lines.append(trace | {"name": number, "legendgroup": f"head {number}", "hovertemplate": hover})
    units = Units.of(findings)
    return Figure(
        key="heads",
        title=words.HEADS.title,
        caption=words.heads_caption(layer, row.global_batch_size),
        look_for=words.HEADS.look_for,
        data=tuple(lines),
        layout=layout(legend=legend_title("head"), xaxis=tokens_axis(units), yaxis=axis("entropy (nats)")),
    )


def _phases(findings: Findings) -> Figure | None:
    """Share of a step's time that each phase takes, side by side for the batch sizes.

    Only shares: runs that train side by side slow each other down, so their seconds are not those of a step alone.
    """
    pairs, units = first_runs(findings.surface), Units.of(findings)
    timed = [(row, run) for row, run in pairs if _median(run, "forward") is not None]
    if not timed:
        return None
    sizes = [row.global_batch_size for row, _ in timed]
    taken = {phase: [_median(run, phase) or 0.0 for _, run in timed] for phase in words.PHASE_NAMES}
    whole = [sum(of_phase) for of_phase in zip(*taken.values(), strict=True)]
    bars = [
        {
            "type": "bar",
            "name": name,
            "x": [f"{size:,}" for size in sizes],
            "y": [100 * value / total for value, total in zip(taken[phase], whole, strict=True)],
            "marker": {"color": colour_of(index, len(words.PHASE_NAMES))},
            "hovertemplate": f"batch %{{x}}: {name} %{{y:.0f}} %<extra></extra>",
        }
        for index, (phase, name) in enumerate(words.PHASE_NAMES.items())
    ]
    return Figure(
        key="phases",
        title=words.PHASES.title,
        caption=words.phases_caption(sizes),
        look_for=words.PHASES.look_for,
        data=tuple(bars),
        layout=layout(
            barmode="stack",
            xaxis=axis(units.batch_axis, type="category"),
            yaxis=axis(words.PHASES_AXIS, range=[0, 100]),
        ),
    )


def _median(run: Run, phase: str) -> float | None:
    seconds = [value for r in run.rows if (value := _reading(r, f"seconds/{phase}")) is not None]
    return statistics.median(seconds) if seconds else None
