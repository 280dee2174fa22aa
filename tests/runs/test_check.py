"""Each fault that `batchlab check` looks for, planted in a small torch task: which item finds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import batchlab
from batchlab.core.check import CheckItem, CheckResult
from batchlab.core.experiment import OptimizerConfig
from batchlab.core.spec import DeviceSettings, OptimizerSettings
from batchlab.core.task import Task
from batchlab.data.source import open_dataset
from batchlab.data.stream import SampleStream
from batchlab.runs.check import check
from batchlab.torch_.framework import TorchFramework

PADDING = -100
LINES = [
    "loss",
    "mean or sum",
    "splitting",
    "seeds",
    "learning rate",
    "evaluation",
    "gradients",
    "held-out data",
    "data size",
]


def vectors(seed: int, samples: int = 64) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).normal(size=(samples, 6)).astype(np.float32)
    return x, (np.abs(x.sum(axis=1)) * 2).astype(np.int64) % 3


def network(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), *layers, nn.Tanh(), nn.Linear(16, 3))


def class_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def make_task(**changes: Any) -> Task:
    sound: dict[str, Any] = {"model": network, "loss": class_loss, "train": vectors(0), "valid": vectors(1)}
    return batchlab.task(**{**sound, **changes})


def run_check(task: Task, device: DeviceSettings | None = None, **options: Any) -> CheckResult:
    torch.manual_seed(7)
    train, valid = (
        open_dataset(data, unit=task.unit, sequence_length=task.sequence_length, what="data")
        for data in (task.train, task.valid)
    )
    config = OptimizerConfig(name="task" if task.optimizer else "adamw")
    return check(
        lambda: TorchFramework().trainable(task, device or DeviceSettings(), OptimizerSettings(config=config)),
        train=SampleStream(train, seed=0),
        valid=valid,
        train_dataset=train,
        unit=task.unit,
        own_optimizer=task.optimizer is not None,
        **options,
    )


def item(result: CheckResult, name: str) -> CheckItem:
    return next(item for item in result.items if item.name == name)


def finding(result: CheckResult, name: str) -> Any:
    return item(result, name).finding


def not_ok(result: CheckResult) -> dict[str, str]:
    return {item.name: item.status for item in result.items if item.status != "ok"}


# ---- sound tasks


def test_sound_task_has_only_ticks() -> None:
    result = run_check(make_task())

    assert [item.name for item in result.items] == LINES
    assert not_ok(result) == {}
    assert result.passed
    assert result.sample_independent
    assert result.mixing_layer is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dropout_is_not_blamed(dtype: torch.dtype) -> None:
    def model() -> nn.Module:
        return network(nn.Dropout(0.3)).to(dtype)

    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return class_loss(model, x.to(dtype), y)

    assert not_ok(run_check(make_task(model=model, loss=loss))) == {}


def test_bfloat16_rounding_is_not_blamed() -> None:
    device = DeviceSettings(precision="bf16")
    assert not_ok(run_check(make_task(), device=device, precision="bf16")) == {}


def test_sum_with_count_is_sound() -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, int]:
        return F.cross_entropy(model(x), y, reduction="sum"), len(y)

    result = run_check(make_task(loss=loss))
    assert not_ok(result) == {}
    assert finding(result, "mean or sum").found == "sum_with_count"
    assert finding(result, "mean or sum").own_count == 8


def test_declared_sum_is_sound() -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model(x), y, reduction="sum")

    assert not_ok(run_check(make_task(loss=loss, reduction="sum"))) == {}


def test_tokens_start_near_the_uniform_loss() -> None:
    tokens = np.random.default_rng(0).integers(0, 50, size=(2, 3000))
    tokens[:, 0] = 49

    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model(x).transpose(1, 2), y)

    def model() -> nn.Module:
        return nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50))

    result = run_check(make_task(model=model, loss=loss, train=tokens[0], valid=tokens[1], sequence_length=16))
    assert not_ok(result) == {}
    assert finding(result, "loss").vocabulary == 50
    assert finding(result, "loss").loss == pytest.approx(np.log(50), rel=0.2)


# ---- loss


def test_nan_loss() -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return class_loss(model, x, y) + torch.log(-torch.ones(()))

    result = run_check(make_task(loss=loss))
    assert item(result, "loss").status == "fail"
    assert finding(result, "loss").found == "not_finite"
    assert np.isnan(finding(result, "loss").loss)
    assert not_ok(result) == {"loss": "fail", "mean or sum": "note"}


def test_far_from_uniform_is_a_note() -> None:
    tokens = np.random.default_rng(0).integers(0, 50, size=(2, 3000))

    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(40 * model(x).transpose(1, 2), y)

    def model() -> nn.Module:
        return nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50))

    result = run_check(make_task(model=model, loss=loss, train=tokens[0], valid=tokens[1], sequence_length=16))
    assert item(result, "loss").status == "note"
    assert finding(result, "loss").found == "far_above_uniform"


def test_sum_loss() -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model(x), y, reduction="sum")

    result = run_check(make_task(loss=loss))
    assert not_ok(result) == {"mean or sum": "fail", "splitting": "note"}
    assert finding(result, "mean or sum").found == "sum_not_declared"
    assert finding(result, "splitting").found == "reduction_unknown"
    assert result.sample_independent  # a wrong reduction is not a layer that mixes samples


def test_mean_declared_as_sum() -> None:
    result = run_check(make_task(reduction="sum"))
    assert item(result, "mean or sum").status == "fail"
    assert finding(result, "mean or sum").found == "mean_declared_as_sum"
    assert result.sample_independent


def test_mean_returned_with_a_count() -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, int]:
        return class_loss(model, x, y), len(y)

    result = run_check(make_task(loss=loss))
    assert item(result, "mean or sum").status == "fail"
    assert finding(result, "mean or sum").found == "mean_with_count"


def padded(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Sequences of 1 to 12 targets, the rest padding."""
    random = np.random.default_rng(seed)
    x = random.integers(0, 9, size=(64, 12))
    y = random.integers(0, 9, size=(64, 12))
    y[np.arange(12) >= random.integers(1, 13, size=(64, 1))] = PADDING
    return x, y


