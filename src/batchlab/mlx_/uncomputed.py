"""Steps of a person's own loop after which nothing was computed, because MLX computes what somebody asks for.

Whether an array has a value is read from its graph (`mx.export_to_dot`): a value is a node without edges. What is
asked about are parameters of an earlier step, which a loop has computed by then if it evaluates anything.
"""

from __future__ import annotations

from io import StringIO

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

KEPT = 8
"""How many of the smallest parameters are kept. One may never be computed, where the loss does not depend on it."""

ENOUGH = 5
"""Steps in a row that show a loop without `mx.eval`. A loop that prints its loss computes the step before."""


class UncomputedSteps:
    """Looks for `ENOUGH` steps in a row after which no kept parameter had been computed."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._kept: list[mx.array] = []
        self._waited = 0

    @property
    def found(self) -> int:
        """`ENOUGH` once they were seen, else 0."""
        return ENOUGH if self._waited == ENOUGH else 0

    def count(self) -> None:
        """Call at the end of every step. It computes nothing, and looks no further once it has found them."""
        if self.found:
            return
        if not self._kept or any(has_value(array) for array in self._kept):
            self._kept, self._waited = self._smallest(), 0
        else:
            self._waited += 1
        if self.found:
            self._kept = []

    def _smallest(self) -> list[mx.array]:
        # mx.compile puts new contents into the arrays of a model. A cast to an array's own type shares its contents of
        # now instead, and keeps them.
        arrays = [array for _, array in tree_flatten(self._model.trainable_parameters())]
        return [array.astype(array.dtype) for array in sorted(arrays, key=lambda array: array.size)[:KEPT]]


def has_value(array: mx.array) -> bool:
    """Whether the array was computed, or is being computed (`mx.async_eval`)."""
    graph = StringIO()
    mx.export_to_dot(graph, array)
    return "->" not in graph.getvalue()
