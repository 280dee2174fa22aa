from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from batchlab.analysis.assemble import assemble
from batchlab.core.batch import Unit
from batchlab.words.critical_tables import costs_note
from batchlab.words.figures.critical import along_training_caption, cost_caption, cost_title
from batchlab.words.units import Units

Study = Callable[..., Any]
TOKENS = Units(Unit.TOKENS, 64)


def test_the_number_of_windows_and_sizes_is_given() -> None:
    assert along_training_caption(1, 1).startswith("1 window of sampled steps at 1 batch size, ")
    assert along_training_caption(12, 5).startswith("12 windows of sampled steps at 5 batch sizes, ")


def test_costs_name_the_loss_and_the_budgets(synthetic_study: Study) -> None:
    found = assemble(*synthetic_study())
    assert found.critical is not None
    assert costs_note(found) == ""
    critical = replace(found.critical, target=2.5, budgets=(1024, 4096, 16384))
    assert cost_title(TOKENS) == "Tokens, steps and time to the same loss"
    said = cost_caption(critical, TOKENS, timed=False)
    assert said.startswith("To validation loss 2.500, interpolated between 3 budgets (1,024, 4,096, 16,384 tokens)")
    assert cost_caption(critical, TOKENS, timed=True).startswith(said)
    several = replace(found, critical=critical, devices=4)
    assert "Each of the 4 devices takes an equal share of the batch" in costs_note(several)
    assert "devices" not in costs_note(replace(several, devices=1))
