"""`batchlab.observe` in custom training loops: the results of the training loop, with any accumulation and scaling."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import batchlab
from batchlab.analysis.critical.noise_scale import GradientNorms, noise_scale
from batchlab.core.batch import BatchLayout
from batchlab.core.errors import InputError
from batchlab.runs.gradient_samples import gradient_sample

STEPS, SIZES = 24, (5, 4, 3)


def cut(batch: tuple[np.ndarray, ...], sizes: tuple[int, ...] = SIZES) -> list[tuple[np.ndarray, ...]]:
    ends = np.cumsum(sizes)
    return [tuple(array[end - size : end] for array in batch) for size, end in zip(sizes, ends, strict=True)]


def tensors(part: tuple[np.ndarray, ...]) -> list[torch.Tensor]:
    return [torch.from_numpy(array) for array in part]


class Scaler:
    """A loss scale that halves when a gradient overflows, like GradScaler."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def get_scale(self) -> float:
        return self.scale


def loop(model: nn.Module, obs: Any, batches: Any, *, divide: str = "accumulation", scaler: Any = None) -> None:
    """A typical training loop, with one of the usual ways to weight micro-batches."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for batch in batches:
        parts, total = cut(batch), len(batch[0])
        for part in parts:
            x, y = tensors(part)
            share = {"accumulation": 1 / len(parts), "tokens": len(x) / total, "nothing": 1.0}[divide]
            with obs.micro_batch(tokens=len(x), share=share if divide != "accumulation" else None):
                loss = nn.functional.mse_loss(model(x), y) * share
                (loss * (scaler.get_scale() if scaler else 1.0)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)  # changes .grad, but not what was measured
        optimizer.step()
        optimizer.zero_grad()
        obs.step()


def test_the_same_estimate_as_the_training_loops(make: Any, samples: Any) -> None:
    trainable = make(name="sgd", momentum=0.0, weight_decay=0.0, grad_clip=0.01)
    trainable.init(0)
    model = copy.deepcopy(trainable.model)
    batches = [samples(12, seed=seed) for seed in range(STEPS)]
    layout = BatchLayout(global_batch_size=12, micro_batch_size=5)
    ours = []
    for batch in batches:
        norms = trainable.accumulate_measured(cut(batch), 1 / 12, "all")
        sample = gradient_sample(norms, [size / 12 for size in SIZES], layout)
        ours.append(GradientNorms(sample.micro_batch_sizes, sample.squared_norms, sample.mean_squared_norm))
        trainable.apply(1e-2)
    obs = batchlab.observe(model, every=1)
    loop(model, obs, batches, divide="tokens")
    for mine, theirs in zip(ours, obs.samples, strict=True):
        assert theirs.micro_batch_sizes == pytest.approx(mine.micro_batch_sizes)
        assert theirs.squared_norms == pytest.approx(mine.squared_norms, rel=1e-3)
        assert theirs.mean_squared_norm == pytest.approx(mine.mean_squared_norm, rel=1e-3)
    one, other = noise_scale(ours), obs.noise_scale()
    assert other.status == one.status == "measured"
    assert other.value is not None
    assert one.value is not None
    assert other.value.value == pytest.approx(one.value.value, rel=1e-2)
    assert obs.tokens == 12 * STEPS
    assert obs.tokens_per_second is not None
    assert "noise scale " in obs.summary()
    assert "tokens/s" in obs.summary()


@pytest.mark.parametrize("divide", ["accumulation", "tokens", "nothing"])
def test_however_the_loss_is_divided_the_trace_is_the_same(make: Any, samples: Any, divide: str) -> None:
    """Means of means weight unequal micro-batches differently, but the estimate of tr Σ is still unbiased."""
    trainable = make()
    trainable.init(0)
    found = {}
    for way in ("tokens", divide):
        model = copy.deepcopy(trainable.model)
        optimizer_free = [samples(12, seed=seed) for seed in range(200)]
        obs = batchlab.observe(model, every=1)
        for batch in optimizer_free:
            for part in cut(batch):
                x, y = tensors(part)
                share = {"accumulation": 1 / 3, "tokens": len(x) / 12, "nothing": 1.0}[way]
                with obs.micro_batch(tokens=len(x), share=share if way != "accumulation" else None):
                    (nn.functional.mse_loss(model(x), y) * share).backward()
            model.zero_grad()
            obs.step()
        found[way] = obs.noise_scale()
    assert found[divide].trace == pytest.approx(found["tokens"].trace, rel=0.1)
    assert found[divide].squared_gradient == pytest.approx(found["tokens"].squared_gradient, rel=0.1)


def test_the_scalers_factor_is_divided_out_and_overflowed_steps_are_counted(make: Any, samples: Any) -> None:
    trainable = make()
    trainable.init(0)
    batches = [samples(12, seed=seed) for seed in range(STEPS)]
    plain, scaled = copy.deepcopy(trainable.model), copy.deepcopy(trainable.model)
    without, scaler = batchlab.observe(plain, every=1), Scaler(2.0**12)
    loop(plain, without, batches)
    obs = batchlab.observe(scaled, every=1, scaler=scaler)
    loop(scaled, obs, batches, scaler=scaler)
    assert obs.samples[0].squared_norms == pytest.approx(without.samples[0].squared_norms, rel=1e-4)
    scaler.scale = float("inf")  # the gradients overflow; the optimizer would skip this step
    with obs.micro_batch(tokens=6):
        (nn.functional.mse_loss(scaled(tensors(batches[0])[0]), tensors(batches[0])[1]) * 1e38 * 1e38).backward()
    with obs.micro_batch(tokens=6):
        nn.functional.mse_loss(scaled(tensors(batches[1])[0]), tensors(batches[1])[1]).backward()
    obs.step()
    assert obs.noise_scale().overflowed == 1
    assert "1 overflowed step left out" in obs.summary()


def test_half_precision_steps_that_torchs_own_scaler_skips_are_omitted(samples: Any) -> None:
    """float16 passes: at this loss scale the first steps overflow, and GradScaler halves it until none do."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
    obs, skipped = batchlab.observe(model, every=1, scaler=scaler), 0
    for step in range(STEPS):
        for part in cut(samples(12, seed=step)):
            x, y = tensors(part)
            with obs.micro_batch(tokens=len(x), share=len(x) / 12), torch.autocast("cpu", dtype=torch.float16):
                scaler.scale(nn.functional.mse_loss(model(x), y) * len(x) / 12).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < before
        optimizer.zero_grad()
        obs.step()
    assert 0 < skipped < STEPS
    found = obs.noise_scale()
    assert found.overflowed == skipped
    assert found.steps == STEPS - skipped
    assert all(
        value < 1e3 for norms in obs.samples if norms.finite for value in norms.squared_norms
    )  # the loss scale is divided out


