"""The experiment page notes.md, as far as the study itself can fill it in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from batchlab.analysis.findings import Findings
from batchlab.core.batch import Unit
from batchlab.core.format import format_duration, format_list, format_moment, format_plural
from batchlab.words.run_length import exact_run_length
from batchlab.words.setup import Term, setup
from batchlab.words.units import Units

CATEGORY = "hyperparameters (batch size × learning rate)"


@dataclass(frozen=True, slots=True)
class Revision:
    """The commit of the user's code, its branch where there is one, and whether files differ from the commit."""

    commit: str
    branch: str = ""
    changed: bool = False


def meta(findings: Findings, revision: Revision | None, written: float) -> tuple[Term, ...]:
    """Date, category, commit, hardware and seeds; `written` in seconds since 1970."""
    known = dict(setup(findings))
    terms = (
        ("date", format_moment(written)),
        ("category", CATEGORY),
        ("commit", describe_revision(revision)),
        ("hardware", known.get("device", "")),
        ("versions", known.get("versions", "")),
        ("seeds", known["seeds"]),
    )
    return tuple((name, text) for name, text in terms if text)


def describe_revision(revision: Revision | None) -> str:
    """`2bacec8f01 (main), with uncommitted changes`."""
    if revision is None:
        return "not in a git repository"
    branch = f" ({revision.branch})" if revision.branch else ""
    return f"{revision.commit}{branch}{', with uncommitted changes' if revision.changed else ''}"


def metrics(findings: Findings) -> tuple[Term, ...]:
    """What is recorded: of the result, of its stability, and of the inside of the model where that was asked for."""
    experiment, units = findings.experiment, Units.of(findings)
    perplexity = ", perplexity" if experiment.unit is Unit.TOKENS else ""
    terms = [
        ("core", f"training loss, validation loss{perplexity}, {units.name}/s, seconds per step, peak memory"),
        ("stability", "global gradient norm, clipped steps, loss spikes, NaN and infinity, divergence"),
    ]
    if experiment.diagnostics == "full":
        inside = "by layer: gradient norm, update ratio, activation size, attention entropy; norm-layer gradients"
        terms.append(("diagnostics", f"{inside}; effective step"))
    return tuple(terms)


_VARIED = ("batch sizes", "learning rates", "seeds", "budget", "device", "versions")


def frozen_variables(findings: Findings) -> tuple[Term, ...]:
    """What is the same in every run."""
    return tuple((name, text) for name, text in setup(findings) if name not in _VARIED)


def design(findings: Findings, budget: Mapping[str, Any]) -> tuple[str, ...]:
    """How many runs of how many tokens and steps; `budget` is what the study decided to spend."""
    experiment, units = findings.experiment, Units.of(findings)
    sizes = experiment.batch.global_batch_sizes
    tokens = {size: findings.tokens_by_size.get(size, budget["token_budget"]) for size in (sizes[0], sizes[-1])}
    most, fewest = (tokens[size] // (size * experiment.sequence_length) for size in (sizes[0], sizes[-1]))
    equal_time = findings.run_seconds is not None
    length = exact_run_length(findings) if equal_time else f"{tokens[sizes[0]]:,} {units.name}"
    seconds = budget["seconds_planned"]
    lines = [
        f"{format_plural(budget['runs_planned'], 'training run')} planned, {budget['runs_at_most']:,} at most: "
        f"{experiment.sweep.search} search over batch × LR, then seeds",
        f"{length} per run, so batch {sizes[-1]:,} gets {fewest:,} steps and batch {sizes[0]:,} gets {most:,}",
        f"{format_duration(seconds)} of training at measured speed"
        if seconds
        else "training time unknown: speed was not measured before",
        f"the same {units.items} in the same order for every size; compared at equal "
        f"{'time, in which faster sizes go on to further data' if equal_time else units.name}",
    ]
    if budget["undertrained"]:
        lines.append(f"undertrained (too few steps to compare): batch {format_list(budget['undertrained'])}")
    return tuple(lines)
