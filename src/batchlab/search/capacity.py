"""The largest micro-batch that fits: predicted from traces, corrected by what small probes really used, then run.

A trace costs a second and no device. A probe costs a process and may disturb others, a failed one even more. Traces
therefore say where to look. What they cannot see (buffers inside kernels, the allocator's own memory) is the offset:
measured at about half of the predicted size, it is either constant or grows in proportion to the size, never faster.
Where both assumptions give the same size, that size is run; otherwise the smaller one is measured, and the line through
two measured offsets gives the next.

Probes that only measure may run in forked processes: the calibration, and untraced sizes above which larger ones are
likely to fit. The size that is called the largest runs in a new process, once; where it does not fit there, the search
goes on below.

Where memory depends on the values in a batch, its bytes come from steps over several batches, and they differ. Then a
margin for batches that nobody has seen stays free, and the answer is a range: from the size with that margin to the one
without it.

Models that cannot be traced at all are approached from below (search/untraced.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from batchlab.search.forecast import half_tolerance, needed_bytes, tolerance
from batchlab.search.memory_curve import MemoryCurve, largest_size
from batchlab.search.untraced import back_off, leaves_nothing, middle, next_size

FIRST_SIZES = (2, 32)
"""Traced before anything is known; a third size tells whether the line through them holds. 1 is left out: batch
statistics of a single sample do not exist, and a model that uses them could not be traced."""

_TRACE_ROUNDS = 8
_STRAIGHT = 0.005
"""Where two traced sizes forecast the bytes of the next one across a gap within this share, none in it is traced."""

_ROOMY = 0.7
"""A size whose trace needs less than this share of the budget is run without calibration. Kernels on a CPU were seen
to use up to 1.43 times the traced bytes (convolutions in evaluation and bf16)."""

_CANNOT_FIT = 1.2
"""A smallest size whose trace needs this many times the budget is not run: no trace was ever that far above what was
used."""

_SCRATCH = 16 * 2**20
"""Bytes that a calibration leaves free besides. Kernels on a CPU were seen to hold 8 to 24 MB from three samples on,
which no trace sees, so half of the predicted size ran out of memory where the limit was 50 MB."""

_MOST_SCRATCH = 1 / 3
"""The same as a share of the budget, where that is less."""

_ALIKE = 0.85
"""Sizes of at least this ratio calibrate each other's forecast as well, so the one that is already traced is taken."""

_GROWTH = 4
"""The most by which a size that ran is multiplied: kernels' own memory may begin above it."""

_FAR = 3
"""A failure beyond this factor of the largest size that ran says that the line to it was wrong, not a little short."""

_COARSE = 0.03
"""Where the answer is a range, its lower end is not worth another probe for this share."""

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
    """Run whole steps at this micro-batch size, in a process of its own.

    verifies: this is likely to be the answer, so every kind of step has to be run, in a new process. Otherwise two
    steps are enough, the second of which has all optimizer states, and the process may be forked.
    """

    size: int
    verifies: bool = True


@dataclass(frozen=True, slots=True)
class Probed:
    """The outcome of a probe.

    available_bytes: what the device had left for it, where that is known. baseline_bytes: what the process held before.
    forked: the process was forked from one that had loaded the task. grown_bytes: how far its peak rose over the
    batches that it drew, where memory depends on values.
    """

    fits: bool
    peak_bytes: int | None = None
    available_bytes: int | None = None
    baseline_bytes: int | None = None
    forked: bool = False
    grown_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Traced:
    """Sizes with the bytes of each phase of the step (search/memory_curve.py); none where that is impossible.

    spread: where memory depends on values, by what share the worst of several batches exceeded the median one.
    """

    points: Sequence[tuple[int, tuple[float, ...]]]
    spread: float | None = None


