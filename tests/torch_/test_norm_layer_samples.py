"""Per-sample gradients of norm layers, compared with one backward pass per sample in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import TaskReference
from batchlab.core.record import GradientSample, NoGradientSamples
from batchlab.core.spec import GradientSampling, TrainSpec, Workload
from batchlab.runs.gradient_samples import GradientSampler
from batchlab.torch_.norm_layer_samples import NormLayerSamples

POSITIONS, WIDTH = 5, 8


class Own(nn.Module):
    """A custom norm layer; `how` decides what its weight does."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(WIDTH) if how == "from one" else torch.rand(WIDTH) + 0.5)
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        x = x / x.square().mean(dim=-1, keepdim=True).add(1e-6).sqrt()
        return {"plain": x * self.weight, "from one": x * (1 + self.weight), "squared": x * self.weight**2}[self.how]


class OwnNorm(Own):
    pass


class Model(nn.Module):
    """Embedding, one norm used twice, a block that may be recomputed, another norm, a head."""

    def __init__(self, first: nn.Module, second: nn.Module, *, recomputed: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, WIDTH)
        self.first, self.second = first, second
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 11)
        self.recomputed = recomputed

    def block(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.mix(self.first(x)))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.block(self.embedding(x))
        again = checkpoint(self.block, hidden, use_reentrant=False) if self.recomputed else self.block(hidden)
        return self.head(self.second(again))


def model(**settings: Any) -> Model:
    torch.manual_seed(0)
    return Model(nn.LayerNorm(WIDTH), nn.RMSNorm(WIDTH), **settings).double()


def drawn(samples: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.randint(0, 11, (samples, POSITIONS), generator=generator) for _ in range(2))  # type: ignore[return-value]


def total_loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten(), reduction="sum")


def one_by_one(net: Model, x: Tensor, y: Tensor, layers: Sequence[nn.Module]) -> np.ndarray:
    """The gradient of the norm layers for each sample, from its own backward pass: mean over its targets."""
    parameters = [p for layer in layers for p in layer.parameters()]
    rows = []
    for j in range(len(x)):
        gradients = torch.autograd.grad(total_loss(net, x[j : j + 1], y[j : j + 1]) / POSITIONS, parameters)
        rows.append(torch.cat([g.flatten() for g in gradients]).numpy())
    return np.array(rows)


def measured(net: nn.Module, x: Tensor, y: Tensor, cuts: Sequence[int]) -> tuple[float, float] | None:
    """The measured sums of a step with micro-batches of these sizes."""
    samples, at = NormLayerSamples(net), 0
    with samples.watching():
        for size in cuts:
            samples.begin_pass(size)
            (total_loss(net, x[at : at + size], y[at : at + size]) / y.numel()).backward()
            samples.end_pass([1 / len(x)] * size)
            at += size
    found = samples.sums()
    return None if found is None else (sum(map(float, found[0])), float(found[1]))


@pytest.mark.parametrize("cuts", [(7,), (4, 3), (1,) * 7])
@pytest.mark.parametrize("recomputed", [False, True])
def test_they_are_those_of_a_loop_over_samples(cuts: tuple[int, ...], recomputed: bool) -> None:
    net, (x, y) = model(recomputed=recomputed), drawn(7)
    each = one_by_one(net, x, y, [net.first, net.second])
    within, of_mean = measured(net, x, y, cuts)  # type: ignore[misc]
    assert within == pytest.approx(float((each**2).sum(axis=1).mean()), rel=1e-10)
    assert of_mean == pytest.approx(float((each.mean(axis=0) ** 2).sum()), rel=1e-10)


@pytest.mark.parametrize(("how", "seen"), [("plain", True), ("from one", True), ("squared", False)])
def test_a_persons_norm_is_seen_where_its_weight_multiplies(how: str, seen: bool) -> None:
    torch.manual_seed(0)
    net = Model(OwnNorm(how), nn.LayerNorm(WIDTH)).double()
    x, y = drawn(6)
    each = one_by_one(net, x, y, [net.first, net.second] if seen else [net.second])
    within, _ = measured(net, x, y, (6,))  # type: ignore[misc]
    assert within == pytest.approx(float((each**2).sum(axis=1).mean()), rel=1e-10)


