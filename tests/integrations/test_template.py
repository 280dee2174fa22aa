"""Placeholders: what a command needs, and how it is filled without a shell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.core.batch import BatchLayout
from batchlab.core.command import Command
from batchlab.core.errors import InputError
from batchlab.core.experiment import Experiment, TaskReference, build_experiment
from batchlab.integrations.script.answer import answer_command
from batchlab.integrations.script.attempt import Filling, placeholder_values
from batchlab.integrations.script.fit import fitted
from batchlab.integrations.script.template import Template, parse, template_of

MakeCommand = Callable[..., Command]
WHOLE = "{python} train.py --bs {batch_size} --steps {steps} --lr {learning_rate} --seed {seed}"


def command_of(run: str, **more: object) -> Command:
    return Command.model_validate({"run": run, "metrics": {"val_loss": r"(\S+)"}, **more})


@pytest.mark.parametrize(
    ("run", "more", "said"),
    [
        ("{python} t.py --steps {steps}", {}, "no placeholder for the batch size"),
        ("{python} t.py --bs {batch_size}", {}, "does not say how long to train"),
        ("{python} t.py --bs {batchsize} {steps}", {}, "Did you mean 'batch_size'?"),
        ("{python} t.py 'oops {batch_size} {steps}", {}, "close its quotes"),
        ("{python} t.py {grad_accum_steps} {batch_size} {steps}", {}, "without {micro_batch_size}"),
        ("torchrun --nproc 2 t.py {batch_size} {steps}", {}, "one device or of all together (torchrun"),
        ("{python} t.py {batch_size} {steps}", {"devices": 2}, "one device or of all together (devices = 2)"),
        ("{python} t.py {batch_size} {epochs}", {}, "set command.train_samples"),
        ("{python} t.py {batch_size} {tokens}", {}, "set command.sequence_length"),
        ("{python} t.py {batch_size} {micro_batch_size} {grad_accum_steps} {steps}", {}, "one follows from the other"),
        ("x{python} t.py {batch_size} {steps}", {}, "as a word of its own"),
    ],
)
def test_what_is_wrong_with_a_command_is_said(run: str, more: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said.replace("(", r"\(").replace(")", r"\)").replace("?", r"\?")):
        template_of(command_of(run, **more))


@given(st.text(st.characters(exclude_characters="{}\0", codec="utf-8"), max_size=30))
def test_a_value_stays_one_word(value: str) -> None:
    words = Template(("a", "--out={run_dir}", "{run_dir}")).filled({"run_dir": value})
    assert words == ["a", f"--out={value}", value]


def test_values_are_those_of_the_layout() -> None:
    layout = BatchLayout(global_batch_size=32, micro_batch_size=8, sequence_length=16)
    filling = Filling(layout, 3e-4, steps=10, tokens=5120, seed=3, warmup_steps=2)
    command = command_of(WHOLE, devices=2, sequence_length=16, train_samples=160)
    found = placeholder_values(command, filling, Path("/runs/a b"))
    assert found["micro_batch_size"] == "4"  # on each of two devices
    assert found["grad_accum_steps"] == "4"
    assert found["tokens_per_step"] == "512"
    assert (found["learning_rate"], found["seed"], found["epochs"]) == ("0.0003", "3", "2")


def experiment_of(run: str, **more: object) -> Experiment:
    reference = TaskReference(kind="command", target="/train.py", attribute="run")
    return build_experiment({"name": "mine", "task": reference.model_dump(), **more})


def test_without_a_seed_nothing_is_repeated() -> None:
    command = command_of("{python} t.py {batch_size} {steps} {learning_rate}")
    found = fitted(experiment_of(command.run), command)
    assert (found.sweep.seeds, len(found.sweep.confirmation_seeds)) == (1, 0)
    assert found.batch.micro_batching == "off"
    assert (found.schedule.kind, found.schedule.warmup_fraction) == ("task", 0.0)
    assert fitted(found, command) == found


def test_a_time_is_a_length_that_has_to_be_given() -> None:
    command = command_of("{python} t.py {batch_size} {seconds} {learning_rate}")
    with pytest.raises(InputError, match="--run-time 5m"):
        fitted(experiment_of(command.run), command)
    found = fitted(experiment_of(command.run, budget={"run_time_seconds": 300.0}), command)
    assert found.command is not None
    assert found.command.seconds == 300.0
    said = command.model_copy(update={"seconds": 60.0})
    assert fitted(experiment_of(command.run), said).budget.run_time_seconds == 60.0


def test_whole_epochs_have_no_equal_time() -> None:
    command = command_of("{python} t.py {batch_size} {epochs} {learning_rate}", train_samples=100)
    with pytest.raises(InputError, match="would round it to whole epochs"):
        fitted(experiment_of(command.run, budget={"run_time_seconds": 300.0}), command)


def test_a_learning_rate_that_cannot_be_swept_has_to_be_given() -> None:
    command = command_of("{python} t.py {batch_size} {steps} {seed}")
    with pytest.raises(InputError, match="--learning-rates 3e-4"):
        fitted(experiment_of(command.run), command)
    found = fitted(experiment_of(command.run, sweep={"learning_rates": [3e-4]}), command)
    assert (found.sweep.search, found.sweep.max_extensions) == ("grid", 0)


def test_batch_sizes_are_shared_by_all_devices() -> None:
    command = command_of("torchrun t.py {global_batch_size} {steps} {learning_rate}", devices=4)
    with pytest.raises(InputError, match="multiples of it; 6 is not"):
        fitted(experiment_of(command.run, batch={"global_batch_sizes": [4, 6]}), command)


def test_the_answer_is_a_command() -> None:
    experiment = experiment_of(WHOLE).model_copy(update={"command": command_of(WHOLE)})
    layout = BatchLayout(global_batch_size=32, micro_batch_size=32)
    assert answer_command(experiment, layout, 3e-4, 640, 0.0) == (
        "python train.py --bs 32 --steps 20 --lr 0.0003 --seed 0"
    )
    assert parse(WHOLE).has("seed")


def test_a_diverged_cell_is_tried_again_only_where_the_command_can_be_gentler() -> None:
    asked = {"sweep": {"retry_diverged": 1}}
    with pytest.raises(InputError, match="--retry-diverged lowers the learning rate"):
        fitted(experiment_of(WHOLE, **asked), command_of(WHOLE))
    gentler = f"{WHOLE} --warmup {{warmup_steps}}"
    assert fitted(experiment_of(gentler, **asked), command_of(gentler)).sweep.retry_diverged == 1
