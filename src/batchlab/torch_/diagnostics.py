"""Diagnostic snapshots.

A watched optimizer step gives the seconds of its phases, gradient norms and the size of the parameter update. A forward
pass in evaluation mode gives the RMS of activations and the entropy of attention. Nothing here writes to the model, its
gradients or its optimizer. Results stay on the device until `numbers` is called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from batchlab.core.parameter_groups import by_block, by_module, first_middle_last
from batchlab.torch_ import anatomy
from batchlab.torch_.attention_entropy import AttentionEntropy

Detail = Literal["light", "full"]
Readings = dict[str, "Tensor | float"]

ELEMENTS = 4096
"""Elements compared per parameter before and after the update: 16 KiB per tensor instead of a full copy."""


class StepWatch:
    """Measures optimizer steps of one model, one at a time."""

    def __init__(self, model: nn.Module, detail: Detail, synchronize: Callable[[], float]) -> None:
        self._synchronize = synchronize
        self._parameters = anatomy.trainable_parameters(model)
        self._by_block = by_block(self._parameters, anatomy.blocks(model))
        self._norms = anatomy.norm_parameters(model, self._parameters)
        self._gradient_groups = {**self._by_block, **(by_module(self._parameters) if detail == "full" else {})}
        self._readings: Readings = {}
        self._before: Tensor
        self._at = 0.0

    def start(self) -> None:
        """Mark the start of a step."""
        self._readings = dict.fromkeys((f"seconds/{phase}" for phase in ("forward", "backward", "optimizer")), 0.0)
        self._at = self._synchronize()

    def end_phase(self, phase: Literal["data", "forward", "backward", "optimizer"]) -> None:
        """Attribute the time since the last call to this phase."""
        now = self._synchronize()
        self._readings[f"seconds/{phase}"] = self._readings.get(f"seconds/{phase}", 0.0) + now - self._at
        self._at = now

    def before_update(self) -> None:
        """Call with complete gradients, before clipping."""
        for group, names in self._gradient_groups.items():
            self._note_norm(f"grad_norm/{group}", names)
        for kind, names in self._norms.items():
            self._note_norm(f"norm_layer_grad/{kind}", names)
        self._before = self._sample()
        self._at = self._synchronize()

    def after_update(self, learning_rate: float, loss: Tensor, norm: Tensor) -> None:
        """Call after the optimizer step.

        The effective step is mean |Δw| / learning rate. The update ratio is ‖Δw‖ / ‖w‖, for the model and each block.
        """
        self.end_phase("optimizer")
        self._readings |= {"loss/all": loss, "grad_norm/all": norm}
        names = list(self._parameters)
        sizes = torch.tensor([float(p.numel()) for p in self._parameters.values()], device=self._before.device)
        held = sizes.clamp(max=ELEMENTS)
        change = self._sample() - self._before
        moved = change.abs().sum(1) / held * sizes
        squares = change.square().sum(1) / held * sizes
        weights = self._before.square().sum(1) / held * sizes
        del self._before
        if learning_rate:
            self._readings["effective_step/all"] = moved.sum() / sizes.sum() / learning_rate
        self._readings["update_ratio/all"] = (squares.sum() / weights.sum()).sqrt()
        for group, members in self._by_block.items():
            index = [names.index(name) for name in members]
            self._readings[f"update_ratio/{group}"] = (squares[index].sum() / weights[index].sum()).sqrt()

    def readings(self) -> Readings:
        """Readings of the last step."""
        readings, self._readings = self._readings, {}
        return readings

    def _note_norm(self, name: str, parameters: list[str]) -> None:
        gradients = [g for p in parameters if (g := self._parameters[p].grad) is not None]
        if gradients:
            self._readings[name] = torch.nn.utils.get_total_norm(gradients)

    def _sample(self) -> Tensor:
        """Evenly spaced elements of each parameter, padded with zeros; shape `(parameters, ELEMENTS)`."""
        values = list(self._parameters.values())
        wide = torch.float64 if any(p.dtype == torch.float64 for p in values) else torch.float32
        sample = torch.zeros(len(values), ELEMENTS, dtype=wide, device=values[0].device)
        for row, parameter in zip(sample, values, strict=True):
            flat = parameter.detach().reshape(-1)
            part = flat[:: _stride(parameter)][:ELEMENTS]
            row[: len(part)] = part
        return sample


def _stride(parameter: Tensor) -> int:
    """Sampling stride: the largest up to numel / ELEMENTS that visits every column of a matrix."""
    stride = max(1, parameter.numel() // ELEMENTS)
    while parameter.ndim > 1 and math.gcd(stride, parameter.shape[-1]) > 1:
        stride -= 1
    return stride


def forward_readings(model: nn.Module, run: Callable[[], object], detail: Detail) -> Readings:
    """RMS of the block outputs and entropy of the attention during `run`, which must call the model's forward."""
    readings: Readings = {}
    blocks = anatomy.blocks(model)
    shown = blocks if detail == "full" else first_middle_last(list(blocks))
    with ExitStack() as hooks:
        for name in shown:
            hooks.enter_context(_output_rms(blocks[name], f"activation_rms/{name}", readings))
        attention = hooks.enter_context(AttentionEntropy(hooks.enter_context(_module_stack(model))))
        run()
    shown_attention = attention.seen if detail == "full" else first_middle_last(list(attention.seen))
    for name in shown_attention:
        heads = attention.seen[name]
        readings |= {
            f"attention_entropy/{name}": heads.mean(),
            f"attention_entropy_lowest/{name}": heads.min(),
            f"attention_entropy_uniform/{name}": attention.uniform[name],
        }
        if detail == "full":
            readings |= {f"attention_entropy/{name}/head{index}": value for index, value in enumerate(heads)}
    return readings


def numbers(readings: Mapping[str, Tensor | float]) -> dict[str, float]:
    """Copy all readings to the host in one transfer."""
    tensors = {name: value for name, value in readings.items() if isinstance(value, Tensor)}
    values = torch.stack([value.float() for value in tensors.values()]).tolist() if tensors else []
    return {
        **{k: v for k, v in readings.items() if not isinstance(v, Tensor)},
        **dict(zip(tensors, values, strict=True)),
    }


@contextmanager
def _output_rms(module: nn.Module, name: str, readings: Readings) -> Iterator[None]:
    def note(module: nn.Module, inputs: object, output: Any) -> None:
        if isinstance(output, tuple | list) and output:
            output = output[0]
        if isinstance(output, Tensor) and output.is_floating_point():
            readings[name] = output.detach().float().square().mean().sqrt()

    handle = module.register_forward_hook(note)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _module_stack(model: nn.Module) -> Iterator[Callable[[], list[str]]]:
    """Yield a function that returns the currently running modules, as `name Type`, outermost first."""
    running: list[str] = []
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            label = f"{name or 'model'} {type(module).__name__}"
            hooks.callback(module.register_forward_pre_hook(lambda *_, label=label: running.append(label)).remove)
            hooks.callback(module.register_forward_hook(lambda *_: running.pop() and None).remove)
        yield lambda: running
