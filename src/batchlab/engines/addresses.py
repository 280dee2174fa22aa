"""Start a command without address randomisation: `python addresses.py COMMAND…`.

Linux places heap, stack and libraries at random. Python orders sets of objects by their addresses, so every process
frees memory in another order, and its heap has other holes: the baseline of a worker that trains a small ViT was 323.1
to 325.3 MB, a range as large as one sample needs. With fixed addresses it was 324.7 MB in ten of twelve processes.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence

_ADDR_NO_RANDOMIZE = 0x0040000  # man personality(2)
_QUERY = 0xFFFFFFFF


def at_fixed_addresses(command: Sequence[str]) -> list[str]:
    """The command that starts `command` without address randomisation; unchanged on systems other than Linux."""
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", __file__, *command]


def at_fixed_addresses_there(python: str, command: Sequence[str]) -> list[str]:
    """The same for another host, which has this module wherever its own Python finds batchlab."""
    return [python, "-P", "-m", __name__, *command]


def main() -> None:
    """Replace this process by the command. Where a container forbids the switch, addresses stay random."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        current = libc.personality(_QUERY)
        if current != -1:
            libc.personality(current | _ADDR_NO_RANDOMIZE)
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
