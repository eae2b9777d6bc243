"""`gfrnn generate`: bytes into a file or a pipe, text on a terminal."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path

import forked
import pytest
import torch

from gfrnn.models import CharLM

PROMPT = "Grüße\r\n".encode()
COMMAND = [sys.executable, "-m", "gfrnn", "generate"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learnt nothing and says any of 256 bytes, and a prompt that is no ASCII."""
    folder = tmp_path_factory.mktemp("generate")
    torch.manual_seed(1)
    CharLM(hidden_size=4, num_layers=1, vocabulary=bytes(range(256))).save_pretrained(folder / "model")
    (folder / "prompt").write_bytes(PROMPT)
    return folder


def words(folder: Path, *more: str) -> list[str]:
    return [*COMMAND, str(folder / "model"), "--prompt-file", str(folder / "prompt"), "--seed", "7", *more]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_file_gets_the_bytes_and_nothing_else(folder: Path, encoding: str) -> None:
    expected = CharLM.from_pretrained(folder / "model").generate(PROMPT, 300, seed=7)
    with pytest.raises(UnicodeDecodeError):
        expected.decode()
    with (folder / "out").open("wb") as out:
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        forked.run(words(folder, "--chars", "300"), stdout=out, check=True, env=environment)
    assert (folder / "out").read_bytes() == PROMPT + expected


def test_samples_in_a_file_are_bytes_under_their_headings(folder: Path) -> None:
    out = forked.run(words(folder, "--chars", "50", "--samples", "2"), stdout=forked.PIPE, check=True).stdout
    first, second = out.removeprefix(b"--- sample 1\n").split(b"\n--- sample 2\n")
    assert first.startswith(PROMPT)
    assert len(first) == len(PROMPT) + 50
    assert len(second) == len(PROMPT) + 50 + 1
    assert second.endswith(b"\n")


def test_a_terminal_gets_text_and_a_new_line(folder: Path) -> None:
    ours, theirs = pty.openpty()
    expected = (PROMPT + CharLM.from_pretrained(folder / "model").generate(PROMPT, 40, seed=7)).decode(errors="replace")
    with forked.Popen(words(folder, "--chars", "40"), stdout=theirs, env={**os.environ, "PYTHONUTF8": "1"}) as done:
        os.close(theirs)
        shown = b""
        while chunk := read(ours):
            shown += chunk
    os.close(ours)
    assert done.returncode == 0
    # The terminal itself makes a newline of two characters.
    assert shown.decode() == f"{expected}\n".replace("\n", "\r\n")


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # Linux says so when the other side is closed
        return b""
