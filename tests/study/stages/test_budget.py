"""How many tokens a time budget buys, by the cards that runs are spread over."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from batchlab.core.batch import Unit
from batchlab.core.experiment import build_experiment
from batchlab.core.worker import WorkerCommand
from batchlab.engines.hosts import Host
from batchlab.engines.resources import Concurrency
from batchlab.storage.store import Store
from batchlab.study.session import Session
from batchlab.study.stages import budget
from batchlab.study.stages.budget import budget_stage


def planned(folder: Path, device: str, workers: int, hosts: Sequence[Host] = (), devices: int = 1) -> int:
    """Tokens of every run, planned for ten minutes on the cards that are visible, or on these hosts."""
    experiment = build_experiment(
        {
            "name": "planned",
            "task": {"kind": "recipe", "target": "simulated"},
            "unit": Unit.TOKENS,
            "batch": {"global_batch_sizes": [4, 8]},
            "sweep": {"learning_rates": [1e-3, 2e-3]},
            "budget": {"time_budget_seconds": 600.0},
            "device": {"data_parallel_size": devices},
        }
    )
    store = Store.create(folder, experiment)
    task_info = SimpleNamespace(device=device, train_samples=10**9, optimizer_family="adam")
    study = SimpleNamespace(experiment=experiment, task_info=task_info, store=store)
    session = cast("Session", SimpleNamespace(study=study, hosts=hosts))
    return budget_stage(session, {4: 1000.0, 8: 1500.0}, Concurrency(workers, 1)).token_budget


@pytest.fixture
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`tokens(device, cards)`: tokens of every run where so many cards are visible."""

    def on_cards(device: str, cards: int) -> int:
        monkeypatch.setattr(budget, "visible_cards", lambda: tuple(map(str, range(cards))))
        return planned(tmp_path / f"{device}-{cards}", device, cards if device == "cuda" else 1)

    return on_cards


def test_eight_cards_train_eight_times_the_tokens_in_the_same_time(tokens: Any) -> None:
    assert tokens("cuda", 8) == pytest.approx(8 * tokens("cuda", 1), rel=0.02)


def test_one_card_that_is_named_is_one_card(tokens: Any) -> None:
    assert tokens("cuda:3", 8) == tokens("cuda", 1)


def test_cards_of_other_machines_count(tmp_path: Path) -> None:
    def machine(name: str, cards: int) -> Host:
        return Host(name, WorkerCommand(("worker",), prefix=("ssh", name)), cards, 32, tuple(map(str, range(cards))))

    one = planned(tmp_path / "one", "cuda", 1, [machine("a", 1)])
    assert planned(tmp_path / "all", "cuda", 12, [machine("a", 8), machine("b", 4)]) == pytest.approx(
        12 * one, rel=0.02
    )
    pairs = planned(tmp_path / "pairs", "cuda", 6, [machine("a", 8), machine("b", 4), machine("c", 1)], devices=2)
    assert pairs == pytest.approx(6 * one, rel=0.02), "no pair is on c"
    allocated = [Host("srun", WorkerCommand(("worker",), prefix=("srun",)), 5, 20, ("0",), allocates=True)]
    assert planned(tmp_path / "srun", "cuda", 5, allocated) == pytest.approx(5 * one, rel=0.02)
