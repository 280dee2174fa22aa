"""Tests a LightningModule before a sweep over it, by two training steps."""

from __future__ import annotations

import shutil

from batchlab.core.experiment import OptimizerConfig
from batchlab.core.protocols import RunContext, RunResult
from batchlab.core.record import Outcome
from batchlab.core.spec import CheckSpec, OptimizerSettings
from batchlab.integrations.lightning.evaluate import evaluate
from batchlab.integrations.lightning.made import Made, Modules
from batchlab.integrations.lightning.measure import fit
from batchlab.integrations.one_step import OneStep, check_steps, without_dropout
from batchlab.runs.check import SAMPLES

UNCLIPPED = OptimizerSettings(config=OptimizerConfig(grad_clip=None))


def check(modules: Modules, spec: CheckSpec, context: RunContext) -> RunResult:
    """Run every item. OutOfMemory passes through."""
    folder, last, metric = context.path / "trainer", list[Made](), spec.workload.metric

    def make_step(parts: int, learning_rate: float) -> OneStep:
        made, found = modules.make(0), OneStep()
        last[:] = [made]
        without_dropout(made.module)
        found.read_start(made.module)
        loader, _ = made.loader(SAMPLES // parts, 0)

        def before_step() -> None:
            found.read_gradients(made.module)
            held_out = made.held_out_loader(SAMPLES, SAMPLES)
            found.losses = (
                evaluate(made.module, held_out, made.name, metric).loss,
                evaluate(made.module, held_out, made.name, metric).loss,
            )

        own = fit(
            made,
            loader,
            spec.device,
            UNCLIPPED,
            steps=1,
            grad_accum_steps=parts,
            folder=folder,
            learning_rate=learning_rate,
            before_step=before_step,
        )
        assert own.optimizer is not None
        found.learning_rates = tuple(float(group["lr"]) for group in own.optimizer.param_groups)
        return found

    found = check_steps(
        make_step,
        spec.device.precision,
        lambda: last[0].train.dataset,
        lambda: last[0].held_out.dataset,
        spec.largest_batch,
        judged="loss" if metric is None else "metric",
    )
    shutil.rmtree(folder, ignore_errors=True)
    return RunResult(Outcome.COMPLETED, "", found)
