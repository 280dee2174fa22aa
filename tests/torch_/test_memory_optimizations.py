"""Memory optimizations reduce memory and change no result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from batchlab.core.errors import InputError
from batchlab.core.experiment import MemoryOptimization
from batchlab.core.protocols import Batch
from batchlab.torch_.checkpointing import repeated_blocks
from batchlab.torch_.inspection import InspectableTorchTrainable
from batchlab.torch_.models import Decoder, next_token_loss

Make = Callable[..., InspectableTorchTrainable]
VOCABULARY, TIME, SAMPLES = 50, 12, 48  # more rows than one chunk


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(width, width, 3, padding=1), nn.BatchNorm1d(width), nn.Dropout(0.2))

    def forward(self, x: Tensor, *, scale: float) -> Tensor:
        return x + scale * torch.relu(self.layers(x))


class Convolutions(nn.Module):
    """Blocks with running statistics, random numbers and a keyword argument."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.blocks = nn.ModuleList(Residual(8) for _ in range(3))
        self.head = nn.Linear(8, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x).transpose(1, 2)
        for block in self.blocks:
            x = block(x, scale=0.5)
        return self.head(x.transpose(1, 2))


def decoder() -> nn.Module:
    return Decoder(VOCABULARY, TIME, 16, 2, 2, 24, dropout=0.1)


@pytest.fixture(autouse=True)
def double_precision(make: Make) -> None:
    torch.set_default_dtype(torch.float64)


@pytest.fixture
def tokens() -> Batch:
    random = np.random.default_rng(0)
    x, y = random.integers(0, VOCABULARY, (2, SAMPLES, TIME))
    y[:, -2:] = -100
    return x, y


def flattened(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    logits = model(x)
    return F.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1))


