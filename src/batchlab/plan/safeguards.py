"""The parts of a plan for the person who starts it: what to look at before and during the run, and how it is saved."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from batchlab.core.batch import Frozen

CheckName = Literal["data", "code", "batchlab", "framework", "devices", "memory", "disk", "locks"]

SAVE_SECONDS = 30.0
"""Least time between two checkpoints of a run."""


class ChecklistItem(Frozen):
    """Something to look at before the run, as `batchlab train` does. Where one fails, it begins nothing."""

    name: CheckName
    needed: str = Field(default="", description="what the study had, or the least that is needed")
    text: str


class VerificationStep(Frozen):
    """Something to compare once the run goes, with the range in which the study's own runs were."""

    quantity: Literal["val_loss", "tokens_per_second", "peak_bytes"]
    after_step: int
    low: float | None = None
    high: float | None = None
    text: str


class CheckpointStrategy(Frozen):
    """How `batchlab train` saves a run. A checkpoint has all of its state: a run goes on as if never stopped."""

    every_seconds: float = Field(description="least time between two checkpoints")
    most_of_run: float = Field(description="share of the run that saving may take; above it checkpoints become rarer")
    state_bytes: int | None = Field(description="of one checkpoint, about; None where the parameters are not counted")
    disk_bytes: int | None = Field(description="of all that lie on the disk at once, about")
    resume: str = Field(description="the command that goes on from the last checkpoint")
