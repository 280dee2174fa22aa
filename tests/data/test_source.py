"""Every accepted kind of data, and the errors for everything else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchlab.core.batch import Unit
from batchlab.core.errors import InputError, StorageFailed
from batchlab.core.experiment import DataConfig
from batchlab.data.source import describe_source, open_dataset, open_text_pair
from batchlab.testing import check_dataset

TEXT = "Ein Größenmaß, zwei Straßen.\n" * 40


def opened(source: Any, length: int | None = 4, unit: Unit = Unit.TOKENS) -> Any:
    return open_dataset(source, unit=unit, sequence_length=length, what="training data")


@pytest.fixture
def ids(tmp_path: Path) -> np.ndarray:
    tokens = (np.arange(500) * 7 % 300).astype(np.uint16)
    np.save(tmp_path / "ids.npy", tokens)
    tokens.tofile(tmp_path / "ids.bin")
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    return tokens


@pytest.mark.parametrize("name", ["ids.npy", "ids.bin"])
def test_files_of_ids(tmp_path: Path, ids: np.ndarray, name: str) -> None:
    for path in (tmp_path / name, str(tmp_path / name)):
        data = opened(path)
        check_dataset(data)
        assert np.array_equal(data.tokens, ids)
    assert name in describe_source(tmp_path / name)


def test_text_is_bytes(tmp_path: Path, ids: np.ndarray) -> None:
    data = opened(tmp_path / "text.txt")
    assert bytes(data.tokens) == TEXT.encode()
    assert data.tokens.dtype == np.uint8


def test_arrays_lists_and_tensors_of_ids(ids: np.ndarray) -> None:
    torch = pytest.importorskip("torch")
    for source in (ids, ids.tolist(), torch.from_numpy(ids.astype(np.int64))):
        assert np.array_equal(opened(source).tokens, ids)
    assert "500 uint16" in describe_source(ids)


def test_samples_and_datasets() -> None:
    pair = (np.zeros((9, 2)), np.ones(9))
    data = opened(pair, None, Unit.SAMPLES)
    assert len(data) == 9
    assert opened(data, None, Unit.SAMPLES) is data
    assert describe_source(pair) == "arrays of shape (9, 2) and (9,)"
    assert describe_source(data) == "SampleDataset of 9 samples"


def test_ready_windows_must_have_the_stated_length() -> None:
    windows = (np.ones((9, 16), dtype=np.int64), np.ones((9, 16), dtype=np.int64))
    assert len(opened(windows, 16)) == 9
    with pytest.raises(InputError, match="have 16 tokens but sequence_length=8"):
        opened(windows, 8)


@pytest.mark.parametrize(
    ("source", "length", "unit", "says"),
    [
        ("no/such/file.npy", 4, Unit.TOKENS, "no file or folder 'no/such/file.npy'"),
        (np.arange(4), 4, Unit.TOKENS, "too few for one window"),
        (np.arange(90.0), 4, Unit.TOKENS, "must be integers"),
        (np.zeros((3, 4)), None, Unit.SAMPLES, r"single array of shape \(3, 4\)"),
        ("ids.npy", None, Unit.SAMPLES, "is a path to token ids"),
        ((np.zeros(3), np.zeros(3)), None, Unit.TOKENS, "set sequence_length="),
        (None, 4, Unit.TOKENS, "NoneType"),
    ],
)
def test_invalid_sources_are_rejected(source: Any, length: int | None, unit: Unit, says: str) -> None:
    with pytest.raises(InputError, match=says):
        opened(source, length, unit)


def pair(folder: Path, **settings: Any) -> Any:
    return open_text_pair(DataConfig(**settings), folder / "cache")


def seen(folder: Path) -> list[Path]:
    """The files in a cache folder without those that are kept beside them."""
    return [path for path in folder.glob("*") if not path.name.startswith(".")]


def test_last_part_is_held_out(tmp_path: Path, ids: np.ndarray) -> None:
    text = pair(tmp_path, path=str(tmp_path / "text.txt"), valid_fraction=0.25)
    size = len(TEXT.encode())
    assert len(text.valid) == size // 4
    assert bytes(text.train.ids) + bytes(text.valid.ids) == TEXT.encode()
    assert text.vocabulary == 256
    assert "last 25% held out" in text.description
    assert seen(tmp_path / "cache") == []


def test_given_held_out_file(tmp_path: Path, ids: np.ndarray) -> None:
    (tmp_path / "valid.txt").write_text("other text")
    text = pair(tmp_path, path=str(tmp_path / "text.txt"), valid_path=str(tmp_path / "valid.txt"))
    assert bytes(text.train.ids) == TEXT.encode()
    assert bytes(text.valid.ids) == b"other text"
    assert "valid.txt" in text.description


def test_ids_bring_their_vocabulary(tmp_path: Path, ids: np.ndarray) -> None:
    text = pair(tmp_path, path=str(tmp_path / "ids.bin"))
    assert text.vocabulary == int(ids.max()) + 1
    assert np.array_equal(np.concatenate([text.train.ids, text.valid.ids]), ids)
    assert pair(tmp_path, path=str(tmp_path / "ids.bin"), bin_dtype="uint8").vocabulary == 256


def test_folder_is_concatenated_once_in_sorted_order(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    (folder / "b").mkdir(parents=True)
    (folder / "b" / "one.md").write_text("second")
    (folder / "a.txt").write_text("first\n")
    (folder / "picture.png").write_bytes(b"\xff\xd8")
    (folder / ".hidden.txt").write_text("never")
    (folder / "empty.txt").write_text("")
    content = b"first\nsecond\n"
    text = pair(tmp_path, path=str(folder))
    assert bytes(text.train.ids) + bytes(text.valid.ids) == content
    assert "2 text files" in text.description
    (cached,) = (tmp_path / "cache").glob("*.txt")
    written = cached.stat().st_mtime_ns
    pair(tmp_path, path=str(folder))
    assert cached.stat().st_mtime_ns == written
    assert bytes(opened(folder).tokens) == b"first\nsecond"

    (folder / "a.txt").write_text("changed\n")
    text = pair(tmp_path, path=str(folder))
    assert bytes(text.train.ids) + bytes(text.valid.ids) == b"changed\nsecond\n"


def test_failed_concatenation_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("fine")
    (folder / "b.txt").write_bytes(b"caf\xe9 au lait")
    with pytest.raises(InputError, match=r"b\.txt is not UTF-8 text: byte 3 "):
        pair(tmp_path, path=str(folder))
    assert seen(tmp_path / "cache") == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_an_unwritable_cache_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o500)
    with pytest.raises(StorageFailed, match="free space there"):
        pair(tmp_path)


def test_a_cache_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(StorageFailed, match="something else"):
        pair(tmp_path)


@pytest.mark.parametrize("at", [0, 5, 16 * 2**20 - 1, 16 * 2**20, 16 * 2**20 + 3])
def test_undecodable_byte_is_named(tmp_path: Path, at: int) -> None:
    content = bytearray(b"x" * (at + 10))
    content[at] = 0xFF
    (tmp_path / "bad.txt").write_bytes(content)
    with pytest.raises(InputError, match=f"byte {at:,} cannot be decoded"):
        pair(tmp_path, path=str(tmp_path / "bad.txt"))


def test_characters_across_chunks_and_a_cut_end(tmp_path: Path) -> None:
    content = b"x" * (16 * 2**20 - 1) + "ß€😀".encode()
    (tmp_path / "long.txt").write_bytes(content)
    assert len(pair(tmp_path, path=str(tmp_path / "long.txt")).train)
    (tmp_path / "cut.txt").write_bytes(content[:-1])
    with pytest.raises(InputError, match=f"byte {len(content) - 4:,} cannot be decoded"):
        pair(tmp_path, path=str(tmp_path / "cut.txt"))


def written(folder: Path, name: str) -> str:
    """A file or folder with the defect that its name says."""
    path = folder / name
    match name:
        case "empty.txt" | "empty.npy" | "empty.bin":
            path.write_bytes(b"")
        case "odd.bin":
            path.write_bytes(b"123")
        case "floats.npy":
            np.save(path, np.linspace(0, 1, 50))
        case "negative.npy":
            np.save(path, np.arange(-1, 50))
        case "square.npy":
            np.save(path, np.ones((5, 5), dtype=np.int64))
        case "objects.npy":
            np.save(path, np.array([{}, None]), allow_pickle=True)
        case "torn.npy":
            np.save(path, np.arange(50))
            path.write_bytes(path.read_bytes()[:-9])
        case "text.npy":
            path.write_text("hello, this is text")
        case "tiny.txt":
            path.write_text("abc")
        case "folder":
            path.mkdir()
            (path / "image.png").write_bytes(b"x")
    return str(path)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("missing.txt", "no file or folder"),
        ("empty.txt", "is empty"),
        ("empty.npy", "is empty"),
        ("empty.bin", "is empty"),
        ("odd.bin", "3 bytes, which is not a multiple of the 2 bytes of uint16"),
        ("floats.npy", "must be integers"),
        ("negative.npy", "token id -1"),
        ("square.npy", "must be 1-D"),
        ("objects.npy", "not a valid .npy file of numbers"),
        ("torn.npy", "not a valid .npy file of numbers"),
        ("text.npy", "not a valid .npy file of numbers"),
        ("tiny.txt", "leaves none to hold out"),
        ("folder", "contains no text"),
    ],
)
def test_invalid_files_are_rejected(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        pair(tmp_path, path=written(tmp_path, name))
    assert "data" in str(caught.value)
    assert str(caught.value).endswith(".")
    assert seen(tmp_path / "cache") == []


def test_mixed_formats_and_a_missing_training_path(tmp_path: Path, ids: np.ndarray) -> None:
    with pytest.raises(InputError, match="the same format for both"):
        pair(tmp_path, path=str(tmp_path / "text.txt"), valid_path=str(tmp_path / "ids.npy"))
    with pytest.raises(InputError, match=r"without data\.path"):
        pair(tmp_path, valid_path=str(tmp_path / "ids.npy"))


def test_tinyshakespeare_if_available(tmp_path: Path) -> None:
    path = Path(__file__).parents[2] / ".." / "shared" / "data" / "tinyshakespeare" / "input.txt"
    if not path.is_file():
        pytest.skip("shared/data/tinyshakespeare is not next to this checkout")
    text = pair(tmp_path, path=str(path))
    assert len(text.train) + len(text.valid) == path.stat().st_size
    assert bytes(text.train.ids[:13]) == b"First Citizen"


def test_a_fraction_of_the_training_tokens_from_their_beginning(tmp_path: Path, ids: np.ndarray) -> None:
    def part(source: Any, **settings: Any) -> Any:
        return open_dataset(source, unit=Unit.TOKENS, sequence_length=4, what="training data", **settings)

    for source in (ids, tmp_path / "ids.npy"):
        tenth = part(source, fraction=0.1)
        assert np.array_equal(tenth.tokens, ids[:50])
        assert tenth.digest != part(source).digest
        assert len(part(source, stride=2)) == (len(ids) - 1 - 4) // 2 + 1
    with pytest.raises(InputError, match=r"data\.stride has no meaning"):
        part(ids, windows="random", stride=2)
    with pytest.raises(InputError, match="already consists of samples"):
        part((np.zeros((9, 4)), np.zeros((9, 4))), fraction=0.5)
    with pytest.raises(InputError, match="too few for one window"):
        part(ids, fraction=0.001)
