"""The findings section: sentences computed from the numbers, each with its n. No winner is claimed within noise."""

from __future__ import annotations

import math

from batchlab.analysis.extrapolation import Target, extrapolate
from batchlab.analysis.findings import Findings
from batchlab.analysis.values import BatchRow, SurfaceFinding
from batchlab.core.format import (
    format_bytes,
    format_count,
    format_interval,
    format_learning_rate,
    format_list,
    format_loss,
    format_plural,
    format_throughput,
)
from batchlab.core.record import Outcome
from batchlab.scaling import Refused
from batchlab.words.phrases import format_cells, format_seeds, format_span, format_test
from batchlab.words.rate_conclusions import rate_conclusions
from batchlab.words.scaling import describe_confirmation, describe_rule
from batchlab.words.search import stop_reason
from batchlab.words.starting_point import starting_point

LARGER = 4
"""Times the budget at which the findings show what may be extrapolated."""


def conclusions(found: Findings) -> tuple[str, ...]:
    """Sentences in reading order: quality, learning rate, noise, speed, memory, dynamics."""
    sentences: list[str] = []
    surface = found.surface
    if surface is not None:
        if surface.best is None:
            sentences.append(surface.cannot_tell)
        else:
            sentences += [_best(found, surface, surface.best), _tied(surface, surface.best)]
            sentences += _set_of_cells(surface)
            sentences += _away(surface, surface.best)
            sentences += rate_conclusions(surface) + _noise(surface)
            sentences += _target(found, surface)
        sentences += _undertrained(surface) + starting_point(found) + _stopped(found) + _elsewhere(found)
    sentences += _speed(found) + _memory(found) + _dynamics(found)
    return tuple(sentence for sentence in sentences if sentence)


def _unit(found: Findings) -> str:
    return found.experiment.unit.value


def _best(found: Findings, surface: SurfaceFinding, best: BatchRow) -> str:
    if best.best is None or best.val_loss is None:
        return ""
    budget = f"After {format_count(found.token_budget)} {_unit(found)}" if found.token_budget else "At equal budgets"
    where = f"batch {best.global_batch_size:,} at learning rate {format_learning_rate(best.best.learning_rate)}"
    if surface.noise_sd is None:
        return (
            f"{budget} {where} had the lowest validation loss, {format_loss(best.val_loss.value)} (n = 1: whether that is "
            "more than noise is not known)."
        )
    return (
        f"{budget} {where} had the lowest mean validation loss, {format_interval(best.val_loss)} "
        f"(n = {format_seeds(surface, best)}; 95 % interval from a pooled standard deviation with "
        f"{surface.noise_df} degrees of freedom){_chosen_by(surface)}."
    )


def _chosen_by(surface: SurfaceFinding) -> str:
    """Whether the quoted loss owes something to having been chosen."""
    if surface.fresh:
        return "; these seeds had no part in choosing it"
    return "; one of them chose it, so the mean is somewhat lucky"


def _tied(surface: SurfaceFinding, best: BatchRow) -> str:
    judged = [row for row in surface.rows if row.val_loss is not None and not row.undertrained]
    others = [row for row in surface.tied if row is not best]
    if surface.noise_sd is None:
        return f"With n = 1 nothing separates the {len(judged)} batch sizes from noise." if len(judged) > 1 else ""
    if len(judged) == 1:
        return ""
    if not others:
        return (
            f"Noise does not explain the distance of any of the other {len(judged) - 1} batch sizes "
            f"({format_test(surface)})."
        )
    each = format_list([f"{row.global_batch_size:,} (n = {row.val_loss.n})" for row in others if row.val_loss])
    return f"Noise cannot separate batch {each} from it ({format_test(surface)})."


def _set_of_cells(surface: SurfaceFinding) -> list[str]:
    """The answer as a set: not only sizes at their best learning rate, but every cell."""
    if surface.noise_sd is None or len(surface.tied_cells) <= len(surface.tied):
        return []
    cells = [cell for row in surface.rows for cell in row.cells]
    runs = sum(len(cell.runs) for cell in cells)
    return [
        f"Of {len(cells)} cells (n = {runs} runs) noise cannot separate {len(surface.tied_cells)} from the best: "
        f"{format_cells(surface.tied_cells)}."
    ]


