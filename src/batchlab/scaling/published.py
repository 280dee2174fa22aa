"""What is published about the best batch size and learning rate of language models: papers, laws, exponents.

Tokens throughout: D is the token budget, N the number of parameters, C = 6·N·D the compute, batch sizes are in tokens
per step. Nothing here was checked by us beyond the Step Law table; constants taken from secondary sources are marked.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Paper:
    """A publication as it is cited."""

    name: str  # authors and year
    arxiv: str

    @property
    def citation(self) -> str:
        """`Li et al. 2025, arXiv:2503.04715`."""
        return f"{self.name}, arXiv:{self.arxiv}"


GOYAL = Paper("Goyal et al. 2017", "1706.02677")
MCCANDLISH = Paper("McCandlish et al. 2018", "1812.06162")
YANG = Paper("Yang et al. 2022", "2203.03466")
MALLADI = Paper("Malladi et al. 2022", "2205.10287")
DEEPSEEK_AI = Paper("DeepSeek-AI 2024", "2401.02954")
BJORCK = Paper("Bjorck et al. 2024", "2409.19913")
ZHANG = Paper("Zhang et al. 2024", "2410.21676")
LI = Paper("Li et al. 2025", "2503.04715")
BERGSMA = Paper("Bergsma et al. 2025", "2505.13738")
MAREK = Paper("Marek et al. 2025", "2507.07101")
SCHAIPP = Paper("Schaipp 2026", "2607.01487")


@dataclass(frozen=True, slots=True)
class Formula:
    """`coefficient` · N^parameters · D^tokens · C^compute, C = 6·N·D; a batch is in sequences of `sequence_length`."""

    coefficient: float
    tokens: float = 0.0
    parameters: float = 0.0
    compute: float = 0.0
    sequence_length: int = 1

    def __call__(self, token_budget: float, parameters: float) -> float:
        """The value at D tokens and N parameters; a batch size in tokens."""
        scale = self.sequence_length * self.coefficient
        compute = 6 * parameters * token_budget
        return float(scale * parameters**self.parameters * token_budget**self.tokens * compute**self.compute)


@dataclass(frozen=True, slots=True)
class PublishedLaw:
    """Best batch (tokens per step) and learning rate for D tokens and N parameters; `learning_rate` None: not given."""

    name: str
    paper: Paper
    batch_tokens: Formula
    learning_rate: Formula | None

    @property
    def key(self) -> str:
        """The name as it is typed."""
        return self.name.lower().replace(" ", "-")

    @property
    def needs_parameters(self) -> bool:
        """Whether N matters to the batch size or the learning rate."""
        formulas = (self.batch_tokens, *([self.learning_rate] if self.learning_rate else []))
        return any(formula.parameters or formula.compute for formula in formulas)


# Fitted along one path of D/N, so compute stands for both; C is 6·N·D here, and counted by model scale there.
DEEPSEEK = PublishedLaw("DeepSeek", DEEPSEEK_AI, Formula(0.2920, compute=0.3271), Formula(0.3118, compute=-0.1250))

# AdamW with betas, weight decay and final learning rate fixed; contested at other recipes by factors of up to 4.
STEP_LAW = PublishedLaw("Step Law", LI, Formula(0.58, tokens=0.571), Formula(1.79, parameters=-0.713, tokens=0.307))

# The coefficient is from a secondary source; µP models, learning rate decayed to zero.
POWER_LINES = PublishedLaw("Power Lines", BERGSMA, Formula(0.0306, tokens=0.383, sequence_length=2048), None)

LAWS = (POWER_LINES, STEP_LAW, DEEPSEEK)

TESTED_BUDGETS = (4e9, 1e11)
"""Tokens of the Step Law table, the only budgets these laws were compared at here (2.1e8 to 1.1e9 parameters)."""


@dataclass(frozen=True, slots=True)
class ReportedExponent:
    """An exponent that one paper reports; `note` says of what, where that is not the quantity itself."""

    value: float
    paper: Paper
    note: str = ""


@dataclass(frozen=True, slots=True)
class Exponent:
    """An exponent as known from publications: a mean and its standard deviation."""

    mean: float
    sd: float
    reported: tuple[ReportedExponent, ...] = ()


# For an answer that is extrapolated (scaling/optimum.py): mean ± 2 sd covers every reported value.

BATCH_BY_BUDGET = Exponent(
    0.5,
    0.1,
    (
        ReportedExponent(0.33, DEEPSEEK_AI, "of compute"),
        ReportedExponent(0.38, BERGSMA, "Power Lines"),
        ReportedExponent(0.47, ZHANG, "critical batch size"),
        ReportedExponent(0.57, LI, "Step Law"),
        ReportedExponent(0.57, SCHAIPP),
    ),
)
"""B_opt ∝ D^x."""

RATE_BY_BUDGET = Exponent(
    0.09,
    0.15,
    (
        ReportedExponent(-0.13, DEEPSEEK_AI, "of compute"),
        ReportedExponent(0.0, BERGSMA, "Power Lines"),
        ReportedExponent(0.31, LI, "Step Law"),
    ),
)
"""Learning rate at B_opt ∝ D^x."""

BATCH_BY_SIZE = Exponent(
    0.0,
    0.1,
    (
        ReportedExponent(0.0, BERGSMA, "Power Lines"),
        ReportedExponent(0.0, LI, "Step Law"),
        ReportedExponent(0.09, ZHANG, "critical batch size"),
    ),
)
"""B_opt ∝ N^x at one budget."""

RATE_BY_SIZE = Exponent(
    -0.42,
    0.15,
    (
        ReportedExponent(-0.13, DEEPSEEK_AI, "of compute"),
        ReportedExponent(-0.5, YANG, "1/width"),
        ReportedExponent(-0.71, LI, "Step Law"),
    ),
)
"""Learning rate at B_opt ∝ N^x at one budget and depth, where N grows as width²."""

RATE_BY_SIZE_MUP = Exponent(0.0, 0.05, (ReportedExponent(0.0, YANG, "µP, over width"),))
"""The same of a model in µP."""

# For where a search starts (search/prior.py). These differ from the above on purpose. Step Law is left out, so that its
# table can judge the search. DeepSeek's exponents of compute are turned into exponents of tokens, since they were
# fitted along a path where tokens grow as compute^0.476. The learning rate is the one at a fixed, small batch size, not
# the one at B_opt: a search moves along its own ridge from there. Means are those of the reported values, and the
# standard deviation is that of one more publication: √(1 + 1/n) times the standard deviation of the n.

PRIOR_BATCH_BY_BUDGET = Exponent(
    0.53,
    0.15,
    (
        ReportedExponent(0.38, BERGSMA),
        ReportedExponent(0.47, ZHANG, "critical batch size"),
        ReportedExponent(0.57, SCHAIPP),
        ReportedExponent(0.69, DEEPSEEK_AI, "0.327 ÷ 0.476"),
    ),
)
"""B_opt ∝ D^x of one model. That DeepSeek's models grow along the path hardly matters: Zhang et al. see hardly any
effect of the model size on the critical batch size."""

PRIOR_RATE_BY_BUDGET = Exponent(
    -0.37,
    0.10,
    (
        ReportedExponent(-0.32, BJORCK),
        ReportedExponent(-0.47, BERGSMA),
        ReportedExponent(-0.33, DEEPSEEK_AI),
    ),
)
"""Learning rate ∝ D^x at a fixed, small batch size. Bergsma et al.: B/(η·λ·D) ∝ D^−0.53 at constant weight decay λ.
DeepSeek: compute^−0.125, less the −0.41 of the model size (between 1/width and GPT-3's table), and less SLOPE of
search/surrogate.py times its batch exponent."""
