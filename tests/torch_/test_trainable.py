"""TorchTrainable: the contract, micro-batch layouts, compilation, and errors."""

from __future__ import annotations

import io
import pickle
import random
import shutil
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo
from torch import nn

import batchlab
from batchlab.core.errors import InputError
from batchlab.core.protocols import Framework, Inspectable, MeasuresMetric, OutOfMemory
from batchlab.core.spec import DeviceSettings, OptimizerSettings
from batchlab.testing import check_measured_gradients, check_trainable
from batchlab.torch_.framework import TorchFramework
from batchlab.torch_.models import Decoder, next_token_loss
from batchlab.torch_.trainable import on_device


def same_bits(one: Any, other: Any) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def step(trainable: Any, batch: Any, learning_rate: float = 1e-2) -> Any:
    trainable.accumulate(batch, 1.0 / trainable.count(batch))
    return trainable.apply(learning_rate)


class WithRandomBuffer(nn.Module):
    """Dropout, a non-persistent buffer, and random numbers from numpy and Python."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 16)
        self.dropout = nn.Dropout(0.5)
        self.outer = nn.Linear(16, 1)
        self.register_buffer("mean", torch.zeros(16), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.dropout(torch.tanh(self.inner(x))) + 0.01 * random.random() + 0.01 * float(np.random.rand())
        if self.training:
            self.mean.lerp_(h.detach().mean(0), 0.1)
        return self.outer(h - self.mean)


def test_satisfies_the_protocols(make):
    trainable = make()
    trainable.init(0)
    assert isinstance(trainable, Inspectable)
    framework: Framework = TorchFramework()
    assert framework.resolve_device("cpu") == "cpu"


def test_dict_batches_meet_the_contract(make, samples):
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return nn.functional.mse_loss(model(batch["inputs"]["x"]), batch["labels"])

    x, y = samples(8)
    batch = ({"inputs": {"x": x}, "labels": y},)
    check_trainable(lambda: make(loss=loss), batch)
    check_measured_gradients(lambda: make(loss=loss), batch)


def test_the_same_seed_gives_the_same_bits(make, samples):
    trainable = make(model=WithRandomBuffer)
    seen = []
    for seed in (3, 3, 4):
        trainable.init(seed)
        start = trainable.parameters()
        losses = [float(step(trainable, samples(8)).loss) for _ in range(3)]
        seen.append((start, losses, trainable.parameters()))
    assert same_bits(seen[0][0], seen[1][0])
    assert seen[0][1] == seen[1][1]
    assert same_bits(seen[0][2], seen[1][2])
    assert not same_bits(seen[0][0], seen[2][0])


def test_nothing_is_built_before_init(make):
    built = []

    def model() -> nn.Module:
        built.append(1)
        return nn.Linear(6, 1)

    make(model=model)
    assert not built


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_resume_is_bit_identical_with_dropout(make, samples, optimizer):
    trainable = make(model=WithRandomBuffer, name=optimizer)
    trainable.init(0)
    for index in range(5):
        step(trainable, samples(8, seed=index))
    saved = trainable.state()
    streamed = io.BytesIO()
    trainable.write_state(streamed)
    assert streamed.getvalue() == saved
    whole = [float(step(trainable, samples(8, seed=index)).loss) for index in range(5, 10)]
    expected = trainable.parameters(), trainable.evaluate(samples(8))

    other = make(model=WithRandomBuffer, name=optimizer)
    other.init(17)
    step(other, samples(8))
    other.load(saved)
    resumed = [float(step(other, samples(8, seed=index)).loss) for index in range(5, 10)]
    assert resumed == whole
    assert same_bits(other.parameters(), expected[0])
    assert float(other.evaluate(samples(8))[0]) == float(expected[1][0])


def test_state_of_the_same_moment_is_the_same_bytes(make, samples):
    trainable = make(model=WithRandomBuffer)
    trainable.init(0)
    step(trainable, samples(8))
    first = trainable.state()
    trainable.evaluate(samples(8))
    assert trainable.state() == first


class Evil:
    def __reduce__(self) -> Any:
        return (print, ("executed",))


def test_load_executes_nothing(make, capsys):
    trainable = make()
    trainable.init(0)
    with pytest.raises(pickle.UnpicklingError):
        trainable.load(pickle.dumps({"model": Evil()}))
    assert capsys.readouterr().out == ""


def test_evaluation_restores_every_mode_and_changes_nothing(make, samples):
    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))

    trainable = make(model=model)
    trainable.init(0)
    step(trainable, samples(8))
    trainable.model[1].eval()
    before = trainable.state()
    first, second = trainable.evaluate(samples(8)), trainable.evaluate(samples(8))
    assert float(first[0]) == float(second[0])
    assert trainable.state() == before
    assert [module.training for module in trainable.model] == [True, False, True, True]


def test_evaluation_sums_and_counts(make, samples):
    x, y = samples(8)
    mean = make()
    mean.init(0)
    expected = float(nn.functional.mse_loss(mean.model(torch.from_numpy(x)), torch.from_numpy(y), reduction="sum"))
    pair = make(loss=lambda m, x, y: (nn.functional.mse_loss(m(x), y, reduction="sum"), torch.tensor(len(y))))
    total = make(loss=lambda m, x, y: nn.functional.mse_loss(m(x), y, reduction="sum"), task={"reduction": "sum"})
    for trainable in (mean, pair, total):
        trainable.init(0)
        loss, count = trainable.evaluate((x, y))
        assert float(loss) == pytest.approx(expected, rel=1e-6)
        assert count == 8
        stats = step(trainable, (x, y))
        assert float(stats.loss) == pytest.approx(expected / 8, rel=1e-6)


def test_count_is_the_tasks_where_it_has_one(make, samples):
    trainable = make(task={"count": lambda x, y: (y > 0).sum()})
    x, y = samples(8)
    assert trainable.count((x, y)) == float((y > 0).sum())
    assert make().count((x, np.zeros((8, 5)))) == 40


def test_statistics_of_a_step(make, samples):
    trainable = make(grad_clip=1e-3)
    trainable.init(0)
    trainable.accumulate(samples(8), 1 / 8)
    norm = np.sqrt(sum(np.sum(gradient**2) for gradient in trainable.gradients().values()))
    stats = trainable.apply(1e-2)
    assert float(stats.grad_norm) == pytest.approx(norm, rel=1e-5)
    assert float(stats.clipped) == 1.0
    assert trainable.gradients() == {}
    loose = make(grad_clip=None)
    loose.init(0)
    stats = step(loose, samples(8))
    assert float(stats.grad_norm) == pytest.approx(norm, rel=1e-5)
    assert float(stats.clipped) == 0.0


def test_clipping_limits_the_step(make, samples):
    moved = {}
    for limit in (None, 1e-3):
        trainable = make(name="sgd", momentum=0.0, weight_decay=0.0, grad_clip=limit)
        trainable.init(0)
        start = trainable.parameters()
        step(trainable, samples(8), 1.0)
        end = trainable.parameters()
        moved[limit] = np.sqrt(sum(np.sum((end[name] - start[name]) ** 2) for name in start))
    assert moved[None] > 0.1
    assert moved[1e-3] == pytest.approx(1e-3, rel=1e-2)


@pytest.mark.parametrize(
    ("dtype", "shape", "device", "expected"),
    [
        (torch.uint8, (2, 3, 8, 8), "cuda", torch.uint8),
        (torch.uint8, (2, 64), "cuda", torch.int64),
        (torch.int32, (2, 3, 8, 8), "cpu", torch.int64),
        (torch.bool, (2, 64), "cpu", torch.bool),
        (torch.float64, (2,), "cpu", torch.float64),
        (torch.float64, (2,), "mps", torch.float32),
    ],
)
def test_types_of_data_on_the_device(dtype, shape, device, expected):
    assert on_device(torch.empty(shape, dtype=dtype), torch.device(device)) is expected


def test_whole_numbers_become_int64_and_read_only_arrays_are_taken(make):
    seen = []

    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append((x.dtype, y.dtype))
        return nn.functional.cross_entropy(model(x), y)

    trainable = make(model=lambda: nn.Embedding(300, 10), loss=loss)
    trainable.init(0)
    x, y = np.arange(4, dtype=np.uint8), np.arange(4, dtype=np.uint16)
    x.setflags(write=False)
    step(trainable, (x, y))
    step(trainable, (x[::-1], y[::2].repeat(2)))
    assert seen == [(torch.int64, torch.int64)] * 2


def test_no_copy_of_arrays_that_need_none(make, samples):
    seen = []
    x, y = samples(4)

    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append(x.data_ptr())
        return nn.functional.mse_loss(model(x), y)

    trainable = make(loss=loss)
    trainable.init(0)
    step(trainable, (x, y))
    assert seen == [x.ctypes.data]


def test_bf16_computes_narrow_and_keeps_fp32_weights(make, samples):
    seen = []

    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = model(x)
        seen.append(out.dtype)
        return ((out - y) ** 2).mean().to(torch.bfloat16)

    trainable = make(loss=loss, device={"precision": "bf16"})
    trainable.init(0)
    stats = step(trainable, samples(8))
    assert seen == [torch.bfloat16]
    assert stats.loss.dtype is torch.float32
    assert all(value.dtype == np.float32 for value in trainable.parameters().values())


def test_memory_and_clock(make, samples):
    trainable = make()
    trainable.init(0)
    step(trainable, samples(8))
    reading = trainable.memory()
    assert reading.in_use_bytes is not None
    assert reading.peak_in_use_bytes >= reading.in_use_bytes >= 0
    assert (reading.measured, reading.reserved_bytes) == ("process", None)
    assert reading.peak_bytes >= 0
    assert trainable.synchronize() <= trainable.synchronize()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"model": lambda: 3}, "return a torch.nn.Module"),
        ({"model": nn.ReLU}, "without trainable parameters"),
    ],
)
def test_invalid_models_are_rejected(make, arguments, words):
    with pytest.raises(InputError, match=words):
        make(**arguments).init(0)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda m, x, y: m(x), r"a tensor of shape \(8, 1\)"),
        (lambda m, x, y: 1.5, "returned float"),
        (lambda m, x, y: None, "returned NoneType"),
    ],
)
def test_invalid_losses_are_rejected(make, samples, loss, words):
    trainable = make(loss=loss)
    trainable.init(0)
    with pytest.raises(InputError, match=words):
        step(trainable, samples(8))


def test_failed_allocations_become_out_of_memory_and_other_errors_stay(make, samples):
    def absurd(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return model(x).mean() + torch.empty(2**60, dtype=torch.uint8).float().mean()

    trainable = make(loss=absurd)
    trainable.init(0)
    with pytest.raises(OutOfMemory, match="allocate"):
        step(trainable, samples(8))
    with pytest.raises(OutOfMemory):
        trainable.evaluate(samples(8))
    wrong = make(model=lambda: nn.Linear(5, 1))
    wrong.init(0)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        step(wrong, samples(8))


def test_apply_needs_an_accumulate(make):
    trainable = make()
    trainable.init(0)
    with pytest.raises(RuntimeError, match="accumulate"):
        trainable.apply(1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_the_same_on_cuda(make, samples, precision):
    TorchFramework().start(DeviceSettings(name="cuda:0", precision=precision), 0)
    trainable = make(device={"name": "cuda:0", "precision": precision})
    host = make()
    losses = []
    for one in (trainable, host):
        one.init(0)
        losses.append([float(step(one, samples(8)).loss) for _ in range(5)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4 if precision == "fp32" else 5e-2)
    saved = trainable.state()
    expected = float(step(trainable, samples(8)).loss)
    trainable.init(9)
    trainable.load(saved)
    assert float(step(trainable, samples(8)).loss) == expected
    assert trainable.memory().peak_bytes > 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_mean_of_any_type_or_shape_counts_as_a_mean(make, samples, dtype, shape):
    trainable = make(loss=lambda model, x, y: nn.functional.mse_loss(model(x), y).to(dtype).reshape(shape))
    trainable.init(0)
    batch = samples(8)
    expected = float(
        nn.functional.mse_loss(trainable.model(torch.from_numpy(batch[0])), torch.from_numpy(batch[1])).detach()
    )
    trainable.accumulate(batch, 1 / 8)
    assert float(trainable.apply(1e-3).loss) == pytest.approx(expected, rel=1e-2)


STEPS = 50
LAYOUTS = ((64,), (16,) * 4, (16, 48))


def run_layout(make, layout, dtype, precision_model):
    trainable = make(model=precision_model, loss=next_token_loss, task={"sequence_length": 8})
    trainable.init(0)
    tokens = np.random.default_rng(0).integers(0, 17, (64 * STEPS, 9))
    losses = []
    for index in range(STEPS):
        batch = tokens[64 * index : 64 * (index + 1)]
        parts = [(part[:, :-1], part[:, 1:]) for part in np.split(batch, np.cumsum(layout)[:-1])]
        weight = 1.0 / sum(trainable.count(part) for part in parts)
        for part in parts:
            trainable.accumulate(part, weight)
        losses.append(float(trainable.apply(3e-3).loss))
    return np.array(losses), trainable.parameters()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_layouts_agree(make, dtype, tolerance):
    def model() -> nn.Module:
        torch.set_default_dtype(dtype)
        return Decoder(17, 8, 16, 1, 2, 24)

    reference, weights = run_layout(make, LAYOUTS[0], dtype, model)
    assert reference[-1] < reference[0]
    for layout in LAYOUTS[1:]:
        losses, other = run_layout(make, layout, dtype, model)
        np.testing.assert_allclose(losses, reference, rtol=tolerance)
        if dtype is torch.float64:
            for name, value in weights.items():
                np.testing.assert_allclose(other[name], value, rtol=0, atol=tolerance * np.abs(value).max())


def test_unequal_counts_weigh_by_targets_not_by_micro_batches(make):
    """With masked targets, the gradient of the parts equals that of the whole batch; a mean of means would not."""

    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-1)

    random = np.random.default_rng(1)
    x, y = random.integers(0, 17, (8, 8)), random.integers(0, 17, (8, 8))
    y[:4, 1:] = -1
    trainable = make(
        model=lambda: Decoder(17, 8, 16, 1, 2, 24),
        loss=loss,
        task={"sequence_length": 8, "count": lambda x, y: (y >= 0).sum()},
    )
    gradients = []
    for parts in ([(x, y)], [(x[:4], y[:4]), (x[4:], y[4:])]):
        trainable.init(0)
        weight = 1.0 / sum(trainable.count(part) for part in parts)
        for part in parts:
            trainable.accumulate(part, weight)
        gradients.append(trainable.gradients())
    for name, value in gradients[0].items():
        np.testing.assert_allclose(gradients[1][name], value, atol=1e-6)
    assert trainable.count((x, y)) == 36


needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile on a CPU needs a C++ compiler")


def step_loss(trainable: Any, batch: Any) -> float:
    return float(step(trainable, batch).loss)


@pytest.mark.slow
@needs_compiler
def test_compiled_equals_uncompiled(make, samples):
    losses, evaluated = [], []
    for compiled in ("off", "default"):
        trainable = make(device={"compile": compiled})
        trainable.init(0)
        losses.append([step_loss(trainable, samples(8, seed=index)) for index in range(4)])
        evaluated.append(float(trainable.evaluate(samples(5))[0]))
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert evaluated[1] == pytest.approx(evaluated[0], rel=1e-4)


class NewEveryTime(nn.Module):
    """Depends on a Python number, which the compiler treats as constant: each new value recompiles."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 1)
        self.calls = 0

    def forward(self, x):
        return self.linear(x) - self.calls


