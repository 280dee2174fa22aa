"""Contract test for Search."""

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
    """Check that the search terminates, and that its rounds are repeatable and depend on outcomes alone.

    `outcome` returns the outcome of one proposal. Returns all proposals. Raises AssertionError for the first violated
    requirement.
    """
    search, twin = make_search(), make_search()
    proposals: list[Question] = []
    for _ in range(max_rounds):
        asked = list(search.ask())
        require(list(search.ask()) == asked, "ask() must return the same round until tell() is called")
        require(list(twin.ask()) == asked, "two searches with the same outcomes must propose the same")
        if not asked:
            break
        answers = [outcome(proposal) for proposal in asked]
        search.tell(asked, answers)
        twin.tell(asked, answers)
        proposals += asked
    else:
        raise AssertionError(f"the search has not finished after {max_rounds} rounds")
    require(not list(search.ask()), "a finished search must stay finished")
    return proposals
