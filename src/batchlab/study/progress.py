"""What a person sees while a study runs: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Any

from batchlab.core.experiment import Experiment
from batchlab.core.format import format_duration
from batchlab.core.protocols import Event, Finished, Progress, View
from batchlab.core.record import Outcome, Record, TrainResult
from batchlab.core.spec import Spec, TrainSpec


class SilentView:
    """Says nothing; for `--json` and tests."""

    def stage(self, title: str, runs: int | None = None) -> None: ...

    def say(self, text: str) -> None: ...

    def show(self, event: Event) -> None: ...

    def close(self) -> None: ...


class PlainView:
    """One line per finished run, for logs and pipes."""

    def __init__(self) -> None:
        self._pace = _Pace()

    def stage(self, title: str, runs: int | None = None) -> None:
        self._pace.begin(runs)
        print(f"── {title}", flush=True)

    def say(self, text: str) -> None:
        print(text, flush=True)

    def show(self, event: Event) -> None:
        if isinstance(event, Finished):
            self._pace.finish_one()
            print(f"   {describe_finished(event)}{self._pace.remaining()}", flush=True)

    def close(self) -> None: ...


class LiveView:
    """Finished runs scroll by above one updating line per running one: step, loss, tokens/s, time left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(highlight=False)
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)
        self._live.start()
        self._running: dict[str, tuple[Progress, float]] = {}
        self._pace = _Pace()

    def stage(self, title: str, runs: int | None = None) -> None:
        self._running.clear()
        self._pace.begin(runs)
        self._console.print(f"[bold]{title}[/bold]")
        self._refresh()

    def say(self, text: str) -> None:
        self._console.print(text, markup=False)

    def show(self, event: Event) -> None:
        if isinstance(event, Progress):
            started = self._running.get(event.run_id, (event, time.monotonic()))[1]
            self._running[event.run_id] = (event, started)
        else:
            self._running.pop(event.record.run_id, None)
            self._pace.finish_one()
            self._console.print(f"  {describe_finished(event)}", markup=False)
        self._refresh()

    def _refresh(self) -> None:
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        for name, (progress, started) in self._running.items():
            rate = f"{progress.tokens_per_second:,.0f}/s" if progress.tokens_per_second else ""
            loss = f"loss {progress.train_loss:.3f}" if progress.train_loss is not None else ""
            share = progress.step / progress.steps if progress.steps else 0.0
            elapsed = time.monotonic() - started
            left = f"{format_duration(elapsed * (1 - share) / share)} left" if share > 0.05 and elapsed > 1 else ""
            table.add_row("▸", name, f"{progress.step}/{progress.steps}", loss, rate, left)
        if remaining := self._pace.remaining():
            table.add_row("", f"study:{remaining}")
        self._live.update(table)

    def close(self) -> None:
        self._live.stop()


class _Pace:
    """Runs done and left in this stage, and the time that takes at the pace so far."""

    def __init__(self) -> None:
        self.begin(None)

    def begin(self, runs: int | None) -> None:
        self._runs, self._done, self._started = runs, 0, time.monotonic()

    def finish_one(self) -> None:
        self._done += 1

    def remaining(self) -> str:
        if not self._runs or not self._done or self._done >= self._runs:
            return ""
        left = (time.monotonic() - self._started) / self._done * (self._runs - self._done)
        return f"   [{self._done} of {self._runs}, about {format_duration(left)} left]"


def open_view(quiet: bool) -> View:
    """The view that suits where standard output goes."""
    if quiet:
        return SilentView()
    return LiveView() if sys.stdout.isatty() else PlainView()


def describe_finished(event: Finished) -> str:
    """One line about a finished run: what it was and what came of it."""
    spec, record = event.spec, event.record
    if isinstance(spec, TrainSpec):
        name = f"batch {spec.layout.global_batch_size} × LR {spec.learning_rate:.3g}, seed {spec.seed}"
        if spec.layout.grad_accum_steps > 1:
            name += f" ({spec.layout.grad_accum_steps} micro-batches of {spec.layout.micro_batch_size})"
    else:
        name = record.run_id
    if record.outcome is not Outcome.COMPLETED:
        return f"{name}: {record.outcome.label}. {record.reason}"
    if isinstance(record.result, TrainResult) and record.result.val_loss is not None:
        undertrained = ", undertrained" if record.result.undertrained else ""
        return (
            f"{name}: val loss {record.result.val_loss:.4f} in {format_duration(record.result.seconds)}{undertrained}"
        )
    return f"{name}: done"


def status_lines(
    experiment: Experiment,
    records: list[tuple[Spec, Record]],
    unfinished: list[str],
    decisions: dict[str, Any],
) -> list[str]:
    """How far a study is, one line per kind of run, then what failed and what is unfinished."""
    lines = [f"{experiment.name}: {experiment.task}"]
    for kind in ("check", "capacity", "throughput", "train"):
        outcomes = Counter(record.outcome.label for spec, record in records if spec.kind == kind)
        if outcomes:
            lines.append(f"  {kind:10} " + ", ".join(f"{n} {word}" for word, n in sorted(outcomes.items())))
    if text := decisions.get("budget", {}).get("text"):
        lines.append(f"  planned    {text}")
    lines += [
        f"  {record.run_id}: {record.outcome.label}. {record.reason}"
        for _, record in records
        if record.outcome is Outcome.FAILED
    ]
    lines += [f"  {run}: begun, not finished; the study's command goes on with it" for run in unfinished]
    return lines
