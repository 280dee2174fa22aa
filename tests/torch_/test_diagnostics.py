"""Diagnostic snapshots compared with direct computation; watching does not change training."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import TaskReference
from batchlab.core.protocols import Diagnosable, Inspectable, WriteState
from batchlab.core.record import MetricRow
from batchlab.core.spec import Diagnostics, TrainSpec, Workload, run_id
from batchlab.data.stream import SampleStream
from batchlab.runs.train import train
from batchlab.testing import check_trainable
from batchlab.torch_.models import Decoder, next_token_loss


class Samples:
    """Fixed noisy points by index."""

    digest = "samples"

    def __init__(self, draw: Any, count: int = 64) -> None:
        self._arrays = draw(count)

    def __len__(self) -> int:
        return len(self._arrays[0])

    def gather(self, indices: Any) -> Any:
        return tuple(array[indices] for array in self._arrays)


class Tokens(Samples):
    def __init__(self) -> None:
        super().__init__(lambda n: tuple(np.random.default_rng(0).integers(0, 32, (2, n, 12))))


class Context:
    """A RunContext that keeps everything in lists."""

    cache_dir = path = Path()
    repaired_lines = 0

    def __init__(self) -> None:
        self.rows: list[MetricRow] = []

    def row(self, row: MetricRow) -> None:
        self.rows.append(row)

    def progress(self, *_: Any) -> None: ...

    def save_checkpoint(self, header: Any, write_state: WriteState) -> None: ...

    def load_checkpoint(self) -> None: ...

    def keep_end(self, header: Any, write_state: WriteState) -> None: ...

    def end_of(self, run_id: str) -> None: ...

    def stop_requested(self) -> bool:
        return False


class NeedsRandomness(nn.Module):
    """Dropout and running statistics, so that a snapshot that draws or updates would change the losses."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.4), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def trained(trainable: Any, data: Any, level: str | None, steps: int = 12, **spec: Any) -> tuple[Any, list[MetricRow]]:
    given = TrainSpec(
        workload=Workload(task=TaskReference(kind="file", target="/x.py")),
        layout=BatchLayout(global_batch_size=8, micro_batch_size=4, sequence_length=1),
        learning_rate=1e-2,
        token_budget=8 * steps,
        evaluation_interval=8 * steps,
        diagnostics=Diagnostics(level=level, interval=24) if level else None,
        **spec,
    )
    context = Context()
    return train(trainable, SampleStream(data, 0), data, given, context), context.rows


def looks(rows: list[MetricRow]) -> list[dict[str, float]]:
    return [row.diagnostics for row in rows if row.diagnostics is not None]


def step(trainable: Any, batch: Any, learning_rate: float = 1e-2) -> None:
    trainable.accumulate(batch, 1.0 / trainable.count(batch))
    trainable.apply(learning_rate)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("what", ["dropout and BatchNorm", "decoder"])
def test_looking_changes_no_bit(make, samples, what, optimizer):
    def one(level):
        data: Tokens | Samples
        if what == "decoder":
            made, data = make(model=lambda: Decoder(32, 12, 16, 2, 2, 24, dropout=0.2), loss=next_token_loss), Tokens()
        else:
            made, data = make(model=NeedsRandomness, name=optimizer), Samples(samples)
        ended, rows = trained(made, data, level, evaluation_batch_size=16)
        losses = [(row.step, row.train_loss, row.train_loss_max, row.val_loss) for row in rows if not row.diagnostics]
        return losses, made.parameters(), ended.result.val_curve, len(looks(rows))

    off, light, full = one(None), one("light"), one("full")
    assert (off[3], light[3], full[3]) == (0, 4, 4)
    for other in (light, full):
        assert other[0] == off[0]
        assert other[2] == off[2]
        assert all(np.array_equal(other[1][name], off[1][name]) for name in off[1])


def test_looking_makes_no_other_run():
    spec = TrainSpec(
        workload=Workload(task=TaskReference(kind="file", target="/x.py")),
        layout=BatchLayout(global_batch_size=8, micro_batch_size=4, sequence_length=1),
        learning_rate=1e-2,
        token_budget=80,
        evaluation_interval=80,
    )
    assert run_id(spec) == run_id(spec.model_copy(update={"diagnostics": Diagnostics(interval=8)}))


def test_rows_come_at_the_shared_token_counts(make, samples):
    _, rows = trained(make(), Samples(samples), "light", steps=13)
    assert [(row.step, row.tokens) for row in rows if row.diagnostics] == [(3, 24), (6, 48), (9, 72), (12, 96)]
    assert all(row.train_loss is None for row in rows if row.diagnostics)


def test_adams_update_against_a_hand_computation(make, samples):
    """Second step of AdamW: m̂ = (β₁(1−β₁)g₁ + (1−β₁)g₂)/(1−β₁²), v̂ likewise, Δw = −lr(m̂/(√v̂+ε) + λw)."""
    trainable = make(grad_clip=None, beta1=0.9, beta2=0.95, weight_decay=0.1)
    trainable.init(0)
    assert isinstance(trainable, Diagnosable)
    assert isinstance(trainable, Inspectable)
    gradients = []
    for seed in (0, 1):
        batch = samples(8, seed=seed)
        before = trainable.parameters()
        trainable.watch("full")
        trainable.accumulate(batch, 1.0 / trainable.count(batch))
        gradients.append(trainable.gradients())
        trainable.apply(2e-3)
        readings = trainable.readings(batch)
    total, moved, squares, weights = 0, 0.0, 0.0, 0.0
    for name, weight in before.items():
        first, second = (g[name].astype(np.float64) for g in gradients)
        mean = (0.9 * 0.1 * first + 0.1 * second) / (1 - 0.9**2)
        square = (0.95 * 0.05 * first**2 + 0.05 * second**2) / (1 - 0.95**2)
        update = mean / (np.sqrt(square) + 1e-8) + 0.1 * weight
        total, moved = total + weight.size, moved + np.abs(update).sum()
        squares, weights = squares + ((2e-3 * update) ** 2).sum(), weights + (weight.astype(np.float64) ** 2).sum()
    assert readings["effective_step/all"] == pytest.approx(moved / total, rel=1e-3)
    assert readings["update_ratio/all"] == pytest.approx(math.sqrt(squares / weights), rel=1e-3)
    for block in ("inner", "outer"):
        norm = math.sqrt(sum((gradients[1][f"{block}.{part}"] ** 2).sum() for part in ("weight", "bias")))
        assert readings[f"grad_norm/{block}"] == pytest.approx(norm, rel=1e-5)


