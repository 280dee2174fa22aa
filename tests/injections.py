"""A table of what was done to studies on purpose, at the end of a test run: what, how often, where, what came of it.

A test notes a row with `record_property("injection", row)`; rows of the same name are added up, also those of other
processes. A row about one history counts as failed where its test fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypedDict


class Injection(TypedDict):
    """One row. `points`: distinct places where it hit, by name; none where these are not known.

    refused: histories that passed in which a command ended with a sentence first, before the same command went on.
    """

    what: str
    times: int
    histories: int
    refused: int
    failed: int
    points: Sequence[str]


def injection(
    what: str, times: int, *, histories: int = 1, refused: int = 0, failed: int = 0, points: Iterable[str] = ()
) -> Injection:
    """A row for `record_property`."""
    return Injection(
        what=what, times=times, histories=histories, refused=refused, failed=failed, points=sorted(set(points))
    )


def added_up(rows: Iterable[Injection]) -> list[Injection]:
    """One row for each name, in the order in which the names came first."""
    sums: dict[str, Injection] = {}
    for row in rows:
        known = sums.get(row["what"], injection(row["what"], 0, histories=0))
        sums[row["what"]] = injection(
            row["what"],
            known["times"] + row["times"],
            histories=known["histories"] + row["histories"],
            refused=known["refused"] + row["refused"],
            failed=known["failed"] + row["failed"],
            points=[*known["points"], *row["points"]],
        )
    return list(sums.values())


def table(rows: Iterable[Injection]) -> list[str]:
    """Lines for a terminal."""
    found = added_up(rows)
    width = max(len(row["what"]) for row in found)
    lines = [f"{'injected':<{width}}    times  histories  points  passed  (refused)  failed"]
    for row in found:
        points = str(len(row["points"])) if row["points"] else "–"
        passed, refused = row["histories"] - row["failed"], f"({row['refused']})"
        counts = f"{row['times']:>7}  {row['histories']:>9}  {points:>6}  {passed:>6}  {refused:>9}  {row['failed']:>6}"
        lines.append(f"{row['what']:<{width}}  {counts}")
    return [*lines, *_LEGEND]


_LEGEND = (
    "",
    "times: how often it was done. histories: studies, or inputs, that it was done to; most met several things.",
    "points: distinct places, a file operation of one process on one kind of file. passed: the same command got to the",
    "end, with the conclusions of an undisturbed study, nothing lost and nothing left over; (refused): of these, where",
    "a command ended with a sentence on the way. An input passes where it is done or refused with a sentence.",
)


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
