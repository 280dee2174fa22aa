"""The command line: parse, call, print.

Exit codes: 0 done; 1 finished, but a required answer is missing; 2 wrong usage or input; 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import NoReturn

from cyclopts import App, CycloptsError, UnusedCliTokensError

from batchlab import __version__
from batchlab.cli.arguments import require_values
from batchlab.cli.commands.audit import audit
from batchlab.cli.commands.calibrate import calibrate
from batchlab.cli.commands.capacity import capacity
from batchlab.cli.commands.compare import compare
from batchlab.cli.commands.critical import critical
from batchlab.cli.commands.data import data
from batchlab.cli.commands.init import init
from batchlab.cli.commands.listing import doctor, recipes, settings
from batchlab.cli.commands.reading import mirror, plan, report, status
from batchlab.cli.commands.stages import check, study, sweep, throughput
from batchlab.cli.commands.train import train
from batchlab.core.errors import ECHO, BatchlabError, InputError, StudyInterrupted, did_you_mean, quote, shorten

app = App(
    name="batchlab",
    help="What batch size, and what learning rate, should I train this model with on this hardware?",
    version=__version__,
    help_format="plaintext",
    result_action="return_value",
    suppress_keyboard_interrupt=False,  # it would end this process without a word
)

for command in (
    study,
    check,
    capacity,
    throughput,
    sweep,
    critical,
    calibrate,
    compare,
    audit,
    report,
    plan,
    train,
    status,
    mirror,
    init,
    recipes,
    settings,
    doctor,
):
    app.command(command)
app.command(data)


@app.command(show=False)
def worker(*, study: Path) -> int:
    """Execute specs from standard input; used by engines."""
    from batchlab.engines.worker import main as work

    return work(["--study", str(study)])


def main(arguments: list[str] | None = None) -> NoReturn:
    """Entry point of the `batchlab` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="surrogateescape")  # names of files that are not UTF-8 are printed as they are
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        require_values(arguments)
        code = app(arguments, exit_on_error=False, print_error=False)
        print(end="", flush=True)  # here, where a reader that has gone away is expected
    except CycloptsError as error:
        return _refuse(_usage_error(error, arguments))
    except BatchlabError as error:
        return _refuse(error, arguments)
    except KeyboardInterrupt:
        stopped = StudyInterrupted("Stopped. What is finished is kept; run the same command again to continue.")
        return _refuse(stopped, arguments)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if error.errno not in _PATH_ERRORS or error.filename is None:
            return _refuse(BatchlabError(str(error)))  # a file system may refuse any operation
        return _refuse(InputError(f"{quote(os.fsdecode(error.filename))} cannot be used: {error.strerror}."))
    return code if isinstance(code, int) else 0


_PATH_ERRORS = {
    errno.EACCES,
    errno.EILSEQ,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
}
"""What is wrong with a path that was given, wherever it is opened."""

MOST_SAID = 2000
"""Characters of an error; the middle of a longer one is left out. Lines to add to a file take 1,000."""


def _refuse(error: BatchlabError, arguments: Sequence[str] = ()) -> int:
    """Say what is wrong and, where it can be continued, with which command; return the exit code."""
    print(f"batchlab: {shorten(str(error), MOST_SAID)}", file=sys.stderr)
    if error.resumable:
        print(f"    {shlex.join(['batchlab', *arguments])}", file=sys.stderr)
    return error.exit_code


def _usage_error(error: CycloptsError, arguments: list[str]) -> InputError:
    commands = [name for name in app if not name.startswith("-") and app[name].show]
    if arguments and not arguments[0].startswith("-") and arguments[0] not in commands:
        close = did_you_mean(arguments[0], commands)
        return InputError(f"There is no command {quote(arguments[0])}.{close} Possible: {', '.join(sorted(commands))}.")
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return InputError(
            f"{quote(error.unused_tokens[0])} is one argument too many. Try: batchlab {arguments[0]} --help"
        )
    command = f"{arguments[0]} " if arguments and arguments[0] in commands else ""
    return InputError(f"{shorten(str(error).strip(), 2 * ECHO)} Try: batchlab {command}--help")
