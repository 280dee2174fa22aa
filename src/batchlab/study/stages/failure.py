"""Why a study cannot continue with its next stage."""

from __future__ import annotations


class StageFailed(Exception):
    """A stage cannot provide what the next one needs; the text says why."""
