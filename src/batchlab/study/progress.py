"""What a study shows while it runs: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time

from batchlab.core.format import format_duration
from batchlab.core.protocols import Event, Finished, Progress, View, Waiting
from batchlab.words.progress import describe_finished, describe_remaining, describe_waiting


class SilentView:
    """Shows nothing; for `--json` and tests."""

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
            print(f"   {describe_finished(event.spec, event.record)}{self._pace.remaining()}", flush=True)
        elif isinstance(event, Waiting):
            print(f"   {describe_waiting(event)}", flush=True)

    def close(self) -> None: ...


class LiveView:
    """One line per finished run, above an updating line per running one: step, loss, tokens/s, time left."""

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
        elif isinstance(event, Waiting):
            self._console.print(f"  {describe_waiting(event)}", markup=False)
        else:
            self._running.pop(event.record.run_id, None)
            self._pace.finish_one()
            self._console.print(f"  {describe_finished(event.spec, event.record)}", markup=False)
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
    """Runs done and left in this stage, and how long those left take at the pace so far."""

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
        return f"   {describe_remaining(self._done, self._runs, left)}"


def open_view(quiet: bool) -> View:
    """The view for where standard output goes; a silent one where `quiet`."""
    if quiet:
        return SilentView()
    return LiveView() if sys.stdout.isatty() else PlainView()
