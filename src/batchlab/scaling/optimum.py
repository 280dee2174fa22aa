"""The best batch size and learning rate at another token budget or model size, and the cheapest check of them.

Exponents come from the study's own smaller budgets where it has two or more, weighed against the published ones by how
well each is known; with one budget the published exponent is anchored at it; with none a published law stands alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchlab.core.batch import Unit
from batchlab.scaling.answer import Refused, Scaled, Scaling, format_size, refuse_unless_positive
from batchlab.scaling.power_law import DOUBT_OCTAVES, Exponent, fit_power_law
from batchlab.scaling.published import STEP_LAW, TESTED_BUDGETS, PublishedLaw

REACH = 30.0
"""No optimum is extrapolated further than this factor in budget or parameters; tested up to 25 × in budget, 2 × in size."""

LAW_OCTAVES = 1.0
"""A published law is doubted by a factor of 2 either way: batches within it cost at most 5 % more tokens (Schaipp)."""

LAW_RATE_OCTAVES = 2.0
"""Published learning rates differ by up to 4 × where replications of Step Law failed."""

# Published exponents: the mean of two standard deviations covers them.
BATCH_BY_BUDGET = Exponent(
    0.5,
    0.1,
    "published exponents 0.33 (DeepSeek, of compute), 0.38 (Power Lines), 0.47 (Zhang et al. 2025, critical batch) and "
    "0.57 (Step Law; Schaipp 2026)",
)
RATE_BY_BUDGET = Exponent(
    0.09,
    0.15,
    "published exponents −0.13 (DeepSeek, of compute), 0 (Power Lines) and 0.31 (Step Law): the sign is open",
)
BATCH_BY_SIZE = Exponent(0.0, 0.1, "published exponents 0 (Power Lines, Step Law) and 0.09 (Zhang et al. 2025)")
RATE_BY_SIZE = Exponent(
    -0.42,
    0.15,
    "published exponents −0.13 (DeepSeek, of compute), −0.5 (1/width, Yang et al. 2022) and −0.71 (Step Law)",
)
RATE_BY_SIZE_MUP = Exponent(0.0, 0.05, "µP keeps the learning rate over width (Yang et al. 2022, arXiv:2203.03466)")


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best (batch size, learning rate) that one budget of one model was found to have."""

    token_budget: float
    best_batch_size: float  # samples
    learning_rate: float  # tuned at that batch size
    parameters: float | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """Where the optimum is expected elsewhere. The learning rate belongs to `best_batch_size` and to no other batch."""

    best_batch_size: Scaling
    learning_rate: Scaling


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The cheapest runs that could show a extrapolated number to be wrong."""

    token_budget: float  # of each run
    batch_size: float
    learning_rates: tuple[float, ...]
    tokens: float  # of all runs together
    says: str


def optimum_at_budget(
    measured: Sequence[Optimum],
    token_budget: float,
    *,
    parameters: float | None = None,
    sequence_length: int = 1,
    unit: Unit = Unit.TOKENS,
    law: PublishedLaw = STEP_LAW,
    doublings: float = DOUBT_OCTAVES,
) -> Moved:
    """The optimum of the same model at `token_budget`, from what was measured at other budgets.

    `doublings` is the standard error of each measured optimum. `law` is used only where nothing was measured, and needs
    tokens; a law in N also needs `parameters`. Refused beyond 30 × outside what was measured (or tested, for a law).
    """
    if refusal := refuse_unless_positive(token_budget=token_budget) or _refuse_optima(measured):
        return Moved(refusal, refusal)
    if not measured:
        return _from_law(law, token_budget, parameters, sequence_length, unit)
    if len({optimum.parameters for optimum in measured} - {None}) > 1:
        sizes = ", ".join(sorted({format_size(o.parameters) for o in measured if o.parameters is not None}))
        refused = Refused(
            f"The optima belong to models of different size ({sizes} parameters); give those of one model."
        )
        return Moved(refused, refused)
    budgets = sorted(optimum.token_budget for optimum in measured)
    if refusal := _refuse_far(token_budget, budgets[0], budgets[-1], "token budget", "Measure a budget nearer to it"):
        return Moved(refusal, refusal)
    return Moved(
        _move(
            [(o.token_budget, o.best_batch_size) for o in measured],
            token_budget,
            "B_opt",
            "D",
            BATCH_BY_BUDGET,
            doublings,
        ),
        _move(
            [(o.token_budget, o.learning_rate) for o in measured],
            token_budget,
            "learning rate at B_opt",
            "D",
            RATE_BY_BUDGET,
            doublings,
        ),
    )


def optimum_at_size(
    measured: Sequence[Optimum], parameters: float, *, mup: bool = False, doublings: float = DOUBT_OCTAVES
) -> Moved:
    """The optimum of a wider model of the same family at the same token budget, from sizes that were measured.

    At fixed depth parameters go with width². `mup`: the model is parametrised so that its learning rate transfers over
    width. Refused without a measured size, across budgets, and beyond 30 × in parameters.
    """
    if refusal := refuse_unless_positive(parameters=parameters) or _refuse_optima(measured):
        return Moved(refusal, refusal)
    known = [(o.parameters, o) for o in measured if o.parameters is not None]
    if not known:
        refused = Refused(
            "No optimum comes with its number of parameters, so it cannot be moved to another model size."
        )
        return Moved(refused, refused)
    if len({o.token_budget for _, o in known}) > 1:
        refused = Refused(
            "The optima belong to different token budgets, which moves them too; bring them to one budget first."
        )
        return Moved(refused, refused)
    sizes = sorted(size for size, _ in known)
    if refusal := _refuse_far(parameters, sizes[0], sizes[-1], "model size", "Measure a model nearer to it"):
        return Moved(refusal, refusal)
    rate = RATE_BY_SIZE_MUP if mup else RATE_BY_SIZE
    return Moved(
        _move([(size, o.best_batch_size) for size, o in known], parameters, "B_opt", "N", BATCH_BY_SIZE, doublings),
        _move(
            [(size, o.learning_rate) for size, o in known], parameters, "learning rate at B_opt", "N", rate, doublings
        ),
    )


def confirm_batch(learning_rate: Scaled, to_batch: float, token_budget: float) -> Confirmation:
    """One run of the study's own budget at the new batch; with one more at half the rate where its doubt is wide.

    Half, not double: twice too high costs about 2.5 times as much as twice too low. A shorter run would not do, because
    the best learning rate moves with the budget.
    """
    wide = learning_rate.low is None or learning_rate.low < learning_rate.value / 2
    rates = (learning_rate.value, learning_rate.value / 2) if wide else (learning_rate.value,)
    runs = "1 run" if len(rates) == 1 else f"{len(rates)} runs"
    return Confirmation(
        token_budget,
        to_batch,
        rates,
        token_budget * len(rates),
        f"{runs} of {format_size(token_budget)} tokens at batch {format_size(to_batch)}, learning rate "
        f"{' and '.join(f'{rate:.3g}' for rate in rates)}: confirmed if the first loses to none of the measured cells "
        "by more than noise.",
    )


def confirm_budget(measured: Sequence[Optimum], token_budget: float) -> Confirmation | Refused:
    """What to run before trusting an optimum at `token_budget`: a quarter-size study, or one step towards the target.

    With one measured budget the exponent itself is unmeasured: eight runs at a quarter of it cost two of its runs. With
    several, the extrapolated optimum is run against the unmoved one at 4 × the largest budget (or at the target).
    """
    if not measured:
        return Refused(
            "Nothing was measured, so there is nothing to confirm from; run a study at a small budget first."
        )
    largest = max(measured, key=lambda optimum: optimum.token_budget)
    several = len({optimum.token_budget for optimum in measured}) > 1
    budget = min(token_budget, 4 * largest.token_budget) if several else largest.token_budget / 4
    moved = optimum_at_budget(measured, budget)
    if isinstance(moved.best_batch_size, Refused):
        return moved.best_batch_size
    assert isinstance(moved.learning_rate, Scaled)
    batch, rate = moved.best_batch_size.value, moved.learning_rate.value
    if several:
        return Confirmation(
            budget,
            batch,
            (rate,),
            2 * budget,
            f"2 runs of {format_size(budget)} tokens: batch {format_size(batch)} at learning rate {rate:.3g}, and batch "
            f"{format_size(largest.best_batch_size)} at {largest.learning_rate:.3g} as measured at "
            f"{format_size(largest.token_budget)}: confirmed if the first is better.",
        )
    return Confirmation(
        budget,
        batch,
        (rate,),
        8 * budget,
        f"a study of 8 runs at {format_size(budget)} tokens around batch {format_size(batch)} and learning rate {rate:.3g}, "
        f"{format_size(8 * budget)} tokens in all: it measures how the optimum moves with the budget.",
    )


def _move(
    points: list[tuple[float, float]], to: float, what: str, by: str, published: Exponent, doublings: float
) -> Scaled:
    law = fit_power_law(points, published, doublings)
    value, low, high = law.at(to)
    budgets = sorted({x for x, _ in points})
    measured_at = " and ".join(format_size(x) for x in (budgets[0], budgets[-1])[: len(budgets)])
    exponent = f"{law.exponent:.2f} [{law.low:.2f}, {law.high:.2f}]"
    if law.measured is None:
        rule = f"{what} ∝ {by}^{exponent}, the published exponent from the optimum at {measured_at}"
        source = published.source
    else:
        rule = f"{what} ∝ {by}^{exponent}, {law.measured:.2f} from {len(budgets)} measured {_AXIS[by]} alone"
        source = f"this study, {measured_at}, weighed against {published.source}"
    return Scaled(
        value,
        rule,
        source,
        f"{by} from {format_size(budgets[0] / REACH)} to {format_size(budgets[-1] * REACH)}",
        low,
        high,
    )


_AXIS = {"D": "budgets", "N": "model sizes"}


def _from_law(
    law: PublishedLaw, token_budget: float, parameters: float | None, sequence_length: int, unit: Unit
) -> Moved:
    if unit is not Unit.TOKENS:
        refused = Refused(
            "The published laws are of language models and count tokens; this study counts samples. Measure a budget."
        )
        return Moved(refused, refused)
    if parameters is None and law.needs_parameters:
        refused = Refused(f"{law.name} needs the number of parameters of the model, without embeddings; give it.")
        return Moved(refused, refused)
    size = parameters if parameters is not None else 1.0
    if refusal := refuse_unless_positive(parameters=size, sequence_length=sequence_length) or _refuse_far(
        token_budget, *TESTED_BUDGETS, "token budget", "Measure a smaller budget of this model first", "published laws"
    ):
        return Moved(refusal, refusal)
    reach = f"tested on 4B to 100B tokens of text; {law.doubt}"
    batch = law.batch_tokens(token_budget, size) / sequence_length
    if law.learning_rate is None:
        rate: Scaling = Refused(f"{law.name} gives no learning rate; tune it, or name Step Law or DeepSeek.")
    else:
        value = law.learning_rate(token_budget, size)
        factor = 2.0**LAW_RATE_OCTAVES
        rule = f"{law.name}: {law.learning_rate_formula}"
        rate = Scaled(value, rule, law.source, reach, value / factor, value * factor)
    factor = 2.0**LAW_OCTAVES
    return Moved(
        Scaled(batch, f"{law.name}: {law.batch_formula}", law.source, reach, batch / factor, batch * factor), rate
    )


def _refuse_optima(measured: Sequence[Optimum]) -> Refused | None:
    for optimum in measured:
        sizes = {} if optimum.parameters is None else {"parameters": optimum.parameters}
        if refusal := refuse_unless_positive(
            token_budget=optimum.token_budget,
            best_batch_size=optimum.best_batch_size,
            learning_rate=optimum.learning_rate,
            **sizes,
        ):
            return refusal
    return None


def _refuse_far(
    to: float, low: float, high: float, what: str, remedy: str, basis: str = "what was measured"
) -> Refused | None:
    factor = max(to / high, low / to)
    if factor <= REACH * (1 + 1e-9):
        return None
    nearest, bound = (
        (high, f"at least {format_size(to / REACH)}") if to > high else (low, f"at most {format_size(to * REACH)}")
    )
    return Refused(
        f"A {what} of {format_size(to)} is {format_size(factor)} × beyond {basis} ({format_size(nearest)}), and nothing is "
        f"extrapolated further than {REACH:g} ×. {remedy}, {bound}."
    )
