"""Every number on the first screen is that of results.csv, of the question that was asked, or made of these."""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from batchlab.core.experiment import build_experiment
from batchlab.core.format import format_count, format_learning_rate, format_percent, format_plural
from batchlab.core.settings import merge
from batchlab.engines.inline import InlineEngine
from batchlab.storage.store import Store
from batchlab.study.documents import read_findings
from batchlab.study.progress import SilentView
from batchlab.study.study import run_study
from batchlab.study.task_source import resolve_task
from batchlab.words.costs import describe_cost, describe_time

NUMBER = re.compile(r"−?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?:[kMBT]\b)?")


class FirstScreen(HTMLParser):
    """What is read in the header: its text, without what is folded away, and the plots' numbers."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self._folded = 0
        self.feed(page[page.index('<header id="first-screen">') : page.index("</header>")])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._folded += tag == "details"

    def handle_endtag(self, tag: str) -> None:
        self._folded -= tag == "details"

    def handle_data(self, data: str) -> None:
        if not self._folded:
            self.text.append(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("first-screen") / "study"
    values = merge(
        resolve_task("simulated"),
        {
            "batch": {"global_batch_sizes": (8, 16, 32, 64)},
            "sweep": {"learning_rates": (0.4, 0.8, 1.6), "seeds": 3, "confirm": 0},
            "budget": {"token_budget": 16384},
        },
    )
    run_study(build_experiment(values), path, lambda where, workers: InlineEngine(where), SilentView())
    return path


@pytest.fixture(scope="module")
def rows(folder: Path) -> list[dict[str, str]]:
    """Without the shorter runs that tell what extra tokens are worth."""
    with (folder / "results.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    budget = max(int(row["token_budget"]) for row in found if row["kind"] == "train")
    return [row for row in found if row["kind"] != "train" or int(row["token_budget"]) == budget]


def trained(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    return [row for row in rows if row["kind"] == "train"]


def losses(rows: list[dict[str, str]]) -> dict[tuple[int, float], list[float]]:
    """(batch size, learning rate) → the loss of every seed."""
    found: dict[tuple[int, float], list[float]] = defaultdict(list)
    for row in trained(rows):
        if row["outcome"] == "completed":
            found[int(row["global_batch_size"]), float(row["learning_rate"])].append(float(row["val_loss"]))
    return found


def speeds(rows: list[dict[str, str]]) -> dict[int, float]:
    return {
        int(row["global_batch_size"]): float(row["tokens_per_second"]) for row in rows if row["kind"] == "throughput"
    }


def known(folder: Path, rows: list[dict[str, str]]) -> Iterator[str]:
    """Every text that a number of the first screen may come from."""
    experiment = json.loads((folder / "experiment.json").read_text())
    cells, measured = losses(rows), speeds(rows)
    budgets = {int(row["tokens"]) for row in trained(rows) if row["outcome"] == "completed"}
    (budget,) = budgets
    yield from (f"{size:,}" for size in measured)
    yield from (format_learning_rate(rate) for _, rate in cells)
    yield f"{format_count(budget)} {budget:,}"
    yield format_count(experiment["schedule"]["warmup_fraction"] * budget)
    yield from (format_plural(len(of_cell), "run") for of_cell in cells.values())
    yield format_plural(sum(map(len, cells.values())), "run")
    tried = Counter(
        int(size) for size, _ in {(row["global_batch_size"], row["learning_rate"]) for row in trained(rows)}
    )
    yield f"{len(tried)} {min(tried.values())} {max(tried.values())}"
    yield format_percent(experiment["sweep"]["tolerance"])
    for row in rows:
        if row["kind"] in ("train", "throughput"):
            yield f"{row['micro_batch_size']} {row['grad_accum_steps']} {row['data_parallel_size']}"
            yield f"{int(row['tokens_per_step']):,}"
        if row["kind"] == "capacity":
            yield f"{int(row['micro_batch_size']):,} {int(row['micro_batch_size']) + 1:,}"
    yield "95 %"  # of intervals
    found = read_findings(Store.open(folder))
    assert found.surface is not None
    assert found.surface.best is not None
    best = found.surface.best
    assert best.best is not None
    at_best = cells[best.global_batch_size, best.best.learning_rate]
    if found.surface.evaluation_sd:
        yield f"{found.surface.evaluation_sd:.3g} {found.surface.evaluation_sd:.3f}"
    yield f"{fmean(at_best):.3f}"
    # what differences are made of: extra tokens come from the loss difference and the curves of the runs
    for cost in found.costs:
        of_size = cells[cost.global_batch_size, cost.learning_rate]
        if cost.by is not None and len(of_size) == len(at_best):
            assert cost.loss.value == pytest.approx(fmean(of_size) - fmean(at_best))
        if cost.time_per_token is not None:
            ratio = measured[best.global_batch_size] / measured[cost.global_batch_size]
            assert cost.time_per_token == pytest.approx(ratio)
            yield format_percent(abs(1 - ratio))
        yield f"{describe_cost(cost, found.experiment.unit)} {describe_time(cost)} {cost.more_seeds or ''}"
        yield f"{abs(cost.loss.value):.3f} {abs(cost.loss.value):.3g}"


def test_extra_tokens_follow_from_the_losses_of_results_csv(folder: Path) -> None:
    """What a higher loss costs: the fall between the runs at half the budget and those at the whole one."""
    with (folder / "results.csv").open(newline="") as file:
        done = [row for row in csv.DictReader(file) if row["kind"] == "train" and row["outcome"] == "completed"]
    budget = max(int(row["token_budget"]) for row in done)
    found = read_findings(Store.open(folder))
    slope = found.slope
    assert slope is not None

    def mean(tokens: float) -> float:
        place = (str(slope.global_batch_size), slope.learning_rate) if slope else ()
        rows = [row for row in done if (row["global_batch_size"], float(row["learning_rate"])) == place]
        return fmean(float(row["val_loss"]) for row in rows if int(row["token_budget"]) == tokens)

    assert slope.drop.value == pytest.approx(mean(budget / slope.factor) - mean(budget))
    told = [cost for cost in found.costs if cost.tokens is not None and math.isfinite(cost.tokens.value)]
    assert told
    for cost in told:
        assert cost.tokens is not None
        left = 1 - cost.loss.value / slope.drop.value * (slope.factor ** (1 / 3) - 1)
        assert cost.tokens.value == pytest.approx(left**-3 - 1)  # a power law with an exponent of one third


def test_every_number_is_known(folder: Path, rows: list[dict[str, str]]) -> None:
    said = " ".join(FirstScreen((folder / "report.html").read_text()).text)
    allowed = {number for text in known(folder, rows) for number in NUMBER.findall(text)}
    unknown = [number for number in NUMBER.findall(said) if number not in allowed]
    assert len(NUMBER.findall(said)) > 15
    assert unknown == [], said


def test_every_point_of_the_picture_is_a_mean_of_results_csv(folder: Path, rows: list[dict[str, str]]) -> None:
    page = (folder / "report.html").read_text()
    figures: dict[str, Any] = json.loads(re.search(r'id="figures">(.*?)</script>', page).group(1))  # type: ignore[union-attr]
    cells, measured = losses(rows), speeds(rows)
    means = {(size, round(fmean(of_cell), 9)) for (size, _), of_cell in cells.items()}
    lowest = {size: min(mean for of, mean in means if of == size) for size, _ in means}
    data = figures["decision"]["data"]
    points = {x: y for trace in data if "error_y" in trace for x, y in zip(trace["x"], trace["y"], strict=True)}
    assert set(points) == set(lowest)
    assert {(size, round(loss, 9)) for size, loss in points.items()} <= means
    times = next(trace for trace in data if trace.get("name") == "training time")
    budget = float(max(row["token_budget"] for row in trained(rows)))
    ratios = {y * measured[x] / budget for x, y in zip(times["x"], times["y"], strict=True)}
    assert max(ratios) == pytest.approx(min(ratios))  # one unit of time for all
    assert (
        min(ratios) == pytest.approx(1)
        or min(ratios) == pytest.approx(1 / 60)
        or min(ratios) == pytest.approx(1 / 3600)
    )
