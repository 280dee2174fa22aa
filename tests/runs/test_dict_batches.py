"""Samples that are dicts, stacked or collated, through every kind of run."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import TaskReference
from batchlab.core.protocols import Interrupted
from batchlab.core.spec import CapacitySpec, CheckSpec, InspectSpec, ThroughputSpec, TraceSpec, TrainSpec, Workload
from batchlab.runs import execute as module
from batchlab.runs.execute import execute

TASK = """
import numpy as np, torch, batchlab
import torch.nn.functional as F

class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(9, 8)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, input_ids, attention_mask):
        h = self.embedding(input_ids) * attention_mask.unsqueeze(-1)
        return self.head(torch.cumsum(h, dim=1))

def loss(model, batch):
    logits = model(batch["input_ids"], batch["attention_mask"])
    return F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())

def sample(ids):
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": [i % 3 for i in ids]}

def padded(samples, width=None):
    width = width or max(len(s["labels"]) for s in samples)
    fill = {"input_ids": 0, "attention_mask": 0, "labels": -100}
    return {k: torch.tensor([s[k] + [v] * (width - len(s[k])) for s in samples]) for k, v in fill.items()}

random = np.random.default_rng(0)
samples = [sample(random.integers(0, 9, 2 + n % 4).tolist()) for n in range(96)]
if COLLATED:
    train, valid, more = samples[:64], samples[64:], {"collate": padded}
else:
    rows = [{k: v[0] for k, v in padded([s], 5).items()} for s in samples]
    train, valid, more = rows[:64], rows[64:], {}
task = batchlab.task(model=Tagger, loss=loss, train=train, valid=valid, **more)
"""


class Context:
    """A RunContext in memory, which asks to stop at `stop_at` steps."""

    path = Path()
    repaired_lines = 0

    def __init__(self, folder: Path, stop_at: int | None = None) -> None:
        self.cache_dir, self.stop_at, self.step = folder, stop_at, 0
        self.checkpoint: tuple[dict[str, Any], bytes] | None = None
        self.rows: list[Any] = []

    def row(self, row: Any) -> None:
        self.rows.append(row)

    def progress(self, step: int, *_: Any) -> None:
        self.step = step

    def stop_requested(self) -> bool:
        return self.stop_at is not None and self.step >= self.stop_at

    def save_checkpoint(self, header: Any, write_state: Any) -> None:
        state = io.BytesIO()
        write_state(state)
        self.checkpoint = dict(header), state.getvalue()

    def load_checkpoint(self) -> Any:
        return None if self.checkpoint is None else (self.checkpoint[0], io.BytesIO(self.checkpoint[1]))

    def end_of(self, run_id: str) -> None:
        return None

    def keep_end(self, *_: Any) -> None:
        pass


@pytest.fixture(params=[False, True], ids=["stacked", "collated"])
def workload(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workload:
    monkeypatch.setattr(module, "_process", module._Process())
    path = tmp_path / f"tagger_{request.param}.py"
    path.write_text(TASK.replace("COLLATED", str(request.param)))
    return Workload(task=TaskReference(kind="file", target=str(path)), unit="samples")


def train_spec(workload: Workload, micro_batch_size: int) -> TrainSpec:
    return TrainSpec(
        workload=workload,
        layout=BatchLayout(global_batch_size=8, micro_batch_size=micro_batch_size),
        learning_rate=1e-2,
        token_budget=80,
        evaluation_interval=40,
        evaluation_batch_size=16,
    )


def result(spec: Any, context: Any) -> Any:
    found = execute(spec, context).result
    assert found is not None
    return found


@pytest.mark.parametrize("workload", [True], indirect=True, ids=["collated"])
def test_every_kind_of_run(workload: Workload, tmp_path: Path) -> None:
    context = Context(tmp_path)
    assert result(InspectSpec(workload=workload), context).train_samples == 64
    checked = result(CheckSpec(workload=workload), context)
    assert {item.name for item in checked.items if item.status != "ok"} <= {"held-out data"}
    assert checked.sample_independent
    one, two = result(TraceSpec(workload=workload, micro_batch_sizes=(4, 8)), context).points
    assert 0 < one.peak.total_bytes < two.peak.total_bytes
    assert result(CapacitySpec(workload=workload, micro_batch_size=4), context).fits
    layout = BatchLayout(global_batch_size=8, micro_batch_size=4)
    timed = result(ThroughputSpec(workload=workload, layout=layout, repeats=1, block_seconds=0.001), context)
    assert timed.tokens_per_second > 0


def test_micro_batches_and_resumption_change_nothing(workload: Workload, tmp_path: Path) -> None:
    whole = result(train_spec(workload, 8), Context(tmp_path))
    split = result(train_spec(workload, 3), Context(tmp_path))
    assert split.val_loss == pytest.approx(whole.val_loss, rel=1e-5)
    assert split.final_train_loss == pytest.approx(whole.final_train_loss, rel=1e-5)
    stopped = Context(tmp_path, stop_at=4)
    with pytest.raises(Interrupted):
        execute(train_spec(workload, 3), stopped)
    assert stopped.checkpoint is not None
    stopped.stop_at = None
    resumed = result(train_spec(workload, 3), stopped)
    assert (resumed.val_loss, resumed.resumed) == (split.val_loss, 1)
