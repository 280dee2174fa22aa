"""What a study says while it runs: the numbers are in it, in words that fit them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from batchlab.analysis.capacity.capacity import Capacity
from batchlab.core.batch import Unit, lay_out
from batchlab.core.experiment import TaskReference, build_experiment
from batchlab.core.metric import Metric
from batchlab.core.protocols import Waiting
from batchlab.core.record import Outcome, Record, TaskInfo, ThroughputResult, TrainResult
from batchlab.core.spec import CapacitySpec, CheckSpec, TrainSpec, Workload
from batchlab.storage.decisions import BudgetDecision, LimitKind
from batchlab.words.capacity_reasons import describe_limit
from batchlab.words.progress import (
    critical_title,
    describe_branches,
    describe_capacity,
    describe_decays,
    describe_finished,
    describe_plan,
    describe_remaining,
    describe_throughput,
    describe_token_file,
    describe_waiting,
    describe_whole_runs,
    refused_size,
    status_lines,
    sweep_title,
)

TASK = TaskReference(kind="recipe", target="quickstart")
WORKLOAD = Workload(task=TASK, sequence_length=8)
TASK_INFO = TaskInfo(
    unit=Unit.TOKENS,
    sequence_length=8,
    train_samples=1000,
    valid_samples=100,
    parameter_count=139_328,
    optimizer_family="adam",
    data_source="text",
    data_digest="d",
    device="cpu",
)


def train_spec(batch: int = 16, fits: int = 16, tokens: int = 4096, **more: object) -> TrainSpec:
    layout = lay_out(batch, fits, sequence_length=8)
    return TrainSpec.model_validate(
        {
            "workload": WORKLOAD,
            "layout": layout,
            "learning_rate": 3e-3,
            "seed": 2,
            "token_budget": tokens,
            "evaluation_interval": tokens,
            **more,
        }
    )


def finished(outcome: Outcome = Outcome.COMPLETED, loss: float | None = 1.5, undertrained: bool = False) -> Record:
    result = TrainResult(steps=3, tokens=96, val_loss=loss, seconds=83.0, undertrained=undertrained)
    return Record(run_id="train-x", outcome=outcome, result=result, reason="" if loss else "The loss was NaN.")


def capacity(**more: object) -> Capacity:
    values = {"max_micro_batch_size": 48, "smallest_failed": 49, "searched_up_to": 64, "limit_bytes": 2**30}
    return Capacity(points=(), status="verified", **{**values, "limit_is": LimitKind.DEVICE_MEMORY, **more})  # type: ignore[arg-type]


def test_a_finished_run_is_named_by_its_cell_with_its_loss() -> None:
    assert describe_finished(train_spec(), finished()) == (
        "batch 16 × LR 3.0e-3, seed 2: val loss 1.5000 in 1 min 23 s"
    )
    assert "(4 micro-batches of 4)" in describe_finished(train_spec(fits=4), finished())
    assert describe_finished(train_spec(), finished(undertrained=True)).endswith("undertrained")


def test_a_run_without_a_loss_has_its_outcome_and_reason() -> None:
    assert describe_finished(train_spec(), finished(Outcome.DIVERGED, None)).endswith(": diverged. The loss was NaN.")
    probe = CapacitySpec(workload=WORKLOAD, micro_batch_size=4)
    assert describe_finished(probe, Record(run_id="capacity-4", outcome=Outcome.COMPLETED)) == "capacity-4: done"


def test_why_a_check_failed_is_left_to_the_stage() -> None:
    failed = Record(run_id="check-1", outcome=Outcome.FAILED, reason="It printed nothing.")
    assert describe_finished(CheckSpec(workload=WORKLOAD), failed) == "check-1: failed."


def test_a_metric_is_told_by_its_name() -> None:
    metric = Metric(name="accuracy", better="higher")
    spec = train_spec()
    judged = spec.model_copy(update={"workload": spec.workload.model_copy(update={"metric": metric})})
    assert ": 1 − accuracy " in describe_finished(judged, finished())


def test_titles_count_their_runs() -> None:
    budget = BudgetDecision(
        token_budget=4096,
        evaluation_interval=512,
        adaptive=False,
        runs_planned=5,
        runs_at_most=5,
        workers=1,
        seconds_planned=None,
        steps_of_largest=64,
        steps_to_judge=50,
        undertrained=(),
    )
    assert sweep_title(1, budget, Unit.SAMPLES) == "sweep: 1 run of 4,096 samples"
    assert sweep_title(5, budget, Unit.TOKENS) == "sweep: 5 runs of 4,096 tokens"
    equal_time = budget.model_copy(update={"run_seconds": 300.0})
    assert sweep_title(5, equal_time, Unit.TOKENS) == "sweep: 5 runs of 5 min each, at most 4,096 tokens"
    assert critical_title(1, "branches") == "critical: 1 branch"
    assert critical_title(3, "segments").startswith("critical: 3 segments")
    assert describe_remaining(2, 8, 120.0) == "[2 of 8, about 2 min left]"


@pytest.mark.parametrize(("load", "caveat"), [(None, False), (0.01, False), (0.5, True)])
def test_throughput_has_a_caveat_where_the_processor_was_shared(load: float | None, caveat: bool) -> None:
    result = ThroughputResult(
        tokens_per_second=1234.5,
        tokens_per_second_blocks=(1234.5,),
        step_seconds=0.1,
        warmup_seconds=0.1,
        other_load=load,
    )
    text = describe_throughput(8, result, Unit.TOKENS)
    assert text.startswith("batch 8: 1,234 tokens/s")
    assert ("50 %" in text) == caveat


def test_capacity_says_what_fits_and_what_does_not() -> None:
    assert describe_capacity(capacity()) == "micro-batch 48 fits within 1.00 GiB (the device's own memory); 49 does not"
    assert "larger" in describe_capacity(capacity(max_micro_batch_size=64, smallest_failed=None))
    assert describe_capacity(capacity(max_micro_batch_size=None)).startswith("nothing fits within 1.00 GiB")
    assert describe_capacity(capacity(limit_bytes=None)) == "micro-batch 48 fits; 49 does not"


def test_every_memory_limit_has_a_phrase_of_its_own() -> None:
    phrases = {describe_limit(limit) for limit in LimitKind}
    assert len(phrases) == len(LimitKind)


def test_the_status_has_a_line_per_kind_then_failures_and_unfinished_runs() -> None:
    experiment = build_experiment({"name": "mine", "task": TASK})
    failed = Record(run_id="train-bad", outcome=Outcome.FAILED, reason="It broke.")
    records = [(train_spec(), finished()), (train_spec(batch=8), finished()), (train_spec(batch=4), failed)]
    budget = BudgetDecision(
        token_budget=4096,
        evaluation_interval=512,
        adaptive=False,
        runs_planned=20,
        runs_at_most=20,
        workers=1,
        seconds_planned=None,
        steps_of_largest=64,
        steps_to_judge=10,
        undertrained=(),
    )
    lines = status_lines(experiment, records, ["train-begun"], budget)
    assert lines[0] == "mine: quickstart"
    assert lines[1].split() == ["train", "2", "completed,", "1", "failed"]
    assert lines[2].split()[:3] == ["planned", "20", "runs"]
    assert lines[3].strip() == "train-bad: failed. It broke."
    assert lines[4].strip().startswith("train-begun: unfinished")
    assert status_lines(experiment, [], [], None) == ["mine: quickstart"]


def plan(**sections: object) -> str:
    experiment = build_experiment({"name": "mine", "task": TASK, "sequence_length": 8, **sections})
    return "\n".join(describe_plan(experiment, TASK_INFO, "12 runs"))


def test_a_dry_run_names_axes_budget_and_cost() -> None:
    text = plan(
        sweep={"search": "grid", "learning_rates": (1e-3, 1e-2), "seeds": 1, "max_extensions": 0},
        batch={"global_batch_sizes": (4, 8)},
        budget={"token_budget": 6400, "max_runs": 9, "max_tokens": 50_000},
    )
    assert "139,328 parameters" in text
    assert "1,000 samples, 100 held out" in text
    assert "batch 4 and 8 × LR 1.0e-3 and 1.0e-2 = 4 runs" in text
    assert "edge" not in text
    assert "at most 9 runs before the seeds; at most 50,000 tokens in all" in text
    assert "6,400 tokens a run; the largest size gets 100 steps" in text
    assert text.endswith("cost: 12 runs\nnothing was written")


def test_a_dry_run_of_an_adaptive_search_within_a_time() -> None:
    text = plan(budget={"time_budget_seconds": 3600.0})
    assert "LR from 3.0e-4 to 1.0e-2" in text
    assert "at most 16 runs" in text
    assert "fit into 1 h at" in text
    assert "at an edge of the grid" in plan(sweep={"search": "grid"})


def test_critical_runs_are_counted_with_their_tokens() -> None:
    whole = [train_spec(batch=4, tokens=1024), train_spec(batch=8, tokens=2048)]
    text = describe_whole_runs(whole, Unit.TOKENS)
    assert text.startswith("2 runs of 1,024 and 2,048 tokens at batch 4 and 8")
    assert text.endswith(": 3,072 tokens")
    segment, decay = train_spec(keep_end=True), train_spec(tokens=1024, start="train-x")
    assert "1 decay" in describe_decays(1, [segment, decay], Unit.TOKENS)
    branches = describe_branches([segment], [decay, decay], [segment, decay, decay], Unit.TOKENS)
    assert branches.startswith("1 checkpoint of a parent run at batch 16")
    assert "2 branches of 1,024 tokens" in branches
    assert branches.endswith(": 6,144 tokens")


def test_a_refused_size_has_its_reason() -> None:
    texts = {refused_size(4096, why, 512_000, Unit.TOKENS, "no rule") for why in ("memory", "data", "steps")}
    assert len(texts) == 3
    assert all(text.startswith("Batch 4,096 ") for text in texts)
    assert any("512k tokens" in text for text in texts)
    assert refused_size(8, "learning rate", 1, Unit.TOKENS, "no rule.").endswith("no rule.")


@pytest.mark.parametrize(
    ("continued", "says"), [(0, "written"), (40, "byte 40 of an earlier attempt"), (100, "already complete")]
)
def test_a_token_file_is_described_with_the_command_that_uses_it(continued: int, says: str) -> None:
    description = SimpleNamespace(
        text_bytes=100,
        tokens=50,
        text="a.txt",
        dtype="uint16",
        tokenizer="bpe",
        vocabulary=300,
        tokenizer_file="t.json",
    )
    made = SimpleNamespace(description=description, continued_from=continued, notices=("one notice",))
    lines = describe_token_file(Path("out/a.bin"), made, trained=True)  # type: ignore[arg-type]
    assert lines[0].startswith("out/a.bin: 50 tokens of a.txt (uint16), ")
    assert says in lines[0]
    assert "2.00 bytes of text per token, vocabulary 300" in lines[1]
    assert lines[2] == "  one notice"
    assert "--tokenizer out/t.json" in lines[3]
    assert "--set data.path=out/a.bin --set data.vocabulary=300" in lines[4]
    assert len(describe_token_file(Path("a.bin"), made, trained=False)) == 4  # type: ignore[arg-type]


def test_what_is_awaited_is_named_with_its_owner() -> None:
    after = "; if that process was stopped, continue or end it"
    assert (
        describe_waiting(Waiting("train-1", "process 7 on a"))
        == f"waiting until process 7 on a has finished train-1{after}"
    )
    made = describe_waiting(Waiting("train-1", "process 7 on a", "/cache/text.txt"))
    assert made == f"waiting until process 7 on a has made /cache/text.txt{after}"
    assert describe_waiting(Waiting("train-1", "")).startswith("waiting until another process has")
