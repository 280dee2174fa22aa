"""Traced memory of training steps: exact where it can be computed by hand, close to the allocator, never a crash."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import batchlab
from batchlab.core.errors import InputError
from batchlab.core.experiment import MemoryOptimization, OptimizerConfig, TaskReference
from batchlab.core.record import TraceResult
from batchlab.core.spec import DeviceSettings, OptimizerSettings, TraceSpec, Workload
from batchlab.torch_.cuda_allocator import CUBLAS_WORKSPACE, segment_bytes
from batchlab.torch_.framework import TorchFramework
from batchlab.torch_.models import Decoder, next_token_loss

IN, HIDDEN, SAMPLES = 64, 128, 10
WEIGHTS = 4 * (IN * HIDDEN + HIDDEN)


class Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(IN, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def mean_square(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return model(x).square().mean()


def trace(
    model: Callable[[], Any] = Wide,
    loss: Callable[..., Any] = mean_square,
    sizes: tuple[int, ...] = (SAMPLES,),
    optimizer: Callable[..., Any] | None = None,
    device: dict[str, Any] | None = None,
    **settings: Any,
) -> TraceResult:
    x = np.zeros((1, IN), np.float32)
    task = batchlab.task(model=model, loss=loss, train=(x, x), valid=(x, x), optimizer=optimizer)
    config = OptimizerConfig(name="task" if optimizer else "adamw", **settings)
    spec = TraceSpec(
        workload=Workload(task=TaskReference(kind="file", target="t.py")),
        micro_batch_sizes=sizes,
        optimizer=OptimizerSettings(config=config),
        device=DeviceSettings(**(device or {})),
    )
    return TorchFramework().trace(task, spec, (x, x), (x, x))


def phases(result: TraceResult) -> dict[str, Any]:
    assert result.untraceable == ""
    return {phase.phase: phase for phase in result.points[-1].phases}


def test_one_linear_layer_is_counted_to_the_byte() -> None:
    by_phase = phases(trace())
    forward = by_phase["forward"]
    assert forward.parameter_bytes == WEIGHTS
    assert by_phase["optimizer"].gradient_bytes == WEIGHTS
    assert by_phase["optimizer"].optimizer_bytes == 2 * WEIGHTS + 2 * 4  # two moments, and one step count per tensor
    inputs, outputs = 2 * 4 * SAMPLES * IN, 4 * SAMPLES * HIDDEN
    assert inputs + outputs <= forward.activation_bytes <= inputs + outputs + 64
    assert by_phase["optimizer"].activation_bytes == 0
    assert by_phase["evaluation"].gradient_bytes == 0


def test_a_split_by_category_adds_up_and_grows_by_the_sample() -> None:
    small, large = trace(sizes=(30, 10)).points
    assert (small.micro_batch_size, large.micro_batch_size) == (10, 30)
    grown = large.phases[0].activation_bytes - small.phases[0].activation_bytes
    assert grown == 20 * 4 * (2 * IN + HIDDEN)
    assert small.reserved_bytes is not None
    free = segment_bytes(CUBLAS_WORKSPACE) - CUBLAS_WORKSPACE  # in what a process holds before
    assert small.reserved_bytes + free >= small.peak.total_bytes


def test_momentum_keeps_one_state_and_none_keeps_none() -> None:
    with_momentum = phases(trace(optimizer=lambda params, lr: torch.optim.SGD(params, lr, momentum=0.9)))
    without = phases(trace(optimizer=torch.optim.SGD))
    assert with_momentum["evaluation"].optimizer_bytes == WEIGHTS
    assert without["evaluation"].optimizer_bytes == 0


class Repeated(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(*(nn.Linear(IN, IN) for _ in range(8)))


def test_foreach_is_what_a_card_would_use_for_a_persons_own_optimizer() -> None:
    def own(params: Any, lr: float) -> torch.optim.Optimizer:
        return torch.optim.AdamW(params, lr=lr)

    one_by_one = phases(trace(Repeated, optimizer=own))["optimizer"].temporary_bytes
    together = phases(trace(Repeated, optimizer=own, device={"name": "cuda:0"}))["optimizer"].temporary_bytes
    assert together > one_by_one


def test_savings_show_in_a_trace() -> None:
    tokens = np.zeros((1, 64), np.int64)

    def peaks(*memory_optimizations: MemoryOptimization) -> dict[str, Any]:
        task = batchlab.task(
            model=lambda: Decoder(4000, 64, 32, 2, 2, 96),
            loss=next_token_loss,
            train=np.zeros(999),
            valid=np.zeros(999),
        )
        spec = TraceSpec(
            workload=Workload(task=TaskReference(kind="file", target="t.py")),
            micro_batch_sizes=(16,),
            device=DeviceSettings(memory_optimizations=memory_optimizations),
        )
        return phases(TorchFramework().trace(task, spec, (tokens, tokens), (tokens, tokens)))

    plain, chunked, blocks = peaks(), peaks("chunked_loss"), peaks("checkpointing")
    logits = 16 * 64 * 4000 * 4
    assert chunked["backward"].total_bytes < plain["backward"].total_bytes - logits
    assert chunked["evaluation"].total_bytes < plain["evaluation"].total_bytes - logits
    assert blocks["forward"].activation_bytes < plain["forward"].activation_bytes - 5 * (16 * 64 * 32 * 4)
    both = peaks("chunked_loss", "checkpointing")["backward"].total_bytes
    assert both < min(chunked["backward"].total_bytes, blocks["backward"].total_bytes)


class Branching(Wide):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) if x.sum().item() > 0 else self.layer(-x)


class Selecting(Wide):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x[x[:, 0] > 0])


class OnTheHost(Wide):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(torch.from_numpy(np.tanh(x.numpy())))


class Broken(Wide):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x[:, 1:])


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (Branching, "branches on the value of a tensor"),
        (Selecting, "size of a tensor depends on the values"),
        (OnTheHost, "The task raised RuntimeError"),
        (Broken, "The task raised RuntimeError"),
    ],
)
def test_an_untraceable_model_gives_the_reason(model: Callable[[], Any], why: str) -> None:
    result = trace(model)
    assert result.points == ()
    assert why in result.untraceable


def test_an_invalid_task_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"return a torch\.nn\.Module"):
        trace(lambda: "no model")


class Peculiar(nn.Module):
    """Draws, converts and reads values in its constructor."""

    def __init__(self) -> None:
        super().__init__()
        rates = [rate.item() for rate in torch.linspace(0, 0.1, 3)]
        layers = [nn.Linear(IN, IN) for rate in rates if rate > 0]
        self.layers = nn.ModuleList(layers)
        for layer in layers:
            nn.init.trunc_normal_(layer.weight, std=0.02)
        self.to(torch.bfloat16)
        self.register_buffer("table", torch.from_numpy(np.ones(IN, np.float32)))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x.bfloat16()) * self.table
        return x


def test_constructors_may_read_values() -> None:
    assert phases(trace(Peculiar))["optimizer"].gradient_bytes == 2 * 2 * (IN * IN + IN)


def test_an_existing_model_is_traced_and_not_changed() -> None:
    model = Wide()
    before = model.layer.weight.detach().clone()
    assert phases(trace(lambda: model))["backward"].parameter_bytes == WEIGHTS
    assert model.layer.weight.grad is None
    assert torch.equal(model.layer.weight, before)


def test_a_trace_restores_process_state() -> None:
    convert = nn.Module._apply
    torch.manual_seed(5)
    random.seed(5)
    expected = torch.rand(1), random.random()
    torch.manual_seed(5)
    random.seed(5)
    trace()
    trace(Branching)
    assert (torch.rand(1), random.random()) == expected
    assert nn.Module._apply is convert
    assert type(torch.empty(1)) is Tensor


BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "trace_accuracy"


class Skeleton(nn.Module):
    """torch's own recipe for ensembles: stacked weights and a skeleton without any."""

    def __init__(self) -> None:
        super().__init__()
        members = [nn.Linear(IN, HIDDEN) for _ in range(3)]
        stacked, _ = torch.func.stack_module_state(members)
        self.weights = nn.ParameterDict({name: nn.Parameter(value) for name, value in stacked.items()})
        self.skeleton = [copy.deepcopy(members[0]).to("meta")]

    def forward(self, x: Tensor) -> Tensor:
        def one(weights: dict[str, Tensor], data: Tensor) -> Any:
            return torch.func.functional_call(self.skeleton[0], weights, (data,))

        return torch.vmap(one, in_dims=(0, None))(dict(self.weights), x)


