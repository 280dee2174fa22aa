"""`batchlab calibrate STUDY`: the speeds of the devices that are to share a batch, their shares, and their step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from batchlab.analysis.calibration import Calibration
from batchlab.analysis.findings import Findings
from batchlab.core.batch import BatchLayout
from batchlab.core.errors import BatchlabError, InputError, StudyInterrupted
from batchlab.core.experiment import Experiment
from batchlab.core.format import format_bytes
from batchlab.core.protocols import View
from batchlab.core.record import WorkerDevice
from batchlab.storage.decisions import LimitKind
from batchlab.study.documents import Documents, read_findings
from batchlab.study.engines import EngineFactory
from batchlab.study.open_study import OpenStudy, reopen_study
from batchlab.study.placement import require_devices
from batchlab.study.session import Session
from batchlab.study.stages.calibration import calibration_stage
from batchlab.study.stages.failure import StageFailed
from batchlab.study.stages.throughput import layout_for


def run_calibration(
    folder: Path,
    make_engine: EngineFactory,
    view: View,
    *,
    devices: int | None = None,
    batch_size: int | None = None,
) -> Calibration:
    """Time the devices of a study, and write its documents.

    devices: how many; None: as many as the study has. batch_size: which batch they share; None: the recommended one,
    or before there is one, that of the throughput knee. Resumable: what is on disk is not done twice. Raises InputError
    for a wrong request, BatchlabError where a measurement fails, and StudyInterrupted as `run_study`.
    """
    study = reopen_study(folder)
    findings = read_findings(study.store)
    experiment = _on_devices(study, devices)
    layout = _layout(findings, experiment, batch_size)
    documents = Documents(study.store, view)
    session = Session(replace(study, experiment=experiment), make_engine, view, retry_failed=True, documents=documents)
    try:
        return calibration_stage(
            session,
            layout,
            lambda device: _fits(findings, device),
            accumulates=experiment.batch.micro_batching != "off",
        )
    except StageFailed as failed:
        raise BatchlabError(str(failed)) from None
    except KeyboardInterrupt:
        raise StudyInterrupted(
            f"Stopped. Finished measurements in {folder} are kept; run the same command again to continue."
        ) from None
    finally:
        documents.finish()


def _on_devices(study: OpenStudy, devices: int | None) -> Experiment:
    """The experiment on so many devices. Raises InputError where there are fewer than two, or not so many here."""
    info, asked = study.task_info, study.experiment.device
    if info.integration is not None:
        raise InputError(
            "This study is trained by a program of its own, which starts its devices itself, so batchlab cannot time "
            "them one by one; calibrate a batchlab.task."
        )
    wanted = asked.data_parallel_size if devices is None else devices
    if wanted == 1:
        raise InputError("One device has nothing to share; give --devices 2 or more.")
    device = asked.model_copy(update={"data_parallel_size": wanted, "compared_devices": ()})
    experiment = study.experiment.model_copy(update={"device": device})
    require_devices(experiment, info)
    return experiment


def _layout(findings: Findings, experiment: Experiment, batch_size: int | None) -> BatchLayout:
    """The batch in equal shares. Raises InputError where it cannot be shared, or nothing was measured yet."""
    devices, throughput, memory = experiment.device.data_parallel_size, findings.throughput, findings.memory
    if throughput is None or memory is None or memory.max_micro_batch_size is None:
        raise InputError(
            "No throughput was measured in this study yet, so there is no batch to share; run `batchlab throughput` or "
            "`batchlab study` on it first."
        )
    if not findings.sample_independent:
        raise InputError(
            f"This model mixes the samples of a batch, so {devices} devices, each with its own share, would train "
            "another model than one device."
        )
    size = batch_size
    if size is None:
        size = findings.recommended.layout.global_batch_size if findings.recommended else throughput.knee
    assert size is not None
    samples = findings.task_info.train_samples
    if samples is not None and size > samples:
        raise InputError(f"A batch of {size:,} is more than the {samples:,} samples of the training data.")
    if devices > size:
        raise InputError(
            f"{devices:,} devices cannot share a batch of {size:,}, because each needs at least one sample."
        )
    return layout_for(experiment, size, memory, sample_independent=True)


def _fits(findings: Findings, device: WorkerDevice) -> int | None:
    """The largest micro-batch of a device, by the study's memory curve where it has less memory than the study's.

    Raises InputError where not one sample fits.
    """
    memory, info = findings.memory, findings.task_info
    if memory is None or memory.budget_bytes is None or memory.limit_bytes is None:
        return None
    whole = memory.limit_bytes
    if memory.limit_is is LimitKind.FREE_HOST_MEMORY and info.device_memory_bytes is not None:
        whole = info.device_memory_bytes // findings.experiment.device.data_parallel_size
    if device.memory_bytes is None or device.memory_bytes >= whole:
        return memory.max_micro_batch_size
    fits = memory.largest_within(memory.budget_bytes * device.memory_bytes / whole)
    if fits == 0:
        raise InputError(
            f"Not one sample fits into the {format_bytes(device.memory_bytes)} of {device.name}; leave that device out."
        )
    return fits