def _away(surface: SurfaceFinding, best: BatchRow) -> list[str]:
    """How the loss changes towards the smallest and the largest judged batch."""
    judged = [row for row in surface.rows if row.val_loss is not None and not row.undertrained]
    sentences = []
    for row, side in ((judged[0], "Smaller"), (judged[-1], "Larger")):
        if row is best or row.val_loss is None or best.val_loss is None:
            continue
        difference = row.val_loss.value - best.val_loss.value
        apart = abs(math.log2(row.global_batch_size / best.global_batch_size))
        doublings = "1 doubling" if apart == 1 else f"{apart:.2g} doublings"
        verdict = ", within noise" if row.tied else ", more than noise explains"
        if surface.noise_sd is None:
            verdict = ", noise not measured"
        sentences.append(
            f"{side} batches: batch {row.global_batch_size:,} ({doublings} away, at its own best learning rate) "
            f"ended {format_loss(abs(difference))} {'higher' if difference >= 0 else 'lower'}"
            f"{verdict} (n = {row.val_loss.n} against {best.val_loss.n})."
        )
    return sentences


def _target(found: Findings, surface: SurfaceFinding) -> list[str]:
    """Who reached the loss that was asked for; it holds for its own data and tokens only."""
    target = found.experiment.evaluation.target_loss
    means = {row.global_batch_size: row.best.mean_loss for row in surface.rows if row.best and row.best.losses}
    if target is None or not means:
        return []
    reached = [size for size, mean in means.items() if mean is not None and mean <= target]
    lowest = min(mean for mean in means.values() if mean is not None)
    verdict = f"was reached by batch {format_list(reached)}" if reached else "was not reached"
    return [
        f"The target of {format_loss(target)} (evaluation.target_loss) {verdict}; the lowest was {format_loss(lowest)}. A "
        f"target holds for its own text and tokens; trained here: {found.task_info.data_source}."
    ]


def _noise(surface: SurfaceFinding) -> list[str]:
    if surface.noise_sd is None:
        return ["Seeds were not repeated: n = 1 everywhere, and no difference here can be called larger than noise."]
    text = (
        f"Runs that differ only in their seed differ by a standard deviation of {format_loss(surface.noise_sd)} "
        f"(n = {surface.noise_seeds} runs, {surface.noise_df} degrees of freedom)"
    )
    if surface.correlation is not None:
        text += f"; with equal seeds, two batch sizes correlated by {surface.correlation:.2f} (few seeds, so roughly)"
    return [text + ".", *_evaluation(surface)]


def _evaluation(surface: SurfaceFinding) -> list[str]:
    if surface.evaluation_sd is None:
        return []
    return [
        f"The held-out samples are a sample too: others of their number would move a loss by a standard error of "
        f"{format_loss(surface.evaluation_sd)}. All runs were evaluated on the same ones, so this is in the losses and "
        "mostly not in their differences, and in no interval here."
    ]


def _undertrained(surface: SurfaceFinding) -> list[str]:
    rows = [row for row in surface.rows if row.undertrained]
    if not rows:
        return []
    return [
        f"Batch {format_list([row.global_batch_size for row in rows])} had under 50 steps or under 5 warm-up steps at "
        f"this budget (n = {sum(len(cell.runs) for row in rows for cell in row.cells)} runs): shown, never judged."
    ]


def _stopped(found: Findings) -> list[str]:
    """Why an adaptive search tried no further cell."""
    if found.search_stopped is None:
        return []
    runs = format_plural(len(found.runs), "run")
    return [f"The search tried no further cell because {stop_reason(found.search_stopped)} (n = {runs} in all)."]


def _elsewhere(found: Findings) -> list[str]:
    """The answer at a larger budget, as an example of what may be extrapolated."""
    if found.recommended is None or not found.token_budget:
        return []
    extrapolated = extrapolate(found, Target(token_budget=LARGER * found.token_budget))
    if isinstance(extrapolated, Refused):
        return []
    batch, rate = extrapolated.best_batch_size, extrapolated.learning_rate
    budgets = 1 + len(found.earlier_optima)
    rates = f"{format_learning_rate(rate.value)} [{format_learning_rate(rate.low or rate.value)}, {format_learning_rate(rate.high or rate.value)}]"
    return [
        f"Extrapolated, not measured: at {LARGER} × the budget the best batch would be near {batch.value:.3g} "
        f"[{batch.low or batch.value:.3g}, {batch.high or batch.value:.3g}], and at batch "
        f"{extrapolated.global_batch_size:,} the learning rate {rates} (n = {format_plural(budgets, 'measured budget')}; "
        f"{describe_rule(batch.rule)}). To confirm: "
        f"{describe_confirmation(extrapolated.confirmation, found.experiment.unit)}. batchlab plan --token-budget "
        "extrapolates the answer to any budget within 30 ×."
    ]


