"""What the judged studies say together: shares with Wilson intervals, quantiles of costs, goals held or missed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Study = Mapping[str, Any]
"""A judged study, as `Judged.as_json` gives it."""

TRAIN_WITH, QUALITY = "TRAIN WITH", "quality"
Z = 1.959963984540054
ENOUGH = 200
"""Studies of a family from which on it is judged."""

TOLERANCE = 3.0
"""Percent of tokens: what a recommendation may cost more than the best."""

ALIKE = 50.0
"""Percent of tokens up to which two ways to tell a cost in tokens differ by less than their intervals."""

TOLD = ("rate_at_larger_batch", "rate_at_larger_budget", "batch_at_larger_budget")


@dataclass(frozen=True, slots=True)
class Share:
    """k of n with its 95 % Wilson interval (Wilson 1927), in percent."""

    k: int
    n: int

    @property
    def percent(self) -> float:
        return 100 * self.k / self.n if self.n else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        if not self.n:
            return math.nan, math.nan
        p, n = self.k / self.n, self.n
        middle, spread = p + Z**2 / (2 * n), Z * math.sqrt(p * (1 - p) / n + Z**2 / (4 * n * n))
        low, high = (middle - spread) / (1 + Z**2 / n), (middle + spread) / (1 + Z**2 / n)
        return 100 * low, 100 * high

    def __str__(self) -> str:
        if not self.n:
            return "–"
        low, high = self.interval
        return f"{self.percent:.1f} [{low:.1f}, {high:.1f}]"


def share(answers: Iterable[bool | None]) -> Share:
    """Of those that are not None."""
    known = [bool(answer) for answer in answers if answer is not None]
    return Share(sum(known), len(known))


def quoted_covers(study: Study) -> bool | None:
    """Whether the quoted interval holds the true expected loss of the cell that it is quoted for."""
    if study["quoted"] is None or study["quoted"][1] is None:
        return None
    _, low, high, truth = study["quoted"]
    return bool(low <= truth <= high)


def row_covers(studies: Sequence[Study], *, lone: bool | None = None) -> Share:
    """Whether the interval of each batch size holds the truth; `lone`: only of sizes with a single seed, or without."""
    rows = [row for study in studies for row in study["rows"]]
    return share(covers for seeds, covers in rows if lone is None or (seeds == 1) == lone)


def costs(studies: Sequence[Study], goal: str, kind: str) -> list[float]:
    return [cost[kind] for study in studies for cost in study["costs"] if cost["goal"] == goal]


def exceeded(studies: Sequence[Study], kind: str = "token_percent") -> Share:
    """How often TRAIN WITH costs more tokens than the tolerance. A study without an answer recommends nothing."""
    return share(cost > TOLERANCE for cost in costs(studies, TRAIN_WITH, kind))


def cost_covers(study: Study) -> list[bool]:
    """Of each batch size that a study compares with its best cell: whether the interval of its tokens has the truth.

    Only where that is at most `ALIKE`: the study tells how much longer the cell would have to train, which is more than
    D/D′ − 1 where the loss falls ever more slowly.
    """
    known = [one for one in study["compared"] if one["low"] is not None and one["truth"] <= ALIKE]
    return [one["low"] <= one["truth"] <= one["high"] for one in known]


def wrongly_shown(study: Study) -> list[bool]:
    """Of each batch size that is said to cost no more than the tolerance: whether it does."""
    return [one["truth"] > TOLERANCE for one in study["compared"] if one["shown"]]


def capacity_errors(studies: Sequence[Study]) -> Share:
    return share(study["capacity"][0] != study["capacity"][1] for study in studies)


def covers(study: Study, name: str) -> bool | None:
    """Whether the interval of an extrapolated number holds the truth; None where none was given."""
    for told in study["told"]:
        if told["name"] == name and told["low"] is not None:
            return bool(told["low"] <= told["truth"] <= told["high"])
    return None


def quantiles(values: Sequence[float]) -> str:
    """Median / 90th percentile / maximum; each is one of the values, so that infinity is no trouble."""
    if not values:
        return "–"
    ordered = np.sort(np.array(values, dtype=float))
    found = [ordered[min(len(ordered) - 1, math.ceil(q * len(ordered)) - 1 if q else 0)] for q in (0.5, 0.9, 1.0)]
    return " / ".join("∞" if math.isinf(value) else f"{value:.2f}" for value in found)


def p90(values: Sequence[float]) -> float:
    return float(np.sort(np.array(values))[math.ceil(0.9 * len(values)) - 1]) if values else math.nan


# Goals


@dataclass(frozen=True, slots=True)
class Goal:
    """`held` None: too few studies to judge."""

    name: str
    group: str
    found: str
    held: bool | None


def goals(groups: Mapping[str, Sequence[Study]]) -> list[Goal]:
    """Every goal in every group."""
    return [goal for name, studies in groups.items() for goal in _goals_of(name, studies)]


def _goals_of(group: str, studies: Sequence[Study]) -> list[Goal]:
    over, quoted = exceeded(studies), share(map(quoted_covers, studies))
    rows, tied = row_covers(studies), share(s["best_tried_tied"] for s in studies)
    quality = p90(costs(studies, QUALITY, "loss_percent"))
    low, high = quoted.interval
    results = (
        (f"cost above {TOLERANCE:g} % of tokens in at most 5 %", str(over), over.percent <= 5),
        ("quality: p90 at most 0.2 % of the loss", f"{quality:.3f} %", quality <= 0.2),
        ("95 % within the Wilson interval of the quoted intervals' coverage", str(quoted), low <= 95 <= high),
        ("all rows' intervals cover at least 92 %", str(rows), rows.percent >= 92),
        ("true best of the tried cells in the set of ties at least 95 %", str(tied), tied.percent >= 95),
    )
    judged = len(studies) >= ENOUGH
    return [Goal(name, group, found, bool(held) if judged else None) for name, found, held in results]


# Tables


Column = tuple[str, Callable[[Sequence[Study]], str]]

ANSWERS: tuple[Column, ...] = (
    ("n", lambda s: str(len(s))),
    ("runs", lambda s: f"{np.median([study['runs'] for study in s]):.0f}"),
    ("no answer", lambda s: str(sum(not study["answered"] for study in s))),
    ("quoted interval covers %", lambda s: str(share(map(quoted_covers, s)))),
    ("rows' intervals cover %", lambda s: str(row_covers(s))),
    ("rows of one seed %", lambda s: str(row_covers(s, lone=True))),
    ("best tried cell tied %", lambda s: str(share(study["best_tried_tied"] for study in s))),
    ("best size tied %", lambda s: str(share(study["best_size_tied"] for study in s))),
    ("cost > 3 % tokens, %", lambda s: str(exceeded(s))),
    ("the same against tried cells, %", lambda s: str(exceeded(s, "tried_token_percent"))),
    ("tokens' intervals cover %", lambda s: str(share(one for study in s for one in cost_covers(study)))),
    ("shown within 3 %, but not %", lambda s: str(share(one for study in s for one in wrongly_shown(study)))),
    ("wrong capacity", lambda s: f"{capacity_errors(s).k} of {len(s)}"),
)


def _cost_columns(kind: str) -> tuple[Column, ...]:
    def column(goal: str) -> Column:
        return goal, lambda s: quantiles(costs(s, goal, kind))

    return tuple(column(goal) for goal in (TRAIN_WITH, QUALITY, "fastest", "soonest", "cheapest", "largest"))


def _told_columns() -> tuple[Column, ...]:
    def column(name: str) -> Column:
        return name.replace("_", " "), lambda s: str(share(covers(study, name) for study in s))

    return tuple(column(name) for name in TOLD)


def table(groups: Mapping[str, Sequence[Study]], columns: Sequence[Column]) -> list[str]:
    lines = ["| | " + " | ".join(name for name, _ in columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for group, studies in groups.items():
        lines.append(f"| {group} | " + " | ".join(cell(studies) for _, cell in columns) + " |")
    return lines


def groups_of(studies: Sequence[Study], families: Iterable[str]) -> dict[str, list[Study]]:
    """By family, by search, all."""
    groups = {family: [study for study in studies if study["family"] == family] for family in families}
    groups |= {search: [study for study in studies if study["search"] == search] for search in ("grid", "adaptive")}
    return {name: found for name, found in {**groups, "all": list(studies)}.items() if found}


def pages(studies: Sequence[Study], families: Iterable[str]) -> list[str]:
    """The tables of results.md."""
    groups = groups_of(studies, families)
    goal_lines = ["| goal | studies | found | |", "|---|---|---|---|"]
    said = {None: f"not judged (n < {ENOUGH})", True: "held", False: "**missed**"}
    goal_lines += [f"| {g.name} | {g.group} | {g.found} | {said[g.held]} |" for g in goals(groups)]
    return [
        "## Goals",
        "",
        *goal_lines,
        "",
        "## Answers",
        "",
        *table(groups, ANSWERS),
        "",
        "## Cost in percent of the loss: median / p90 / maximum",
        "",
        *table(groups, _cost_columns("loss_percent")),
        "",
        "## Cost in percent of the tokens",
        "",
        *table(groups, _cost_columns("token_percent")),
        "",
        "## Cost in percent of the time to the best loss",
        "",
        *table(groups, _cost_columns("time_percent")),
        "",
        "## Coverage of extrapolations, %",
        "",
        *table(groups, _told_columns()),
    ]


def aggregates(studies: Sequence[Study], families: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The same numbers for programs: per group, counts as [k, n]."""
    return {
        name: {
            "n": len(found),
            "quoted": _counts(share(map(quoted_covers, found))),
            "rows": _counts(row_covers(found)),
            "best_tried_tied": _counts(share(study["best_tried_tied"] for study in found)),
            "exceeded": _counts(exceeded(found)),
            "wrong_capacity": _counts(capacity_errors(found)),
            "quality_p90_loss_percent": p90(costs(found, QUALITY, "loss_percent")),
            "train_with_p90_token_percent": p90(costs(found, TRAIN_WITH, "token_percent")),
            "told": {name: _counts(share(covers(study, name) for study in found)) for name in TOLD},
        }
        for name, found in groups_of(studies, families).items()
    }


def _counts(found: Share) -> list[int]:
    return [found.k, found.n]
