"""The critical batch size near a checkpoint, from branches that continue from it at k times its batch size.

Source: Merrill et al. 2025 (arXiv:2505.23971). Each branch trains on the same tokens for the same window, with its
learning rate set by a stated rule and its optimizer state kept. The largest k whose loss is at most ε above that of the
unchanged branch gives the local critical batch size. Here the differences are paired (same tokens, seed by seed), and k
is accepted only where the upper 95 % limit of its mean difference is at most ε: noise makes the answer wider, not
larger.

Limits. The answer holds for the window trained and for the rule that set the learning rate. A window that is too short
penalises small batch sizes for noise that a later decay would have removed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

from batchlab.analysis.sweep.noise import CONFIDENCE, t_quantile
from batchlab.analysis.values import Interval
from batchlab.core.errors import InputError

Verdict = Literal["no worse", "worse", "cannot tell"]
MIN_PAIRS = 3


class BranchReason(Enum):
    """Why a limit is missing."""

    ONLY_UNCHANGED = auto()  # the batch size of the checkpoint is the only one that was run
    NONE_WORSE = auto()
    NOISE = auto()  # hides whether the first undecided multiplier loses more than the tolerance


@dataclass(frozen=True, slots=True)
class Branch:
    """Losses in nats at the end of the window at `multiplier` × the checkpoint's batch size, one per seed or segment.

    The i-th loss of every branch of a checkpoint has the same seed and saw the same tokens.
    """

    multiplier: float
    losses: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BranchVerdict:
    """One multiplier against 1: mean paired difference in nats with a two-sided 90 % interval (each side 95 %)."""

    multiplier: float
    difference: Interval
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class BranchFinding:
    """The local critical batch size, definition `branched`, between two sizes that were run.

    `found`: at least `at_least`, and below `below`, which was worse. `at_least`: no branch was worse. `below`: the
    smallest branch was already worse. `cannot_tell`: see `reason`.
    """

    status: Literal["found", "at_least", "below", "cannot_tell"]
    batch: float  # of the checkpoint
    tokens: float  # seen at the checkpoint
    largest: float  # largest multiplier accepted; 1 where none was
    at_least: float | None
    below: float | None
    tolerance: float
    verdicts: tuple[BranchVerdict, ...]
    reason: BranchReason | None = None
    pairs_needed: int | None = None  # in all, to decide the undecided multiplier with 80 % power

    @property
    def undecided(self) -> BranchVerdict | None:
        """The first multiplier that was not accepted, where noise hides whether it is worse."""
        first = next((verdict for verdict in self.verdicts if verdict.verdict != "no worse"), None)
        return first if first is not None and first.verdict == "cannot tell" else None


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of training at one batch size; `learning_rate_ratio` is relative to the first stage."""

    from_tokens: float
    to_tokens: float
    batch: float
    learning_rate_ratio: float
    steps: float


@dataclass(frozen=True, slots=True)
class BatchSchedule:
    """When to double, the steps that saves, and the tokens of the branches (`cost_ratio`: relative to the run)."""

    stages: tuple[Stage, ...]
    steps: float
    steps_without: float
    saved: float  # share of the steps without doubling
    cost_tokens: float
    cost_ratio: float
    doubles: bool  # False: no checkpoint accepted twice the batch size


def branched_critical_batch(
    branches: Sequence[Branch], *, batch: float, tolerance: float, tokens: float = 0.0
) -> BranchFinding:
    """The largest multiplier that loses no more than `tolerance` nats, by one-sided paired t-tests at 95 %.

    Multipliers are tested upwards until one is not accepted. In such a fixed order every test may use the full 5 %: the
    probability that an accepted multiplier loses more than `tolerance` is at most 5 %.

    Raises InputError without a branch at 1, for fewer than 3 pairs, for unequal numbers of losses and for losses that
    are not finite.
    """
    ordered = sorted(branches, key=lambda branch: branch.multiplier)
    if not ordered or ordered[0].multiplier != 1 or len({b.multiplier for b in ordered}) < len(ordered):
        raise InputError("Branches need one at multiplier 1 to be compared with, and each larger multiplier once.")
    reference = ordered[0].losses
    if any(len(branch.losses) != len(reference) for branch in ordered):
        raise InputError("Every branch needs the losses of the same seeds in the same order; their numbers differ.")
    if len(reference) < MIN_PAIRS:
        raise InputError(f"A paired test needs at least {MIN_PAIRS} seeds or data segments, and got {len(reference)}.")
    if not all(math.isfinite(loss) for branch in ordered for loss in branch.losses):
        raise InputError("A loss of a branch is not finite; leave a diverged multiplier out and name it in the report.")
    verdicts = tuple(_compare(branch, reference, tolerance) for branch in ordered[1:])
    accepted = 1.0
    undecided: BranchVerdict | None = None
    for verdict in verdicts:
        if verdict.verdict != "no worse":
            undecided = verdict
            break
        accepted = verdict.multiplier
    worse = next((v.multiplier for v in verdicts if v.verdict == "worse" and v.multiplier > accepted), None)
    at_least = accepted * batch if accepted > 1 else None
    below = worse * batch if worse is not None else None

    def finding(
        status: Literal["found", "at_least", "below", "cannot_tell"], reason: BranchReason | None = None
    ) -> BranchFinding:
        pairs = None
        if undecided is not None and undecided.verdict == "cannot tell":
            pairs = _pairs_needed(undecided, tolerance)
        return BranchFinding(status, batch, tokens, accepted, at_least, below, tolerance, verdicts, reason, pairs)

    if not verdicts:
        return finding("cannot_tell", BranchReason.ONLY_UNCHANGED)
    if undecided is None:
        return finding("at_least", BranchReason.NONE_WORSE)
    if below is None:
        return finding("at_least" if at_least is not None else "cannot_tell", BranchReason.NOISE)
    return finding("found" if at_least is not None else "below")


