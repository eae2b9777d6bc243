"""What the user sees while something long runs: a bar on a terminal, a line every few seconds elsewhere, or nothing."""

import os
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from gfrnn.progress import Progress

PLAIN_SECONDS = 5.0


def displays(quiet: bool) -> Callable[[str], Progress]:
    """What the floors below are given to show their progress with: a bar for a title."""
    return lambda title: Bar(title, quiet)


class Bar(Progress):
    """Shows a fraction done, a few words, and the time left: `with Bar("x") as bar: bar.show(0.3, "words")`.

    `quiet` shows nothing but warnings; after `hush` (another process speaks) not even those. `aside` is for
    commands whose output is data: a bar on standard error if that is a terminal and the data go elsewhere, or nothing.
    """

    def __init__(self, title: str, quiet: bool = False, aside: bool = False) -> None:
        unseen = aside and (sys.stdout.isatty() or not sys.stderr.isatty())
        super().__init__(title)
        self.quiet, self.silent, self.aside = quiet or unseen, False, aside
        self.bar: Any = None
        self.started = self.last_line = time.monotonic()
        self.first_fraction: float | None = None
        self.unfinished = ""  # what the last plain line said, if it was not of the end

    def __enter__(self) -> "Bar":
        if not self.quiet and (self.aside or sys.stdout.isatty()):
            from rich.console import Console

            from gfrnn.cli.bar_line import OneLine

            self.bar = OneLine(console=Console(stderr=self.aside), refresh_per_second=2)
            self.bar.add_task(self.title, total=1.0, words="")
            self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            if error[:1] in ((), (None,)):  # all went well: it is all done, whenever it was shown last
                self.bar.update(self.bar.task_ids[0], completed=1.0)
            self.bar.stop()
            self.bar = None
        elif self.unfinished and error[:1] in ((), (None,)):
            self.show(1.0, self.unfinished)

    def due(self) -> bool:
        """Whether `show` would show anything now: composing the words costs more than asking."""
        if self.quiet:
            return False
        wait = 0.25 if self.bar is not None else PLAIN_SECONDS
        return time.monotonic() - self.last_line >= wait

    def show(self, fraction: float, words: str) -> None:
        self.last_line = time.monotonic()
        fraction = min(fraction, 1.0)
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=fraction, words=words)
        elif not self.quiet:
            self.unfinished = words if fraction < 1 else ""
            parts = (self.title, f"{100 * fraction:5.1f} %", words, self.left(fraction))
            self.print("  ".join(part for part in parts if part))

    def left(self, fraction: float) -> str:
        """The time left, judging by the pace since the first call."""
        now = time.monotonic()
        if self.first_fraction is None:
            self.first_fraction, self.started = fraction, now
        done = fraction - self.first_fraction
        if done <= 0 or fraction == 1:
            return ""
        seconds = int((now - self.started) * (1 - fraction) / done)
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02} left"

    def say(self, sentence: str) -> None:
        """A line that stays."""
        if self.bar is not None:
            self.bar.console.print(sentence, highlight=False, markup=False)
        elif not self.quiet:
            self.print(sentence)

    def warn(self, sentence: str) -> None:
        """A line that must be seen, however quiet: then it goes to standard error."""
        if not self.quiet:
            self.say(sentence)
        elif not self.silent:
            self.print(sentence, sys.stderr)

    def hush(self) -> None:
        self.quiet = self.silent = True

    def print(self, line: str, stream: TextIO | None = None) -> None:
        stream = sys.stdout if stream is None else stream
        try:
            print(line, file=stream, flush=True)
        except BrokenPipeError:  # `gfrnn train ... | head`: nobody reads on, and the work goes on
            self.quiet = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
