"""The `batchlab` command, also as `python -m batchlab`. Ctrl-C is answered while the command line is still loading."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the `batchlab` command."""
    try:
        from batchlab.cli.app import main as run
    except KeyboardInterrupt:
        print("batchlab: stopped before anything began", file=sys.stderr)
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
