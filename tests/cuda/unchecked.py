"""The command line of batchlab without its first stage: `python -m tests.cuda.unchecked capacity TASK …`.

The check of a task needs numbers. Everything that is read from the stand-in is 0, so it finds that no gradient reaches
any parameter, and a study would end there. Workers are started as always.
"""

from __future__ import annotations

import sys
from unittest import mock

from batchlab.cli.app import main
from batchlab.core.check import CheckResult
from batchlab.study import study

if __name__ == "__main__":
    sys.argv[0] = "batchlab"
    with mock.patch.object(study, "check_stage", return_value=CheckResult(items=())):
        main()
