"""The story of a study: every sentence of the report, told from the findings."""

from __future__ import annotations

from dataclasses import dataclass

from batchlab.analysis.findings import Findings
from batchlab.words.answers import Answers, answers
from batchlab.words.conclusions import conclusions
from batchlab.words.failures import Failure, failures
from batchlab.words.trust import TrustItem, trust_items
from batchlab.words.unknown import unknown


@dataclass(frozen=True, slots=True)
class Story:
    """trust: the conditions under which the numbers hold. answers: the questions that sections answer. unknown: what
    the study does not answer. failures: what went wrong, with remedies. conclusions: one computed sentence each."""

    trust: tuple[TrustItem, ...]
    answers: Answers
    unknown: tuple[str, ...]
    failures: tuple[Failure, ...]
    conclusions: tuple[str, ...]


def tell(found: Findings) -> Story:
    """The story of these findings."""
    return Story(
        trust=trust_items(found),
        answers=answers(found),
        unknown=unknown(found),
        failures=failures(found),
        conclusions=conclusions(found),
    )
