"""What is told while something long runs. Here nobody looks; the command line has the bar (cli/progress.py)."""

import logging
from typing import Any

LOG = logging.getLogger("gfrnn")


class Progress:
    """Silent but for warnings, which go to Python's log: `with Progress("x") as bar: bar.show(0.3, "words")`."""

    def __init__(self, title: str = "") -> None:
        self.title = title

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def due(self) -> bool:
        """Whether `show` would show anything now: composing the words costs more than asking."""
        return False

    def show(self, fraction: float, words: str) -> None:
        """So much is done."""

    def show_if_due(self, fraction: float, words: str) -> None:
        if self.due():
            self.show(fraction, words)

    def say(self, sentence: str) -> None:
        """A line that stays."""

    def warn(self, sentence: str) -> None:
        """A line that must be seen."""
        LOG.warning(sentence)

    def hush(self) -> None:
        """From here on another process speaks for this one."""
        self.warn = lambda sentence: None  # type: ignore[method-assign]
