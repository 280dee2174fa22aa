from __future__ import annotations

import gc

import pytest
from torch import nn

from batchlab.core.errors import InputError
from batchlab.integrations.fresh import require_fresh


def test_a_model_is_given_once_also_inside_another() -> None:
    model = nn.Linear(2, 2)
    require_fresh(model, "make_trainer in ft.py", "make_trainer")
    with pytest.raises(InputError, match="create the model inside make_trainer"):
        require_fresh(nn.Sequential(model, nn.ReLU()), "make_trainer in ft.py", "make_trainer")


def test_models_that_are_gone_are_forgotten() -> None:
    for _ in range(50):
        require_fresh(nn.Linear(2, 2), "make in lit.py", "make")
        gc.collect()
