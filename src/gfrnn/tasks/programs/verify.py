"""Asks Python itself: programs are run in a process of their own, without environment, files or much memory.

The process is started once and fed one program after another; a program that is too slow takes it down.
"""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
from collections.abc import Iterable, Iterator
from types import TracebackType

from gfrnn.errors import DataError
from gfrnn.tasks.programs.generator import Program
from gfrnn.tasks.programs.symbols import encode_source

MEMORY_BYTES = 1 << 28
ANSWER_BYTES = 1 << 16

# Limits are set inside, before any program is seen: a hook between fork and exec is not safe in a threaded parent.
# The limit on CPU seconds is moved on before every program, as the kernel counts the whole life of the process.
_WORKER = """
import json, resource, sys
seconds, memory = int(sys.argv[1]), int(sys.argv[2])
limit, unlimited = resource.setrlimit, resource.RLIM_INFINITY
limit(resource.RLIMIT_AS, (memory, memory))
limit(resource.RLIMIT_FSIZE, (0, 0))
limit(resource.RLIMIT_CORE, (0, 0))
limit(resource.RLIMIT_NOFILE, (3, 3))
limit(resource.RLIMIT_NPROC, (0, 0))
hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
for line in sys.stdin:
    used = resource.getrusage(resource.RUSAGE_SELF)
    until = int(used.ru_utime + used.ru_stime) + seconds + 1
    limit(resource.RLIMIT_CPU, (until if hard == unlimited else min(until, hard), hard))
    printed = []
    known = {"print": lambda value: printed.append(str(value)), "range": range}
    try:
        exec(compile(json.loads(line), "program", "exec"), {"__builtins__": known})
        answer = ["printed", "\\n".join(printed)]
    except BaseException as error:
        answer = ["raised", f"{type(error).__name__}: {error}"]
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

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-I", "-S", "-c", _WORKER, str(int(self.seconds) + 1), str(MEMORY_BYTES)]
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere, env={}, cwd="/", bufsize=0)

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process.wait()
            self._process = None

    def __call__(self, source: str) -> str:
        """What the program prints; a DataError says that it raised, or did not end in time."""
        encode_source(source)  # no '.', '_' or quotes: nothing that reaches beyond arithmetic can even be spelled
        if self._process is None:
            self._process = self._start()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(source).encode() + b"\n")
        line = self._read_line()
        if line is None:
            self._stop()
            raise DataError(f"the program did not end within {self.seconds:g} seconds")
        if not line:
            self._stop()
            raise DataError("the program used more time or memory than it is given")
        kind, text = json.loads(line)
        if kind == "raised":
            raise DataError(f"the program does not run: {text}")
        return str(text)

    def _read_line(self) -> bytes | None:
        """One answer; None when the time is up, b"" when the process is gone or says too much."""
        assert self._process is not None and self._process.stdout is not None
        answer = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not answer.endswith(b"\n"):
                if not selector.select(self.seconds):
                    return None
                piece = self._process.stdout.read(1 << 16)
                answer += piece
                if not piece or len(answer) > ANSWER_BYTES:
                    return b""
        return answer


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
