"""A table of what was done to studies on purpose, at the end of a test run: what, how often, where, what came of it.

A test notes a row with `record_property("injection", row)`; rows of the same name are added up, also those of other
processes. A row about one history counts as failed where its test fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypedDict


class Injection(TypedDict):
    """One row. `points`: distinct places where it hit, by name; none where these are not known."""

    what: str
    times: int
    histories: int
    failed: int
    points: Sequence[str]


def injection(what: str, times: int, *, histories: int = 1, failed: int = 0, points: Iterable[str] = ()) -> Injection:
    """A row for `record_property`."""
    return Injection(what=what, times=times, histories=histories, failed=failed, points=sorted(set(points)))


def added_up(rows: Iterable[Injection]) -> list[Injection]:
    """One row for each name, in the order in which the names came first."""
    sums: dict[str, Injection] = {}
    for row in rows:
        known = sums.get(row["what"], injection(row["what"], 0, histories=0))
        sums[row["what"]] = injection(
            row["what"],
            known["times"] + row["times"],
            histories=known["histories"] + row["histories"],
            failed=known["failed"] + row["failed"],
            points=[*known["points"], *row["points"]],
        )
    return list(sums.values())


def table(rows: Iterable[Injection]) -> list[str]:
    """Lines for a terminal."""
    found = added_up(rows)
    width = max(len(row["what"]) for row in found)
    lines = [f"{'injected':<{width}}    times  histories  points  passed  failed"]
    for row in found:
        points = str(len(row["points"])) if row["points"] else "–"
        passed = row["histories"] - row["failed"]
        counts = f"{row['times']:>7}  {row['histories']:>9}  {points:>6}  {passed:>6}  {row['failed']:>6}"
        lines.append(f"{row['what']:<{width}}  {counts}")
    return lines


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the rows of all tests that noted one."""
    noted: list[Injection] = []
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            rows: list[Any] = [value for name, value in report.user_properties if name == "injection"]
            if outcome == "failed":
                rows = [{**row, "failed": max(1, row["failed"])} if row["histories"] == 1 else row for row in rows]
            noted += rows
    if noted:
        terminalreporter.section("injected faults", sep="-")
        for line in table(noted):
            terminalreporter.write_line(line)
