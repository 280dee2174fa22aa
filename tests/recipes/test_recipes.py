"""All recipes: valid experiments, their variants, and models of the published size."""

from __future__ import annotations

import dataclasses

import numpy as np
import psutil
import pytest

from batchlab.cli.options import Options, parse_experiment
from batchlab.core.errors import InputError
from batchlab.core.experiment import AcrossBatch, DataConfig, build_experiment
from batchlab.core.spec import DeviceSettings, OptimizerSettings, Workload
from batchlab.recipes import RECIPES, recipe
from batchlab.runs.workload import load
from batchlab.search.budget import steps_to_judge, token_budget_of
from batchlab.study.task_source import resolve_task
from batchlab.torch_.framework import TorchFramework

SEEDS = ["tinystories", "wikitext2", "elman"]


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_a_valid_experiment(name):
    experiment = build_experiment(resolve_task(name))
    assert experiment.task.target == name
    assert recipe(name).summary


@pytest.mark.parametrize("name", SEEDS)
@pytest.mark.parametrize("variant", ["low_resource", "quick_test"])
def test_a_variant_is_uncompiled_float32_and_every_size_gets_enough_steps(name, variant):
    experiment = build_experiment(resolve_task(name, variant))
    assert experiment.name == f"{name}-{variant.replace('_', '-')}"
    assert (experiment.device.precision, experiment.device.compile) == ("fp32", "off")
    sizes = experiment.batch.global_batch_sizes
    assert experiment.budget.token_budget is not None
    budget, interval = token_budget_of(
        experiment.budget.token_budget, sizes, experiment.sequence_length, experiment.evaluation.points
    )
    steps = budget // (sizes[-1] * experiment.sequence_length)
    assert steps >= steps_to_judge(experiment.schedule.warmup_fraction)
    assert budget >= interval * 2
    if variant == "low_resource":
        assert budget == pytest.approx(40e6, rel=0.03)


@pytest.mark.parametrize("name", SEEDS)
def test_a_published_study_keeps_its_settings_at_every_batch_size(name):
    experiment = build_experiment(resolve_task(name))
    assert experiment.optimizer.across_batch is AcrossBatch.FIXED
    assert (experiment.optimizer.beta1, experiment.optimizer.beta2) == (0.9, 0.999)


def test_the_published_axes():
    tinystories = build_experiment(resolve_task("tinystories"))
    assert tinystories.batch.global_batch_sizes == (1, 8, 32, 64, 128, 256, 512)
    assert tinystories.sweep.learning_rates == (3e-4,)
    assert tinystories.budget.token_budget is not None
    budget, _ = token_budget_of(tinystories.budget.token_budget, tinystories.batch.global_batch_sizes, 256, 20)
    assert budget == 327_680_000
    wikitext2 = build_experiment(resolve_task("wikitext2"))
    assert wikitext2.batch.global_batch_sizes == (12, 20)
    assert wikitext2.sweep.learning_rates == (1e-5, 3e-5, 1e-4, 3e-4, 1e-3)
    assert (wikitext2.sweep.first_seed, wikitext2.sweep.seeds) == (42, 1)


@pytest.mark.parametrize("variant", ["low_resource", "quick_test"])
def test_only_recipes_have_variants(variant):
    flag = "--" + variant.replace("_", "-")
    options = Options(low_resource=variant == "low_resource", quick_test=variant == "quick_test")
    with pytest.raises(InputError, match=flag):
        parse_experiment("mine.py", options)
    with pytest.raises(InputError, match=r"no --(low-resource|quick-test) variant.*tinystories, wikitext2, elman"):
        parse_experiment("quickstart", options)


def test_two_variants_at_once_are_rejected():
    with pytest.raises(InputError, match="one of them"):
        parse_experiment("elman", Options(low_resource=True, quick_test=True))


def test_flags_override_a_variant():
    asked = parse_experiment("elman", Options(quick_test=True, token_budget="65536", set_=("model.dim=32",)))
    assert asked.budget.token_budget == 65_536
    assert asked.model == {"dim": 32, "depth": 3}


PUBLISHED = {"tinystories": "TinyStories", "wikitext2": "WikiText-2", "elman": "the Pile"}


