"""Byte-level BPE with the `tokenizers` package: trained on a text, or read from GPT-2's files.

Byte-level means that any text can be encoded, and that decoding returns it exactly. Text is first split into words by
GPT-2's pattern (a run of letters, of digits or of other characters, each with an optional leading space, or a run of
whitespace). Merges never cross word boundaries. Sources: Sennrich, Haddow & Birch 2016 (BPE); Radford et al. 2019
(bytes, the pattern).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from batchlab.core.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BYTES = 256
END_OF_TEXT = "<|endoftext|>"


class BPE:
    """Encodes text to ids and decodes ids to text. Created by `train_bpe`, `read_gpt2` or `read_tokenizer`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.vocabulary: int = tokenizer.get_vocab_size(with_added_tokens=True)
        self.text: str = tokenizer.to_str()
        self.digest = hashlib.sha256(self.text.encode()).hexdigest()

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.uint32]:
        """Encode the texts in parallel, one thread per core, and concatenate their ids."""
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return np.concatenate([np.empty(0, np.uint32), *(np.array(e.ids, np.uint32) for e in encodings)])

    def decode(self, ids: Iterable[int]) -> str:
        """Decode ids to text, including special tokens."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False)
        return text


def train_bpe(texts: Iterable[str], vocabulary: int, special_tokens: Sequence[str] = (END_OF_TEXT,)) -> BPE:
    """Train a BPE with at most `vocabulary` ids, or fewer if no pairs are left to merge. Deterministic.

    The special tokens get the first ids, one each, followed by the 256 bytes. Raises InputError if `vocabulary` is too
    small for these, or if special tokens are empty, repeated or contain whitespace.
    """
    tokenizers = _package()
    _require_special_tokens(special_tokens)
    if vocabulary < BYTES + len(special_tokens):
        raise InputError(
            f"A byte-level BPE cannot have {vocabulary} ids: the {BYTES} bytes and {len(special_tokens)} special "
            f"tokens need {BYTES + len(special_tokens)}. Use at least {BYTES + len(special_tokens)}."
        )
    tokenizer = _byte_level(tokenizers, tokenizers.models.BPE())
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(special_tokens),
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_without(texts, special_tokens), trainer)
    return BPE(tokenizer)


def read_gpt2(folder: Path) -> BPE:
    """Read GPT-2's BPE from a folder with vocab.json and merges.txt (or gpt2_vocab.json and gpt2_merges.txt).

    <|endoftext|> is its special token. Raises InputError if a file is missing or the two do not match.
    """
    tokenizers = _package()
    vocab, merges = _gpt2_file(folder, "vocab.json"), _gpt2_file(folder, "merges.txt")
    try:
        model = tokenizers.models.BPE.from_file(str(vocab), str(merges))
    except Exception as error:  # noqa: BLE001 - the package raises no narrower class
        raise InputError(f"{vocab.name} and {merges.name} in {folder} do not form a BPE: {error}.") from None
    tokenizer = _byte_level(tokenizers, model)
    missing = set(tokenizers.pre_tokenizers.ByteLevel.alphabet()) - set(tokenizer.get_vocab())
    if missing:
        raise InputError(
            f"{vocab.name} in {folder} lacks {len(missing)} of the {BYTES} bytes, so it is not a byte-level vocabulary "
            "like GPT-2's; use one that is."
        )
    tokenizer.add_special_tokens([END_OF_TEXT])
    return BPE(tokenizer)


def read_tokenizer(file: Path) -> BPE:
    """Read a byte-level BPE from a tokenizer.json. Raises InputError if it is damaged or of another kind."""
    tokenizers = _package()
    try:
        text = file.read_text(encoding="utf-8")
        described: dict[str, Any] = json.loads(text)
        tokenizer = tokenizers.Tokenizer.from_str(text)
    except OSError as error:
        raise InputError(f"The tokenizer {file} cannot be read ({error.strerror}); check the path.") from None
    except Exception as error:  # noqa: BLE001 - the package raises no narrower class
        raise InputError(f"{file} is not a valid tokenizer.json: {error}.") from None
    words = described.get("pre_tokenizer") or {}
    if described["model"]["type"] != "BPE" or words.get("type") != "ByteLevel" or words.get("add_prefix_space"):
        raise InputError(
            f"{file} is not a byte-level BPE like GPT-2's, the only kind supported for text; write the ids to a .bin "
            "or .npy file yourself and pass it as data.path."
        )
    _require_special_tokens([token["content"] for token in described.get("added_tokens", ())])
    return BPE(tokenizer)


def version() -> str:
    """Version of the `tokenizers` package. Another version may train a different BPE."""
    return str(_package().__version__)


def _package() -> Any:
    try:
        import tokenizers
    except ModuleNotFoundError:
        raise InputError(
            "BPE needs the tokenizers package; run: pip install 'batchlab[tokenizers]'. "
            "To do without it, use --set data.tokenizer=bytes."
        ) from None
    return tokenizers


def _byte_level(tokenizers: Any, model: Any) -> Any:
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    return made


def _gpt2_file(folder: Path, name: str) -> Path:
    for candidate in (folder / name, folder / f"gpt2_{name}"):
        if candidate.is_file():
            return candidate
    raise InputError(
        f"The tokenizer folder {folder} has no {name}; use a folder with GPT-2's vocab.json and merges.txt."
    )


def _require_special_tokens(tokens: Sequence[str]) -> None:
    wrong = [token for token in tokens if not token or re.search(r"\s", token)]
    if wrong or len(set(tokens)) != len(tokens):
        raise InputError(
            f"The special tokens {list(tokens)} contain whitespace, an empty string or a duplicate; use distinct words "
            f"such as {END_OF_TEXT}."
        )


def _without(texts: Iterable[str], special_tokens: Sequence[str]) -> Iterator[str]:
    """The text between special tokens, so that no merges are learned from the tokens' own characters."""
    if not special_tokens:
        return iter(texts)
    pattern = re.compile("|".join(map(re.escape, special_tokens)))
    return (part for text in texts for part in pattern.split(text))
