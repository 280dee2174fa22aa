"""The findings chapter: sentences computed from the numbers, each with its n. No winner is claimed within noise."""

from __future__ import annotations

from batchlab.analysis.extrapolation import Target, extrapolate
from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.clipping import clipped_shares
from batchlab.analysis.values import BatchRow, SurfaceFinding
from batchlab.core.format import (
    format_bytes,
    format_interval,
    format_learning_rate,
    format_list,
    format_loss,
    format_plural,
    format_throughput,
)
from batchlab.core.spec import MIN_STEPS, MIN_WARMUP_STEPS
from batchlab.runs.evaluation import DRAWS
from batchlab.scaling import Refused
from batchlab.scaling.refusals import OptimumOnlyBounded, OtherOptimizer
from batchlab.words.baseline import describe_baseline
from batchlab.words.costs import describe_cost, describe_slope
from batchlab.words.phrases import format_cells, format_seeds, format_test
from batchlab.words.rate_conclusions import rate_conclusions
from batchlab.words.refusals import describe_refusal
from batchlab.words.retries import retry_conclusions
from batchlab.words.run_length import run_length
from batchlab.words.scaling import describe_batch_interval, describe_caveat, describe_confirmation, describe_rule
from batchlab.words.search import stop_reason
from batchlab.words.starting_point import starting_point
from batchlab.words.sweep import no_answer
from batchlab.words.units import Units
from batchlab.words.valleys import valley_conclusions
from batchlab.words.warmups import warmup_conclusions

LARGER = 4
"""Times the budget at which the findings give an example of an extrapolation."""


def conclusions(found: Findings) -> tuple[str, ...]:
    """Sentences in reading order: quality, learning rate, noise, larger budgets, speed, memory, clipping."""
    sentences = describe_baseline(found.baseline, found.experiment.unit) if found.baseline else []
    surface = found.surface
    if surface is not None:
        if surface.best is None:
            sentences.append(no_answer(found))
        else:
            sentences += [_best(found, surface, surface.best), _tied(surface, surface.best)]
            sentences += _tied_cells(surface)
            sentences += _ends(surface, surface.best)
            sentences += _cost(found)
            sentences += rate_conclusions(surface) + valley_conclusions(found) + warmup_conclusions(found)
            sentences += _noise(surface)
            sentences += _target(found, surface)
        sentences += (
            retry_conclusions(found)
            + _undertrained(surface)
            + starting_point(found)
            + _stopped(found)
            + _larger_budget(found)
        )
    sentences += _speed(found) + _memory(found) + (_clipping(surface) if surface else [])
    return tuple(sentence for sentence in sentences if sentence)


def _best(found: Findings, surface: SurfaceFinding, best: BatchRow) -> str:
    if best.best is None or best.val_loss is None:
        return ""
    budget = f"After {run_length(found)}" if found.token_budget else "At equal budgets"
    where = f"batch {best.global_batch_size:,} at learning rate {format_learning_rate(best.best.learning_rate)}"
    if surface.noise_sd is None:
        runs = format_plural(len(found.runs), "run")
        return (
            f"{budget}, {where} had the lowest loss of {runs}, {format_loss(best.val_loss.value)} (n = 1, not tested: "
            "this may be noise)."
        )
    how = "is the lowest of the surface fitted to all runs, among the tied cells" if surface.fitted else "is the best"
    chosen = "these seeds chose nothing" if surface.confirmation_seeds else "one of these seeds chose it"
    spread = "a pooled standard deviation" if surface.spreads is None else "the standard deviation"
    return (
        f"{budget}, {where} {how}; its mean {Units.of(found).judged} is {format_interval(best.val_loss)} "
        f"(n = {format_seeds(surface, best)}: {chosen}; 95 % interval from {spread} with {surface.noise_df} degrees of "
        "freedom)."
    )


def _judged(surface: SurfaceFinding) -> list[BatchRow]:
    return [row for row in surface.rows if row.val_loss is not None and not row.undertrained]


def _tied(surface: SurfaceFinding, best: BatchRow) -> str:
    judged = len(_judged(surface))
    others = [row for row in surface.tied if row is not best]
    if judged == 1:
        return ""
    if surface.noise_sd is None:
        return (
            f"No seed was repeated (n = 1), so no difference between the {judged} batch sizes is distinguishable from "
            "noise."
        )
    if not others:
        who = "The other batch size is" if judged == 2 else f"The other {judged - 1} batch sizes are"
        seeds = [row.val_loss.n for row in _judged(surface) if row is not best and row.val_loss]
        n = f"{min(seeds)} to {max(seeds)}" if min(seeds) < max(seeds) else f"{min(seeds)}"
        return f"{who} worse by more than noise (n = {n}; {format_test(surface)})."
    sizes = format_list([f"{row.global_batch_size:,} (n = {row.val_loss.n})" for row in others if row.val_loss])
    verb = "is" if len(others) == 1 else "are"
    return f"Batch {sizes} {verb} within noise of the best ({format_test(surface)})."


