"""What the tests of whole studies share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import batchlab.study.study as study
from batchlab.study.session import Session


@pytest.fixture(autouse=True, scope="module")
def _documents_once() -> Iterator[None]:
    """A study writes its report after every run. On the simulated device that would be three quarters of its time, so
    here only its end does; the studies that tests/cli and tests/chaos start write it every time."""

    def session(*what: Any, after_run: object = None, **more: Any) -> Session:
        return Session(*what, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "Session", session)
        yield
