"""The largest micro-batch that fits: predicted from traces, corrected by what small probes really used, then run.

A trace costs a second and no device. A probe costs a process and may disturb others, a failed one even more. Traces
therefore say where to look. What they cannot see (buffers inside kernels, the allocator's own memory) is the offset:
measured at about half of the predicted size, it is either constant or grows in proportion to the size, never faster.
Where both assumptions give the same size, that size is run; otherwise the smaller one is, and the line through two
measured offsets gives the next.

Where memory depends on the values in a batch, its bytes come from steps over several batches, and they differ. Then a
margin for batches that nobody has seen stays free, and the answer is a range: from the size with that margin to the one
without it.

Models that cannot be traced at all are approached from below, in steps of a factor of four and then along the line
through all sizes that ran.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from batchlab.search.memory_curve import MemoryCurve, largest_size, needed_bytes

FIRST_SIZES = (2, 8, 32)
"""Traced before anything is known: three sizes show two pieces of the curve. 1 is left out: batch statistics of a
single sample do not exist, and a model that uses them could not be traced."""

_TRACE_ROUNDS = 8
_ROOMY = 0.7
"""A size whose trace needs less than this share of the budget is run without calibration. Kernels on a CPU were seen
to use up to 1.43 times the traced bytes (convolutions in evaluation and bf16)."""

_CANNOT_FIT = 1.2
"""A smallest size whose trace needs this many times the budget is not run: no trace was ever that far above what was
used."""

_STEP = 1.25
"""Untraced sizes are approached in proportion as long as that gains at least this factor."""

_GROWTH = 4
"""The most by which an untraced size is multiplied: it is not known how its bytes grow."""

_WORTH = 0.01
"""A gap of this share of the answer between it and a failure is not worth another probe."""

MOST_PROBES = 6
"""Of sizes that fit. A search that is still unsure then gives the largest size that ran."""

_LEAST_MARGIN, _MOST_MARGIN = 0.04, 0.1
"""Shares of the budget that stay free where memory depends on values."""

_SPREADS = 2.0
"""The margin, in differences between the largest and the median of the batches that were tried."""

WIDEST_RANGE = 0.1
"""A range ends at most this far above its lower end."""

Status = Literal["none", "predicted", "verified", "proved"]


@dataclass(frozen=True, slots=True)
class Trace:
    """Trace these micro-batch sizes; the answer is empty where that is impossible."""

    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Probe:
    """Run whole steps at this micro-batch size, in a fresh process.

    verifies: this may be the answer, so every kind of step has to be run; otherwise two steps are enough, the second
    of which has all optimizer states.
    """

    size: int
    verifies: bool = True


@dataclass(frozen=True, slots=True)
class Probed:
    """The outcome of a probe.

    available_bytes: what the device had left for it, where that is known. baseline_bytes: what the process held before.
    """

    fits: bool
    peak_bytes: int | None = None
    available_bytes: int | None = None
    baseline_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Traced:
    """Sizes with the bytes of each phase of the step (search/memory_curve.py); none where that is impossible.

    spread: where memory depends on values, by what share the worst of several batches exceeded the median one.
    """

    points: Sequence[tuple[int, tuple[float, ...]]]
    spread: float | None = None


Question = Trace | Probe
Answer = Traced | Probed


class CapacitySearch:
    """Ask/tell search for the largest micro-batch size from `smallest` to `most` that needs at most limit − headroom.

    headroom: bytes kept free of a limit. probe: False stops at the prediction. prove: one more size is run, which must
    fail. warmup: size of the step that every process runs first, whose peak hides those of sizes as small.
    """

    def __init__(
        self,
        limit_bytes: int,
        *,
        most: int,
        smallest: int = 1,
        headroom: Callable[[int], int] = lambda limit: 0,
        probe: bool = True,
        prove: bool = False,
        warmup: int = 2,
    ) -> None:
        if not 1 <= smallest <= most:
            raise ValueError(f"sizes from {smallest} to {most} were asked; give 1 ≤ smallest ≤ most")
        self.most = most
        self.smallest = smallest
        self.limit_bytes = limit_bytes
        self.curve: MemoryCurve | None = None
        """By the traces so far; None before the first, and where the model cannot be traced."""
        self.untraceable = False
        self._headroom = headroom
        self._probe = probe
        self._prove = prove
        self._warmup = warmup
        self._baselines: list[int] = []
        self.spread: float | None = None
        """Of the batches that were tried; None where memory does not depend on values."""
        self._trace_rounds = 0
        self._asked: set[int] = set()
        self._measured: dict[int, int] = {}
        self._passed: set[int] = set()
        self._verified: set[int] = set()
        self._failed: list[int] = []

    @property
    def probes(self) -> bool:
        """Whether sizes are run, or only predicted."""
        return self._probe

    @property
    def headroom_bytes(self) -> int:
        return self._headroom(self.limit_bytes)

    @property
    def budget_bytes(self) -> int:
        """What a size may need at most."""
        return self.limit_bytes - self.headroom_bytes

    @property
    def noise_bytes(self) -> int:
        """By how much the processes of this task's probes differed before they did anything."""
        return max(self._baselines) - min(self._baselines) if self._baselines else 0

    @property
    def margin_bytes(self) -> int:
        """Kept free of the budget for batches that nobody has seen, and for differences between processes."""
        if self.spread is None:
            return self.noise_bytes
        share = min(max(_SPREADS * self.spread, _LEAST_MARGIN), _MOST_MARGIN)
        return max(round(share * self.budget_bytes), self.noise_bytes)

    @property
    def up_to(self) -> int | None:
        """The upper end of a range: the largest size by the same figures without the margin. None: no range."""
        if self.spread is None or self.largest is None:
            return None
        free = largest_size(lambda size: self._guess(size) <= self.budget_bytes, self._ceiling)
        return max(self.largest, min(free, int((1 + WIDEST_RANGE) * self.largest)))

    @property
    def _target(self) -> int:
        return self.budget_bytes - self.margin_bytes

    @property
    def largest(self) -> int | None:
        """The largest size that passed below every failure; without probes the predicted one; None: none."""
        if self._probe:
            return max((size for size in self._passed if size <= self._ceiling), default=None)
        size = self._largest_by(self._guess)
        return size if size >= self.smallest else None

    @property
    def smallest_failed(self) -> int | None:
        return min(self._failed, default=None)

    @property
    def status(self) -> Status:
        """predicted: traced only; verified: `largest` ran; proved: and one more failed; none: nothing fits (yet)."""
        if self.largest is None:
            return "none"
        if not self._probe:
            return "predicted"
        return "proved" if self.smallest_failed == self.largest + 1 else "verified"

    @property
    def predicted(self) -> int | None:
        """The largest size by the traces alone, before anything ran."""
        return self.curve.largest_within(self.budget_bytes, self.most) if self.curve else None

    def needed_bytes(self, size: int) -> float | None:
        """The best estimate of what a size needs, by all answers so far; None before the first."""
        return self._guess(size) if self.curve or self._measured else None

    def ask(self) -> Sequence[Question]:
        """One question, or none when done. Asking twice gives the same question."""
        sizes = self._sizes_to_trace()
        if sizes:
            return (Trace(sizes),)
        probe = self._next_probe() if self._probe else None
        return () if probe is None else (probe,)

    def tell(self, questions: Sequence[Question], answers: Sequence[Answer]) -> None:
        """The answer to the question that was asked. ValueError for any other."""
        if list(questions) != list(self.ask()) or len(answers) != len(questions):
            raise ValueError("tell() takes the answers to exactly what ask() returned")
        for question, answer in zip(questions, answers, strict=True):
            if isinstance(question, Trace):
                assert isinstance(answer, Traced)
                self._trace_rounds += 1
                self._asked.update(question.sizes)
                known = [*(self.curve.points if self.curve else ()), *answer.points]
                self.untraceable, self.spread = not known, answer.spread
                self.curve = MemoryCurve.through(known) if known else None
            else:
                assert isinstance(answer, Probed)
                self._remember(question.size, question.verifies, answer)

    def _remember(self, size: int, verifying: bool, probed: Probed) -> None:
        if probed.available_bytes is not None:
            self.limit_bytes = min(self.limit_bytes, probed.available_bytes)
        if probed.peak_bytes is not None:
            self._measured[size] = probed.peak_bytes
        if probed.baseline_bytes is not None:
            self._baselines.append(probed.baseline_bytes)
        if probed.fits:
            self._passed.add(size)
            if verifying:
                self._verified.add(size)
        else:
            self._failed.append(size)

    def _sizes_to_trace(self) -> tuple[int, ...]:
        """The first sizes, then half the predicted largest, and those around it until it is known from itself."""
        if self.untraceable or self._trace_rounds >= _TRACE_ROUNDS or self._passed or self._failed:
            return ()
        if self.curve is None:
            first = [size for size in FIRST_SIZES if self.smallest <= size <= self.most]
            return tuple(first) or (self.most,)
        if self.spread is not None:
            return ()  # its sizes were run, and larger ones would take long
        largest = self.curve.largest_within(self._target, self.most)
        wanted = {max(largest, self.smallest), min(largest + 1, self.most)}
        if self._trace_rounds == 1:
            wanted.add(max(largest // 2, self.smallest))
        return tuple(sorted(wanted - self._asked))

    @property
    def _ceiling(self) -> int:
        """The largest size that is still of interest."""
        return min([self.most, *(size - 1 for size in self._failed)])

    def _calibration(self) -> int | None:
        """The first size to run: about half of the predicted one, on the curve's last piece and above the warm-up.

        None where nothing is traced, or where so small a size would say no more than the predicted one itself.
        """
        if self.curve is None:
            return None
        largest = min(self.curve.largest_within(self._target, self.most), self._ceiling)
        half, knee = largest // 2, self.curve.knee
        roomy = _ROOMY * self.budget_bytes
        size = knee if half < knee < largest and self.curve.at(knee) <= roomy else half
        if self.curve.at(largest) <= roomy or size <= max(self._warmup, self.smallest):
            return None
        return size

    def _next_probe(self) -> Probe | None:
        if not (self._passed or self._failed):
            return self._first()
        best = self.largest or 0
        enough = len(self._passed) >= MOST_PROBES
        size = best if best and enough else self._after(best)
        if size > best:
            return Probe(size)
        if best and best not in self._verified:
            return Probe(best)
        return Probe(best + 1) if self._prove and 0 < best < self._ceiling else None

    def _first(self) -> Probe | None:
        if self.curve is None:
            return Probe(self._low)
        if self.curve.at(self.smallest) > _CANNOT_FIT * self.budget_bytes:
            return None
        half = self._calibration()
        if half is not None:
            return Probe(half, verifies=False)
        return Probe(max(self.curve.largest_within(self._target, self.most), self.smallest))

    @property
    def _low(self) -> int:
        """A size whose peak lies above the warm-up's, and which is unlikely to fail."""
        return min(max(self.smallest, 2 * self._warmup), self._ceiling)

    def _after(self, best: int) -> int:
        """The next size by everything measured so far; at most `best` where that is the answer."""
        guess = self._largest_by(self._guess)
        if best == 0:  # what is not traced is large and unknown
            lower = max(min(guess, min(self._failed) // 2), min(self._low, self._ceiling))
            return lower if lower >= self.smallest else 0
        if not self._measured:
            return guess
        if self.curve is None:
            return self._untraced_step(best)
        safe = self._largest_by(self._at_most)
        unsure = len(self._measured) < 2 or bool(self._failed)  # one measurement, or a line that was wrong
        size = safe if unsure and best < safe else guess
        return size if size > best else self._between(best)

    def _untraced_step(self, best: int) -> int:
        """At most four times the best while it is unknown how bytes grow; then along the line through all sizes."""
        if self._failed:
            line = self._largest_by(self._by_line)
            return line if best < line < self._ceiling else self._between(best)
        proportional = self._largest_by(self._at_most)
        if len(self._measured) < 2 and proportional < _STEP * best:
            proportional = 2 * best  # or nothing would be learned of how bytes grow
        line = self._largest_by(self._by_line) if len(self._measured) > 1 else proportional
        return min(max(line, proportional), _GROWTH * best, self._ceiling)

    def _between(self, best: int) -> int:
        """A size between the best and the smallest that failed, where that is more than a sample and a hundredth away
        and what was measured says that it fits; otherwise the best."""
        gap = self._ceiling - best
        size = best + (gap + 1) // 2
        worth = self._failed and gap > max(1, _WORTH * best) and self._by_line(size) <= self._target
        return size if worth else best

    def _largest_by(self, needed: Callable[[int], float]) -> int:
        """The largest size up to the ceiling whose needed bytes are within the budget; 0 for none."""
        return largest_size(lambda size: needed(size) <= self._target, self._ceiling)

    def _guess(self, size: int) -> float:
        """Traced bytes plus the offset at this size; without a trace the line through all that were measured.

        Each failure of a size that was thought to fit adds at least what it took to be wrong, and more each time.
        """
        return self._by_line(size) + self._missed()

    def _missed(self) -> float:
        wrong = [self.budget_bytes - self._by_line(failed) for failed in self._failed]
        misses = sum(shortage >= 0 for shortage in wrong)
        slope = self._by_line(self.most) - self._by_line(self.most - 1) if self.most > 1 else 0.0
        return max([0.0, *wrong]) + (2 ** (misses - 1) - 1) * slope + 1 if misses else 0.0

    def _by_line(self, size: int) -> float:
        return needed_bytes(self.curve, self._measured, size)

    def _at_most(self, size: int) -> float:
        """No size above the largest measured needs more: what is not traced grows at most in proportion to it."""
        measured = max(self._measured)
        traced_there = self.curve.at(measured) if self.curve else 0.0
        traced_here = self.curve.at(size) if self.curve else 0.0
        return traced_here + max((self._measured[measured] - traced_there) * size / measured, 0.0)
