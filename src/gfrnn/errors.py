"""What can go wrong in a way a user can mend: one class per exit code of the command line.

The message is one sentence that names the file or argument and the reason. The classes that stand for bad input are
ValueErrors too, so that users of the Python API may catch what they would expect.
"""

import difflib
import errno
import re
from collections.abc import Iterable

NO_SPACE = "no space left on the device"
DEFECT = "this is a defect of gfrnn: --debug shows where"


class GfrnnError(Exception):
    """Base of everything raised on purpose; `exit_code` is what the command line returns for it."""

    exit_code = 1


class LostContact(GfrnnError):
    """One of the processes that train together died, hangs, or cannot be reached any more."""


class UsageError(GfrnnError, ValueError):
    """A command, option or configuration that makes no sense."""

    exit_code = 2


class DataError(GfrnnError, ValueError):
    """A text, model or checkpoint that is missing, damaged, or not what it should be."""

    exit_code = 3


class NonFinite(GfrnnError, ArithmeticError):
    """Training met NaN or infinity more often than it can step around."""

    exit_code = 4


class Preempted(GfrnnError):
    """Stopped by SIGTERM or SIGUSR1 after saving: the same command continues."""

    exit_code = 75


class Interrupted(GfrnnError):
    """Stopped by Ctrl-C after saving: the same command continues."""

    exit_code = 130


# How torch says it.
NO_MEMORY = re.compile("can't allocate memory|not enough memory|Storage size calculation overflowed|out of memory")


def explain(error: BaseException) -> tuple[str, int]:
    """One sentence and the exit code for an exception."""
    if isinstance(error, GfrnnError):
        return str(error), error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", Interrupted.exit_code
    if isinstance(error, BrokenPipeError):
        return "a process that this one was writing to has died (broken pipe)", GfrnnError.exit_code
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        if error.errno == errno.ENOSPC:
            return f"{NO_SPACE}{where}; what was saved before is untouched", 3
        return f"{error.strerror or error}{where}", 3
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and NO_MEMORY.search(str(error))):
        return "out of memory: use fewer rows, shorter sequences or a smaller model", 3
    return f"{type(error).__name__}: {error} ({DEFECT})", 1


def of_exit_code(code: int, sentence: str) -> GfrnnError:
    """The error another process met, from what it said about it.

    >>> of_exit_code(3, "text.txt is empty")
    DataError('text.txt is empty')
    """
    kinds = (UsageError, DataError, NonFinite, Preempted, Interrupted)
    return next((kind for kind in kinds if kind.exit_code == code), GfrnnError)(sentence)


def nearest(word: str, choices: Iterable[str]) -> str:
    """A hint to append to "unknown ...": the most similar choice, or nothing when none is similar.

    >>> nearest("hutter-gated-lsmt", ["hutter-gated-lstm", "hutter-single-gru"])
    "; did you mean 'hutter-gated-lstm'?"
    >>> nearest("xyz", ["train", "eval"])
    ''
    """
    close = difflib.get_close_matches(word, list(choices), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""
