"""kill -9 at random moments of real studies with torch; afterwards outcomes.csv is equal to the last bit.

    python tests/chaos/torch_kills.py --kills 50 --minutes 60 --folder studies/chaos-torch

A history is one study of about twenty seconds: it is killed at random moments (the study's own process, one of its
workers, or all of them at once), begun again with the same command each time, and compared at its end with a study that
nothing happened to. What each history came to is appended to histories.jsonl, so this program can be stopped and begun
again at any time; a failed seed is repeated with --seed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from batchlab.core.record import TrainResult
from batchlab.storage.metrics import read_rows
from batchlab.storage.store import Store

# Checkpoints every fifth of a second, so that a run of seconds has some to go on from.
STUDY = """
import sys
import batchlab.cli.app as cli
import batchlab.study.engines as opening
from batchlab.core.spec import TrainSpec
from batchlab.engines.local import LocalEngine

class Engine(LocalEngine):
    def submit(self, spec, *, exclusive=False):
        frequent = {"checkpoint_seconds": 0.2} if isinstance(spec, TrainSpec) else {}
        super().submit(spec.model_copy(update=frequent), exclusive=exclusive)

opening.engine_factory = lambda asked, hosts=(), begins=None: Engine
cli.main(sys.argv[1:])
"""

SETTINGS = (
    *("--batch-sizes", "8,16", "--learning-rates", "1e-3,4e-3", "--token-budget", "98304", "--seeds", "1"),
    *("--search", "grid", "--set", "sweep.max_extensions=0"),
    *("--set", "device.workers=2", "--set", "device.threads=1"),
)

TARGETS = ("study", "worker", "all")
STAGES = ("starting", "check", "trace", "capacity", "throughput", "train")

SHORTEST_WAIT, LONGEST_WAIT = 0.01, 0.6
"""Between two kills, as shares of the time that an undisturbed study takes."""

KILLS_OF_A_HISTORY = 6
HUNG_SECONDS = 1200.0


@dataclass(frozen=True)
class Undisturbed:
    """A study that nothing happened to."""

    outcomes: bytes
    seconds: float


@dataclass(frozen=True)
class Kill:
    """Which process was killed, while the study was doing what."""

    target: str
    stage: str


@dataclass
class History:
    """One study that was killed again and again, and what came of it."""

    seed: int
    kills: list[Kill] = field(default_factory=list)
    seconds: float = 0.0
    resumed: int = 0  # runs that went on from a checkpoint
    gave_up: int = 0  # the study ended by itself because one run lost its worker four times
    faults: list[str] = field(default_factory=list)


def begin(folder: Path) -> subprocess.Popen[str]:
    """Begin or continue the study in a folder; its process leads a group of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", STUDY, "study", "quickstart", "--out", str(folder), *SETTINGS],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def workers_of(folder: Path) -> list[psutil.Process]:
    """The worker processes that serve a study."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if "batchlab.engines.worker" in command and str(folder) in command:
            found.append(process)
    return found


def stage_of(folder: Path) -> str:
    """What the study is doing: the kind of a run that was begun and is not finished."""
    begun = [spec.parent for spec in folder.glob("runs/*/spec.json") if not (spec.parent / "record.json").exists()]
    return max((run.name.partition("-")[0] for run in begun), key=STAGES.index, default="starting")


def kill(target: str, process: subprocess.Popen[str], folder: Path, dice: random.Random) -> bool:
    """kill -9; False where there was nothing to kill."""
    workers = workers_of(folder)
    if target == "worker":
        if not workers:
            return False
        workers = [dice.choice(workers)]
    if target in ("study", "all"):
        process.kill()
    if target in ("worker", "all"):
        for worker in workers:
            with suppress(psutil.NoSuchProcess):
                worker.kill()
    return True


def live_through(seed: int, folder: Path, undisturbed: Undisturbed, most: int) -> History:
    """Kill a study up to `most` times, let it finish, and compare."""
    dice, history, begun = random.Random(seed), History(seed), time.monotonic()
    process = begin(folder)
    while True:
        with suppress(subprocess.TimeoutExpired):
            share = dice.uniform(SHORTEST_WAIT, LONGEST_WAIT)
            process.wait(share * undisturbed.seconds if len(history.kills) < most else HUNG_SECONDS)
        if process.poll() is not None:
            said = process.communicate()[0]
            lost = process.returncode == 1 and "run the same command again" in said
            if "Traceback" in said or (process.returncode != 0 and not lost):
                history.faults.append(f"exit code {process.returncode}: {said[-2000:]}")
            if not lost:
                break
            history.gave_up += 1
            process = begin(folder)
        elif len(history.kills) < most:
            target, stage = dice.choice(TARGETS), stage_of(folder)
            if kill(target, process, folder, dice):
                history.kills.append(Kill(target, stage))
            if target != "worker":
                process.communicate()
                process = begin(folder)
        else:
            process.kill()
            history.faults.append(f"not finished {HUNG_SECONDS:g} seconds after the last kill")
            break
    history.faults += faults_in(folder, undisturbed.outcomes)
    results = [record.result for _, record in Store.open(folder).records()]
    history.resumed = sum(result.resumed > 0 for result in results if isinstance(result, TrainResult))
    history.seconds = time.monotonic() - begun
    return history


def faults_in(folder: Path, undisturbed: bytes) -> Iterator[str]:
    """What a finished study that was killed must not show."""
    outcomes = folder / "outcomes.csv"
    if not outcomes.exists() or outcomes.read_bytes() != undisturbed:
        yield "outcomes.csv differs"
    for metrics in folder.glob("runs/train-*/metrics.jsonl"):
        rows, unreadable = read_rows(metrics)
        trained = [row.step for row in rows if row.train_loss is not None]
        if unreadable or trained != sorted(set(trained)):
            yield f"rows of {metrics} are damaged, lost or repeated"
    for left in (*folder.rglob("*.batchlab-tmp"), *folder.glob("runs/*/checkpoint"), *folder.rglob("*.damaged*")):
        yield f"{left} is left over"
    deadline = time.monotonic() + 30.0
    while left_running := workers_of(folder):
        if time.monotonic() > deadline:
            yield f"still running: {left_running}"
            break
        time.sleep(0.1)


def leave_undisturbed(folder: Path) -> Undisturbed:
    """Carry out a study that nothing happens to, and one more to see that they are equal; or read what was kept."""
    kept, paths = folder / "undisturbed.json", [folder / "undisturbed", folder / "undisturbed-again"]
    begun = time.monotonic()
    if not kept.exists():
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)
            process = begin(path)
            said, _ = process.communicate()
            if process.returncode != 0:
                raise SystemExit(said)
        kept.write_text(json.dumps({"seconds": (time.monotonic() - begun) / len(paths)}))
    first, again = ((path / "outcomes.csv").read_bytes() for path in paths)
    if first != again:
        raise SystemExit(f"Two undisturbed studies differ, so nothing can be compared: {folder}")
    return Undisturbed(first, json.loads(kept.read_text())["seconds"])


def table(histories: Sequence[History]) -> str:
    """Kills by what was killed and what the study was doing, and what became of the studies."""
    counts = Counter((kill.target, kill.stage) for history in histories for kill in history.kills)
    lines = ["kill -9 of  " + "".join(f"{stage:>12}" for stage in (*STAGES, "all stages"))]
    for target in TARGETS:
        row = [counts[target, stage] for stage in STAGES]
        lines.append(f"{target:<12}" + "".join(f"{number:>12}" for number in (*row, sum(row))))
    same = sum(not history.faults for history in histories)
    lines += [
        "",
        f"kills                                            {sum(counts.values())}",
        f"studies                                          {len(histories)}",
        f"  outcomes.csv equal to the bit, nothing left    {same}",
        f"  anything else                                  {len(histories) - same}",
        f"runs that went on from a checkpoint              {sum(history.resumed for history in histories)}",
        f"studies that gave up on a run and were continued {sum(history.gave_up for history in histories)}",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Go through histories until there were enough kills, or the time is over; 1 where anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="in all histories together, finished ones included")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no further history after this time")
    parser.add_argument("--folder", type=Path, default=Path("studies/chaos-torch"), help="where to go on")
    parser.add_argument("--seed", type=int, help="this history alone, once more")
    asked = parser.parse_args(arguments)
    asked.folder.mkdir(parents=True, exist_ok=True)
    log, begun = asked.folder / "histories.jsonl", time.monotonic()
    told = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    histories = [History(**{**one, "kills": [Kill(**kill) for kill in one["kills"]]}) for one in told]
    folder = asked.folder.absolute()
    undisturbed = leave_undisturbed(folder)

    def enough() -> bool:
        kills = sum(len(history.kills) for history in histories)
        return kills >= asked.kills or time.monotonic() - begun > 60.0 * asked.minutes

    while asked.seed is not None or not enough():
        seed = asked.seed if asked.seed is not None else max((one.seed for one in histories), default=0) + 1
        shutil.rmtree(folder / f"seed{seed}", ignore_errors=True)
        history = live_through(seed, folder / f"seed{seed}", undisturbed, KILLS_OF_A_HISTORY)
        histories.append(history)
        with log.open("a") as file:
            file.write(json.dumps(asdict(history)) + "\n")
        what = "; ".join(history.faults) or "equal"
        print(f"seed {seed}: {len(history.kills)} kills, {history.seconds:.0f} s, {what}", flush=True)
        if not history.faults:
            shutil.rmtree(folder / f"seed{seed}")
        if asked.seed is not None:
            break
    print()
    print(table(histories))
    return 1 if any(history.faults for history in histories) else 0


if __name__ == "__main__":
    sys.exit(main())
