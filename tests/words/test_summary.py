from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.core.command import Command
from batchlab.words.summary import summary_lines

Study = Callable[..., Any]


def lines(study: Any, **more: Any) -> list[str]:
    return summary_lines(assemble(*study, **more), "s/report.html", "s/training_plan.json")


def test_the_five_lines_in_full(synthetic_study: Study) -> None:
    assert lines(synthetic_study(noise_sd=0.0)) == [
        "TRAIN WITH  micro-batch 16 × accum 1 × 1 device = 16 sequences (1,024 tokens/step), LR 1.0e-3, "
        "warm-up 40,960 tokens",
        "costs       nothing: it is the best (batch 16 at 1.0e-3: 2.407 [2.407, 2.407], 3 seeds)",
        "fits        48 (proved) · 43.6k tok/s at 16, knee at 32 · 2.9 tokens per parameter",
        "unknown     budgets beyond 410k tokens; the critical batch size; "
        "batches of 49 and more: only with gradient accumulation; memory on another device",
        "open s/report.html · s/training_plan.json",
    ]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"seeds": 1},
        {"unit": "samples", "token_budget": 6400},
        {"diverges_above": 0.0},
        {"sizes": (16,)},
        {"token_budget": 64 * 64},
        {"keep": 0},
        {"keep": 5},
        {"learning_rates": (1e-3,)},
    ],
)
def test_always_five_lines_with_the_same_beginnings(synthetic_study: Study, settings: dict[str, Any]) -> None:
    text = lines(synthetic_study(**settings), partial="keep" in settings, planned_runs=24)
    assert len(text) == 5
    assert [line[:12] for line in text[:4]] == ["TRAIN WITH  ", "costs       ", "fits        ", "unknown     "]
    assert text[4].startswith("open s/report.html")
    assert not any(("None" in line and "None of the" not in line) or "nan" in line for line in text)


def test_a_command_on_several_devices_is_told_per_device(synthetic_study: Study) -> None:
    found = assemble(*synthetic_study(noise_sd=0.0))
    run = "torchrun --nproc-per-node 2 train.py --batch {micro_batch_size} --steps {steps}"
    command = Command.model_validate({"run": run, "devices": 2, "metrics": {"val_loss": "loss"}})
    ran = replace(found, experiment=found.experiment.model_copy(update={"command": command}))
    text = summary_lines(ran, "s/report.html", "s/training_plan.json")
    assert text[0].startswith("TRAIN WITH  micro-batch 8 × accum 1 × 2 devices = 16 sequences")
    assert text[1].startswith("command     torchrun --nproc-per-node 2 train.py --batch 8 --steps ")


def test_one_seed_says_so(synthetic_study: Study) -> None:
    assert lines(synthetic_study(seeds=1))[1].startswith(
        "costs       unknown: lowest of 20 runs, not tested (batch 16 "
    )


def test_a_sooner_size_that_is_not_shown_is_left_open(synthetic_study: Study) -> None:
    text = lines(synthetic_study(batch_curvature=0.0005, fall=0.1))[1]
    assert "not resolved whether that is within 3 %" in text
    assert "more seeds at both would, if they are equally good" in text


def test_another_size_than_the_best_states_its_trade(synthetic_study: Study) -> None:
    rates = (7.5e-4, 1.5e-3, 3e-3)
    text = lines(
        synthetic_study(
            learning_rates=rates,
            lr_exponent=0.0,
            seeds=5,
            noise_sd=0.0005,
            fall=0.1,
            batch_curvature=0.0005,
            settings={"sweep": {"learning_rates": rates, "seeds": 3, "confirm": 2}},
        )
    )
    assert "= 32 sequences" in text[0]
    assert " more tokens than the best (batch 16 at 1.5e-3: 2.400 [" not in text[1]
    assert " for 14 % less time per token: 13 % sooner than the best (batch 16 at 1.5e-3: 2.400 [" in text[1]
    assert "], 2 confirmation seeds)" in text[1]


def test_no_answer_says_why_and_offers_no_plan(synthetic_study: Study) -> None:
    text = lines(synthetic_study(diverges_above=0.0))
    assert "cannot tell: None of the 20 training runs has a finite loss" in text[0]
    assert "training_plan.json" not in text[4]


def test_an_unfinished_study_says_so_first(synthetic_study: Study) -> None:
    text = lines(synthetic_study(keep=7), partial=True, planned_runs=24)
    assert "so far" in text[0]
    assert "7 of 24 runs" in text[3]


def test_untuned_sizes_are_not_said_to_be_at_their_best(synthetic_study: Study) -> None:
    assert "the only LR tried" in lines(synthetic_study(learning_rates=(1e-3,)))[1]


def test_documents_that_could_not_be_written_are_not_offered(synthetic_study: Callable[..., Any]) -> None:
    found = assemble(*synthetic_study())
    assert summary_lines(found, "s/report.html", "s/plan.json")[-1] == "open s/report.html · s/plan.json"
    assert "not up to date" in summary_lines(found, "s/report.html", "s/plan.json", written=False)[-1]
