"""The bar on a terminal: it ends at 100 % with the last words, and its percentage is seen however narrow it is."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
from pathlib import Path

import forked
import pytest
from test_cli import tiny_words

from gfrnn.cli.bar_line import layout


def on_a_terminal(words: list[str], columns: int, **environment: str) -> list[str]:
    """What a terminal of so many columns shows of `gfrnn WORDS`, as frames: what is written between returns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    surroundings = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    surroundings |= {"TERM": "xterm", "PYTHONUTF8": "1", **environment}
    with forked.Popen(
        [sys.executable, "-m", "gfrnn", *words], stdin=theirs, stdout=theirs, stderr=theirs, env=surroundings
    ) as done:
        os.close(theirs)
        shown = b""
        while chunk := read(ours):
            shown += chunk
    os.close(ours)
    assert done.returncode == 0, shown.decode()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    return [frame.rstrip() for frame in re.split(r"[\r\n]+", plain) if frame.strip()]


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # Linux says so when the other side is closed
        return b""


@pytest.mark.parametrize("columns", [40, pytest.param(100, marks=pytest.mark.slow)])
def test_training_ends_at_100_percent_with_the_last_words(columns: int, tmp_path: Path) -> None:
    words = [*tiny_words(tmp_path, updates=40, validate_every=0, validate_chars=500), "--out", str(tmp_path / "run")]
    frames = on_a_terminal(words, columns)
    bars = [frame for frame in frames if frame.startswith("modern-gated-lstm") and "%" in frame]
    assert bars
    assert all(len(bar) <= columns for bar in bars)
    assert "100%" in bars[-1]
    assert "update 40" in bars[-1]
    assert ("━" in bars[-1]) == (columns == 100)


def test_a_score_that_is_over_before_the_bar_is_due_ends_at_100_percent_too(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"some text " * 50)
    frames = on_a_terminal(["eval", "--data", str(tmp_path / "text")], 40, NO_COLOR="1")
    bars = [frame for frame in frames if frame.startswith("eval")]
    assert "100%" in bars[-1]


@pytest.mark.parametrize("width", range(8, 130))
@pytest.mark.parametrize("words", ["", "update 8,000  1.999 BPC  best 2.0123  12,345 chars/s"])
@pytest.mark.parametrize("time", ["", "466:10:00"])
def test_the_percentage_is_always_there_and_nothing_is_too_wide(width: int, words: str, time: str) -> None:
    shown = layout("modern-gated-lstm", 0.257, words, time, width)
    assert shown.percent == " 25%"
    parts = [part for part in (shown.title, "━" * shown.bar, shown.percent, shown.words, shown.time) if part]
    assert len(" ".join(parts)) <= width
    if shown.bar:  # the first to go
        assert (shown.title, shown.words, shown.time) == ("modern-gated-lstm", words, time)
    if shown.title != "modern-gated-lstm":  # the last
        assert (shown.bar, shown.words, shown.time) == (0, "", "")