def doubling_schedule(
    findings: Sequence[BranchFinding],
    *,
    start_batch: float,
    total_tokens: float,
    window_tokens: float = 0.0,
    learning_rate_exponent: float = 0.5,
) -> BatchSchedule:
    """Double the batch size at the first checkpoint where twice the current size was accepted, and so on.

    A size is used from the checkpoint where it was shown to lose nothing, never earlier, and nothing is interpolated;
    sizes double because branches were run at multiples. `start_batch` and tokens are in one unit. The learning rate
    grows by 2^exponent per doubling: 0.5 for Adam, 1 for SGD (Merrill et al. 2025; Malladi et al. 2022,
    arXiv:2205.10287).
    """
    if start_batch <= 0 or total_tokens <= 0:
        raise InputError("The starting batch and the token budget are positive numbers.")
    batch, since, ratio = start_batch, 0.0, 1.0
    stages: list[Stage] = []
    for found in sorted(findings, key=lambda f: f.tokens):
        if found.at_least is None or found.tokens >= total_tokens or found.at_least < 2 * batch:
            continue
        if found.tokens > since:
            stages.append(Stage(since, found.tokens, batch, ratio, (found.tokens - since) / batch))
        doublings = math.floor(math.log2(found.at_least / batch) + 1e-9)
        batch, since, ratio = batch * 2**doublings, found.tokens, ratio * 2 ** (learning_rate_exponent * doublings)
    stages.append(Stage(since, total_tokens, batch, ratio, (total_tokens - since) / batch))
    steps, without = math.fsum(stage.steps for stage in stages), total_tokens / start_batch
    runs = sum((len(found.verdicts) + 1) * found.verdicts[0].difference.n for found in findings if found.verdicts)
    cost = window_tokens * runs
    saved = 1 - steps / without
    return BatchSchedule(tuple(stages), steps, without, saved, cost, cost / total_tokens, batch > start_batch)


def _compare(branch: Branch, reference: tuple[float, ...], tolerance: float) -> BranchVerdict:
    differences = [loss - base for loss, base in zip(branch.losses, reference, strict=True)]
    n = len(differences)
    mean = math.fsum(differences) / n
    sd = math.sqrt(math.fsum((d - mean) ** 2 for d in differences) / (n - 1))
    half = t_quantile(CONFIDENCE, n - 1) * sd / math.sqrt(n)
    verdict: Verdict = "cannot tell"
    if mean + half <= tolerance:
        verdict = "no worse"
    elif mean - half > tolerance:
        verdict = "worse"
    return BranchVerdict(branch.multiplier, Interval(mean, mean - half, mean + half, n), verdict)


def _pairs_needed(verdict: BranchVerdict, tolerance: float) -> int | None:
    """Pairs that make the observed mean distinguishable from the tolerance, one-sided at 5 % with 80 % power.

    None where that takes more than 1000.
    """
    n, gap = verdict.difference.n, abs(verdict.difference.value - tolerance)
    half = (verdict.difference.high or 0.0) - verdict.difference.value
    sd = half * math.sqrt(n) / t_quantile(CONFIDENCE, n - 1)
    if gap == 0 or (1.645 + 0.842) * sd > gap * math.sqrt(1000):
        return None
    return max(n + 1, math.ceil(((1.645 + 0.842) * sd / gap) ** 2))
