"""data prepare: encode text into a token file, once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from batchlab.cli.arguments import whole

if TYPE_CHECKING:
    from batchlab.data.digests import Progress

data = App(name="data", help="Token files from text.", help_format="plaintext", result_action="return_value")


@data.command
def prepare(
    text: str,
    /,
    *,
    tokenizer: str = "bpe",
    vocabulary: Annotated[int | None, whole(1, 2**31)] = None,
    special_tokens: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = ("<|endoftext|>",),
    out: Path | None = None,
) -> int:
    """Encode a text once into a file of token ids, which studies then map into memory.

    Memory use does not grow with the text. If interrupted, run the same command again to continue.

    Parameters
    ----------
    text
        A text file, a folder of text, or hf:NAME[:SPLIT] (a dataset's `text` column).
    tokenizer
        bpe (trained on this text), bytes, a folder with GPT-2's vocab.json and merges.txt, or a tokenizer.json.
    vocabulary
        Vocabulary size of a trained bpe; default: 10000.
    special_tokens
        Strings that become one id each in a trained bpe.
    out
        The token file; default: ./NAME.bin.
    """
    from batchlab.data.prepare import prepare_to
    from batchlab.data.source import locate_text
    from batchlab.words.progress import describe_token_file

    target = out or Path(f"{Path(text.rpartition('/')[2]).stem or 'text'}.bin")
    with bars() as progress:
        made = prepare_to(
            locate_text(text, target.absolute().parent / ".batchlab"),
            target,
            tokenizer,
            vocabulary=vocabulary,
            special_tokens=special_tokens,
            progress=progress,
        )
    print("\n".join(describe_token_file(target, made, trained=tokenizer == "bpe")))
    return 0


@contextmanager
def bars() -> Iterator[Progress]:
    """A progress bar per task on a terminal; nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    tasks: dict[str, TaskID] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:

        def show(doing: str, done: int, total: int) -> None:
            if doing not in tasks:
                tasks[doing] = shown.add_task(doing, total=total)
            shown.update(tasks[doing], completed=done)

        yield show
