"""Published laws of the best batch size and learning rate of language models, with what is doubtful about each.

Tokens throughout: `token_budget` D, `parameters` N, batch sizes in tokens per step. None was checked by us beyond the
Step Law table; the constants marked so were taken from secondary sources.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PublishedLaw:
    """Best batch (tokens per step) and learning rate for D tokens and N parameters; `learning_rate` None: not given."""

    name: str
    source: str
    batch_tokens: Callable[[float, float], float]
    learning_rate: Callable[[float, float], float] | None
    batch_formula: str
    learning_rate_formula: str
    doubt: str
    needs_parameters: bool = True

    @property
    def key(self) -> str:
        """The name as it is typed."""
        return self.name.lower().replace(" ", "-")


DEEPSEEK = PublishedLaw(
    "DeepSeek",
    "DeepSeek-AI 2024, arXiv:2401.02954",
    lambda tokens, parameters: 0.2920 * (6 * parameters * tokens) ** 0.3271,
    lambda tokens, parameters: 0.3118 * (6 * parameters * tokens) ** -0.1250,
    "0.2920 · C^0.3271 tokens, C = 6·N·D",
    "0.3118 · C^−0.1250, C = 6·N·D",
    "fitted along one path of D/N, so compute stands for both; C counted as 6·N·D here, by model scale there",
)
STEP_LAW = PublishedLaw(
    "Step Law",
    "Li et al. 2025, arXiv:2503.04715",
    lambda tokens, parameters: 0.58 * tokens**0.571,
    lambda tokens, parameters: 1.79 * parameters**-0.713 * tokens**0.307,
    "0.58 · D^0.571 tokens",
    "1.79 · N^−0.713 · D^0.307",
    "AdamW with betas, weight decay and final learning rate fixed; contested at other recipes by factors up to 4",
)
POWER_LINES = PublishedLaw(
    "Power Lines",
    "Bergsma et al. 2025, arXiv:2505.13738",
    lambda tokens, parameters: 2048 * 0.0306 * tokens**0.383,
    None,
    "0.0306 · D^0.383 sequences of 2,048 tokens",
    "",
    "the constant is from a secondary source; µP models, learning rate decayed to zero",
    needs_parameters=False,
)
TESTED_BUDGETS = (4e9, 1e11)
"""Tokens of the Step Law table, the only budgets these laws were compared at here (2.1e8 to 1.1e9 parameters)."""

LAWS = (POWER_LINES, STEP_LAW, DEEPSEEK)