def tagger() -> nn.Module:
    return nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 9))


def padded_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x).transpose(1, 2), y, ignore_index=PADDING)


def real_targets(x: np.ndarray, y: np.ndarray) -> float:
    return float((y != PADDING).sum())


def test_mean_over_padded_targets_without_count() -> None:
    result = run_check(make_task(model=tagger, loss=padded_loss, train=padded(0), valid=padded(1)))
    assert not_ok(result) == {"mean or sum": "fail", "splitting": "note"}
    assert finding(result, "mean or sum").found == "mean_over_other_targets"
    assert result.sample_independent


def test_mean_over_padded_targets_with_count_is_sound() -> None:
    task = make_task(model=tagger, loss=padded_loss, train=padded(0), valid=padded(1), count=real_targets)
    assert not_ok(run_check(task)) == {}


def test_own_count_differs_from_the_one_known_beforehand() -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        total = F.cross_entropy(model(x).transpose(1, 2), y, ignore_index=PADDING, reduction="sum")
        return total, (y != PADDING).sum()

    task = make_task(model=tagger, loss=loss, train=padded(0), valid=padded(1))
    result = run_check(task)
    assert not_ok(result) == {"mean or sum": "fail"}
    assert finding(result, "mean or sum").found == "count_differs"
    sound = make_task(model=tagger, loss=loss, train=padded(0), valid=padded(1), count=real_targets)
    assert not_ok(run_check(sound)) == {}


def test_loss_that_is_not_one_number_is_reported_without_its_type() -> None:
    result = run_check(make_task(loss=lambda model, x, y: F.cross_entropy(model(x), y, reduction="none")))
    assert item(result, "loss").status == "fail"
    assert finding(result, "loss").message.startswith("loss(model, x, y) returned a tensor of shape (8,)")


