"""Workers × threads fill the processor and never oversubscribe it."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from batchlab.engines.resources import MEMORY_SHARE, plan_concurrency, usable_cores

COUNTS = st.none() | st.integers(1, 64)


@given(cores=st.integers(1, 256), workers=COUNTS, threads=st.none() | st.integers(1, 8))
def test_never_more_threads_than_cores_unless_one_run_alone_was_given_them(
    cores: int, workers: int | None, threads: int | None
) -> None:
    planned = plan_concurrency("cpu", cores, workers=workers, threads=threads)
    assert planned.workers >= 1
    assert planned.threads >= 1
    if threads is None:
        assert planned.workers * planned.threads <= cores
    elif workers is None:
        assert planned.workers * planned.threads <= max(cores, threads)


def test_two_cores_train_two_runs_with_a_thread_each() -> None:
    planned = plan_concurrency("cpu", 2)
    assert (planned.workers, planned.threads) == (2, 1)


@given(cores=st.integers(1, 64), worker_bytes=st.integers(1, 10**12), free_bytes=st.integers(1, 10**12))
def test_workers_share_the_memory_that_is_free(cores: int, worker_bytes: int, free_bytes: int) -> None:
    planned = plan_concurrency("cpu", cores, worker_bytes=worker_bytes, free_bytes=free_bytes)
    assert planned.workers == 1 or planned.workers * worker_bytes <= MEMORY_SHARE * free_bytes


def test_an_accelerator_has_one_run_at_a_time_each() -> None:
    assert plan_concurrency("cuda:0", 16, devices=4).workers == 4
    assert plan_concurrency("mps", 8).workers == 1


def test_usable_cores_are_at_least_one_and_at_most_all() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
