"""A task's own optimizers: what they are given, what they may return, and that nothing is lost in between."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, RMSprop

from batchlab.core.errors import InputError
from batchlab.core.protocols import Batch
from batchlab.core.task import optimizer_argument
from batchlab.testing.trainable import check_trainable
from batchlab.torch_.inspection import InspectableTorchTrainable
from batchlab.torch_.own_optimizers import build

Make = Callable[..., InspectableTorchTrainable]

needs_muon = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch.optim.Muon ships from torch 2.9")


def two_optimizers(model: nn.Module, lr: float) -> list[torch.optim.Optimizer]:
    """Momentum for matrices, AdamW at a tenth of the rate for vectors."""
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim != 2]
    return [SGD(matrices, lr=lr, momentum=0.9), AdamW(vectors, lr=0.1 * lr, weight_decay=0.0)]


def muon_and_adamw(model: nn.Module, lr: float) -> list[torch.optim.Optimizer]:
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim != 2]
    return [torch.optim.Muon(matrices, lr=lr, weight_decay=0.1), AdamW(vectors, lr=0.2 * lr, betas=(0.9, 0.95))]


SEVERAL = [two_optimizers, pytest.param(muon_and_adamw, marks=needs_muon)]


def step(trainable: InspectableTorchTrainable, batch: Batch, learning_rate: float = 1e-2) -> Any:
    trainable.accumulate(batch, 1.0 / trainable.count(batch))
    return trainable.apply(learning_rate)


@pytest.mark.parametrize("optimizer", SEVERAL)
def test_several_optimizers_step_as_in_a_plain_loop(make: Make, samples: Callable[..., Batch], optimizer: Any) -> None:
    """The same bits, with the schedule's learning rate as a multiplier of both and one norm clipped over both."""
    trainable = make(optimizer=optimizer, grad_clip=0.1, across_batch="fixed")
    trainable.init(0)
    torch.manual_seed(0)
    model = type(trainable.model)()
    plain = optimizer(model, 1.0)
    ratios = [group["lr"] for one in plain for group in one.param_groups]
    for number, rate in enumerate((1e-2, 3e-2, 2e-2)):
        batch = samples(8, seed=number)
        x, y = (torch.from_numpy(array) for array in batch)
        nn.functional.mse_loss(model(x), y).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        for group, ratio in zip((g for one in plain for g in one.param_groups), ratios, strict=True):
            group["lr"] = ratio * rate
        for one in plain:
            one.step()
            one.zero_grad()
        assert float(step(trainable, batch, rate).grad_norm) == pytest.approx(float(norm), rel=1e-6)
    for name, value in model.named_parameters():
        np.testing.assert_allclose(trainable.parameters()[name], value.detach().numpy(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("optimizer", SEVERAL)
def test_the_contract_holds_for_several(make: Make, samples: Callable[..., Batch], optimizer: Any) -> None:
    check_trainable(lambda: make(optimizer=optimizer), samples(8))


@pytest.mark.parametrize("optimizer", SEVERAL)
def test_resume_continues_every_optimizer(make: Make, samples: Callable[..., Batch], optimizer: Any) -> None:
    trainable, other = make(optimizer=optimizer), make(optimizer=optimizer)
    trainable.init(0)
    for index in range(3):
        step(trainable, samples(8, seed=index))
    saved = trainable.state()
    moments = torch.load(io.BytesIO(saved), weights_only=True)["optimizers"]
    assert [len(one["state"]) for one in moments] == [2, 2]
    for index in range(3, 6):
        step(trainable, samples(8, seed=index))
    other.init(9)
    step(other, samples(8))
    other.load(saved)
    for index in range(3, 6):
        step(other, samples(8, seed=index))
    for name, value in trainable.parameters().items():
        assert np.array_equal(other.parameters()[name], value), name


def test_one_optimizer_on_the_model_is_the_one_on_its_parameters(make: Make, samples: Callable[..., Batch]) -> None:
    """The built-in AdamW, a task's own on (params, lr) and on (model, lr), alone and in a list: the same bits."""

    def adamw(parameters: Any, lr: float) -> AdamW:
        return AdamW(parameters, lr=lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)

    seen = []
    for optimizer in (
        None,
        lambda params, lr: adamw(params, lr),
        lambda model, lr: adamw(model.parameters(), lr),
        lambda model, lr: [adamw(model.parameters(), lr)],
    ):
        trainable = make(optimizer=optimizer, weight_decay=0.1, batch_ratio=4.0)
        trainable.init(0)
        for index in range(3):
            step(trainable, samples(8, seed=index))
        seen.append(trainable.parameters())
    for values in seen[1:]:
        for name, value in seen[0].items():
            assert np.array_equal(values[name], value), name


@needs_muon
def test_updates_that_are_sized_like_those_of_adamw_are_described(make: Make) -> None:
    def sized(model: nn.Module, lr: float) -> list[torch.optim.Optimizer]:
        matrices = [p for p in model.parameters() if p.ndim == 2]
        vectors = [p for p in model.parameters() if p.ndim != 2]
        return [torch.optim.Muon(matrices, lr=lr, adjust_lr_fn="match_rms_adamw"), AdamW(vectors, lr=lr)]

    trainable = make(optimizer=sized)
    trainable.init(0)
    assert [group.sized_like_adamw for group, _ in trainable.optimizer_groups()] == [True, False]


@needs_muon
def test_groups_are_described(make: Make) -> None:
    trainable = make(optimizer=muon_and_adamw, batch_ratio=2.0, across_batch="half_life_and_decay")
    trainable.init(0)
    (muon, matrices), (adamw, vectors) = trainable.optimizer_groups()
    assert (muon.optimizer, muon.learning_rate_ratio, muon.parameter_count) == ("Muon", 1.0, 6 * 16 + 16)
    assert muon.weight_decay == pytest.approx(0.2)
    assert not muon.sized_like_adamw
    assert (muon.beta2, muon.epsilon) == (None, None)
    assert (adamw.optimizer, adamw.learning_rate_ratio, adamw.parameter_count) == ("AdamW", 0.2, 17)
    assert adamw.epsilon == pytest.approx(1e-8 / 2**0.5)
    assert set(matrices) == {"inner.weight", "outer.weight"}
    assert set(vectors) == {"inner.bias", "outer.bias"}
    assert trainable.optimizer_family() == "other"


def test_frozen_and_empty_groups_are_left_alone(make: Make, samples: Callable[..., Batch]) -> None:
    class HalfFrozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen, self.head = nn.Linear(6, 6).requires_grad_(False), nn.Linear(6, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.frozen(x))

    def optimizer(model: Any, lr: float) -> list[torch.optim.Optimizer]:
        return [
            AdamW([{"params": model.head.parameters()}, {"params": []}], lr=lr),
            SGD(model.frozen.parameters(), lr=0.3),
        ]

    trainable = make(model=HalfFrozen, optimizer=optimizer)
    trainable.init(0)
    frozen = next(value for name, value in trainable.model.named_parameters() if name == "frozen.weight")
    before = frozen.detach().clone()
    step(trainable, samples(8), 1e-2)
    trainable.load(trainable.state())
    assert torch.equal(frozen, before)
    assert [group["lr"] for group in trainable.optimizer.groups] == [1e-2, 1.0, 0.3]
    ((group, names),) = trainable.optimizer_groups()
    assert (group.optimizer, group.parameter_count, set(names)) == ("AdamW", 7, {"head.weight", "head.bias"})


def test_what_the_optimizer_freezes_is_not_trained(make: Make) -> None:
    def only_the_head(model: Any, lr: float) -> torch.optim.Optimizer:
        model.inner.requires_grad_(False)
        return SGD(model.outer.parameters(), lr=lr)

    trainable = make(optimizer=only_the_head)
    trainable.init(0)
    assert trainable.parameter_count() == 17


def foreign(model: Any, lr: float) -> torch.optim.Optimizer:
    return SGD([*model.parameters(), nn.Parameter(torch.zeros(3, 2))], lr=lr)


def growing(params: Any, lr: float) -> torch.optim.Optimizer:
    return SGD([{"params": params[:1]}, {"params": params[1:]}] if lr < 1 else params, lr=lr)


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        (lambda model, lr: AdamW(model.inner.parameters(), lr=lr), "has outer.weight and 1 more, of 4 trainable"),
        (lambda params, lr: [SGD(params, lr=lr), AdamW(params[:1], lr=lr)], "inner.weight is in SGD and AdamW at once"),
        (foreign, r"a tensor of shape \(3, 2\) that is no parameter of the model"),
        (growing, "other parameter groups at another learning rate"),
        (lambda params, lr: [SGD(params[:2], lr=lr), AdamW(params[2:], lr=0.01)], "group 0 of AdamW does not follow"),
        (lambda params, lr: [SGD(params, lr=lr), "adam"], r"returned \[SGD, str\]"),
        (lambda params, lr: [], r"returned \[\]; return a torch"),
    ],
)
def test_what_a_sweep_cannot_use_is_refused(make: Make, optimizer: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make(optimizer=optimizer).init(0)


def test_of_several_those_with_a_fused_step_are_fused() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

    def optimizer(model: Any, lr: float) -> tuple[torch.optim.Optimizer, ...]:
        return RMSprop(model[0].parameters(), lr=lr), AdamW(model[1].parameters(), lr=lr)

    (plain, fused), ratios = build(model, optimizer, fused=True)
    assert ("fused" in plain.param_groups[0], fused.param_groups[0]["fused"]) == (False, True)
    assert ratios == [1.0, 1.0]


@pytest.mark.parametrize("name", ["AdamW", "Adam", "SGD", "RMSprop", "Adagrad", "Adafactor", "NAdam", "Muon"])
def test_torchs_optimizers_are_taken_as_they_are(name: str) -> None:
    if hasattr(torch.optim, name):
        assert optimizer_argument(getattr(torch.optim, name)) == "params"
