"""Faults of training, planted in a small torch task: which item of the check finds each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

# ---- seeds


def test_model_that_ignores_the_seed(sound: Any) -> None:
    def model() -> nn.Module:
        torch.manual_seed(0)
        return sound.network()

    result = sound.check(sound.task(model=model))
    assert sound.not_ok(result) == {"seeds": "note"}
    assert sound.finding(result, "seeds").found == "ignored"


def test_model_with_random_numbers_of_its_own(sound: Any) -> None:
    generator = torch.Generator().manual_seed(3)

    def model() -> nn.Module:
        made = sound.network()
        nn.init.normal_(made[2].weight, generator=generator)
        return made

    result = sound.check(sound.task(model=model))
    assert sound.not_ok(result) == {"seeds": "fail"}
    assert (sound.finding(result, "seeds").found, sound.finding(result, "seeds").parameter) == (
        "not_seeded",
        "2.weight",
    )


def test_one_module_for_all_runs(sound: Any) -> None:
    shared = sound.network()
    result = sound.check(sound.task(model=lambda: shared))
    assert sound.item(result, "seeds").status == "fail"
    assert sound.finding(result, "seeds").found == "same_module"


# ---- learning rate


class OwnRate(torch.optim.SGD):
    """Steps at a rate that nobody set."""

    def step(self, closure: Any = None) -> Any:
        for parameter in (p for group in self.param_groups for p in group["params"]):
            if parameter.grad is not None:
                parameter.data.sub_(parameter.grad, alpha=0.01)


class OwnWarmUp(torch.optim.SGD):
    """Sets its rate by itself, starting from zero, as a built-in schedule does."""

    steps = 0

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["lr"] = 0.01 * self.steps
        self.steps += 1
        super().step()


class Frozen(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        pass


class SignOfRate(torch.optim.SGD):
    """Honours 0, but no other value."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.sub_(parameter.grad, alpha=0.01 * (group["lr"] > 0))


@pytest.mark.parametrize(
    ("optimizer", "found"),
    [
        (OwnRate, "moves_at_zero"),
        (OwnWarmUp, "moves_at_zero"),
        (Frozen, "moves_nothing"),
        (SignOfRate, "ignores_changes"),
    ],
)
def test_optimizer_that_does_not_honour_its_rate(optimizer: Callable[..., Any], found: str, sound: Any) -> None:
    result = sound.check(sound.task(optimizer=lambda params, lr: optimizer(params, lr=lr)))
    assert sound.item(result, "learning rate").status == "fail"
    assert sound.finding(result, "learning rate").found == found
    assert sound.finding(result, "learning rate").own_optimizer
    assert sound.finding(result, "learning rate").group is None


@pytest.mark.parametrize(("optimizer", "found"), [(OwnRate, "moves_at_zero"), (SignOfRate, "ignores_changes")])
def test_of_several_optimizers_the_one_at_fault_is_named(optimizer: Callable[..., Any], found: str, sound: Any) -> None:
    """The other one moves further, so that the model as a whole does follow the rate."""

    def two(params: list[Any], lr: float) -> list[torch.optim.Optimizer]:
        return [torch.optim.SGD(params[:2], lr=10 * lr), optimizer(params[2:], lr=lr)]

    finding = sound.finding(sound.check(sound.task(optimizer=two)), "learning rate")
    assert finding.found == found
    assert finding.group.optimizer == optimizer.__name__


def test_several_optimizers_that_honour_their_rate_are_fine(sound: Any) -> None:
    def two(model: torch.nn.Module, lr: float) -> list[torch.optim.Optimizer]:
        matrices, vectors = ([p for p in model.parameters() if (p.ndim == 2) is wide] for wide in (True, False))
        muon = getattr(torch.optim, "Muon", torch.optim.SGD)  # ships from torch 2.9
        return [muon(matrices, lr=lr), torch.optim.AdamW(vectors, lr=0.1 * lr)]

    assert sound.not_ok(sound.check(sound.task(optimizer=two))) == {}


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda params, lr: torch.optim.SGD(params, lr=lr, momentum=0.9, nesterov=True, weight_decay=0.01),
        lambda params, lr: torch.optim.AdamW(params, lr=lr, amsgrad=True),
        lambda params, lr: torch.optim.Adagrad(params, lr=lr),
        lambda params, lr: torch.optim.RMSprop(params, lr=lr),
    ],
)
def test_optimizers_of_torch_are_sound(optimizer: Callable[..., Any], sound: Any) -> None:
    assert sound.not_ok(sound.check(sound.task(optimizer=optimizer))) == {}


