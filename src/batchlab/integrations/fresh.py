"""Every run of a study starts with a model of its own: one that was trained before is recognised by its parameters."""

from __future__ import annotations

import weakref

from torch import nn

from batchlab.core.errors import InputError

_given: weakref.WeakValueDictionary[int, nn.Parameter] = weakref.WeakValueDictionary()
"""The parameters of all models that were given so far and still exist, by identity."""


def require_fresh(model: nn.Module, by: str, function: str) -> None:
    """Raise InputError where `by` gave this model, or one with some of its parameters, to an earlier run."""
    parameters = list(model.parameters())
    if any(_given.get(id(parameter)) is parameter for parameter in parameters):
        raise InputError(
            f"{by} gave a model that an earlier run has trained; create the model inside {function}, so that every run "
            "starts afresh."
        )
    _given.update({id(parameter): parameter for parameter in parameters})
