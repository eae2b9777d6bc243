"""Asking a run to stop: SIGTERM and SIGUSR1 (pre-emption) and SIGINT (Ctrl-C)."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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

    def leave(number: int, frame: Any) -> None:
        name = signal.Signals(number).name
        came.append(Preempted(f"stopped by {name} outside of training; the same command continues"))
        raise came[-1]

    before = {number: signal.signal(number, leave) for number, kind in MEANING.items() if kind is Preempted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:  # modules that are being imported catch whatever is raised
        raise came[-1]
