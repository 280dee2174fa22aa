"""Where a search may start: an earlier study of the same model, somebody's table, or a published law."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from batchlab.analysis.critical.steps_from_runs import is_sweep
from batchlab.analysis.sweep.runs import runs_from
from batchlab.analysis.sweep.warmups import best_warmups
from batchlab.core.batch import Unit
from batchlab.core.errors import InputError, did_you_mean
from batchlab.core.experiment import Experiment
from batchlab.core.record import Outcome, Record, TaskInfo, TrainResult
from batchlab.core.spec import TrainSpec
from batchlab.scaling import LAWS
from batchlab.search.prior import EarlierStudy, Hint
from batchlab.search.trial import Trial, TrialOutcome
from batchlab.storage.decisions import PriorLaw, PriorStudy, PriorTrial
from batchlab.storage.store import Store
from batchlab.study.prior_table import read_prior_table

STARTING_LAWS = {law.key: law for law in LAWS if law.learning_rate is not None}


def read_prior(experiment: Experiment, task_info: TaskInfo) -> PriorLaw | PriorStudy | None:
    """What `sweep.prior` names, as a study keeps it among its decisions; None where it is not set.

    Raises InputError where there is no such study or law, and where the study has no finished run or another model.
    """
    given = experiment.sweep.prior
    if given is None:
        return None
    if experiment.sweep.search == "grid":
        raise InputError(
            f"A grid trains every cell whatever the prior; omit --prior {given}, or use --search adaptive."
        )
    if given in STARTING_LAWS:
        if experiment.unit is not Unit.TOKENS:
            raise InputError(
                f"--prior {given}: published laws are for language models and count tokens, but this task counts "
                "samples; give an earlier study instead."
            )
        return PriorLaw(law=given, parameters=task_info.parameter_count, sequence_length=experiment.sequence_length)
    folder = Path(given)
    if folder.is_file():
        return read_prior_table(folder, experiment, task_info)
    if not Store.exists(folder):
        raise InputError(
            f"--prior {given} is neither the folder of a study, a table nor a published law."
            f"{did_you_mean(given, STARTING_LAWS)} Possible: a study's folder, a table of training runs as CSV, "
            f"{', '.join(STARTING_LAWS)}."
        )
    store = Store.open(folder)
    _require_same_model(store, experiment, task_info)
    budget = store.decisions().budget
    if budget is not None and budget.run_seconds is not None:
        raise InputError(
            f"The prior study {given} gave every batch size the same time (--run-time), so its losses are not of equal "
            "tokens; give a study at equal tokens or a published law, or omit --prior."
        )
    trials = () if budget is None else tuple(_prior_trials(store, budget.token_budget))
    if budget is None or not any(trial.val_loss is not None for trial in trials):
        raise InputError(
            f"The prior study {given} has no finished training run to start from; run it first, or omit --prior."
        )
    return PriorStudy(study=store.experiment.name, token_budget=budget.token_budget, trials=trials)


def _prior_trials(store: Store, token_budget: int) -> Iterator[PriorTrial]:
    """The runs of its sweep, not that at half the budget, for example; each batch size at its best warm-up."""
    swept = [
        (spec, record)
        for spec, record in store.records()
        if isinstance(spec, TrainSpec) and is_sweep(spec, store.experiment, token_budget)
    ]
    taken = best_warmups(runs_from(swept), set(store.experiment.sweep.confirmation_seeds))
    for spec, record in swept:
        if spec.schedule.warmup_fraction == taken[spec.layout.global_batch_size]:
            yield _prior_trial(spec, record)


def _prior_trial(spec: TrainSpec, record: Record) -> PriorTrial:
    outcome = outcome_of(record)
    return PriorTrial(
        global_batch_size=spec.layout.global_batch_size,
        learning_rate=spec.learning_rate,
        seed=spec.seed,
        val_loss=outcome.val_loss,
        judged=outcome.judged,
        why=outcome.why,
    )


def start_of(prior: PriorLaw | PriorStudy | None, token_budget: int) -> tuple[Hint | None, EarlierStudy | None]:
    """A prior as a search at this token budget takes it: a hint, an earlier study, or neither."""
    if prior is None:
        return None, None
    if isinstance(prior, PriorLaw):
        law = STARTING_LAWS[prior.law]
        assert law.learning_rate is not None
        size = law.batch_tokens(token_budget, prior.parameters) / prior.sequence_length
        return Hint(size, law.learning_rate(token_budget, prior.parameters)), None
    outcomes = {
        Trial(trial.global_batch_size, trial.learning_rate, trial.seed): TrialOutcome(
            trial.val_loss, trial.judged, trial.why
        )
        for trial in prior.trials
    }
    return None, EarlierStudy(outcomes, token_budget / prior.token_budget)


def outcome_of(record: Record | None) -> TrialOutcome:
    """The outcome of a trial; None, for one that was not run since its size is known not to fit, is out of memory."""
    if record is None:
        return TrialOutcome(val_loss=None, why=Outcome.OUT_OF_MEMORY)
    if record.outcome is not Outcome.COMPLETED or not isinstance(record.result, TrainResult):
        return TrialOutcome(val_loss=None, why=record.outcome)
    return TrialOutcome(val_loss=record.result.val_loss, judged=not record.result.undertrained)


def _require_same_model(store: Store, experiment: Experiment, task_info: TaskInfo) -> None:
    """Compare what a learning rate depends on; the data, the budget and the path of the task may differ."""
    earlier = store.experiment
    theirs = store.decisions().task_info
    if theirs is None:
        raise InputError(f"The prior study {store.path} has measured nothing yet; run it first, or omit --prior.")
    pairs: dict[str, tuple[object, object]] = {
        "parameters": (f"{theirs.parameter_count or 0:,}", f"{task_info.parameter_count or 0:,}"),
        "unit": (earlier.unit.value, experiment.unit.value),
        "sequence length": (earlier.sequence_length, experiment.sequence_length),
        "optimizer": (
            f"{earlier.optimizer.name} ({theirs.optimizer_family})",
            f"{experiment.optimizer.name} ({task_info.optimizer_family})",
        ),
    }
    for name in sorted({*earlier.model, *experiment.model}):
        pairs[f"model.{name}"] = (earlier.model.get(name, "unset"), experiment.model.get(name, "unset"))
    differing = [f"{name}: {one}, here {other}" for name, (one, other) in pairs.items() if one != other]
    if differing:
        raise InputError(
            f"The prior study {experiment.sweep.prior} is of another model ({'; '.join(differing)}), so its learning "
            "rates do not apply; give a study of this model or a published law, or omit --prior."
        )
