from __future__ import annotations

import json
from pathlib import Path

import pytest

from batchlab.cli.app import run

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
EQUAL_STEPS = "batch_size,steps,val_loss\n8,100,2.2\n16,100,2.1\n32,100,2.0\n64,100,2.05\n"


def test_an_error_is_told_and_is_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sweep.csv"
    path.write_text(EQUAL_STEPS)

    assert run(["audit", str(path)]) == 1
    assert "ERROR" in capsys.readouterr().out


def test_columns_facts_json_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, page = tmp_path / "sweep.csv", tmp_path / "audit.html"
    path.write_text("B,val_loss\n8,2.2\n16,2.1\n32,2.3\n")

    code = run(["audit", str(path), "--map", "batch=B", "--given", "tokens=1M", "--json", "--page", str(page)])

    assert code == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 3
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("wrong", [["--map", "steps"], ["--given", "=3"], ["--given", "tokens=many"]])
def test_wrong_options_get_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: list[str]) -> None:
    path = tmp_path / "sweep.csv"
    path.write_text(EQUAL_STEPS)

    assert run(["audit", str(path), *wrong]) == 2
    assert "batchlab: " in capsys.readouterr().err


@pytest.mark.skipif(not DATA.is_dir(), reason="the published tables are beside a checkout, not in it")
class TestPublishedTables:
    def test_the_table_of_a_report_has_its_known_errors(self, capsys: pytest.CaptureFixture[str]) -> None:
        path = DATA / "sweep_tables" / "tinystories_report.csv"
        given = ("sequence_length=256", "tokens=327.68M", "learning_rate=3e-4")

        run(["audit", str(path), "--json", *(part for fact in given for part in ("--given", fact))])

        kinds = {finding["kind"] for finding in json.loads(capsys.readouterr().out)["findings"]}
        assert kinds == {
            *("TokensDisagree", "LearningRateNotTuned", "WarmupSharesDiffer", "LargerIsSlower"),
            *("OneSeed", "TrainBelowValidation", "GapBelowMemoryLimit"),
        }

    def test_the_report_itself_has_them_too(self, capsys: pytest.CaptureFixture[str]) -> None:
        (report,) = (DATA.parent / "seeds").glob("001_*.txt")

        run(["audit", str(report), "--json"])

        kinds = {finding["kind"] for finding in json.loads(capsys.readouterr().out)["findings"]}
        assert {"TokensDisagree", "BeyondMemory", "OptimizerStateWrong", "LearningRateNotTuned"} <= kinds

    @pytest.mark.parametrize(
        "name", ["steplaw/dense_lr_bs_loss.csv", "marek2025_small_batch/lm11m_adam_best_by_batch.csv"]
    )
    def test_clean_tables_have_no_error(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["audit", str(DATA / name), "--json"]) == 0
        assert "error" not in {finding["severity"] for finding in json.loads(capsys.readouterr().out)["findings"]}
