"""What the headline rests on: the caveats that stand beside it in the banner, under "unknown" and on the terminal."""

from __future__ import annotations

from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.clipping import clipping_gap
from batchlab.analysis.sweep.loss_surface import beyond_edge
from batchlab.analysis.values import SurfaceFinding
from batchlab.analysis.verdict import Recommendation
from batchlab.core.batch import Unit
from batchlab.core.format import format_learning_rate, format_loss, format_percent


def headline_caveats(found: Findings) -> tuple[str, ...]:
    """Phrases, the gravest first; empty where nothing is recommended."""
    surface, chosen = found.surface, found.recommended
    if surface is None or surface.best is None or chosen is None:
        return ()
    phrases = [
        baseline_missed(found),
        edge_of_axis(surface),
        _rate_at_edge(surface, chosen),
        held_out(found),
        describe_clipping(surface),
        tokens_per_parameter(found),
    ]
    return tuple(phrase for phrase in phrases if phrase)


def baseline_missed(found: Findings) -> str:
    """`the baseline was not reproduced`; empty where it was, or where there is none."""
    return "the baseline was not reproduced" if found.baseline is not None and not found.baseline.reproduced else ""


def edge_of_axis(surface: SurfaceFinding) -> str:
    """`best at the smallest batch tried, 4`; empty where the best lies between two judged sizes."""
    sizes = [row.global_batch_size for row in surface.rows if row.val_loss is not None and not row.undertrained]
    if surface.best is None or len(sizes) < 2 or surface.best.global_batch_size not in (sizes[0], sizes[-1]):
        return ""
    end = "smallest" if surface.best.global_batch_size == sizes[0] else "largest"
    tried = "tried" if len(sizes) == len(surface.rows) else "judged"
    return f"best at the {end} batch {tried}, {surface.best.global_batch_size:,}"


def _rate_at_edge(surface: SurfaceFinding, chosen: Recommendation) -> str:
    row = next(row for row in surface.rows if row.global_batch_size == chosen.layout.global_batch_size)
    rate = format_learning_rate(chosen.learning_rate)
    if len(row.cells) == 1:
        return f"LR {rate} is the only one tried there"
    if not row.edge or (row.best and beyond_edge(row.cells, row.best, row.edge)):
        return ""
    return f"LR {rate} is the {'highest' if row.edge == 'high' else 'lowest'} tried there"


def held_out(found: Findings) -> str:
    """The standard error of the held-out set, where it is larger than the difference that decides."""
    surface = found.surface
    deciding = _deciding_difference(found)
    if surface is None or surface.evaluation_sd is None or deciding is None or surface.evaluation_sd <= deciding:
        return ""
    return (
        f"other held-out samples would move every loss by {format_loss(surface.evaluation_sd)} (standard error), more "
        f"than the {format_loss(deciding)} that decides"
    )


def _deciding_difference(found: Findings) -> float | None:
    """In loss: the smallest between the recommended size and another judged one, on which the choice depends."""
    chosen = found.recommended
    if chosen is None:
        return None
    here = chosen.cost.loss.value if chosen.cost is not None else 0.0
    size = chosen.layout.global_batch_size
    return min((abs(cost.loss.value - here) for cost in found.costs if cost.global_batch_size != size), default=None)


def describe_clipping(surface: SurfaceFinding) -> str:
    """A caveat where clipping changed the step of some sizes far more than that of others."""
    gap = clipping_gap(surface)
    if gap is None:
        return ""
    low, high = gap
    return (
        f"gradients were clipped in {format_percent(low.share)} of the steps at batch {low.global_batch_size:,} and in "
        f"{format_percent(high.share)} at batch {high.global_batch_size:,}"
    )


def tokens_per_parameter(found: Findings) -> str:
    """`1.9 tokens per parameter`; only for tasks that count tokens."""
    if not (found.token_budget and found.task_info.parameter_count) or found.experiment.unit is not Unit.TOKENS:
        return ""
    return f"{found.token_budget / found.task_info.parameter_count:.2g} tokens per parameter"
