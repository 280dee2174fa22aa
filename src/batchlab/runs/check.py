"""Prove on the person's own code that a sweep over it means something: one line per thing that could be wrong.

Everything runs on one batch of 8 samples and its two halves, through the `Inspectable` seam. What a line could not
measure it says; what the person's code raises becomes that line's failure, and the other lines still run.
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from batchlab.core.batch import Unit
from batchlab.core.errors import InputError
from batchlab.core.protocols import Dataset, Inspectable, OutOfMemory
from batchlab.core.record import CheckItem, CheckResult
from batchlab.data.overlap import contained_share
from batchlab.data.stream import SampleStream
from batchlab.runs.bench import Verdict, set_up
from batchlab.runs.check_loss import loss_at_start, reduction, splitting
from batchlab.runs.check_training import evaluation, gradients_reach, learning_rate_honoured, seeds

SAMPLES = 8
"""Samples in the batch everything is measured on; halved where 8 do not fit in memory or are slow."""

LEAKED = 0.5
"""Above this share of held-out data found inside the training data, a held-out loss measures memory."""

_MARKS = {"ok": "✓", "note": "·", "fail": "✗"}


def check_lines(result: CheckResult) -> list[str]:
    """One line per item for a terminal: ✓ as it should be, · worth knowing, ✗ to be mended first."""
    width = max((len(item.name) for item in result.items), default=0)
    return [f"{_MARKS[item.status]} {item.name:<{width}}  {item.text}" for item in result.items]


def check(
    make: Callable[[], Inspectable],
    train: SampleStream,
    valid: Dataset,
    train_dataset: Dataset,
    unit: Unit,
    own_optimizer: bool,
    precision: Literal["fp32", "tf32", "bf16"] = "fp32",
    largest_batch: int | None = None,
) -> CheckResult:
    """Every line of `batchlab check`, and whether batches may be split (`sample_independent`, with the layer that forbids it).

    `make` builds a fresh Trainable; `precision` is what it computes in and decides how equal "equal" must be;
    `largest_batch` is the largest global batch size of the sweep, where known. Lets OutOfMemory through only when not
    even two samples fit.
    """
    lines = Lines()
    samples = min(SAMPLES, len(train_dataset))
    bench = set_up(make, train, samples - samples % 2, precision) if samples >= 2 else None
    sample_independent, layer = True, None
    if bench is not None:
        vocabulary = getattr(train_dataset, "vocabulary", None)
        lines.add("loss", lambda: loss_at_start(bench, vocabulary if unit is Unit.TOKENS else None))
        miscounted = lines.add("mean or sum", lambda: reduction(bench)) == "fail"
        lines.add("splitting", lambda: splitting(bench, miscounted))
        sample_independent, layer = bench.trainable.sample_independent and bench.mixes is None, bench.mixes
        lines.add("seeds", lambda: seeds(bench))
        lines.add("learning rate", lambda: learning_rate_honoured(bench, own_optimizer))
        lines.add("evaluation", lambda: evaluation(bench))
        lines.add("gradients", lambda: gradients_reach(bench))
    lines.add("held-out data", lambda: _overlap(valid, train_dataset))
    lines.add("data size", lambda: _sizes(len(train_dataset), len(valid), largest_batch))
    return CheckResult(items=tuple(lines.items), sample_independent=sample_independent, mixing_layer=layer)


@dataclass(slots=True)
class Lines:
    """The items so far. An error already reported is named, not repeated, by the lines it stops."""

    items: list[CheckItem] = field(default_factory=list)
    raised: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, measure: Callable[[], Verdict]) -> str:
        status: Literal["ok", "note", "fail"]
        try:
            status, text = measure()
        except OutOfMemory:
            raise
        except Exception as error:  # noqa: BLE001 - it is the person's code that runs here; the line says what it raised
            said = _error_text(error)
            status = "note" if said in self.raised else "fail"
            text = f"not tested: the same error as in {self.raised[said]!r}" if said in self.raised else said
            self.raised.setdefault(said, name)
        self.items.append(CheckItem(name=name, status=status, text=text))
        return status


def _error_text(error: Exception) -> str:
    """'Type: first line of its text (line 12 of mine.py)', the line being the last one outside installed packages."""
    if isinstance(error, InputError):
        return str(error)  # written for the person already
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_theirs(frame.filename)]
    where = f" (line {frames[-1].lineno} of {Path(frames[-1].filename).name})" if frames else ""
    first_line = next(iter(str(error).splitlines()), "")
    said = f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__
    return said + where


def _is_theirs(filename: str) -> bool:
    """Not installed, not the standard library, not batchlab, and a file at all."""
    path = Path(filename)
    if filename.startswith("<") or {"site-packages", "dist-packages"} & set(path.parts):
        return False
    return not any(path.is_relative_to(place) for place in (sysconfig.get_path("stdlib"), Path(__file__).parents[1]))


def _overlap(valid: Dataset, train: Dataset) -> Verdict:
    share = contained_share(valid, train)
    if share > LEAKED:
        return "fail", (
            f"{100 * share:.0f} % of the held-out data is also in the training data, so a held-out loss would measure "
            "memory; hold out other data"
        )
    if share > 0:
        return "note", f"{100 * share:.1f} % of the held-out data is also in the training data"
    return "ok", "not found inside the training data"


def _sizes(train: int, valid: int, largest_batch: int | None) -> Verdict:
    if train < 2 or valid < 1:
        return "fail", f"{train} training and {valid} held-out samples; give at least 2 and 1"
    text = f"{train:,} training and {valid:,} held-out samples"
    if largest_batch is not None and train < largest_batch:
        return "note", f"{text}; a batch of {largest_batch:,} sees some samples twice"
    if train < SAMPLES:
        return "note", f"{text}; that is very little"
    return "ok", text
