"""Model settings of a recipe: defaults, and errors for invalid values."""

from __future__ import annotations

import pytest

from batchlab.core.errors import InputError
from batchlab.recipes.model_settings import model_settings, require_heads
from batchlab.recipes.quickstart import MODEL


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"d_modle": 32}, "Did you mean 'd_model'"),
        ({"layers": 0}, "whole number from 1 to 1,000,000"),
        ({"layers": 1.5}, "whole number"),
        ({"layers": "two"}, "whole number"),
        ({"layers": 1e30}, "layers is 1e\\+30: give a whole number from 1 to 1,000,000"),
        ({"layers": True}, "whole number"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"dropout": "much"}, "dropout is 'much'"),
    ],
)
def test_invalid_settings_are_rejected(given, message):
    with pytest.raises(InputError, match=message):
        model_settings(given, MODEL)


def test_a_width_that_is_not_divisible_into_heads_is_rejected():
    with pytest.raises(InputError, match="multiple of 8"):
        require_heads({"d_model": 60, "heads": 4}, even=True)
    require_heads({"d_model": 60, "heads": 4}, even=False)


def test_defaults_are_kept_without_user_settings():
    assert model_settings({"layers": 3}, MODEL) == {**MODEL, "layers": 3}
