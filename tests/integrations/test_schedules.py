from __future__ import annotations

from typing import Any

import pytest

from batchlab.core.errors import InputError
from batchlab.core.experiment import ScheduleConfig
from batchlab.integrations.schedules import from_transformers, to_transformers


@pytest.mark.parametrize(
    ("kind", "kwargs"),
    [
        ("linear", None),
        ("cosine", None),
        ("cosine_with_min_lr", {"min_lr_rate": 0.1}),
        ("constant_with_warmup", None),
        ("warmup_stable_decay", {"num_decay_steps": 20, "decay_type": "linear", "min_lr_ratio": 0.1}),
    ],
)
def test_a_schedule_comes_back_as_it_was(kind: str, kwargs: dict[str, Any] | None) -> None:
    settings = from_transformers(kind, kwargs, learning_rate=1e-3, warmup=10, steps=100)
    assert settings["warmup_fraction"] == pytest.approx(0.1)
    back = to_transformers(ScheduleConfig(**settings), steps=100)
    assert back == {"lr_scheduler_type": kind, "lr_scheduler_kwargs": kwargs}


def test_a_least_learning_rate_becomes_a_share() -> None:
    settings = from_transformers("cosine_with_min_lr", {"min_lr": 1e-4}, learning_rate=1e-3, warmup=0, steps=100)
    assert settings["final_fraction"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("kind", "kwargs"),
    [("polynomial", None), ("cosine", {"num_cycles": 2}), ("warmup_stable_decay", {"num_decay_steps": 20})],
)
def test_a_schedule_that_cannot_be_followed_is_refused(kind: str, kwargs: dict[str, Any] | None) -> None:
    with pytest.raises(InputError, match=kind):
        from_transformers(kind, kwargs, learning_rate=1e-3, warmup=0, steps=100)
