"""`subprocess` for programs of ours: real processes, forked from the fault suite's server, which has imported torch.

Files, environment, signals and exit codes are their own; only the seconds in which Python imports everything are saved.
That holds of those, too, which they start themselves by `sys.executable -m`. What is said of the start itself (an
environment that an import reads, what is imported, and from where) needs the real `subprocess`.
"""

from __future__ import annotations

import atexit
import inspect
import logging
import os
import runpy
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing import reduction
from pathlib import Path
from typing import Any, NoReturn

import torch

sys.path.insert(0, str(Path(__file__).parent / "faults"))

from harness import CONTEXT, start_server

PIPE, DEVNULL = subprocess.PIPE, subprocess.DEVNULL
FLAGS = {"-u", "-P"}
OTHERS: list[Any] = []  # streams of whom we are forked from; what waits in them is not ours to write
ENDS = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")  # of pipes; -1 where there is none


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """`subprocess.Popen([sys.executable, "-m" or "-c", ...])`, without the start of Python."""

    def _execute_child(self, *given: Any) -> None:
        asked = inspect.signature(super()._execute_child).bind(*given).arguments  # type: ignore[misc]
        ends = [asked[end] if asked[end] != -1 else own for own, end in enumerate(("p2cread", "c2pwrite", "errwrite"))]
        environment = dict(os.environ if asked["env"] is None else asked["env"])
        about = (list(asked["args"]), environment, asked["cwd"] or os.getcwd(), [Handed(end) for end in ends])
        start_server()
        self._process = CONTEXT.Process(target=_become, args=about)
        self._process.start()
        self.pid = self._process.pid or 0
        self._child_created = True
        self._close_pipe_fds(*(asked[end] for end in ENDS))  # type: ignore[attr-defined]

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        return self._wait(0)

    def _wait(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self._process.join(timeout)
            self.returncode = self._process.exitcode
            if self.returncode is None and timeout:
                raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode


class Handed:
    """A file of this process that is open in the other, under a number of its own."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (reduction.DupFd(self.number),)  # type: ignore[attr-defined]


def _received(handle: Any) -> int:
    return int(handle.detach())


def run(
    args: Sequence[str], *, check: bool = False, capture_output: bool = False, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """As `subprocess.run`."""
    if capture_output:
        options |= {"stdout": PIPE, "stderr": PIPE}
    with Popen(args, **options) as process:
        out, error = process.communicate()
    done = subprocess.CompletedProcess(process.args, process.returncode, out, error)
    if check:
        done.check_returncode()
    return done


def _become(args: list[str], environment: dict[str, str], cwd: str, files: list[int]) -> None:
    for own, file in enumerate(files):
        os.dup2(file, own)
    os.chdir(cwd)
    subprocess.Popen = Nested  # type: ignore[misc, assignment]
    _main(args, environment)


class Nested(subprocess.Popen):  # type: ignore[type-arg]
    """Started by one of these processes: forked from it, if it is a program of ours."""

    def __init__(
        self, args: Sequence[str], *, env: Mapping[str, str] | None = None, preexec_fn: Any = None, **options: Any
    ) -> None:
        if args[0] == sys.executable and "-m" in args[1:4]:
            preexec_fn = partial(_instead, list(args), dict(os.environ if env is None else env), preexec_fn)
        super().__init__(args, env=env, preexec_fn=preexec_fn, **options)


def _instead(args: list[str], environment: dict[str, str], before: Callable[[], None] | None) -> NoReturn:
    """What a forked process does instead of executing a file."""
    os.closerange(3, 1024)  # among them the pipe by which whoever starts us waits for that
    if before is not None:
        before()
    try:
        _main(args, environment)
    finally:
        os._exit(1)


def _main(args: list[str], environment: dict[str, str]) -> NoReturn:
    """Be the program that Python is told by `args` to be, from its first line to its exit."""
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    logging.disable(logging.NOTSET)
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(int(environment.get("OMP_NUM_THREADS", len(os.sched_getaffinity(0)))))
    OTHERS.extend((sys.stdin, sys.stdout, sys.stderr))
    text: dict[str, Any] = {"encoding": environment.get("PYTHONIOENCODING", "utf-8"), "closefd": False}
    sys.stdin, sys.stdout = open(0, **text), open(1, "w", **text)  # noqa: SIM115
    sys.stderr = open(2, "w", errors="backslashreplace", buffering=1, **text)  # noqa: SIM115
    words = [word for place, word in enumerate(args[1:]) if not (place < 2 and word in FLAGS)]
    how, what, sys.argv = words[0], words[1], words[1:]
    code: Any = 0
    try:
        if how == "-m":
            sys.modules.pop(what, None)
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as leaving:
        code = leaving.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)
