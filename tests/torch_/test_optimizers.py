"""The learning rate and the across-batch rule reach every optimizer through its parameter groups."""

from __future__ import annotations

import pytest
import torch
from torch.optim import SGD, AdamW, RMSprop

from batchlab.core.errors import InputError
from batchlab.scaling import beta2_at


def two_groups(params, lr):
    weights = [p for p in params if p.ndim > 1]
    rest = [p for p in params if p.ndim <= 1]
    return AdamW(
        [
            {"params": weights, "lr": 0.1 * lr, "weight_decay": 0.3},
            {"params": rest, "betas": (0.8, 0.9), "weight_decay": 0.0},
        ],
        lr=lr,
    )


def step(trainable, batch, learning_rate):
    trainable.accumulate(batch, 1.0 / trainable.count(batch))
    trainable.apply(learning_rate)


def test_group_ratios_are_kept_also_after_load(make, samples):
    trainable = make(optimizer=two_groups)
    trainable.init(0)
    for rate in (1e-3, 7e-3):
        step(trainable, samples(4), rate)
        assert [g["lr"] for g in trainable.optimizer.groups] == pytest.approx([0.1 * rate, rate])
        trainable.load(trainable.state())
    step(trainable, samples(4), 0.5)
    assert [g["lr"] for g in trainable.optimizer.groups] == pytest.approx([0.05, 0.5])


def test_tensor_learning_rates_are_filled_in_place(make, samples):
    trainable = make(optimizer=lambda params, lr: AdamW(params, lr=torch.tensor(2 * lr)))
    trainable.init(0)
    tensor = trainable.optimizer.groups[0]["lr"]
    step(trainable, samples(4), 0.25)
    assert trainable.optimizer.groups[0]["lr"] is tensor
    assert float(tensor) == 0.5


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        (lambda params, lr: AdamW(params, lr=3e-4), "group 0 of AdamW does not follow the learning rate"),
        (
            lambda params, lr: SGD([{"params": params[:1], "lr": 0.1}, {"params": params[1:]}], lr=lr),
            "group 0 of SGD",
        ),
        (lambda params, lr: torch.optim.Adafactor(params, lr=lr**0.5), "does not follow"),
        (lambda params, lr: None, "returned NoneType"),
    ],
)
def test_optimizers_that_ignore_the_learning_rate_are_rejected(make, optimizer, words):
    with pytest.raises(InputError, match=words):
        make(optimizer=optimizer).init(0)


def test_name_task_without_an_optimizer_is_rejected(make):
    with pytest.raises(InputError, match="adamw, adam or sgd"):
        make(name="task").init(0)


@pytest.mark.parametrize(
    ("rule", "beta2s", "decays"),
    [
        ("fixed", (0.999, 0.9), (0.3, 0.0)),
        ("half_life", (beta2_at(0.999, 4), beta2_at(0.9, 4)), (0.3, 0.0)),
        ("half_life_and_decay", (beta2_at(0.999, 4), beta2_at(0.9, 4)), (1.2, 0.0)),
    ],
)
def test_across_batch_reaches_a_persons_own_optimizer(make, rule, beta2s, decays):
    trainable = make(optimizer=two_groups, across_batch=rule, batch_ratio=4.0)
    trainable.init(0)
    groups = trainable.optimizer.groups
    assert [g["betas"][1] for g in groups] == pytest.approx(beta2s)
    assert [g["betas"][0] for g in groups] == [0.9, 0.8]
    assert [g["weight_decay"] for g in groups] == pytest.approx(decays)


def test_shipped_optimizers_have_the_configured_settings(make):
    adam = make(beta1=0.8, beta2=0.95, epsilon=1e-7, weight_decay=0.05, batch_ratio=0.25)
    adam.init(0)
    (group,) = adam.optimizer.groups
    assert group["betas"] == (0.8, pytest.approx(0.95**0.25))
    assert (group["eps"], group["weight_decay"]) == (pytest.approx(2e-7), 0.05)
    sgd = make(name="sgd", momentum=0.7, weight_decay=0.02)
    sgd.init(0)
    (group,) = sgd.optimizer.groups
    assert (group["momentum"], group["weight_decay"]) == (0.7, 0.02)


def test_a_reference_learning_rate_makes_weight_decay_follow(make):
    trainable = make(weight_decay=0.1, reference_learning_rate=1e-3, rate_ratio=4.0, across_batch="fixed")
    trainable.init(0)
    (group,) = trainable.optimizer.groups
    assert group["weight_decay"] == pytest.approx(0.025)


def test_shipped_adamw_is_torchs(make, samples):
    """The same result as a plain loop with torch's AdamW."""
    trainable = make(weight_decay=0.1, grad_clip=None)
    trainable.init(0)
    torch.manual_seed(0)
    model = trainable._task.model()
    reference = AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    x, y = (torch.from_numpy(array) for array in samples(8))
    for _ in range(10):
        step(trainable, samples(8), 1e-2)
        reference.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        reference.step()
    for name, value in model.named_parameters():
        torch.testing.assert_close(torch.from_numpy(trainable.parameters()[name]), value.detach())


def test_families(make):
    for optimizer, family in (
        (None, "adam"),
        (two_groups, "adam"),
        (lambda params, lr: SGD(params, lr=lr), "sgd"),
        (lambda params, lr: RMSprop(params, lr=lr, momentum=0.9), "other"),
    ):
        trainable = make(optimizer=optimizer)
        trainable.init(0)
        assert trainable.optimizer_family() == family


SHIPPED = {
    "adamw": lambda params: AdamW(params, lr=0.02, betas=(0.8, 0.9), weight_decay=0.3),
    "adam": lambda params: torch.optim.Adam(params, lr=0.02, betas=(0.8, 0.9), weight_decay=0.3),
    "sgd": lambda params: SGD(params, lr=0.02, momentum=0.7, weight_decay=0.3),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_each_name_is_the_torch_optimizer_it_says(make, samples, name):
    """Three steps with the same gradients as a plain loop."""
    trainable = make(name=name, beta1=0.8, beta2=0.9, momentum=0.7, weight_decay=0.3, grad_clip=None)
    trainable.init(0)
    assert trainable.optimizer_family() == ("sgd" if name == "sgd" else "adam")
    plain = type(trainable.model)()
    plain.load_state_dict(trainable.model.state_dict())
    optimizer = SHIPPED[name](plain.parameters())
    for seed in range(3):
        x, y = samples(4, seed=seed)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(plain(torch.from_numpy(x)), torch.from_numpy(y)).backward()
        optimizer.step()
        step(trainable, (x, y), 0.02)
    for one, other in zip(trainable.model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
