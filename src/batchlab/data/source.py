"""What a person may give as data, opened: paths, arrays of token ids, (X, Y) pairs, or anything indexable."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from batchlab.core.batch import Unit
from batchlab.core.errors import InputError
from batchlab.core.experiment import DataConfig
from batchlab.core.format import format_count
from batchlab.core.protocols import Dataset
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
from batchlab.data.prepare import Notice, Progress, cache_beside, cached_token_file, find_tokenizer, no_progress
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
    vocabulary: int  # rows a model needs; 256 for text that is read as bytes
    description: str


def open_dataset(
    source: Any,
    *,
    unit: Unit,
    sequence_length: int | None,
    what: str,
    windows: Literal["shuffled", "random"] = "shuffled",
) -> Dataset:
    """The source as samples by index. `what` names it in messages, e.g. "training data".

    Paths and one-dimensional whole-number arrays are token ids and need a `sequence_length`; a folder's text is read
    into memory; .bin is uint16 unless `batchlab data prepare` described it. (X, Y), lists of pairs and indexables are
    samples; a Dataset is passed through. `windows` "random": samples begin at any token. InputError in one or two
    sentences for everything else.
    """
    if unit is Unit.TOKENS and sequence_length is None:
        raise InputError("Counting in tokens needs the tokens per sample: give sequence_length=, or unit='samples'.")
    overlapping = windows == "random"
    if isinstance(source, str | Path):
        if sequence_length is None:
            raise InputError(
                f"The {what} {str(source)!r} is a path, which holds token ids; give sequence_length=, or load it and "
                "give (X, Y)."
            )
        return TokenDataset(_read_path(source, what), sequence_length, what, overlapping=overlapping)
    if isinstance(source, TokenSpan) or _is_one_array(source):
        if sequence_length is None:
            raise InputError(
                f"The {what} is a single array of shape {np.shape(source)}; give inputs and targets as a pair (X, Y), "
                "or sequence_length= where it holds token ids."
            )
        span = source if isinstance(source, TokenSpan) else np.asarray(source)
        return TokenDataset(span, sequence_length, what, overlapping=overlapping)
    if overlapping:
        raise InputError(
            f"data.windows is random, but the {what} of type {type(source).__name__} brings samples of its own; random "
            "positions are for token ids: leave data.windows at shuffled."
        )
    if _is_dataset(source):
        given: Dataset = source
        if len(given) == 0:
            raise InputError(f"The {what} has no samples.")
        return given
    samples = SampleDataset(source, what)
    _require_length(samples, sequence_length, what)
    return samples


def describe_source(source: Any) -> str:
    """The source in a few words for a report: file name and size, shapes, or type and length."""
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
    length = f" of {format_count(len(source))} samples" if hasattr(source, "__len__") else ""
    return f"{type(source).__name__}{length}"


def open_text_pair(config: DataConfig, cache_dir: Path, progress: Progress = no_progress) -> TextPair:
    """Token ids to train on and to hold out, as the study's `data` settings say.

    Without a path: the standard library's source text. Text is taken as bytes, or encoded by `data.tokenizer` into
    token files that are kept. What is held out is `valid_path`, or the last `valid_fraction` of the data. InputError
    for data that is missing, empty or not what its name says, and for a vocabulary smaller than the data's.
    """
    if config.path is None and config.valid_path is not None:
        raise InputError("data.valid_path is given without data.path; give both, or neither for the embedded text.")
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
                f"The training data has {len(train):,} tokens, of which data.valid_fraction={config.valid_fraction:g} "
                "leaves none to hold out; give more data."
            )
        description += f", last {config.valid_fraction:.0%} held out"
        end = len(train)
        train, valid = train.part(0, end - held_out), train.part(end - held_out, end)
    else:
        valid_file = locate(config.valid_path, cache_dir, "held-out data")
        if holds_ids(valid_file) != holds_ids(file):
            raise InputError(
                "One of data.path and data.valid_path is text and the other token ids; give both in the same form."
            )
        _require_one_tokenizer(file, valid_file)
        valid = reader.read(valid_file, "held-out data")
        description += f"; held out: {describe_source(config.valid_path)}"
    return TextPair(train, valid, reader.vocabulary(train, valid), "; ".join([description, *map(str, reader.notices)]))


def encode_beside(config: DataConfig, cache_dir: Path, progress: Progress) -> None:
    """Make the token files of the study's text where they are kept beside it, so that workers find them made.

    Nothing is made for bytes, ids and named datasets, nor where the text's folder may not be written.
    """
    if config.tokenizer == "bytes" or config.path is None or config.path.startswith(HUB):
        return
    path = require_path(config.path, "training data")
    if path.is_file() and not holds_ids(path) and cache_beside(path, cache_dir) != cache_dir:
        open_text_pair(config, cache_dir, progress)


class _Reader:
    """Reads text and token ids for one study, all text by the tokenizer that its training text led to."""

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
            # A window of one token is the least there is; this refuses floats and negative ids here already.
            return TokenSpan(TokenDataset(read_ids(path, what, self._config.bin_dtype), 1, what).tokens)
        if self._tokenizer is None:
            return TokenSpan(read_text_file(path, what), vocabulary=BYTE_VOCABULARY)
        span, notices = cached_token_file(path, self._tokenizer, self._cache_dir, what, self._progress)
        self.notices += notices
        return span

    def vocabulary(self, *spans: TokenSpan) -> int:
        """Rows a model needs for the ids of these; InputError where fewer were asked for."""
        least = max(span.vocabulary or largest_id(span.ids) + 1 for span in spans)
        asked = self._config.vocabulary
        if asked is not None and asked < least:
            raise InputError(
                f"The data has ids for a vocabulary of {least:,}, and data.vocabulary is {asked:,}; set it to "
                f"{least:,} (or more), or make ids with a smaller tokenizer: batchlab data prepare."
            )
        return asked or least


def locate_text(given: str, cache_dir: Path) -> Path:
    """The file behind what is to be encoded; InputError where that holds ids already."""
    path = locate(given, cache_dir, "text")
    if holds_ids(path):
        raise InputError(f"{path.name} holds token ids already; give it as data.path, or give text to make them from.")
    return path


def locate(given: str, cache_dir: Path, what: str) -> Path:
    """The file behind a `data` setting: a folder's text is concatenated, a named dataset's is fetched."""
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
            f"{train.name} was made with {one.tokenizer} and {valid.name} with {other.tokenizer}, so their ids mean "
            "different things; prepare both with one: batchlab data prepare … --tokenizer FILE."
        )


def _read_path(given: str | Path, what: str) -> _Array | TokenSpan:
    path = require_path(given, what)
    if path.is_dir():
        return np.concatenate([read_text_file(file, what) for file in text_files(path, what)])
    if is_token_file(path):
        return open_token_file(path)
    return read_ids(path, what) if holds_ids(path) else read_text_file(path, what)


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
