"""Files that were made from data, read in full and compared with their digests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from batchlab.data.digests import damaged_files
from batchlab.data.prepare import text_cache_dir
from batchlab.data.token_file import (
    DamagedTokenFile,
    describe_token_file,
    description_path,
    digest_of_ids,
    is_token_file,
    open_token_file,
)


def damaged_made(cache_dir: Path, texts: Mapping[Path, str]) -> tuple[int, list[Path]]:
    """How many files in a study's cache, or beside these texts, were made from data, and which are damaged; reads all.

    `texts` are data files with their digests. Beside them, where other studies have made files too, only those made
    from these texts count.
    """
    count, damaged = 0, list[Path]()
    for folder in (cache_dir, cache_dir / ".batchlab"):  # texts in the cache have their token files in the latter
        files = [path for path in sorted(folder.glob("*.bin")) if is_token_file(path)]
        made, broken = damaged_files(folder)
        count += made + len(files)
        damaged += broken + [path for path in files if not _is_whole(path)]
    for folder in sorted({text_cache_dir(text, cache_dir) for text in texts if text.is_file()} - {cache_dir}):
        files = [path for path in sorted(folder.glob("*.bin")) if _text_digest(path) in texts.values()]
        tokenizers = {name for path in files if (name := describe_token_file(path).tokenizer_file) is not None}
        made, broken = damaged_files(folder, tokenizers)
        count += made + len(files)
        damaged += broken + [path for path in files if not _is_whole(path)]
    return count, damaged


def _text_digest(path: Path) -> str | None:
    """The digest of the text that a token file was made from; None where that is not known."""
    if not description_path(path).is_file():
        return None
    try:
        return describe_token_file(path).text_digest
    except DamagedTokenFile:
        return None


def _is_whole(path: Path) -> bool:
    try:
        return digest_of_ids(open_token_file(path).ids) == describe_token_file(path).digest
    except DamagedTokenFile:
        return False
