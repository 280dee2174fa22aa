"""One history: a study that things happen to, as its seed says, and what must be true of it in the end."""

from __future__ import annotations

import json
import traceback
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.simulation.disk import SCRATCH
from tests.simulation.faults import Mishap, Plan, Quirk, plan
from tests.simulation.scheduler import Hung, Killed, Process, ProcessClock
from tests.simulation.workers import SteppedEngine
from tests.simulation.world import FOLDER, Group, Member, Point, World, WorldFiles

from batchlab.core.errors import BatchlabError
from batchlab.core.experiment import build_experiment
from batchlab.core.protocols import Engine, Event
from batchlab.core.settings import merge
from batchlab.engines.inline import InlineEngine
from batchlab.storage.atomic import is_temporary
from batchlab.storage.store import Store
from batchlab.storage.tables import outcomes_csv
from batchlab.study.study import run_study
from batchlab.study.task_source import resolve_task

EXPERIMENT = build_experiment(
    merge(
        resolve_task("simulated"),
        {
            "batch": {"global_batch_sizes": (8,)},
            "sweep": {"search": "grid", "learning_rates": (0.4, 0.8), "seeds": 1, "confirm": 0, "max_extensions": 0},
            "budget": {"token_budget": 64, "max_runs": 2},
            "evaluation": {"points": 2, "samples": 4},
            "noise": {"points": 0},
            "device": {"workers": 2, "threads": 1},
            # a step takes seconds of the device's clock, so every run saves checkpoints and few steps are timed
            "model": {"samples": 64, "dimensions": 8, "step_overhead_seconds": 60.0},
        },
    )
)

_MOST_REFUSALS = 4
_RESTART_SECONDS = (1.0, 30.0, 120.0)


class _View:
    """Keeps what was said."""

    def __init__(self, world: World) -> None:
        self._world = world

    def stage(self, title: str, runs: int | None = None) -> None: ...

    def say(self, text: str) -> None:
        self._world.said.append(text)

    def show(self, event: Event) -> None: ...

    def close(self) -> None: ...


class _User:
    """Gives the same command until it ends well: again after a kill, and a few times after a refusal."""

    def __init__(self, world: World, number: int, *, retry_failed: bool = False) -> None:
        self.completed = False
        self.refusals: list[str] = []
        self._world = world
        self._number = number
        self._begun = 0
        self._retry_failed = retry_failed
        self.begin(0.0)

    def begin(self, seconds: float) -> None:
        """Start the command in a while."""
        self._begun += 1
        name = f"study{self._number}-{self._begun}"
        self._world.scheduler.start(name, lambda process: self._live(process, seconds))

    def _live(self, process: Process, seconds: float) -> None:
        world = self._world
        group = Group()
        group.members.append(Member(process, group))
        try:
            if seconds:
                process.sleep(seconds)
            refusal = _command(world, group, self._retry_failed)
        except Killed:
            self.begin(world.dice.choice(_RESTART_SECONDS))
            raise
        except BatchlabError as error:
            refusal = str(error)
        except Exception:  # noqa: BLE001 - a traceback is what must never be seen
            world.violations.append(f"{process.name} ended with a traceback\n{traceback.format_exc()}")
            refusal = "traceback"
        world.disk.end_process(process)
        left = [member.process.name for member in group.members[1:] if _lives(member)]
        if left:
            world.violations.append(f"{process.name} ended and left {left}")
        self.completed = not refusal
        if refusal:
            world.trace.append(("     ", process.name, "refuses:", refusal))
            self.refusals.append(refusal)
            if len(self.refusals) < _MOST_REFUSALS and not world.healthy:
                self.begin(world.dice.choice(_RESTART_SECONDS))


def _lives(member: Member) -> bool:
    return not (member.process.ended or member.process.killed)


def _command(world: World, group: Group, retry_failed: bool) -> str:
    """The command, in a process; why it did not get to the end of the study, if so."""
    files = WorldFiles(world, group.study)
    clock = ProcessClock(world.scheduler, group.study.process)

    def engine(folder: Path, workers: int) -> Engine:
        if world.plan.workers:
            return SteppedEngine(world, group, folder, workers)
        return InlineEngine(folder, files=files, clock=clock)

    result = run_study(
        EXPERIMENT,
        FOLDER,
        engine,
        _View(world),
        retry_failed=retry_failed,
        files=files,
        clock=clock,
        write_documents=False,
    )
    return result.failure