def transposed(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.CrossEntropyLoss(label_smoothing=0.1)(model(x).transpose(1, 2), y)


def shifted(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    logits = model(x)[..., :-1, :].contiguous().to(torch.float64)
    return F.cross_entropy(logits.reshape(-1, VOCABULARY), y[:, 1:].reshape(-1))


def masked(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    known = y != -100
    return F.cross_entropy(model(x)[known], y[known])


def weighted(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    weights = torch.linspace(0.5, 2, VOCABULARY)
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten(), weight=weights, label_smoothing=0.05)


def summed(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return F.cross_entropy(model(x).permute(0, 2, 1), y, reduction="sum"), (y != -100).sum()


def regularised(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Also needs the values of the logits."""
    logits = model(x).flatten(0, 1)
    return F.cross_entropy(logits, y.flatten()) + 1e-3 * logits.logsumexp(-1).square().mean()


def trained(
    make: Make, batch: Batch, memory_optimizations: tuple[MemoryOptimization, ...], **task: Any
) -> dict[str, Any]:
    """Losses, gradients and state dict after two accumulated steps and an evaluation."""
    trainable = make(device={"memory_optimizations": memory_optimizations}, **task)
    trainable.init(3)
    losses = []
    for _ in range(2):
        for half in (tuple(part[: SAMPLES // 2] for part in batch), tuple(part[SAMPLES // 2 :] for part in batch)):
            trainable.accumulate(half, 0.5 / trainable.count(half))
        gradients = trainable.gradients()
        losses.append(float(trainable.apply(1e-2).loss))
    losses.append(float(trainable.evaluate(batch)[0]))
    return {**gradients, **{k: v.numpy() for k, v in trainable.model.state_dict().items()}, "losses": np.array(losses)}


@pytest.mark.parametrize("model", [decoder, Convolutions])
@pytest.mark.parametrize(
    "memory_optimizations", [("checkpointing",), ("chunked_loss",), ("checkpointing", "chunked_loss")]
)
def test_results_do_not_change(
    make: Make, tokens: Batch, model: Any, memory_optimizations: tuple[MemoryOptimization, ...]
) -> None:
    plain = trained(make, tokens, (), model=model, loss=next_token_loss)
    saved = trained(make, tokens, memory_optimizations, model=model, loss=next_token_loss)
    assert plain.keys() == saved.keys()
    for name, value in plain.items():
        np.testing.assert_allclose(saved[name], value, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("loss", [flattened, transposed, shifted, masked, weighted, summed, regularised])
def test_a_chunked_loss_equals_the_loss(make: Make, tokens: Batch, loss: Any) -> None:
    plain = trained(make, tokens, (), model=decoder, loss=loss)
    saved = trained(make, tokens, ("chunked_loss",), model=decoder, loss=loss)
    for name, value in plain.items():
        np.testing.assert_allclose(saved[name], value, rtol=1e-9, atol=1e-12, err_msg=name)


def test_a_cast_of_logits_under_autocast(make: Make, tokens: Batch) -> None:
    """Chunks are computed in bfloat16 and cast as the full logits would be, in any autocast mode."""
    torch.set_default_dtype(torch.float32)

    def cast(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        logits = model(x)
        assert logits.dtype is torch.bfloat16
        with torch.autocast("cpu", enabled=False):
            return F.cross_entropy(logits.float().flatten(0, 1), y.flatten())

    losses = []
    for memory_optimizations in ((), ("chunked_loss",)):
        trainable = make(
            model=decoder, loss=cast, device={"memory_optimizations": memory_optimizations, "precision": "bf16"}
        )
        trainable.init(0)
        losses.append(float(trainable.evaluate(tokens)[0]))
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)


def test_full_logits_never_exist(make: Make, tokens: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    linear = F.linear

    def counting(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if weight.shape[0] == VOCABULARY:
            rows.append(x.numel() // x.shape[-1])
        return linear(x, weight, bias)

    monkeypatch.setattr(F, "linear", counting)
    trained(make, tokens, ("chunked_loss",), model=decoder, loss=next_token_loss)
    assert max(rows) == 256 < SAMPLES // 2 * TIME


def test_unsupported_models_are_rejected(make: Make, samples: Callable[..., Batch]) -> None:
    torch.set_default_dtype(torch.float32)
    with pytest.raises(InputError, match="needs repeated blocks"):
        make(device={"memory_optimizations": ("checkpointing",)}).init(0)
    with pytest.raises(InputError, match="cannot be combined"):
        make(device={"memory_optimizations": ("checkpointing",), "compile": "default"}).init(0)
    with pytest.raises(InputError, match=r"no nn\.Linear"):
        make(model=lambda: nn.Conv1d(1, 1, 1), device={"memory_optimizations": ("chunked_loss",)}).init(0)
    squared = make(device={"memory_optimizations": ("chunked_loss",)})
    squared.init(0)
    with pytest.raises(InputError, match="no cross-entropy"):
        squared.accumulate(samples(4), 1.0)


def test_blocks_are_the_outermost_repeated_modules() -> None:
    def block() -> nn.Module:
        return nn.Sequential(nn.Linear(2, 2), nn.ReLU())

    inner = nn.ModuleList([block(), block()])
    assert repeated_blocks(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))) == []
    assert repeated_blocks(nn.ModuleDict({"body": inner})) == list(inner)
    shared, other = block(), block()
    assert repeated_blocks(nn.Sequential(shared, nn.Linear(2, 2), shared, other)) == [shared, other]
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 2)
    assert repeated_blocks(encoder) == list(encoder.layers)


@pytest.mark.parametrize("factory", [torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD, torch.optim.Adagrad])
def test_a_fused_step_is_the_same_step(make: Make, samples: Callable[..., Batch], factory: Any) -> None:
    def two_groups(params: Any, lr: float) -> torch.optim.Optimizer:
        return factory([{"params": params[:2], "weight_decay": 0.1}, {"params": params[2:], "lr": 2 * lr}], lr=lr)

    weights = []
    for memory_optimizations in ((), ("fused_optimizer",)):
        trainable = make(optimizer=two_groups, device={"memory_optimizations": memory_optimizations})
        trainable.init(0)
        for step in range(3):
            trainable.accumulate(samples(8, np.float64, seed=step), 1 / 8)
            trainable.apply(1e-2)
        assert all(bool(group["fused"]) is bool(memory_optimizations) for group in trainable.optimizer.groups)
        weights.append(trainable.parameters())
    for name, value in weights[0].items():
        np.testing.assert_allclose(weights[1][name], value, rtol=1e-7, err_msg=name)


def test_an_optimizer_without_a_fused_step_is_rejected(make: Make) -> None:
    with pytest.raises(InputError, match="RMSprop has no fused step"):
        make(optimizer=torch.optim.RMSprop, device={"memory_optimizations": ("fused_optimizer",)}).init(0)
