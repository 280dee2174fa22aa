from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.values import EnvironmentDifference
from batchlab.words.phrases import format_differences, format_seed_count, format_test, format_tied

Study = Callable[..., Any]


@pytest.mark.parametrize(
    ("pairing", "text"),
    [
        ("verified", "one-sided t-test at 95 %, paired where both sizes have the same seeds, up to 5"),
        ("declared", "one-sided t-test at 95 %, unpaired because the order of the data is declared, not verified"),
        ("none", "one-sided t-test at 95 %, unpaired because the order of the data is unknown"),
    ],
)
def test_the_test_says_whether_it_was_paired(synthetic_study: Study, pairing: str, text: str) -> None:
    surface = assemble(*synthetic_study(pairing=pairing, seeds=5)).surface
    assert surface is not None
    assert format_test(surface) == text


def test_neighbouring_tied_sizes_are_a_span(synthetic_study: Study) -> None:
    surface = assemble(*synthetic_study(batch_curvature=0.0005)).surface
    assert surface is not None
    assert format_tied(surface) == "4–64"


def test_seeds_and_differences() -> None:
    assert format_seed_count(1, confirmed=False) == "1 seed"
    assert format_seed_count(2, confirmed=True) == "2 confirmation seeds"
    assert format_differences([EnvironmentDifference("instruction_set", ("avx2", "avx512"))]) == [
        "instruction set: avx2, avx512"
    ]
