"""`python -m batchlab` is the `batchlab` command."""

from batchlab.cli import main

if __name__ == "__main__":
    main()
