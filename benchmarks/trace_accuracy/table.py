"""The trace's errors before and after calibration, as tables."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

LARGE = 0.05


class Measured(Protocol):
    """A row of cases.csv."""

    @property
    def workload(self) -> str: ...
    @property
    def setting(self) -> str: ...
    @property
    def phase(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def traced(self) -> int: ...
    @property
    def measured(self) -> int: ...


class Error(NamedTuple):
    """Relative errors of one case; a positive error means that the prediction is too high.

    crosswise: calibrated with the other two sizes. searched: the same if this is the largest size, which the capacity
    search predicts from the smaller two; None for the other sizes.
    """

    case: Measured
    raw: float
    crosswise: float
    searched: float | None


def errors(cases: Iterable[Measured]) -> list[Error]:
    """Each case raw, and calibrated with the other sizes of its model, setting and phase."""
    groups: dict[tuple[str, str, str], list[Measured]] = {}
    for case in cases:
        groups.setdefault((case.workload, case.setting, case.phase), []).append(case)
    return [_error(case, group) for group in groups.values() for case in group]


def _error(case: Measured, group: Sequence[Measured]) -> Error:
    crosswise = calibrated(case, [other for other in group if other is not case]) / case.measured - 1
    largest = case.size == max(other.size for other in group)
    return Error(case, case.traced / case.measured - 1, crosswise, crosswise if largest else None)


def calibrated(case: Measured, probes: Sequence[Measured]) -> float:
    """The traced peak plus the value at this size of the line through the probes' shortfalls, in bytes."""
    one, other = probes
    slope = ((other.measured - other.traced) - (one.measured - one.traced)) / (other.size - one.size)
    return case.traced + (one.measured - one.traced) + slope * (case.size - one.size)


def write_results(cases: Sequence[Measured], path: Path, header: str, reasons: dict[str, str]) -> None:
    """`reasons`: why the error of a case stays above 5 % after calibration, by the start of its name."""
    found = errors(cases)
    searched = [error.searched for error in found if error.searched is not None]
    crosswise = [error.crosswise for error in found]
    large = [error for error in found if abs(error.crosswise) > LARGE]
    sections = [
        "# Trace accuracy: results\n",
        header,
        "Absolute errors:\n",
        f"- calibrated as in the capacity search (N from the line through N/4 and N/2), {len(searched)} cases:\n"
        f"  median {_median(searched):.2%}, largest {_largest(searched):.2%} (goals: 1 % and 5 %);\n"
        f"- each size calibrated with the other two, so also downwards and in between, {len(found)} cases:\n"
        f"  median {_median(crosswise):.2%}, largest {_largest(crosswise):.2%};\n"
        f"- raw: median {_median(e.raw for e in found):.2%}, largest {_largest(e.raw for e in found):.1%}.\n",
        "## By setting\n",
        _by(found, lambda case: f"{case.phase}, {case.setting}", "phase, setting"),
        "## By model\n",
        _by(found, lambda case: case.workload, "model"),
        "## Above 5 % after calibration\n",
        _large(large, reasons) if large else "None.\n",
        "## Every case\n",
        "Raw error at N/4, N/2 and N; error at N, calibrated with the other two.\n",
        _every(found),
    ]
    path.write_text("\n".join(sections), encoding="utf-8")


def _by(found: list[Error], key: Callable[[Measured], str], title: str) -> str:
    groups: dict[str, list[Error]] = {}
    for error in found:
        groups.setdefault(key(error.case), []).append(error)
    lines = [
        f"| {title} | n | raw: median | largest | N from N/4, N/2: median | largest | each from the others: median | "
        "largest |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, group in groups.items():
        columns = (
            [e.raw for e in group],
            [e.searched for e in group if e.searched is not None],
            [e.crosswise for e in group],
        )
        cells = [cell for column in columns for cell in (_median(column), _largest(column))]
        lines.append(f"| {name} | {len(group)} | " + " | ".join(f"{cell:.2%}" for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _large(largest: list[Error], reasons: dict[str, str]) -> str:
    lines = ["| case | size | raw | from the other two | as in the search | why |", "|---|---|---|---|---|---|"]
    for error in largest:
        case = error.case
        name = f"{case.workload}, {case.setting}, {case.phase}"
        why = next((reason for start, reason in reasons.items() if name.startswith(start)), "not explained")
        searched = "not used" if error.searched is None else f"{error.searched:+.2%}"
        lines.append(f"| {name} | {case.size} | {error.raw:+.2%} | {error.crosswise:+.2%} | {searched} | {why} |")
    return "\n".join(lines) + "\n"


def _every(found: list[Error]) -> str:
    rows: dict[tuple[str, str, str], list[Error]] = {}
    for error in found:
        rows.setdefault((error.case.workload, error.case.phase, error.case.setting), []).append(error)
    lines = ["| model | phase, setting | sizes | measured MiB at N | raw | calibrated |", "|---|---|---|---|---|---|"]
    for (model, phase, setting), group in rows.items():
        sizes = ", ".join(str(error.case.size) for error in group)
        raw = ", ".join(f"{error.raw:+.2%}" for error in group)
        last = group[-1]
        lines.append(
            f"| {model} | {phase}, {setting} | {sizes} | {last.case.measured / 2**20:.1f} | {raw} | "
            f"{last.crosswise:+.2%} |"
        )
    return "\n".join(lines) + "\n"


def _median(values: Iterable[float]) -> float:
    return statistics.median(abs(value) for value in values)


def _largest(values: Iterable[float]) -> float:
    return max(abs(value) for value in values)