@dataclass(frozen=True, slots=True)
class History:
    """What happened, and what was wrong in the end; nothing where `wrong` is empty."""

    plan: Plan
    hits: tuple[tuple[Mishap, Point], ...]
    counts: Counter[str]
    points: Collection[Point]
    operations: int
    refusals: tuple[str, ...]
    wrong: tuple[str, ...]
    trace: tuple[str, ...]


def live_through(world: World) -> list[_User]:
    """Let it happen, then repair the machine and give the command once more."""
    story = world.plan
    users = [_User(world, number) for number in range(story.processes)]
    world.scheduler.run()
    world.heal()
    world.trace.append(("      the machine is healthy again",))
    users.append(_User(world, story.processes, retry_failed=world.may_fail))
    world.scheduler.run()
    return users


def history(seed: int, *, traced: bool = False) -> History:
    """The history of a seed, with everything that must be true in the end checked."""
    world, users = World(plan(seed)), list[_User]()
    try:
        users = live_through(world)
    except Hung:
        world.violations.append("it hangs")
    else:
        _judge(world, users)
    return History(
        world.plan,
        tuple(world.hits),
        world.counts,
        world.points,
        world.operations,
        tuple(refusal for user in users for refusal in user.refusals),
        tuple(world.violations),
        tuple(" ".join(map(str, each)) for each in world.trace) if traced else (),
    )


def _judge(world: World, users: list[_User]) -> None:
    wrong = world.violations
    if not users[-1].completed:
        wrong.append(f"on a healthy machine the command refuses: {users[-1].refusals}")
    else:
        wrong += [f"{damaged.path} is {damaged.damage}" for damaged in Store.open(FOLDER, world.disk).damaged()]
    wrong += _left_over(world) + _lost(world)
    if not wrong and conclusions(world) != reference():
        wrong.append(_difference(conclusions(world), reference()))


@cache
def reference() -> tuple[str, str]:
    """What an undisturbed study concludes."""
    world = World(Plan(0, 1, True, 0.0, (), Quirk.NONE, 0.0))
    live_through(world)
    return conclusions(world)


def conclusions(world: World) -> tuple[str, str]:
    """outcomes.csv and decisions.json, without the digest of the notes, which begin with the date."""
    store = Store.open(FOLDER, world.disk)
    return outcomes_csv(store.records()), store.decisions().model_copy(update={"notes_digest": None}).as_json()


def _difference(found: tuple[str, str], expected: tuple[str, str]) -> str:
    lines = [
        f"{sign} {line}"
        for mine, theirs in zip(found, expected, strict=True)
        for sign, here, there in (("+", mine, theirs), ("-", theirs, mine))
        for line in here.splitlines()
        if line not in there.splitlines()
    ]
    return "the study concludes something else:\n" + "\n".join(lines)


def _left_over(world: World) -> list[str]:
    """Temporary files, checkpoints, locks and processes that are still there; files set aside without a reason."""
    wrong = [f"{path} is locked" for path in world.disk.held_locks()]
    wrong += [f"{process.name} still runs" for process in world.scheduler.processes]
    for path in world.disk.files():
        scratch = path.is_relative_to(SCRATCH)
        if world.left_behind and (scratch or path.match("/studies/.lock-test.*") or path.match("/.lock-test.*")):
            continue  # of a process that could not remove it; the next new study there removes tests of locks
        if scratch or is_temporary(path.name) or path.parent.name == "checkpoint":
            wrong.append(f"{path} is left over")
        if ".damaged" in path.name and not world.flipped:
            wrong.append(f"{path} was set aside though nothing was damaged")
    return wrong


def _lost(world: World) -> list[str]:
    """Records and decisions that were on disk for good, and are gone or changed."""
    wrong = []
    for path, content in world.promised.items():
        if path.is_relative_to(SCRATCH):
            continue
        now = world.disk.read(path) if world.disk.state(path) is not None else b""
        damaged = any(flipped.parent == path.parent for flipped in world.flipped)
        if path.name == "record.json":
            named = now and damaged and any(name.endswith(".damaged") for name in world.disk.names(path.parent))
            if now != content and not named:
                wrong.append(f"{path} is lost" if not now else f"{path} has changed")
        elif not damaged and not _continues(json.loads(content), _parsed(now)):
            wrong.append(f"{path} has lost or changed a decision")
    return wrong


def _parsed(content: bytes) -> object:
    try:
        return json.loads(content)
    except ValueError:
        return None


def _continues(before: object, after: object) -> bool:
    """Whether all decisions of before are those of after."""
    if isinstance(before, dict) and isinstance(after, dict):
        return all(key in after and (key == "sha256" or _continues(value, after[key])) for key, value in before.items())
    return before == after
