"""Structure of an arbitrary model: its repeated blocks, norm layers and trainable parameters."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

_NORMS = (
    nn.LayerNorm,
    nn.RMSNorm,
    nn.GroupNorm,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
)


def blocks(model: nn.Module) -> dict[str, nn.Module]:
    """The repeated blocks of the model, in order: the siblings of one type with the most parameters in total.

    If nothing repeats, every layer that directly owns parameters.
    """
    best: dict[str, nn.Module] = {}
    most = 0
    for name, module in model.named_modules():
        siblings: dict[type[nn.Module], dict[str, nn.Module]] = {}
        for child_name, child in module.named_children():
            siblings.setdefault(type(child), {})[f"{name}.{child_name}" if name else child_name] = child
        for group in siblings.values():
            size = sum(parameter.numel() for child in group.values() for parameter in child.parameters())
            if len(group) > 1 and size > most:
                best, most = group, size
    if best:
        return best
    return {name: module for name, module in model.named_modules() if name and list(module.parameters(recurse=False))}


def trainable_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Floating-point parameters that require gradients, by name. A shared parameter appears under its first name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad and p.is_floating_point()}


def norm_parameters(model: nn.Module, trained: Mapping[str, nn.Parameter]) -> dict[str, list[str]]:
    """Names of the trainable parameters of norm layers, grouped as `weight` (scale) and `bias` (shift).

    A norm layer is one of torch's, or a module whose class name contains "norm". One-dimensional parameters whose name
    starts with b (bias, beta) count as shifts.
    """
    groups: dict[str, list[str]] = {}
    for module_name, module in model.named_modules():
        if not (isinstance(module, _NORMS) or "norm" in type(module).__name__.lower()):
            continue
        for own_name, parameter in module.named_parameters(recurse=False):
            name = f"{module_name}.{own_name}" if module_name else own_name
            if name in trained and parameter.ndim == 1:
                groups.setdefault("bias" if own_name.startswith("b") else "weight", []).append(name)
    return groups