def first_sizes(smallest: int, most: int) -> tuple[int, ...]:
    """The sizes that are traced before anything is known."""
    return tuple(size for size in FIRST_SIZES if smallest <= size <= most) or (most,)


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
        self._baselines: dict[bool, list[int]] = {}  # of forked and of new processes
        self.spread: float | None = None
        """Of the batches that were tried; None where memory does not depend on values."""
        self._trace_rounds = 0
        self._asked: set[int] = set()
        self._measured: dict[int, int] = {}
        self._passed: set[int] = set()
        self._verified: set[int] = set()
        self._failed: list[int] = []
        self._grown: dict[int, int] = {}
        """Of sizes that ran on several batches."""

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
        """By how much the processes of this task's probes differed before they did anything.

        A forked process also holds what the one before it left over, so it is compared with forked ones only.
        """
        return max((max(held) - min(held) for held in self._baselines.values()), default=0)

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

    def _leaves_room(self, size: int) -> bool:
        """Whether a size that ran would still fit if its peak rose by as much again.

        The largest of n draws rises with log n. From 2 batches to the 9 of a probe that is as far as from 9 to 40.
        """
        grown = self._grown.get(size, 0)
        return grown == 0 or self._measured[size] + grown <= self.budget_bytes

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
            self._baselines.setdefault(probed.forked, []).append(probed.baseline_bytes)
        if probed.fits:
            self._grown[size] = probed.grown_bytes
            self._passed.add(size)
            if verifying:
                self._verified.add(size)
        else:
            self._failed.append(size)

    def _sizes_to_trace(self) -> tuple[int, ...]:
        """The first sizes, then those around the predicted largest until it is known from itself.

        Where sizes are run, they correct the prediction: it is near enough within a sample or 1 %. What is run is
        traced only where the curve may bend.
        """
        if self.untraceable or self._trace_rounds >= _TRACE_ROUNDS or self._failed:
            return ()
        if self.curve is None:
            return first_sizes(self.smallest, self.most)
        if self.spread is not None:
            return ()  # its sizes were run, and larger ones would take long
        if not (self._probe and self._passed):
            largest = max(self.curve.likely_largest_within(self._target, self.most), self.smallest)
            if not self._probe:
                wanted = {largest, min(largest + 1, self.most)}
                half = {max(largest // 2, self.smallest)} if self._trace_rounds == 1 else set()
                return tuple(sorted((wanted | half) - self._asked))
            if not self._near_traced(largest):
                return (largest,)
        probe = self._next_probe()
        return () if probe is None or self._known(probe.size) else (probe.size,)

    def _known(self, size: int) -> bool:
        """Whether the curve is as good as a trace of this size."""
        assert self.curve is not None
        return self._near_traced(size) or self.curve.straight_at(size, _STRAIGHT)

    def _near_traced(self, size: int) -> bool:
        return any(abs(traced - size) <= tolerance(size) for traced in self._asked)

    @property
    def _ceiling(self) -> int:
        """The largest size that is still of interest. One that ran without room for its peak to rise further is reduced
        in proportion: no smaller one needs less than its share."""
        reduced = [
            min(int(size * self.budget_bytes / (self._measured[size] + self._grown[size])), size - 1)
            for size in self._passed
            if not self._leaves_room(size)
        ]
        return min([self.most, *reduced, *(size - 1 for size in self._failed)])

    def _calibration(self) -> int | None:
        """The first size to run: about half of the predicted one, on the curve's last piece and above the warm-up, or
        less where kernels' own memory might not fit.

        None where nothing is traced, or where so small a size would say no more than the predicted one itself.
        """
        if self.curve is None:
            return None
        largest = min(self.curve.largest_within(self._target, self.most), self._ceiling)
        half, knee = largest // 2, self.curve.knee
        roomy = _ROOMY * self.budget_bytes
        if self.curve.at(largest) <= roomy or half <= max(self._warmup, self.smallest):
            return None
        scratch = min(_SCRATCH, _MOST_SCRATCH * self.budget_bytes)
        size = min(half, max(self.curve.largest_within(self._target - scratch, self.most), self._low))
        if size < knee < largest and self.curve.at(knee) <= roomy:
            return knee
        alike = [traced for traced in self._asked if _ALIKE <= traced / size <= 1 / _ALIKE]
        return size if self._known(size) else min(alike, default=size)

    def _next_probe(self) -> Probe | None:
        if not (self._passed or self._failed):
            return self._first()
        best = self.largest or 0
        size = self._after(best)
        if size > best:
            return Probe(size, self._likely_largest(size))
        if best and best not in self._verified:
            return Probe(best)
        return Probe(best + 1, verifies=False) if self._prove and 0 < best < self._ceiling else None

    def _likely_largest(self, size: int) -> bool:
        """Whether this may be the answer: the forecast leaves nothing above it that is worth another probe.

        After a failure it may where another size ran, so that no size has to fit twice.
        """
        if size == self._ceiling:
            return True
        if self.curve is None:
            return leaves_nothing(self._bytes, size, self._target, self._ceiling)
        if self._failed:
            return bool(self._passed)
        return self._largest_by(self._by_line) - size <= self._little(size)

    @property
    def _bytes(self) -> dict[int, float]:
        """Of the sizes that ran below every failure, as far as their bytes are known."""
        return {size: peak for size, peak in self._measured.items() if size in self._passed and size <= self._ceiling}

    def _first(self) -> Probe | None:
        if self.curve is None:
            return Probe(self._low, self._likely_largest(self._low))
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
        if best == 0:  # what is not traced is large and unknown
            guess = self._largest_by(self._guess)
            lower = max(min(guess, min(self._failed) // 2), min(self._low, self._ceiling))
            return lower if lower >= self.smallest else 0
        if best not in self._measured:
            return middle(best, self._ceiling) if self._gap(best) else best
        if self.curve is None:
            return next_size(self._bytes, self._failed, self._target, self.most)
        return self._above_traced(best)

    def _gap(self, best: int) -> bool:
        """Whether the smallest failure leaves more between it and the best than is worth a probe."""
        return self._ceiling - best > (tolerance(best) if self._failed else 0)

    def _above_traced(self, best: int) -> int:
        """From one measured size the one that proportion allows, from more the one that the line does."""
        if not self._gap(best):
            return best
        likely = self._largest_by(self._by_line)
        safe = self._largest_by(self._at_most) if len(self._measured) < 2 else 0
        if self._failed and likely == self._ceiling:
            far = self._ceiling > _FAR * best
            size = middle(best, self._ceiling) if far else back_off(best, self._failed, self._ceiling)
            return min(size, safe) if best < safe else size
        if best < safe:
            likely = safe
        likely = min(likely, _GROWTH * best)
        if likely - best <= self._little(best):
            return best
        on_the_limit = len(self._measured) > 1 and likely < min(self._ceiling, _GROWTH * best)
        return self._short_of(likely) if on_the_limit and not self._failed and self.spread is None else likely

    def _short_of(self, likely: int) -> int:
        """The smallest size above which `likely` is not worth another probe: processes differ, and a failure costs more
        than what this leaves."""
        size = likely - self._little(likely)
        return size if size + self._little(size) >= likely else size + 1

    def _little(self, best: int) -> int:
        """Samples that are not worth another probe: it would start a process, and might fail."""
        if self.spread is not None:
            return max(int(_COARSE * best), 1)
        if self._prove:
            return 0
        return tolerance(best) if best in self._verified else half_tolerance(best)

    def _largest_by(self, needed: Callable[[int], float]) -> int:
        """The largest size up to the ceiling whose needed bytes are within the budget; 0 for none."""
        return largest_size(lambda size: needed(size) <= self._target, self._ceiling)

    def _guess(self, size: int) -> float:
        """Traced bytes plus the offset at this size, without a trace by the forecast; a size that failed, and was
        thought to fit, adds what it took to be wrong."""
        return self._by_line(size) + max([0.0, *(self.budget_bytes + 1 - self._by_line(x) for x in self._failed)])

    def _by_line(self, size: int) -> float:
        return needed_bytes(self.curve, self._measured, size)

    def _at_most(self, size: int) -> float:
        """No size above the largest measured needs more: what is not traced grows at most in proportion to it."""
        measured = max(self._measured)
        traced_there = self.curve.at(measured) if self.curve else 0.0
        traced_here = self.curve.at(size) if self.curve else 0.0
        return traced_here + max((self._measured[measured] - traced_there) * size / measured, 0.0)
