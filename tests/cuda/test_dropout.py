"""What dropout keeps for the backward pass, on CUDA and in a trace."""

from __future__ import annotations

import pytest
import torch
from tests.cuda.card import Card
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import dropout

from batchlab.torch_.cuda_dropout import cuda_dropout
from batchlab.torch_.storage_log import StorageLog

ELEMENTS = 2**20


def kept(x: Tensor, p: float, train: bool) -> Tensor:
    return dropout(dropout(x, p, train), p, train)


@pytest.mark.parametrize(("p", "train"), [(0.1, True), (0.0, True), (1.0, True), (0.1, False)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_traced_pass_keeps_what_cuda_keeps(card: Card, p: float, train: bool, dtype: torch.dtype) -> None:
    x = torch.zeros(ELEMENTS, dtype=dtype, device="cuda", requires_grad=True)
    before = torch.cuda.memory_allocated()
    result = kept(x, p, train)
    measured = torch.cuda.memory_allocated() - before
    del result
    log = StorageLog()
    with FakeTensorMode(), log, cuda_dropout():
        log.begin()
        traced_x = torch.zeros(ELEMENTS, dtype=dtype, requires_grad=True)
        held = sum(change.bytes for change in log.changes)
        result = kept(traced_x, p, train)
        traced = sum(change.bytes for change in log.changes) - held
    assert abs(traced - measured) <= 1024  # a number of its own takes 512 bytes on CUDA
    del result
