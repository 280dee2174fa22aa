"""A configuration whose loss is known is trained before the sweep, and the sweep begins only where that is reached."""

from __future__ import annotations

from batchlab.analysis.sweep.baseline import baseline_finding, baseline_seeds
from batchlab.analysis.sweep.runs import runs_from
from batchlab.analysis.sweep.throughput import throughput_finding
from batchlab.search.trial import Trial
from batchlab.study.session import Session, open_engine, run_specs
from batchlab.study.stages.context import SweepContext
from batchlab.study.stages.failure import StageFailed
from batchlab.study.stages.train_specs import train_spec
from batchlab.words.baseline import baseline_title, describe_baseline, why_stopped


def baseline_stage(session: Session, context: SweepContext, *, stops: bool) -> None:
    """Train the baseline, where there is one, and say whether it was reproduced. Its runs are cells of the sweep.

    Raises StageFailed where it was not and `stops` is set.
    """
    experiment, store = context.experiment, session.study.store
    asked = experiment.baseline
    if asked is None:
        return
    trials = [Trial(asked.batch_size, asked.learning_rate, seed) for seed in baseline_seeds(experiment)]
    session.view.stage(baseline_title(asked, len(trials)), len(trials))
    with open_engine(session, context.concurrency.workers) as engine:
        specs = [train_spec(session, trial, context) for trial in trials]
        records = run_specs(session, specs, engine)
    runs = runs_from(zip(specs, records, strict=True))
    throughput = throughput_finding(store.records(), experiment.device.data_parallel_size)
    found = baseline_finding(experiment, runs, throughput)
    assert found is not None
    for line in describe_baseline(found, experiment.unit):
        session.view.say(f"   {line}")
    if stops and not found.reproduced:
        raise StageFailed(why_stopped(found))
