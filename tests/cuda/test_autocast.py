"""The rules of autocast by which a trace on a CPU predicts a step on CUDA, against those of torch's CUDA build."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tests.cuda.card import Card
from torch import Tensor

from batchlab.torch_.cuda_autocast import cuda_autocast_rules

Operation = Callable[[Tensor], Tensor]


def labels(x: Tensor) -> Tensor:
    return torch.zeros(len(x), dtype=torch.int64, device=x.device)


OPERATIONS: dict[str, Operation] = {
    "cross_entropy": lambda x: F.cross_entropy(x, labels(x)),
    "cross_entropy of each": lambda x: F.cross_entropy(x, labels(x), reduction="none"),
    "nll_loss": lambda x: F.nll_loss(x, labels(x)),
    "mse_loss": lambda x: F.mse_loss(x, x),
    "kl_div": lambda x: F.kl_div(x, x),
    "softmax": lambda x: F.softmax(x, -1),
    "softmax in bf16": lambda x: F.softmax(x, -1, dtype=torch.bfloat16),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, (8,)),
    "rms_norm": lambda x: F.rms_norm(x, (8,)),
    "group_norm": lambda x: F.group_norm(x, 2),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "gelu": F.gelu,
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softplus": F.softplus,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "pow": lambda x: x.pow(2),
    "square": torch.square,
    "mean": lambda x: x.mean(-1),
    "var": lambda x: x.var(-1),
    "sum": lambda x: x.sum(-1),
    "sum of all": lambda x: x.sum(),
    "cumsum": lambda x: x.cumsum(-1),
    "norm": lambda x: x.norm(),
    "normalize": lambda x: F.normalize(x),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x),
    "linear": lambda x: F.linear(x, x),
    "matmul of float32": lambda x: x.float() @ x.float().T,
    "attention": lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
    "add float32": lambda x: x + x.float(),
    "cat with float32": lambda x: torch.cat([x, x.float()]),
    "dropout": lambda x: F.dropout(x, 0.1),
    "interpolate": lambda x: F.interpolate(x[None, None], scale_factor=2.0),
    "avg_pool2d": lambda x: F.avg_pool2d(x[None], 2),
    "max_pool2d": lambda x: F.max_pool2d(x[None], 2),
}


def dtype(operation: Operation, device: str) -> torch.dtype:
    with torch.autocast(device, dtype=torch.bfloat16):
        return operation(torch.zeros(4, 8, dtype=torch.bfloat16, device=device)).dtype


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_has_the_type_that_it_has_on_cuda(card: Card, name: str) -> None:
    with cuda_autocast_rules():
        traced = dtype(OPERATIONS[name], "cpu")
    assert traced is dtype(OPERATIONS[name], "cuda")
