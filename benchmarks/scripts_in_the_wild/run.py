"""People's own programs, from an unmodified file to a report: how many lines a person edits, and when the answer comes.

    .venv-integrations/bin/python benchmarks/scripts_in_the_wild/run.py studies/scripts_in_the_wild

Every row copies a script of tests/integrations/scripts into a folder of its own, runs `batchlab init` on it, makes the
edits below, which are those a person would make after reading what init said, and runs `batchlab study`. A file with a
Trainer in it is given to `batchlab study` as it is, and edited as that says. Edited lines are counted by comparing the
files before and after. The time is that of all commands together. A row whose files are there is not measured again,
so the command goes on where it was stopped. `--transcripts` writes what was typed, edited and printed in some rows.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import time
from dataclasses import asdict, dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "tests" / "integrations" / "scripts"
SHARED = ("problem.py", "configurator.py")

Edit = tuple[str, str]
"""A text in a file, and what a person writes instead."""


def study(tokens: int, rates: str = "3e-3,1e-2,3e-2") -> tuple[str, ...]:
    """A small study: three batch sizes at three learning rates, two seeds where they are compared."""
    return (
        *("--batch-sizes", "4,8,16", "--learning-rates", rates, "--search", "grid", "--seeds", "2"),
        *("--set", "sweep.max_extensions=0", "--set", "sweep.confirm=0", "--token-budget", str(tokens)),
    )


@dataclass(frozen=True)
class Style:
    """A script, what a person changes in the study.toml and in the script itself, and the study that is asked for.

    function: that a person adds to the file, where the study is of the Trainer in it.
    """

    name: str
    file: str
    study: tuple[str, ...]
    toml: tuple[Edit, ...] = ()
    source: tuple[Edit, ...] = ()
    function: str = ""

    @property
    def first(self) -> tuple[str, ...]:
        """What a person types first."""
        return ("study", self.file) if self.function else ("init", self.file)

    @property
    def then(self) -> tuple[str, ...]:
        """What a person types once the edits are made."""
        task = f"{self.file}:{self.function}" if self.function else "study.toml"
        return ("study", task, "--out", "study", *self.study)


DDP = "torchrun --nproc-per-node 2 --no-python {python} ddp_style.py"
TORCHRUN = "torchrun --nproc-per-node 2 --no-python {python}"
STYLES = (
    Style("globals and a configurator (nanoGPT)", "globals_style.py", study(25600)),
    Style("argparse", "argparse_style.py", study(1600)),
    Style("click, with a group of commands", "click_style.py", study(1600)),
    Style("typer", "typer_style.py", study(1600)),
    Style(
        "key=value, losses in a JSON-lines file",
        "key_value_style.py",
        study(1536),
        toml=(
            ("train_samples = 0 ", "train_samples = 256 "),
            ('from = "stdout"', 'from = "jsonl"\nfile = "{run_dir}/metrics.jsonl"'),
            (r"val_loss = 'val loss (\S+)'", "val_loss = 'eval/loss'"),
            ("seed={seed}", "seed={seed} log={run_dir}/metrics.jsonl"),
        ),
    ),
    Style(
        "epochs of small images (MNIST)",
        "mnist_style.py",
        study(4096, "0.03,0.1,0.3"),
        toml=(("train_samples = 0 ", "train_samples = 2048 "),),
    ),
    Style("HfArgumentParser (run_clm)", "run_clm_style.py", study(960)),
    Style(
        "TrlParser (TRL SFT)",
        "sft_style.py",
        study(960),
        toml=(("--save_strategy no", "--save_strategy no --bf16 false --use_cpu true"),),
    ),
    Style("LightningCLI", "lightning_cli_style.py", study(1600)),
    Style(
        "torchrun with 2 processes (DDP on gloo)",
        "ddp_style.py",
        study(1600),
        toml=(
            ("{python} ddp_style.py --batch_size {batch_size}", f"{DDP} --batch_size {{micro_batch_size}}"),
            ("[command]\n", "[command]\ndevices = 2\n"),
        ),
    ),
    Style(
        "torchrun, with the batch size of all processes",
        "global_batch_style.py",
        study(1600),
        toml=(
            (
                "{python} global_batch_style.py --batch_size {batch_size}",
                f"{TORCHRUN} global_batch_style.py --batch_size {{global_batch_size}}",
            ),
            ("[command]\n", "[command]\ndevices = 2\n"),
        ),
    ),
    Style("prints nothing", "silent_style.py", study(1600)),
    Style(
        "prints nothing, with a line that prints",
        "silent_style.py",
        study(1600),
        source=(("np.save(", 'print(f"val loss {problem.evaluate()}")\nnp.save('),),
    ),
    Style("ignores its option for the batch size", "ignoring_style.py", study(1600)),
    Style(
        "fine-tunes with the Trainer of transformers",
        "finetune_style.py",
        study(49152, "1e-3,3e-3,1e-2"),
        source=(
            ("model = GPT2LMHeadModel", "def make_trainer(args):\n    model = GPT2LMHeadModel"),
            ("trainer = Trainer(", "    return Trainer("),
            ("trainer.train()", 'if __name__ == "__main__":\n    make_trainer(args).train()'),
        ),
        function="make_trainer",
    ),
    Style(
        "trains with Lightning",
        "lightning_style.py",
        study(2048, "1e-3,3e-3,1e-2"),
        source=(
            (
                "trainer = ",
                'def make():\n    return Classifier(), train, valid\n\nif __name__ == "__main__":\n    trainer = ',
            ),
            ("trainer.fit(Classifier(), train, valid)", "    trainer.fit(*make())"),
        ),
        function="make",
    ),
)

USERS = {
    "globals_style.py": "A script in the style of nanoGPT",
    "finetune_style.py": "A file that fine-tunes with the Trainer of transformers",
    "lightning_style.py": "A file that trains with Lightning",
}
"""Files of the transcripts → their headings."""


@dataclass(frozen=True)
class Answer:
    """What came of one script."""

    name: str
    edited: int
    minutes: float
    said: str
    code: int


def edited(path: Path, edits: tuple[Edit, ...]) -> list[str]:
    """Make the edits; how the file differs afterwards, line by line."""
    before = path.read_text(encoding="utf-8")
    after = before
    for old, new in edits:
        if after.count(old) != 1:
            raise SystemExit(f"{path} does not have {old!r} once:\n{after}")
        after = after.replace(old, new)
    path.write_text(after, encoding="utf-8")
    return list(difflib.unified_diff(before.splitlines(), after.splitlines(), path.name, path.name, "", "", 1, ""))


def lines_written(differences: list[str]) -> int:
    """Lines that are new or changed, without empty ones."""
    return sum(line.startswith("+") and not line.startswith("+++") and line != "+" for line in differences)


def measure(style: Style, folder: Path) -> Answer:
    """From a script and an empty folder to an answer, or to the sentence that says why there is none.

    A study that was stopped goes on, and the time it took before is counted.
    """
    if not (folder / "edited").is_file():
        prepare(style, folder)
    found = timed(folder, *style.then)
    note(folder, shown(style.then), found.stdout)
    minutes = float((folder / "seconds").read_text()) / 60
    return Answer(style.name, int((folder / "edited").read_text()), minutes, outcome(found.stdout), found.returncode)


def prepare(style: Style, folder: Path) -> None:
    """The script and its study.toml, with the edits a person makes."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in (style.file, *SHARED):
        shutil.copy(SCRIPTS / name, folder / name)
    # A person edits a script that prints no losses first, and a file with a Trainer as batchlab says.
    changes = [] if style.function else edited(folder / style.file, style.source)
    made = timed(folder, *style.first)
    if made.returncode not in ((2,) if style.function else (0, 1)):
        raise SystemExit(made.stdout)
    note(folder, shown(style.first), made.stdout)
    changes += (
        edited(folder / style.file, style.source) if style.function else edited(folder / "study.toml", style.toml)
    )
    if changes:
        note(folder, *changes)
    (folder / "edited").write_text(str(lines_written(changes)))


