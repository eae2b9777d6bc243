"""Asking a run to stop: SIGTERM and SIGUSR1 (pre-emption) and SIGINT (Ctrl-C)."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from gfrnn.errors import GfrnnError, Interrupted, Preempted

MEANING: dict[int, type[GfrnnError]] = {
    signal.SIGINT: Interrupted,
    signal.SIGTERM: Preempted,
    signal.SIGUSR1: Preempted,
}


class Signals:
    """While entered, a signal is only remembered in `number` (0: none came); the loop stops at the next safe place."""

    number = 0

    def __enter__(self) -> "Signals":
        self.before = {number: signal.signal(number, self.remember) for number in MEANING}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def remember(self, number: int, frame: Any) -> None:
        self.number = number


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """While entered, pre-emption ends the command at once: for the parts of it that have nothing to save."""
    came = list[Preempted]()

    def leave(number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        came.append(Preempted(f"stopped by {name} outside of training; the same command continues"))
        if importing(frame):
            die(str(came[-1]), Preempted.exit_code)
        raise came[-1]

    before = {number: signal.signal(number, leave) for number, kind in MEANING.items() if kind is Preempted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:  # some code catches whatever is raised
        raise came[-1]


@contextmanager
def ctrl_c() -> Iterator[None]:
    """While entered, Ctrl-C is KeyboardInterrupt, as ever; but while a module is imported it ends the process at once.

    Modules catch whatever is raised, and go on half made. Nothing is lost: what writes files does not import.
    """
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        if importing(frame):
            die("interrupted", Interrupted.exit_code)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def importing(frame: FrameType | None) -> bool:
    """Whether this happens while a module is imported."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def die(sentence: str, code: int) -> NoReturn:
    with contextlib.suppress(OSError):  # not a stream's: the signal may have come while that was at work
        os.write(2, f"gfrnn: {sentence}\n".encode())
    os._exit(code)
