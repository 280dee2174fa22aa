"""The loss function of a language model."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


def next_token_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy in nats of the model's predictions for `x` and the targets `y`, both `(batch, time)`."""
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())
