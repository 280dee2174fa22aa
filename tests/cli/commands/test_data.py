"""`batchlab data prepare`: what it writes, prints and refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from batchlab.cli.app import run
from batchlab.cli.options import Options, parse_experiment
from batchlab.core.spec import Workload
from batchlab.data.bpe import read_tokenizer
from batchlab.data.token_file import open_token_file
from batchlab.data.tokens import TokenDataset
from batchlab.runs.workload import load

TEXT = "".join(f"Story {n}: once there were {n} birds, and {n * n} worms.\n<|endoftext|>\n" for n in range(300))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("stories.txt").write_text(TEXT, encoding="utf-8")


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run(["data", "prepare", *arguments]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return captured.err if code else captured.out


def test_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "stories.txt", "--tokenizer", "bytes", "--out", "out/s.bin")
    assert f"out/s.bin: {len(TEXT):,} tokens of stories.txt (uint8)" in text
    assert Path("out/s.bin").read_bytes() == TEXT.encode()
    assert "--set data.path=out/s.bin" in text
    assert "already complete" in said(capsys, "stories.txt", "--tokenizer", "bytes", "--out", "out/s.bin")


def test_a_bpe_and_held_out_text_with_the_same_ids(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tokenizers", reason="the tokenizers package is not installed")
    Path("held").mkdir()
    Path("held/a.txt").write_text(TEXT[:400], encoding="utf-8")
    text = said(capsys, "stories.txt", "--vocabulary", "300")
    assert "stories.bin: " in text
    assert "vocabulary 300" in text
    bpe = read_tokenizer(Path("stories.tokenizer.json"))
    assert bpe.decode(open_token_file(Path("stories.bin")).ids.tolist()) == TEXT
    assert "--tokenizer stories.tokenizer.json" in text
    assert "held-out" not in said(capsys, "held", "--tokenizer", "stories.tokenizer.json")
    ids = open_token_file(Path("held.bin")).ids
    assert ids[:50].tolist() == open_token_file(Path("stories.bin")).ids[:50].tolist()


def test_the_study_it_proposes_trains_on_the_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (proposed,) = [
        line for line in said(capsys, "stories.txt", "--tokenizer", "bytes").splitlines() if "use it" in line
    ]
    _, *words = proposed.partition(": batchlab study ")[2].split()
    settings = tuple(word for word in words if word != "--set")
    experiment = parse_experiment("tinystories", Options(quick_test=True, set_=settings))
    workload = Workload(
        task=experiment.task,
        sequence_length=experiment.sequence_length,
        model={**experiment.model, "layers": 1},
        data=experiment.data,
    )
    loaded = load(workload, tmp_path)
    assert loaded.source.startswith("stories.bin")
    assert loaded.task.model().embedding.num_embeddings == 256


def test_a_damaged_file_is_made_again(capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "stories.txt", "--tokenizer", "bytes")
    Path("stories.bin").write_bytes(b"torn")
    assert ", written" in said(capsys, "stories.txt", "--tokenizer", "bytes")
    assert len(TokenDataset(open_token_file(Path("stories.bin")), 8).tokens) == len(TEXT)


def test_what_is_refused_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty.txt").touch()
    Path("taken.bin").write_bytes(b"something of mine")
    for arguments, says in (
        (("gone.txt",), "There is no file or folder 'gone.txt' for the text"),
        (("empty.txt",), "The text empty.txt is empty"),
        (("taken.bin",), "taken.bin already contains token ids"),
        (("stories.txt", "--tokenizer", "bytes", "--out", "taken.bin"), "taken.bin exists with other content"),
        (("stories.txt", "--tokenizer", "bytes", "--out", "ids.npy"), "must end in .bin"),
        (("stories.txt", "--tokenizer", "gpt2"), "There is no tokenizer 'gpt2'"),
        (("stories.txt", "--tokenizer", "bytes", "--vocabulary", "9"), "data.vocabulary is 9"),
    ):
        assert says in said(capsys, *arguments, code=2)
    assert Path("taken.bin").read_bytes() == b"something of mine"


PREPARE_AND_TELL = """
import re, sys
from batchlab.cli.app import run
assert run(["data", "prepare", *sys.argv[1:]]) == 0
print(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1])
"""


def peak_bytes(text: Path, *options: str) -> int:
    """Most memory that a process of its own held while it prepared the text."""
    command = [sys.executable, "-c", PREPARE_AND_TELL, str(text), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return int(done.stdout.splitlines()[-1]) * 1024


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the largest memory of a process")
@pytest.mark.parametrize(
    ("options", "size", "growth"),
    [
        (("--tokenizer", "bytes"), 2**26, 2**24),
        (("--vocabulary", "400"), 2**23, 2**24),  # words that were seen are kept, up to a bound; all ids would be 80 MB
    ],
)
def test_memory_does_not_grow_with_the_text(options: tuple[str, ...], size: int, growth: int) -> None:
    """The sizes that people have, 1 GB and 64 MB, are a benchmark's: benchmarks/token_files."""
    pytest.importorskip("tokenizers", reason="the tokenizers package is not installed")
    peaks = []
    for name, length in (("small.txt", size // 8), ("large.txt", size)):
        Path(name).write_text(TEXT * (length // len(TEXT)), encoding="utf-8")
        peaks.append(peak_bytes(Path(name), *options))
    assert peaks[1] - peaks[0] < growth
