from __future__ import annotations

from batchlab.core.optimizer_group import OptimizerGroup
from batchlab.words.optimizer_groups import class_names, describe_group, describe_optimizers

MUON = OptimizerGroup(optimizer="Muon", learning_rate_ratio=1.0, weight_decay=0.1, parameter_count=1_200_000)
ADAMW = OptimizerGroup(
    optimizer="AdamW", learning_rate_ratio=0.15, weight_decay=0.0, beta2=0.95, epsilon=1e-8, parameter_count=5_376
)


def test_a_group_is_named_with_its_share_and_its_ratio() -> None:
    assert describe_group(MUON) == "Muon, 1.2M parameters, at the learning rate"
    assert describe_group(ADAMW) == "AdamW, 5,376 parameters, at 0.15 × the learning rate"


def test_settings_are_those_that_there_are() -> None:
    assert describe_optimizers((MUON, ADAMW)) == (
        "Muon, 1.2M parameters, at the learning rate, weight decay 0.1; "
        "AdamW, 5,376 parameters, at 0.15 × the learning rate, weight decay 0, beta2 0.95, epsilon 1e-08"
    )


def test_each_class_is_named_once() -> None:
    assert class_names((MUON, ADAMW, ADAMW)) == "Muon and AdamW"
