"""The parameter groups of an optimizer, for the report, the plan and errors."""

from __future__ import annotations

from collections.abc import Sequence

from batchlab.core.format import format_count
from batchlab.core.optimizer_group import OptimizerGroup


def describe_group(group: OptimizerGroup) -> str:
    """Class, share of the model, and how far its learning rate is from the one that is swept."""
    rate = (
        "the learning rate"
        if group.learning_rate_ratio == 1
        else f"{group.learning_rate_ratio:.4g} × the learning rate"
    )
    return f"{group.optimizer}, {format_count(group.parameter_count)} parameters, at {rate}"


def describe_settings(group: OptimizerGroup) -> str:
    """`describe_group` with what else it was built with."""
    parts = [describe_group(group)]
    if group.weight_decay is not None:
        parts.append(f"weight decay {group.weight_decay:.3g}")
    if group.beta2 is not None:
        parts.append(f"beta2 {group.beta2:.5g}")
    if group.epsilon is not None:
        parts.append(f"epsilon {group.epsilon:.2g}")
    return ", ".join(parts)


def describe_optimizers(groups: Sequence[OptimizerGroup]) -> str:
    """All groups on one line."""
    return "; ".join(describe_settings(group) for group in groups)


def class_names(groups: Sequence[OptimizerGroup]) -> str:
    """The classes, each once: Muon and AdamW."""
    return " and ".join(dict.fromkeys(group.optimizer for group in groups))
