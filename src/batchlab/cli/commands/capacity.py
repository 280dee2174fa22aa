"""capacity: the largest micro-batch, here or on a card that is not here."""

from __future__ import annotations

import json
from typing import Annotated

from cyclopts import Parameter

from batchlab.cli.commands.running import DEFAULTS, TaskArgument, run_to, stop_on_sigterm
from batchlab.cli.options import Options, experiment_values
from batchlab.core.errors import InputError


def capacity(
    task: TaskArgument,
    /,
    options: Options = DEFAULTS,
    *,
    headroom: str | None = None,
    prove: Annotated[bool, Parameter(negative=())] = False,
    predict: str | None = None,
    variants: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """The largest micro-batch that fits: predicted from traces, calibrated by small runs, then run.

    Parameters
    ----------
    headroom
        Of the limit, left free: 5% (the default), 512MiB, or 0 for the exact largest size.
    prove
        Run one more sample too, which must fail.
    predict
        Memory of a CUDA card that is not here, e.g. 80GiB: traces only, nothing is run.
    variants
        Also search and time with each saving alone: bf16, checkpointing, chunked loss, fused optimizer, one pass per
        step. Takes about as long for each as the search itself.
    """
    from batchlab.core.experiment import set_dotted
    from batchlab.study.stages.capacity import CapacityRequest

    values = experiment_values(task, options)
    if headroom is not None:
        set_dotted(values, "device.headroom", headroom)
    if predict is None:
        return run_to(task, options, "capacity", CapacityRequest(prove=prove, variants=variants), values=values)
    if prove:
        raise InputError("--predict runs nothing, so there is nothing to --prove; leave one of the two out.")
    from batchlab.max_batch_size import measure_capacity

    stop_on_sigterm()
    found = measure_capacity(values, CapacityRequest(card_bytes=_bytes(predict), variants=variants), quiet=options.json)
    print(json.dumps(found.as_dict(), indent=2) if options.json else found)
    return 0 if found.max_micro_batch_size else 1


def _bytes(text: str) -> int:
    from batchlab.core.parse import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as error:
        raise InputError(f"--predict: {error}.") from None
