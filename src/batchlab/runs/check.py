"""Test the person's own code before a sweep over it: one item per thing that could be wrong.

Everything runs on one batch of 8 samples and its two halves, through the `Inspectable` protocol. An item that could not
be measured says so; an error that the person's code raises becomes that item's failure, and the others still run.
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from batchlab.core.batch import Unit
from batchlab.core.check import (
    CheckItem,
    CheckResult,
    DataSizeFinding,
    OverlapFinding,
    RaisedError,
    Status,
    TooLarge,
)
from batchlab.core.errors import InputError
from batchlab.core.experiment import Precision
from batchlab.core.protocols import Dataset, Inspectable, OutOfMemory
from batchlab.data.overlap import contained_share
from batchlab.data.stream import SampleStream
from batchlab.runs.bench import Bench, Verdict, set_up
from batchlab.runs.check_loss import loss_at_start, reduction, splitting
from batchlab.runs.check_training import evaluation, gradients_reach, learning_rate_honoured, seeds

SAMPLES = 8
"""Samples in the batch everything is measured on; halved where 8 do not fit in memory or are slow."""

LEAKED = 0.5
"""Above this share of held-out data found in the training data, a held-out loss measures memorisation."""


def check(
    make: Callable[[], Inspectable],
    train: SampleStream,
    valid: Dataset,
    train_dataset: Dataset,
    unit: Unit,
    own_optimizer: bool,
    precision: Precision = "fp32",
    largest_batch: int | None = None,
    scope: Literal["training", "memory"] = "training",
) -> CheckResult:
    """Run every check. The result also says whether a batch may be split, and which layer forbids it.

    scope: memory leaves out what does not decide which batches fit: all but whether batches may be split.

    `make` builds a fresh Trainable. `precision` is what it computes in; it decides how large rounding errors may be.
    `largest_batch` is the largest global batch size of the sweep, where known.

    What needs more memory than there is is not tested. Where that is two samples, nothing that trains is, and samples
    count as independent: a batch of them can then only be trained one sample at a time.
    """
    items = Items()
    samples = min(SAMPLES, len(train_dataset))
    bench = _bench(items, make, train, samples - samples % 2, precision) if samples >= 2 else None
    sample_independent, layer = True, None
    if bench is not None and scope == "memory":
        unknown = Items().add("mean or sum", lambda: reduction(bench)) == "fail"  # which is no fault for memory
        items.add("splitting", lambda: splitting(bench, unknown))
    elif bench is not None:
        vocabulary = getattr(train_dataset, "vocabulary", None)
        items.add("loss", lambda: loss_at_start(bench, vocabulary if unit is Unit.TOKENS else None))
        reduction_unknown = items.add("mean or sum", lambda: reduction(bench)) == "fail"
        items.add("splitting", lambda: splitting(bench, reduction_unknown))
        items.add("seeds", lambda: seeds(bench))
        items.add("learning rate", lambda: learning_rate_honoured(bench, own_optimizer))
        items.add("evaluation", lambda: evaluation(bench))
        items.add("gradients", lambda: gradients_reach(bench))
    if bench is not None:
        sample_independent, layer = bench.trainable.sample_independent and bench.mixes is None, bench.mixes
    if scope == "memory":
        return CheckResult(items=tuple(items.found), sample_independent=sample_independent, mixing_layer=layer)
    items.add("held-out data", lambda: _overlap(valid, train_dataset))
    items.add("data size", lambda: _sizes(len(train_dataset), len(valid), largest_batch))
    return CheckResult(items=tuple(items.found), sample_independent=sample_independent, mixing_layer=layer)


def _bench(
    items: Items, make: Callable[[], Inspectable], train: SampleStream, samples: int, precision: str
) -> Bench | None:
    """None, with an item that says so, where not even two samples fit in memory."""
    try:
        bench = set_up(make, train, samples, precision)
    except OutOfMemory:
        items.found.append(CheckItem(name="loss", status="note", finding=TooLarge(samples=2)))
        return None
    items.samples = bench.size
    return bench


@dataclass(slots=True)
class Items:
    """The items so far, and the samples in the batch they are measured on. An item that meets the error of an earlier
    one names that item instead of the error."""

    samples: int = 0
    found: list[CheckItem] = field(default_factory=list)
    raised: dict[str, str] = field(default_factory=dict)  # error → the item that met it first

    def add(self, name: str, measure: Callable[[], Verdict]) -> Status:
        """Measure one item."""
        status, finding = self._measured(name, measure)
        self.found.append(CheckItem(name=name, status=status, finding=finding))
        return status

    def _measured(self, name: str, measure: Callable[[], Verdict]) -> Verdict:
        try:
            return measure()
        except OutOfMemory:
            return "note", TooLarge(samples=self.samples)
        except Exception as error:  # noqa: BLE001 - the person's code runs here; the item reports what it raised
            message = _error_text(error)
            if (first := self.raised.setdefault(message, name)) != name:
                return "note", RaisedError(message=message, same_as=first)
            return "fail", RaisedError(message=message)


def _error_text(error: Exception) -> str:
    """`Type: first line of its message (line 12 of mine.py)`: the innermost line outside installed packages."""
    if isinstance(error, InputError):
        return str(error)  # already written for the person
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_theirs(frame.filename)]
    where = f" (line {frames[-1].lineno} of {Path(frames[-1].filename).name})" if frames else ""
    first_line = next(iter(str(error).splitlines()), "")
    text = f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__
    return text + where


def _is_theirs(filename: str) -> bool:
    """A file that is neither installed, nor of the standard library, nor of batchlab."""
    path = Path(filename)
    if filename.startswith("<") or {"site-packages", "dist-packages"} & set(path.parts):
        return False
    return not any(path.is_relative_to(folder) for folder in (sysconfig.get_path("stdlib"), Path(__file__).parents[1]))


def _overlap(valid: Dataset, train: Dataset) -> Verdict:
    share = contained_share(valid, train)
    if share > LEAKED:
        return "fail", OverlapFinding(found="leaked", share=share)
    if share > 0:
        return "note", OverlapFinding(found="some", share=share)
    return "ok", OverlapFinding(found="none", share=share)


def _sizes(train: int, valid: int, largest_batch: int | None) -> Verdict:
    finding = partial(DataSizeFinding, train_samples=train, valid_samples=valid, largest_batch=largest_batch)
    if train < 2 or valid < 1:
        return "fail", finding(found="too_few")
    if largest_batch is not None and train < largest_batch:
        return "note", finding(found="fewer_than_largest_batch")
    if train < SAMPLES:
        return "note", finding(found="few")
    return "ok", finding(found="enough")
