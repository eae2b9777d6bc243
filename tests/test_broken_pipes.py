"""Nobody reads what is printed: fine. Any other pipe that breaks is an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import forked
import pytest

from gfrnn import cli
from gfrnn.cli import doctor, main, recipes

GFRNN = [sys.executable, "-m", "gfrnn"]


def broken_pipe() -> int:
    """To write to; the other end is closed."""
    read, write = os.pipe()
    os.close(read)
    return write


@pytest.mark.parametrize(
    "words",
    [["--help"], ["recipes"], ["train", "--help"], ["doctor"], ["doctor", "--json"], ["programs", "--count", "3000"]],
    ids=" ".join,
)
def test_a_command_whose_output_nobody_reads_ends_well(words: list[str]) -> None:
    run = forked.run if words[0] == "doctor" else subprocess.run  # it imports torch
    done = run([*GFRNN, *words], stdout=broken_pipe(), stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def died(argv: list[str]) -> int:
    """As if a worker of ours were dead."""
    os.write(broken_pipe(), b"work")
    raise AssertionError


def test_any_other_broken_pipe_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(recipes, "main", died)
    sentence = "gfrnn: a process that this one was writing to has died (broken pipe)\n"
    assert (main(["recipes"]), capfd.readouterr().err) == (1, sentence)
    with (tmp_path / "out").open("w") as file, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", file)
        assert (main(["recipes"]), capfd.readouterr().err) == (1, sentence)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        assert (main(["recipes"]), capfd.readouterr().err) == (1, sentence)
    assert main(["recipes", "--debug"]) == 1
    assert "BrokenPipeError" in capfd.readouterr().err


def test_an_error_that_nobody_reads_keeps_its_exit_code() -> None:
    done = subprocess.run([*GFRNN, "recipies"], stdout=subprocess.PIPE, stderr=broken_pipe(), text=True)
    assert (done.returncode, done.stdout) == (2, "")


def test_output_that_is_still_waiting_to_be_written(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What is printed last breaks the pipe only when it is flushed."""

    def short(argv: list[str]) -> int:
        print("a line")
        return 0

    monkeypatch.setattr(doctor, "main", short)
    with os.fdopen(broken_pipe(), "w") as stream:
        monkeypatch.setattr(cli.sys, "stdout", stream)
        assert (main(["doctor"]), capfd.readouterr().err) == (0, "")
