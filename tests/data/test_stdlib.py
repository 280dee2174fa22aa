"""The embedded text: the source of the standard library."""

from __future__ import annotations

import platform
import zipfile
from pathlib import Path

import pytest

from batchlab.core.errors import InputError
from batchlab.core.experiment import DataConfig
from batchlab.data import stdlib
from batchlab.data.source import open_text_pair
from batchlab.data.stdlib import LIMIT_BYTES, standard_library_text


def test_the_text_exists_here_and_is_made_once(tmp_path: Path) -> None:
    text = open_text_pair(DataConfig(), tmp_path)
    assert 2_000_000 < len(text.train) + len(text.valid) <= LIMIT_BYTES + 10_000  # a newline may be added to each file
    assert text.vocabulary == 256
    assert platform.python_version() in text.description
    (file,) = tmp_path.glob("*.txt")
    written = file.stat().st_mtime_ns
    open_text_pair(DataConfig(), tmp_path)
    assert [path.stat().st_mtime_ns for path in tmp_path.glob("*.txt")] == [written]
    content = file.read_bytes()
    assert b"class OrderedDict(dict)" in content
    assert b"import batchlab" not in content


def library(folder: Path) -> dict[str, str]:
    return {
        "os.py": "os = 1\n" * 100,
        "json/decoder.py": "json = 2",
        "test/test_os.py": "never",
        "json/tests/test_json.py": "never",
        "site-packages/other.py": "never",
        "config-3.11-x/python-config.py": "never",
        "abc.py": "abc = 3\n",
        "notes.txt": "never",
    }


@pytest.mark.parametrize("zipped", [False, True])
def test_files_are_chosen_and_ordered_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zipped: bool) -> None:
    monkeypatch.setattr(stdlib, "_MIN_BYTES", 100)
    place = tmp_path / "python311.zip" if zipped else tmp_path / "lib"
    if zipped:
        with zipfile.ZipFile(place, "w") as archive:
            for name, content in library(tmp_path).items():
                archive.writestr(name, content)
    else:
        for name, content in library(tmp_path).items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(content)
    file, description = standard_library_text(tmp_path / "cache", place)
    assert file.read_text() == "abc = 3\n" + "json = 2\n" + "os = 1\n" * 100
    assert "3 files" in description


def test_stripped_python_gets_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--set data\.path=FILE"):
        standard_library_text(tmp_path / "cache", tmp_path)
    assert not (tmp_path / "cache").exists()


def test_the_amount_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdlib, "_MIN_BYTES", 10)
    monkeypatch.setattr(stdlib, "LIMIT_BYTES", 60)
    for name in "abcdef":
        (tmp_path / f"{name}.py").write_text(name * 20)
    file, _ = standard_library_text(tmp_path / "cache", tmp_path)
    assert file.read_text().split() == ["a" * 20, "b" * 20, "c" * 20]
