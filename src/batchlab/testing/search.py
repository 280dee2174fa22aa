"""What every Search promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from batchlab.core.protocols import Search
from batchlab.testing.requirement import require

Question = TypeVar("Question")
Answer = TypeVar("Answer")


def check_search(
    make_search: Callable[[], Search[Question, Answer]],
    outcome: Callable[[Question], Answer],
    *,
    max_rounds: int = 1000,
) -> list[Question]:
    """Rounds end, repeat, and depend on outcomes alone; returns the proposals. `outcome` answers one proposal."""
    search, twin = make_search(), make_search()
    proposals: list[Question] = []
    for _ in range(max_rounds):
        asked = list(search.ask())
        require(list(search.ask()) == asked, "asking again before telling gives the same round")
        require(list(twin.ask()) == asked, "a second search that was told the same asks the same")
        if not asked:
            break
        answers = [outcome(proposal) for proposal in asked]
        search.tell(asked, answers)
        twin.tell(asked, answers)
        proposals += asked
    else:
        raise AssertionError(f"the search still asks after {max_rounds} rounds")
    require(not list(search.ask()), "a search that is done stays done")
    return proposals
