"""capacity: the largest micro-batch, on this machine or on another card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from batchlab.cli.commands.running import DEFAULTS, TaskArgument, run_to, stop_on_sigterm
from batchlab.cli.options import Options, parse_experiment
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
    verify_largest: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """The largest micro-batch that fits: predicted from traces, calibrated by small runs, then verified.

    Parameters
    ----------
    headroom
        Part of the limit that stays free: 5% (the default), 512MiB, or 0 for the exact largest size.
    prove
        Also run one more sample, which must fail.
    predict
        Memory of another CUDA card, e.g. 80GiB: predict from traces, run nothing. 8x80GiB: for eight such cards that
        train together, with DDP and with FSDP2.
    variants
        Also search and time each memory variant: no gradient accumulation, bf16, checkpointing, chunked loss, fused
        optimizer. Each takes about as long as the search itself.
    verify_largest
        Without a memory limit, run the largest size even where its probe takes more than a minute; otherwise one of at
        least eight times the size above which samples are hardly faster is run then.
    """
    from batchlab.study.stages.capacity_request import CapacityRequest

    experiment = parse_experiment(task, options, {"device.headroom": headroom})
    if predict is None:
        return run_to(
            experiment,
            options,
            "capacity",
            CapacityRequest(prove=prove, variants=variants, verify_largest=verify_largest),
        )
    if prove:
        raise InputError("--predict runs nothing, so there is nothing to --prove; omit one of the two.")
    from batchlab.max_batch_size import measure_capacity
    from batchlab.storage.store import Store

    stop_on_sigterm()
    devices, card_bytes = _cards(predict)
    request = CapacityRequest(card_bytes=card_bytes, devices=devices, variants=variants)
    study = options.out or Path("studies") / experiment.name
    found = measure_capacity(experiment, request, quiet=options.json, study=study if Store.exists(study) else None)
    print(json.dumps(found.as_dict(), indent=2) if options.json else found)
    sizes = [found.max_micro_batch_size, *(sharded.max_micro_batch_size for sharded in found.sharded)]
    return 0 if any(sizes) else 1


def _cards(text: str) -> tuple[int, int]:
    """How many cards, and the memory of each."""
    from batchlab.core.parse import parse_memory_limit

    count, cross, _ = text.lower().replace("×", "x").partition("x")
    if cross and not (count.strip().isdecimal() and int(count) > 0):
        raise InputError(f"--predict {text}: write the number of cards before the x, as in 8x80GiB.")
    try:
        return (int(count), parse_memory_limit(text[len(count) + 1 :])) if cross else (1, parse_memory_limit(text))
    except ValueError as error:
        raise InputError(f"--predict: {error}.") from None
