"""An audit as one HTML file without scripts. Everything from the table is escaped by Jinja's autoescape."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import batchlab
from batchlab.analysis.audit.against import Reproduction
from batchlab.analysis.audit.audit import Audit, Supported
from batchlab.analysis.audit.losses import cells_of
from batchlab.audit.document import supported_texts
from batchlab.core.format import format_loss
from batchlab.report.html import code
from batchlab.report.page import colours, policy, source
from batchlab.words.audit import (
    audit_notes,
    describe_reproduction,
    describe_size,
    describe_unchecked,
    describe_verdict,
)

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 14, 14, 44

SHOWN = 2.0
"""Times the range of the best losses of the sizes: losses above that are left out of the picture."""

MOST_PICTURES = 6
"""Groups that are drawn; the text tells of all."""


@dataclass(frozen=True, slots=True)
class Dot:
    """A configuration in the picture; `best`: of its batch size."""

    x: float
    y: float
    best: bool
    title: str


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Picture:
    """Loss against batch size (log₂), in pixels of a WIDTH × HEIGHT drawing. `line`: through the best of each size."""

    title: str
    dots: tuple[Dot, ...]
    line: str
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]


def audit_page(audit: Audit, repeated: Reproduction | None = None) -> str:
    """The whole page."""
    made = Environment(loader=PackageLoader("batchlab.audit"), autoescape=True, undefined=StrictUndefined)
    texts = supported_texts(audit)
    pictures = [
        picture_of(group, text)
        for group, text in zip(audit.supported[:MOST_PICTURES], texts, strict=False)
        if len(group.sizes) > 1
    ]
    made.filters["code"] = code
    return made.get_template("audit.html.j2").render(
        name=audit.table.name,
        verdict=describe_verdict(audit),
        notes=audit_notes(audit),
        shows=texts,
        pictures=pictures,
        repeats=describe_reproduction(repeated) if repeated is not None else (),
        not_checked=describe_unchecked(audit.table),
        unread=audit.table.extra,
        size=(WIDTH, HEIGHT),
        frame=(LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM),
        version=batchlab.__version__,
        policy=policy(),
        colours=colours(),
        css=Markup(source("templates/report.css")),
    )


def picture_of(group: Supported, title: str) -> Picture:
    """All configurations of a group. Losses far above the best of all sizes are left out, so that these stay apart."""
    best = {size.global_batch_size: size for size in group.sizes}
    top = max(size.loss for size in group.sizes)
    low = min(size.loss for size in group.sizes)
    ceiling = low + SHOWN * (top - low)
    losses = [
        (size, rate, sum(entry.loss or 0.0 for entry in entries) / len(entries))
        for (size, rate), entries in cells_of(group.entries).items()
    ]
    shown = [item for item in losses if item[2] <= ceiling]
    ceiling = max(loss for _, _, loss in shown)
    first, last = math.log2(min(best)), math.log2(max(best))
    margin = 0.08 * (ceiling - low or abs(low) or 1.0)

    def x(size: float) -> float:
        return LEFT + 18 + (math.log2(size) - first) / (last - first) * (WIDTH - LEFT - RIGHT - 36)

    def y(loss: float) -> float:
        return HEIGHT - BOTTOM - (loss - low + margin) / (ceiling - low + 2 * margin) * (HEIGHT - TOP - BOTTOM)

    dots = [
        Dot(
            x(size),
            y(loss),
            best[size].learning_rate == rate,
            f"{describe_size(best[size]) if best[size].learning_rate == rate else f'batch {size:,.0f}'}: "
            f"{format_loss(loss)}",
        )
        for size, rate, loss in shown
    ]
    line = " ".join(f"{x(size.global_batch_size):.1f},{y(size.loss):.1f}" for size in group.sizes)
    across = [Tick(x(size), f"{size:,.0f}") for size in _apart(sorted(best), x)]
    up = [Tick(y(value), format_loss(value)) for value in (low, (low + top) / 2, top)]
    return Picture(title, tuple(sorted(dots, key=lambda dot: dot.best)), line, tuple(across), tuple(up))


def _apart(sizes: Sequence[float], x: Callable[[float], float]) -> list[float]:
    """Every size whose label has room beside the last one shown."""
    kept: list[float] = []
    for size in sizes:
        if not kept or x(size) - x(kept[-1]) >= 44:
            kept.append(size)
    return kept
