from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from batchlab.integrations.epochs import Epochs, equal_micro_batch

sizes = st.integers(1, 40)
epochs = st.builds(Epochs, st.integers(40, 200), sizes, st.integers(1, 4), st.booleans())


def walked(shape: Epochs, steps: int) -> list[int]:
    """Samples of each step, by going through the micro-batches of epoch after epoch."""
    found: list[int] = []
    while len(found) < steps:
        whole, rest = divmod(shape.samples, shape.micro_batch_size)
        micro = [shape.micro_batch_size] * whole + ([rest] if rest and not shape.drop_last else [])
        found += [sum(micro[i : i + shape.grad_accum_steps]) for i in range(0, len(micro), shape.grad_accum_steps)]
    return found[:steps]


@given(epochs, st.integers(0, 60))
def test_samples_are_those_of_the_micro_batches(shape: Epochs, steps: int) -> None:
    assert shape.samples_after(steps) == sum(walked(shape, steps))


@given(epochs, st.integers(1, 1000))
def test_steps_are_the_fewest_that_see_so_many_samples(shape: Epochs, samples: int) -> None:
    steps = shape.steps_for(samples)
    assert shape.samples_after(steps - 1) < samples <= shape.samples_after(steps)


@given(st.integers(1, 500), st.integers(1, 600))
def test_an_equal_micro_batch_divides_and_fits(batch: int, most: int) -> None:
    micro = equal_micro_batch(batch, most)
    assert batch % micro == 0
    assert micro <= most


def test_short_batches_make_more_steps_than_samples_per_batch() -> None:
    """250 samples in batches of 8 are 32 steps, the last with 2: two epochs are 64 steps, not 62.5."""
    shape = Epochs(250, 8, 1)
    assert (shape.steps, shape.samples_after(32), shape.samples_after(33)) == (32, 250, 258)
    assert shape.steps_for(500) == 64