def shown(words: tuple[str, ...]) -> str:
    """A command as a person types it."""
    return f"$ batchlab {shlex.join(words)}"


def note(folder: Path, *texts: str) -> None:
    """Add texts to the transcript, with short names of folders."""
    with (folder / "transcript.txt").open("a", encoding="utf-8") as transcript:
        for text in texts:
            transcript.write(text.replace(f"{folder}{os.sep}", "").rstrip("\n") + "\n")


def timed(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder, as a person would, and add the seconds that it takes to the file `seconds`."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    command = [sys.executable, "-m", "batchlab", *words]
    kept = folder / "seconds"
    before, begun = float(kept.read_text()) if kept.is_file() else 0.0, time.monotonic()
    with (folder / "said.txt").open("w+", encoding="utf-8") as said:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=subprocess.STDOUT)
        while process.poll() is None:
            time.sleep(0.1)
            kept.write_text(str(before + time.monotonic() - begun))
        said.seek(0)
        return subprocess.CompletedProcess(command, process.returncode, said.read())


def outcome(said: str) -> str:
    """The recommendation, or the sentence that says why there is none."""
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    reasons = ("TRAIN WITH micro-batch", "batchlab:", "The task could not be checked:", "✗")
    return next((line for begin in reasons for line in lines if line.startswith(begin)), lines[-1])


