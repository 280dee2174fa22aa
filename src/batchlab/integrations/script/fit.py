"""What a study of a script may ask: its design without what the command has no placeholder for."""

from __future__ import annotations

from typing import Any

from batchlab.core.command import Command
from batchlab.core.errors import InputError
from batchlab.core.experiment import Experiment
from batchlab.integrations.script.template import accumulates, by_time, template_of


def fitted(experiment: Experiment, command: Command) -> Experiment:
    """The experiment that this command can carry out.

    Without {seed} every cell is run once. Without {learning_rate} one learning rate is swept, which has to be given.
    Without {warmup_steps} the schedule has no warm-up that is known here. Raises InputError where the design is at odds
    with the command.
    """
    template = template_of(command)
    batch, sweep = experiment.batch, experiment.sweep
    odd = [size for size in batch.global_batch_sizes if size % command.devices]
    if odd:
        raise InputError(
            f"The command runs on {command.devices} devices (command.devices), so batch sizes must be multiples of it; "
            f"{odd[0]} is not."
        )
    run_time = experiment.budget.run_time_seconds or (command.seconds if by_time(template) else None)
    if run_time is not None and not template.has("steps", "tokens", "seconds"):
        raise InputError(
            "--run-time turns the measured speed of each batch size into a length, and command.run has only {epochs}, "
            "which would round it to whole epochs: add {steps}, {tokens} or {seconds}, or give --token-budget."
        )
    if run_time is None and by_time(template):
        raise InputError(
            "command.run has only {seconds} for its length, so every batch size trains for the same time; say which: "
            "--run-time 5m."
        )
    sweep_changes: dict[str, Any] = {}
    if not template.has("learning_rate"):
        if sweep.learning_rates is None or len(sweep.learning_rates) > 1:
            raise InputError(
                "command.run has no {learning_rate}, so it cannot be swept. Add it to the option that sets it, or give "
                "the one that your script uses: --learning-rates 3e-4."
            )
        sweep_changes |= {"search": "grid", "max_extensions": 0}
    if not template.has("seed"):
        sweep_changes |= {"seeds": 1, "confirm": 0}
    if sweep.warmup_fractions is not None and not template.has("warmup_steps"):
        raise InputError(
            "command.run has no {warmup_steps}, so --warmup cannot be tried. Add it to the option that sets the steps "
            "of warm-up, or omit --warmup."
        )
    if sweep.retry_diverged and not (template.has("warmup_steps") and template.has("learning_rate")):
        raise InputError(
            "--retry-diverged lowers the learning rate and lengthens the warm-up, and command.run lacks "
            "{learning_rate} or {warmup_steps}. Add them to the options that set them, or omit --retry-diverged."
        )
    schedule = {"kind": "task", "final_fraction": 0.0}
    if not template.has("warmup_steps"):
        schedule |= {"warmup_fraction": 0.0, "min_warmup_steps": 0}
    return experiment.model_copy(
        update={
            "batch": batch.model_copy(
                update={"micro_batching": "even" if accumulates(template) and batch.micro_batching != "off" else "off"}
            ),
            "sweep": sweep.model_copy(update=sweep_changes),
            "budget": experiment.budget.model_copy(update={"run_time_seconds": run_time}),
            "schedule": experiment.schedule.model_copy(update=schedule),
            "command": command.model_copy(update={"seconds": run_time}),
            "noise": experiment.noise.model_copy(update={"points": 0}),
            "optimizer": experiment.optimizer.model_copy(update={"grad_clip": None}),
            "diagnostics": "off",
        }
    )