def test_samples_of_different_length_count_by_their_targets(make: Any) -> None:
    """Through the Trainable, whose task counts targets; a sample without targets contributes nothing."""

    def loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten(), ignore_index=-1)

    trainable = make(
        model=lambda: model().float(), loss=loss, task={"count": lambda x, y: float((y >= 0).sum())}, grad_clip=None
    )
    x, y = (part.numpy() for part in drawn(4))
    y[1, 2:] = y[2] = -1
    trainable.init(0)
    norms = trainable.accumulate_measured([(x, y)], 1 / 12, "norm_layers")
    net, expected, mean = model(), 0.0, torch.zeros(())
    for j, count in ((0, 5), (1, 2), (3, 5)):
        targets = torch.from_numpy(y[j][:count])
        value = nn.functional.cross_entropy(net(torch.from_numpy(x[j : j + 1]))[0, :count], targets)
        parameters = [*net.first.parameters(), *net.second.parameters()]
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(value, parameters)])
        expected += count / 12 * float(gradient @ gradient)
        mean = mean + count / 12 * gradient
    assert float(norms.norm_layer_samples[0]) == pytest.approx(expected, rel=1e-4)
    assert float(norms.norm_layer_samples[1]) == pytest.approx(float(mean @ mean), rel=1e-4)


def test_layers_without_samples_on_the_first_axis_are_not_measured() -> None:
    class Flat(Model):
        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.second(self.first(self.embedding(x).flatten(0, 1)))).unflatten(0, x.shape)

    x, y = drawn(6)
    assert measured(Flat(nn.LayerNorm(WIDTH), nn.RMSNorm(WIDTH)).double(), x, y, (6,)) is None
    plain = nn.Sequential(nn.Embedding(11, WIDTH), nn.Linear(WIDTH, 11)).double()
    assert measured(plain, x, y, (6,)) is None


def test_no_hook_remains_and_none_measures_in_evaluation() -> None:
    net, (x, y) = model(), drawn(4)
    measured(net, x, y, (4,))
    assert not any(module._forward_hooks for module in net.modules())
    samples = NormLayerSamples(net)
    with samples.watching(), torch.no_grad():
        samples.begin_pass(4)
        net(x)
        samples.end_pass([0.25] * 4)
    assert samples.sums() is None


def sampled(make: Any, sampling: GradientSampling, **device: Any) -> tuple[GradientSampler, list[GradientSample]]:
    """Eight steps with a single micro-batch of 8, all sampled."""
    trainable = make(model=lambda: model().float(), loss=total_loss, task={"reduction": "sum"}, device=device)
    trainable.init(0)
    layout = BatchLayout(global_batch_size=8, micro_batch_size=8, sequence_length=POSITIONS)
    spec = TrainSpec(
        workload=Workload(task=TaskReference(kind="module", target="none")),
        layout=layout,
        learning_rate=1e-3,
        token_budget=8 * layout.tokens_per_step,
        evaluation_interval=8 * layout.tokens_per_step,
        gradients=sampling,
    )
    sampler, (x, y) = GradientSampler(trainable, spec.gradients, spec.layout), (part.numpy() for part in drawn(8))
    for step in range(8):
        if sampler.due(step):
            ends = np.cumsum(sampler.sizes(step))
            parts = [(x[a:b], y[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
            sampler.accumulate(parts, [float(part[1].size) for part in parts], step)
            trainable.apply(1e-3)
    return sampler, [row.gradients for row in sampler.rows() if row.gradients is not None]


def test_norm_layers_are_calibrated_by_every_fourth_sample_if_it_may_be_split(make: Any) -> None:
    sampler, found = sampled(make, GradientSampling(every=1, parameters="norm_layers", split_lone=True))
    assert not sampler.why_not
    assert [sample.parameters for sample in found] == (["norm_layers"] * 3 + ["all"]) * 2
    assert [len(sample.micro_batch_sizes) for sample in found] == [1, 1, 1, 2] * 2
    assert all(sample.norm_layer_samples is not None for sample in found)
    _, whole = sampled(make, GradientSampling(every=1, parameters="norm_layers", split_lone=False))
    assert {(sample.parameters, len(sample.micro_batch_sizes)) for sample in whole} == {("norm_layers", 1)}


def test_without_per_sample_gradients_there_is_a_reason(make: Any) -> None:
    lone = GradientSampling(every=1, parameters="norm_layers", split_lone=False)
    sampler, found = sampled(make, lone, compile="default")
    assert not found
    assert sampler.why_not == (NoGradientSamples.ONE_MICRO_BATCH, NoGradientSamples.SAMPLES_NOT_SEPARATED)
