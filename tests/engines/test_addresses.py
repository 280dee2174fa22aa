"""Workers whose memory is measured or bounded start at addresses that are the same each time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from batchlab.core.record import Record
from batchlab.core.spec import CapacitySpec, TrainSpec
from batchlab.engines.addresses import at_fixed_addresses
from batchlab.engines.local import LocalEngine

SHOW = (sys.executable, "-c", "import ctypes, sys; print(ctypes.addressof(ctypes.c_int(1)), id(object()), *sys.argv)")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the switch")


def output(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PYTHONHASHSEED": "0"})
    assert done.stderr == ""
    return done.stdout


@pytest.fixture
def allowed() -> None:
    if int(output(at_fixed_addresses(["cat", "/proc/self/personality"])), 16) & 0x40000 == 0:
        pytest.skip("this container forbids personality(2)")


@pytest.mark.usefixtures("allowed")
def test_objects_lie_where_they_lay_before() -> None:
    first, second = (output(at_fixed_addresses([*SHOW, "a b", "--c"])) for _ in range(2))
    assert first == second
    assert first.endswith(" -c a b --c\n")


def test_the_command_s_exit_code_is_kept() -> None:
    assert (
        subprocess.run(at_fixed_addresses([sys.executable, "-c", "raise SystemExit(7)"]), check=False).returncode == 7
    )


@pytest.mark.slow
@pytest.mark.usefixtures("allowed")
def test_probes_and_limited_runs_are_at_fixed_addresses_and_others_are_not(
    local_engine: Callable[..., LocalEngine],
    carry_out: Callable[..., list[Record]],
    toy_train: Callable[..., TrainSpec],
    toy_capacity: Callable[..., CapacitySpec],
    starts: Callable[[], list[dict[str, Any]]],
) -> None:
    carry_out(local_engine(workers=1), toy_capacity(), toy_train(limit=2**30), toy_train())
    assert [entry["at_fixed_addresses"] for entry in starts()] == [True, True, False]
