"""The names of what trains a person's code where batchlab's own loop does not: their script, or their Trainer."""

from __future__ import annotations

from typing import Literal

IntegrationName = Literal["script", "hf", "lightning"]
"""script: a command; hf: a Hugging Face Trainer; lightning: a LightningModule in Lightning's Trainer."""
