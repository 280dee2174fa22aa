"""A worker whose runs are toys: `python toy_worker.py --study DIR` speaks the real protocol in a few milliseconds, and
`python toy_worker.py --fork-server DESCRIPTOR` forks such workers.

Only `batchlab.runs.execute` is replaced. What a run does is written in its workload's `model` settings; the numbers it
ends with depend on every step, on the learning rate and the seed, so that a lost or repeated step shows.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import types
from functools import partial
from pathlib import Path
from typing import Any

from batchlab.core.errors import InputError
from batchlab.core.pairing import Pairing
from batchlab.core.protocols import ByteSink, Interrupted, OutOfMemory, RunContext, RunResult
from batchlab.core.record import CapacityResult, Environment, MetricRow, Outcome, TrainResult
from batchlab.core.spec import CapacitySpec, Spec, TrainSpec, Workload

_LOGGED_VARIABLES = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "SLURMD_NODENAME")

trained = 0
kept: list[str] = []
"""What capacity probes leave behind in a global."""


def execute(spec: Spec, context: RunContext) -> RunResult:
    global trained
    how = spec.workload.model
    _log_start(spec, context)
    if "raise" in how:
        raise ValueError(how["raise"])
    if "input_error" in how:
        raise InputError(str(how["input_error"]))
    if "exit" in how:
        sys.exit(3)
    if "full_disk" in how:
        raise OSError(28, "No space left on device")
    if "out_of_memory" in how or ("out_of_memory_if_reused" in how and trained):
        raise OutOfMemory("no more")
    if "memory_error" in how:
        raise MemoryError
    if "chatter" in how:
        print('{"event": "finished", "run_id": "forged"}')
        os.write(1, b"raw noise\n")
        os.system("echo from a child; echo to stderr >&2")  # noqa: S605
        assert sys.stdin.read() == ""
    if "fork" in how and os.fork() == 0:
        (context.cache_dir / "child.pid").write_text(str(os.getpid()))
        time.sleep(600)
    if "hang" in how:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("about to hang")
        time.sleep(600)
    if isinstance(spec, TrainSpec):
        trained += 1
        return _train(spec, context)
    _die(how, context, 0)
    time.sleep(float(how.get("sleep", 0)))
    if isinstance(spec, CapacitySpec):
        kept.append("memory")
        result = CapacityResult(
            micro_batch_size=spec.micro_batch_size, fits=True, steps=spec.steps, peak_bytes=len(kept)
        )
        return RunResult(Outcome.COMPLETED, "", result)
    return RunResult(Outcome.COMPLETED, "", None)


def _train(spec: TrainSpec, context: RunContext) -> RunResult:
    how = spec.workload.model
    tokens_per_step = spec.layout.tokens_per_step
    saved = context.load_checkpoint()
    value, start, resumed = 1.0, 0, 0
    if saved is not None:
        header, state = saved
        value, start, resumed = float(state.read().decode()), header["step"], header["resumed"] + 1
    for step in range(start + 1, spec.steps + 1):
        _die(how, context, step)
        value = (value * 1.7 + spec.learning_rate * step + spec.seed) % 3.1
        time.sleep(float(how.get("sleep", 0)))
        context.row(MetricRow(step=step, tokens=step * tokens_per_step, train_loss=value))
        context.progress(step, spec.steps, step * tokens_per_step, value, None)
        stopping = context.stop_requested()
        if stopping or step % int(how.get("checkpoint_every", 5)) == 0:
            content = repr(value).encode()
            context.save_checkpoint({"step": step, "resumed": resumed}, partial(_write, content))
        if stopping:
            raise Interrupted
    return RunResult(
        Outcome.COMPLETED,
        "",
        TrainResult(
            steps=spec.steps,
            tokens=spec.token_budget,
            val_loss=value,
            seconds=time.monotonic(),
            resumed=resumed,
            repaired_lines=context.repaired_lines,
        ),
        Pairing.VERIFIED,
    )


def _write(state: bytes, sink: ByteSink) -> None:
    sink.write(state)


def _die(how: dict[str, Any], context: RunContext, step: int) -> None:
    """End this process by a signal (or exit code) at one step, at most `die_times` times."""
    if how.get("die_at", 0 if "die" in how else None) != step:
        return
    deaths = context.cache_dir / "deaths"
    already = len(deaths.read_text()) if deaths.exists() else 0
    if already < int(how.get("die_times", 99)):
        deaths.write_text("x" * (already + 1))
        print(f"dying at step {step}", flush=True)
        if how["die"] == "exit":
            os._exit(7)
        os.kill(os.getpid(), signal.Signals[how["die"]])
        time.sleep(10)


def _log_start(spec: Spec, context: RunContext) -> None:
    """For tests that ask what ran where and when."""
    entry = {
        "kind": spec.kind,
        "batch": getattr(getattr(spec, "layout", None), "global_batch_size", None),
        "seed": getattr(spec, "seed", None),
        "pid": os.getpid(),
        "parent": os.getppid(),
        "time": time.monotonic(),
        "environment": {name: os.environ.get(name) for name in _LOGGED_VARIABLES},
        "at_fixed_addresses": sys.platform == "linux" and _at_fixed_addresses(),
    }
    with (context.cache_dir / "starts.jsonl").open("a") as file:
        file.write(json.dumps(entry) + "\n")


def _at_fixed_addresses() -> bool:
    return int(Path("/proc/self/personality").read_text(), 16) & 0x40000 != 0


def environment(spec: Spec) -> Environment:
    if "input_error" in spec.workload.model:
        raise InputError("cannot be loaded")
    return Environment(batchlab="0", python="3", numpy="2", platform="toy")


def preload(workload: Workload, cache_dir: Path) -> bool:
    """Log where it happens; a workload can be made to fail, to start a thread, or to hang while it is loaded."""
    how = workload.model
    cache_dir.mkdir(exist_ok=True)
    with (cache_dir / "loads.jsonl").open("a") as file:
        file.write(json.dumps({"pid": os.getpid(), "how": how}) + "\n")
    if "load_raises" in how:
        raise ValueError(how["load_raises"])
    if "load_hangs" in how:
        time.sleep(600)
    if "load_crashes" in how:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "load_starts_a_thread" in how:
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    return "load_uses_the_device" not in how


def install() -> None:
    """Stand in for batchlab.runs.execute in this process."""
    module = types.ModuleType("batchlab.runs.execute")
    module.execute = execute  # type: ignore[attr-defined]
    module.environment = environment  # type: ignore[attr-defined]
    module.preload = preload  # type: ignore[attr-defined]
    module.preload_framework = lambda: None  # type: ignore[attr-defined]
    sys.modules["batchlab.runs.execute"] = module


if __name__ == "__main__":
    install()
    from batchlab.engines import fork_server, worker

    code = fork_server.main(sys.argv[2:]) if sys.argv[1] == "--fork-server" else worker.main()
    sys.stdout.flush()
    os._exit(code)
