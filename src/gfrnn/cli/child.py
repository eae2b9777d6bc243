"""`python -m gfrnn.cli.child PID VERB ...`: `gfrnn VERB ...` for the process PID, which it does not outlive."""

import ctypes
import os
import signal
import sys

from gfrnn.cli import main
from gfrnn.errors import Preempted

PR_SET_PDEATHSIG = 1  # sys/prctl.h


def stop_without_parent() -> None:
    """Ask the system for SIGTERM when the parent is gone: without it nobody watches, so save and leave."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def child(parent: int, words: list[str]) -> int:
    stop_without_parent()
    if os.getppid() != parent:  # gone before we could ask
        return Preempted.exit_code
    return main(words)


if __name__ == "__main__":
    code = child(int(sys.argv[1]), sys.argv[2:])
    sys.stdout.flush()
    os._exit(code)  # Python needs seconds to tidy up after torch, and whoever stops us waits
