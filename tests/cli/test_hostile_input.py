"""Hostile command lines and files, generated: each ends with an exit code and a sentence, and writes nothing.

Command lines are built from the options that the commands really have, so a new option is tested without a word here.
No worker starts: what would run is accepted where it would begin to.
"""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.injections import injection

from batchlab.cli.app import MOST_SAID, app, run
from batchlab.cli.options import Options, parse_experiment
from batchlab.core.errors import BatchlabError, InputError
from batchlab.core.experiment import MOST_TEXT, Experiment, build_experiment
from batchlab.core.parse import MOST_TOKENS
from batchlab.core.settings import field_names
from batchlab.recipes import RECIPES
from batchlab.study.task_source import resolve_task

COMMANDS = [name for name in app if not name.startswith("-") and app[name].show]
NOT_TRIED = {"doctor"}  # asks the machine, and takes nothing

HOSTILE = [
    *("", " ", "0", "-0", "-1", "1.5", "1e400", "-1e400", "1e308", "5e-324", "nan", "inf", "-inf", "1e20", "0x10"),
    *("9" * 400, "9" * 5000, f"{'9' * 400}h", f"0x{'f' * 4000}", "1_0", "١٢", "½", "1,5", "1e-4:1e-3:100000000"),
    *(
        "1:1000000000000000",
        "1:2:3:4",
        ":",
        ",",
        "1," * 2000,
        "8,8,8",
        "5%",
        "-5%",
        "1e400%",
        "16 gigs",
        "1,5GiB",
        "64",
    ),
    *("x" * 300, "x" * 5000, "x/" * 2000, "..", "/", "~", "made", "folder", "empty.toml", "text.txt/x", "study.toml:y"),
    *("\x1b[31m", "[red]", "💥", "\udcff", "\n", "1\nname = 2", "a=b", "=", "--", "-", "--seeds", "$(x)", "%s", "{}"),
    *("[", "[" * 4000, "{a = " * 1000, "true", "null", "none", "2026-01-01", "'", '"', "a.b.c", "budget=3", "model=1"),
    *(
        "a." * 2000 + "b=1",
        "optimizer=1",
        "name.first=x",
        "data.path=a\\u0000b",
        'data.path="a\\u0000b"',
        "sweep.seeds=0",
    ),
    *("model.layers=1e30", "model.layers=inf", "model.width=3", "device.name=tpu", "batch.global_batch_sizes=[]"),
    *(
        "sweep.learning_rates=[1e-3,nan]",
        "budget.epochs=1e308",
        "optimizer.epsilon=1e308",
        "evaluation.target_loss=inf",
    ),
]
values = st.sampled_from(HOSTILE) | st.text(max_size=30) | st.integers().map(str) | st.floats().map(str)
numbers = (
    st.integers() | st.floats() | st.sampled_from([10**30, -(10**400), 10**4000, math.inf, math.nan, 1e308, 2**63])
)
trees = st.recursive(
    numbers | st.booleans() | st.sampled_from(HOSTILE) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(
    [*field_names(Experiment), "model.layers", "model.samples", "sweep", "zzz", "device.zzz", "model"]
)

TIMES = [pytest.param(1, id="some"), pytest.param(10, id="many", marks=pytest.mark.chaos)]
"""About 600 cases, the same ones each time; and 6,000 others in `make chaos`."""


TryMany = Callable[[str, st.SearchStrategy[Any], int, int, Callable[[Any], None]], None]


@pytest.fixture
def try_many(record_property: Callable[[str, Any], None]) -> TryMany:
    """`try_many(what, strategy, examples, times, check)`: `times` as many examples, which `times` > 1 draws anew."""

    def run_all(
        what: str, strategy: st.SearchStrategy[Any], examples: int, times: int, check: Callable[[Any], None]
    ) -> None:
        tried, failed = 0, 1

        def counted(asked: Any) -> None:
            nonlocal tried
            tried += 1
            check(asked)

        chosen = settings(
            max_examples=examples * times,
            derandomize=times == 1,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        try:
            chosen(given(strategy)(counted))()
            failed = 0
        finally:
            record_property("injection", injection(f"hostile input: {what}", tried, histories=tried, failed=failed))

    return run_all


class Accepted(BatchlabError):
    """The input is sound: here a worker would start."""

    exit_code = 0


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working folder with a study that was made in it; from then on nothing can be executed."""
    folder = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        made = ["study", "simulated", "--out", "made", "--batch-sizes", "8", "--learning-rates", "0.4,0.8"]
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            assert run([*made, "--seeds", "1", "--token-budget", "2048", "--set", "sweep.max_extensions=0"]) == 0
        (folder / "folder").mkdir()
        (folder / "empty.toml").touch()
        (folder / "text.txt").write_text("some text\n" * 400)

        def accept(*_: object, **__: object) -> NoReturn:
            raise Accepted("accepted")

        for engine in ("batchlab.engines.process_engine.ProcessEngine", "batchlab.engines.inline.InlineEngine"):
            patch.setattr(f"{engine}.__init__", accept)
        yield folder


def on_disk(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != ".batchlab"]  # a cache, which `data prepare` reads and fills
        found[root] = (0, 0)
        for name in files:
            if name.endswith(".lock"):
                continue  # says who held it last
            path = os.path.join(root, name)
            status = os.stat(path)
            found[path] = (status.st_size, status.st_mtime_ns)
    return found


def require_a_sentence(arguments: list[str], room: Path) -> int:
    """Run a command line: no traceback, one of three exit codes; on 2 a short text, and nothing written."""
    before = on_disk(room)
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(arguments)
    text = err.getvalue()
    assert code in (0, 1, 2), (code, text)
    assert "Traceback" not in text
    if code == 2:
        assert text.startswith("batchlab: "), text
        assert len(text) <= MOST_SAID + 20, text
        assert text.count("\n") <= 3, text
        assert on_disk(room) == before, "something was written"
    return code


def require_bounded(value: object) -> None:
    """Nothing in an accepted experiment lets a loop or an allocation run away."""
    if isinstance(value, dict):
        for each in [*value, *value.values()]:
            require_bounded(each)
    elif isinstance(value, list | tuple):
        assert len(value) <= 1000
        for each in value:
            require_bounded(each)
    elif isinstance(value, str):
        assert len(value) <= MOST_TEXT
    elif isinstance(value, int):
        assert abs(value) <= MOST_TOKENS
    elif isinstance(value, float):
        assert math.isfinite(value)


def require_refused_or_bounded(make: Callable[[], Experiment]) -> None:
    with suppress(InputError):
        require_bounded(make().model_dump())


def options_of(command: str) -> list[tuple[str, bool]]:
    """(name, whether it takes a value) of each option of a command, subcommands included in its name."""
    parsed = app
    for part in command.split():
        parsed = parsed[part]
    collected = parsed.assemble_argument_collection()
    return [
        (name, argument.hint is not bool) for argument in collected for name in argument.names if name.startswith("--")
    ]


LEAVES = [name for name in COMMANDS if name not in NOT_TRIED | {"data"}] + ["data prepare"]
OPTIONS = {command: options_of(command) for command in LEAVES}


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    command = draw(st.sampled_from(LEAVES))
    line = command.split()
    if draw(st.integers(0, 9)):
        line.append(draw(st.sampled_from(["made", *RECIPES, "study.toml", "mine.py", "mine:task"]) | values))
    for name, takes_a_value in draw(st.lists(st.sampled_from([*OPTIONS[command], ("--zzz", True)]), max_size=3)):
        value = draw(values)
        line += [name] if not takes_a_value else [f"{name}={value}"] if draw(st.booleans()) else [name, value]
    return [argument.replace("\0", "") for argument in line]  # the operating system passes no null


@pytest.mark.parametrize("times", TIMES)
def test_command_lines(times: int, room: Path, try_many: TryMany) -> None:
    def check(line: list[str]) -> None:
        require_a_sentence(line, room)

    try_many("command lines", command_lines(), 150, times, check)


@pytest.mark.parametrize("times", TIMES)
def test_options_of_a_study(times: int, room: Path, try_many: TryMany) -> None:
    texts = [field.name for field in fields(Options) if "str | None" in str(field.type)]
    assert len(texts) > 8

    def check(asked: tuple[dict[str, str], list[tuple[str, str]], str]) -> None:
        given_, assignments, task = asked
        sets = tuple("=".join(each) for each in assignments)
        require_refused_or_bounded(lambda: parse_experiment(task, Options(**given_, set_=sets)))  # type: ignore[arg-type]

    asked = st.tuples(
        st.dictionaries(st.sampled_from(texts), values, max_size=3),
        st.lists(st.tuples(names, values), max_size=2),
        st.sampled_from(["quickstart", "simulated", "mine.module:task"]),
    )
    try_many("options of a study", asked, 200, times, check)


def toml(value: object) -> str:
    """A value in TOML's spelling, be it valid or not."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, int) and value.bit_length() > 1000:
        return hex(value)
    return json.dumps(value).replace("Infinity", "inf").replace("NaN", "nan")


@pytest.mark.parametrize("times", TIMES)
def test_study_toml(times: int, room: Path, try_many: TryMany) -> None:
    file = room / "study.toml"

    def check(content: tuple[str, list[tuple[str, object]], bytes]) -> None:
        task, assigned, tail = content
        lines = [f"task = {task}", *(f"{name} = {toml(value)}" for name, value in assigned)]
        file.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass") + tail)
        require_refused_or_bounded(lambda: build_experiment(resolve_task("study.toml")))

    tasks = st.sampled_from(['"quickstart"', '"simulated"', '"mine.py"', '"study.toml"', "3"]) | trees.map(toml)
    tails = st.sampled_from([b"", b"\n[", b"\n\xff", b"\na = " + b"[" * 3000, b"\nx = " + b"9" * 5000]) | st.binary(
        max_size=9
    )
    try_many("study.toml", st.tuples(tasks, st.lists(st.tuples(names, trees), max_size=3), tails), 150, times, check)


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("name", ["experiment.json", "notes.md", "training_plan.json", "results.csv"])
def test_files_of_a_study(times: int, name: str, room: Path, try_many: TryMany) -> None:
    """Commands that read a study with one changed file. How a study repairs itself: tests/storage, tests/study."""
    file = room / "made" / name
    sound = file.read_bytes()

    def changed(how: tuple[str, Any, Any, int]) -> bytes:
        kind, setting, value, place = how
        at = place % (len(sound) + 1)
        if kind == "cut":
            return sound[:at]
        if kind == "bytes":
            return sound[:at] + str(value).encode("utf-8", "surrogatepass")[:9000] + sound[at + 1 :]
        if kind == "deep" or not name.endswith(".json"):
            return b"[" * 100_000
        content = json.loads(sound)
        *parents, leaf = setting.split(".")
        node = content
        for part in parents:
            node = node.setdefault(part, {}) if isinstance(node, dict) else {}
        if isinstance(node, dict):
            node[leaf] = value
        return json.dumps(content).encode("utf-8", "surrogatepass")

    def check(asked: tuple[tuple[str, Any, Any, int], list[str]]) -> None:
        how, command = asked
        file.write_bytes(changed(how))
        require_a_sentence(command, room)

    commands = [["status", "made"], ["plan", "made"], ["critical", "made"]]
    hows = st.tuples(st.sampled_from(["cut", "bytes", "deep", "value", "value"]), names, trees, st.integers(0, 10**6))
    try:
        try_many(
            "files of a study",
            st.tuples(hows, st.sampled_from(commands)),
            60 if name == "experiment.json" else 20,
            times,
            check,
        )
    finally:
        file.write_bytes(sound)


@pytest.mark.parametrize("command", LEAVES)
def test_every_number_is_whole_or_finite(command: str, room: Path) -> None:
    """cyclopts rounds 1.5 to an integer; every option of a number has a converter that does not (cli/arguments.py)."""
    parsed = app
    for part in command.split():
        parsed = parsed[part]
    for argument in parsed.assemble_argument_collection():
        if not any(kind in str(argument.hint) for kind in ("int", "float")):
            continue
        wrong = ["nan", "inf", "1e400", "9" * 400, "-1", "x"]
        wrong += ["1.5", "1e20", "0x10"] if "int" in str(argument.hint) else []
        for text in wrong:
            assert require_a_sentence([*command.split(), "made", f"{argument.names[0]}={text}"], room) == 2, (
                argument,
                text,
            )
