"""A plot as plain data: what Plotly draws, its caption, and why it is missing when there is nothing to draw.

Text that reaches Plotly goes through `label` or `lines`: Plotly reads some HTML in labels, and users' text is not HTML.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FONT = ",".join(("system-ui", "-apple-system", '"Segoe UI"', "Roboto", '"Helvetica Neue"', "Arial", "sans-serif"))
MAX_POINTS = 160

Trace = dict[str, Any]
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Figure:
    """`data` and `layout` are Plotly's; colours in them are names of palette.THEMES. `missing` stands in for a plot.

    `look_for` says what would be remarkable in it.
    """

    key: str
    title: str
    caption: str
    data: tuple[Trace, ...] = ()
    layout: Mapping[str, Any] | None = None
    height: int = 340
    min_width: int = 0
    missing: str = ""
    look_for: str = ""

    @property
    def drawable(self) -> bool:
        return not self.missing


def missing(key: str, title: str, why: str) -> Figure:
    """The sentence that stands where a plot would."""
    return Figure(key=key, title=title, caption="", missing=why)


def label(text: object) -> str:
    """Text for a Plotly label, with its HTML meaning taken away."""
    return html.escape(str(text), quote=False)


def lines(texts: Iterable[str]) -> str:
    """Several lines of text for a Plotly label."""
    return "<br>".join(label(text) for text in texts)


def axis(title: str, **settings: Any) -> dict[str, Any]:
    """An axis in the report's style; `settings` win."""
    return {
        "title": {"text": title, "standoff": 8, "font": {"size": 12.5}},
        "gridcolor": "@grid",
        "linecolor": "@rule",
        "tickcolor": "@rule",
        "zeroline": False,
        "showline": True,
        "ticks": "outside",
        "ticklen": 4,
        "automargin": True,
        **settings,
    }


def size_axis(
    title: str, sizes: Iterable[int], texts: Mapping[int, str] | None = None, **settings: Any
) -> dict[str, Any]:
    """A log₂ axis whose ticks are the sizes themselves (or their `texts`), thinned where they would touch."""
    values = sorted(set(sizes))
    low, high = math.log10(values[0]), math.log10(values[-1])
    pad = max(0.07 * (high - low), 0.1)
    apart = 0.06 * (high - low + 2 * pad)
    ticks: list[int] = []
    for value in reversed(values):
        if not ticks or math.log10(ticks[-1] / value) >= apart:
            ticks.append(value)
    return axis(
        title,
        **{
            "type": "log",
            "tickvals": ticks[::-1],
            "ticktext": [(texts or {}).get(v, f"{v:,}") for v in ticks[::-1]],
            "tickangle": 0,
            "range": [low - pad, high + pad],
            **settings,
        },
    )


_STEPS = (
    (1,),
    (1, 2, 5),
    tuple(range(1, 10)),
    tuple(n / 2 for n in range(2, 20)),
    tuple(n / 10 for n in range(10, 100)),
)
"""Ticks within a decade, from coarse to fine."""


def log_axis(title: str, values: Iterable[float], **settings: Any) -> dict[str, Any]:
    """A log axis with round ticks around the positive `values`: the coarsest that have two between them."""
    positive = [v for v in values if v > 0]
    low, high = min(positive), max(positive)
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    choices = [[step * 10.0**exponent for exponent in decades for step in steps] for steps in _STEPS]
    fine = [ticks for ticks in choices[1:] if sum(low <= tick <= high for tick in ticks) >= 2] or choices[1:]
    ticks = choices[0] if high / low >= 200 else fine[0]
    texts = [f"{tick:g}" for tick in ticks]
    return axis(title, **{"type": "log", "tickvals": ticks, "ticktext": texts, **settings})


def layout(**settings: Any) -> dict[str, Any]:
    """The page's common layout; `settings` win."""
    return {
        "font": {"family": FONT, "size": 12, "color": "@ink"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 56, "r": 14, "t": 10, "b": 46},
        "hoverlabel": {
            "bgcolor": "@panel",
            "bordercolor": "@rule",
            "font": {"family": FONT, "size": 12, "color": "@ink"},
        },
        "hovermode": "closest",
        "showlegend": True,
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "font": {"size": 11.5, "color": "@ink"},
            "bgcolor": "rgba(0,0,0,0)",
        },
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "@soft", "activecolor": "@accent"},
        "uirevision": "keep",
        **settings,
    }


def legend_title(text: str) -> dict[str, Any]:
    """The common legend with a title before its first entry."""
    legend: dict[str, Any] = layout()["legend"]
    # above the entries: a title beside them is left out when Plotly wraps them into rows, and the last one is cut off
    return {**legend, "title": {"text": text, "side": "top", "font": {"size": 11.5, "color": "@soft"}}}


def error_bars(low: Sequence[float | None], value: Sequence[float], high: Sequence[float | None]) -> dict[str, Any]:
    """Asymmetric bars from interval ends; no bar where an end is not known."""
    return {
        "type": "data",
        "symmetric": False,
        "visible": any(end is not None for end in (*low, *high)),
        "array": [None if h is None else h - v for h, v in zip(high, value, strict=True)],
        "arrayminus": [None if b is None else v - b for b, v in zip(low, value, strict=True)],
        "thickness": 1.4,
        "width": 5,
    }


def downsample(points: Sequence[Point], limit: int = MAX_POINTS) -> list[Point]:
    """At most `limit` of the points, all of them real: the ends, and the lowest and highest of every stretch between.

    Keeping extremes keeps spikes, which a mean would hide and which the curves are there to show.
    """
    finite = [p for p in points if math.isfinite(p[0]) and math.isfinite(p[1])]
    if len(finite) <= limit:
        return finite
    inner = finite[1:-1]
    stretches = max((limit - 2) // 2, 1)
    kept = [finite[0]]
    for i in range(stretches):
        part = inner[i * len(inner) // stretches : (i + 1) * len(inner) // stretches]
        lowest = min(range(len(part)), key=lambda k: part[k][1])
        highest = max(range(len(part)), key=lambda k: part[k][1])
        kept += [part[k] for k in sorted({lowest, highest})]
    return [*kept, finite[-1]]


def averaged(points: Sequence[Point], stretches: int) -> list[Point]:
    """At most `stretches` means (of both coordinates) over equally many neighbouring points, finite ones only."""
    finite = [p for p in points if math.isfinite(p[0]) and math.isfinite(p[1])]
    if len(finite) <= stretches:
        return finite
    parts = [finite[i * len(finite) // stretches : (i + 1) * len(finite) // stretches] for i in range(stretches)]
    return [(sum(x for x, _ in part) / len(part), sum(y for _, y in part) / len(part)) for part in parts]


def plain(value: Any) -> Any:
    """The value as strict JSON can hold it: what is not finite becomes null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


def colour_names(value: Any, found: Callable[[str], None]) -> None:
    """Calls `found` with every palette name in a figure."""
    if isinstance(value, str) and value.startswith("@"):
        found(value)
    elif isinstance(value, Mapping):
        for inner in value.values():
            colour_names(inner, found)
    elif isinstance(value, list | tuple):
        for inner in value:
            colour_names(inner, found)