def test_one_micro_batch_per_step_is_undetermined_with_a_remedy(make: Any, samples: Any) -> None:
    trainable = make()
    trainable.init(0)
    obs = batchlab.observe(trainable.model, every=1)
    x, y = tensors(samples(8))
    for _ in range(3):
        with obs.micro_batch(tokens=8):
            nn.functional.mse_loss(trainable.model(x), y).backward()
        trainable.model.zero_grad()
        obs.step()
    assert obs.noise_scale().status == "undetermined"
    assert "accumulate over at least 2" in obs.summary()
    assert obs.lone_steps == 3


def normed() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 1))


def observed(model: nn.Module, batches: Any, sizes: tuple[int, ...]) -> Any:
    """A loop that passes the number of samples."""
    obs = batchlab.observe(model, every=1, scaler=Scaler(2.0**10))
    for batch in batches:
        for part in cut(batch, sizes):
            x, y = tensors(part)
            with obs.micro_batch(tokens=len(x), share=len(x) / 12, samples=len(x)):
                (nn.functional.mse_loss(model(x), y) * len(x) / 12 * 2.0**10).backward()
        model.zero_grad()
        obs.step()
    return obs


def test_norm_layers_measure_one_micro_batch_as_well_as_several(samples: Any) -> None:
    """The result does not depend on how the step is split, and matches the gradient of each sample."""
    model, batches = normed(), [samples(12, seed=seed) for seed in range(STEPS)]
    lone, cut_up = (observed(model, batches, sizes) for sizes in ((12,), SIZES))
    assert lone.noise_scale().status == "undetermined"
    one, other = lone.norm_layer_noise_scale(), cut_up.norm_layer_noise_scale()
    assert one.value.value == pytest.approx(other.value.value, rel=1e-3)
    assert "of norm layers" in lone.summary()
    norms = []
    for batch in batches:
        grads = []
        for j in range(12):
            x, y = tensors(tuple(array[j : j + 1] for array in batch))
            found = torch.autograd.grad(nn.functional.mse_loss(model(x), y), list(model[1].parameters()))
            grads.append(torch.cat(found))
        each = torch.stack(grads)
        squares = tuple(float(g @ g) for g in each)
        norms.append(GradientNorms((1.0,) * 12, squares, float(each.mean(0) @ each.mean(0))))
    expected = noise_scale(norms).value
    assert expected is not None
    assert one.value.value == pytest.approx(expected.value, rel=1e-3)


def test_without_norm_layers_or_samples_there_is_no_such_scale(make: Any, samples: Any) -> None:
    trainable = make()
    trainable.init(0)
    assert observed(trainable.model, [samples(12)], SIZES).norm_layer_noise_scale() is None
    obs = batchlab.observe(normed(), every=1)
    loop(normed(), obs, [samples(12)])
    assert obs.norm_layer_noise_scale() is None
    with pytest.raises(InputError, match="number of samples"), obs.micro_batch(tokens=3, samples=0):
        pass


def test_stale_gradients_are_detected(make: Any, samples: Any) -> None:
    trainable = make()
    trainable.init(0)
    obs = batchlab.observe(trainable.model, every=1)
    for _ in range(3):
        for part in cut(samples(12)):
            x, y = tensors(part)
            with obs.micro_batch(tokens=len(x)):
                nn.functional.mse_loss(trainable.model(x), y).backward()
        obs.step()
    assert obs.stale_steps == 2


def test_only_sampled_steps_have_hooks(make: Any, samples: Any) -> None:
    trainable = make()
    trainable.init(0)
    obs = batchlab.observe(trainable.model, every=4)
    seen = []
    for _ in range(8):
        for part in cut(samples(12)):
            x, y = tensors(part)
            with obs.micro_batch(tokens=len(x)):
                seen.append(any(p._backward_hooks for p in trainable.model.parameters()))
                nn.functional.mse_loss(trainable.model(x), y).backward()
        trainable.model.zero_grad()
        obs.step()
    assert seen == ([False] * 9 + [True] * 3) * 2
    assert len(obs.samples) == 2


def test_wrong_use_is_an_error(make: Any) -> None:
    with pytest.raises(InputError, match=r"takes a torch\.nn\.Module or mlx\.nn\.Module, not int"):
        batchlab.observe(3)
    with pytest.raises(InputError, match="at least 1"):
        batchlab.observe(nn.Linear(2, 2), every=0)
    obs = batchlab.observe(nn.Linear(2, 2))
    with pytest.raises(InputError, match="without a micro_batch"):
        obs.step()
    with pytest.raises(InputError, match="number of targets"), obs.micro_batch(tokens=0):
        pass
