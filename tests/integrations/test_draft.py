"""batchlab init: what it reads out of scripts of every style, without running them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from batchlab.cli.commands.init import init
from batchlab.core.command import Command
from batchlab.core.errors import InputError
from batchlab.integrations.script.draft import Draft, draft
from batchlab.integrations.script.options import Style, read_script
from batchlab.integrations.script.template import template_of
from batchlab.words.script_draft import toml_of

CLICK = """
import click
raise SystemExit("this must never run")
@click.command()
@click.option("--batch-size", "-b", default=32)
@click.option("--lr", default=1e-3)
@click.option("--max-steps", type=int, default=1000)
@click.option("--wandb/--no-wandb", default=False)
def main(batch_size, lr, max_steps, wandb):
    print("step %d val_loss=%.3f" % (1, 2.0))
"""
TYPER = """
import typer
def main(data: str, batch_size: int = 16, lr: float = typer.Option(0.1), epochs: int = 3, seed: int = 0): ...
if __name__ == "__main__":
    typer.run(main)
"""
TRAINER = """
from transformers import HfArgumentParser, TrainingArguments
parser = HfArgumentParser((ModelArguments, TrainingArguments))
"""
CONSTANTS = """
TOTAL_BATCH_SIZE = 2**19
DEVICE_BATCH_SIZE = 128
EMBEDDING_LR = 0.6
print(f"val_bpb:          {x:.6f}")
"""


def draft_of(source: str | Path, tmp_path: Path) -> Draft:
    path = source if isinstance(source, Path) else tmp_path / "train.py"
    if isinstance(source, str):
        path.write_text(source)
    return draft(read_script(path), path.name)


def test_globals_with_a_configurator(scripts: Path, tmp_path: Path) -> None:
    found = draft_of(scripts / "globals_style.py", tmp_path)
    assert found.script.style is Style.GLOBALS
    assert found.filled == {
        "--batch_size": "micro_batch_size",
        "--gradient_accumulation_steps": "grad_accum_steps",
        "--learning_rate": "learning_rate",
        "--max_iters": "steps",
        "--seed": "seed",
        "--warmup_iters": "warmup_steps",
        "--out_dir": "run_dir",
        "--eval_interval": "steps",
    }
    assert found.sequence_length == 16
    assert found.missing == ()
    assert found.script.val_loss is not None
    match = re.search(found.script.val_loss, "step 50: val loss 0.2831")
    assert match is not None
    assert match.group(1) == "0.2831"
    assert found.script.step is not None
    assert [re.search(found.script.step, text).group(1) for text in ("step 7:", "iter 8:")] == ["7", "8"]  # type: ignore[union-attr]


def test_argparse(scripts: Path, tmp_path: Path) -> None:
    found = draft_of(scripts / "argparse_style.py", tmp_path)
    assert found.script.style is Style.ARGPARSE
    assert found.filled["--learning_rate"] == "learning_rate"
    assert "--batch_size {micro_batch_size}" in found.run
    assert [option.flag for option in found.left] == ["--fail"]


def test_key_value(scripts: Path, tmp_path: Path) -> None:
    found = draft_of(scripts / "key_value_style.py", tmp_path)
    assert found.script.style is Style.KEY_VALUE
    assert "batch={batch_size} lr={learning_rate} epochs={epochs} seed={seed}" in found.run
    assert found.script.val_loss is None


@pytest.mark.parametrize(
    ("source", "style", "run"),
    [
        (
            CLICK,
            Style.CLICK,
            "{python} train.py --batch-size {batch_size} --lr {learning_rate} --max-steps {steps}",
        ),
        (
            TYPER,
            Style.TYPER,
            "{python} train.py --batch-size {batch_size} --lr {learning_rate} --epochs {epochs} --seed {seed}",
        ),
    ],
)
def test_decorated_functions(source: str, style: Style, run: str, tmp_path: Path) -> None:
    found = draft_of(source, tmp_path)
    assert found.script.style is style
    assert found.run == run


def test_the_command_of_a_group_that_trains(scripts: Path, tmp_path: Path) -> None:
    found = draft_of(scripts / "click_style.py", tmp_path)
    assert found.run == (
        "{python} click_style.py train --batch-size {batch_size} --lr {learning_rate} --max-steps {steps} --seed {seed}"
    )
    assert found.script.val_loss is not None
    assert re.search(found.script.val_loss, "validation loss = 0.2831").group(1) == "0.2831"  # type: ignore[union-attr]


SEVERAL = """
import typer
app = typer.Typer()
@app.command()
def evaluate(path: str): ...
@app.command("fit")
def train(data: Annotated[str, typer.Argument()], token: Annotated[str, typer.Option("--hub-token")],
          batch_size: Annotated[int, typer.Option("-b", "--bs-train", "--batch-size")] = 16,
          n_steps: int = typer.Option(100, "--n-steps"), fast: bool = False): ...
