"""calibrate: the devices that are to share a batch, and what they do together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from batchlab.cli.arguments import whole
from batchlab.cli.commands.running import stop_on_sigterm
from batchlab.core.batch import MOST_DEVICES
from batchlab.core.parse import MOST_SAMPLES


def calibrate(
    folder: Path,
    /,
    *,
    devices: Annotated[int | None, whole(1, MOST_DEVICES)] = None,
    batch_size: Annotated[int | None, whole(1, MOST_SAMPLES)] = None,
) -> int:
    """Measure the devices that are to share a batch: their speeds and shares, what sums between them cost, the step.

    If interrupted, run the same command again to continue. The plan for so many devices has the results.

    Parameters
    ----------
    folder
        A study's folder.
    devices
        Number of data-parallel devices (default: as in the study).
    batch_size
        The global batch size that they share (default: the recommended one).
    """
    from batchlab.storage.store import Store
    from batchlab.study.calibration import run_calibration
    from batchlab.study.engines import engine_factory
    from batchlab.study.progress import open_view
    from batchlab.words.calibration import calibration_lines, where_the_plan_is

    store = Store.open(folder)
    view = open_view(False)
    stop_on_sigterm()
    try:
        found = run_calibration(folder, engine_factory(store.experiment), view, devices=devices, batch_size=batch_size)
    finally:
        view.close()
    print("\n".join(calibration_lines(found, store.experiment.unit)))
    print(where_the_plan_is(folder, found, store.experiment.device.data_parallel_size))
    return 0
