"""The command line: parse, call, print.

Exit codes: 0 done; 1 finished, but a required answer is missing; 2 wrong usage or input; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from cyclopts import App, CycloptsError

from batchlab import __version__
from batchlab.cli.commands.capacity import capacity
from batchlab.cli.commands.critical import critical
from batchlab.cli.commands.data import data
from batchlab.cli.commands.listing import doctor, recipes, settings
from batchlab.cli.commands.reading import mirror, plan, report, status
from batchlab.cli.commands.stages import check, study, sweep, throughput
from batchlab.core.errors import BatchlabError, InputError, did_you_mean

app = App(
    name="batchlab",
    help="What batch size, and what learning rate, should I train this model with on this hardware?",
    version=__version__,
    help_format="plaintext",
    result_action="return_value",
)

for command in (
    study,
    check,
    capacity,
    throughput,
    sweep,
    critical,
    report,
    plan,
    status,
    mirror,
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
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        code = app(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        print(f"batchlab: {_usage_error(error, arguments)}", file=sys.stderr)
        return InputError.exit_code
    except BatchlabError as error:
        print(f"batchlab: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("batchlab: stopped.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # a file system may refuse any operation
        print(f"batchlab: {error}", file=sys.stderr)
        return BatchlabError.exit_code
    return code if isinstance(code, int) else 0


def _usage_error(error: CycloptsError, arguments: list[str]) -> InputError:
    commands = [name for name in app if not name.startswith("-") and app[name].show]
    if arguments and not arguments[0].startswith("-") and arguments[0] not in commands:
        close = did_you_mean(arguments[0], commands)
        return InputError(f"There is no command {arguments[0]!r}.{close} Possible: {', '.join(sorted(commands))}.")
    return InputError(f"{str(error).strip()} Try: batchlab {arguments[0] if arguments else ''} --help")
