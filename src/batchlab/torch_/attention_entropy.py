"""Entropy of attention weights, measured in a forward pass of an arbitrary model without changing it.

The entropy of one query's weights p over n keys is −Σ p ln p nats: ln n for uniform attention, 0 if all weight is on a
single key. It is measured at a few query positions and averaged over these and the samples, per head.

Supported: `scaled_dot_product_attention`, `nn.MultiheadAttention`, and a softmax over the last axis inside a module
whose name or class contains "attention" or "attn". Not supported: kernels of other packages, FlexAttention, and a
softmax composed of other operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

QUERIES = 16
"""Number of query positions measured, evenly spaced and including the last."""

_SOFTMAX = (F.softmax, torch.softmax, Tensor.softmax)


class AttentionEntropy(TorchFunctionMode):
    """While active, records per module the entropy of each head (`seen`, shape `(heads,)`) and of uniform weights.

    `module_stack` returns the modules that are currently running, as `name Type`, outermost first.
    """

    def __init__(self, module_stack: Callable[[], Sequence[str]]) -> None:
        super().__init__()
        self._module_stack = module_stack
        self.seen: dict[str, Tensor] = {}
        self.uniform: dict[str, Tensor] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        result = func(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            self._record(_dot_product_weights(*args, **kwargs))
        elif func is F.multi_head_attention_forward:
            self._record(_multi_head_weights(*args, **kwargs))
        elif func in _SOFTMAX and result.ndim >= 3 and _last_axis(result, args, kwargs) and self._in_attention():
            self._record(result[..., _rows(result.shape[-2], result.device), :])
        return result

    def _in_attention(self) -> bool:
        return any("attention" in name or "attn" in name for name in map(str.lower, self._module_stack()))

    def _record(self, weights: Tensor) -> None:
        """Record `weights` of shape (…, heads, queries, keys), or (samples, queries, keys) for a single head."""
        stack = self._module_stack()
        name = stack[-1].partition(" ")[0] if stack else "model"
        if weights.ndim == 3:
            weights = weights.unsqueeze(1)
        entropies, limits = entropy(weights)
        heads = weights.ndim - 3
        self.seen[name] = entropies.movedim(heads, 0).flatten(1).nanmean(dim=1)
        self.uniform[name] = limits.nanmean()


def entropy(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Entropy over the last axis in nats, and its maximum: the logarithm of the number of nonzero weights.

    The maximum is NaN if all weights are masked.
    """
    weights = weights.detach().float()
    return torch.special.entr(weights).sum(-1), (weights > 0).sum(-1).log().nan_to_num(neginf=math.nan)


def _last_axis(result: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return kwargs.get("dim", args[1] if len(args) > 1 else None) in (-1, result.ndim - 1)


def _rows(queries: int, device: torch.device) -> Tensor:
    count = min(QUERIES, queries)
    return torch.tensor([(i + 1) * queries // count - 1 for i in range(count)], device=device)


def _dot_product_weights(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query · keyᵀ · scale + mask) for a few queries, with masks as in `scaled_dot_product_attention`."""
    rows = _rows(query.shape[-2], query.device)
    if enable_gqa and key.shape[-3] != query.shape[-3]:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    with torch.no_grad(), torch.autocast(query.device.type, enabled=False):
        scores = query[..., rows, :].float() @ key.float().transpose(-2, -1) * scale
        if is_causal:
            later = torch.arange(key.shape[-2], device=key.device) > rows[:, None]
            scores = scores.masked_fill(later, -math.inf)
        if attn_mask is not None:
            mask = attn_mask if attn_mask.shape[-2] == 1 else attn_mask[..., rows, :]
            scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask.float()
        return scores.softmax(dim=-1)


def _multi_head_weights(query: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The weights `nn.MultiheadAttention` would return for a few queries, shape (samples, heads, queries, keys)."""
    rows = _rows(query.shape[0], query.device)
    mask = kwargs.get("attn_mask")
    if mask is not None and mask.shape[-2] != 1:
        mask = mask[..., rows, :]
    kwargs |= {"attn_mask": mask, "is_causal": False, "need_weights": True, "average_attn_weights": False}
    with torch.no_grad():
        _, weights = F.multi_head_attention_forward(query[rows], *args, **kwargs)
    assert weights is not None
    return weights if weights.ndim == 4 else weights.unsqueeze(0)
