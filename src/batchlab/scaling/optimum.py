"""The best batch size and learning rate at another token budget or model size.

Exponents come from the study's own smaller budgets where it has two or more, weighed against the published ones by how
well each is known; with one budget the published exponent is anchored at it; with none a published law stands alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchlab.core.batch import Unit
from batchlab.scaling.answer import Refused, Scaled, Scaling, refuse_unless_positive
from batchlab.scaling.power_law import OPTIMUM_ERROR, fit_power_law
from batchlab.scaling.published import (
    BATCH_BY_BUDGET,
    BATCH_BY_SIZE,
    RATE_BY_BUDGET,
    RATE_BY_SIZE,
    RATE_BY_SIZE_MUP,
    STEP_LAW,
    TESTED_BUDGETS,
    Exponent,
    PublishedLaw,
)
from batchlab.scaling.refusals import (
    LawCountsTokens,
    LawNeedsParameters,
    LawWithoutRate,
    MixedBudgets,
    MixedModels,
    NoModelSize,
    OptimumTooFar,
)
from batchlab.scaling.rules import Axis, LawRule, PowerLawRule, Quantity

REACH = 30.0
"""No optimum is extrapolated further than this factor in budget or parameters; tested up to 25 × in budget, 2 × in
size."""

LAW_ERROR = 1.0
"""Doublings either way by which a published batch size may be wrong: within them a batch costs at most 5 % more tokens
(Schaipp 2026)."""

LAW_RATE_ERROR = 2.0
"""The same of a published learning rate: where replications of Step Law failed, they differed by up to 4 ×."""


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


def optimum_at_budget(
    measured: Sequence[Optimum],
    token_budget: float,
    *,
    parameters: float | None = None,
    sequence_length: int = 1,
    unit: Unit = Unit.TOKENS,
    law: PublishedLaw = STEP_LAW,
    doublings: float = OPTIMUM_ERROR,
) -> Moved:
    """The optimum of the same model at `token_budget`, from what was measured at other budgets.

    `doublings` is the standard error of each measured optimum. `law` is used only where nothing was measured, and needs
    tokens; a law in N also needs `parameters`. Refused beyond 30 × outside what was measured (or tested, for a law).
    """
    if refusal := refuse_unless_positive(token_budget=token_budget) or _refuse_optima(measured):
        return Moved(refusal, refusal)
    if not measured:
        return _from_law(law, token_budget, parameters, sequence_length, unit)
    sizes = sorted({optimum.parameters for optimum in measured if optimum.parameters is not None})
    if len(sizes) > 1:
        return _refused(Refused(MixedModels(tuple(sizes))))
    budgets = [optimum.token_budget for optimum in measured]
    if refusal := _refuse_far(Axis.BUDGET, token_budget, min(budgets), max(budgets)):
        return _refused(refusal)
    return _move(Axis.BUDGET, budgets, measured, token_budget, (BATCH_BY_BUDGET, RATE_BY_BUDGET), doublings)


def optimum_at_size(
    measured: Sequence[Optimum], parameters: float, *, mup: bool = False, doublings: float = OPTIMUM_ERROR
) -> Moved:
    """The optimum of a wider model of the same family at the same token budget, from sizes that were measured.

    At fixed depth parameters go with width². `mup`: the model is parametrised so that its learning rate transfers over
    width. Refused without a measured size, across budgets, and beyond 30 × in parameters.
    """
    if refusal := refuse_unless_positive(parameters=parameters) or _refuse_optima(measured):
        return Moved(refusal, refusal)
    known = [optimum for optimum in measured if optimum.parameters is not None]
    sizes = [optimum.parameters for optimum in known if optimum.parameters is not None]
    if not known:
        return _refused(Refused(NoModelSize()))
    if len({optimum.token_budget for optimum in known}) > 1:
        return _refused(Refused(MixedBudgets()))
    if refusal := _refuse_far(Axis.MODEL_SIZE, parameters, min(sizes), max(sizes)):
        return _refused(refusal)
    rate = RATE_BY_SIZE_MUP if mup else RATE_BY_SIZE
    return _move(Axis.MODEL_SIZE, sizes, known, parameters, (BATCH_BY_SIZE, rate), doublings)


def _move(
    axis: Axis,
    xs: Sequence[float],
    optima: Sequence[Optimum],
    to: float,
    published: tuple[Exponent, Exponent],
    doublings: float,
) -> Moved:
    """Batch size and learning rate, each by a power law of its own; `xs` is where the optima lie on the axis."""
    of_batch, of_rate = published
    batches, rates = [optimum.best_batch_size for optimum in optima], [optimum.learning_rate for optimum in optima]
    return Moved(
        _moved(Quantity.BATCH_SIZE, axis, list(zip(xs, batches, strict=True)), to, of_batch, doublings),
        _moved(Quantity.LEARNING_RATE, axis, list(zip(xs, rates, strict=True)), to, of_rate, doublings),
    )


def _moved(
    quantity: Quantity,
    axis: Axis,
    points: list[tuple[float, float]],
    to: float,
    published: Exponent,
    doublings: float,
) -> Scaled:
    law = fit_power_law(points, published, doublings)
    value, low, high = law.at(to)
    at = tuple(sorted({x for x, _ in points}))
    return Scaled(value, PowerLawRule(quantity, axis, law, published, at, at[0] / REACH, at[-1] * REACH), low, high)


def _from_law(
    law: PublishedLaw, token_budget: float, parameters: float | None, sequence_length: int, unit: Unit
) -> Moved:
    if unit is not Unit.TOKENS:
        return _refused(Refused(LawCountsTokens()))
    if parameters is None and law.needs_parameters:
        return _refused(Refused(LawNeedsParameters(law)))
    size = parameters if parameters is not None else 1.0
    if refusal := refuse_unless_positive(parameters=size, sequence_length=sequence_length):
        return _refused(refusal)
    if refusal := _refuse_far(Axis.BUDGET, token_budget, *TESTED_BUDGETS, laws=True):
        return _refused(refusal)
    batch = law.batch_tokens(token_budget, size) / sequence_length
    return Moved(
        _by_law(Quantity.BATCH_SIZE, law, batch, LAW_ERROR),
        _by_law(Quantity.LEARNING_RATE, law, law.learning_rate(token_budget, size), LAW_RATE_ERROR)
        if law.learning_rate
        else Refused(LawWithoutRate(law)),
    )


def _by_law(quantity: Quantity, law: PublishedLaw, value: float, error: float) -> Scaled:
    factor = 2.0**error
    return Scaled(value, LawRule(quantity, law, *TESTED_BUDGETS), value / factor, value * factor)


def _refused(refusal: Refused) -> Moved:
    return Moved(refusal, refusal)


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


def _refuse_far(axis: Axis, to: float, low: float, high: float, *, laws: bool = False) -> Refused | None:
    if max(to / high, low / to) <= REACH * (1 + 1e-9):
        return None
    return Refused(OptimumTooFar(axis, to, high if to > high else low, REACH, laws))