def table(answers: list[Answer]) -> str:
    lines = ["| script | lines edited | minutes | outcome |", "|---|---|---|---|"]
    lines += [f"| {one.name} | {one.edited} | {one.minutes:.1f} | {one.said.replace('|', '/')} |" for one in answers]
    return "\n".join(lines)


def write_transcripts(page: Path, folders: dict[str, Path]) -> None:
    """A page with the transcript of every row that was asked for and measured."""
    text = [page.read_text(encoding="utf-8").split("\n## ")[0].rstrip()]
    for file, heading in USERS.items():
        folder = folders[file]
        answer = Answer(**json.loads((folder / "answer.json").read_text(encoding="utf-8")))
        said = (folder / "transcript.txt").read_text(encoding="utf-8")
        words = len(re.findall(r"\w[\w.,:-]*", said))
        text.append(
            f"## {heading}\n\n{answer.edited} lines edited or added, {answer.minutes:.1f} minutes until the report, "
            f"{words} words typed and printed.\n\n{textwrap.indent(said, '    ').rstrip()}"
        )
    page.write_text("\n\n".join(text) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", default=[], metavar="FILE", help="scripts to measure; default: all")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no new row is begun after so long")
    parser.add_argument("--transcripts", type=Path, metavar="PAGE", help="write those of three users below its heading")
    arguments = parser.parse_args()
    begun, answers = time.monotonic(), []
    folders: dict[str, Path] = {}
    for number, style in enumerate(STYLES):
        folder = folders[style.file] = arguments.folder.absolute() / f"{number:02}-{Path(style.file).stem}"
        path = folder / "answer.json"
        wanted = not arguments.only or style.file in arguments.only
        if path.is_file():
            answer = Answer(**json.loads(path.read_text(encoding="utf-8")))
        elif wanted and time.monotonic() - begun < arguments.seconds:
            answer = measure(style, folder)
            path.write_text(json.dumps(asdict(answer)), encoding="utf-8")
        else:
            continue
        answers.append(answer)
        print(f"{answer.name}: {answer.minutes:.1f} minutes, {answer.said}", file=sys.stderr, flush=True)
    print(f"Python {platform.python_version()}, {platform.system()}, {os.cpu_count()} cores\n")
    print(table(answers))
    if arguments.transcripts is not None:
        write_transcripts(arguments.transcripts, folders)
    return 0


if __name__ == "__main__":
    sys.exit(main())
