"""People's own training programs, run as they are: a script, a Hugging Face Trainer, a LightningModule.

The worker asks `integration_of` what carries out a spec. Each integration implements `core.protocols.Integration`, and
`batchlab.testing.check_integration` is its contract test. TaskInfo.integration names it once the task is inspected;
from then on every spec carries the name in its workload.
"""

from __future__ import annotations

import importlib

from batchlab.core.errors import InputError
from batchlab.core.integration import IntegrationName
from batchlab.core.protocols import Integration
from batchlab.core.spec import InspectSpec, Spec
from batchlab.integrations.factory import named_factory

INTEGRATIONS: dict[IntegrationName, str] = {
    "script": "batchlab.integrations.script.script:Script",
    "hf": "batchlab.integrations.hf.integration:HuggingFace",
    "lightning": "batchlab.integrations.lightning.integration:Lightning",
}
"""Name → module:class, imported when it is used. The class is created without arguments."""

PACKAGES: dict[IntegrationName, tuple[str, ...]] = {
    "hf": ("transformers", "accelerate"),
    "lightning": ("lightning",),
}
"""Name → packages that the person's trainer needs, and that batchlab does not install."""


def integration_of(spec: Spec) -> Integration | None:
    """What carries out a spec; None where batchlab's own loop does.

    Raises InputError where the person's file does not import.
    """
    workload = spec.workload
    name = workload.integration
    if name is None and isinstance(spec, InspectSpec):
        name = named_factory(workload.task)
    return None if name is None else load_integration(name)


def load_integration(name: IntegrationName) -> Integration:
    """The integration of that name. Raises InputError, with the install command, where its package is missing."""
    module, _, attribute = INTEGRATIONS[name].partition(":")
    try:
        integration: Integration = getattr(importlib.import_module(module), attribute)()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in PACKAGES.get(name, ()):
            raise
        raise InputError(
            f"This task trains with {missing}, which is not installed; run: pip install {' '.join(PACKAGES[name])}"
        ) from None
    return integration
