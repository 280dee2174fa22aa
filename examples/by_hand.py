"""What `batchlab study examples/minimal.py` does, by hand and with few runs: python examples/by_hand.py

Each piece of work is a *spec*. An *engine* executes specs and returns *records*, the analysis turns records into
*findings*, and a plan is made from the findings. Every function here is described in docs/api.md.
"""

from pathlib import Path

from batchlab.analysis.assemble import assemble
from batchlab.core.batch import lay_out
from batchlab.core.experiment import build_experiment
from batchlab.core.format import format_bytes, format_learning_rate, format_loss
from batchlab.core.spec import CapacitySpec, OptimizerSettings, ThroughputSpec, TraceSpec, TrainSpec
from batchlab.engines.inline import InlineEngine
from batchlab.plan.derivation import make_plan
from batchlab.runs.workload import workload_of
from batchlab.search.budget import token_budget_of
from batchlab.study.open_study import prepare
from batchlab.study.task_source import resolve_task

SIZES, RATES, BUDGET = (16, 32, 64), (1e-2, 3e-2, 1e-1), 6_400  # BUDGET: samples per run, 100 steps of batch 64
engine = InlineEngine(Path("studies/by_hand"))  # keeps each run in a folder; a finished one is not run again
records = []


def run(spec):
    """Execute one spec in this process and keep its record."""
    engine.submit(spec)
    record = engine.wait(timeout=60)[-1].record
    assert record.result is not None, record.reason
    records.append((spec, record))
    return record.result


# 1. The task. The digests of its code and data are part of the workload, and so of every run's name.
values = resolve_task(str(Path(__file__).with_name("minimal.py"))) | {"batch": {"global_batch_sizes": SIZES}}
experiment, task = prepare(build_experiment(values), lambda folder, workers: InlineEngine(folder), sweep=False)
workload = workload_of(experiment, task)

# 2. Memory: predicted by a trace over tensors without data, then verified by whole steps at the largest size.
traced = run(TraceSpec(workload=workload, micro_batch_sizes=SIZES)).points[-1]
probed = run(CapacitySpec(workload=workload, micro_batch_size=SIZES[-1]))
print(f"{traced.micro_batch_size} samples: {format_bytes(traced.peak.total_bytes)} traced; fits: {probed.fits}")

# 3. Each batch size: its speed, then a run for every learning rate. All runs see the same samples in the same order.
budget, interval = token_budget_of(BUDGET, SIZES, task.sequence_length, 4)  # multiples of every size
for size in SIZES:
    optimizer = OptimizerSettings(config=experiment.optimizer, batch_ratio=size / experiment.reference_batch_size)
    layout = lay_out(size, probed.micro_batch_size, sequence_length=task.sequence_length)
    common = {"workload": workload, "layout": layout, "optimizer": optimizer}
    print(f"batch {size}: {run(ThroughputSpec(**common, repeats=3)).tokens_per_second:,.0f} {task.unit}/s")
    for rate in RATES:
        run(TrainSpec(**common, learning_rate=rate, token_budget=budget, evaluation_interval=interval))

# 4. Findings: the loss surface with its best batch size. One seed measures no noise, so it claims no winner.
findings = assemble(experiment, task, records)
for row in findings.surface.rows:
    best, fitted = (format_learning_rate(rate) for rate in (row.best.learning_rate, row.fit.best_learning_rate))
    print(f"batch {row.global_batch_size}: loss {format_loss(row.val_loss.value)} at {best}, fitted {fitted}")
print(make_plan(findings).paste_block)