def workload(name, variant=None, **data):
    values = resolve_task(name, variant)
    return Workload(
        task=values["task"],
        sequence_length=values["sequence_length"],
        model=values["model"],
        data=DataConfig(**{**values["data"], **data}),
    )


@pytest.mark.parametrize("name", SEEDS)
@pytest.mark.parametrize("variant", [None, "quick_test"])
def test_without_a_path_the_embedded_text_is_used_as_bytes(name, variant, tmp_path):
    loaded = load(workload(name, variant), tmp_path)
    assert loaded.source.startswith("Python ")
    assert loaded.source.endswith(f"as bytes, instead of {PUBLISHED[name]}")
    assert loaded.train.gather(np.arange(2))[0].shape == (2, resolve_task(name, variant)["sequence_length"])


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("zzzz" * 400)
    return str(path)


@pytest.mark.parametrize("name", SEEDS)
def test_the_users_text_is_used(name, text, tmp_path):
    loaded = load(workload(name, "quick_test", path=text), tmp_path)
    assert loaded.source.startswith("text.txt")
    assert set(loaded.train.gather(np.arange(2))[0].ravel()) == {ord("z")}


@pytest.mark.parametrize("name", SEEDS)
def test_a_vocabulary_smaller_than_that_of_the_data_is_rejected(name, text, tmp_path):
    with pytest.raises(InputError, match=r"vocabulary of 256, but data\.vocabulary is 100; set it to 256"):
        load(workload(name, "quick_test", path=text, vocabulary=100), tmp_path)


@pytest.mark.parametrize("name", SEEDS)
def test_text_shorter_than_one_window_is_rejected(name, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("a few words that make no window of sixty-four")
    with pytest.raises(InputError, match=r"(training|held-out) data"):
        load(workload(name, "quick_test", path=str(short)), tmp_path)


def test_wikitext2_needs_the_files_of_gpt2(text, tmp_path):
    with pytest.raises(InputError, match=r"no tokenizer 'gpt2'.*vocab\.json and merges\.txt"):
        load(workload("wikitext2", path=text), tmp_path)


@pytest.mark.parametrize("name", SEEDS)
def test_an_unknown_model_setting_is_named(name, tmp_path):
    asked = workload(name, "quick_test")
    wrong = asked.model_copy(update={"model": {**asked.model, "depht": 3, "layres": 3}})
    with pytest.raises(InputError, match=r"There is no setting 'model\.depht'"):
        load(wrong, tmp_path)


PARAMETERS = {"tinystories": 22_696_448, "wikitext2": 162_304_084, "elman": 386_340_864}
FREE_BYTES = 6 * 2**30
LENGTH = 8


@pytest.mark.slow
@pytest.mark.parametrize("name", PARAMETERS)
def test_a_step_at_full_width_and_short_sequence(name, tmp_path):
    if psutil.virtual_memory().available < FREE_BYTES:
        pytest.skip(f"less than {FREE_BYTES // 2**30} GiB of free memory")
    experiment = build_experiment(resolve_task(name))
    asked = Workload(task=experiment.task, sequence_length=LENGTH, model=experiment.model, data=experiment.data)
    task = recipe(name).task(asked, tmp_path)
    # Weights, gradients and both of Adam's moments in bfloat16, as in the published E1: 8 bytes per parameter.
    narrow = dataclasses.replace(task, model=lambda: task.model().bfloat16())
    framework, device = TorchFramework(), DeviceSettings()
    framework.start(device, seed=0)
    trainable = framework.trainable(narrow, device, OptimizerSettings(config=experiment.optimizer))
    trainable.init(0)
    assert trainable.parameter_count() == PARAMETERS[name]
    tokens = np.frombuffer(b"def main():\n    pass\n", dtype=np.uint8)[: LENGTH + 1].astype(np.int64)
    batch = tokens[None, :-1], tokens[None, 1:]
    losses = []
    for _ in range(2):
        trainable.accumulate(batch, 1 / LENGTH)
        losses.append(float(trainable.apply(1e-4).loss))
    assert experiment.data.vocabulary is not None
    assert losses[0] == pytest.approx(np.log(experiment.data.vocabulary), rel=0.2)
    assert losses[1] < losses[0]
