from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from batchlab.core.errors import StudyChanged
from batchlab.core.experiment import TaskReference
from batchlab.core.spec import Workload
from batchlab.integrations.data_digest import content_digest, digest_of_samples, positions, require_same_data


@given(st.integers(1, 5000), st.integers(1, 300))
def test_positions_are_in_the_data_with_both_ends(length: int, most: int) -> None:
    found = positions(length, most)
    assert found == sorted(set(found))
    assert len(found) <= most
    assert found[0] == 0
    assert found[-1] == (length - 1 if most > 1 else 0)


def test_content_counts_and_not_identity() -> None:
    one = {"input_ids": [1, 2, 3], "image": np.arange(4.0), "label": 1}
    same = {"label": 1, "image": np.arange(4.0), "input_ids": [1, 2, 3]}
    assert content_digest(one) == content_digest(same)
    assert content_digest(one) != content_digest({**one, "label": 2})
    assert content_digest((torch.zeros(2), "a")) != content_digest((torch.zeros(3), "a"))


def test_data_that_changes_between_processes_stops_the_study() -> None:
    task = TaskReference(kind="file", target="ft.py", attribute="make_trainer")
    digest = digest_of_samples(10, lambda index: index)
    require_same_data(Workload(task=task), digest, "make_trainer")
    workload = Workload(task=task, data_digest=digest)
    require_same_data(workload, digest, "make_trainer")
    with pytest.raises(StudyChanged, match="other data"):
        require_same_data(workload, digest_of_samples(10, lambda index: index + 1), "make_trainer")
