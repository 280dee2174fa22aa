"""A few of the kills of `make chaos-torch`: a real study with torch, killed three times, is equal to the last bit."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.injections import injection


@pytest.mark.slow
def test_three_kills_of_a_real_study_leave_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, Any], None]
) -> None:
    record_property("injection", injection("real processes, torch: kill -9 of study, workers or both", 3))
    spec = importlib.util.spec_from_file_location("torch_kills", Path(__file__).with_name("torch_kills.py"))
    assert spec is not None
    assert spec.loader is not None
    kills = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "torch_kills", kills)
    spec.loader.exec_module(kills)
    undisturbed = kills.leave_undisturbed(tmp_path)
    history = kills.live_through(random.SystemRandom().randrange(10**6), tmp_path / "study", undisturbed, 3)
    print(history)
    assert history.faults == []
