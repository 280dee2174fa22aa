"""What an engine decides when workers die, stall, lie and babble, over scripted workers and a clock of their own."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchlab.core.batch import BatchLayout
from batchlab.core.errors import StorageFailed, StudyChanged, WorkerLost
from batchlab.core.experiment import TaskReference
from batchlab.core.protocols import Finished, Progress, Waiting
from batchlab.core.record import CapacityResult, Outcome, Record
from batchlab.core.spec import (
    CapacitySpec,
    CheckSpec,
    DeviceSettings,
    InspectSpec,
    Spec,
    ThroughputSpec,
    TraceSpec,
    TrainSpec,
    Workload,
    run_id,
)
from batchlab.core.worker import HEARTBEAT_SECONDS, LOST_SECONDS, WorkerCommand
from batchlab.engines.dispatcher import BACK_OFF_SECONDS
from batchlab.engines.hosts import Host
from batchlab.engines.pool import STARTING_OVER_SSH
from batchlab.storage.lock import owner
from batchlab.storage.run_folder import RunFolder

WORKLOAD = Workload(task=TaskReference(kind="file", target="mine.py"))
LAYOUT = BatchLayout(global_batch_size=8, micro_batch_size=8)


def train(seed: int = 0) -> TrainSpec:
    return TrainSpec(
        workload=WORKLOAD, layout=LAYOUT, learning_rate=1e-3, seed=seed, token_budget=64, evaluation_interval=64
    )


def capacity(size: int = 8) -> CapacitySpec:
    return CapacitySpec(workload=WORKLOAD, micro_batch_size=size, device=DeviceSettings(memory_limit=2**30))


KINDS: tuple[Spec, ...] = (
    InspectSpec(workload=WORKLOAD),
    CheckSpec(workload=WORKLOAD),
    TraceSpec(workload=WORKLOAD, micro_batch_sizes=(1, 2)),
    capacity(),
    ThroughputSpec(workload=WORKLOAD, layout=LAYOUT),
    train(),
)
EVERY_KIND = pytest.mark.parametrize("spec", KINDS, ids=[spec.kind for spec in KINDS])


def carry_out(engine: Any, *specs: Spec, exclusive: bool = False) -> list[Record]:
    """Submit, wait for all; the records in the order of the specs."""
    for spec in specs:
        engine.submit(spec, exclusive=exclusive)
    found: dict[str, Record] = {}
    for _ in range(10_000):
        for event in engine.wait(1.0):
            if isinstance(event, Finished):
                found[event.record.run_id] = event.record
        if len(found) == len(specs):
            return [found[run_id(spec)] for spec in specs]
    raise AssertionError("no end in sight")


def at_first(*scripts: Any, then: Any) -> Any:
    """A script for each of the first runs given to workers, and one for all others."""
    left = list(scripts)
    return lambda worker, spec: (left.pop(0) if left else then)(worker, spec)


def killed(worker: Any, spec: Spec) -> None:
    worker.later(1.0, lambda: worker.die(-9))


@EVERY_KIND
def test_a_run_whose_worker_was_killed_is_tried_again_a_little_later(scripted: Any, tmp_path: Path, spec: Spec) -> None:
    processes = scripted.ScriptedProcesses(tmp_path, at_first(killed, killed, killed, then=scripted.healthy))
    [record] = carry_out(scripted.SteppedEngine(processes), spec, exclusive=spec.kind != "train")
    assert record.outcome is Outcome.COMPLETED
    assert [attempt for _, attempt, _ in processes.attempts] == [1, 2, 3, 4]
    begun = [when for _, _, when in processes.attempts]
    waited = [later - earlier - 1.0 for earlier, later in pairwise(begun)]
    assert all(waited[number] >= BACK_OFF_SECONDS[number] for number in range(3))


@EVERY_KIND
def test_killed_again_and_again_it_is_not_recorded_and_the_study_ends(
    scripted: Any, tmp_path: Path, spec: Spec
) -> None:
    processes = scripted.ScriptedProcesses(tmp_path, killed)
    engine = scripted.SteppedEngine(processes)
    with pytest.raises(WorkerLost, match=r"SIGKILL.* 4 times.* run the same command again"):
        carry_out(engine, spec, exclusive=True)
    engine.close()
    assert RunFolder(tmp_path, spec).record() is None
    processes.script = scripted.healthy
    [record] = carry_out(scripted.SteppedEngine(processes), spec)
    assert record.outcome is Outcome.COMPLETED


@EVERY_KIND
def test_killed_while_the_system_counts_a_kill_for_memory_it_is_out_of_memory(
    scripted: Any, tmp_path: Path, spec: Spec
) -> None:
    def killed_for_memory(worker: Any, spec: Spec) -> None:
        def die() -> None:
            processes.kills += 1
            worker.die(-9)

        worker.later(1.0, die)

    processes = scripted.ScriptedProcesses(tmp_path, killed_for_memory)
    [record] = carry_out(scripted.SteppedEngine(processes), spec, exclusive=True)
    assert record.outcome is Outcome.OUT_OF_MEMORY
    assert "ran out of memory" in record.reason
    if isinstance(record.result, CapacityResult):
        assert (record.result.fits, record.result.certain) == (False, False)


def test_another_program_killed_for_memory_long_before_is_no_evidence(scripted: Any, tmp_path: Path) -> None:
    def count() -> None:
        processes.kills = 1

    def killed_later(worker: Any, spec: Spec) -> None:
        worker.later(1.0, count)
        worker.later(30.0, lambda: worker.die(-9))

    processes = scripted.ScriptedProcesses(tmp_path, killed_later)
    with pytest.raises(WorkerLost):
        carry_out(scripted.SteppedEngine(processes), capacity(), exclusive=True)


def test_a_crash_under_a_memory_limit_is_possibly_out_of_memory_and_without_one_a_failure(
    scripted: Any, tmp_path: Path
) -> None:
    processes = scripted.ScriptedProcesses(tmp_path, lambda worker, spec: worker.later(1.0, lambda: worker.die(-11)))
    bounded, check = carry_out(scripted.SteppedEngine(processes), capacity(), KINDS[1], exclusive=True)
    assert (bounded.outcome, bounded.attempts) == (Outcome.OUT_OF_MEMORY, 2)
    assert isinstance(bounded.result, CapacityResult)
    assert not bounded.result.certain
    assert (check.outcome, check.attempts) == (Outcome.FAILED, 2)
    assert "SIGSEGV" in check.reason


def test_a_failed_allocation_in_the_log_makes_a_crash_certain(scripted: Any, tmp_path: Path) -> None:
    def aborts(worker: Any, spec: Spec) -> None:
        folder = worker.folder()
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.log("terminate called after throwing an instance of 'std::bad_alloc'")
        worker.later(1.0, lambda: worker.die(-6))

    [record] = carry_out(scripted.SteppedEngine(scripted.ScriptedProcesses(tmp_path, aborts)), capacity())
    assert isinstance(record.result, CapacityResult)
    assert (record.outcome, record.result.certain) == (Outcome.OUT_OF_MEMORY, True)


def test_what_is_no_message_is_passed_over(scripted: Any, tmp_path: Path) -> None:
    def babbles(worker: Any, spec: Spec) -> None:
        worker.write(b'Welcome to node 7\n{"a": 1}\n\n\xff\xfe\nhalf a line and then')
        worker.later(0.5, lambda: worker.write(b" the rest\n"))
        worker.later(1.0, worker.finish)

    processes = scripted.ScriptedProcesses(tmp_path, babbles)
    [record] = carry_out(scripted.SteppedEngine(processes), train())
    assert (record.outcome, len(processes.attempts)) == (Outcome.COMPLETED, 1)


def test_a_message_in_two_parts_is_one(scripted: Any, tmp_path: Path) -> None:
    def slowly(worker: Any, spec: Spec) -> None:
        worker.record()
        worker.write(b'{"event": "finished", "run_id": "')
        worker.later(1.0, lambda: worker.write(worker.folder().run_id.encode() + b'"}\n'))

    processes = scripted.ScriptedProcesses(tmp_path, slowly)
    [record] = carry_out(scripted.SteppedEngine(processes), train())
    assert (record.outcome, len(processes.attempts)) == (Outcome.COMPLETED, 1)


def says_torn(worker: Any) -> None:
    worker.write(b'{"event": "finis{"event": "progress", "run_id": 3\n')


def says_unknown(worker: Any) -> None:
    worker.say("teleported")


def says_another_run(worker: Any) -> None:
    worker.say("finished", run_id=run_id(train(seed=99)))


def says_finished(worker: Any) -> None:
    worker.say("finished", run_id=worker.folder().run_id)


@pytest.mark.parametrize("says", [says_torn, says_unknown, says_another_run, says_finished])
def test_a_worker_that_breaks_the_protocol_is_ended_and_its_run_tried_again(
    scripted: Any, tmp_path: Path, says: Callable[[Any], None]
) -> None:
    processes = scripted.ScriptedProcesses(tmp_path, at_first(lambda worker, spec: says(worker), then=scripted.healthy))
    [record] = carry_out(scripted.SteppedEngine(processes), train())
    assert record.outcome is Outcome.COMPLETED
    assert processes.started[0].ended == -9
    assert [attempt for _, attempt, _ in processes.attempts] == [1, 2]
    processes.script = lambda worker, spec: says(worker)
    with pytest.raises(WorkerLost, match=r"4 times.*run the same command again"):
        carry_out(scripted.SteppedEngine(processes), train(seed=1))
    assert RunFolder(tmp_path, train(seed=1)).record() is None


def test_a_torn_line_of_a_dying_worker_is_dropped(scripted: Any, tmp_path: Path) -> None:
    def dies_while_it_writes(worker: Any, spec: Spec) -> None:
        worker.write(b'{"event": "progress", "run_id": "train')
        worker.die(-9)

    processes = scripted.ScriptedProcesses(tmp_path, at_first(dies_while_it_writes, then=scripted.healthy))
    [record] = carry_out(scripted.SteppedEngine(processes), train())
    assert record.outcome is Outcome.COMPLETED


def test_a_record_that_was_written_before_the_worker_died_counts(scripted: Any, tmp_path: Path) -> None:
    def dies_before_it_says_so(worker: Any, spec: Spec) -> None:
        worker.record()
        worker.die(-9)

    processes = scripted.ScriptedProcesses(tmp_path, dies_before_it_says_so)
    [record] = carry_out(scripted.SteppedEngine(processes), train())
    assert (record.outcome, len(processes.attempts)) == (Outcome.COMPLETED, 1)


def test_a_stalled_run_has_failed_and_the_others_go_on(scripted: Any, tmp_path: Path) -> None:
    processes = scripted.ScriptedProcesses(tmp_path, at_first(lambda worker, spec: None, then=scripted.healthy))
    engine = scripted.SteppedEngine(processes, workers=1, silence_seconds=60.0)
    stalled, good = carry_out(engine, train(), train(seed=1))
    assert (stalled.outcome, good.outcome) == (Outcome.FAILED, Outcome.COMPLETED)
    assert "60 seconds" in stalled.reason
    assert processes.started[0].ended == -9


def test_progress_is_a_sign_of_life(scripted: Any, tmp_path: Path) -> None:
    def slow(worker: Any, spec: Spec) -> None:
        for minute in range(1, 10):
            worker.later(50.0 * minute, worker.progress)
        worker.later(500.0, worker.finish)

    engine = scripted.SteppedEngine(scripted.ScriptedProcesses(tmp_path, slow), silence_seconds=60.0)
    engine.submit(train())
    events = [event for _ in range(600) for event in engine.wait(1.0)]
    assert [type(event) for event in events] == [Progress] * 9 + [Finished]


def test_time_in_which_this_process_stood_still_is_no_silence(scripted: Any, tmp_path: Path) -> None:
    processes = scripted.ScriptedProcesses(tmp_path, lambda worker, spec: worker.later(5000.0, worker.finish))
    engine = scripted.SteppedEngine(processes, silence_seconds=60.0)
    engine.submit(train())
    assert engine.wait(2.0) == []
    processes.clock.seconds += 5000.0  # the machine slept, or was paused
    [finished] = [event for _ in range(30) for event in engine.wait(1.0)]
    assert isinstance(finished, Finished)
    assert finished.record.outcome is Outcome.COMPLETED


def test_a_worker_that_cannot_start_ends_the_study_with_what_it_said(scripted: Any, tmp_path: Path) -> None:
    def breaks(worker: Any) -> None:
        worker.printed = "ModuleNotFoundError: No module named 'batchlab'\n"
        worker.die(1)

    processes = scripted.ScriptedProcesses(tmp_path, start=breaks)
    with pytest.raises(WorkerLost, match=r"could not be started: .*exit code 1, 4 times.*No module named"):
        carry_out(scripted.SteppedEngine(processes), train())
    assert len(processes.started) == 4
    assert RunFolder(tmp_path, train()).record() is None


def test_a_worker_that_does_not_come_up_in_time_is_replaced(scripted: Any, tmp_path: Path) -> None:
    def hangs_at_first(worker: Any) -> None:
        if worker.number:
            scripted.starts(worker)

    processes = scripted.ScriptedProcesses(tmp_path, start=hangs_at_first)
    [record] = carry_out(scripted.SteppedEngine(processes, silence_seconds=60.0), train())
    assert (record.outcome, len(processes.started)) == (Outcome.COMPLETED, 2)


def test_a_run_does_not_wait_for_a_worker_to_start_when_another_is_idle(scripted: Any, tmp_path: Path) -> None:
    def second_is_slow(worker: Any) -> None:
        worker.later(500.0 if worker.number else 0.5, lambda: worker.say("ready"))

    processes = scripted.ScriptedProcesses(tmp_path, start=second_is_slow)
    carry_out(scripted.SteppedEngine(processes), train(), train(seed=1), train(seed=2))
    assert processes.clock.seconds < 1010.0
    assert processes.started[1].run is None


@pytest.mark.parametrize(
    ("exit_code", "printed", "outcome"),
    [
        (137, "srun: error: n1: task 0: Killed", None),
        (1, "srun: error: Node failure on n1", None),
        (137, "slurmstepd: error: Detected 1 oom_kill event in StepId=3.0.", Outcome.OUT_OF_MEMORY),
        (139, "srun: error: n1: task 0: Segmentation fault", Outcome.OUT_OF_MEMORY),
    ],
)
def test_behind_a_launcher_the_exit_code_and_its_words_tell(
    scripted: Any, tmp_path: Path, exit_code: int, printed: str, outcome: Outcome | None
) -> None:
    def ends(worker: Any, spec: Spec) -> None:
        worker.printed = printed
        worker.later(1.0, lambda: worker.die(exit_code))

    processes = scripted.ScriptedProcesses(tmp_path, ends)
    command = WorkerCommand(("worker",), {"A": "b"}, prefix=("srun", "-N1", "-n1"))
    engine = scripted.SteppedEngine(processes, command=command)
    if outcome is None:
        with pytest.raises(WorkerLost):
            carry_out(engine, capacity(), exclusive=True)
    else:
        [record] = carry_out(engine, capacity(), exclusive=True)
        assert record.outcome is outcome
    started = processes.started[0].command
    assert started.arguments[:3] == ("srun", "-N1", "-n1")
    assert started.arguments[-2:] == ("--study", str(tmp_path))
    assert started.environment["A"] == "b"


@pytest.mark.parametrize(("event", "error"), [("failed_storage", StorageFailed), ("study_changed", StudyChanged)])
def test_a_full_disk_or_changed_data_ends_the_study(
    scripted: Any, tmp_path: Path, event: str, error: type[Exception]
) -> None:
    processes = scripted.ScriptedProcesses(
        tmp_path, lambda worker, spec: worker.say(event, run_id=run_id(spec), text="The reason.")
    )
    with pytest.raises(error, match=r"The reason\."):
        carry_out(scripted.SteppedEngine(processes), train())
    assert RunFolder(tmp_path, train()).record() is None


def test_a_run_of_another_process_is_awaited_by_name(scripted: Any, tmp_path: Path) -> None:
    processes = scripted.ScriptedProcesses(tmp_path)
    engine = scripted.SteppedEngine(processes)
    theirs = RunFolder(tmp_path, train())
    assert theirs.try_lock()
    for spec in (train(), train(seed=1)):
        engine.submit(spec)
    events = [event for _ in range(40) for event in engine.wait(1.0)]
    expected = Waiting(run_id(train()), owner())
    assert [event for event in events if not isinstance(event, Progress)][-1] == expected, "after the run that is ours"
    assert events.count(expected) == 1
    theirs.unlock()
    assert [event.spec for event in engine.wait(60.0) if isinstance(event, Finished)] == [train()]
    engine.close()


def test_a_worker_that_waits_for_a_file_tells_the_study_whose_it_is(scripted: Any, tmp_path: Path) -> None:
    def waits(worker: Any, spec: Spec) -> None:
        def wait() -> None:
            worker.say("waiting", run_id=run_id(spec), text="/cache/text.txt", owner="process 7 on elsewhere")

        for seconds in range(0, 1000, 10):
            worker.later(float(seconds), wait)
        worker.later(1000.0, worker.finish)

    engine = scripted.SteppedEngine(scripted.ScriptedProcesses(tmp_path, waits))
    engine.submit(train())
    waiting, finished = [event for _ in range(200) for event in engine.wait(10.0)]
    assert waiting == Waiting(run_id(train()), "process 7 on elsewhere", "/cache/text.txt")
    assert isinstance(finished, Finished)
    assert finished.record.outcome is Outcome.COMPLETED, "longer than silence_seconds, but not in silence"


def test_closing_releases_every_worker(scripted: Any, tmp_path: Path) -> None:
    processes = scripted.ScriptedProcesses(tmp_path, lambda worker, spec: None)
    engine = scripted.SteppedEngine(processes)
    engine.submit(train())
    engine.submit(train(seed=1))
    engine.wait(5.0)
    engine.close()
    assert len(processes.started) == 2
    assert all(worker.released for worker in processes.started)


HABITS = ("finish", "kill", "crash", "exit", "lie", "babble", "interrupted", "fresh", "stall")


@settings(max_examples=60, deadline=None)
@given(
    habits=st.lists(st.sampled_from(HABITS), max_size=12),
    exclusive=st.lists(st.booleans(), min_size=1, max_size=4),
    workers=st.integers(1, 3),
)
def test_whatever_workers_do_every_run_is_recorded_once_or_the_study_ends(
    scripted: Any,
    tmp_path_factory: pytest.TempPathFactory,
    habits: list[str],
    exclusive: list[bool],
    workers: int,
) -> None:
    left = list(habits)

    def script(worker: Any, spec: Spec) -> None:
        busy = [other for other in processes.alive if other.run is not None]
        assert len(busy) <= workers
        if any(isinstance(other.run, CapacitySpec) for other in busy):
            assert len(busy) == len(processes.alive) == 1, "a measurement runs alone"
        match left.pop(0) if left else "finish":
            case "finish":
                worker.later(1.0, worker.finish)
            case "kill":
                worker.later(0.3, lambda: worker.die(-9))
            case "crash":
                worker.later(0.3, lambda: worker.die(-11))
            case "exit":
                worker.later(0.3, lambda: worker.die(7))
            case "lie":
                says_finished(worker)
            case "babble":
                worker.write(b'{"event": 7}\n')
            case "interrupted" | "fresh" as how:
                worker.say("interrupted" if how == "interrupted" else "needs_fresh_process", run_id=run_id(spec))
                worker.run = None
            case "stall":
                pass

    processes = scripted.ScriptedProcesses(tmp_path_factory.mktemp("study"), script)
    specs = [capacity(number + 1) if alone else train(number) for number, alone in enumerate(exclusive)]
    engine = scripted.SteppedEngine(processes, workers=workers, silence_seconds=60.0)
    for spec, alone in zip(specs, exclusive, strict=True):
        engine.submit(spec, exclusive=alone)
    finished: list[str] = []
    try:
        while len(finished) < len(specs):
            assert processes.clock.seconds < 100_000.0, "no end in sight"
            finished += [event.record.run_id for event in engine.wait(1.0) if isinstance(event, Finished)]
    except WorkerLost:
        assert sum(habit in ("kill", "lie", "babble") for habit in habits) > len(BACK_OFF_SECONDS)
    engine.close()
    assert len(set(finished)) == len(finished)
    assert not processes.alive
    recorded = [run_id(spec) for spec in specs if RunFolder(processes.study, spec).record() is not None]
    assert set(finished) <= set(recorded)


def test_a_failed_assertion_on_a_card_is_repeated_where_launches_block(scripted: Any, tmp_path: Path) -> None:
    blocking: dict[str, list[str | None]] = {run_id(train(0)): [], run_id(train(1)): []}

    def script(worker: Any, spec: Spec) -> None:
        blocking[run_id(spec)].append(worker.command.environment.get("CUDA_LAUNCH_BLOCKING"))
        if blocking[run_id(train(0))] == [None] and spec == train(0):
            worker.say("needs_blocking_launches", run_id=run_id(spec))
            worker.run = None
        else:
            scripted.healthy(worker, spec)

    processes = scripted.ScriptedProcesses(tmp_path, script)
    first, second = carry_out(scripted.SteppedEngine(processes), train(0), train(1))
    assert first.outcome is second.outcome is Outcome.COMPLETED
    assert blocking == {run_id(train(0)): [None, "1"], run_id(train(1)): [None]}  # other runs are as fast as ever


def hosts(*names: str, workers: int = 1) -> list[Host]:
    """Machines behind launchers."""
    return [Host(name, WorkerCommand(("worker",), prefix=(name,)), workers, 8) for name in names]


def started_on(processes: Any) -> list[str]:
    return [worker.command.prefix[0] for worker in processes.started]


def test_training_is_spread_and_measuring_stays_on_the_first_host(scripted: Any, tmp_path: Path) -> None:
    processes = scripted.ScriptedProcesses(tmp_path)
    engine = scripted.SteppedEngine(processes, hosts=hosts("a", "b", "c"))
    carry_out(engine, *(train(seed) for seed in range(3)))
    assert sorted(started_on(processes)) == ["a", "b", "c"]
    before = len(processes.started)
    carry_out(engine, capacity(8), capacity(16), exclusive=True)
    assert set(started_on(processes)[before:]) == {"a"}


def test_a_host_that_falls_silent_loses_its_run_and_is_avoided(scripted: Any, tmp_path: Path) -> None:
    def lose_on_a(worker: Any, spec: Spec) -> None:
        if worker.command.prefix == ("b",):
            worker.later(60.0, worker.finish)
            beat(worker)

    def beat(worker: Any) -> None:
        if worker.run is not None:
            worker.say("alive")
            worker.later(HEARTBEAT_SECONDS, lambda: beat(worker))

    processes = scripted.ScriptedProcesses(tmp_path, lose_on_a)
    engine = scripted.SteppedEngine(processes, hosts=hosts("a", "b"))
    records = carry_out(engine, train())
    assert [record.outcome for record in records] == [Outcome.COMPLETED]
    assert started_on(processes) == ["a", "b"]
    (_, _, first), (_, _, second) = processes.attempts
    assert LOST_SECONDS < second - first <= 60.0, "the loss is noticed within a minute"


def test_a_launcher_may_wait_for_its_allocation(scripted: Any, tmp_path: Path) -> None:
    processes = scripted.ScriptedProcesses(
        tmp_path, start=lambda worker: worker.later(3600.0, lambda: worker.say("ready"))
    )
    records = carry_out(scripted.SteppedEngine(processes, hosts=hosts("a"), silence_seconds=600.0), train())
    assert [(record.outcome, record.attempts) for record in records] == [(Outcome.COMPLETED, 1)]


def test_a_study_ends_with_a_sentence_when_its_only_host_cannot_start_workers(scripted: Any, tmp_path: Path) -> None:
    processes = scripted.ScriptedProcesses(tmp_path, start=lambda worker: worker.die(255))
    with pytest.raises(WorkerLost, match="could not be started: it ended with exit code 255, 4 times"):
        carry_out(scripted.SteppedEngine(processes, hosts=hosts("a")), train())
    assert started_on(processes) == ["a"] * (1 + len(BACK_OFF_SECONDS))


def on_cards(devices: int, seed: int = 0) -> TrainSpec:
    layout = BatchLayout(global_batch_size=8, micro_batch_size=4, data_parallel_size=devices)
    return train(seed).model_copy(update={"layout": layout, "device": DeviceSettings(name="cuda")})


def test_a_run_on_several_devices_is_placed_whole_on_a_host_that_has_them(scripted: Any, tmp_path: Path) -> None:
    command = WorkerCommand(("python", "-m", "worker"), prefix=("ssh", "b"), through_shell=True)
    small = Host("a", WorkerCommand(("python", "-m", "worker"), prefix=("a",)), 1, 8, ("0",))
    large = Host("b", command, 2, 8, ("0", "1", "2", "3"))
    processes = scripted.ScriptedProcesses(tmp_path)
    carry_out(scripted.SteppedEngine(processes, hosts=[small, large]), on_cards(2, 0), on_cards(2, 1))
    first, second = (worker.command for worker in processes.started)
    assert first.prefix == second.prefix == ("ssh", "b")
    assert {command.environment["CUDA_VISIBLE_DEVICES"] for command in (first, second)} == {"0,1", "2,3"}
    assert first.program[:5] == ("python", "-P", "-m", "batchlab.engines.rank_group", "2"), (
        "started by the Python there"
    )
    assert first.arguments[-1].startswith("sh -c "), "one launch line starts all of its ranks"


def test_an_allocation_shows_a_run_the_cards_that_it_was_given(scripted: Any, tmp_path: Path) -> None:
    command = WorkerCommand(("python", "-m", "worker"), prefix=("srun", "--gpus=2"))
    allocated = Host("cluster", command, 2, 16, ("0", "1"), allocates=True)
    processes = scripted.ScriptedProcesses(tmp_path)
    carry_out(scripted.SteppedEngine(processes, hosts=[allocated]), on_cards(2))
    [worker] = processes.started
    assert "CUDA_VISIBLE_DEVICES" not in worker.command.environment


def test_few_workers_of_a_machine_log_in_at_a_time(scripted: Any, tmp_path: Path) -> None:
    """sshd drops connections at random where more than ten have not logged in yet."""
    together = [0]

    def slowly(worker: Any) -> None:
        together.append(sum(each.number not in ready for each in processes.started))
        worker.later(5.0, lambda: begin(worker))

    def begin(worker: Any) -> None:
        ready.add(worker.number)
        worker.say("ready")

    ready: set[int] = set()
    processes = scripted.ScriptedProcesses(tmp_path, start=slowly)
    command = WorkerCommand(("python",), prefix=("ssh", "a"), through_shell=True)
    engine = scripted.SteppedEngine(processes, hosts=[Host("a", command, 24, 24)])
    carry_out(engine, *(train(seed) for seed in range(24)))
    assert max(together) == STARTING_OVER_SSH < 10
