"""Byte-level BPE, by the `tokenizers` package: trained on a text, or read from GPT-2's files.

Byte-level: every text has ids, and they decode to it exactly. Text is first cut into words by GPT-2's pattern (a run of
letters, of digits, of other characters, each with one blank before it, or a run of white space), and merges never reach
across. Sources: Sennrich, Haddow & Birch 2016 (BPE); Radford et al. 2019 (bytes, the pattern).
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
    """Text to ids and back. Make it with `train_bpe`, `read_gpt2` or `read_tokenizer`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.vocabulary: int = tokenizer.get_vocab_size(with_added_tokens=True)
        self.text: str = tokenizer.to_str()
        self.digest = hashlib.sha256(self.text.encode()).hexdigest()

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.uint32]:
        """The ids of all texts, one after the other; the texts are encoded by as many threads as there are cores."""
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return np.concatenate([np.empty(0, np.uint32), *(np.array(e.ids, np.uint32) for e in encodings)])

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, special tokens included."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False)
        return text


def train_bpe(texts: Iterable[str], vocabulary: int, special_tokens: Sequence[str] = (END_OF_TEXT,)) -> BPE:
    """A BPE of at most `vocabulary` ids; fewer where the texts have no more pairs to merge. The same texts give the
    same BPE.

    Special tokens have the first ids and one each; the 256 bytes follow. InputError for a vocabulary that does not hold
    those, and for special tokens that are empty, repeated or hold white space.
    """
    tokenizers = _package()
    _require_special_tokens(special_tokens)
    if vocabulary < BYTES + len(special_tokens):
        raise InputError(
            f"A byte-level BPE of {vocabulary} ids was asked for; the {BYTES} bytes and {len(special_tokens)} special "
            f"tokens alone are {BYTES + len(special_tokens)}: give at least that."
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
    """GPT-2's BPE from a folder with its vocabulary and merges: vocab.json and merges.txt, also with gpt2_ before it.

    <|endoftext|> is its special token. InputError where a file is missing, or the two do not belong together.
    """
    tokenizers = _package()
    vocab, merges = _gpt2_file(folder, "vocab.json"), _gpt2_file(folder, "merges.txt")
    try:
        model = tokenizers.models.BPE.from_file(str(vocab), str(merges))
    except Exception as error:  # noqa: BLE001 - the package raises no narrower class
        raise InputError(f"{vocab.name} and {merges.name} in {folder} make no BPE: {error}.") from None
    tokenizer = _byte_level(tokenizers, model)
    missing = set(tokenizers.pre_tokenizers.ByteLevel.alphabet()) - set(tokenizer.get_vocab())
    if missing:
        raise InputError(
            f"{vocab.name} in {folder} lacks {len(missing)} of the {BYTES} bytes, so it is not a byte-level vocabulary "
            "as GPT-2's; give one that is."
        )
    tokenizer.add_special_tokens([END_OF_TEXT])
    return BPE(tokenizer)


def read_tokenizer(file: Path) -> BPE:
    """A byte-level BPE from a tokenizer.json. InputError for a damaged file or another kind of tokenizer."""
    tokenizers = _package()
    try:
        text = file.read_text(encoding="utf-8")
        described: dict[str, Any] = json.loads(text)
        tokenizer = tokenizers.Tokenizer.from_str(text)
    except OSError as error:
        raise InputError(f"The tokenizer {file} cannot be read ({error.strerror}); check the path.") from None
    except Exception as error:  # noqa: BLE001 - the package raises no narrower class
        raise InputError(f"{file} is not a whole tokenizer.json: {error}.") from None
    words = described.get("pre_tokenizer") or {}
    if described["model"]["type"] != "BPE" or words.get("type") != "ByteLevel" or words.get("add_prefix_space"):
        raise InputError(
            f"{file} is not a byte-level BPE as GPT-2's, which is what text can be cut for; write the ids to a .bin "
            "or .npy file yourself and give that as data.path."
        )
    _require_special_tokens([token["content"] for token in described.get("added_tokens", ())])
    return BPE(tokenizer)


def version() -> str:
    """Of the package; another one may train otherwise."""
    return str(_package().__version__)


def _package() -> Any:
    try:
        import tokenizers
    except ModuleNotFoundError:
        raise InputError(
            "BPE needs the tokenizers package; run: pip install 'batchlab[tokenizers]'. "
            "Without it: --set data.tokenizer=bytes."
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
        f"The tokenizer folder {folder} has no {name}; give the folder with GPT-2's vocab.json and merges.txt."
    )


def _require_special_tokens(tokens: Sequence[str]) -> None:
    wrong = [token for token in tokens if not token or re.search(r"\s", token)]
    if wrong or len(set(tokens)) != len(tokens):
        raise InputError(
            f"The special tokens {list(tokens)} hold white space, an empty one or one twice; give different words, "
            f"such as {END_OF_TEXT}."
        )


def _without(texts: Iterable[str], special_tokens: Sequence[str]) -> Iterator[str]:
    """What stands between special tokens: nothing is to be learned from their letters."""
    if not special_tokens:
        return iter(texts)
    pattern = re.compile("|".join(map(re.escape, special_tokens)))
    return (part for text in texts for part in pattern.split(text))
