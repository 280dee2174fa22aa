"""How spread out attention is, read from a forward pass of any model without changing it.

The entropy of one query's weights p over n keys is −Σ p ln p nats: ln n where it attends to all alike, 0 where it looks
at one key only. It is read at a few query positions and averaged over them and the samples, head by head.

Seen: `scaled_dot_product_attention`, `nn.MultiheadAttention`, and a softmax over the last axis inside a module whose
name or type says attention. Not seen: kernels of other packages, FlexAttention, and a softmax written out by hand.
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
"""Query positions that are looked at, evenly spread and including the last."""

_SOFTMAX = (F.softmax, torch.softmax, Tensor.softmax)


class AttentionEntropy(TorchFunctionMode):
    """While active, `seen` gets the entropy of each head `(heads,)` and `uniform` that of equal weights, by module.

    `place` gives the modules that run at this moment, as `name Type`, outermost first.
    """

    def __init__(self, place: Callable[[], Sequence[str]]) -> None:
        super().__init__()
        self._place = place
        self.seen: dict[str, Tensor] = {}
        self.uniform: dict[str, Tensor] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        result = func(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            self._note(_dot_product_weights(*args, **kwargs))
        elif func is F.multi_head_attention_forward:
            self._note(_multi_head_weights(*args, **kwargs))
        elif func in _SOFTMAX and result.ndim >= 3 and _last_axis(result, args, kwargs) and self._in_attention():
            self._note(result[..., _rows(result.shape[-2], result.device), :])
        return result

    def _in_attention(self) -> bool:
        return any("attention" in name or "attn" in name for name in map(str.lower, self._place()))

    def _note(self, weights: Tensor) -> None:
        """`weights` (…, heads, queries, keys), without gradient; three axes are one head."""
        place = self._place()
        name = place[-1].partition(" ")[0] if place else "model"
        if weights.ndim == 3:
            weights = weights.unsqueeze(1)
        entropies, limits = entropy(weights)
        heads = weights.ndim - 3
        self.seen[name] = entropies.movedim(heads, 0).flatten(1).nanmean(dim=1)
        self.uniform[name] = limits.nanmean()


def entropy(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Entropy of weights over the last axis, and its largest possible value, ln of how many are not zero, in nats.

    NaN where all are masked.
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
    """softmax(query · keyᵀ · scale + mask) of a few rows; masks as `scaled_dot_product_attention` documents them."""
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
    """The weights `nn.MultiheadAttention` would return for a few queries, (samples, heads, queries, keys)."""
    rows = _rows(query.shape[0], query.device)
    mask = kwargs.get("attn_mask")
    if mask is not None and mask.shape[-2] != 1:
        mask = mask[..., rows, :]
    kwargs |= {"attn_mask": mask, "is_causal": False, "need_weights": True, "average_attn_weights": False}
    with torch.no_grad():
        _, weights = F.multi_head_attention_forward(query[rows], *args, **kwargs)
    assert weights is not None
    return weights if weights.ndim == 4 else weights.unsqueeze(0)
