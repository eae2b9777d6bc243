"""Asks Python itself: programs are run in a process of their own, without environment, files or much memory.

The process is started once and fed one program after another; a program that is too slow takes it down.
"""

from __future__ import annotations

import json
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType

from gfrnn.errors import DataError
from gfrnn.models.program_symbols import encode_source
from gfrnn.tasks.programs.generator import Program

MEMORY_BYTES = 1 << 28
ANSWER_BYTES = 1 << 16
PATIENCE = 30.0  # seconds by the clock for what takes next to none of the processor's, on a busy machine
READY = b"ready\n"

# Limits are set inside, before any program is seen: a hook between fork and exec is not safe in a threaded parent.
# A program's seconds are the processor's, so that a busy machine makes no program endless: the alarm ends the process.
# Should the alarm fail, the kernel's own limit, which counts whole seconds of the process's whole life, follows soon.
_WORKER = """
import json, resource, signal, sys
seconds, memory = float(sys.argv[1]), int(sys.argv[2])
limit = resource.setrlimit
most = resource.getrlimit(resource.RLIMIT_AS)[1]
memory = memory if most == resource.RLIM_INFINITY else min(memory, most)
limit(resource.RLIMIT_AS, (memory, memory))
limit(resource.RLIMIT_FSIZE, (0, 0))
limit(resource.RLIMIT_CORE, (0, 0))
limit(resource.RLIMIT_NOFILE, (3, 3))
limit(resource.RLIMIT_NPROC, (0, 0))
hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
signal.signal(signal.SIGPROF, signal.SIG_DFL)
print("ready", flush=True)
for line in sys.stdin:
    printed = []
    known = {"print": lambda value: printed.append(str(value)), "range": range}
    used = resource.getrusage(resource.RUSAGE_SELF)
    until = int(used.ru_utime + used.ru_stime + seconds) + 2
    limit(resource.RLIMIT_CPU, (until if hard == resource.RLIM_INFINITY else min(until, hard), hard))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        exec(compile(json.loads(line), "program", "exec"), {"__builtins__": known})
        answer = ["printed", "\\n".join(printed)]
    except BaseException as error:
        answer = ["raised", f"{type(error).__name__}: {error}"]
    signal.setitimer(signal.ITIMER_PROF, 0)
    print(json.dumps(answer), flush=True)
"""


class PythonRunner:
    """Runs programs one at a time: `with PythonRunner() as run: run(source) -> what it printed`."""

    def __init__(self, seconds: float = 2.0) -> None:
        self.seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PythonRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self) -> None:
        command = [sys.executable, "-I", "-S", "-c", _WORKER, str(max(self.seconds, 1e-3)), str(MEMORY_BYTES)]
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere, env={}, cwd="/", bufsize=0)
        if self._read_line(PATIENCE) != READY:
            self._stop()
            raise DataError("the process that runs the programs did not start")

    def _stop(self) -> int:
        """Ends the process and returns its exit status; negative: the signal that had ended it."""
        if self._process is None:
            return 0
        process, self._process = self._process, None
        process.kill()  # changes nothing about one that is already on its way out
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        return process.wait()

    def __call__(self, source: str) -> str:
        """What the program prints; a DataError says that it raised, or did not end in time."""
        encode_source(source)  # no '.', '_' or quotes: nothing that reaches beyond arithmetic can even be spelled
        if self._process is None:
            self._start()
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(source).encode() + b"\n")
        except BrokenPipeError:
            raise _gone(self._stop()) from None
        line = self._read_line(PATIENCE + 10 * self.seconds)
        if line is None or len(line) > ANSWER_BYTES or not line.endswith(b"\n"):
            raise self._without_answer(line)
        kind, text = json.loads(line)
        if kind == "raised":
            raise DataError(f"the program does not run: {text}")
        return str(text)

    def _without_answer(self, line: bytes | None) -> DataError:
        status = self._stop()
        if line is None or status in (-signal.SIGPROF, -signal.SIGXCPU):
            return DataError(f"the program did not end within {self.seconds:g} seconds of CPU time")
        if len(line) > ANSWER_BYTES:
            return DataError(f"the program prints more than {ANSWER_BYTES:,} bytes")
        return _gone(status) if status < 0 else DataError("the program used more memory than it is given")

    def _read_line(self, patience: float) -> bytes | None:
        """One line; None when it does not come in time, a part of it when the process is gone or says too much."""
        assert self._process is not None and self._process.stdout is not None
        line, until = b"", time.monotonic() + patience
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n") and len(line) <= ANSWER_BYTES:
                if not selector.select(max(0.0, until - time.monotonic())):
                    return None
                piece = self._process.stdout.read(1 << 16)
                if not piece:
                    break
                line += piece
        return line


def _gone(status: int) -> DataError:
    how = f"ended by signal {-status}" if status < 0 else f"exit status {status}"
    return DataError(f"the process that runs the programs is gone ({how})")


def verified(programs: Iterable[Program], seconds: float = 2.0, origin: str = "program") -> Iterator[Program]:
    """Passes on every program that Python agrees with; the first disagreement is a DataError that names the program."""
    with PythonRunner(seconds) as run:
        for number, program in enumerate(programs, 1):
            try:
                printed = run(program.source)
            except DataError as error:
                raise DataError(f"{origin} {number}: {error}: {program.source!r}") from None
            if printed != program.target:
                what = f"prints {printed!r}, the data says {program.target!r}"
                raise DataError(f"{origin} {number} {what}: {program.source!r}")
            yield program
