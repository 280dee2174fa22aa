"""critical: how far the batch size can grow before tokens are wasted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from batchlab.cli.arguments import whole
from batchlab.cli.commands.running import stop_on_sigterm
from batchlab.core.batch import MOST_DEVICES


def critical(
    folder: Path,
    /,
    *,
    devices: Annotated[int, whole(1, MOST_DEVICES)] = 1,
    plan_runs: Annotated[bool, Parameter(negative=())] = False,
    run: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """The critical batch size of a finished study: steps to a loss, branches, and the noise scale beside them.

    Parameters
    ----------
    folder
        A study's folder.
    devices
        Number of data-parallel devices for the hours to the same loss, here and in the report.
    plan_runs
        List the runs that would settle what is unknown, and their cost; train nothing.
    run
        Train those runs in the same folder; if interrupted, run the same command again to continue.
    """
    from batchlab.report.critical import critical_lines
    from batchlab.storage.store import Store
    from batchlab.study.documents import read_findings, write_documents
    from batchlab.study.engines import engine_factory
    from batchlab.study.progress import open_view
    from batchlab.study.study import run_critical
    from batchlab.words.critical import headline

    store = Store.open(folder)
    if plan_runs or run:
        view = open_view(False)
        stop_on_sigterm()
        try:
            make_engine = engine_factory(store.experiment)
            for line in run_critical(folder, make_engine, view, execute=run):
                print(line)
        finally:
            view.close()
    findings = write_documents(store, devices=devices) if run or devices > 1 else read_findings(store)
    if not plan_runs:
        print("\n".join(critical_lines(findings)))
    return 0 if headline(findings) or plan_runs else 1
