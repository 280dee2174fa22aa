"""`python -m batchlab` is the `batchlab` command."""

from batchlab.cli.app import main

if __name__ == "__main__":
    main()
