"""The truth of benchmarks/capacity_vs_peers: its search on known answers, and on a small model beside batchlab's."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "capacity_vs_peers"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """The benchmark's own modules, so that the test cannot disagree with what it reports."""
    monkeypatch.syspath_prepend(str(BENCHMARK))
    for name in ("run", "ours", "table", "truth"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield import_module
    for name in ("run", "ours", "table", "truth"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("largest", [0, 1, 2, 57, 300])
@pytest.mark.parametrize("guess", [1, 56, 57, 58, 90])
def test_a_clear_boundary_is_found_from_any_guess(load, largest, guess):
    truth = load("truth").largest_fitting(lambda size, attempt: size <= largest, guess)
    assert (truth.largest, truth.flips) == (largest, False)


def test_a_size_that_fails_once_in_three_is_not_the_truth_and_is_marked(load):
    def fits(size: int, attempt: int) -> bool:
        return size <= 40 or (size == 41 and attempt != 2)

    truth = load("truth").largest_fitting(fits, 38)
    assert (truth.largest, truth.flips) == (40, True)


def test_a_gap_is_marked(load):
    truth = load("truth").largest_fitting(lambda size, attempt: size <= 20 or size == 22, 18)
    assert (truth.largest, truth.flips) == (20, True)


def test_the_page_counts_what_the_cells_say(load, tmp_path):
    cell = {"trials": 3, "out_of_memory": 0, "steps": 9, "processor": 10.0, "wall": 12.0, "error": ""}
    cells = {
        ("a-1GB", "truth"): {"found": 57, "flips": False},
        ("b-1GB", "truth"): {"found": 20, "flips": True},
        ("a-1GB", "batchlab"): {**cell, "found": 57},
        ("b-1GB", "batchlab"): {**cell, "found": 21},
        ("a-1GB", "binsearch"): {**cell, "found": 54, "trials": 11, "out_of_memory": 3, "steps": 27, "processor": 40.0},
        ("b-1GB", "accelerate"): {**cell, "found": None, "error": "could not create a primitive\nmore"},
    }
    load("table").write_results(["a-1GB", "b-1GB", "c-1GB"], cells, tmp_path)
    page, table = (tmp_path / "results.md").read_text(), (tmp_path / "results.csv").read_text()
    assert "- batchlab: exact on 2 of 2 rows, 3 to 3 probes, 0 out of memory in all." in page
    assert "- Lightning binsearch: exact on 0 of 1 rows" in page
    assert "3.0 to 3.0 times batchlab's training steps" in page
    assert "| a-1GB | 57 | 57 | not run | not run | 54 (-5%) | not run | not run |" in page
    assert "| b-1GB | 20* | 21 (+5%) |" in page
    assert "40 (4.0×)" in page
    assert "c-1GB" not in page
    assert len(table.splitlines()) == 1 + 4
    assert table.splitlines()[-1].endswith("could not create a primitive")


TASK = """
import numpy as np, torch, batchlab
random = np.random.default_rng(0)
x, y = random.standard_normal((256, 8192)).astype(np.float32), random.integers(0, 10, 256)
task = batchlab.task(
    model=lambda: torch.nn.Sequential(
        torch.nn.Unflatten(1, (64, 128)), torch.nn.Linear(128, 8192), torch.nn.GELU(), torch.nn.Linear(8192, 128),
        torch.nn.Flatten(), torch.nn.Linear(8192, 10),
    ),
    loss=lambda model, x, y: torch.nn.functional.cross_entropy(model(x), y),
    train=(x[:192], y[:192]),
    valid=(x[192:], y[192:]),
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
"""


NEEDED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import child, torch

def mapped(field):
    (line,) = (line for line in open("/proc/self/status") if line.startswith(field))
    return int(line.split()[1]) * 1024

torch.set_num_threads(1)
workload = child.Workload(Path(sys.argv[2]))
child.warm_up(workload, "fits")
child.bound(2**40)  # frees what it does not need
before = mapped("VmSize:")
for size in (20, 24):
    child.probe(workload, size, child.Account())
    print(mapped("VmPeak:") - before, end=" ")
"""


def output(environment: dict[str, str], *command: str) -> str:
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environment, check=True
    ).stdout.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA bounds memory on Linux only")
def test_batchlab_finds_the_truth_of_a_small_model(load, tmp_path):
    """The benchmark's own definition without its repetitions: the largest size that passes in a fresh process, which
    knows nothing of batchlab's search.

    What kernels allocate differs between processors, and what a process holds by itself by up to a megabyte from one to
    the next. The limit therefore lies half a sample, 3 MB, above what 20 samples need here.
    """
    path = tmp_path / "small.py"
    path.write_text(TASK)
    environment = {**os.environ, **load("run").ENVIRONMENT}
    twenty, more = map(int, output(environment, "-c", NEEDED, str(BENCHMARK), str(path)).split())
    sample = (more - twenty) // 4
    assert sample > 5e6
    limit = twenty + sample // 2
    answer = load("ours").ask_batchlab(path, limit, "batchlab", environment)
    assert answer["found"], answer

    @functools.cache
    def fits(size: int) -> bool:
        found = output(environment, str(BENCHMARK / "child.py"), str(path), f"fits-{size}", str(limit))
        return json.loads(found)["found"] is not None

    truth = load("truth").largest_fitting(lambda size, attempt: fits(size), answer["found"])
    assert load("table").is_exact(answer["found"], {"found": truth.largest, "flips": truth.flips}), (answer, truth)