def test_a_skeleton_on_meta_takes_no_memory() -> None:
    assert phases(trace(Skeleton))["optimizer"].parameter_bytes == 3 * WEIGHTS


class Rows(nn.Module):
    """A table of which only the rows that were looked up get a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(1000, 8, sparse=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.table(x.abs().long() % 1000)


def test_sparse_gradients_are_traced() -> None:
    found = phases(trace(Rows, optimizer=lambda params, lr: torch.optim.SGD(params, lr=lr)))
    assert found["optimizer"].parameter_bytes == 4 * 1000 * 8
    assert found["optimizer"].optimizer_bytes == 0


class Lucky(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(IN, IN)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(random.randrange(1, 9)):
            x = self.layer(x).relu()
        return x


def test_random_numbers_of_python_are_noticed() -> None:
    assert trace(Lucky).varies
    assert not trace().varies


class Longest(nn.Module):
    """As many passes as the largest number of the batch says."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(IN, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.layer(x) for _ in range(int(x.max()))]).mean(0)


def test_steps_that_run_show_how_bytes_depend_on_values() -> None:
    x = np.zeros((1, IN), np.float32)
    task = batchlab.task(model=Longest, loss=mean_square, train=(x, x), valid=(x, x))
    spec = TraceSpec(workload=Workload(task=TaskReference(kind="file", target="t.py")), micro_batch_sizes=(SAMPLES,))
    batches = [(np.full((SAMPLES, IN), passes, np.float32),) * 2 for passes in (2, 5, 5, 3)]
    (point,) = TorchFramework().trace_values(task, spec, batches, batches[0]).points
    two, five, again, three = point.draw_bytes
    assert five == again
    assert point.peak.total_bytes == five
    one_pass = 4 * SAMPLES * HIDDEN
    assert two < three < five
    assert three - two >= one_pass
    assert point.peak.parameter_bytes == WEIGHTS


class Dropping(Wide):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(super().forward(x), 0.1, self.training)


def test_dropout_keeps_a_byte_per_element_on_a_card_and_a_factor_on_a_cpu() -> None:
    plain, dropped = (
        {name: phases(trace(m, device={"name": name}))["forward"] for name in ("cpu", "cuda")} for m in (Wide, Dropping)
    )
    elements = SAMPLES * HIDDEN
    assert dropped["cuda"].activation_bytes - plain["cuda"].activation_bytes == pytest.approx(elements, abs=64)
    assert dropped["cpu"].activation_bytes - plain["cpu"].activation_bytes == pytest.approx(4 * elements, abs=64)


def test_nothing_is_predicted_of_segments_that_may_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    assert trace(device={"name": "cuda"}).points[0].reserved_bytes is not None
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:64, expandable_segments:True")
    assert trace(device={"name": "cuda"}).points[0].reserved_bytes is None
