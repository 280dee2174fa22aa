from __future__ import annotations

import sys

import pytest

from batchlab.core.errors import InputError
from batchlab.core.integration import IntegrationName
from batchlab.integrations import PACKAGES, load_integration


@pytest.mark.parametrize("name", ["hf", "lightning"])
def test_a_missing_package_is_named_with_the_command(name: IntegrationName, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = PACKAGES[name][0]
    for module in [one for one in sys.modules if one.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, module)
    for module in [one for one in sys.modules if one.startswith(f"batchlab.integrations.{name}")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError, match=f"{missing}, which is not installed; run: pip install {missing}"):
        load_integration(name)
