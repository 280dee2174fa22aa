from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings
from batchlab.words.evidence import headline_caveats
from batchlab.words.recommendations import cards, lead
from batchlab.words.summary import summary_lines
from batchlab.words.unknown import unknown

Study = Callable[..., Any]


def held_out_error(found: Findings, error: float) -> Findings:
    assert found.surface is not None
    return replace(found, surface=replace(found.surface, evaluation_sd=error))


def test_an_enclosed_and_tuned_answer_has_its_tokens_per_parameter_only(synthetic_study: Study) -> None:
    assert headline_caveats(assemble(*synthetic_study())) == ("2.9 tokens per parameter",)
    assert headline_caveats(assemble(*synthetic_study(unit="samples", token_budget=6400))) == ()
    assert headline_caveats(assemble(*synthetic_study(keep=0))) == ()


def test_the_best_at_the_end_of_the_axis_is_said_in_banner_unknown_and_terminal(synthetic_study: Study) -> None:
    found = assemble(*synthetic_study(best_batch=4, batch_curvature=0.05))
    shown = lead(found)
    assert shown is not None
    assert "Best at the smallest batch tried, 4." in shown.caveats
    assert any("smallest batch tried, 4" in text for text in unknown(found))
    assert "smallest batch tried, 4" in summary_lines(found, "report.html", "plan.json")[3]


def test_one_learning_rate_is_a_caveat(synthetic_study: Study) -> None:
    phrases = headline_caveats(assemble(*synthetic_study(learning_rates=(1e-3,))))
    assert "LR 1.0e-3 is the only one tried there" in phrases


def test_the_held_out_set_is_named_where_it_is_coarser_than_what_decides(synthetic_study: Study) -> None:
    found = assemble(*synthetic_study())
    assert not any("held-out" in text for text in headline_caveats(held_out_error(found, 1e-6)))
    coarse = held_out_error(found, 0.5)
    assert any("by 0.500 (standard error)" in text for text in headline_caveats(coarse))
    assert "± 0.500 by the held-out samples" in summary_lines(coarse, "report.html", "plan.json")[1]


def test_clipping_that_differs_by_more_than_twenty_points_is_a_caveat(synthetic_study: Study) -> None:
    def clipped(shares: dict[int, float]) -> Findings:
        found = assemble(*synthetic_study())
        assert found.surface is not None
        rows = []
        for row in found.surface.rows:
            assert row.best is not None
            share = shares.get(row.global_batch_size, 0.1)
            runs = tuple(replace(run, clipped_fraction=share) for run in row.best.runs)
            rows.append(replace(row, best=replace(row.best, runs=runs)))
        return replace(found, surface=replace(found.surface, rows=tuple(rows)))

    assert not any("clipped" in text for text in headline_caveats(clipped({4: 0.29})))
    assert "gradients were clipped in 10 % of the steps at batch 8 and in 55 % at batch 4" in headline_caveats(
        clipped({4: 0.55})
    )


def test_one_card_per_configuration(synthetic_study: Study) -> None:
    """All goals are served by the best size here, so one card names them all."""
    found = assemble(*synthetic_study(batch_curvature=0.1, best_batch=64, best_lr=3e-3))
    (card,) = cards(found)
    assert card.goal.count("·") == len(found.recommendations) - 1
    assert len({text.headline for text in cards(assemble(*synthetic_study(fall=0.5)))}) > 1
