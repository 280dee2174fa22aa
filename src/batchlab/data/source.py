"""Opens every accepted kind of data: paths, arrays of token ids, (X, Y) pairs, sequences of samples, Datasets."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from batchlab.core.batch import Unit
from batchlab.core.errors import InputError
from batchlab.core.experiment import DataConfig
from batchlab.core.format import format_count
from batchlab.core.nested import leaves
from batchlab.core.protocols import Dataset
from batchlab.data.collated import CollatedDataset
from batchlab.data.digests import Progress, file_digest, no_progress
from batchlab.data.files import (
    BYTE_VOCABULARY,
    concatenate_folder,
    holds_ids,
    read_ids,
    read_text_file,
    require_path,
    text_files,
)
from batchlab.data.hub import HUB, hub_text
from batchlab.data.prepare import Notice, cached_token_file, find_tokenizer, text_cache_dir
from batchlab.data.samples import SampleDataset
from batchlab.data.stdlib import standard_library_text
from batchlab.data.token_file import describe_token_file, is_token_file, open_token_file
from batchlab.data.tokens import TokenDataset, TokenSpan, largest_id

_Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class TextPair:
    """Training and held-out token ids, memory-mapped where they come from files."""

    train: TokenSpan
    valid: TokenSpan
    vocabulary: int  # size of the embedding table that a model needs; 256 for text read as bytes
    description: str


def open_dataset(
    source: Any,
    *,
    unit: Unit,
    sequence_length: int | None,
    what: str,
    windows: Literal["shuffled", "random"] = "shuffled",
    stride: int | None = None,
    fraction: float = 1.0,
    cache_dir: Path | None = None,
    collate: Callable[[list[Any]], Any] | None = None,
) -> Dataset:
    """Open the source as a Dataset. `what` names it in messages, e.g. "training data".

    Paths and 1-D integer arrays are token ids and need a `sequence_length`. The text of a folder is read into memory.
    A .bin file is uint16 unless it has a description from `batchlab data prepare`. (X, Y), lists of pairs or
    dicts and other sequences are samples, which `collate` makes into batches if given; a Dataset is returned as it is.
    With `windows="random"`, samples start at any token, otherwise every `stride` tokens. Of token ids only the first
    `fraction` is used. Digests of files are remembered in `cache_dir`. Raises InputError for everything else.
    """
    if unit is Unit.TOKENS and sequence_length is None:
        raise InputError("Counting in tokens needs the tokens per sample: set sequence_length=, or unit='samples'.")
    if collate is not None and (isinstance(source, str | Path | TokenSpan) or _is_one_array(source)):
        raise InputError(
            f"The {what} is token ids, which need no collate=; leave it out, or give a sequence of samples."
        )
    overlapping = windows == "random"
    if overlapping and stride is not None:
        raise InputError("data.windows=random draws the positions of windows, so data.stride has no meaning; omit it.")
    if isinstance(source, str | Path):
        if sequence_length is None:
            raise InputError(
                f"The {what} {str(source)!r} is a path to token ids; set sequence_length=, or load the file and pass "
                "(X, Y)."
            )
        source = _read_path(source, what, cache_dir)
    if isinstance(source, TokenSpan) or _is_one_array(source):
        if sequence_length is None:
            raise InputError(
                f"The {what} is a single array of shape {np.shape(source)}; pass inputs and targets as a pair "
                "(X, Y), or set sequence_length= if it contains token ids."
            )
        span = source if isinstance(source, TokenSpan) else TokenSpan(np.asarray(source))
        return TokenDataset(span.first(fraction), sequence_length, what, overlapping=overlapping, stride=stride)
    if stride is not None or fraction < 1:
        raise InputError(
            f"data.stride and data.fraction are for token ids, but the {what} of type {type(source).__name__} already "
            "consists of samples; choose among them where the task makes them."
        )
    if overlapping:
        raise InputError(
            f"data.windows is random, but the {what} of type {type(source).__name__} already consists of samples; "
            "random positions need token ids, so leave data.windows at shuffled."
        )
    if _is_dataset(source):
        given: Dataset = source
        if len(given) == 0:
            raise InputError(f"The {what} has no samples.")
        return given
    samples = SampleDataset(source, what) if collate is None else CollatedDataset(source, collate, what)
    _require_length(samples, sequence_length, what)
    return samples


def describe_source(source: Any) -> str:
    """A short description for a report: file name and size, shapes, or type and length."""
    if isinstance(source, TokenSpan):
        return f"{format_count(len(source))} token ids"
    if isinstance(source, str) and source.startswith(HUB):
        return source.removeprefix(HUB)
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        if is_token_file(path):
            made = describe_token_file(path)
            return f"{path.name} ({made.text}, {made.tokenizer}, {format_count(made.tokens)} tokens)"
        if path.is_dir():
            return f"folder {path.name} ({len(text_files(path, 'data'))} text files)"
        return f"{path.name} ({path.stat().st_size / 1e6:.1f} MB)" if path.exists() else path.name
    if _is_one_array(source):
        array = np.asarray(source)
        return f"array of {format_count(array.size)} {array.dtype} values"
    if isinstance(source, tuple) and len(source) == 2:
        shapes = " and ".join(str(np.shape(part)) for part in source)
        return f"arrays of shape {shapes}"
    if isinstance(source, Mapping):
        return f"arrays {', '.join(map(str, source))}"
    length = f" of {format_count(len(source))} samples" if hasattr(source, "__len__") else ""
    return f"{type(source).__name__}{length}"


def open_text_pair(config: DataConfig, cache_dir: Path, progress: Progress = no_progress) -> TextPair:
    """Training and held-out token ids according to the study's `data` settings.

    Without a path, the standard library's source text is used. Text is read as bytes, or encoded with `data.tokenizer`
    into cached token files. The held-out data is `valid_path`, or the last `valid_fraction` of the data. Raises
    InputError if data is missing, empty or in the wrong format, or if the vocabulary is smaller than that of the data.
    """
    if config.path is None and config.valid_path is not None:
        raise InputError("data.valid_path is set without data.path; set both, or neither for the embedded text.")
    if config.path is None:
        file, description = standard_library_text(cache_dir)
    else:
        file, description = locate(config.path, cache_dir, "training data"), describe_source(config.path)
    reader = _Reader(config, cache_dir, file, progress)
    train = reader.read(file, "embedded text" if config.path is None else "training data")
    if config.valid_path is None:
        held_out = int(len(train) * config.valid_fraction)
        if held_out == 0:
            raise InputError(
                f"The training data has {len(train):,} tokens, and data.valid_fraction={config.valid_fraction:g} of "
                "them leaves none to hold out; use more data."
            )
        description += f", last {config.valid_fraction:.0%} held out"
        end = len(train)
        train, valid = train.part(0, end - held_out), train.part(end - held_out, end)
    else:
        valid_file = locate(config.valid_path, cache_dir, "held-out data")
        if holds_ids(valid_file) != holds_ids(file):
            raise InputError(
                "One of data.path and data.valid_path is text and the other is token ids; use the same format for both."
            )
        _require_one_tokenizer(file, valid_file)
        valid = reader.read(valid_file, "held-out data")
        description += f"; held out: {describe_source(config.valid_path)}"
    return TextPair(train, valid, reader.vocabulary(train, valid), "; ".join([description, *map(str, reader.notices)]))


def encode_beside(config: DataConfig, cache_dir: Path, progress: Progress) -> None:
    """Encode the study's text in advance, so that workers find the token files in the cache next to it.

    Does nothing for bytes, token ids and named datasets, or if the text's folder is read-only.
    """
    if config.tokenizer == "bytes" or config.path is None or config.path.startswith(HUB):
        return
    path = require_path(config.path, "training data")
    if path.is_file() and not holds_ids(path) and text_cache_dir(path, cache_dir) != cache_dir:
        open_text_pair(config, cache_dir, progress)


class _Reader:
    """Reads text and token ids for one study; all text is encoded with the tokenizer of its training text."""

    def __init__(self, config: DataConfig, cache_dir: Path, training_file: Path, progress: Progress) -> None:
        self._config = config
        self._cache_dir = cache_dir
        self._progress = progress
        self.notices: list[str | Notice] = []
        self._tokenizer = None
        if not holds_ids(training_file) and config.tokenizer != "bytes":
            self._tokenizer = find_tokenizer(
                config.tokenizer,
                training_file,
                cache_dir,
                vocabulary=config.vocabulary,
                special_tokens=config.special_tokens,
                progress=progress,
            )
            self.notices += [self._tokenizer.name, *self._tokenizer.notices]

    def read(self, path: Path, what: str) -> TokenSpan:
        if is_token_file(path):
            return open_token_file(path)
        if holds_ids(path):
            # A dataset of the smallest window rejects floats and negative ids early.
            ids = TokenDataset(read_ids(path, what, self._config.bin_dtype), 1, what).tokens
            return TokenSpan(ids, _digest(path, ids, self._cache_dir))
        if self._tokenizer is None:
            content = read_text_file(path, what)
            return TokenSpan(content, _digest(path, content, self._cache_dir), BYTE_VOCABULARY)
        span, notices = cached_token_file(path, self._tokenizer, self._cache_dir, what, self._progress)
        self.notices += notices
        return span

    def vocabulary(self, *spans: TokenSpan) -> int:
        """Vocabulary size that the spans need. Raises InputError if data.vocabulary is smaller."""
        needed = max(span.vocabulary or largest_id(span.ids) + 1 for span in spans)
        asked = self._config.vocabulary
        if asked is not None and asked < needed:
            raise InputError(
                f"The data needs a vocabulary of {needed:,}, but data.vocabulary is {asked:,}; set it to "
                f"{needed:,} or more, or encode the text with a smaller tokenizer: batchlab data prepare."
            )
        return asked or needed


def locate_text(given: str, cache_dir: Path) -> Path:
    """The file of a text to encode. Raises InputError if it already contains token ids."""
    path = locate(given, cache_dir, "text")
    if holds_ids(path):
        raise InputError(f"{path.name} already contains token ids; use it as data.path, or give a text to encode.")
    return path


def locate(given: str, cache_dir: Path, what: str) -> Path:
    """The file for a `data` setting: the text of a folder is concatenated, a named dataset is downloaded."""
    if given.startswith(HUB):
        return hub_text(given, cache_dir)
    path = require_path(given, what)
    return concatenate_folder(path, cache_dir, what) if path.is_dir() else path


def _require_one_tokenizer(train: Path, valid: Path) -> None:
    if not (is_token_file(train) and is_token_file(valid)):
        return
    one, other = describe_token_file(train), describe_token_file(valid)
    if one.tokenizer_digest != other.tokenizer_digest:
        raise InputError(
            f"{train.name} was encoded with {one.tokenizer} and {valid.name} with {other.tokenizer}, so their ids are "
            "not comparable; prepare both with one tokenizer: batchlab data prepare … --tokenizer FILE."
        )


def _digest(path: Path, ids: _Array, cache_dir: Path) -> str:
    """The digest of a file's ids: of its bytes and how they are read."""
    return hashlib.sha256(f"{file_digest(path, cache_dir).sha256} {ids.dtype.str}".encode()).hexdigest()


def _read_path(given: str | Path, what: str, cache_dir: Path | None) -> _Array | TokenSpan:
    path = require_path(given, what)
    if path.is_dir():
        return np.concatenate([read_text_file(file, what) for file in text_files(path, what)])
    if is_token_file(path):
        return open_token_file(path)
    ids = read_ids(path, what) if holds_ids(path) else read_text_file(path, what)
    return ids if cache_dir is None else TokenSpan(ids, _digest(path, ids, cache_dir))


def _require_length(dataset: Dataset, sequence_length: int | None, what: str) -> None:
    """Samples that are already token windows must have the length with which budgets are counted."""
    if sequence_length is None:
        return
    first = dataset.gather(np.zeros(1, np.int64))[0]
    x = first["input_ids"] if isinstance(first, Mapping) and "input_ids" in first else next(leaves(first))
    assert isinstance(x, np.ndarray)
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
