"""`batchlab recipes`: printed in full, and printed so that it can be edited and run."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchlab.cli.app import run
from batchlab.core.experiment import build_experiment
from batchlab.core.spec import Workload
from batchlab.recipes import RECIPES
from batchlab.runs.workload import load
from batchlab.study.task_source import resolve_task


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["recipes", *arguments]) == 0
    return capsys.readouterr().out


def test_without_a_name_each_has_a_line(capsys):
    assert [line.split()[0] for line in printed(capsys).splitlines()] == list(RECIPES)


def test_a_recipe_in_full_has_its_story_and_every_setting(capsys):
    text = printed(capsys, "tinystories", "--low-resource")
    assert "As published" in text
    assert "token_budget = 40960000" in text
    assert "target_loss = 2.0" in text
    assert "epsilon = 1e-08" in text  # a default


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("flags", [(), ("--quick-test",), ("--low-resource",)])
def test_the_toml_of_a_recipe_asks_its_question(name, flags, capsys, tmp_path):
    if flags and name in ("quickstart", "simulated"):
        assert run(["recipes", name, "--toml", *flags]) == 2
        return
    (tmp_path / "mine.toml").write_text(printed(capsys, name, "--toml", *flags))
    variant = flags[0].strip("-").replace("-", "_") if flags else None
    asked, copied = resolve_task(name, variant), resolve_task(str(tmp_path / "mine.toml"))
    one, other = (build_experiment({**values, "name": "same"}) for values in (asked, copied))
    assert one.model_copy(update={"budget": other.budget}) == other
    assert (one.budget.token_budget or one.budget.epochs) == (other.budget.token_budget or other.budget.epochs)


def test_a_copied_function_trains_with_the_settings_of_its_toml(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = printed(capsys, "wikitext2", "--python")
    Path("mine.py").write_text(source)
    settings = printed(capsys, "wikitext2", "--toml", "--quick-test")
    Path("mine.toml").write_text(settings.replace('task = "wikitext2"', 'task = "mine.py"'))
    values = resolve_task("mine.toml")
    experiment = build_experiment(values)
    assert experiment.optimizer.grad_clip is None  # written down, not the default that a missing null would become
    workload = Workload(
        task=experiment.task,
        sequence_length=experiment.sequence_length,
        model={**experiment.model, "d_model": 32},
        data=experiment.data,
    )
    loaded = load(workload, tmp_path)
    assert loaded.task.model().embedding.weight.shape == (256, 32)


def test_a_function_that_gives_no_task_is_named(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def task(workload, cache_dir):\n    return 3\n")
    workload = Workload(task=resolve_task(str(path))["task"], sequence_length=8)
    with pytest.raises(Exception, match=r"returned int; return a batchlab task"):
        load(workload, tmp_path)


def test_batchlabs_own_task_function_in_a_file_is_no_recipe(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from batchlab import task\nimport torch\n"
        "mine = task(model=lambda: torch.nn.Linear(2, 1), loss=lambda m, x, y: m(x).mean(), "
        "train=(torch.zeros(4, 2), torch.zeros(4, 1)), valid=(torch.zeros(4, 2), torch.zeros(4, 1)))\n"
    )
    workload = Workload(task=resolve_task(str(path))["task"], unit="samples")
    assert len(load(workload, tmp_path).train) == 4