# ---- evaluation


def test_evaluation_that_is_different_every_time(sound: Any) -> None:
    draws = iter(range(10**6))

    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        extra = 0.0 if model.training else 0.01 * next(draws)
        return sound.loss(model, x, y) + extra

    result = sound.check(sound.task(loss=loss))
    assert sound.item(result, "evaluation").status == "fail"
    assert sound.finding(result, "evaluation").found == "random"


def test_dropout_left_on_in_evaluation(sound: Any) -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(F.dropout(model(x), 0.5, training=True), y)

    result = sound.check(sound.task(loss=loss))
    assert sound.item(result, "evaluation").status == "note"
    assert sound.finding(result, "evaluation").found == "draws"
    assert result.sample_independent


def test_a_loss_that_draws_its_noise_passes_with_a_note(sound: Any) -> None:
    """A diffusion loss; a batch with other draws has another loss, which is no fault."""

    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model(x + 0.1 * torch.randn_like(x)), y)

    result = sound.check(sound.task(loss=loss))
    assert result.passed
    one, other = sound.finding(result, "evaluation").losses
    assert one != other
    assert sound.finding(result, "evaluation").found == "draws"


def test_samples_that_influence_each_other_in_evaluation(sound: Any) -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        weights = torch.arange(1.0, len(y) + 1)
        return (weights * F.cross_entropy(model(x), y, reduction="none")).sum() / weights.sum()

    assert sound.finding(sound.check(sound.task(loss=loss)), "evaluation").found == "depends_on_order"


def test_evaluation_that_updates_running_statistics(sound: Any) -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        model.train()
        return sound.loss(model, x, y)

    result = sound.check(sound.task(model=lambda: sound.network(nn.BatchNorm1d(16)), loss=loss))
    assert sound.item(result, "evaluation").status == "fail"
    assert sound.finding(result, "evaluation").found == "changes_state"


def test_evaluation_that_changes_parameters(sound: Any) -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        value = sound.loss(model, x, y)
        if not model.training:
            with torch.no_grad():
                model[2].weight.zero_()  # type: ignore[index]
        return value

    result = sound.check(sound.task(loss=loss))
    assert sound.item(result, "evaluation").status == "fail"


def test_evaluation_that_changes_the_next_step(sound: Any) -> None:
    class Remembering:
        """Keeps a factor outside the model, doubled by every evaluation."""

        factor = 1.0

        def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            if model.training:
                factor, self.factor = self.factor, 1.0
                return factor * sound.loss(model, x, y) + (factor - 1.0) * model(x).square().mean()
            self.factor = 2.0
            return sound.loss(model, x, y)

    result = sound.check(sound.task(loss=Remembering()))
    assert sound.item(result, "evaluation").status == "fail"
    assert sound.finding(result, "evaluation").found == "changes_training"


# ---- gradients


def test_dead_parameter_is_named(sound: Any) -> None:
    class WithDead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = sound.network(), nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = self.used(x)
            return output

    result = sound.check(sound.task(model=WithDead))
    assert sound.not_ok(result) == {"gradients": "note"}
    assert sound.finding(result, "gradients").names == ("unused.weight", "unused.bias")
    assert (sound.finding(result, "gradients").found, sound.finding(result, "gradients").tensors) == ("some", 6)


def test_zero_initialised_last_layer_is_not_dead(sound: Any) -> None:
    def model() -> nn.Module:
        made = sound.network()
        nn.init.zeros_(made[2].weight)
        return made

    assert sound.not_ok(sound.check(sound.task(model=model))) == {}


def test_gradient_that_is_not_finite(sound: Any) -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        value = sound.loss(model, x, y)
        return value + 0.0 * torch.sqrt(value - value.detach())  # d√0 = ∞

    result = sound.check(sound.task(loss=loss))
    assert sound.item(result, "loss").status == "ok"
    assert sound.item(result, "gradients").status == "fail"
    assert (sound.finding(result, "gradients").found, sound.finding(result, "gradients").step) == ("not_finite", 1)
