"""Colours by name, once for light and once for dark; figures hold the names, the page swaps in the scheme's values.

Batch sizes are ordered, so their colours run along viridis (Smith & van der Walt 2015), which stays ordered and apart
under the common colour blindnesses; each scheme uses the stretch of it that stands out from its background. Markers
repeat what the colour says.
"""

from __future__ import annotations

from collections.abc import Mapping

STEPS = 8

_LIGHT_SERIES = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28a06f", "#4caf50", "#7fae1f")
_DARK_SERIES = ("#7d8ff0", "#5aa3e0", "#3fb4cf", "#35c3ae", "#57d08a", "#8edb5f", "#c6e13c", "#fde725")

THEMES: Mapping[str, Mapping[str, object]] = {
    "light": {
        "@page": "#ffffff",
        "@panel": "#f6f7f8",
        "@ink": "#1b1f24",
        "@soft": "#586069",
        "@rule": "#d9dde1",
        "@edge": "rgba(27,31,36,0.28)",
        "@grid": "#eceef0",
        "@accent": "#1a5fa8",
        "@tint": "rgba(26,95,168,0.18)",
        "@good": "#1a7a45",
        "@tied": "#4cd38a",
        "@warn": "#a35200",
        "@bad": "#b3261e",
        "@cell-low": "#1a5fa8",
        "@loss-scale": [[0, "#1a5fa8"], [0.5, "#9dbfe0"], [1, "#f1f4f8"]],
        **{f"@s{i}": colour for i, colour in enumerate(_LIGHT_SERIES)},
    },
    "dark": {
        "@page": "#14171b",
        "@panel": "#1b1f24",
        "@ink": "#e6e9ec",
        "@soft": "#9aa4ae",
        "@rule": "#343a41",
        "@edge": "rgba(230,233,236,0.28)",
        "@grid": "#262b31",
        "@accent": "#7ab3ef",
        "@tint": "rgba(122,179,239,0.30)",
        "@good": "#62c78d",
        "@tied": "#158a4e",
        "@warn": "#f0a35e",
        "@bad": "#ff8f85",
        "@cell-low": "#7ab3ef",
        "@loss-scale": [[0, "#8fc1f5"], [0.5, "#2f5479"], [1, "#20262d"]],
        **{f"@s{i}": colour for i, colour in enumerate(_DARK_SERIES)},
    },
}

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "pentagon", "star")


def colour_of(index: int, total: int) -> str:
    """Colour name of the `index`-th of `total` ordered sizes."""
    return f"@s{round(index * (STEPS - 1) / max(total - 1, 1))}"


def symbol_of(index: int) -> str:
    return SYMBOLS[index % len(SYMBOLS)]


def css_variables(scheme: str) -> str:
    """The scheme's plain colours as CSS custom properties."""
    return " ".join(f"--{k[1:]}: {v};" for k, v in THEMES[scheme].items() if isinstance(v, str))
