"""Ends a process that waits for others in vain.

gloo gives a wait up at the time limit. But what goes through the store where the processes met has no limit at all, and
the system itself gives up a connection whose cable was cut only after a quarter of an hour. So a thread looks at the
clock; it can do so because torch lets go of Python's lock whenever it waits.
"""

import contextlib
import os
import threading
import time
from collections.abc import Iterator

from gfrnn.errors import explain
from gfrnn.progress import LOG

LOOK_EVERY = 0.2  # seconds


class Watchdog:
    """What is not over within so many seconds ends the process, with the words and the exit code of the error given.

    >>> watchdog = Watchdog()
    >>> with watchdog.within(10, TimeoutError("never said")):
    ...     1 + 1
    2
    >>> watchdog.stop()
    """

    def __init__(self) -> None:
        self.watched: tuple[float, BaseException] | None = None  # until when, and what to say then
        self.over = threading.Event()
        threading.Thread(target=self.watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        self.over.set()

    def watch(self) -> None:
        while not self.over.wait(LOOK_EVERY):
            watched = self.watched
            if watched is not None and time.monotonic() > watched[0]:
                sentence, code = explain(watched[1])
                LOG.error(f"gfrnn: {sentence}")
                os._exit(code)

    @contextlib.contextmanager
    def within(self, seconds: float, error: BaseException) -> Iterator[None]:
        before, self.watched = self.watched, (time.monotonic() + seconds, error)
        try:
            yield
        finally:
            self.watched = before