def test_crash_in_the_loss_is_reported_once_with_its_line() -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        raise KeyError("no such target")

    result = run_check(make_task(loss=loss))
    assert item(result, "loss").status == "fail"
    assert finding(result, "loss").message.startswith("KeyError: 'no such target' (line ")
    assert "test_check.py" in finding(result, "loss").message
    assert finding(result, "loss").same_as is None
    assert finding(result, "gradients").same_as == "loss"
    assert [item(result, name).status for name in ("held-out data", "data size")] == ["ok", "ok"]


# ---- splitting


def test_batch_norm_is_named() -> None:
    result = run_check(make_task(model=lambda: network(nn.BatchNorm1d(16))))
    assert not_ok(result) == {"splitting": "note"}
    assert not result.sample_independent
    assert result.mixing_layer is not None
    assert "BatchNorm1d" in result.mixing_layer
    assert finding(result, "splitting").layer == result.mixing_layer


def test_in_batch_negatives_name_the_loss_function() -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        one, other = F.normalize(model(x)), F.normalize(model(x + 0.1))
        return F.cross_entropy(one @ other.T / 0.5, torch.arange(len(x)))

    result = run_check(make_task(loss=loss))
    assert not_ok(result) == {"mean or sum": "note", "splitting": "note"}
    assert not result.sample_independent
    assert result.mixing_layer == "the loss function"
    assert finding(result, "mean or sum").found == "neither"
    assert (finding(result, "splitting").found, finding(result, "splitting").layer) == ("mixes", None)


def test_declared_dependent_samples_are_respected() -> None:
    result = run_check(make_task(sample_independent=False))
    assert not_ok(result) == {"splitting": "note"}
    assert finding(result, "splitting").found == "declared_dependent"
    assert not result.sample_independent
    assert result.mixing_layer is None


