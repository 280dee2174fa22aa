"""A parameter group of an optimizer: what is swept is one learning rate, and every group has a fixed multiple of it."""

from __future__ import annotations

from pydantic import Field

from batchlab.core.batch import Frozen


class OptimizerGroup(Frozen):
    """Settings of one parameter group at one batch size; None where its optimizer has no such setting."""

    optimizer: str = Field(description="name of the optimizer's class, e.g. Muon")
    learning_rate_ratio: float = Field(description="its learning rate ÷ the one that is swept, at every step")
    weight_decay: float | None = None
    beta1: float | None = None
    beta2: float | None = None
    epsilon: float | None = Field(default=None, description="Adam's, where the group has betas")
    sized_like_adamw: bool = Field(
        default=False, description="Muon: its updates have the root mean square of AdamW's (match_rms_adamw)"
    )
    parameter_count: int = Field(description="trainable parameters")