"""


def test_annotations_of_typer(scripts: Path, tmp_path: Path) -> None:
    assert draft_of(scripts / "typer_style.py", tmp_path).run == (
        "{python} typer_style.py --batch-size {batch_size} --learning-rate {learning_rate} --num-steps {steps} "
        "--seed {seed}"
    )
    found = draft_of(SEVERAL, tmp_path)
    assert found.run == "{python} train.py fit --batch-size {batch_size} --n-steps {steps}"
    assert found.script.required == ("data", "--hub-token")


def test_a_parser_of_trl_evaluates_at_the_end(scripts: Path, tmp_path: Path) -> None:
    found = draft_of(scripts / "sft_style.py", tmp_path)
    assert found.script.style is Style.TRL
    assert "--eval_strategy steps --eval_steps {steps}" in found.run


def test_the_classes_of_a_lightning_cli(scripts: Path, tmp_path: Path) -> None:
    found = draft_of(scripts / "lightning_cli_style.py", tmp_path)
    assert found.run.startswith("{python} lightning_cli_style.py fit ")
    assert "--data.batch_size {batch_size} --model.lr {learning_rate} --trainer.max_steps {steps}" in found.run
    assert tomllib.loads(toml_of(found))["command"]["metrics"]["from"] == "csv"


def test_what_starts_a_process_group_is_told_how(scripts: Path, tmp_path: Path) -> None:
    found = draft_of(scripts / "ddp_style.py", tmp_path)
    assert found.script.distributed
    assert "torchrun" in toml_of(found)


def test_a_seed_that_is_no_option_is_pointed_out(tmp_path: Path) -> None:
    source = "import torch\nbatch_size = 8\nmax_iters = 10\nexec(open('c.py').read())\ntorch.manual_seed(1337)\n"
    found = draft_of(source, tmp_path)
    assert "line 5 sets a seed" in toml_of(found)


def test_a_process_group_that_is_only_sometimes_there_is_not_pointed_out(tmp_path: Path) -> None:
    source = "batch_size = 8\nddp = False\nif ddp:\n    init_process_group(backend='nccl')\n"
    assert not draft_of(source, tmp_path).script.distributed


def test_a_whole_batch_may_count_tokens(tmp_path: Path) -> None:
    found = draft_of("import sys\n" + CONSTANTS + "globals().update(sys.argv)\n", tmp_path)
    assert found.filled["--TOTAL_BATCH_SIZE"] == "tokens_per_step"
    assert found.filled["--DEVICE_BATCH_SIZE"] == "micro_batch_size"


def test_the_loss_of_a_test_set(scripts: Path, tmp_path: Path) -> None:
    pattern = draft_of(scripts / "mnist_style.py", tmp_path).script.val_loss
    assert pattern is not None
    said = "Test set: Average loss: 0.0271, Accuracy: 9913/10000 (99%)"
    assert re.search(pattern, said).group(1) == "0.0271,"  # type: ignore[union-attr]


def test_training_arguments_are_known(tmp_path: Path) -> None:
    found = draft_of(TRAINER, tmp_path)
    assert found.script.style is Style.TRAINING_ARGUMENTS
    assert found.missing == ()
    assert "--per_device_train_batch_size {micro_batch_size}" in found.run
    assert tomllib.loads(toml_of(found))["command"]["metrics"]["from"] == "trainer_state"


def test_constants_cannot_be_filled(tmp_path: Path) -> None:
    found = draft_of(CONSTANTS, tmp_path)
    assert found.script.style is Style.CONSTANTS
    assert not found.usable
    assert found.script.val_loss == r"val_bpb:\s*(\S+)"


@pytest.mark.parametrize("name", ["globals_style.py", "argparse_style.py", "key_value_style.py"])
def test_what_is_written_is_a_command(name: str, scripts: Path) -> None:
    assert init(scripts / name) == 0
    text = (scripts / "study.toml").read_text().replace("train_samples = 0", "train_samples = 256")
    template_of(Command.model_validate(tomllib.loads(text)["command"]))


@pytest.mark.parametrize(
    ("name", "package"), [("finetune_style.py", "transformers"), ("lightning_style.py", "lightning")]
)
def test_a_trainer_without_options_is_studied_itself(name: str, package: str, scripts: Path) -> None:
    with pytest.raises(InputError, match=f"the Trainer of {package}: batchlab study "):
        init(scripts / name)
    assert not (scripts / "study.toml").exists()


def test_a_length_in_seconds(scripts: Path, tmp_path: Path) -> None:
    assert "--seconds {seconds}" in draft_of(scripts / "timed_style.py", tmp_path).run


def test_nothing_is_overwritten(scripts: Path) -> None:
    (scripts / "study.toml").write_text("mine")
    with pytest.raises(InputError, match="exists and is kept"):
        init(scripts / "argparse_style.py")
    assert (scripts / "study.toml").read_text() == "mine"


@pytest.mark.parametrize(("content", "said"), [(None, "no file"), ("def (", "cannot be read as Python")])
def test_what_is_no_script_is_refused(content: str | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=said):
        init(path)
    assert not (tmp_path / "study.toml").exists()
