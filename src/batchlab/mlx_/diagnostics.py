"""Diagnostic snapshots.

A watched optimizer step gives the seconds of its phases, gradient norms and the size of the parameter update. A forward
pass in evaluation mode gives the RMS of activations and the entropy of attention. Nothing here writes to the model, its
gradients or its optimizer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from batchlab.core.parameter_groups import by_block, by_module, first_middle_last
from batchlab.mlx_ import anatomy
from batchlab.mlx_.attention_entropy import attention_entropies
from batchlab.mlx_.modules import Call, observed_calls

Detail = Literal["light", "full"]
Readings = dict[str, "mx.array | float"]

ELEMENTS = 4096
"""Elements compared per parameter before and after the update: 16 KiB per array instead of a full copy."""


class StepWatch:
    """Measures optimizer steps of one model, one at a time."""

    def __init__(self, model: nn.Module, detail: Detail, synchronize: Callable[[], float]) -> None:
        self._model, self._synchronize = model, synchronize
        trained = anatomy.trainable_parameters(model)
        self._sizes = {name: value.size for name, value in trained.items()}
        self._by_block = by_block(trained, anatomy.blocks(model))
        self._norms = anatomy.norm_parameters(model, trained)
        self._gradient_groups = {**self._by_block, **(by_module(trained) if detail == "full" else {})}
        self._readings: Readings = {}
        self._before: mx.array
        self._at = 0.0

    def start(self) -> None:
        """Mark the start of a step."""
        self._readings = dict.fromkeys((f"seconds/{phase}" for phase in ("forward", "backward", "optimizer")), 0.0)
        self._at = self._synchronize()

    def end_phase(self, phase: Literal["data", "forward", "backward", "optimizer"], computed: Any = ()) -> None:
        """Attribute the time since the last call to this phase, and that of computing these arrays."""
        mx.eval(computed)
        now = self._synchronize()
        seconds = self._readings.get(f"seconds/{phase}", 0.0)
        assert isinstance(seconds, float)
        self._readings[f"seconds/{phase}"] = seconds + now - self._at
        self._at = now

    def before_update(self, gradient: Any) -> None:
        """Call with the complete gradient, before clipping."""
        named = dict(tree_flatten(gradient))
        groups = {f"grad_norm/{group}": names for group, names in self._gradient_groups.items()}
        groups |= {f"norm_layer_grad/{kind}": names for kind, names in self._norms.items()}
        self._readings |= {reading: _norm(named[name] for name in names) for reading, names in groups.items()}
        self._before = self._sample()
        mx.eval(self._before, [value for value in self._readings.values() if isinstance(value, mx.array)])
        self._at = self._synchronize()

    def after_update(self, learning_rate: float, loss: mx.array, norm: mx.array) -> None:
        """Call after the optimizer step.

        The effective step is mean |Δw| / learning rate. The update ratio is ‖Δw‖ / ‖w‖, for the model and each block.
        """
        self.end_phase("optimizer", self._model.parameters())
        self._readings |= {"loss/all": loss, "grad_norm/all": norm}
        sizes = mx.array([float(size) for size in self._sizes.values()])
        held = mx.minimum(sizes, ELEMENTS)
        change = self._sample() - self._before
        moved = mx.abs(change).sum(1) / held * sizes
        squares = mx.square(change).sum(1) / held * sizes
        weights = mx.square(self._before).sum(1) / held * sizes
        del self._before
        if learning_rate:
            self._readings["effective_step/all"] = moved.sum() / sizes.sum() / learning_rate
        self._readings["update_ratio/all"] = mx.sqrt(squares.sum() / weights.sum())
        names = list(self._sizes)
        for group, members in self._by_block.items():
            index = mx.array([names.index(name) for name in members])
            self._readings[f"update_ratio/{group}"] = mx.sqrt(squares[index].sum() / weights[index].sum())

    def readings(self) -> Readings:
        """Readings of the last step."""
        readings, self._readings = self._readings, {}
        return readings

    def _sample(self) -> mx.array:
        """Evenly spaced elements of each parameter, padded with zeros; shape `(parameters, ELEMENTS)`."""
        trained = anatomy.trainable_parameters(self._model)
        parts = [trained[name].reshape(-1)[:: _stride(trained[name])][:ELEMENTS] for name in self._sizes]
        return mx.stack([mx.pad(part.astype(mx.float32), (0, ELEMENTS - part.size)) for part in parts])


def _norm(arrays: Iterable[mx.array]) -> mx.array:
    return mx.sqrt(mx.stack([mx.square(one.astype(mx.float32)).sum() for one in arrays]).sum())


def _stride(parameter: mx.array) -> int:
    """Sampling stride: the largest up to size / ELEMENTS that visits every column of a matrix."""
    stride = max(1, parameter.size // ELEMENTS)
    while parameter.ndim > 1 and math.gcd(stride, parameter.shape[-1]) > 1:
        stride -= 1
    return stride


def forward_readings(model: nn.Module, run: Callable[[], object], detail: Detail) -> Readings:
    """RMS of the block outputs and entropy of the attention during `run`, which must call the model."""
    blocks = list(anatomy.blocks(model))
    shown = set(blocks if detail == "full" else first_middle_last(blocks))
    readings: Readings = {}

    def note(call: Call) -> None:
        output = call.output[0] if isinstance(call.output, tuple | list) and call.output else call.output
        if call.name in shown and isinstance(output, mx.array) and mx.issubdtype(output.dtype, mx.floating):
            readings[f"activation_rms/{call.name}"] = mx.sqrt(mx.square(output.astype(mx.float32)).mean())

    with observed_calls(model, note) as running, attention_entropies(running) as attention:
        run()
    for name in attention if detail == "full" else first_middle_last(list(attention)):
        heads, uniform = attention[name]
        readings |= {
            f"attention_entropy/{name}": heads.mean(),
            f"attention_entropy_lowest/{name}": heads.min(),
            f"attention_entropy_uniform/{name}": uniform,
        }
        if detail == "full":
            readings |= {f"attention_entropy/{name}/head{index}": heads[index] for index in range(heads.size)}
    return readings


def numbers(readings: Mapping[str, mx.array | float]) -> dict[str, float]:
    """All readings on the host."""
    mx.eval([value for value in readings.values() if isinstance(value, mx.array)])
    return {name: float(value) for name, value in readings.items()}