def test_a_sample_of_a_large_tensor_tells_its_update(make, samples):
    """SGD moves by lr·gradient; only some of 262,144 elements are sampled."""
    trainable = make(
        model=lambda: nn.Sequential(nn.Linear(6, 512), nn.Linear(512, 512), nn.Linear(512, 1)),
        name="sgd",
        momentum=0.0,
        weight_decay=0.0,
        grad_clip=None,
    )
    trainable.init(0)
    batch = samples(32)
    trainable.watch("light")
    trainable.accumulate(batch, 1.0 / trainable.count(batch))
    gradients = trainable.gradients()
    trainable.apply(0.5)
    readings = trainable.readings(batch)
    mean = sum(np.abs(g).sum() for g in gradients.values()) / sum(g.size for g in gradients.values())
    assert readings["effective_step/all"] == pytest.approx(mean, rel=0.1)


def test_activations_are_those_of_the_blocks(make, samples):
    trainable = make()
    trainable.init(0)
    batch = samples(4)
    trainable.watch("light")
    step(trainable, batch)
    readings = trainable.readings(batch)
    with torch.no_grad():
        inner = trainable.model.inner(torch.from_numpy(batch[0]))
    assert readings["activation_rms/inner"] == pytest.approx(float(inner.square().mean().sqrt()))
    assert not any(name.startswith(("attention", "norm_layer")) for name in readings)
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in trainable.model.modules())


class Bare(nn.Module):
    """Parameters without a submodule."""

    def __init__(self) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.full((6, 1), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.direction


def test_a_model_without_known_modules_still_tells_what_it_can(make, samples):
    trainable = make(model=Bare)
    trainable.init(0)
    trainable.watch("full")
    step(trainable, samples(4))
    readings = trainable.readings(samples(4))
    assert {"grad_norm/direction", "effective_step/all", "update_ratio/direction", "seconds/backward"} <= set(readings)


def test_a_nan_says_where_it_is(make, samples):
    class Breaks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer, self.calls = nn.Linear(6, 4), nn.Linear(4, 1), 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += self.training
            hidden = self.inner(x)
            return self.outer(hidden * math.nan if self.calls == 12 else hidden)

    ended, rows = trained(make(model=Breaks), Samples(samples), "light")
    assert ended.outcome.value == "diverged"
    last = looks(rows)[-1]
    assert last["non_finite/grad_norm/inner"] == 1.0
    assert "grad_norm/inner" not in last
    assert all(math.isfinite(value) for value in last.values())
    *before, at_the_end = (MetricRow.model_validate_json(row.model_dump_json(exclude_none=True)) for row in rows)
    assert before == rows[:-1]
    assert at_the_end.step == 6  # two passes per step
    assert at_the_end.train_loss is not None
    assert math.isnan(at_the_end.train_loss)


def test_full_tells_every_block_module_and_head(make):
    trainable = make(model=lambda: Decoder(32, 12, 16, 4, 2, 24), loss=next_token_loss)
    trainable.init(0)
    batch = Tokens().gather(np.arange(4))
    seen = {}
    for detail in ("light", "full"):
        trainable.watch(detail)
        step(trainable, batch)
        seen[detail] = trainable.readings(batch)
    assert set(seen["light"]) < set(seen["full"])
    assert [name for name in seen["light"] if name.startswith("activation")] == [
        f"activation_rms/blocks.{i}" for i in (0, 1, 3)
    ]
    assert {"attention_entropy/blocks.2.attention/head1", "grad_norm/blocks.2.feed_forward.down"} <= set(seen["full"])
    heads = [seen["full"][f"attention_entropy/blocks.2.attention/head{i}"] for i in range(2)]
    assert seen["full"]["attention_entropy/blocks.2.attention"] == pytest.approx(sum(heads) / 2)
    assert seen["full"]["attention_entropy_lowest/blocks.2.attention"] == min(heads)


def test_the_contract_holds(make, samples):
    check_trainable(lambda: make(model=lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))), samples(8))


@pytest.mark.parametrize("saving", ["checkpointing", "chunked_loss"])
def test_looking_changes_no_bit_where_memory_is_saved(make, saving):
    seen = []
    for level in (None, "full"):
        made = make(
            model=lambda: Decoder(32, 12, 16, 2, 2, 24, dropout=0.2),
            loss=next_token_loss,
            device={"memory_optimizations": (saving,)},
        )
        ended, rows = trained(made, Tokens(), level, evaluation_batch_size=16)
        seen.append((ended.result.val_curve, ended.result.final_train_loss, made.parameters(), rows))
    off, full = seen
    assert full[:2] == off[:2]
    assert all(np.array_equal(full[2][name], off[2][name]) for name in off[2])
    assert {"activation_rms/blocks.1", "attention_entropy/blocks.1.attention/head1"} <= set(looks(full[3])[0])