def _tied_cells(surface: SurfaceFinding) -> list[str]:
    """Not only sizes at their best learning rate, but every cell."""
    if surface.noise_sd is None or len(surface.tied_cells) <= len(surface.tied):
        return []
    cells = [cell for row in surface.rows for cell in row.cells]
    runs = sum(len(cell.runs) for cell in cells)
    return [
        f"{len(surface.tied_cells)} of {len(cells)} cells (n = {runs} runs) are statistically tied: "
        f"{format_cells(surface.tied_cells)}."
    ]


def _cost(found: Findings) -> list[str]:
    """Every judged size's cost, and what costs in tokens rest on."""
    unit = found.experiment.unit
    others = [cost for cost in found.costs if cost.by is not None]
    if not others or found.surface is None:
        return []
    untuned = {row.global_batch_size for row in found.surface.rows if len(row.cells) == 1}
    costs = "; ".join(
        f"{cost.global_batch_size:,}: {describe_cost(cost, unit)} (n = {cost.loss.n}"
        f"{', the only learning rate tried' if cost.global_batch_size in untuned else ''})"
        for cost in others
    )
    sentences = [f"To reach the loss of the best, the other batch sizes cost, with 95 % intervals: {costs}."]
    return [*sentences, f"{describe_slope(found.slope, unit)}."] if found.slope else sentences


def _ends(surface: SurfaceFinding, best: BatchRow) -> list[str]:
    """How the loss changes towards the smallest and the largest judged batch."""
    judged = _judged(surface)
    return [_end(surface, best, row) for row in (judged[0], judged[-1]) if row is not best]


def _end(surface: SurfaceFinding, best: BatchRow, row: BatchRow) -> str:
    if row.val_loss is None or best.val_loss is None:
        return ""
    ratio = row.global_batch_size / best.global_batch_size
    distance = f"{max(ratio, 1 / ratio):.3g} × {'larger' if ratio > 1 else 'smaller'}"
    side = "higher" if row.val_loss.value >= best.val_loss.value else "lower"
    difference = row.val_loss.value - best.val_loss.value
    verdict = "within noise" if row.tied else "which is more than noise"
    if surface.noise_sd is None:
        verdict = "and noise was not measured"
    return (
        f"Batch {row.global_batch_size:,} ({distance}, at the best learning rate tried) has a loss "
        f"{format_loss(abs(difference))} {side} than the best, {verdict} (n = {row.val_loss.n} against "
        f"{best.val_loss.n})."
    )


def _target(found: Findings, surface: SurfaceFinding) -> list[str]:
    """Which sizes reached the loss that was asked for."""
    target = found.experiment.evaluation.target_loss
    best_cells = {row.global_batch_size: row.best for row in surface.rows if row.best and row.best.losses}
    means = {size: cell.quoted_loss for size, cell in best_cells.items() if cell.quoted_loss is not None}
    if target is None or not means:
        return []
    reached = [size for size, mean in means.items() if mean <= target]
    verdict = f"was reached by batch {format_list(reached)}" if reached else "was not reached"
    lowest = min(means, key=lambda size: means[size])
    return [
        f"The target loss of {format_loss(target)} {verdict}; the lowest mean was {format_loss(means[lowest])} at "
        f"batch {lowest:,} (n = {len(best_cells[lowest].quoted_runs)}). A target loss holds only for its own data and "
        f"tokens; trained here: {found.task_info.data_source}."
    ]


def _noise(surface: SurfaceFinding) -> list[str]:
    if surface.noise_sd is None:
        return []
    text = (
        f"The standard deviation between seeds is {format_loss(surface.noise_sd)} (n = {surface.noise_seeds} runs, "
        f"{surface.noise_df} degrees of freedom)"
    )
    if surface.spreads is not None:
        low, high = surface.spreads
        text += (
            f", pooled; single cells have {format_loss(low)} to {format_loss(high)}, which differ by more than chance, "
            "and such a cell is compared with its own"
        )
    if surface.correlation is not None:
        text += (
            f"; losses of two batch sizes with equal seeds correlate at r = {surface.correlation:.2f}, a rough value"
        )
    return [text + ".", *_evaluation(surface)]


def _evaluation(surface: SurfaceFinding) -> list[str]:
    if surface.evaluation_sd is None:
        return []
    draws = ""
    if surface.draws_sd is not None:
        draws = (
            f" The loss draws random numbers: other draws on the same samples would change it by "
            f"{format_loss(surface.draws_sd)} (standard deviation over {DRAWS} sets of draws), which is part of that "
            "error; all runs share the draws."
        )
    return [
        f"The choice of held-out samples adds a standard error of {format_loss(surface.evaluation_sd)} to every loss "
        "(n = 1 set). All runs share these samples, so the error mostly cancels in differences; no interval here "
        f"includes it.{draws}"
    ]


