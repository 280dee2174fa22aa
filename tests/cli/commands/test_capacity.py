"""`batchlab capacity … --json`: everything a program needs, of a size that ran and of one that is predicted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchlab.cli.app import run
from batchlab.simulated.machine import simulation

MACHINE = simulation({}).machine


def asked(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert run(["capacity", "simulated", "--json", "--headroom", "0", *arguments]) == code
    output: dict[str, Any] = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    return output


def test_a_size_that_ran(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    limit = MACHINE.peak_bytes(100)
    arguments = ["--out", str(tmp_path / "s"), "--memory-limit", str(limit), "--prove", "--batch-sizes", "64,256"]
    found = asked(capsys, *arguments)
    assert (found["status"], found["max_micro_batch_size"], found["failure"]) == ("proved", 100, "")
    assert found["limit_bytes"] == limit
    assert found["headroom_bytes"] == 0
    assert found["peak_bytes"] == limit
    assert found["left_bytes"] == 0
    line = found["line"]
    assert line["slope"] == pytest.approx(MACHINE.bytes_per_sample)
    assert line["intercept"] == pytest.approx(MACHINE.fixed_bytes)
    assert line["r_squared"] == pytest.approx(1.0)
    assert line["n"] == len(line["residuals"]) >= 3
    assert found["knee"] == 1
    top = max(found["phases"], key=lambda phase: phase["parameter_bytes"] + phase["activation_bytes"])
    assert top["parameter_bytes"] == MACHINE.fixed_bytes
    assert found["recommendations"]["maximum"] == {"micro_batch_size": 100, "needed_bytes": limit}
    assert found["recommendations"]["conservative"]["needed_bytes"] <= 0.8 * limit
    assert found["recommendations"]["accumulation"]["micro_batch_size"] == 50
    assert found["layouts"] == [
        {"global_batch_size": 64, "micro_batch_size": 64, "grad_accum_steps": 1},
        {"global_batch_size": 256, "micro_batch_size": 86, "grad_accum_steps": 3},
    ]
    assert found["cards"] == {}, "no card is that small: its size was not traced"
    assert found["variants"] == found["remedies"] == []
    assert found["out_of_memory"] == 1


def test_a_size_that_is_predicted_has_the_same_names(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ran = asked(capsys, "--out", str(tmp_path / "s"))
    predicted = asked(capsys, "--predict", str(MACHINE.peak_bytes(100)))
    assert set(ran) - set(predicted) == {"folder", "failure"}
    assert (predicted["status"], predicted["max_micro_batch_size"]) == ("predicted", 100)


@pytest.mark.parametrize("asked_for", ["x80GiB", "0x80GiB", "twox80GiB", "8x80", "8x"])
def test_several_cards_are_asked_for_with_a_number_and_a_unit(
    asked_for: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["capacity", "simulated", "--predict", asked_for]) == 2
    assert "--predict" in capsys.readouterr().err


def test_a_device_that_has_no_parameters_cannot_share_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["capacity", "simulated", "--predict", "8x80GiB"]) != 0
    assert "names no parameters" in capsys.readouterr().err


def test_nothing_fits(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = asked(capsys, "--out", str(tmp_path / "s"), "--memory-limit", "1MiB", code=1)
    assert (found["status"], found["max_micro_batch_size"], found["layouts"]) == ("none", None, [])
    assert [remedy["name"] for remedy in found["remedies"]] == ["no gradient accumulation"]