def _speed(found: Findings) -> list[str]:
    speed, unit = found.throughput, found.experiment.unit
    if speed is None or speed.fastest is None:
        return []
    top = speed.at(speed.fastest)
    if top is None:
        return []
    text = (
        f"The fastest batch was {speed.fastest:,} with {format_throughput(top.tokens_per_second.value, unit)} "
        f"(median of n = {top.tokens_per_second.n} blocks, {format_throughput(top.tokens_per_second.low or 0.0, unit)} to "
        f"{format_throughput(top.tokens_per_second.high or 0.0, unit)})"
    )
    if speed.knee is not None and speed.knee != speed.fastest:
        text += f"; from {speed.knee:,} upwards speed is within 10 % of that"
    sentences = [text + "."]
    if speed.falls_off:
        sentences.append(
            f"Batch {format_list(speed.falls_off)} ran more than 20 % slower than a smaller batch: not what arithmetic "
            "costs, but spilled memory or a missed fast path."
        )
    return sentences


def _memory(found: Findings) -> list[str]:
    memory = found.memory
    if memory is None or memory.line is None:
        return []
    line = memory.line
    return [
        f"Peak memory follows {format_bytes(line.intercept)} + {format_bytes(line.slope)} per sample of the micro-batch"
        f" (R² = {line.r_squared:.4f}, n = {line.n} sizes, largest residual {format_bytes(line.largest_residual)})."
    ]


def _dynamics(found: Findings) -> list[str]:
    if found.surface is None:
        return []
    rows = [row for row in found.surface.rows if row.best is not None]
    sentences = [_clipped(rows), _gap(found, rows)]
    epochs = max((run.epochs for run in found.runs if run.outcome is Outcome.COMPLETED), default=0.0)
    if epochs > 1:
        sentences.append(
            f"Training passed over its data {epochs:.3g} times: the losses are those of repeated data, and rank batch "
            "sizes for that case only."
        )
    return sentences


def _clipped(rows: list[BatchRow]) -> str:
    shares = {
        row.global_batch_size: sum(values) / len(values)
        for row in rows
        if row.best and (values := [run.clipped_fraction for run in row.best.runs if run.clipped_fraction is not None])
    }
    if not shares or max(shares.values()) == 0:
        return ""
    low, high = min(shares, key=lambda size: shares[size]), max(shares, key=lambda size: shares[size])
    if shares[high] - shares[low] < 0.005:
        return (
            f"Gradients were clipped in {100 * shares[high]:.0f} % of the steps at every batch size's best learning "
            f"rate (n = {format_plural(len(shares), 'size')})."
        )
    return (
        f"At each size's best learning rate gradients were clipped in {100 * shares[low]:.0f} % (batch {low:,}) to "
        f"{100 * shares[high]:.0f} % (batch {high:,}) of the steps (n = {format_plural(len(shares), 'size')}): part of a "
        "size's effective learning rate is its clipping."
    )


def _gap(found: Findings, rows: list[BatchRow]) -> str:
    gaps = {
        row.global_batch_size: sum(values) / len(values)
        for row in rows
        if row.best
        and (
            values := [
                run.val_loss - run.train_loss
                for run in row.best.runs
                if run.val_loss is not None and run.train_loss is not None
            ]
        )
    }
    if not gaps:
        return ""
    values = list(gaps.values())
    text = (
        f"Validation minus training loss lay between {min(values):+.3f} and {max(values):+.3f} over "
        f"{format_plural(len(gaps), 'size')} at their best learning rate"
    ).replace("-", "−")
    sd = found.surface.noise_sd if found.surface else None
    if sd is None:
        return text + " (n = 1 each; noise not measured, so no trend is claimed)."
    if max(values) - min(values) <= 2 * math.sqrt(2) * sd:
        return text + "; a spread this small is within seed noise."
    return text + "."


def format_good_set(surface: SurfaceFinding) -> str:
    """`8–32`: the sizes noise cannot separate from the best."""
    judged = [row for row in surface.rows if row.val_loss is not None and not row.undertrained]
    return format_span(surface.tied, judged)
