"""Shares of a batch for unequal devices: in proportion to the speed of each at the share that it would take.

Speed depends on the share, because passes and steps have fixed costs, so it is measured again at every proposal.
"""

from __future__ import annotations

from collections.abc import Sequence

from batchlab.core.batch import BatchLayout, divide, lay_out

ROUNDS = 3
"""The first has equal shares. A third changes shares by a few samples where it changes them at all."""


class ShareSearch:
    """A Search over the shares of one layout. `most`: the most samples that each device can take."""

    def __init__(self, layout: BatchLayout, most: Sequence[int]) -> None:
        self._layout = layout
        self._most = tuple(most)
        self._tried: list[tuple[int, ...]] = []
        self._next: tuple[int, ...] | None = divide(layout.global_batch_size, (1.0,) * len(most), most)

    def ask(self) -> Sequence[BatchLayout]:
        """The layout to measure next, or none."""
        return [] if self._next is None else [with_shares(self._layout, self._next)]

    def tell(self, proposals: Sequence[BatchLayout], outcomes: Sequence[Sequence[float]]) -> None:
        """The speed of each device at the shares proposed, in samples or tokens per second."""
        for speeds in outcomes:
            assert self._next is not None
            self._tried.append(self._next)
            shares = divide(self._layout.global_batch_size, speeds, self._most)
            self._next = shares if shares not in self._tried and len(self._tried) < ROUNDS else None


def with_shares(layout: BatchLayout, shares: Sequence[int]) -> BatchLayout:
    """The layout with these shares; without any where they are its own equal ones."""
    equal = layout.model_copy(update={"shares": ()})
    if tuple(shares) == tuple(equal.share(rank) for rank in range(equal.data_parallel_size)):
        return equal
    return layout.model_copy(update={"shares": tuple(shares)})


def most_samples(layout: BatchLayout, fits: Sequence[int | None], *, accumulates: bool) -> tuple[int, ...]:
    """The most samples of a step that each device can take.

    fits: the largest micro-batch of each device's memory; None: unknown. A device that holds the layout's micro-batch
    takes any number of them, unless gradients are not accumulated; one that holds less takes what it holds.
    """
    own = layout.micro_batch_size
    passes = layout.grad_accum_steps if not accumulates else layout.global_batch_size
    return tuple(own * passes if each is None or each >= own else max(each, 0) for each in fits)


def whole_batch_each(layout: BatchLayout, fits: Sequence[int | None]) -> BatchLayout:
    """A layout in which every device takes as many samples as the whole batch has, in micro-batches that fit on all."""
    size, devices = layout.global_batch_size, layout.data_parallel_size
    most = min((each for each in fits if each is not None), default=layout.micro_batch_size)
    return lay_out(size * devices, most, data_parallel_size=devices, sequence_length=layout.sequence_length)
