"""What `batchlab data prepare` says of the token file it made."""

from __future__ import annotations

from batchlab.data.prepare import Notice, Prepared


def prepared_lines(made: Prepared) -> list[str]:
    """The file and its tokenizer, anything worth noticing, and the commands that use it."""
    described = made.description
    bytes_per_token = described.text_bytes / max(described.tokens, 1)
    lines = [
        f"{made.path}: {described.tokens:,} tokens of {described.text} ({described.dtype}), {_how(made)}",
        f"  {described.tokenizer}, {bytes_per_token:.2f} bytes of text per token, vocabulary {described.vocabulary:,}",
        *(f"  {_notice(notice)}" for notice in made.notices),
    ]
    if described.tokenizer_file and described.tokenizer.startswith("BPE"):
        beside = made.path.parent / described.tokenizer_file
        lines.append(f"  for held-out text with the same ids: batchlab data prepare TEXT --tokenizer {beside}")
    settings = f"--set data.path={made.path} --set data.vocabulary={described.vocabulary}"
    return [*lines, f"  use it: batchlab study tinystories {settings}"]


def _how(made: Prepared) -> str:
    if made.continued_from == made.description.text_bytes:
        return "already present"
    if made.continued_from:
        return f"written, continuing from byte {made.continued_from:,} of an earlier attempt"
    return "written"


def _notice(notice: Notice) -> str:
    if notice.kind == "rebuilt":
        return f"{notice.file} was damaged and has been rebuilt"
    return f"{notice.file} has pairs to merge for only {notice.ids:,} of the {notice.vocabulary:,} ids"
