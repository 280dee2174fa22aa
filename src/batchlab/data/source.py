"""What a person may give as data, opened: paths, arrays of token ids, (X, Y) pairs, or anything indexable."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from batchlab.batch import Unit, format_count
from batchlab.data.files import (
    BYTE_VOCABULARY,
    concatenate_folder,
    holds_ids,
    read_ids,
    read_text_file,
    require_path,
    text_files,
)
from batchlab.data.samples import SampleDataset
from batchlab.data.stdlib import standard_library_text
from batchlab.data.tokens import TokenDataset, largest_id
from batchlab.errors import InputError
from batchlab.experiment import DataConfig
from batchlab.protocols import Dataset

_Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class TextPair:
    """Training and held-out token ids, memory-mapped where they come from files."""

    train: _Array
    valid: _Array
    vocabulary: int  # ids are below this; 256 for text, which is read as bytes
    description: str


def open_dataset(source: Any, *, unit: Unit, sequence_length: int | None, what: str) -> Dataset:
    """The source as samples by index. `what` names it in messages, e.g. "training data".

    Paths and one-dimensional whole-number arrays are token ids and need a `sequence_length`; a folder's text is read
    into memory; .bin is uint16. (X, Y), lists of pairs and indexables are samples; a Dataset is passed through.
    InputError in one or two sentences for everything else.
    """
    if unit is Unit.TOKENS and sequence_length is None:
        raise InputError("Counting in tokens needs the tokens per sample: give sequence_length=, or unit='samples'.")
    if isinstance(source, str | Path):
        if sequence_length is None:
            raise InputError(
                f"The {what} {str(source)!r} is a path, which holds token ids; give sequence_length=, or load it and "
                "give (X, Y)."
            )
        return TokenDataset(_read_path(source, what), sequence_length, what)
    if _is_dataset(source):
        given: Dataset = source
        if len(given) == 0:
            raise InputError(f"The {what} has no samples.")
        return given
    if _is_one_array(source):
        return _open_array(np.asarray(source), sequence_length, what)
    samples = SampleDataset(source, what)
    _require_length(samples, sequence_length, what)
    return samples


def describe_source(source: Any) -> str:
    """The source in a few words for a report: file name and size, shapes, or type and length."""
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        if path.is_dir():
            return f"folder {path.name} ({len(text_files(path, 'data'))} text files)"
        return f"{path.name} ({path.stat().st_size / 1e6:.1f} MB)" if path.exists() else path.name
    if _is_one_array(source):
        array = np.asarray(source)
        return f"array of {format_count(array.size)} {array.dtype} values"
    if isinstance(source, tuple) and len(source) == 2:
        shapes = " and ".join(str(np.shape(part)) for part in source)
        return f"arrays of shape {shapes}"
    length = f" of {format_count(len(source))} samples" if hasattr(source, "__len__") else ""
    return f"{type(source).__name__}{length}"


def open_text_pair(config: DataConfig, cache_dir: Path) -> TextPair:
    """Token ids to train on and to hold out, as the study's `data` settings say.

    Without a path: the standard library's source text. Text is taken as bytes; what is held out is `valid_path`, or
    the last `valid_fraction` of the data. InputError for data that is missing, empty or not what its name says.
    """
    if config.path is None and config.valid_path is not None:
        raise InputError("data.valid_path is given without data.path; give both, or neither for the embedded text.")
    if config.path is None:
        file, description = standard_library_text(cache_dir)
        train: _Array = read_text_file(file, "embedded text")
        is_text = True
    else:
        train, is_text = _read_config_path(config.path, config, cache_dir, "training data")
        description = describe_source(config.path)
    if config.valid_path is None:
        held_out = int(len(train) * config.valid_fraction)
        if held_out == 0:
            raise InputError(
                f"The training data has {len(train):,} tokens, of which data.valid_fraction={config.valid_fraction:g} "
                "leaves none to hold out; give more data."
            )
        train, valid = train[:-held_out], train[-held_out:]
        description += f", last {config.valid_fraction:.0%} held out"
    else:
        valid, valid_is_text = _read_config_path(config.valid_path, config, cache_dir, "held-out data")
        if valid_is_text != is_text:
            raise InputError(
                "One of data.path and data.valid_path is text and the other token ids; give both in the same form."
            )
        description += f"; held out: {describe_source(config.valid_path)}"
    vocabulary = BYTE_VOCABULARY if is_text else max(largest_id(train), largest_id(valid)) + 1
    return TextPair(train, valid, vocabulary, description)


def _read_config_path(given: str, config: DataConfig, cache_dir: Path, what: str) -> tuple[_Array, bool]:
    """(ids, whether they are the bytes of a text)."""
    path = require_path(given, what)
    if path.is_dir():
        return read_text_file(concatenate_folder(path, cache_dir, what), what), True
    if not holds_ids(path):
        return read_text_file(path, what), True
    # A window of one token is the least there is; this refuses floats, negative ids and two dimensions here already.
    return TokenDataset(read_ids(path, what, config.bin_dtype), 1, what).tokens, False


def _read_path(given: str | Path, what: str) -> _Array:
    path = require_path(given, what)
    if path.is_dir():
        return np.concatenate([read_text_file(file, what) for file in text_files(path, what)])
    return read_ids(path, what) if holds_ids(path) else read_text_file(path, what)


def _open_array(array: _Array, sequence_length: int | None, what: str) -> Dataset:
    if sequence_length is None:
        raise InputError(
            f"The {what} is a single array of shape {array.shape}; give inputs and targets as a pair (X, Y), or "
            "sequence_length= where it holds token ids."
        )
    return TokenDataset(array, sequence_length, what)


def _require_length(dataset: SampleDataset, sequence_length: int | None, what: str) -> None:
    """Samples that already are token windows must have the length that budgets are counted with."""
    if sequence_length is None:
        return
    x = dataset.gather(np.zeros(1, np.int64))[0]
    if np.issubdtype(x.dtype, np.integer) and x.ndim == 2 and x.shape[1] != sequence_length:
        raise InputError(
            f"Samples of the {what} have {x.shape[1]} tokens but sequence_length={sequence_length}; make them equal."
        )


def _is_dataset(source: Any) -> bool:
    return all(hasattr(source, name) for name in ("gather", "digest", "__len__"))


def _is_one_array(source: Any) -> bool:
    """An array, a tensor, or a plain list of numbers."""
    if isinstance(source, list):
        return bool(source) and isinstance(source[0], int | float | np.number)
    return hasattr(source, "__array__")