class Noisy(nn.Module):
    """Noise in training only, that no dropout switch reaches."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.5 * torch.randn_like(x) if self.training else x


def test_other_randomness_is_not_blamed_for_mixing() -> None:
    result = run_check(make_task(model=lambda: network(Noisy())))
    assert not_ok(result) == {"splitting": "note"}
    assert finding(result, "splitting").found == "not_repeatable"
    assert result.sample_independent


# ---- seeds


def test_model_that_ignores_the_seed() -> None:
    def model() -> nn.Module:
        torch.manual_seed(0)
        return network()

    result = run_check(make_task(model=model))
    assert not_ok(result) == {"seeds": "note"}
    assert finding(result, "seeds").found == "ignored"


def test_model_with_random_numbers_of_its_own() -> None:
    generator = torch.Generator().manual_seed(3)

    def model() -> nn.Module:
        made = network()
        nn.init.normal_(made[2].weight, generator=generator)  # type: ignore[index]
        return made

    result = run_check(make_task(model=model))
    assert not_ok(result) == {"seeds": "fail"}
    assert (finding(result, "seeds").found, finding(result, "seeds").parameter) == ("not_seeded", "2.weight")


def test_one_module_for_all_runs() -> None:
    shared = network()
    result = run_check(make_task(model=lambda: shared))
    assert item(result, "seeds").status == "fail"
    assert finding(result, "seeds").found == "same_module"


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
def test_optimizer_that_does_not_honour_its_rate(optimizer: Callable[..., Any], found: str) -> None:
    result = run_check(make_task(optimizer=lambda params, lr: optimizer(params, lr=lr)))
    assert item(result, "learning rate").status == "fail"
    assert finding(result, "learning rate").found == found
    assert finding(result, "learning rate").own_optimizer


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda params, lr: torch.optim.SGD(params, lr=lr, momentum=0.9, nesterov=True, weight_decay=0.01),
        lambda params, lr: torch.optim.AdamW(params, lr=lr, amsgrad=True),
        lambda params, lr: torch.optim.Adagrad(params, lr=lr),
        lambda params, lr: torch.optim.RMSprop(params, lr=lr),
    ],
)
def test_optimizers_of_torch_are_sound(optimizer: Callable[..., Any]) -> None:
    assert not_ok(run_check(make_task(optimizer=optimizer))) == {}


# ---- evaluation


def test_evaluation_that_is_different_every_time() -> None:
    draws = iter(range(10**6))

    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        extra = 0.0 if model.training else 0.01 * next(draws)
        return class_loss(model, x, y) + extra

    result = run_check(make_task(loss=loss))
    assert item(result, "evaluation").status == "fail"
    assert finding(result, "evaluation").found == "random"


def test_dropout_left_on_in_evaluation() -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(F.dropout(model(x), 0.5, training=True), y)

    result = run_check(make_task(loss=loss))
    assert item(result, "evaluation").status == "fail"
    assert finding(result, "evaluation").found in ("random", "depends_on_order")
    assert result.sample_independent


def test_evaluation_that_updates_running_statistics() -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        model.train()
        return class_loss(model, x, y)

    result = run_check(make_task(model=lambda: network(nn.BatchNorm1d(16)), loss=loss))
    assert item(result, "evaluation").status == "fail"
    assert finding(result, "evaluation").found == "changes_state"


def test_evaluation_that_changes_parameters() -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        value = class_loss(model, x, y)
        if not model.training:
            with torch.no_grad():
                model[2].weight.zero_()  # type: ignore[index]
        return value

    result = run_check(make_task(loss=loss))
    assert item(result, "evaluation").status == "fail"


def test_evaluation_that_changes_the_next_step() -> None:
    class Remembering:
        """Keeps a factor outside the model, doubled by every evaluation."""

        factor = 1.0

        def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            if model.training:
                factor, self.factor = self.factor, 1.0
                return factor * class_loss(model, x, y) + (factor - 1.0) * model(x).square().mean()
            self.factor = 2.0
            return class_loss(model, x, y)

    result = run_check(make_task(loss=Remembering()))
    assert item(result, "evaluation").status == "fail"
    assert finding(result, "evaluation").found == "changes_training"


# ---- gradients


def test_dead_parameter_is_named() -> None:
    class WithDead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = network(), nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = self.used(x)
            return output

    result = run_check(make_task(model=WithDead))
    assert not_ok(result) == {"gradients": "note"}
    assert finding(result, "gradients").names == ("unused.weight", "unused.bias")
    assert (finding(result, "gradients").found, finding(result, "gradients").tensors) == ("some", 6)


def test_zero_initialised_last_layer_is_not_dead() -> None:
    def model() -> nn.Module:
        made = network()
        nn.init.zeros_(made[2].weight)  # type: ignore[index]
        return made

    assert not_ok(run_check(make_task(model=model))) == {}


def test_gradient_that_is_not_finite() -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        value = class_loss(model, x, y)
        return value + 0.0 * torch.sqrt(value - value.detach())  # d√0 = ∞

    result = run_check(make_task(loss=loss))
    assert item(result, "loss").status == "ok"
    assert item(result, "gradients").status == "fail"
    assert (finding(result, "gradients").found, finding(result, "gradients").step) == ("not_finite", 1)


# ---- data


def test_held_out_data_from_the_training_data() -> None:
    x, y = vectors(0)
    result = run_check(make_task(valid=(x[:32], y[:32])))
    assert not_ok(result) == {"held-out data": "fail"}
    assert (finding(result, "held-out data").found, finding(result, "held-out data").share) == ("leaked", 1.0)


def test_a_little_overlap_is_a_note() -> None:
    x, y = vectors(1, 50)
    x[:2] = vectors(0)[0][:2]
    result = run_check(make_task(valid=(x, y)))
    assert not_ok(result) == {"held-out data": "note"}


def test_less_data_than_the_largest_batch_is_a_note() -> None:
    assert not_ok(run_check(make_task(), largest_batch=64)) == {}
    result = run_check(make_task(), largest_batch=65)
    assert not_ok(result) == {"data size": "note"}


def test_single_training_sample_is_refused_without_running_anything() -> None:
    def model() -> nn.Module:
        raise AssertionError("not reached")

    result = run_check(make_task(model=model, train=vectors(0, 1)))
    assert not_ok(result) == {"data size": "fail"}
