"""What a study leaves unknown, as short phrases."""

from __future__ import annotations

from batchlab.analysis.findings import Findings
from batchlab.analysis.values import SurfaceFinding
from batchlab.core.format import format_list
from batchlab.core.pairing import Pairing
from batchlab.words.answers import predicted_cards
from batchlab.words.critical import headline
from batchlab.words.evidence import baseline_missed, edge_of_axis
from batchlab.words.run_length import run_length


def unknown(found: Findings) -> tuple[str, ...]:
    """What this study does not answer, the most consequential first."""
    missing = []
    if found.partial:
        left = f": {len(found.runs)} of {found.planned_runs} runs so far" if found.planned_runs else ""
        missing.append(f"the study is not finished{left}")
    if found.recommended is None:
        missing.append("what to train with")
    if missed := baseline_missed(found):
        missing.append(f"whether this is the experiment that was meant: {missed}")
    if found.surface is not None:
        missing += _of_losses(found.surface) + _of_sizes(found, found.surface)
    if found.token_budget:
        missing.append(f"budgets beyond {run_length(found)}")
    if not headline(found):
        missing.append("the critical batch size")
    missing += _of_memory(found)
    return tuple(missing)


def _of_losses(surface: SurfaceFinding) -> list[str]:
    missing = []
    if surface.pairing is Pairing.NONE and surface.best is not None:
        missing.append("how much other samples change a loss: their order is not known")
    if edge := edge_of_axis(surface):
        missing.append(f"whether another batch is better still: {edge}")
    if surface.noise_sd is None and surface.best is not None:
        missing.append("whether any difference is more than noise (n = 1)")
    losses = [cell.losses for row in surface.rows for cell in row.cells if cell.losses]
    if len(losses) > 1 and len({loss for of_cell in losses for loss in of_cell}) == 1:
        missing.append("which batch size or learning rate is better: all losses are identical")
    return missing


def _of_sizes(found: Findings, surface: SurfaceFinding) -> list[str]:
    """Batch sizes that were not run, have no loss, are not tuned or not judged."""
    asked = set(found.experiment.batch.global_batch_sizes)
    tried = {row.global_batch_size for row in surface.rows if row.cells}
    finite = {row.global_batch_size for row in surface.rows if row.best}
    judged = [row for row in surface.rows if row.best is not None and not row.undertrained]
    untuned = [row.global_batch_size for row in judged if len(row.cells) == 1]
    edges = [row.global_batch_size for row in judged if row.edge]
    undertrained = [row.global_batch_size for row in surface.rows if row.undertrained]
    missing = []
    if no_loss := sorted(asked & tried - finite):
        missing.append(f"batch {format_list(no_loss)}: no finite loss")
    if not_run := sorted(asked - tried):
        missing.append(f"batch {format_list(not_run)}: not run")
    if untuned:
        missing.append(f"the best learning rate of batch {format_list(untuned)} (one was tried)")
    if edges:
        missing.append(f"the best learning rate of batch {format_list(edges)} (at the edge of the grid)")
    if undertrained:
        missing.append(f"batch {format_list(undertrained)}: too few steps at this budget to be judged")
    return missing


def _of_memory(found: Findings) -> list[str]:
    memory, missing = found.memory, []
    if memory is not None and memory.max_micro_batch_size is not None:
        largest = memory.max_micro_batch_size
        if memory.reached_the_end:
            missing.append(f"whether micro-batches above {largest:,} fit")
        else:
            first = memory.smallest_failed or largest + 1
            how = "only with gradient accumulation"
            if not found.sample_independent:
                how = "do not fit, and this model's batches cannot be split"
            missing.append(f"batches of {first:,} and more: {how}")
    other = "memory on another device"
    return [*missing, f"{other}, which is predicted only" if predicted_cards(found) else other]