def _undertrained(surface: SurfaceFinding) -> list[str]:
    rows = [row for row in surface.rows if row.undertrained]
    if not rows:
        return []
    runs = sum(len(cell.runs) for row in rows for cell in row.cells)
    return [
        f"Batch {format_list([row.global_batch_size for row in rows])} had under {MIN_STEPS} steps or under "
        f"{MIN_WARMUP_STEPS} warm-up steps at this budget (n = {format_plural(runs, 'run')}): shown, never judged."
    ]


def _stopped(found: Findings) -> list[str]:
    """Why an adaptive search tried no further cell."""
    if found.search_stopped is None:
        return []
    runs = format_plural(len(found.runs), "run")
    return [f"The search tried no further cell because {stop_reason(found.search_stopped)} (n = {runs} in all)."]


def _larger_budget(found: Findings) -> list[str]:
    """The answer at a larger budget, as an example of an extrapolation."""
    if found.recommended is None or not found.token_budget:
        return []
    extrapolated = extrapolate(found, Target(token_budget=LARGER * found.token_budget))
    if isinstance(extrapolated, Refused):
        if not isinstance(extrapolated.reason, OptimumOnlyBounded | OtherOptimizer):
            return []
        return [f"Nothing is extrapolated to {LARGER} × the budget. {describe_refusal(extrapolated.reason)}"]
    batch, rate = extrapolated.best_batch_size, extrapolated.learning_rate
    caveats = "; ".join(["", *map(describe_caveat, extrapolated.caveats)])
    budgets = format_plural(1 + len(found.earlier_optima), "measured budget")
    rates = [format_learning_rate(each or rate.value) for each in (rate.value, rate.low, rate.high)]
    return [
        f"Extrapolated, not measured: at {LARGER} × the budget the best batch size is "
        f"{describe_batch_interval(batch)}, and the learning rate at batch "
        f"{extrapolated.global_batch_size:,} is {rates[0]} [{rates[1]}, {rates[2]}] (n = {budgets}; "
        f"{describe_rule(batch.rule)}{caveats}). To confirm: "
        f"{describe_confirmation(extrapolated.confirmation, found.experiment.unit)}. batchlab plan --token-budget "
        "does this for any budget within 30 ×."
    ]


def _speed(found: Findings) -> list[str]:
    speed, unit = found.throughput, found.experiment.unit
    if speed is None or speed.fastest is None:
        return []
    top = speed.at(speed.fastest)
    if top is None:
        return []
    blocks = top.tokens_per_second
    median, low, high = (format_throughput(each or 0.0, unit) for each in (blocks.value, blocks.low, blocks.high))
    text = (
        f"The fastest batch size is {speed.fastest:,} with {median} (median of n = {blocks.n} blocks, {low} to {high})"
    )
    if speed.knee is not None and speed.knee != speed.fastest:
        text += f"; batch {speed.knee:,}, the knee, is within 10 % of that"
    sentences = [text + "."]
    if speed.falls_off:
        sentences.append(
            f"Batch {format_list(speed.falls_off)} ran more than 20 % slower than a smaller batch (n = "
            f"{format_plural(len(speed.falls_off), 'size')}): a host-memory fallback or a slow kernel."
        )
    return sentences


def _memory(found: Findings) -> list[str]:
    memory = found.memory
    if memory is None or memory.line is None:
        return []
    line = memory.line
    return [
        f"Peak memory is {format_bytes(line.intercept)} + {format_bytes(line.slope)} per sample of the micro-batch "
        f"(R² = {line.r_squared:.4f}, n = {line.n} sizes, largest residual {format_bytes(line.largest_residual)})."
    ]


def _clipping(surface: SurfaceFinding) -> list[str]:
    shares = {each.global_batch_size: each.share for each in clipped_shares(surface)}
    if not shares or max(shares.values()) == 0:
        return []
    low, high = min(shares, key=lambda size: shares[size]), max(shares, key=lambda size: shares[size])
    n = format_plural(len(shares), "size")
    if shares[high] - shares[low] < 0.005:
        return [
            f"Gradients were clipped in {100 * shares[high]:.0f} % of the steps at every size's best learning rate "
            f"(n = {n})."
        ]
    return [
        f"Gradients were clipped in {100 * shares[low]:.0f} % (batch {low:,}) to {100 * shares[high]:.0f} % (batch "
        f"{high:,}) of the steps at each size's best learning rate (n = {n}): clipping changes the effective learning "
        "rate."
    ]