@pytest.mark.slow
@needs_compiler
def test_reaching_the_recompile_limit_is_an_error(make, samples):
    trainable = make(model=NewEveryTime, device={"compile": "default"})
    trainable.init(0)
    with torch._dynamo.config.patch(recompile_limit=2):
        for calls in range(2):
            trainable.model.calls = calls
            step_loss(trainable, samples(8))
        trainable.model.calls = 2
        with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
            step_loss(trainable, samples(8))
    trainable.evaluate(samples(8))


@pytest.mark.slow
@needs_compiler
def test_watching_a_compiled_model_neither_recompiles_nor_changes_it(make, samples):
    """The watched step runs compiled; activations come from an uncompiled evaluation pass."""
    losses = []
    for watching in (False, True):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        trainable = make(device={"compile": "default"})
        trainable.init(0)
        run = []
        for index in range(4):
            if watching:
                trainable.watch("full")
            run.append(step_loss(trainable, samples(8, seed=index)))
            if watching:
                readings = trainable.readings(samples(4))
        losses.append((run, torch._dynamo.utils.counters["stats"]["unique_graphs"]))
    assert losses[0] == losses[1]
    assert readings["activation_rms/inner"] > 0


def test_a_metric_is_summed_over_samples_or_over_what_it_counts() -> None:
    def mean(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (y > 0).float().mean()

    def counted(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, int]:
        assert not model.training
        return (y > 0).sum(), 7

    x, y = np.zeros((4, 6), np.float32), np.array([[1.0], [-1.0], [1.0], [1.0]], np.float32)
    for metric, expected in ((mean, (3.0, 4.0)), (counted, (3.0, 7.0))):
        task = batchlab.task(
            model=lambda: nn.Linear(6, 1),
            loss=lambda model, x, y: ((model(x) - y) ** 2).mean(),
            train=(x, y),
            valid=(x, y),
            metric=metric,
            metric_better="higher",
        )
        trainable = TorchFramework().trainable(task, DeviceSettings(), OptimizerSettings())
        trainable.init(0)
        assert isinstance(trainable, MeasuresMetric)
        assert trainable.measure((x, y)) == expected
