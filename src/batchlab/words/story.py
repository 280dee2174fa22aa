"""The story of a study: everything that the report and the summary say in sentences, told from the findings."""

from __future__ import annotations

from dataclasses import dataclass

from batchlab.analysis.findings import Findings
from batchlab.words.conclusions import conclusions
from batchlab.words.failures import Failure, failures
from batchlab.words.trust import Answer, TrustItem, answers, trust_items, unknown


@dataclass(frozen=True, slots=True)
class Story:
    """trust: the conditions under which the numbers hold. answers: the questions of the first screen. unknown: what
    the study does not say. failures: what went wrong, with remedies. conclusions: one computed sentence each."""

    trust: tuple[TrustItem, ...]
    answers: tuple[Answer, ...]
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
