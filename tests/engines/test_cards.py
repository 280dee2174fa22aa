"""Cards that workers can be spread over; tests/cuda counts them through NVML."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchlab.engines import cards
from batchlab.engines.cards import visible_cards


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"CUDA_VISIBLE_DEVICES": "3, 1"}, ("3", "1")),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}, ("GPU-8932f937",)),
        ({"CUDA_VISIBLE_DEVICES": ""}, ()),
        ({"HIP_VISIBLE_DEVICES": "2"}, ("2",)),
        ({"HIP_VISIBLE_DEVICES": "2", "CUDA_VISIBLE_DEVICES": "0,1"}, ("0", "1")),
    ],
)
def test_cards_that_the_environment_names(environment: dict[str, str], expected: tuple[str, ...]) -> None:
    assert visible_cards(environment) == expected


def test_cards_of_rocm_are_counted_without_its_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "card_count", lambda: 0)
    for node, number in enumerate(("0", "28851", "45677")):  # a processor and two GPUs
        (tmp_path / str(node)).mkdir()
        (tmp_path / str(node) / "gpu_id").write_text(f"{number}\n")
    assert visible_cards({}, tmp_path) == ("0", "1")
    assert visible_cards({}, tmp_path / "absent") == ()
