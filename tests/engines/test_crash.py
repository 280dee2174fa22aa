"""What is said of a process that died in C code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from batchlab.engines.crash import fatal_error


def test_a_log_without_a_fatal_error_says_nothing() -> None:
    assert fatal_error('step 1\n  File "mine.py", line 3 in loss\n', Path("mine.py")) == ""


def test_the_line_of_the_persons_file_is_named(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("import faulthandler, os\nfaulthandler.enable()\ndef loss():\n    os.abort()\nloss()\n")
    died = subprocess.run([sys.executable, str(mine)], capture_output=True, text=True, check=False)
    log = "printed before\n" + died.stderr
    assert fatal_error(log, mine) == "Fatal Python error: Aborted (line 4 of mine.py)"
    assert fatal_error(log, Path("other.py")) == "Fatal Python error: Aborted"
