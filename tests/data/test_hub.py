"""Named datasets: their text in one file, and an error that says what to do if they cannot be loaded."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from batchlab.core.errors import InputError
from batchlab.data.hub import hub_text


def test_a_missing_package_names_the_install_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"pip install 'batchlab\[datasets\]', or give a text file"):
        hub_text("hf:some/stories", tmp_path)


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The datasets package without network access and with its own cache."""
    pytest.importorskip("datasets", reason="the datasets package (300 MB) is not installed")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")


@pytest.fixture
def stories(tmp_path: Path, offline: None) -> str:
    folder = tmp_path / "stories"
    folder.mkdir()
    (folder / "train.csv").write_text('text\n"One bird."\n"Two\nbirds. "\n')
    (folder / "test.csv").write_text('text\n"Three birds."\n')
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "train.csv").write_text("story\nNone.\n")
    return f"hf:{folder}"


def test_rows_become_one_text(tmp_path: Path, stories: str) -> None:
    file = hub_text(stories, tmp_path / "cache")
    assert file.read_text() == "One bird.\n<|endoftext|>\nTwo\nbirds.\n<|endoftext|>\n"
    assert hub_text(stories, tmp_path / "cache") == file
    assert "Three" in hub_text(f"{stories}:test", tmp_path / "cache").read_text()


def test_a_dataset_that_cannot_be_loaded_is_an_error(tmp_path: Path, stories: str) -> None:
    with pytest.raises(InputError, match="Unknown split"):
        hub_text(f"{stories}:nosuch", tmp_path)
    with pytest.raises(InputError, match="has no column named text, only story"):
        hub_text(f"hf:{tmp_path / 'other'}", tmp_path)
    with pytest.raises(InputError, match="cannot be loaded"):
        hub_text(f"hf:{tmp_path / 'nothing here'}", tmp_path)


@pytest.mark.usefixtures("offline")
def test_without_a_network_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"stories \(train\) cannot be loaded.*the network, or download its text"):
        hub_text("hf:some/stories", tmp_path)
    assert not list(tmp_path.glob("*.txt"))
