"""Imports the person's file or module: as nobody's script, and for a limited time.

The file is imported by path, with its folder on sys.path as if it had been run as a script. It sees itself as the only
argument of the command line, and what it keeps under `if __name__ == "__main__":` is not run. Every worker imports it,
so an import that trains, or takes long, is stopped with the sentence what to do.
"""

from __future__ import annotations

import importlib
import importlib.util
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from batchlab.core.errors import InputError
from batchlab.core.experiment import TaskReference
from batchlab.core.frameworks import SHIPPED, installed, load_framework
from batchlab.runs.foreign_code import has_task, no_task_in, or_as_it_is


class Stopped(Enum):
    """Why an import was stopped."""

    TRAINED = auto()
    COMPUTED = auto()
    WAITED = auto()


class _Stop(BaseException):
    """Ends an import from inside; no Exception, so that the person's own `except Exception` does not catch it."""

    def __init__(self, why: Stopped, seconds: float = 0.0) -> None:
        super().__init__(why)
        self.why, self.seconds = why, seconds


_SCHEDULER = Path("/proc/thread-self/schedstat")


def time_not_queued(scheduler: Path = _SCHEDULER) -> float:
    """Seconds on a clock that stands still while this thread could run and other programs have the processors.

    Only Linux tells (the second number, in nanoseconds: docs.kernel.org/scheduler/sched-stats.html); elsewhere this is
    the elapsed time.
    """
    try:
        queued = int(scheduler.read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        queued = 0.0
    return time.monotonic() - queued


@dataclass(frozen=True, slots=True)
class ImportLimit:
    """How long an import may take. Both clocks are read every `interval` seconds, between two Python instructions.

    computing_seconds: processor time of the main thread. Importing torch, transformers and datasets takes 10 to 15.
    elapsed_seconds: also of waiting, e.g. for a download; not for a processor on a busy machine.
    """

    computing_seconds: float = 30.0
    elapsed_seconds: float = 120.0
    interval: float = 0.5
    computing: Callable[[], float] = time.thread_time
    elapsed: Callable[[], float] = time_not_queued

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Raise _Stop in the main thread beyond the limit. Elsewhere there is no limit, since no signal gets there."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        computing, elapsed = self.computing(), self.elapsed()

        def look(number: int, frame: FrameType | None) -> None:
            if self.computing() - computing > self.computing_seconds:
                raise _Stop(Stopped.COMPUTED, self.computing_seconds)
            if self.elapsed() - elapsed > self.elapsed_seconds:
                raise _Stop(Stopped.WAITED, self.elapsed_seconds)

        handler = signal.signal(signal.SIGALRM, look)
        signal.siginterrupt(signal.SIGALRM, False)  # native code may not expect an interrupted system call
        timer = signal.setitimer(signal.ITIMER_REAL, self.interval, self.interval)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, *timer)
            signal.signal(signal.SIGALRM, handler)


def import_task_module(
    reference: TaskReference, frameworks: Iterable[str] | None = None, limit: ImportLimit | None = None
) -> ModuleType:
    """The imported file or module. Raises InputError where it does not import, ends itself, trains or takes long.

    frameworks: those that it might train with while it is imported; default: all that are installed.
    """
    is_file, target = reference.kind == "file", reference.target
    sys.path.insert(0, str(Path(target).parent if is_file else Path.cwd()))
    name = f"_batchlab_task_{Path(target).stem}" if is_file else target

    def trained() -> None:
        raise _Stop(Stopped.TRAINED)

    try:
        with ExitStack() as watch:
            for framework in installed() if frameworks is None else frameworks:
                watch.enter_context(load_framework(framework).watch_training(trained))
            watch.enter_context(alone_on_the_command_line(target))
            watch.enter_context((limit or ImportLimit()).enforced())
            return _import_file(Path(target), name) if is_file else importlib.import_module(name)
    except InputError:
        raise
    except _Stop as stop:
        raise _stopped(target, name, stop) from None
    except SystemExit as end:
        error = InputError(
            f"{target} ends itself while it is imported, with exit code {end.code}{_line(end, name)}. It is "
            'imported without arguments: give those it needs a default, or parse under `if __name__ == "__main__":`.'
        )
        raise or_as_it_is(error, target) from None
    except ModuleNotFoundError as error:
        if not is_file and error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise InputError(
                f"There is no module {error.name!r}; give a recipe name, study.toml, file.py[:name] or "
                "package.module:name."
            ) from None
        if error.name in SHIPPED:
            raise InputError(
                f"{target} imports {error.name}, which is not installed; run: pip install 'batchlab[{error.name}]'."
            ) from None
        raise _import_failure(target, error) from error
    except Exception as error:
        raise _import_failure(target, error) from error


@contextmanager
def alone_on_the_command_line(target: str) -> Iterator[None]:
    """The arguments of a script that was given none."""
    arguments, sys.argv = sys.argv, [target]
    try:
        yield
    finally:
        sys.argv = arguments


def _import_file(path: Path, name: str) -> ModuleType:
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file; give a .py file that makes a batchlab.task(...).")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _stopped(target: str, name: str, stop: _Stop) -> InputError:
    """What to do about an import that was stopped, with the lines to add where what it made so far is recognised."""
    where = _line(stop, name)
    match stop.why:
        case Stopped.TRAINED:
            variables = _variables(stop, name)
            missing = "" if has_task(variables) else f" {no_task_in(target, variables)}"
            return InputError(
                f"{target} starts training while it is imported{where}, and every run imports it. Move "
                f'what trains under `if __name__ == "__main__":`.{missing}'
            )
        case Stopped.COMPUTED:
            error = InputError(
                f"{target} still computes after {stop.seconds:g} seconds of being imported{where}, and every "
                'run imports it. Move what trains under `if __name__ == "__main__":`, and save what it prepares.'
            )
            return or_as_it_is(error, target)
        case Stopped.WAITED:
            return InputError(
                f"{target} still waits after {stop.seconds:g} seconds of being imported{where}, and every "
                "run imports it. Download beforehand what it needs, and move what it runs under "
                '`if __name__ == "__main__":`.'
            )


def _own_frame(error: BaseException, name: str) -> tuple[FrameType, int] | None:
    """The frame of the imported module itself, and its line."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__") == name:
            return frame, line
    return None


def _variables(error: BaseException, name: str) -> dict[str, Any]:
    found = _own_frame(error, name)
    return {} if found is None else found[0].f_globals


def _line(error: BaseException, name: str) -> str:
    found = _own_frame(error, name)
    return "" if found is None else f" (line {found[1]})"


def _import_failure(target: str, error: Exception) -> InputError:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    where = f" (line {frames[-1].lineno} of {Path(frames[-1].filename).name})" if frames and frames[-1].lineno else ""
    said = InputError(f"{target} does not import: {type(error).__name__}: {error}{where}. Run it with python first.")
    return or_as_it_is(said, target)
